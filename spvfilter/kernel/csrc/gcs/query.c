/* SipHash-2-4 of many short items under one key, in lanes of 64 bits: four with AVX2, eight with AVX-512, else one after the other. */
#include "gcs/query.h"

#include <stdlib.h>

#define ROUND(ROTL)                                                                                                                      \
    do {                                                                                                                                 \
        v0 += v1, v2 += v3;                                                                                                              \
        v1 = ROTL(v1, 13) ^ v0, v3 = ROTL(v3, 16) ^ v2;                                                                                  \
        v0 = ROTL(v0, 32);                                                                                                               \
        v2 += v1, v0 += v3;                                                                                                              \
        v1 = ROTL(v1, 17) ^ v2, v3 = ROTL(v3, 21) ^ v0;                                                                                  \
        v2 = ROTL(v2, 32);                                                                                                               \
    } while (0)

#define ROTL(x, n) ((x) << (n) | (x) >> (64 - (n)))

/* One block of SPV_GCS_LANES items of `words` words each, transposed, as `vectors` vectors of a type. */
#define HASH_BLOCKS(NAME, TYPE, TARGET)                                                                                                  \
    TARGET static void NAME(const uint64_t *words, size_t blocks, size_t count, uint64_t k0, uint64_t k1, uint64_t *out) {              \
        enum { VECTORS = SPV_GCS_LANES / (int)(sizeof(TYPE) / 8) };                                                                      \
        for (size_t block = 0; block < blocks; block++) {                                                                                \
            const uint64_t *from = words + block * count * SPV_GCS_LANES;                                                                \
            for (int lane = 0; lane < VECTORS; lane++) {                                                                                 \
                TYPE zero = {0}, word;                                                                                                   \
                TYPE v0 = zero + (k0 ^ 0x736F6D6570736575), v1 = zero + (k1 ^ 0x646F72616E646F6D);                                       \
                TYPE v2 = zero + (k0 ^ 0x6C7967656E657261), v3 = zero + (k1 ^ 0x7465646279746573);                                       \
                for (size_t i = 0; i < count; i++) {                                                                                     \
                    memcpy(&word, from + i * SPV_GCS_LANES + (size_t)lane * (sizeof(TYPE) / 8), sizeof word);                            \
                    v3 ^= word;                                                                                                          \
                    ROUND(ROTL);                                                                                                         \
                    ROUND(ROTL);                                                                                                         \
                    v0 ^= word;                                                                                                          \
                }                                                                                                                        \
                v2 ^= zero + 0xFF;                                                                                                       \
                ROUND(ROTL);                                                                                                             \
                ROUND(ROTL);                                                                                                             \
                ROUND(ROTL);                                                                                                             \
                ROUND(ROTL);                                                                                                             \
                v0 ^= v1 ^ v2 ^ v3;                                                                                                      \
                memcpy(out + block * SPV_GCS_LANES + (size_t)lane * (sizeof(TYPE) / 8), &v0, sizeof v0);                                 \
            }                                                                                                                            \
        }                                                                                                                                \
    }

typedef uint64_t lane1 __attribute__((vector_size(8)));
typedef uint64_t lane4 __attribute__((vector_size(32)));
typedef uint64_t lane8 __attribute__((vector_size(64)));

HASH_BLOCKS(hash_scalar, lane1, )
#if defined(__x86_64__)
HASH_BLOCKS(hash_avx2, lane4, __attribute__((target("avx2"))))
HASH_BLOCKS(hash_avx512, lane8, __attribute__((target("avx512f"))))
#endif

typedef void hash_blocks(const uint64_t *words, size_t blocks, size_t count, uint64_t k0, uint64_t k1, uint64_t *out);

static hash_blocks *fastest(void) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f"))
        return hash_avx512;
    if (__builtin_cpu_supports("avx2"))
        return hash_avx2;
#endif
    return hash_scalar;
}

void spv_gcs_hash(const spv_gcs_query *query, const uint8_t key[16], uint64_t *hashes) {
    uint64_t k0 = spv_le64(key), k1 = spv_le64(key + 8);
    hash_blocks *hash = fastest();
    for (size_t i = 0; i < query->groups; i++) {
        const spv_gcs_group *group = query->group + i;
        hash(query->words + group->first_word, group->blocks, group->words, k0, k1, hashes + group->first_hash);
    }
}

