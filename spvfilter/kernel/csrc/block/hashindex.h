/* An index of headers by hash. Its twin and its format are in pure/headers.py. */
#ifndef SPV_BLOCK_HASHINDEX_H
#define SPV_BLOCK_HASHINDEX_H

#include "hash/sha256.h"

/* Most headers of one index; bytes of the hash in an entry; bytes of an entry. */
enum { SPV_MOST_INDEXED = 1 << 16, SPV_INDEX_KEY = 4, SPV_INDEX_ENTRY = 6 };

/* pure.headers.index_headers, for 1 to SPV_MOST_INDEXED headers. `out` has room for `count` entries. Fails with
   SPV_NOMEM. */
spv_status spv_index_headers(const uint8_t *headers, size_t count, const spv_hash last, uint8_t *out);

/* pure.headers.join_indexes. The sizes of the indexes are whole numbers of entries, 1 to SPV_MOST_INDEXED in total,
   and `out` has room for them. Fails with SPV_NOMEM, or with SPV_RANGE if an index does not have each number once. */
spv_status spv_join_indexes(const spv_bytes *indexes, size_t number, uint8_t *out);

/* pure.headers.find_header, in one index of `count` entries: returns how many headers the hash may belong to, and
   where their numbers are. */
size_t spv_find_header(const uint8_t *index, size_t count, const spv_hash hash, const uint8_t **numbers);

#endif
