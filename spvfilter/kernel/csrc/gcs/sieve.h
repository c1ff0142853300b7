/* A sieve of a set of values: most values that are not in the set are recognised by one bit, without a branch.

   It is two bitmaps, one indexed by a value's high bits and one by its low bits; a value whose bit is 0 in either is not in the set. The
   high one is tested first. It has enough bits for each value that only about one value in a hundred passes it without being in the set. */
#ifndef SPV_GCS_SIEVE_H
#define SPV_GCS_SIEVE_H

#include "spv.h"

typedef struct {
    uint64_t *high, *low; /* one allocation: the low map follows the high one */
    size_t room;          /* words allocated */
    unsigned shift;       /* from a value to its high bits */
    uint64_t high_mask;   /* words of the high map, a power of two, less one */
    uint64_t low_mask;    /* bits of the low map, a power of two, less one */
} spv_sieve;

/* Makes a sieve of `count` values below `span`, in memory that is reused: initialise with {0}, end with spv_sieve_free. */
bool spv_sieve_make(spv_sieve *made, const uint64_t *values, size_t count, uint64_t span); /* false: no memory */
void spv_sieve_free(spv_sieve *sieve);

/* The lowest bit says whether a value passes the high map; the others have no meaning. */
SPV_INLINE uint64_t spv_sieve_high(const spv_sieve *of, uint64_t value) {
    return of->high[value >> of->shift >> 6 & of->high_mask] >> (value >> of->shift & 63);
}

/* Whether a value passes the low map. */
SPV_INLINE bool spv_sieve_low(const spv_sieve *of, uint64_t value) {
    const uint64_t place = value & of->low_mask;
    return of->low[place >> 6] >> (place & 63) & 1;
}

#endif
