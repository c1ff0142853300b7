/* A generic filter's 4-bit counters: the twin of pure.bits.CounterCore. Counter c is the low nibble of byte c >> 1 if c is even, else the
   high one.

   `shared` says that a write must be atomic (gate.h): then each byte is compared and exchanged, which needs no lock and is correct
   between processes as well as between threads. Buffers need no alignment. */
#ifndef SPV_BLOOM_COUNTERS_H
#define SPV_BLOOM_COUNTERS_H

#include "bloom/cells.h"

enum { SPV_COUNTER_LIMIT = 15 }; /* values.COUNTER_LIMIT: such a counter sticks */

/* CounterCore.add, remove, `in` and count, of one key's positions, the first two of which reorder them. add returns whether the key was
   new, remove whether it was contained; `gone` whether it no longer is. */
bool spv_counters_add(uint8_t *cells, uint64_t *positions, size_t count, bool shared);
bool spv_counters_remove(uint8_t *cells, uint64_t *positions, size_t count, bool shared, bool *gone);
unsigned spv_counters_least(const uint8_t *cells, const uint64_t *positions, size_t count);

/* CounterCore.update and contains_many; see spv_bits_add_many. */
size_t spv_counters_add_many(spv_batch *batch, const spv_keys *keys, size_t from, size_t count);
void spv_counters_has_many(const spv_batch *batch, const spv_keys *keys, size_t from, size_t count, uint8_t *mask);

/* Whole arrays, `size` bytes of them. */
uint64_t spv_counters_used(const uint8_t *cells, size_t size); /* how many are not 0 */
void spv_counters_sum(uint8_t *mine, const uint8_t *theirs, size_t size, bool shared); /* each saturates */
void spv_counters_to_bits(const uint8_t *cells, size_t size, uint8_t *bits); /* ⌈size/4⌉ bytes: a bit where one is not 0 */

#endif
