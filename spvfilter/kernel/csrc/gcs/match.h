/* Golomb-coded sets: decoding, building, queries over many of them; the twin of pure/gcs.py. */
#ifndef SPV_GCS_H
#define SPV_GCS_H

#include "spv.h"

enum { SPV_GCS_MAX_ITEMS = 0x02000000 }; /* Core serialize.h MAX_SIZE */

/* Items to look for, packed by length for hashing in lanes. Made once, read by any number of threads. */
typedef struct spv_gcs_query spv_gcs_query;

/* The item at `index`, for spv_gcs_query_new: its bytes stay where they are during the call. */
typedef struct {
    const uint8_t *data;
    size_t size;
} spv_item_bytes;

spv_gcs_query *spv_gcs_query_new(const spv_item_bytes *items, size_t count); /* NULL: no memory */
void spv_gcs_query_free(spv_gcs_query *query);
size_t spv_gcs_query_count(const spv_gcs_query *query);

/* Values in memory that is used again; start with {0}, free `values` at the end. */
typedef struct {
    uint64_t *values;
    size_t count, room;
} spv_gcs_values;

/* pure.gcs.gcs_values: the values of a set, ascending. */
spv_status spv_gcs_decode(const uint8_t *data, size_t size, unsigned p, spv_gcs_values *to, spv_error *error);

typedef struct {
    const uint8_t *key; /* 16 bytes */
    const uint8_t *data;
    size_t size;
} spv_gcs_set;

/* pure.gcs.GcsQuery.match_many: a 0 or 1 in `mask` for each set; 1 ≤ p ≤ 32, 1 ≤ m < 2^32. Where it fails, *failed says at which. */
spv_status spv_gcs_match_many(
    const spv_gcs_query *query, const spv_gcs_set *sets, size_t count, unsigned p, uint64_t m, uint8_t *mask, size_t *failed, spv_error *error
);

/* pure.gcs.gcs_build: *built is malloc'd, *size its bytes. SPV_RANGE for more than SPV_GCS_MAX_ITEMS distinct items. */
spv_status spv_gcs_build(
    const spv_item_bytes *items, size_t count, const uint8_t key[16], unsigned p, uint64_t m, uint8_t **built, size_t *size
);

/* SipHash-2-4 of every item of the query, in its packed order, into hashes (spv_gcs_query_room of them). */
size_t spv_gcs_query_room(const spv_gcs_query *query);
void spv_gcs_hash(const spv_gcs_query *query, const uint8_t key[16], uint64_t *hashes);

#endif
