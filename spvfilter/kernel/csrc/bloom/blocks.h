/* Batches of keys for the split-block filters of Parquet: all bits of a key are in one block, so one fetch is enough. */
#ifndef SPV_BLOOM_BLOCKS_H
#define SPV_BLOOM_BLOCKS_H

#include "bloom/cells.h"

SPV_INLINE bool spv_blocks_suit(const spv_shape *shape) {
    return shape->family == SPV_FAMILY_SPLIT_BLOCK && shape->functions == SPV_BLOCK_FUNCTIONS;
}

/* spv_bits_add_many and spv_bits_has_many. */
size_t spv_blocks_add(spv_batch *batch, const spv_keys *keys, size_t from, size_t count);
void spv_blocks_has(const spv_batch *batch, const spv_keys *keys, size_t from, size_t count, uint8_t *mask);

#endif
