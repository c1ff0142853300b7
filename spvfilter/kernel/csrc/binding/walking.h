/* Binding of block/walk.h, block/script.h and block/txid.h: walk_tx … wtxid, is_pubkey … multisig_keys; the twin of the first half of
   pure/blocks.py. */
#ifndef SPV_BINDING_WALKING_H
#define SPV_BINDING_WALKING_H

#include "binding/binding.h"

/* Adds them to the module; -1 with an exception set on failure. */
int spv_add_walk(PyObject *module, spv_state *state);

#endif
