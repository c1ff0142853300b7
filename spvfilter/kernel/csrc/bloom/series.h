/* A growing series of bit arrays that form one set: the twin of pure.series.SeriesCore.

   All slices have one hash family and key, so a key is hashed once. They differ in size and in the number of
   functions. */
#ifndef SPV_BLOOM_SERIES_H
#define SPV_BLOOM_SERIES_H

#include "bloom/cells.h"

enum { SPV_MAX_SLICES = 64 }; /* values.MAX_SLICES */

typedef struct {
    const spv_shape *shape;
    const uint8_t *cells;
} spv_slice;

/* True if any of `count` slices contains the key. The last slice is tested first, because it is the largest. */
bool spv_series_has(const spv_slice *slices, size_t count, const uint8_t *data, size_t size);

/* The same for a key whose two hashes are known, in a family with two hashes. */
bool spv_series_has_hashed(const spv_slice *slices, size_t count, spv_hash128 hashes);

/* SeriesCore.contains_many: sets mask[i] to 1 if any slice contains key from + i, else to 0. */
void spv_series_has_many(const spv_slice *slices, size_t count, const spv_keys *keys, size_t from, size_t number, uint8_t *mask);

/* SeriesCore.update: returns how many of the `number` keys, starting with number `from`, were new. A key is new if neither
   the `earlier` slices nor the slice `last` contain it; it is then added to `last`. Stops before a new key for which
   the last slice has no room (last->done). */
size_t spv_series_add_many(const spv_slice *slices, size_t earlier, spv_batch *last, const spv_keys *keys, size_t from, size_t number);

#endif
