/* Binding of block/merkleblock.h: parse_merkleblock, extract_matches; the twin of pure/merkleblock.py. */
#ifndef SPV_BINDING_MERKLEBLOCK_H
#define SPV_BINDING_MERKLEBLOCK_H

#include "binding/binding.h"

/* Adds them to the module; -1 with an exception set where that fails. */
int spv_add_merkleblock(PyObject *module, spv_state *state);

#endif
