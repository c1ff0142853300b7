#include "bloom/counters.h"

#include <stdlib.h>

/* A counter of 16 bits in a buffer of bytes. */
typedef uint16_t __attribute__((may_alias)) word16;

/* The little-endian form of a number, and back. */
SPV_INLINE uint16_t little(uint16_t value) {
    return spv_le16((const uint8_t *)&value);
}

SPV_INLINE word16 *word_at(uint8_t *cells, uint64_t at) {
    return (word16 *)(void *)(cells + 2 * at);
}

SPV_INLINE unsigned get(const uint8_t *cells, unsigned width, uint64_t at) {
    if (width == 16)
        return little(__atomic_load_n((const word16 *)(const void *)(cells + 2 * at), __ATOMIC_RELAXED));
    if (width == 8)
        return __atomic_load_n(cells + at, __ATOMIC_RELAXED);
    return (unsigned)__atomic_load_n(cells + (at >> 1), __ATOMIC_RELAXED) >> 4 * (at & 1) & 15;
}

/* True if a counter with this value is not to be moved: it has reached the limit, or would go below 0. */
SPV_INLINE bool stays(unsigned value, unsigned width, bool up) {
    return value == spv_counter_limit(width) || (!up && !value);
}

/* The writes of `move`: each one changes the place from `before`, or reads it again if another thread has changed it. */
SPV_INLINE bool put8(uint8_t *place, uint8_t *before, uint8_t after, bool shared) {
    if (shared)
        return __atomic_compare_exchange_n(place, before, after, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    __atomic_store_n(place, after, __ATOMIC_RELAXED);
    return true;
}

SPV_INLINE bool put16(word16 *place, word16 *before, uint16_t after, bool shared) {
    if (shared)
        return __atomic_compare_exchange_n(place, before, after, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    __atomic_store_n(place, after, __ATOMIC_RELAXED);
    return true;
}

/* Increments or decrements a counter, unless it stays as it is. Returns its old value. */
SPV_INLINE unsigned move(uint8_t *cells, unsigned width, uint64_t at, bool up, bool shared) {
    unsigned value;
    if (width == 16) {
        word16 *place = word_at(cells, at), before = __atomic_load_n(place, __ATOMIC_RELAXED);
        do
            value = little(before);
        while (!stays(value, width, up) && !put16(place, &before, little((uint16_t)(up ? value + 1 : value - 1)), shared));
        return value;
    }
    uint8_t *byte = cells + (width == 8 ? at : at >> 1), before = __atomic_load_n(byte, __ATOMIC_RELAXED);
    const unsigned shift = width == 8 ? 0 : 4 * (at & 1), step = 1u << shift;
    do
        value = (unsigned)before >> shift & spv_counter_limit(width);
    while (!stays(value, width, up) && !put8(byte, &before, (uint8_t)(up ? before + step : before - step), shared));
    return value;
}

static int by_value(const void *left, const void *right) {
    const uint64_t one = *(const uint64_t *)left, other = *(const uint64_t *)right;
    return (one > other) - (one < other);
}

/* Drops repeated positions, because a key counts once in each of its counters. Returns how many positions are left. */
SPV_INLINE size_t distinct(uint64_t *positions, size_t count) {
    const bool many = count > 32;
    size_t kept = 0;
    if (many)
        qsort(positions, count, sizeof *positions, by_value);
    for (size_t i = 0; i < count; i++) {
        bool again = false;
        for (size_t j = many && kept ? kept - 1 : 0; j < kept; j++)
            again |= positions[j] == positions[i];
        if (!again)
            positions[kept++] = positions[i];
    }
    return kept;
}

SPV_INLINE bool add(uint8_t *cells, unsigned width, const uint64_t *positions, size_t count, bool shared) {
    bool fresh = false;
    for (size_t i = 0; i < count; i++)
        fresh |= !move(cells, width, positions[i], true, shared);
    return fresh;
}

SPV_INLINE unsigned least(const uint8_t *cells, unsigned width, const uint64_t *positions, size_t count) {
    unsigned found = spv_counter_limit(width);
    for (size_t i = 0; i < count && found; i++) {
        const unsigned value = get(cells, width, positions[i]);
        found = value < found ? value : found;
    }
    return found;
}

/* Calls a function with the width as a constant, so that the compiler makes three copies of its loop. */
#define BY_WIDTH(call, ...) (width == 4 ? call(cells, 4, __VA_ARGS__) : width == 8 ? call(cells, 8, __VA_ARGS__) : call(cells, 16, __VA_ARGS__))

bool spv_counters_add(uint8_t *cells, unsigned width, uint64_t *positions, size_t count, bool shared) {
    count = distinct(positions, count);
    return shared ? BY_WIDTH(add, positions, count, true) : BY_WIDTH(add, positions, count, false);
}

bool spv_counters_remove(uint8_t *cells, unsigned width, uint64_t *positions, size_t count, bool shared, bool *gone) {
    *gone = false;
    if (!spv_counters_least(cells, width, positions, count))
        return false;
    count = distinct(positions, count);
    for (size_t i = 0; i < count; i++) {
        const unsigned before = move(cells, width, positions[i], false, shared);
        *gone |= before == 1;
        if (before)
            continue;
        while (i--) /* another thread has removed the key: undo the decrements */
            move(cells, width, positions[i], true, shared);
        return *gone = false;
    }
    return true;
}

unsigned spv_counters_least(const uint8_t *cells, unsigned width, const uint64_t *positions, size_t count) {
    return BY_WIDTH(least, positions, count);
}

size_t spv_counters_add_many(spv_batch *batch, const spv_keys *keys, size_t from, size_t count) {
    const size_t window = spv_keys_ahead(batch->shape), functions = batch->shape->functions, end = from + count;
    size_t fresh = 0;
    batch->done = count;
    for (size_t at = from; at < end; at += window) {
        const size_t now = end - at < window ? end - at : window;
        spv_hash_ahead(batch, keys, at, now);
        batch->shared = spv_gate_again(batch->gate, batch->shared);
        for (size_t i = 0; i < now; i++) {
            uint64_t *positions = batch->positions + i * functions;
            const size_t room = spv_room_reserve(batch->room, 1, batch->shared);
            if (!room && !spv_counters_least(batch->cells, batch->width, positions, functions)) {
                batch->done = at + i - from;
                return fresh;
            }
            const bool new = spv_counters_add(batch->cells, batch->width, positions, functions, batch->shared);
            fresh += new;
            spv_room_give_back(batch->room, new ? 0 : room, batch->shared);
        }
    }
    return fresh;
}

void spv_counters_has_many(const spv_batch *batch, const spv_keys *keys, size_t from, size_t count, uint8_t *mask) {
    const size_t window = spv_keys_ahead(batch->shape), functions = batch->shape->functions, end = from + count;
    for (size_t at = from; at < end; at += window) {
        const size_t now = end - at < window ? end - at : window;
        spv_hash_ahead(batch, keys, at, now);
        for (size_t i = 0; i < now; i++)
            mask[at - from + i] = spv_counters_least(batch->cells, batch->width, batch->positions + i * functions, functions) > 0;
    }
}

SPV_INLINE uint64_t not_zero(uint64_t sixteen) { /* bit 4c of the result is 1 if counter c of 4 bits is not 0 */
    return (sixteen | sixteen >> 1 | sixteen >> 2 | sixteen >> 3) & UINT64_C(0x1111111111111111);
}

uint64_t spv_counters_used(const uint8_t *cells, unsigned width, size_t size) {
    uint64_t used = 0;
    if (width == 4) {
        for (size_t at = 0; at < size; at += 8)
            used += (uint64_t)__builtin_popcountll(not_zero(spv_word(cells + at, size - at < 8 ? size - at : 8)));
    } else if (width == 8) {
        for (size_t at = 0; at < size; at++)
            used += cells[at] > 0;
    } else {
        for (size_t at = 0; at < size; at += 2)
            used += (cells[at] | cells[at + 1]) > 0;
    }
    return used;
}

/* Reduces the sums of nibbles, in the bytes of a word, to 15 at most. */
SPV_INLINE uint64_t saturated(uint64_t sums) {
    const uint64_t over = sums & UINT64_C(0x1010101010101010);
    return (sums | (over - (over >> 4))) & UINT64_C(0x0F0F0F0F0F0F0F0F);
}

SPV_INLINE uint64_t sum_of_nibbles(uint64_t mine, uint64_t theirs) {
    const uint64_t low = UINT64_C(0x0F0F0F0F0F0F0F0F);
    return saturated((mine & low) + (theirs & low)) | saturated((mine >> 4 & low) + (theirs >> 4 & low)) << 4;
}

SPV_INLINE unsigned sum(unsigned mine, unsigned theirs, unsigned width) {
    const unsigned both = mine + theirs, limit = spv_counter_limit(width);
    return both < limit ? both : limit;
}

SPV_INLINE uint8_t sum_of_bytes(uint8_t mine, uint8_t theirs, unsigned width) {
    return (uint8_t)(width == 4 ? sum_of_nibbles(mine, theirs) : sum(mine, theirs, 8));
}

static void sum_words(uint8_t *mine, const uint8_t *theirs, size_t count, bool shared) {
    for (size_t at = 0; at < count; at++) {
        const unsigned added = get(theirs, 16, at);
        word16 *place = word_at(mine, at), before = __atomic_load_n(place, __ATOMIC_RELAXED);
        while (added && !put16(place, &before, little((uint16_t)sum(little(before), added, 16)), shared))
            continue;
    }
}

void spv_counters_sum(uint8_t *mine, const uint8_t *theirs, unsigned width, size_t size, bool shared) {
    size_t at = 0;
    if (width == 16) {
        sum_words(mine, theirs, size / 2, shared);
        return;
    }
    for (; width == 4 && !shared && at + 8 <= size; at += 8) {
        const uint64_t both = sum_of_nibbles(spv_word(mine + at, 8), spv_word(theirs + at, 8));
        memcpy(mine + at, &both, 8);
    }
    for (; at < size; at++) {
        uint8_t before = __atomic_load_n(mine + at, __ATOMIC_RELAXED);
        while (theirs[at] && !put8(mine + at, &before, sum_of_bytes(before, theirs[at], width), shared))
            continue;
    }
}

static void nibbles_to_bits(const uint8_t *cells, size_t size, uint8_t *bits) {
    for (size_t at = 0; at < size; at += 8) {
        const size_t now = size - at < 8 ? size - at : 8;
        uint8_t eight[8] = {0};
        memcpy(eight, cells + at, now);
        uint64_t x = not_zero(spv_le64(eight));
        x = (x | x >> 3) & UINT64_C(0x0303030303030303);
        x = (x | x >> 6) & UINT64_C(0x000F000F000F000F);
        x = (x | x >> 12) & UINT64_C(0x000000FF000000FF);
        x |= x >> 24;
        bits[at / 4] = (uint8_t)x;
        if (now > 4)
            bits[at / 4 + 1] = (uint8_t)(x >> 8);
    }
}

void spv_counters_to_bits(const uint8_t *cells, unsigned width, size_t size, uint8_t *bits) {
    if (width == 4) {
        nibbles_to_bits(cells, size, bits);
        return;
    }
    const size_t count = width == 8 ? size : size / 2;
    for (size_t at = 0; at < count; at += 8) {
        unsigned byte = 0;
        for (unsigned i = 0; i < 8 && at + i < count; i++)
            byte |= (get(cells, width, at + i) > 0 ? 1u : 0u) << i;
        bits[at / 8] = (uint8_t)byte;
    }
}
