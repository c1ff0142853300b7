/* SipHash-2-4 with a 128-bit key, one message at a time (Aumasson and Bernstein, SipHash § 2). */
#ifndef SPV_SIPHASH_H
#define SPV_SIPHASH_H

#include "hash/words.h"

#define SPV_SIP_ROUND(v0, v1, v2, v3) \
    do { \
        (v0) += (v1); (v2) += (v3); \
        (v1) = spv_rotl64(v1, 13) ^ (v0); (v3) = spv_rotl64(v3, 16) ^ (v2); \
        (v0) = spv_rotl64(v0, 32); \
        (v2) += (v1); (v0) += (v3); \
        (v1) = spv_rotl64(v1, 17) ^ (v2); (v3) = spv_rotl64(v3, 21) ^ (v0); \
        (v2) = spv_rotl64(v2, 32); \
    } while (0)

/* hashes.siphash24; k0 and k1 are the key's halves, little endian. */
SPV_INLINE uint64_t spv_siphash24(const uint8_t *data, size_t size, uint64_t k0, uint64_t k1) {
    uint64_t v0 = k0 ^ UINT64_C(0x736F6D6570736575), v1 = k1 ^ UINT64_C(0x646F72616E646F6D);
    uint64_t v2 = k0 ^ UINT64_C(0x6C7967656E657261), v3 = k1 ^ UINT64_C(0x7465646279746573);
    const size_t whole = size & ~(size_t)7;
    for (size_t at = 0; at < whole; at += 8) {
        const uint64_t word = spv_le64(data + at);
        v3 ^= word;
        SPV_SIP_ROUND(v0, v1, v2, v3);
        SPV_SIP_ROUND(v0, v1, v2, v3);
        v0 ^= word;
    }
    const uint64_t last = (uint64_t)size << 56 | spv_tail64(data, size);
    v3 ^= last;
    SPV_SIP_ROUND(v0, v1, v2, v3);
    SPV_SIP_ROUND(v0, v1, v2, v3);
    v0 ^= last;
    v2 ^= 0xFF;
    for (int round = 0; round < 4; round++)
        SPV_SIP_ROUND(v0, v1, v2, v3);
    return v0 ^ v1 ^ v2 ^ v3;
}

#endif
