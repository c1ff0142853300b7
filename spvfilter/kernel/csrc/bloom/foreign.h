/* The cells of a key in the filters of other programs: the twin of pure/foreign.py. */
#ifndef SPV_BLOOM_FOREIGN_H
#define SPV_BLOOM_FOREIGN_H

#include "hash/foreign.h"

enum { SPV_BLOCK_BITS = 256, SPV_BLOCK_FUNCTIONS = 8 };

/* foreign.check_blocks. */
SPV_INLINE bool spv_is_split_block(uint64_t cells, uint32_t hash_funcs, bool partitioned) {
    const uint64_t blocks = cells / SPV_BLOCK_BITS;
    return hash_funcs == SPV_BLOCK_FUNCTIONS && !partitioned && cells % SPV_BLOCK_BITS == 0 && blocks >= 1 && blocks <= UINT64_C(1) << 32;
}

/* A factor for each function. */
#define SPV_BLOCK_SALT \
    UINT32_C(0x47B6137B), UINT32_C(0x44974D91), UINT32_C(0x8824AD5B), UINT32_C(0xA2B7289D), UINT32_C(0x705495C7), UINT32_C(0x2DF1424B), \
        UINT32_C(0x9EFC4947), UINT32_C(0x5C6BFB31)

/* The bit within its block that a hash selects with function number `function`. */
SPV_INLINE uint64_t spv_bit_in_block(uint64_t hash, unsigned function) {
    static const uint32_t salt[SPV_BLOCK_FUNCTIONS] = {SPV_BLOCK_SALT};
    return function * 32 + ((uint32_t)hash * salt[function % SPV_BLOCK_FUNCTIONS] >> 27);
}

/* The first bit of a hash's block. */
SPV_INLINE uint64_t spv_block_of(uint64_t hash, uint64_t cells) {
    return (hash >> 32) * (cells / SPV_BLOCK_BITS) >> 32 << 8;
}

#endif
