/* Txids and wtxids of walked transactions, one or many at once. Their twins are in pure/blocks.py. */
#ifndef SPV_BLOCK_TXID_H
#define SPV_BLOCK_TXID_H

#include "block/walk.h"
#include "hash/sha256.h"

/* The transactions of a block, or a single transaction. */
typedef struct {
    const uint8_t *raw;
    const spv_tx *txs;
} spv_txs;

/* The bytes that a txid commits to: version, inputs, outputs and lock time, without marker, flag and witness (BIP-141 § Transaction ID). */
spv_message spv_stripped_tx(const void *txs, size_t number); /* an spv_message_at of an spv_txs */
/* The bytes that a wtxid commits to: the whole transaction. */
spv_message spv_whole_tx(const void *txs, size_t number);

void spv_txid(const uint8_t *raw, const spv_tx *tx, uint8_t digest[32]);
void spv_wtxid(const uint8_t *raw, const spv_tx *tx, uint8_t digest[32]);

/* The txids of `count` transactions at once, which takes a fraction of the time. out[i] belongs to txs[i]. */
void spv_txids(const uint8_t *raw, const spv_tx *txs, size_t count, spv_hash *out);
void spv_wtxids(const uint8_t *raw, const spv_tx *txs, size_t count, spv_hash *out);

#endif
