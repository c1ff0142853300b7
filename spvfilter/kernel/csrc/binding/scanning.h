/* Binding of block/merkle.h and bloom/bip37/scan.h: merkle_root, check_block, bip37_scan_block, bip37_scan_tx; the twin of the second half of pure/blocks.py. */
#ifndef SPV_BINDING_SCANNING_H
#define SPV_BINDING_SCANNING_H

#include "binding/binding.h"

/* Adds them to the module; -1 with an exception set on failure. */
int spv_add_scan(PyObject *module, spv_state *state);

#endif
