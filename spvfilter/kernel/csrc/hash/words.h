/* 64-bit words of a message for hash functions. */
#ifndef SPV_HASH_WORDS_H
#define SPV_HASH_WORDS_H

#include "spv.h"

SPV_INLINE uint64_t spv_rotl64(uint64_t x, int by) {
    return x << by | x >> (64 - by);
}

/* Up to 8 bytes in the machine's order, followed by zeros. */
SPV_INLINE uint64_t spv_word(const uint8_t *at, size_t size) {
    uint64_t word = 0;
    memcpy(&word, at, size);
    return word;
}

/* The last size & 7 bytes of a message, little endian. It reads no bytes beyond them. */
SPV_INLINE uint64_t spv_tail64(const uint8_t *data, size_t size) {
    const uint8_t *end = data + size;
    const size_t rest = size & 7;
    if (size >= 8)
        return rest ? spv_le64(end - 8) >> 8 * (8 - rest) : 0;
    if (rest >= 4)
        return spv_le32(data) | (uint64_t)spv_le32(end - 4) << 8 * (rest - 4);
    if (rest >= 2)
        return (uint64_t)spv_le16(data) | (uint64_t)spv_le16(end - 2) << 8 * (rest - 2);
    return rest ? data[0] : 0;
}

#endif
