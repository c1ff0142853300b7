/* The hash functions of other programs' filters: xxHash64, MurmurHash64A, and Spark's variant of murmur3. Their
   twins are in pure/foreign.py. */
#ifndef SPV_HASH_FOREIGN_H
#define SPV_HASH_FOREIGN_H

#include "hash/words.h"

#define SPV_XX1 UINT64_C(0x9E3779B185EBCA87)
#define SPV_XX2 UINT64_C(0xC2B2AE3D27D4EB4F)
#define SPV_XX3 UINT64_C(0x165667B19E3779F9)
#define SPV_XX4 UINT64_C(0x85EBCA77C2B2AE63)
#define SPV_XX5 UINT64_C(0x27D4EB2F165667C5)

SPV_INLINE uint64_t spv_xx_round(uint64_t lane, uint64_t word) {
    return spv_rotl64(lane + word * SPV_XX2, 31) * SPV_XX1;
}

/* Hashes the part of the data that consists of whole pieces of 32 bytes, in four lanes of 8 bytes. */
SPV_INLINE uint64_t spv_xx_lanes(const uint8_t *data, size_t whole) {
    uint64_t lanes[4] = {SPV_XX1 + SPV_XX2, SPV_XX2, 0, 0 - SPV_XX1};
    for (size_t at = 0; at < whole; at += 32)
        for (size_t i = 0; i < 4; i++)
            lanes[i] = spv_xx_round(lanes[i], spv_le64(data + at + 8 * i));
    uint64_t hash = spv_rotl64(lanes[0], 1) + spv_rotl64(lanes[1], 7) + spv_rotl64(lanes[2], 12) + spv_rotl64(lanes[3], 18);
    for (size_t i = 0; i < 4; i++)
        hash = (hash ^ spv_xx_round(0, lanes[i])) * SPV_XX1 + SPV_XX4;
    return hash;
}

/* The twin of foreign.xxhash64, with seed 0. */
SPV_INLINE uint64_t spv_xxhash64(const uint8_t *data, size_t size) {
    size_t at = size & ~(size_t)31;
    uint64_t hash = (at ? spv_xx_lanes(data, at) : SPV_XX5) + size;
    for (; at + 8 <= size; at += 8)
        hash = spv_rotl64(hash ^ spv_xx_round(0, spv_le64(data + at)), 27) * SPV_XX1 + SPV_XX4;
    if (at + 4 <= size) {
        hash = spv_rotl64(hash ^ spv_le32(data + at) * SPV_XX1, 23) * SPV_XX2 + SPV_XX3;
        at += 4;
    }
    for (; at < size; at++)
        hash = spv_rotl64(hash ^ data[at] * SPV_XX5, 11) * SPV_XX1;
    hash = (hash ^ hash >> 33) * SPV_XX2;
    hash = (hash ^ hash >> 29) * SPV_XX3;
    return hash ^ hash >> 32;
}

#define SPV_MURMUR2 UINT64_C(0xC6A4A7935BD1E995)

/* The twin of foreign.murmur64a. */
SPV_INLINE uint64_t spv_murmur64a(const uint8_t *data, size_t size, uint64_t seed) {
    const size_t whole = size & ~(size_t)7;
    uint64_t hash = seed ^ size * SPV_MURMUR2;
    for (size_t at = 0; at < whole; at += 8) {
        uint64_t word = spv_le64(data + at) * SPV_MURMUR2;
        word = (word ^ word >> 47) * SPV_MURMUR2;
        hash = (hash ^ word) * SPV_MURMUR2;
    }
    if (size > whole)
        hash = (hash ^ spv_tail64(data, size)) * SPV_MURMUR2;
    hash = (hash ^ hash >> 47) * SPV_MURMUR2;
    return hash ^ hash >> 47;
}

SPV_INLINE uint32_t spv_spark_mix(uint32_t hash, uint32_t word) {
    word *= UINT32_C(0xCC9E2D51);
    word = (word << 15 | word >> 17) * UINT32_C(0x1B873593);
    hash ^= word;
    return (hash << 13 | hash >> 19) * 5 + UINT32_C(0xE6546B64);
}

/* The twin of foreign.spark_murmur. */
SPV_INLINE uint32_t spv_spark_murmur(const uint8_t *data, size_t size, uint32_t seed) {
    const size_t whole = size & ~(size_t)3;
    uint32_t hash = seed;
    for (size_t at = 0; at < whole; at += 4)
        hash = spv_spark_mix(hash, spv_le32(data + at));
    for (size_t at = whole; at < size; at++)
        hash = spv_spark_mix(hash, (uint32_t)(int8_t)data[at]);
    hash ^= (uint32_t)size;
    hash = (hash ^ hash >> 16) * UINT32_C(0x85EBCA6B);
    hash = (hash ^ hash >> 13) * UINT32_C(0xC2B2AE35);
    return hash ^ hash >> 16;
}

#endif
