/* Items to look for in sets: packed by length, so that they can be hashed side by side under any key. */
#ifndef SPV_GCS_QUERY_H
#define SPV_GCS_QUERY_H

#include "spv.h"

/* Items of one length, in blocks of SPV_SIP_LANES. */
typedef struct {
    size_t first_word, words; /* in query->words; of each item */
    size_t blocks, items;     /* the last block repeats the last item */
    size_t first_hash;        /* where this group's hashes begin */
} spv_gcs_group;

/* Made once, read by any number of threads. */
typedef struct {
    size_t count, room, groups; /* items; hashes, with those of repeated items; groups */
    spv_gcs_group *group;
    uint64_t *words;            /* as spv_siphash24_many takes them */
} spv_gcs_query;

/* NULL: no memory. The items are read during the call only. */
spv_gcs_query *spv_gcs_query_new(const spv_bytes *items, size_t count);
void spv_gcs_query_free(spv_gcs_query *query); /* NULL is nothing to free */
size_t spv_gcs_query_count(const spv_gcs_query *query);

/* SipHash-2-4 of every item, in packed order, query->room of them. */
void spv_gcs_hash(const spv_gcs_query *query, const uint8_t key[16], uint64_t *hashes);

#endif
