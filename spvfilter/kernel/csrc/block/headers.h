/* Runs of headers: their hashes, their links and their rules; and chains of filter headers. The twin is
   pure/headers.py. */
#ifndef SPV_BLOCK_HEADERS_H
#define SPV_BLOCK_HEADERS_H

#include "block/walk.h"
#include "hash/sha256.h"

enum { SPV_MEDIAN_SPAN = 11 }; /* headers, Core chain.h nMedianTimeSpan */

/* Fails unless `size` is a whole number of headers. */
spv_status spv_check_headers(size_t size, spv_error *error);

/* pure.headers.header_hashes: room for size / 80 hashes at `out`. */
spv_status spv_header_hashes(const uint8_t *headers, size_t size, spv_hash *out, spv_error *error);

/* The previous hash of a header. */
SPV_INLINE const uint8_t *spv_previous(const uint8_t *headers, size_t number) {
    return headers + number * SPV_HEADER_SIZE + 4;
}

/* pure.headers.linked_headers. */
size_t spv_linked_headers(const uint8_t *headers, const spv_hash *hashes, size_t count);

/* One item of pure.headers.header_bits. Returns how many of the `count` ≥ 1 headers have the bits of the first
   header, and stores these bits. */
size_t spv_same_bits(const uint8_t *headers, size_t count, uint32_t *bits);

typedef struct {
    const uint8_t *usual, *late; /* bits u32 LE, then the target, 32 bytes LE */
    uint64_t late_by;            /* seconds */
    int64_t least_version, latest;
    uint32_t times[SPV_MEDIAN_SPAN]; /* times of the headers before, oldest first */
    size_t known;                    /* number of times, at least 1 */
} spv_header_rules;

/* pure.headers.judge_headers. */
size_t spv_judge_headers(const uint8_t *headers, const spv_hash *hashes, size_t count, const spv_header_rules *rules, size_t *late);

/* pure.headers.chain_filter_headers: room for `count` filter headers at `out`. */
void spv_chain_filter_headers(const spv_hash *hashes, size_t count, const spv_hash previous, spv_hash *out);

/* pure.headers.filter_hashes: room for `count` hashes at `out`. */
void spv_filter_hashes(const spv_bytes *filters, size_t count, spv_hash *out);

#endif
