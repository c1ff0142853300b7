#include "check.h"

#include "script.h"
#include "sha256_way.h"

void *zeroed(size_t count, size_t size) {
    void *items = calloc(count ? count : 1, size);
    CHECK(items);
    return items;
}

uint8_t *exact_copy(const uint8_t *data, size_t size) {
    uint8_t *copy = malloc(size ? size : 1);
    CHECK(copy);
    if (size)
        memcpy(copy, data, size);
    return copy;
}

void check_refusal(spv_status status, const spv_error *error, size_t size) {
    CHECK(status == SPV_FORMAT);
    CHECK(error->offset <= size);
    CHECK(error->field && *error->field);
    CHECK(*error->message && memchr(error->message, 0, sizeof error->message));
}

void check_same_refusal(const spv_error *one, const spv_error *other) {
    CHECK(one->offset == other->offset);
    CHECK(!strcmp(one->field, other->field));
    CHECK(!strcmp(one->message, other->message));
}

spv_tx *walk_whole_block(const uint8_t *raw, size_t size, uint32_t *count, spv_error *error) {
    size_t at;
    spv_status status = spv_block_start(raw, size, &at, count, error);
    if (status) {
        check_refusal(status, error, size);
        return NULL;
    }
    spv_tx *txs = zeroed(*count, sizeof *txs);
    for (uint32_t i = 0; !status && i < *count; i++) {
        status = spv_walk_tx(raw, size, at, txs + i, error);
        at = txs[i].end;
    }
    if (!status)
        status = spv_block_end(size, at, error);
    if (!status)
        return txs;
    check_refusal(status, error, size);
    free(txs);
    return NULL;
}

void oracle_sha256(const uint8_t *data, size_t size, uint8_t digest[32]) {
    size_t padded_size = (size + 9 + 63) / 64 * 64;
    uint8_t *padded = zeroed(padded_size, 1);
    if (size)
        memcpy(padded, data, size);
    padded[size] = 0x80;
    for (size_t i = 0; i < 8; i++)
        padded[padded_size - 1 - i] = (uint8_t)((uint64_t)size * 8 >> 8 * i);
    uint32_t state[8];
    memcpy(state, spv_sha256_initial, sizeof state);
    spv_sha256_portable(state, padded, padded_size / 64);
    for (size_t i = 0; i < 32; i++)
        digest[i] = (uint8_t)(state[i / 4] >> (24 - 8 * (i % 4)));
    free(padded);
}

void oracle_sha256d(const uint8_t *data, size_t size, uint8_t digest[32]) {
    uint8_t once[32];
    oracle_sha256(data, size, once);
    oracle_sha256(once, 32, digest);
}

void oracle_txid(const uint8_t *raw, const spv_tx *tx, uint8_t digest[32]) {
    uint8_t *stripped = exact_copy(raw + tx->start, tx->end - tx->start);
    size_t size = tx->end - tx->start;
    if (tx->witness) {
        size_t body = tx->witness - tx->start - 6;
        memmove(stripped + 4, stripped + 6, body);
        memcpy(stripped + 4 + body, raw + tx->end - 4, 4);
        size = body + 8;
    }
    oracle_sha256d(stripped, size, digest);
    free(stripped);
}

void oracle_wtxid(const uint8_t *raw, const spv_tx *tx, uint8_t digest[32]) {
    oracle_sha256d(raw + tx->start, tx->end - tx->start, digest);
}

void oracle_merkle_root(const spv_hash *leaves, size_t count, uint8_t root[32], bool *mutated) {
    spv_hash *level = zeroed(count + 1, sizeof *level);
    memcpy(level, leaves, count * sizeof *level);
    *mutated = false;
    for (; count > 1; count = (count + 1) / 2) {
        for (size_t i = 0; i + 1 < count; i += 2)
            *mutated |= !memcmp(level[i], level[i + 1], 32);
        if (count & 1)
            memcpy(level[count], level[count - 1], 32);
        for (size_t i = 0; i < count; i += 2) {
            spv_hash parent;
            oracle_sha256d(level[i], 64, parent);
            memcpy(level[i / 2], parent, 32);
        }
    }
    memcpy(root, level[0], 32);
    free(level);
}

