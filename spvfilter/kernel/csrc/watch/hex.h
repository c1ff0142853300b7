/* Hexadecimal digits. Each function writes digits and returns their end. */
#ifndef SPV_WATCH_HEX_H
#define SPV_WATCH_HEX_H

#include "spv.h"

enum { SPV_HASH_DIGITS = 64 };

/* Writes the eight hexadecimal digits of a number, the most significant digit first. */
SPV_INLINE uint8_t *spv_put_hex_u32(uint8_t *to, uint32_t number) {
    /* spreads the number to bytes of four bits, the first digit in the lowest byte */
    uint64_t digits = (uint64_t)(number & 0xFFFF) << 32 | number >> 16;
    digits = (digits & 0x0000FF000000FF00) >> 8 | (digits & 0x000000FF000000FF) << 16;
    digits = (digits & 0x00F000F000F000F0) >> 4 | (digits & 0x000F000F000F000F) << 8;
    const uint64_t letters = (digits + 0x0606060606060606) >> 4 & 0x0101010101010101;
    digits += 0x3030303030303030 + letters * ('a' - '9' - 1);
    spv_put_le32(to, (uint32_t)digits);
    spv_put_le32(to + 4, (uint32_t)(digits >> 32));
    return to + 8;
}

/* Writes a hash as block explorers show it. */
SPV_INLINE uint8_t *spv_put_shown_hash(uint8_t *to, const uint8_t hash[32]) {
    for (int at = 28; at >= 0; at -= 4)
        to = spv_put_hex_u32(to, spv_le32(hash + at));
    return to;
}

SPV_INLINE uint8_t *spv_put_hex(uint8_t *to, spv_bytes bytes) {
    static const char DIGITS[] = "0123456789abcdef";
    size_t at = 0;
    for (; bytes.size - at >= 4; at += 4)
        to = spv_put_hex_u32(to, (uint32_t)bytes.data[at] << 24 | (uint32_t)bytes.data[at + 1] << 16 | (uint32_t)bytes.data[at + 2] << 8
                             | bytes.data[at + 3]);
    for (; at < bytes.size; at++) {
        *to++ = (uint8_t)DIGITS[bytes.data[at] >> 4];
        *to++ = (uint8_t)DIGITS[bytes.data[at] & 15];
    }
    return to;
}

#endif
