/* Operations on whole bit arrays of `size` bytes: counts, unions, intersections, subsets. `shared`: writes must be
   atomic (gate.h). */
#ifndef SPV_BLOOM_WHOLE_H
#define SPV_BLOOM_WHOLE_H

#include "spv.h"

uint64_t spv_bits_count(const uint8_t *bits, size_t size);
uint64_t spv_bits_count_union(const uint8_t *mine, const uint8_t *theirs, size_t size);
uint64_t spv_bits_count_between(const uint8_t *bits, uint64_t first, uint64_t end); /* number of set bits from `first` to before `end` */
void spv_bits_or(uint8_t *mine, const uint8_t *theirs, size_t size, bool shared);
void spv_bits_and(uint8_t *mine, const uint8_t *theirs, size_t size, bool shared);
bool spv_bits_subset(const uint8_t *mine, const uint8_t *theirs, size_t size);

#endif
