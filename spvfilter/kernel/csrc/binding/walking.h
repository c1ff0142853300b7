/* Binding of block/walk.h, block/script.h and block/txid.h: walk_tx to wtxid, and is_pubkey to multisig_keys. The
   twin is the first half of pure/blocks.py. */
#ifndef SPV_BINDING_WALKING_H
#define SPV_BINDING_WALKING_H

#include "binding/binding.h"

/* Adds the functions to the module. Returns -1 with an exception set if that fails. */
int spv_add_walk(PyObject *module, spv_state *state);

#endif
