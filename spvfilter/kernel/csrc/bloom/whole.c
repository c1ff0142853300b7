/* Whole bit arrays, 64 bits at a time, at the speed of memory. Plain loads and stores need no alignment; atomic writes go to aligned
   words, and to single bytes before and after them. */
#include "bloom/whole.h"
#include "hash/cpu.h"
#include "hash/words.h"

typedef uint64_t __attribute__((may_alias)) word; /* a view of bytes */

/* The number of set bits of `mine`, or of its union with `theirs` if that is not NULL. */
SPV_INLINE uint64_t count(const uint8_t *mine, const uint8_t *theirs, size_t size) {
    uint64_t sum = 0;
    size_t at = 0;
    for (; at + 8 <= size; at += 8)
        sum += (uint64_t)__builtin_popcountll(spv_word(mine + at, 8) | (theirs ? spv_word(theirs + at, 8) : 0));
    return sum + (uint64_t)__builtin_popcountll(spv_word(mine + at, size - at) | (theirs ? spv_word(theirs + at, size - at) : 0));
}

static uint64_t count_portable(const uint8_t *mine, const uint8_t *theirs, size_t size) {
    return theirs ? count(mine, theirs, size) : count(mine, NULL, size);
}

#if defined(__x86_64__)
__attribute__((target("popcnt"))) static uint64_t count_popcnt(const uint8_t *mine, const uint8_t *theirs, size_t size) {
    return theirs ? count(mine, theirs, size) : count(mine, NULL, size);
}

SPV_INLINE uint64_t count_best(const uint8_t *mine, const uint8_t *theirs, size_t size) {
    return spv_cpu() & SPV_CPU_AVX2 ? count_popcnt(mine, theirs, size) : count_portable(mine, theirs, size); /* AVX2 implies popcnt */
}
#else
SPV_INLINE uint64_t count_best(const uint8_t *mine, const uint8_t *theirs, size_t size) {
    return count_portable(mine, theirs, size);
}
#endif

uint64_t spv_bits_count(const uint8_t *bits, size_t size) {
    return count_best(bits, NULL, size);
}

uint64_t spv_bits_count_union(const uint8_t *mine, const uint8_t *theirs, size_t size) {
    return count_best(mine, theirs, size);
}

uint64_t spv_bits_count_between(const uint8_t *bits, uint64_t first, uint64_t end) {
    if (first == end)
        return 0;
    const uint64_t from = first >> 3, last = (end - 1) >> 3; /* number of the last byte that has bits of the range */
    const unsigned before = bits[from] & ((1u << (first & 7)) - 1), behind = end & 7 ? (unsigned)bits[last] >> (end & 7) : 0;
    const unsigned beyond = (unsigned)__builtin_popcount(before) + (unsigned)__builtin_popcount(behind);
    return count_best(bits + from, NULL, (size_t)(last - from + 1)) - beyond;
}

SPV_INLINE uint64_t mixed(uint64_t mine, uint64_t theirs, bool both) {
    return both ? mine & theirs : mine | theirs;
}

SPV_INLINE void mix_bytes(uint8_t *mine, const uint8_t *theirs, size_t size, bool both, bool shared) {
    for (size_t at = 0; at < size; at++) {
        if (!shared)
            mine[at] = (uint8_t)mixed(mine[at], theirs[at], both);
        else if (both)
            __atomic_fetch_and(mine + at, theirs[at], __ATOMIC_RELAXED);
        else
            __atomic_fetch_or(mine + at, theirs[at], __ATOMIC_RELAXED);
    }
}

SPV_INLINE void mix(uint8_t *mine, const uint8_t *theirs, size_t size, bool both, bool shared) {
    size_t at = 0;
    if (!shared) {
        for (; at + 8 <= size; at += 8) {
            const uint64_t result = mixed(spv_word(mine + at, 8), spv_word(theirs + at, 8), both);
            memcpy(mine + at, &result, 8);
        }
        mix_bytes(mine + at, theirs + at, size - at, both, false);
        return;
    }
    const size_t head = (size_t)(-(uintptr_t)mine & 7);
    at = head < size ? head : size;
    mix_bytes(mine, theirs, at, both, true);
    for (; at + 8 <= size; at += 8) {
        const uint64_t other = spv_word(theirs + at, 8);
        word *own = (word *)(void *)(mine + at);
        const uint64_t before = __atomic_load_n(own, __ATOMIC_RELAXED);
        if (mixed(before, other, both) == before)
            continue; /* no write if nothing changes: an atomic write takes ten times as long */
        if (both)
            __atomic_fetch_and(own, other, __ATOMIC_RELAXED);
        else
            __atomic_fetch_or(own, other, __ATOMIC_RELAXED);
    }
    mix_bytes(mine + at, theirs + at, size - at, both, true);
}

void spv_bits_or(uint8_t *mine, const uint8_t *theirs, size_t size, bool shared) {
    if (shared)
        mix(mine, theirs, size, false, true);
    else
        mix(mine, theirs, size, false, false);
}

void spv_bits_and(uint8_t *mine, const uint8_t *theirs, size_t size, bool shared) {
    if (shared)
        mix(mine, theirs, size, true, true);
    else
        mix(mine, theirs, size, true, false);
}

bool spv_bits_subset(const uint8_t *mine, const uint8_t *theirs, size_t size) {
    size_t at = 0;
    while (at + 8 <= size) {
        const size_t end = size - at < 512 ? size & ~(size_t)7 : at + 512;
        uint64_t missing = 0;
        for (; at < end; at += 8)
            missing |= spv_word(mine + at, 8) & ~spv_word(theirs + at, 8);
        if (missing)
            return false;
    }
    return !(spv_word(mine + at, size - at) & ~spv_word(theirs + at, size - at));
}
