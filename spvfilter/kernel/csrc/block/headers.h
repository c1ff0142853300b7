/* Hashing runs of headers; the twin of pure/headers.py. */
#ifndef SPV_BLOCK_HEADERS_H
#define SPV_BLOCK_HEADERS_H

#include "block/walk.h"
#include "hash/sha256.h"

/* pure.headers.header_hashes: room for size / 80 hashes at `out`. */
spv_status spv_header_hashes(const uint8_t *headers, size_t size, spv_hash *out, spv_error *error);

#endif
