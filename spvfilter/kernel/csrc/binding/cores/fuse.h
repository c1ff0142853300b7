/* The type FuseCore, and the functions fuse_merge and fuse_build. The twins are in pure/fuse.py. */
#ifndef SPV_BINDING_CORES_FUSE_H
#define SPV_BINDING_CORES_FUSE_H

#include "binding/cores/keys.h"

/* FuseCore._hash of a held key. Runs the user's function if the family is CUSTOM. False with an exception set. */
bool spv_fuse_hash_held(spv_core *core, const spv_held *held, uint64_t *hash);

/* FuseCore.__contains__ for a held key: 1 or 0, or -1 with an exception set. */
int spv_fuse_contains_held(spv_fuse_core *fused, const spv_held *held);

bool spv_make_fuse_type(PyObject *module, spv_state *state);

#endif
