/* Batches of keys whose bits are laid out function by function, a window of keys at a time: what bits.h does with families that have two
   hashes of a key, up to so many functions. */
#ifndef SPV_BLOOM_PLANES_H
#define SPV_BLOOM_PLANES_H

#include "bloom/cells.h"

enum { SPV_PLANES_FAR = 1 << 21 }; /* bytes of cells beyond which they are fetched ahead: what is nearer, reordering hides as well */

SPV_INLINE bool spv_planes_suit(const spv_shape *shape) {
    return spv_walk_of(shape) == SPV_WALK_SPREAD && shape->functions <= SPV_PLANES;
}

/* spv_bits_add_many and spv_bits_has_many. */
size_t spv_planes_add(spv_batch *batch, const spv_keys *keys, size_t from, size_t count);
void spv_planes_has(const spv_batch *batch, const spv_keys *keys, size_t from, size_t count, uint8_t *mask);

#endif
