/* A generic filter's counters of `width` bits (4, 8 or 16): the twin of pure.bits.CounterCore. Counter c of 4 bits is
   in byte c >> 1: in the low nibble if c is even, else in the high nibble. Counters of 16 bits are little endian.

   `shared`: writes must be atomic (gate.h). Each byte, or counter of 16 bits, is then changed by compare-and-exchange,
   which needs no lock and is correct between threads and between processes. Counters of 16 bits are at an even
   address; other buffers need no alignment. */
#ifndef SPV_BLOOM_COUNTERS_H
#define SPV_BLOOM_COUNTERS_H

#include "bloom/cells.h"

/* CounterCore.counter_limit: a counter with this value never changes. */
SPV_INLINE unsigned spv_counter_limit(unsigned width) {
    return (1u << width) - 1;
}

/* CounterCore.add, remove, `in` and count, for the positions of one key. The first two functions reorder
   the positions. The first one returns whether the key was new, the second one whether it was contained. The flag
   *gone becomes true if the last copy of the key was removed. */
bool spv_counters_add(uint8_t *cells, unsigned width, uint64_t *positions, size_t count, bool shared);
bool spv_counters_remove(uint8_t *cells, unsigned width, uint64_t *positions, size_t count, bool shared, bool *gone);
unsigned spv_counters_least(const uint8_t *cells, unsigned width, const uint64_t *positions, size_t count);

/* CounterCore.update and contains_many; see spv_bits_add_many. */
size_t spv_counters_add_many(spv_batch *batch, const spv_keys *keys, size_t from, size_t count);
void spv_counters_has_many(const spv_batch *batch, const spv_keys *keys, size_t from, size_t count, uint8_t *mask);

/* Functions for whole arrays of `size` bytes. */
uint64_t spv_counters_used(const uint8_t *cells, unsigned width, size_t size); /* number of counters that are not 0 */
void spv_counters_sum(uint8_t *mine, const uint8_t *theirs, unsigned width, size_t size, bool shared); /* adds counters; a sum is at most the limit */
/* A bit for each counter, 1 if the counter is not 0. */
void spv_counters_to_bits(const uint8_t *cells, unsigned width, size_t size, uint8_t *bits);

#endif
