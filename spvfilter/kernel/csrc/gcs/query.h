/* How a query's items are packed; for gcs_hash.c and gcs.c alone. */
#ifndef SPV_GCS_QUERY_H
#define SPV_GCS_QUERY_H

#include "gcs/match.h"

enum { SPV_GCS_LANES = 8 };

/* Items of one length, in blocks of SPV_GCS_LANES, word by word across the lanes. */
typedef struct {
    size_t first_word, words; /* in query->words; of each item */
    size_t blocks, first_hash, items;
} spv_gcs_group;

struct spv_gcs_query {
    size_t count, room, groups; /* items; hashes with the lanes left over; groups */
    spv_gcs_group *group;
    uint64_t *words;
    const spv_item_bytes **item; /* in packed order, the caller's; NULL once they may be gone */
};

/* As spv_gcs_query_new, with `item` set. */
spv_gcs_query *spv_gcs_pack(const spv_item_bytes *items, size_t count);

#endif
