/* The keyed hash of a watch table: multiply and mix under a random key. It is not cryptographic, but without the key
   nobody can make collisions. */
#ifndef SPV_WATCH_KEYHASH_H
#define SPV_WATCH_KEYHASH_H

#include "spv.h"

typedef struct {
    uint64_t word[8]; /* random for each table */
} spv_table_key;

/* False, with errno set, if the system provides no randomness. */
bool spv_table_key_draw(spv_table_key *key);

/* The two halves of the 128-bit product, XORed. */
SPV_INLINE uint64_t spv_mix(uint64_t a, uint64_t b) {
#ifdef __SIZEOF_INT128__
    __extension__ typedef unsigned __int128 wide;
    wide product = (wide)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
#else
    uint64_t a_low = (uint32_t)a, a_high = a >> 32, b_low = (uint32_t)b, b_high = b >> 32;
    uint64_t low = a_low * b_low, cross = a_high * b_low + (low >> 32), other = a_low * b_high + (uint32_t)cross;
    return (other << 32 | (uint32_t)low) ^ (a_high * b_high + (cross >> 32) + (other >> 32));
#endif
}

/* Hashes 17 to 40 bytes without a branch: the first 16, the last 16, and 8 in the middle. The parts overlap if there
   are fewer than 40 bytes. The other operand of the last product depends only on the middle bytes, and without loss.
   Without the key nobody can therefore choose differences that cancel. */
SPV_INLINE uint64_t spv_keyed_middling(const spv_table_key *key, uint64_t seed, const uint8_t *at, size_t size) {
    const uint8_t *middle = at + (size - 8) / 2, *last = at + size - 16;
    uint64_t sum = spv_mix(spv_le64(at) ^ key->word[1], spv_le64(at + 8) ^ key->word[2])
        + spv_mix(spv_le64(last) ^ key->word[3], spv_le64(last + 8) ^ key->word[4]);
    return spv_mix(sum ^ seed, spv_le64(middle) ^ key->word[5]);
}

SPV_INLINE bool spv_is_middling(size_t size) {
    return size - 17 <= 40 - 17;
}

/* Hashes fewer than 17 bytes, or more than 40. */
uint64_t spv_keyed_other(const spv_table_key *key, uint64_t seed, const uint8_t *at, size_t size);

SPV_INLINE uint64_t spv_keyed_seed(const spv_table_key *key, unsigned domain, size_t size) {
    return key->word[0] ^ ((uint64_t)size << 2 | domain);
}

/* `domain` < 4 separates values that have equal bytes but different meanings. */
SPV_INLINE uint64_t spv_keyed_hash(const spv_table_key *key, unsigned domain, const uint8_t *at, size_t size) {
    uint64_t seed = spv_keyed_seed(key, domain, size);
    if (SPV_LIKELY(spv_is_middling(size)))
        return spv_keyed_middling(key, seed, at, size);
    return spv_keyed_other(key, seed, at, size);
}

#endif
