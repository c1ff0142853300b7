/* A sieve of a set of values: one bit tells, without a branch, that most other values are not in the set.

   It consists of two bitmaps: the high map is indexed by the high bits of a value, the low map by the low bits. A value is not
   in the set if its bit is 0 in one of them. The high map is tested first. It is so large that only about one in a
   hundred values that are not in the set pass it. */
#ifndef SPV_GCS_SIEVE_H
#define SPV_GCS_SIEVE_H

#include "spv.h"

typedef struct {
    uint64_t *high, *low; /* one allocation: the low map follows the high one */
    size_t room;          /* words allocated */
    unsigned shift;       /* shift that leaves the high bits of a value */
    uint64_t high_mask;   /* number of words of the high map (a power of two) minus 1 */
    uint64_t low_mask;    /* number of bits of the low map (a power of two) minus 1 */
} spv_sieve;

/* Makes a sieve of `count` values below `span`, in memory that is reused: initialize with {0}, end with
   spv_sieve_free. */
bool spv_sieve_make(spv_sieve *made, const uint64_t *values, size_t count, uint64_t span); /* false: no memory */
void spv_sieve_free(spv_sieve *sieve);

/* The lowest bit of the result is 1 if the value passes the high map. The other bits have no meaning. */
SPV_INLINE uint64_t spv_sieve_high(const spv_sieve *of, uint64_t value) {
    return of->high[value >> of->shift >> 6 & of->high_mask] >> (value >> of->shift & 63);
}

/* True if a value passes the low map. */
SPV_INLINE bool spv_sieve_low(const spv_sieve *of, uint64_t value) {
    const uint64_t place = value & of->low_mask;
    return of->low[place >> 6] >> (place & 63) & 1;
}

#endif
