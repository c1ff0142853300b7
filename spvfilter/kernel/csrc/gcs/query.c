#include "gcs/query.h"
#include "hash/siphash/many.h"

#include <stdlib.h>

static int by_size(const void *left, const void *right) {
    size_t a = (*(const spv_bytes *const *)left)->size, b = (*(const spv_bytes *const *)right)->size;
    return (a > b) - (a < b);
}

/* Sorts the items by size. Items of less than 256 bytes, which are nearly all, are sorted by counting. */
static void sort_by_size(const spv_bytes *items, size_t count, const spv_bytes **sorted) {
    size_t at[257] = {0}, longer = 0; /* position of the first item of each size below 256; position of the first longer item */
    for (size_t i = 0; i < count; i++)
        if (items[i].size < 256)
            at[items[i].size + 1]++, longer++;
    for (size_t size = 1; size < 257; size++)
        at[size] += at[size - 1];
    size_t last = longer;
    for (size_t i = 0; i < count; i++)
        sorted[items[i].size < 256 ? at[items[i].size]++ : last++] = items + i;
    qsort(sorted + longer, count - longer, sizeof *sorted, by_size);
}

static size_t run_end(const spv_bytes **sorted, size_t count, size_t start) {
    size_t end = start + 1;
    while (end < count && sorted[end]->size == sorted[start]->size)
        end++;
    return end;
}

static void pack_group(spv_gcs_query *query, const spv_gcs_group *group, const spv_bytes **items) {
    for (size_t i = 0; i < group->blocks * SPV_SIP_LANES; i++) { /* unused lanes repeat the last item */
        const spv_bytes *item = items[i < group->items ? i : group->items - 1];
        size_t block = i / SPV_SIP_LANES, lane = i % SPV_SIP_LANES;
        spv_sip_lay_out(item, group->words, query->words + group->first_word + block * group->words * SPV_SIP_LANES + lane);
    }
}

/* Makes the groups of items, which are sorted by size. False: no memory. */
static bool pack(spv_gcs_query *query, const spv_bytes **items, size_t count) {
    size_t words = 0;
    for (size_t i = 0; i < count; i = run_end(items, count, i))
        query->groups++;
    query->group = calloc(query->groups ? query->groups : 1, sizeof *query->group);
    if (!query->group)
        return false;
    for (size_t i = 0, end, number = 0; i < count; i = end, number++) {
        end = run_end(items, count, i);
        spv_gcs_group *group = query->group + number;
        *group = (spv_gcs_group){.first_word = words, .words = items[i]->size / 8 + 1, .first_hash = query->room, .items = end - i};
        group->blocks = (end - i + SPV_SIP_LANES - 1) / SPV_SIP_LANES;
        words += group->blocks * group->words * SPV_SIP_LANES;
        query->room += group->blocks * SPV_SIP_LANES;
    }
    query->words = malloc((words ? words : 1) * sizeof *query->words);
    if (!query->words)
        return false;
    for (size_t i = 0, first = 0; i < query->groups; first += query->group[i].items, i++)
        pack_group(query, query->group + i, items + first);
    return true;
}

spv_gcs_query *spv_gcs_query_new(const spv_bytes *items, size_t count) {
    spv_gcs_query *query = calloc(1, sizeof *query);
    const spv_bytes **sorted = malloc((count ? count : 1) * sizeof *sorted);
    bool packed = query && sorted;
    if (packed) {
        query->count = count;
        sort_by_size(items, count, sorted);
        packed = pack(query, sorted, count);
    }
    free(sorted);
    if (packed)
        return query;
    spv_gcs_query_free(query);
    return NULL;
}

void spv_gcs_query_free(spv_gcs_query *query) {
    if (query) {
        free(query->group);
        free(query->words);
        free(query);
    }
}

size_t spv_gcs_query_count(const spv_gcs_query *query) {
    return query->count;
}

void spv_gcs_hash(const spv_gcs_query *query, const uint8_t key[16], uint64_t *hashes) {
    const uint64_t k0 = spv_le64(key), k1 = spv_le64(key + 8);
    for (size_t i = 0; i < query->groups; i++) {
        const spv_gcs_group *group = query->group + i;
        spv_siphash24_many(query->words + group->first_word, group->blocks, group->words, k0, k1, hashes + group->first_hash);
    }
}
