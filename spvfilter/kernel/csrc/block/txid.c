#include "block/txid.h"

spv_message spv_whole_tx(const void *context, size_t number) {
    const spv_txs *of = context;
    const spv_tx *tx = of->txs + number;
    return (spv_message){.body = {of->raw + tx->start, tx->end - tx->start}};
}

spv_message spv_stripped_tx(const void *context, size_t number) {
    enum { VERSION = 4, MARKER_AND_FLAG = 2, LOCK_TIME = 4 }; /* bytes */
    const spv_txs *of = context;
    const spv_tx *tx = of->txs + number;
    if (!tx->witness)
        return spv_whole_tx(context, number);
    const size_t inputs = tx->start + VERSION + MARKER_AND_FLAG;
    return (spv_message){
        .head = of->raw + tx->start,
        .body = {of->raw + inputs, tx->witness - inputs},
        .tail = of->raw + tx->end - LOCK_TIME,
    };
}

void spv_txid(const uint8_t *raw, const spv_tx *tx, uint8_t digest[32]) {
    const spv_message message = spv_stripped_tx(&(spv_txs){raw, tx}, 0);
    spv_sha256d_message(&message, digest);
}

void spv_wtxid(const uint8_t *raw, const spv_tx *tx, uint8_t digest[32]) {
    spv_sha256d(raw + tx->start, tx->end - tx->start, digest);
}

void spv_txids(const uint8_t *raw, const spv_tx *txs, size_t count, spv_hash *out) {
    spv_sha256d_many(spv_stripped_tx, &(spv_txs){raw, txs}, count, out);
}

void spv_wtxids(const uint8_t *raw, const spv_tx *txs, size_t count, spv_hash *out) {
    spv_sha256d_many(spv_whole_tx, &(spv_txs){raw, txs}, count, out);
}
