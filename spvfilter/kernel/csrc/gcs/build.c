/* Building a set: the hashes of its items are sorted, and duplicates are dropped. Items are compared only if their
   hashes are equal. */
#include "gcs/build.h"

#include "hash/siphash/many.h"

#include <stdlib.h>

enum { MAX_BITS = 18, FEW = 24 }; /* most upper bits for one pass of sorting; number of hashes up to which insertion sort is fastest */

static int by_value(const void *left, const void *right) {
    const uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

/* Insertion sort, for hashes that are nearly sorted, or few. */
static void sort_few(uint64_t *hashes, size_t count) {
    for (size_t i = 1; i < count; i++) {
        const uint64_t hash = hashes[i];
        size_t at = i;
        for (; at && hashes[at - 1] > hash; at--)
            hashes[at] = hashes[at - 1];
        hashes[at] = hash;
    }
}

/* The number of upper bits that gives about one hash per bucket. */
static unsigned bucket_bits(size_t count) {
    unsigned bits = 1;
    while (bits < MAX_BITS && (size_t)1 << bits < count)
        bits++;
    return bits;
}

/* Sorts hashes into buckets by their upper bits, then by insertion. `ends` has room for 2^bits numbers. */
static void sort(const uint64_t *hashes, size_t count, unsigned bits, uint32_t *ends, uint64_t *sorted) {
    const unsigned shift = 64 - bits;
    const size_t buckets = (size_t)1 << bits;
    uint32_t most = 0;
    memset(ends, 0, buckets * sizeof *ends);
    for (size_t i = 0; i < count; i++)
        ends[hashes[i] >> shift]++;
    for (size_t bucket = 0, sum = 0; bucket < buckets; bucket++) { /* ends[bucket] becomes the start of the bucket, */
        const uint32_t here = ends[bucket];
        ends[bucket] = (uint32_t)sum;
        sum += here;
        most = here > most ? here : most;
    }
    for (size_t i = 0; i < count; i++) /* and its end when all hashes are in their buckets */
        sorted[ends[hashes[i] >> shift]++] = hashes[i];
    for (size_t bucket = 0, start = 0; most > FEW && bucket < buckets; start = ends[bucket++])
        if (ends[bucket] - start > FEW)
            qsort(sorted + start, ends[bucket] - start, sizeof *sorted, by_value);
    sort_few(sorted, count);
}

/* An item that has the same hash as another item. */
typedef struct {
    uint64_t hash;
    const spv_bytes *item;
} twin;

static int by_content(const void *left, const void *right) {
    const twin *a = left, *b = right;
    if (a->hash != b->hash)
        return a->hash > b->hash ? 1 : -1;
    if (a->item->size != b->item->size)
        return a->item->size > b->item->size ? 1 : -1;
    return memcmp(a->item->data, b->item->data, a->item->size);
}

/* For equal hashes, keeps one hash for each different item. *count becomes the number of hashes that are left. */
static spv_status drop_repeated(const spv_bytes *items, const uint64_t *hashes, uint64_t *sorted, size_t *count) {
    size_t equal = 0, twins = 0, kept = 0;
    for (size_t i = 1; i < *count; i++)
        equal += sorted[i] == sorted[i - 1];
    if (SPV_LIKELY(!equal))
        return SPV_OK;
    uint64_t *shared = malloc(equal * sizeof *shared); /* the hashes that occur several times; a hash may be in it more than once */
    twin *all = malloc(2 * equal * sizeof *all);
    if (!shared || !all) {
        free(shared);
        free(all);
        return SPV_NOMEM;
    }
    for (size_t i = 1, at = 0; i < *count; i++)
        if (sorted[i] == sorted[i - 1])
            shared[at++] = sorted[i];
    for (size_t i = 0; i < *count; i++)
        if (bsearch(hashes + i, shared, equal, sizeof *shared, by_value))
            all[twins++] = (twin){hashes[i], items + i};
    qsort(all, twins, sizeof *all, by_content);
    for (size_t i = 0, at = 0; i < *count; i++) {
        if (at < twins && all[at].hash == sorted[i]) {
            if (!at || by_content(all + at, all + at - 1))
                sorted[kept++] = sorted[i];
            at++;
        } else {
            sorted[kept++] = sorted[i];
        }
    }
    *count = kept;
    free(shared);
    free(all);
    return SPV_OK;
}

typedef struct {
    uint8_t *at;
    uint64_t bits; /* pending bits, left-aligned, fewer than 8 */
    unsigned count;
} writer;

/* Appends the low `count` bits of a value (at most 56). Its other bits are 0. May write up to 8 bytes beyond them. */
SPV_INLINE void put(writer *to, uint64_t value, unsigned count) {
    to->bits |= value << (64 - count) >> to->count;
    to->count += count;
    const uint64_t big_endian = __builtin_bswap64(to->bits);
    memcpy(to->at, &big_endian, sizeof big_endian);
    to->at += to->count / 8;
    to->bits <<= to->count & ~7u;
    to->count &= 7;
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

static spv_status encode(const uint64_t *hashes, size_t n, unsigned p, uint64_t m, uint8_t **built, size_t *size) {
    uint64_t span = n * m, last = 0;
    /* the sum of the quotients is at most span >> p; each element also has a zero and p bits */
    uint64_t most = (span >> p) + (uint64_t)n * (p + 1);
    uint8_t *out = malloc((size_t)(most / 8) + 24);
    if (!out)
        return SPV_NOMEM;
    writer to = {.at = out + put_count(out, n)};
    for (size_t i = 0; i < n; i++) {
        uint64_t value = (uint64_t)((unsigned __int128)hashes[i] * span >> 64), difference = value - last, quotient = difference >> p;
        last = value;
        for (; quotient >= 16; quotient -= 16)
            put(&to, 0xFFFF, 16);
        const uint64_t unary = ((uint64_t)2 << quotient) - 2; /* the ones and the zero: with the remainder at most 16 + 32 bits */
        put(&to, unary << p | (difference & (((uint64_t)1 << p) - 1)), (unsigned)quotient + 1 + p);
    }
    if (to.count)
        *to.at++ = (uint8_t)(to.bits >> 56);
    *built = out;
    *size = (size_t)(to.at - out);
    return SPV_OK;
}

size_t spv_gcs_room(size_t count) {
    return 2 * count * sizeof(uint64_t) + ((size_t)1 << bucket_bits(count)) * sizeof(uint32_t);
}

spv_status spv_gcs_build(
    const spv_bytes *items, size_t count, void *room, const uint8_t key[16], unsigned p, uint64_t m, uint8_t **built, size_t *size
) {
    if (count > UINT32_MAX)
        return SPV_RANGE;
    uint64_t *hashes = room, *sorted = hashes + count;
    spv_siphash24_each(items, count, spv_le64(key), spv_le64(key + 8), hashes);
    sort(hashes, count, bucket_bits(count), (uint32_t *)(sorted + count), sorted);
    const spv_status status = drop_repeated(items, hashes, sorted, &count);
    if (status)
        return status;
    return count > SPV_GCS_MAX_ITEMS ? SPV_RANGE : encode(sorted, count, p, m, built, size);
}
