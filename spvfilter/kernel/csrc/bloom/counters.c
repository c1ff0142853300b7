#include "bloom/counters.h"

#include <stdlib.h>

SPV_INLINE unsigned get(const uint8_t *cells, uint64_t at) {
    return (unsigned)__atomic_load_n(cells + (at >> 1), __ATOMIC_RELAXED) >> 4 * (at & 1) & 15;
}

/* Increments or decrements a counter, unless it has reached the limit or would go below 0. Returns its old value. */
SPV_INLINE unsigned move(uint8_t *cells, uint64_t at, bool up, bool shared) {
    uint8_t *byte = cells + (at >> 1);
    const unsigned shift = 4 * (at & 1), stays = up ? 16 : 0;
    uint8_t before = __atomic_load_n(byte, __ATOMIC_RELAXED);
    for (;;) {
        const unsigned value = (unsigned)before >> shift & 15;
        if (value == SPV_COUNTER_LIMIT || value == stays)
            return value;
        const uint8_t after = (uint8_t)(up ? before + (1u << shift) : before - (1u << shift));
        if (!shared) {
            __atomic_store_n(byte, after, __ATOMIC_RELAXED);
            return value;
        }
        if (__atomic_compare_exchange_n(byte, &before, after, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
            return value;
    }
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

SPV_INLINE bool add(uint8_t *cells, const uint64_t *positions, size_t count, bool shared) {
    bool fresh = false;
    for (size_t i = 0; i < count; i++)
        fresh |= !move(cells, positions[i], true, shared);
    return fresh;
}

bool spv_counters_add(uint8_t *cells, uint64_t *positions, size_t count, bool shared) {
    count = distinct(positions, count);
    return shared ? add(cells, positions, count, true) : add(cells, positions, count, false);
}

bool spv_counters_remove(uint8_t *cells, uint64_t *positions, size_t count, bool shared, bool *gone) {
    *gone = false;
    if (!spv_counters_least(cells, positions, count))
        return false;
    count = distinct(positions, count);
    for (size_t i = 0; i < count; i++) {
        const unsigned before = move(cells, positions[i], false, shared);
        *gone |= before == 1;
        if (before)
            continue;
        while (i--) /* another thread has removed the key: undo the decrements */
            move(cells, positions[i], true, shared);
        return *gone = false;
    }
    return true;
}

unsigned spv_counters_least(const uint8_t *cells, const uint64_t *positions, size_t count) {
    unsigned least = SPV_COUNTER_LIMIT;
    for (size_t i = 0; i < count && least; i++) {
        const unsigned value = get(cells, positions[i]);
        least = value < least ? value : least;
    }
    return least;
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
            if (!room && !spv_counters_least(batch->cells, positions, functions)) {
                batch->done = at + i - from;
                return fresh;
            }
            const bool new = spv_counters_add(batch->cells, positions, functions, batch->shared);
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
            mask[at - from + i] = spv_counters_least(batch->cells, batch->positions + i * functions, functions) > 0;
    }
}

SPV_INLINE uint64_t not_zero(uint64_t sixteen) { /* bit 4c of the result is 1 if counter c is not 0 */
    return (sixteen | sixteen >> 1 | sixteen >> 2 | sixteen >> 3) & UINT64_C(0x1111111111111111);
}

uint64_t spv_counters_used(const uint8_t *cells, size_t size) {
    uint64_t used = 0;
    for (size_t at = 0; at < size; at += 8)
        used += (uint64_t)__builtin_popcountll(not_zero(spv_word(cells + at, size - at < 8 ? size - at : 8)));
    return used;
}

/* Reduces the sums of nibbles, in the bytes of a word, to 15 at most. */
SPV_INLINE uint64_t saturated(uint64_t sums) {
    const uint64_t over = sums & UINT64_C(0x1010101010101010);
    return (sums | (over - (over >> 4))) & UINT64_C(0x0F0F0F0F0F0F0F0F);
}

SPV_INLINE uint64_t sum(uint64_t mine, uint64_t theirs) {
    const uint64_t low = UINT64_C(0x0F0F0F0F0F0F0F0F);
    return saturated((mine & low) + (theirs & low)) | saturated((mine >> 4 & low) + (theirs >> 4 & low)) << 4;
}

void spv_counters_sum(uint8_t *mine, const uint8_t *theirs, size_t size, bool shared) {
    size_t at = 0;
    for (; !shared && at + 8 <= size; at += 8) {
        const uint64_t both = sum(spv_word(mine + at, 8), spv_word(theirs + at, 8));
        memcpy(mine + at, &both, 8);
    }
    for (; at < size; at++) {
        uint8_t before = __atomic_load_n(mine + at, __ATOMIC_RELAXED);
        if (!shared)
            mine[at] = (uint8_t)sum(before, theirs[at]);
        else
            while (theirs[at] && !__atomic_compare_exchange_n(mine + at, &before, (uint8_t)sum(before, theirs[at]), true, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
                continue;
    }
}

void spv_counters_to_bits(const uint8_t *cells, size_t size, uint8_t *bits) {
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