/* MurmurHash3_x86_32 of Austin Appleby's, who gave it to the public domain, from its description. */
uint32_t oracle_murmur3(const uint8_t *data, size_t size, uint32_t seed) {
    uint32_t hash = seed;
    for (size_t at = 0; at < size; at += 4) {
        uint32_t word = 0;
        for (size_t i = 0; i < 4 && at + i < size; i++)
            word |= (uint32_t)data[at + i] << 8 * i;
        word *= 0xCC9E2D51;
        word = word << 15 | word >> 17;
        hash ^= word * 0x1B873593;
        if (size - at >= 4) {
            hash = hash << 13 | hash >> 19;
            hash = hash * 5 + 0xE6546B64;
        }
    }
    hash ^= (uint32_t)size;
    hash = (hash ^ hash >> 16) * 0x85EBCA6B;
    hash = (hash ^ hash >> 13) * 0xC2B2AE35;
    return hash ^ hash >> 16;
}

static uint32_t position(const spv_bip37 *filter, uint32_t function, const uint8_t *data, size_t size) {
    return oracle_murmur3(data, size, function * 0xFBA4C795 + filter->tweak) % (uint32_t)(filter->size * 8);
}

bool oracle_bloom_contains(const spv_bip37 *filter, const uint8_t *data, size_t size) {
    for (uint32_t i = 0; filter->size && i < filter->hash_funcs; i++) {
        uint32_t at = position(filter, i, data, size);
        if (!(filter->bits[at / 8] >> at % 8 & 1))
            return false;
    }
    return true;
}

void oracle_bloom_insert(const spv_bip37 *filter, const uint8_t *data, size_t size) {
    for (uint32_t i = 0; filter->size && i < filter->hash_funcs; i++) {
        uint32_t at = position(filter, i, data, size);
        filter->bits[at / 8] |= (uint8_t)(1 << at % 8);
    }
}

static bool any_push_in(const spv_bip37 *filter, const uint8_t *script, size_t size) {
    spv_push push;
    for (size_t at = 0; spv_next_push(script, size, &at, &push);)
        if (oracle_bloom_contains(filter, push.data, push.size))
            return true;
    return false;
}

/* Core bloom.cpp CBloomFilter::IsRelevantAndUpdate. */
bool oracle_is_relevant(const uint8_t *raw, const spv_tx *tx, const spv_bip37 *filter) {
    uint8_t outpoint[36];
    if (!filter->size)
        return true;
    oracle_txid(raw, tx, outpoint);
    bool found = oracle_bloom_contains(filter, outpoint, 32);
    size_t at = tx->outputs_at;
    for (uint32_t n = 0; n < tx->outputs; n++) {
        spv_item output = spv_next_output(raw, &at);
        const uint8_t *script = raw + output.script;
        size_t size = output.script_end - output.script;
        if (!any_push_in(filter, script, size))
            continue;
        found = true;
        bool keys = spv_is_p2pk(script, size) || spv_multisig_keys(script, size, NULL);
        if (filter->flags == SPV_UPDATE_ALL || (filter->flags == SPV_UPDATE_P2PUBKEY_ONLY && keys)) {
            spv_put_le32(outpoint + 32, n);
            oracle_bloom_insert(filter, outpoint, sizeof outpoint);
        }
    }
    at = tx->inputs_at;
    for (uint32_t n = 0; !found && n < tx->inputs; n++) {
        spv_item input = spv_next_input(raw, &at);
        found = oracle_bloom_contains(filter, raw + input.at, 36) || any_push_in(filter, raw + input.script, input.script_end - input.script);
    }
    return found;
}
