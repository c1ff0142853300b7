/* MurmurHash3 x86_32, and its remainder as a bit of a filter: for one key, or for many keys of one length at once. */
#ifndef SPV_HASH_MURMUR3_H
#define SPV_HASH_MURMUR3_H

#include "spv.h"

/* The twin of hashes.murmur3. */
uint32_t spv_murmur3_32(const uint8_t *data, size_t size, uint32_t seed);

/* A number of bits, and the constant for computing remainders by it. */
typedef struct {
    uint32_t bits;    /* 0 stands for 2^32 and more */
    uint32_t inverse; /* ⌊2^32 / bits⌋ */
} spv_modulus;

SPV_INLINE spv_modulus spv_modulus_of(uint64_t bits) { /* `bits` ≥ 2 */
    return bits >> 32 ? (spv_modulus){0, 0} : (spv_modulus){(uint32_t)bits, (uint32_t)((UINT64_C(1) << 32) / bits)};
}

/* `hash` modulo the number of bits. ⌊hash * inverse / 2^32⌋ is the quotient or one less, because hash * (2^32 / bits
   - inverse) < 2^32. */
SPV_INLINE uint32_t spv_modulo(uint32_t hash, spv_modulus m) {
    uint32_t rest = hash - (uint32_t)((uint64_t)hash * m.inverse >> 32) * m.bits; /* < 2 * bits, ≤ hash */
    uint32_t less = rest - m.bits;
    return less < rest ? less : rest;
}

enum {
    SPV_MURMUR3_LANES = 16,   /* most lanes of a vector */
    SPV_MURMUR3_BEYOND = 15   /* bytes after a key that are read and ignored */
};

/* A way to hash many keys: it computes the bits of `count` keys of `size` bytes each under two seeds. `count` is a
   multiple of `lanes`. */
typedef struct {
    const char *name;
    unsigned needs; /* features of spv_cpu */
    size_t lanes;
    void (*hash)(const uint8_t *const *keys, size_t count, size_t size, const uint32_t seeds[2], spv_modulus m, uint32_t *first, uint32_t *second);
} spv_murmur3_way;

/* The ways of this build that this machine supports: the fastest first, the portable one last. NULL if `number` is
   not below their count. */
const spv_murmur3_way *spv_murmur3_usable(size_t number);

#endif
