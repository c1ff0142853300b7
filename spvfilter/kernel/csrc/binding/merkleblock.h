/* Binding of block/merkleblock.h: parse_merkleblock and extract_matches. The twin is pure/merkleblock.py. */
#ifndef SPV_BINDING_MERKLEBLOCK_H
#define SPV_BINDING_MERKLEBLOCK_H

#include "binding/binding.h"

/* Adds the functions to the module. Returns -1 with an exception set if that fails. */
int spv_add_merkleblock(PyObject *module, spv_state *state);

#endif
