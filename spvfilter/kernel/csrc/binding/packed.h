/* Module functions for packed hits: packing, unpacking, sums and lines. */
#ifndef SPV_BINDING_PACKED_H
#define SPV_BINDING_PACKED_H

#include "binding/arguments.h"

#include "watch/packed.h"

/* The facts of a block; its height is None or at most `most`. False with an exception set. */
bool spv_take_hit_block(const spv_state *state, PyObject *hash, PyObject *height, PyObject *time, long long most, spv_hit_block *block);

/* Reads all hits of a snapshot, mostly without the GIL. False with an exception set. */
bool spv_read_packed(const spv_state *state, spv_hits_read *read, spv_bytes packed);

int spv_add_packed(PyObject *module, spv_state *state);

#endif
