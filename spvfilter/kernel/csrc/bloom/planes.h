/* Batches of keys whose bits are laid out function by function, one window of keys at a time. It does the work of
   bits.h for families with two hashes of a key, and up to SPV_PLANES functions. */
#ifndef SPV_BLOOM_PLANES_H
#define SPV_BLOOM_PLANES_H

#include "bloom/cells.h"

/* size of the cells, in bytes, above which they are fetched ahead; a smaller latency is hidden by out-of-order
   execution */
enum { SPV_PLANES_FAR = 1 << 21 };

SPV_INLINE bool spv_planes_suit(const spv_shape *shape) {
    return spv_walk_of(shape) == SPV_WALK_SPREAD && shape->functions <= SPV_PLANES;
}

/* spv_bits_add_many and spv_bits_has_many. */
size_t spv_planes_add(spv_batch *batch, const spv_keys *keys, size_t from, size_t count);
void spv_planes_has(const spv_batch *batch, const spv_keys *keys, size_t from, size_t count, uint8_t *mask);

#endif
