/* SHA-256 of many messages at once: each lane takes the next message when its own has ended. */
#include "sha256_way.h"

enum {
    BATCH = 1024,  /* messages put in order together */
    LENGTHS = 256  /* lengths told apart when they are; longer ones come first in any order */
};

typedef struct {
    const uint8_t *raw;
    const spv_tx *txs;
    spv_hash *out;
    bool stripped;
} job;

typedef struct {
    spv_padded padded;
    size_t stretch, message;
    const uint8_t *at;
    size_t blocks; /* left in the stretch; 0 in a lane without a message */
} lane;

/* Whole blocks of a message, at most LENGTHS - 1. */
SPV_INLINE size_t blocks_of(const job *j, size_t message) {
    const spv_tx *tx = j->txs + message;
    size_t size = j->stripped && tx->witness ? tx->witness - tx->start + 2 : tx->end - tx->start;
    return size < 64 * (LENGTHS - 1) ? (size + 8) / 64 : LENGTHS - 1;
}

static void load(lane *l, const job *j, size_t message) {
    const spv_tx *tx = j->txs + message;
    const uint8_t *at = j->raw + tx->start, *end = j->raw + tx->end;
    if (j->stripped && tx->witness)
        spv_pad_stripped(&l->padded, at, at + 6, tx->witness - tx->start - 6, end - 4);
    else
        spv_pad(&l->padded, at, tx->end - tx->start);
    l->message = message;
    l->stretch = 0;
    l->at = l->padded.stretch[0].at;
    l->blocks = l->padded.stretch[0].blocks;
}

/* Moves on by `blocks`; false when the message has ended. */
SPV_INLINE bool advance(lane *l, size_t blocks) {
    l->at += 64 * blocks;
    l->blocks -= blocks;
    if (l->blocks)
        return true;
    if (++l->stretch == l->padded.stretches)
        return false;
    l->at = l->padded.stretch[l->stretch].at;
    l->blocks = l->padded.stretch[l->stretch].blocks;
    return true;
}

SPV_INLINE void put_digest(const uint32_t *state, size_t step, uint8_t digest[32]) {
    for (size_t i = 0; i < 8; i++)
        spv_put_be32(digest + 4 * i, state[i * step]);
}

SPV_INLINE void fill(uint32_t *state, size_t lanes) {
    for (size_t k = 0; k < 8; k++)
        for (size_t i = 0; i < lanes; i++)
            state[k * lanes + i] = spv_sha256_initial[k];
}

/* The rest of the only message that is left. */
static void finish_alone(const spv_sha256_way *way, lane *l, const uint32_t *state, size_t step, uint8_t digest[32]) {
    uint32_t own[8];
    size_t blocks;
    for (size_t i = 0; i < 8; i++)
        own[i] = state[i * step];
    do {
        blocks = l->blocks;
        way->one(own, l->at, blocks);
    } while (advance(l, blocks));
    put_digest(own, 1, digest);
}

/* The messages of `order`, once. */
static void hash_batch(const spv_sha256_way *way, const job *j, const uint16_t *order, size_t count) {
    const size_t lanes = way->lanes;
    _Alignas(64) uint32_t state[8 * SPV_MAX_LANES];
    const uint8_t *data[SPV_MAX_LANES];
    lane all[SPV_MAX_LANES];
    size_t next = 0, live = 0;
    fill(state, lanes);
    for (size_t i = 0; i < lanes; i++) {
        all[i].blocks = 0;
        if (next == count)
            continue;
        load(all + i, j, order[next++]);
        live++;
    }
    while (live > 1 || next < count) {
        size_t blocks = SIZE_MAX;
        const uint8_t *any = NULL;
        for (size_t i = 0; i < lanes; i++)
            if (all[i].blocks) {
                any = all[i].at;
                blocks = all[i].blocks < blocks ? all[i].blocks : blocks;
            }
        for (size_t i = 0; i < lanes; i++)
            data[i] = all[i].blocks ? all[i].at : any; /* what an idle lane makes of it is not used */
        way->many(state, data, blocks);
        for (size_t i = 0; i < lanes; i++) {
            lane *l = all + i;
            if (!l->blocks || advance(l, blocks))
                continue;
            put_digest(state + i, lanes, j->out[l->message]);
            if (next == count) {
                live--;
                continue;
            }
            load(l, j, order[next++]);
            for (size_t k = 0; k < 8; k++)
                state[k * lanes + i] = spv_sha256_initial[k];
        }
    }
    for (size_t i = 0; i < lanes; i++)
        if (all[i].blocks)
            finish_alone(way, all + i, state + i, lanes, j->out[all[i].message]);
}

