#include "gcs/sieve.h"

#include <stdlib.h>

enum {
    BITS_PER_VALUE = 96,        /* bits of the high map for each value */
    LEAST_BITS = 12,            /* least number of bits of an index into the high map */
    MOST_BITS = 22,
    LOW_BITS_FEWER = 1          /* bits by which an index into the low map is shorter */
};

static unsigned width_of(uint64_t span) { /* number of bits of a value below `span` */
    return span > 1 ? 64 - (unsigned)__builtin_clzll(span - 1) : 1;
}

bool spv_sieve_make(spv_sieve *made, const uint64_t *values, size_t count, uint64_t span) {
    unsigned bits = LEAST_BITS;
    while (bits < MOST_BITS && ((uint64_t)1 << bits) < BITS_PER_VALUE * (uint64_t)count)
        bits++;
    const size_t high_words = (size_t)1 << bits >> 6, low_words = high_words >> LOW_BITS_FEWER, words = high_words + low_words;
    if (words > made->room) {
        uint64_t *larger = realloc(made->high, words * sizeof *larger);
        if (!larger)
            return false;
        made->high = larger;
        made->room = words;
    }
    uint64_t *high = made->high, *low = high + high_words;
    const unsigned shift = width_of(span) > bits ? width_of(span) - bits : 0;
    memset(high, 0, words * sizeof *high);
    for (size_t i = 0; i < count; i++) {
        const uint64_t value = values[i];
        high[value >> shift >> 6 & (high_words - 1)] |= (uint64_t)1 << (value >> shift & 63);
        low[value >> 6 & (low_words - 1)] |= (uint64_t)1 << (value & 63);
    }
    made->low = low;
    made->shift = shift;
    made->high_mask = high_words - 1;
    made->low_mask = 64 * low_words - 1;
    return true;
}

void spv_sieve_free(spv_sieve *sieve) {
    free(sieve->high);
}
