/* Building a set: every item is hashed and sorted once; duplicates are dropped on the way. */
#include "gcs/build.h"
#include "gcs/query.h"

#include <stdlib.h>

typedef struct {
    uint64_t hash;
    const spv_bytes *item;
} hashed;

enum { RADIX = 11, PASSES = 4 }; /* the upper 44 bits; hashes that differ only below them end up next to each other */

/* LSD radix sort by the upper bits, then by insertion: two different hashes with equal upper bits are rare. */
static hashed *sort(hashed *from, hashed *to, size_t count) {
    static const unsigned shifts[PASSES] = {20, 31, 42, 53};
    size_t at[1 << RADIX];
    for (int pass = 0; pass < PASSES; pass++) {
        memset(at, 0, sizeof at);
        for (size_t i = 0; i < count; i++)
            at[from[i].hash >> shifts[pass] & ((1 << RADIX) - 1)]++;
        for (size_t sum = 0, i = 0; i < (1 << RADIX); i++) {
            size_t here = at[i];
            at[i] = sum;
            sum += here;
        }
        for (size_t i = 0; i < count; i++)
            to[at[from[i].hash >> shifts[pass] & ((1 << RADIX) - 1)]++] = from[i];
        hashed *swap = from;
        from = to;
        to = swap;
    }
    return from;
}

static int by_hash(const void *left, const void *right) {
    uint64_t a = ((const hashed *)left)->hash, b = ((const hashed *)right)->hash;
    return (a > b) - (a < b);
}

/* Runs of equal upper bits: short, unless an item is repeated a million times; qsort handles both. */
static void sort_runs(hashed *items, size_t count) {
    for (size_t i = 0, end; i < count; i = end) {
        bool ordered = true;
        for (end = i + 1; end < count && items[end].hash >> 20 == items[i].hash >> 20; end++)
            ordered &= items[end].hash >= items[end - 1].hash;
        if (!ordered)
            qsort(items + i, end - i, sizeof *items, by_hash);
    }
}

static bool same(const hashed *left, const hashed *right) {
    return left->item->size == right->item->size && !memcmp(left->item->data, right->item->data, left->item->size);
}

/* Drops duplicates; equal items have equal hashes, so they are in one run. */
static size_t distinct(hashed *items, size_t count) {
    size_t kept = 0;
    for (size_t i = 0, run = 0; i < count; i++) {
        if (!kept || items[i].hash != items[kept - 1].hash)
            run = kept;
        bool known = false;
        for (size_t j = run; j < kept && !known; j++)
            known = same(items + j, items + i);
        if (!known)
            items[kept++] = items[i];
    }
    return kept;
}

typedef struct {
    uint8_t *at;
    uint64_t bits; /* pending, left-aligned */
    unsigned count;
} writer;

/* Appends the low `count` ≤ 32 bits. */
SPV_INLINE void put(writer *to, uint64_t value, unsigned count) {
    to->bits |= value << (64 - count) >> to->count;
    to->count += count;
    while (to->count >= 8) {
        *to->at++ = (uint8_t)(to->bits >> 56);
        to->bits <<= 8;
        to->count -= 8;
    }
}

static size_t put_count(uint8_t *to, size_t n) {
    if (n < 0xFD) {
        to[0] = (uint8_t)n;
        return 1;
    }
    if (n <= 0xFFFF) {
        to[0] = 0xFD, to[1] = (uint8_t)n, to[2] = (uint8_t)(n >> 8);
        return 3;
    }
    to[0] = 0xFE;
    spv_put_le32(to + 1, (uint32_t)n);
    return 5;
}

static spv_status encode(const hashed *items, size_t n, unsigned p, uint64_t m, uint8_t **built, size_t *size) {
    uint64_t span = n * m, last = 0;
    /* quotients sum to at most span >> p, each element has a zero and p bits */
    uint64_t most = (span >> p) + (uint64_t)n * (p + 1);
    uint8_t *out = malloc((size_t)(most / 8) + 16);
    if (!out)
        return SPV_NOMEM;
    writer to = {.at = out + put_count(out, n)};
    for (size_t i = 0; i < n; i++) {
        uint64_t value = (uint64_t)((unsigned __int128)items[i].hash * span >> 64), difference = value - last, quotient = difference >> p;
        last = value;
        for (; quotient >= 16; quotient -= 16)
            put(&to, 0xFFFF, 16);
        put(&to, ((uint64_t)2 << quotient) - 2, (unsigned)quotient + 1);
        put(&to, difference & (((uint64_t)1 << p) - 1), p);
    }
    if (to.count)
        *to.at++ = (uint8_t)(to.bits >> 56);
    *built = out;
    *size = (size_t)(to.at - out);
    return SPV_OK;
}

spv_status spv_gcs_build(
    const spv_bytes *items, size_t count, const uint8_t key[16], unsigned p, uint64_t m, uint8_t **built, size_t *size
) {
    spv_status status = SPV_NOMEM;
    spv_gcs_query *query = spv_gcs_pack(items, count);
    uint64_t *hashes = malloc((query ? query->room + 1 : 1) * sizeof *hashes);
    hashed *both = malloc((2 * count + 1) * sizeof *both);
    if (query && hashes && both) {
        spv_gcs_hash(query, key, hashes);
        size_t at = 0;
        for (size_t i = 0; i < query->groups; i++)
            for (size_t j = 0; j < query->group[i].items; j++, at++)
                both[at] = (hashed){hashes[query->group[i].first_hash + j], query->item[at]};
        hashed *sorted = sort(both, both + count, count);
        sort_runs(sorted, count);
        size_t n = distinct(sorted, count);
        status = n > SPV_GCS_MAX_ITEMS ? SPV_RANGE : encode(sorted, n, p, m, built, size);
    }
    free(both);
    free(hashes);
    spv_gcs_query_free(query);
    return status;
}
