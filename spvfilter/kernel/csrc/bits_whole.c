/* Whole bit arrays, 64 bits at a time and at the memory's speed. Loads need no alignment; atomic writes to words are made to aligned
   ones, and byte by byte before and behind them. */
#include "bits.h"

SPV_INLINE uint64_t load(const uint8_t *at) {
    uint64_t word;
    memcpy(&word, at, sizeof word);
    return word;
}

SPV_INLINE uint64_t load_some(const uint8_t *at, size_t size) { /* fewer than 8 */
    uint64_t word = 0;
    memcpy(&word, at, size);
    return word;
}

SPV_INLINE uint64_t count_words(const uint8_t *mine, const uint8_t *theirs, size_t size) {
    uint64_t count = 0;
    size_t at = 0;
    for (; at + 8 <= size; at += 8)
        count += (uint64_t)__builtin_popcountll(theirs ? load(mine + at) | load(theirs + at) : load(mine + at));
    const uint64_t rest = load_some(mine + at, size - at) | (theirs ? load_some(theirs + at, size - at) : 0);
    return count + (uint64_t)__builtin_popcountll(rest);
}