/* Messages of one size: pairs of hashes, twice hashed, or with NULL what is in `out`, hashed in its place. */
static void hash_alike(const spv_sha256_way *way, const spv_hash *pairs, size_t count, spv_hash *out) {
    static const uint8_t end_of_pair[64] = {[0] = 0x80, [62] = 2}; /* 512 bits */
    const size_t lanes = way->lanes;
    _Alignas(64) uint32_t state[8 * SPV_MAX_LANES];
    const uint8_t *data[SPV_MAX_LANES], *ends[SPV_MAX_LANES];
    uint8_t second[SPV_MAX_LANES][64] = {{0}};
    for (size_t i = 0; i < lanes; i++) {
        second[i][32] = 0x80;
        second[i][62] = 1; /* 256 bits */
        ends[i] = end_of_pair;
    }
    for (size_t done = 0; done < count; done += lanes) {
        size_t some = count - done < lanes ? count - done : lanes;
        if (pairs) {
            for (size_t i = 0; i < lanes; i++)
                data[i] = pairs[2 * (done + (i < some ? i : 0))];
            fill(state, lanes);
            way->many(state, data, 1);
            way->many(state, ends, 1);
        }
        for (size_t i = 0; i < lanes; i++) {
            if (pairs)
                put_digest(state + i, lanes, second[i]);
            else if (i < some)
                memcpy(second[i], out[done + i], 32);
            data[i] = second[i];
        }
        fill(state, lanes);
        way->many(state, data, 1);
        for (size_t i = 0; i < some; i++)
            put_digest(state + i, lanes, out[done + i]);
    }
}

void spv_hash_pairs(const spv_sha256_way *way, const spv_hash *pairs, size_t count, spv_hash *out) {
    hash_alike(way, pairs, count, out);
}

/* Longest first: what runs in step then ends together, and the last to end is short. */
static void sort_by_length(const job *j, uint16_t count, uint16_t order[BATCH]) {
    uint16_t starts[LENGTHS] = {0}, sum = 0;
    for (uint16_t i = 0; i < count; i++)
        starts[blocks_of(j, i)]++;
    for (size_t i = LENGTHS; i--;) {
        uint16_t here = starts[i];
        starts[i] = sum;
        sum = (uint16_t)(sum + here);
    }
    for (uint16_t i = 0; i < count; i++)
        order[starts[blocks_of(j, i)]++] = i;
}

void spv_hash_txs(const spv_sha256_way *way, const uint8_t *raw, const spv_tx *txs, size_t count, bool stripped, spv_hash *out) {
    uint16_t order[BATCH];
    for (size_t done = 0; done < count; done += BATCH) {
        size_t some = count - done < BATCH ? count - done : BATCH;
        job j = {raw, txs + done, out + done, stripped};
        sort_by_length(&j, (uint16_t)some, order);
        hash_batch(way, &j, order, some);
    }
    hash_alike(way, NULL, count, out);
}

void spv_txids(const uint8_t *raw, const spv_tx *txs, size_t count, spv_hash *out) {
    spv_hash_txs(spv_sha256_chosen(), raw, txs, count, true, out);
}

void spv_wtxids(const uint8_t *raw, const spv_tx *txs, size_t count, spv_hash *out) {
    spv_hash_txs(spv_sha256_chosen(), raw, txs, count, false, out);
}

void spv_sha256d_pairs(const spv_hash *pairs, size_t count, spv_hash *out) {
    spv_hash_pairs(spv_sha256_chosen(), pairs, count, out);
}
