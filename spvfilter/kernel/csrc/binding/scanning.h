/* Binding of block/merkle.h, bloom/bip37/scan.h and the end of block/walk.h: merkle_root, merkle_branches,
   block_txids, block_txs, check_block, check_amounts, bip37_scan_block and bip37_scan_tx.
   The twin is the second half of pure/blocks.py. */
#ifndef SPV_BINDING_SCANNING_H
#define SPV_BINDING_SCANNING_H

#include "binding/binding.h"

/* Adds the functions to the module. Returns -1 with an exception set if that fails. */
int spv_add_scan(PyObject *module, spv_state *state);

#endif
