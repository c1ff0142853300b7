/* MurmurHash3 x64_128 (Austin Appleby, public domain), one key at a time. */
#ifndef SPV_HASH_MURMUR3_X64_H
#define SPV_HASH_MURMUR3_X64_H

#include "hash/words.h"

#define SPV_MURMUR_C1 UINT64_C(0x87C37B91114253D5)
#define SPV_MURMUR_C2 UINT64_C(0x4CF5AD432745937F)

typedef struct {
    uint64_t h1, h2;
} spv_hash128;

SPV_INLINE uint64_t spv_murmur_final64(uint64_t h) {
    h ^= h >> 33;
    h *= UINT64_C(0xFF51AFD7ED558CCD);
    h ^= h >> 33;
    h *= UINT64_C(0xC4CEB9FE1A85EC53);
    return h ^ h >> 33;
}

SPV_INLINE uint64_t spv_murmur_mix1(uint64_t k) {
    k *= SPV_MURMUR_C1;
    return spv_rotl64(k, 31) * SPV_MURMUR_C2;
}

SPV_INLINE uint64_t spv_murmur_mix2(uint64_t k) {
    k *= SPV_MURMUR_C2;
    return spv_rotl64(k, 33) * SPV_MURMUR_C1;
}

/* The twin of hashes.murmur3_x64_128. */
SPV_INLINE spv_hash128 spv_murmur3_x64_128(const uint8_t *data, size_t size, uint32_t seed) {
    uint64_t h1 = seed, h2 = seed;
    const size_t whole = size & ~(size_t)15, rest = size & 15;
    for (size_t at = 0; at < whole; at += 16) {
        h1 ^= spv_murmur_mix1(spv_le64(data + at));
        h1 = (spv_rotl64(h1, 27) + h2) * 5 + 0x52DCE729;
        h2 ^= spv_murmur_mix2(spv_le64(data + at + 8));
        h2 = (spv_rotl64(h2, 31) + h1) * 5 + 0x38495AB5;
    }
    if (rest > 8) {
        h2 ^= spv_murmur_mix2(spv_tail64(data, size));
        h1 ^= spv_murmur_mix1(spv_le64(data + whole));
    } else if (rest) {
        h1 ^= spv_murmur_mix1(rest == 8 ? spv_le64(data + whole) : spv_tail64(data, size));
    }
    h1 ^= size;
    h2 ^= size;
    h1 += h2;
    h2 += h1;
    h1 = spv_murmur_final64(h1);
    h2 = spv_murmur_final64(h2);
    h1 += h2;
    h2 += h1;
    return (spv_hash128){h1, h2};
}

#endif
