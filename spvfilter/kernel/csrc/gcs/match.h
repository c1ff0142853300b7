/* Matching the items of a query against Golomb-coded sets; the twin of pure/gcs.py's GcsQuery. */
#ifndef SPV_GCS_MATCH_H
#define SPV_GCS_MATCH_H

#include "gcs/query.h"

typedef struct {
    const uint8_t *key; /* SipHash key, 16 bytes */
    spv_bytes data;
} spv_gcs_set;

/* The twin of pure.gcs.GcsQuery.match_many: sets a byte in `mask` to 0 or 1 for each set. 1 ≤ p ≤ 32, 1 ≤ m < 2^32.
   On failure, *failed is the number of the malformed set. */
spv_status spv_gcs_match_many(
    const spv_gcs_query *query, const spv_gcs_set *sets, size_t count, unsigned p, uint64_t m, uint8_t *mask, size_t *failed, spv_error *error
);

#endif
