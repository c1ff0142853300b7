/* SipHash-2-4 with a 128-bit key (Aumasson and Bernstein, SipHash § 2): its round, and the hash of one message. */
#ifndef SPV_HASH_SIPHASH_H
#define SPV_HASH_SIPHASH_H

#include "hash/words.h"

/* Rotates a uint64_t, or vectors of uint64_t. */
#define SPV_SIP_ROTATE(x, n) ((x) << (n) | (x) >> (64 - (n)))

#define SPV_SIP_ROUND(v0, v1, v2, v3) \
    do { \
        (v0) += (v1); (v2) += (v3); \
        (v1) = SPV_SIP_ROTATE(v1, 13) ^ (v0); (v3) = SPV_SIP_ROTATE(v3, 16) ^ (v2); \
        (v0) = SPV_SIP_ROTATE(v0, 32); \
        (v2) += (v1); (v0) += (v3); \
        (v1) = SPV_SIP_ROTATE(v1, 17) ^ (v2); (v3) = SPV_SIP_ROTATE(v3, 21) ^ (v0); \
        (v2) = SPV_SIP_ROTATE(v2, 32); \
    } while (0)

/* The state at the start, its update by a word of the message, and its last rounds. */
#define SPV_SIP_START(v0, v1, v2, v3, k0, k1) \
    do { \
        (v0) = (k0) ^ UINT64_C(0x736F6D6570736575); (v1) = (k1) ^ UINT64_C(0x646F72616E646F6D); \
        (v2) = (k0) ^ UINT64_C(0x6C7967656E657261); (v3) = (k1) ^ UINT64_C(0x7465646279746573); \
    } while (0)

#define SPV_SIP_WORD(v0, v1, v2, v3, word) \
    do { \
        (v3) ^= (word); \
        SPV_SIP_ROUND(v0, v1, v2, v3); \
        SPV_SIP_ROUND(v0, v1, v2, v3); \
        (v0) ^= (word); \
    } while (0)

#define SPV_SIP_END(v0, v1, v2, v3) \
    do { \
        (v2) ^= 0xFF; \
        SPV_SIP_ROUND(v0, v1, v2, v3); \
        SPV_SIP_ROUND(v0, v1, v2, v3); \
        SPV_SIP_ROUND(v0, v1, v2, v3); \
        SPV_SIP_ROUND(v0, v1, v2, v3); \
        (v0) ^= (v1) ^ (v2) ^ (v3); \
    } while (0)

/* The last word of a message: its last size & 7 bytes, and the low byte of its size in the highest place. */
SPV_INLINE uint64_t spv_sip_last(const uint8_t *data, size_t size) {
    return (uint64_t)size << 56 | spv_tail64(data, size);
}

/* The twin of hashes.siphash24. k0 and k1 are the halves of the key, little endian. */
SPV_INLINE uint64_t spv_siphash24(const uint8_t *data, size_t size, uint64_t k0, uint64_t k1) {
    uint64_t v0, v1, v2, v3;
    const size_t whole = size & ~(size_t)7;
    SPV_SIP_START(v0, v1, v2, v3, k0, k1);
    for (size_t at = 0; at < whole; at += 8) {
        const uint64_t word = spv_le64(data + at);
        SPV_SIP_WORD(v0, v1, v2, v3, word);
    }
    const uint64_t last = spv_sip_last(data, size);
    SPV_SIP_WORD(v0, v1, v2, v3, last);
    SPV_SIP_END(v0, v1, v2, v3);
    return v0;
}

#endif