static int by_size(const void *left, const void *right) {
    size_t a = (*(const spv_item_bytes *const *)left)->size, b = (*(const spv_item_bytes *const *)right)->size;
    return (a > b) - (a < b);
}

/* The item's words as SipHash takes them: whole ones, then the rest with the length's low byte on top. */
static void lay_out(const spv_item_bytes *item, size_t words, uint64_t *to) {
    size_t at = 0;
    for (size_t i = 0; i + 1 < words; i++, at += 8)
        to[i * SPV_GCS_LANES] = spv_le64(item->data + at);
    uint64_t last = (uint64_t)(item->size & 0xFF) << 56;
    for (unsigned shift = 0; at < item->size; at++, shift += 8)
        last |= (uint64_t)item->data[at] << shift;
    to[(words - 1) * SPV_GCS_LANES] = last;
}

/* Items in order of their sizes: short ones, which is nearly all, by counting. */
static void sort_by_size(const spv_item_bytes *items, size_t count, const spv_item_bytes **sorted) {
    size_t at[257] = {0}, longer = 0; /* of each size below 256 where its first goes; how many short ones there are */
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

static size_t run_end(const spv_item_bytes **sorted, size_t count, size_t start) {
    size_t end = start + 1;
    while (end < count && sorted[end]->size == sorted[start]->size)
        end++;
    return end;
}

static void pack_group(spv_gcs_query *query, const spv_gcs_group *group, const spv_item_bytes **items) {
    for (size_t i = 0; i < group->blocks * SPV_GCS_LANES; i++) { /* lanes left over repeat the last item */
        const spv_item_bytes *item = items[i < group->items ? i : group->items - 1];
        size_t block = i / SPV_GCS_LANES, lane = i % SPV_GCS_LANES;
        lay_out(item, group->words, query->words + group->first_word + block * group->words * SPV_GCS_LANES + lane);
    }
}

spv_gcs_query *spv_gcs_pack(const spv_item_bytes *items, size_t count) {
    spv_gcs_query *query = calloc(1, sizeof *query);
    if (!query)
        return NULL;
    query->count = count;
    query->item = malloc((count ? count : 1) * sizeof *query->item);
    if (!query->item) {
        spv_gcs_query_free(query);
        return NULL;
    }
    sort_by_size(items, count, query->item);
    size_t words = 0;
    for (size_t i = 0; i < count; i = run_end(query->item, count, i))
        query->groups++;
    query->group = calloc(query->groups ? query->groups : 1, sizeof *query->group);
    if (query->group) {
        for (size_t i = 0, end, number = 0; i < count; i = end, number++) {
            end = run_end(query->item, count, i);
            spv_gcs_group *group = query->group + number;
            *group = (spv_gcs_group){.first_word = words, .words = query->item[i]->size / 8 + 1, .first_hash = query->room, .items = end - i};
            group->blocks = (end - i + SPV_GCS_LANES - 1) / SPV_GCS_LANES;
            words += group->blocks * group->words * SPV_GCS_LANES;
            query->room += group->blocks * SPV_GCS_LANES;
        }
        query->words = malloc((words ? words : 1) * sizeof *query->words);
    }
    if (!query->words) {
        spv_gcs_query_free(query);
        return NULL;
    }
    for (size_t i = 0, first = 0; i < query->groups; first += query->group[i].items, i++)
        pack_group(query, query->group + i, query->item + first);
    return query;
}

spv_gcs_query *spv_gcs_query_new(const spv_item_bytes *items, size_t count) {
    spv_gcs_query *query = spv_gcs_pack(items, count);
    if (query) {
        free(query->item);
        query->item = NULL;
    }
    return query;
}

void spv_gcs_query_free(spv_gcs_query *query) {
    if (query) {
        free(query->item);
        free(query->group);
        free(query->words);
        free(query);
    }
}

size_t spv_gcs_query_count(const spv_gcs_query *query) {
    return query->count;
}

size_t spv_gcs_query_room(const spv_gcs_query *query) {
    return query->room;
}
