#include "bloom/column/text.h"

enum { LAST = 0x10FFFF, FIRST_SURROGATE = 0xD800, LAST_SURROGATE = 0xDFFF };

/* The number of bytes of the sequence at `at`; 0 if it is malformed. */
static size_t sequence(const uint8_t *at, size_t left) {
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
    const uint8_t lead = at[0];
    const size_t size = lead < 0x80 ? 1 : lead < 0xC0 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : lead < 0xF8 ? 4 : 0;
    if (size < 2 || size > left)
        return size == 1;
    uint32_t character = lead & (0x7Fu >> size);
    for (size_t i = 1; i < size; i++) {
        if ((at[i] & 0xC0) != 0x80)
            return 0;
        character = character << 6 | (at[i] & 0x3F);
    }
    const bool surrogate = character >= FIRST_SURROGATE && character <= LAST_SURROGATE;
    return character < least[size] || character > LAST || surrogate ? 0 : size;
}

bool spv_is_utf8(spv_bytes text) {
    size_t at = 0, size;
    while (at < text.size && (size = sequence(text.data + at, text.size - at)))
        at += size;
    return at == text.size;
}

static uint8_t *put(uint32_t character, uint8_t *to) {
    if (character < 0x80) {
        *to++ = (uint8_t)character;
        return to;
    }
    const int more = character < 0x800 ? 1 : character < 0x10000 ? 2 : 3;
    *to++ = (uint8_t)(0xF0u << (3 - more) | character >> 6 * more);
    for (int left = more - 1; left >= 0; left--)
        *to++ = (uint8_t)(0x80 | (character >> 6 * left & 0x3F));
    return to;
}

SPV_INLINE uint32_t character_at(const uint8_t *wide, size_t number, bool swapped) {
    const uint32_t character = spv_le32(wide + 4 * number);
    return swapped ? __builtin_bswap32(character) : character;
}

bool spv_utf32_to_utf8(const uint8_t *wide, size_t count, bool swapped, uint8_t *text, size_t *size, uint32_t *bad) {
    uint8_t *to = text;
    while (count && !spv_le32(wide + 4 * (count - 1)))
        count--;
    for (size_t i = 0; i < count; i++) {
        const uint32_t character = character_at(wide, i, swapped);
        if (SPV_LIKELY(character < 0x80)) {
            *to++ = (uint8_t)character;
            continue;
        }
        if (character > LAST || (character >= FIRST_SURROGATE && character <= LAST_SURROGATE)) {
            *bad = character;
            return false;
        }
        to = put(character, to);
    }
    *size = (size_t)(to - text);
    return true;
}
