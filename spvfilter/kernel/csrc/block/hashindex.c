#include "block/hashindex.h"
#include "block/headers.h"

#include <stdlib.h>

enum {
    DIGITS = 256,
    NEAR = 256 /* entries: hashes are spread evenly, so the search nearly always finds a key within this distance of its expected place */
};

/* A key as a number. Numbers have the same order as the bytes of their keys. */
static uint32_t key_of(const uint8_t *hash) {
    return (uint32_t)hash[0] << 24 | (uint32_t)hash[1] << 16 | (uint32_t)hash[2] << 8 | hash[3];
}

/* Sorts by one byte. Entries with equal bytes stay in order. */
static void sort_by(unsigned shift, const uint64_t *from, size_t count, uint64_t *to) {
    size_t starts[DIGITS] = {0}, at = 0;
    for (size_t i = 0; i < count; i++)
        starts[from[i] >> shift & (DIGITS - 1)]++;
    for (size_t digit = 0; digit < DIGITS; digit++) {
        const size_t number = starts[digit];
        starts[digit] = at;
        at += number;
    }
    for (size_t i = 0; i < count; i++)
        to[starts[from[i] >> shift & (DIGITS - 1)]++] = from[i];
}

/* Writes the index of `count` entries, which are in the order of their numbers. There is room for as many entries
   after them. */
static void write_index(uint64_t *entries, size_t count, uint8_t *out) {
    uint64_t *other = entries + count;
    for (unsigned shift = 16; shift < 48; shift += 16) { /* sorts by two bytes: from `entries` to the room, and back */
        sort_by(shift, entries, count, other);
        sort_by(shift + 8, other, count, entries);
    }
    for (size_t i = 0; i < count; i++) {
        const uint32_t key = (uint32_t)(entries[i] >> 16);
        uint8_t *at = out + SPV_INDEX_KEY * i, *number = out + SPV_INDEX_KEY * count + 2 * i;
        for (int byte = 0; byte < SPV_INDEX_KEY; byte++)
            at[byte] = (uint8_t)(key >> (24 - 8 * byte));
        number[0] = (uint8_t)entries[i];
        number[1] = (uint8_t)(entries[i] >> 8);
    }
}

/* An entry: the key, then the number in 16 bits. */
SPV_INLINE uint64_t entry_of(const uint8_t *key, size_t number) {
    return (uint64_t)key_of(key) << 16 | number;
}

spv_status spv_index_headers(const uint8_t *headers, size_t count, const spv_hash last, uint8_t *out) {
    uint64_t *entries = calloc(2 * count, sizeof *entries);
    if (!entries)
        return SPV_NOMEM;
    for (size_t i = 0; i < count; i++)
        entries[i] = entry_of(i + 1 < count ? spv_previous(headers, i + 1) : last, i);
    write_index(entries, count, out);
    free(entries);
    return SPV_OK;
}

spv_status spv_join_indexes(const spv_bytes *indexes, size_t number, uint8_t *out) {
    size_t count = 0, first = 0;
    for (size_t i = 0; i < number; i++)
        count += indexes[i].size / SPV_INDEX_ENTRY;
    uint64_t *entries = calloc(2 * count, sizeof *entries);
    if (!entries)
        return SPV_NOMEM;
    uint64_t *seen = entries + count; /* seen[number] is 1 */
    bool sound = true;
    for (size_t i = 0; i < number; i++) {
        const size_t own = indexes[i].size / SPV_INDEX_ENTRY;
        const uint8_t *keys = indexes[i].data, *numbers = keys + SPV_INDEX_KEY * own;
        for (size_t n = 0; n < own && sound; n++) {
            const size_t place = spv_le16(numbers + 2 * n);
            sound = place < own && !seen[first + place];
            if (sound) {
                seen[first + place] = 1;
                entries[first + place] = entry_of(keys + SPV_INDEX_KEY * n, first + place);
            }
        }
        first += own;
    }
    if (sound)
        write_index(entries, count, out);
    free(entries);
    return sound ? SPV_OK : SPV_RANGE;
}

size_t spv_find_header(const uint8_t *index, size_t count, const spv_hash hash, const uint8_t **numbers) {
    const uint32_t key = key_of(hash);
    const size_t guess = (size_t)((uint64_t)key * count >> 32);
    size_t low = guess > NEAR ? guess - NEAR : 0, high = count - guess > NEAR ? guess + NEAR : count, end;
    if (low && key_of(index + SPV_INDEX_KEY * (low - 1)) >= key)
        low = 0;
    if (high < count && key_of(index + SPV_INDEX_KEY * high) < key)
        high = count;
    while (low < high) { /* finds the first entry whose key is not below the wanted key */
        const size_t middle = low + (high - low) / 2;
        if (key_of(index + SPV_INDEX_KEY * middle) < key)
            low = middle + 1;
        else
            high = middle;
    }
    for (end = low; end < count && key_of(index + SPV_INDEX_KEY * end) == key;)
        end++;
    *numbers = index + SPV_INDEX_KEY * count + 2 * low;
    return end - low;
}
