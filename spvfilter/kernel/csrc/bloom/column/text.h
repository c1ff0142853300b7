/* Text in columns: a check that bytes are UTF-8, with the rules of bytes.decode, and UTF-32 to UTF-8, as str.encode
   does it. */
#ifndef SPV_BLOOM_COLUMN_TEXT_H
#define SPV_BLOOM_COLUMN_TEXT_H

#include "spv.h"

SPV_INLINE bool spv_is_ascii(spv_bytes text) {
    const uint8_t *at = text.data;
    size_t left = text.size;
    uint64_t all = 0, two = 0, three = 0, four = 0;
    for (; left >= 32; left -= 32, at += 32) {
        all |= spv_le64(at);
        two |= spv_le64(at + 8);
        three |= spv_le64(at + 16);
        four |= spv_le64(at + 24);
    }
    all |= two | three | four;
    for (; left >= 8; left -= 8, at += 8)
        all |= spv_le64(at);
    if (left && text.size >= 8)
        all |= spv_le64(text.data + text.size - 8);
    else
        for (; left; left--)
            all |= *at++;
    return !(all & UINT64_C(0x8080808080808080));
}

/* RFC 3629: the shortest form only, no surrogates, at most U+10FFFF. */
bool spv_is_utf8(spv_bytes text);

/* Encodes `count` characters of 4 bytes as UTF-8, without the zeros at their end. `text` has room for 4 bytes for
   each. False for an invalid character (a surrogate, or above U+10FFFF), with its number. */
bool spv_utf32_to_utf8(const uint8_t *wide, size_t count, bool swapped, uint8_t *text, size_t *size, uint32_t *bad);

#endif
