/* SHA-256 of one message at a time, and how every message is padded. */
#include "sha256_way.h"

SPV_INLINE void append(spv_padded *padded, const uint8_t *at, size_t blocks) {
    if (blocks) {
        padded->stretch[padded->stretches].at = at;
        padded->stretch[padded->stretches++].blocks = blocks;
    }
}

SPV_INLINE void clear_tail(spv_padded *padded) {
    static const uint8_t zeros[64]; /* copied in a few moves, where gcc makes a slow instruction of memset */
    memcpy(padded->tail, zeros, 64);
    memcpy(padded->tail + 64, zeros, 64);
}

/* The last `size` < 64 bytes before `end` as the beginning of the tail; of the message as many as 64 lie there if `enough`. */
SPV_INLINE void begin_tail(spv_padded *padded, const uint8_t *end, size_t size, bool enough) {
    clear_tail(padded);
    if (SPV_LIKELY(enough))
        memcpy(padded->tail + size - 64, end - 64, 64); /* a fixed size takes a few moves, not a call */
    else
        memcpy(padded->tail, end - size, size);
}

/* Padding behind the `size` < 128 - 9 bytes of the tail, for a message of `total`. */
SPV_INLINE void finish_tail(spv_padded *padded, size_t size, uint64_t total) {
    size_t blocks = size + 9 > 64 ? 2 : 1;
    uint8_t *end = padded->tail + 64 * blocks;
    padded->tail[size] = 0x80;
    spv_put_be32(end - 8, (uint32_t)(total >> 29));
    spv_put_be32(end - 4, (uint32_t)(total << 3));
    append(padded, padded->tail, blocks);
}

void spv_pad(spv_padded *padded, const uint8_t *data, size_t size) {
    padded->stretches = 0;
    append(padded, data, size / 64);
    begin_tail(padded, data + size, size & 63, size >= 64);
    finish_tail(padded, size & 63, size);
}

void spv_pad_stripped(spv_padded *padded, const uint8_t *version, const uint8_t *body, size_t size, const uint8_t *lock_time) {
    size_t rest;
    padded->stretches = 0;
    if (SPV_LIKELY(size >= 60)) {
        memcpy(padded->head, version, 4);
        memcpy(padded->head + 4, body, 60);
        append(padded, padded->head, 1);
        append(padded, body + 60, (size - 60) / 64);
        rest = (size - 60) & 63;
        begin_tail(padded, body + size, rest, size >= 64);
    } else {
        rest = size + 4;
        clear_tail(padded);
        memcpy(padded->tail, version, 4);
        memcpy(padded->tail + 4, body, size);
    }
    memcpy(padded->tail + rest, lock_time, 4);
    finish_tail(padded, rest + 4, (uint64_t)size + 8);
}

static void twice(spv_padded *padded, uint8_t digest[32]) {
    const spv_sha256_way *way = spv_sha256_chosen();
    uint32_t state[8];
    for (int time = 0; time < 2; time++) {
        memcpy(state, spv_sha256_initial, sizeof state);
        for (size_t i = 0; i < padded->stretches; i++)
            way->one(state, padded->stretch[i].at, padded->stretch[i].blocks);
        for (int i = 0; i < 8; i++)
            spv_put_be32(digest + 4 * i, state[i]);
        spv_pad(padded, digest, 32);
    }
}

void spv_sha256d(const uint8_t *data, size_t size, uint8_t digest[32]) {
    spv_padded padded;
    spv_pad(&padded, data, size);
    twice(&padded, digest);
}

void spv_txid(const uint8_t *raw, const spv_tx *tx, uint8_t digest[32]) {
    spv_padded padded;
    if (tx->witness)
        spv_pad_stripped(&padded, raw + tx->start, raw + tx->start + 6, tx->witness - tx->start - 6, raw + tx->end - 4);
    else
        spv_pad(&padded, raw + tx->start, tx->end - tx->start);
    twice(&padded, digest);
}

void spv_wtxid(const uint8_t *raw, const spv_tx *tx, uint8_t digest[32]) {
    spv_sha256d(raw + tx->start, tx->end - tx->start, digest);
}
