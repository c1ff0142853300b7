/* Runs of headers, judged and indexed in the plainest way, for comparison with the kernel. */
#ifndef ORACLE_HEADERS_H
#define ORACLE_HEADERS_H

#include "block/hashindex.h"
#include "block/headers.h"
#include "oracle.h"

/* spv_judge_headers: the number of good headers, and how many of them are late. */
size_t plain_judge(const uint8_t *headers, const spv_hash *hashes, size_t count, const spv_header_rules *rules, size_t *late);

/* The index of these hashes: `count` entries at `out`. */
void plain_index(const spv_hash *hashes, size_t count, uint8_t *out);

/* Checks that spv_find_header finds in an index exactly the numbers of a hash's key, in order. */
void check_found(const uint8_t *index, const spv_hash *hashes, size_t count, const spv_hash wanted);

#endif
