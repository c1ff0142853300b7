/* An index of headers by hash; the twin is in pure/headers.py, which describes its bytes. */
#ifndef SPV_BLOCK_HASHINDEX_H
#define SPV_BLOCK_HASHINDEX_H

#include "hash/sha256.h"

/* Headers of one index, and the bytes that each takes in it: the first of its hash, and its number. */
enum { SPV_MOST_INDEXED = 1 << 16, SPV_INDEX_KEY = 4, SPV_INDEX_ENTRY = 6 };

/* pure.headers.index_headers of 1 to SPV_MOST_INDEXED headers: room for `count` entries at `out`. SPV_NOMEM. */
spv_status spv_index_headers(const uint8_t *headers, size_t count, const spv_hash last, uint8_t *out);

/* pure.headers.join_indexes of indexes whose sizes are whole numbers of entries, 1 to SPV_MOST_INDEXED in all: room for them at `out`.
   SPV_NOMEM; SPV_RANGE if one has not each number once. */
spv_status spv_join_indexes(const spv_bytes *indexes, size_t number, uint8_t *out);

/* pure.headers.find_header in one index of `count` entries: the number of headers that it may be, and where their numbers are. */
size_t spv_find_header(const uint8_t *index, size_t count, const spv_hash hash, const uint8_t **numbers);

#endif
