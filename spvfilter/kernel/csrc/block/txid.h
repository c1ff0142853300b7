/* Txids and wtxids of walked transactions, one or many at once; the twins of pure/blocks.py's txid and wtxid. */
#ifndef SPV_BLOCK_TXID_H
#define SPV_BLOCK_TXID_H

#include "block/walk.h"
#include "hash/sha256.h"

/* The transactions of one block, or a single one. */
typedef struct {
    const uint8_t *raw;
    const spv_tx *txs;
} spv_txs;

/* The bytes that a txid commits to: version, inputs, outputs and lock time, without marker, flag and witness (BIP-141 § Transaction ID). */
spv_message spv_stripped_tx(const void *txs, size_t number); /* of spv_txs *, as an spv_message_at */
/* The bytes that a wtxid commits to: all of them. */
spv_message spv_whole_tx(const void *txs, size_t number);

void spv_txid(const uint8_t *raw, const spv_tx *tx, uint8_t digest[32]);
void spv_wtxid(const uint8_t *raw, const spv_tx *tx, uint8_t digest[32]);

/* The same of `count` at once, which takes a fraction of the time; out[i] belongs to txs[i]. */
void spv_txids(const uint8_t *raw, const spv_tx *txs, size_t count, spv_hash *out);
void spv_wtxids(const uint8_t *raw, const spv_tx *txs, size_t count, spv_hash *out);

#endif
