/* A series of bit arrays that is searched as one set, and grows at its end: the twin of pure.series.SeriesCore.

   All slices have one hash family and key, so a key is hashed once. They differ in size and in the number of functions. */
#ifndef SPV_BLOOM_SERIES_H
#define SPV_BLOOM_SERIES_H

#include "bloom/cells.h"

enum { SPV_MAX_SLICES = 64 }; /* values.MAX_SLICES */

typedef struct {
    const spv_shape *shape;
    const uint8_t *cells;
} spv_slice;

/* Whether any of `count` slices contains the key, the latest looked at first, as it is the largest. */
bool spv_series_has(const spv_slice *slices, size_t count, const uint8_t *data, size_t size);

/* The same of a key whose two hashes are known, in a family that has them. */
bool spv_series_has_hashed(const spv_slice *slices, size_t count, spv_hash128 hashes);

/* SeriesCore.contains_many: mask[i] is 1 where key from + i is contained in any slice, else 0. */
void spv_series_has_many(const spv_slice *slices, size_t count, const spv_keys *keys, size_t from, size_t number, uint8_t *mask);

/* SeriesCore.update: how many of `number` keys from number `from` on were new in `earlier` slices and in the last one, `last`, to which they
   are added. Stops before a new key for which the last slice has no room (last->done). */
size_t spv_series_add_many(const spv_slice *slices, size_t earlier, spv_batch *last, const spv_keys *keys, size_t from, size_t number);

#endif
