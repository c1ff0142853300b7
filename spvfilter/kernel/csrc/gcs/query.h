/* Items to look for in sets: packed by length, so that they can be hashed side by side under any key. */
#ifndef SPV_GCS_QUERY_H
#define SPV_GCS_QUERY_H

#include "spv.h"

/* Items of one length, in blocks of SPV_SIP_LANES. */
typedef struct {
    size_t first_word, words; /* position of the first word in query->words; words of each item */
    size_t blocks, items;     /* the last block repeats the last item */
    size_t first_hash;        /* position of the group's first hash */
} spv_gcs_group;

/* A query is made once and read by any number of threads. */
typedef struct {
    size_t count, room, groups; /* number of items; number of hashes, with those of repeated items; number of groups */
    spv_gcs_group *group;
    uint64_t *words;            /* in the order that spv_siphash24_many needs */
} spv_gcs_query;

/* Makes a query. The items are read only during the call. NULL: no memory. */
spv_gcs_query *spv_gcs_query_new(const spv_bytes *items, size_t count);
void spv_gcs_query_free(spv_gcs_query *query); /* accepts NULL */
size_t spv_gcs_query_count(const spv_gcs_query *query);

/* Computes SipHash-2-4 of every item, in packed order: query->room hashes. */
void spv_gcs_hash(const spv_gcs_query *query, const uint8_t key[16], uint64_t *hashes);

#endif
