/* SHA-256 as Bitcoin uses it: twice, over transactions and pairs of hashes. The fastest way this machine has is chosen at run time. */
#ifndef SPV_SHA256_H
#define SPV_SHA256_H

#include "spv.h"
#include "block/walk.h"

typedef uint8_t spv_hash[32]; /* wire order */

/* sha256d of `size` bytes. */
void spv_sha256d(const uint8_t *data, size_t size, uint8_t digest[32]);
/* pure.txid and pure.wtxid of one walked transaction. */
void spv_txid(const uint8_t *raw, const spv_tx *tx, uint8_t digest[32]);
void spv_wtxid(const uint8_t *raw, const spv_tx *tx, uint8_t digest[32]);

/* The same of `count` at once, which takes a fraction of the time; out[i] belongs to txs[i]. */
void spv_txids(const uint8_t *raw, const spv_tx *txs, size_t count, spv_hash *out);
void spv_wtxids(const uint8_t *raw, const spv_tx *txs, size_t count, spv_hash *out);
/* sha256d of each of `count` pairs of hashes, 64 bytes; `out` may be `pairs`. */
void spv_sha256d_pairs(const spv_hash *pairs, size_t count, spv_hash *out);

#endif
