/* Fuzz target: the bytes as a transaction, as a block and as a script. Accepted parts are within them and in order.
   A second reading finds them again. */
#include "oracle.h"
#include "oracle_script.h"
#include "block/merkle.h"
#include "block/txid.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct {
    uint64_t digest; /* over the positions of every item, in order */
    size_t last;     /* end of the previous item */
    uint32_t count;
} trail;

static void leave(trail *trail, size_t at, size_t script, size_t script_end) {
    CHECK(trail->last <= at && at < script && script <= script_end);
    trail->digest = ((trail->digest * 31 + at) * 31 + script) * 31 + script_end;
    trail->last = script_end;
    trail->count++;
}

static void on_item(void *context, const uint8_t *raw, size_t at, size_t script, size_t script_end) {
    (void)raw;
    leave(context, at, script, script_end);
}

/* The same items without checks, at the positions of the walk. */
static trail again(const uint8_t *raw, const spv_tx *tx) {
    trail found = {0};
    size_t at = tx->inputs_at;
    for (uint32_t i = 0; i < tx->inputs; i++) {
        spv_item item = spv_next_input(raw, &at);
        leave(&found, item.at, item.script, item.script_end);
    }
    CHECK(at <= tx->outputs_at);
    at = tx->outputs_at;
    for (uint32_t i = 0; i < tx->outputs; i++) {
        spv_item item = spv_next_output(raw, &at);
        leave(&found, item.at, item.script, item.script_end);
    }
    CHECK(at == (tx->witness ? tx->witness : tx->end - 4));
    return found;
}

static void check_script(const uint8_t *from, size_t size) {
    enum { MOST = 64 };
    uint8_t *script = exact_copy(from, size);
    spv_bytes plain[MOST], push, keys[SPV_MAX_MULTISIG_KEYS], plain_keys[SPV_MAX_MULTISIG_KEYS];
    size_t wanted = plain_pushes((spv_bytes){script, size}, plain, MOST), pushes = 0, at = 0;
    for (; spv_next_push(script, size, &at, &push); pushes++)
        CHECK(pushes >= MOST || (push.data == plain[pushes].data && push.size == plain[pushes].size));
    CHECK(pushes == wanted && at == size);
    CHECK(!spv_next_push(script, size, &at, &push));
    size_t count = spv_multisig_keys(script, size, keys);
    CHECK(count == plain_multisig_keys((spv_bytes){script, size}, plain_keys));
    CHECK(count == spv_multisig_keys(script, size, NULL));
    for (size_t i = 0; i < count; i++)
        CHECK(keys[i].data == plain_keys[i].data && keys[i].size == plain_keys[i].size);
    CHECK(spv_is_p2pk(script, size) == plain_is_p2pk((spv_bytes){script, size}));
    release(script);
}

static void check_tx(const uint8_t *data, size_t size) {
    spv_tx tx, twin;
    spv_error error, other;
    trail seen = {0};
    spv_status status = spv_walk_tx_with(data, size, 0, &tx, on_item, on_item, &seen, &error);
    CHECK(spv_walk_tx(data, size, 0, &twin, &other) == status);
    if (status) {
        check_refusal(status, &error, size);
        check_same_refusal(&error, &other);
        return;
    }
    CHECK(!memcmp(&tx, &twin, sizeof tx));
    CHECK(tx.start == 0 && tx.end <= size && tx.end >= SPV_MIN_TX_SIZE);
    CHECK(!!tx.witness == (!data[4] && data[5] == 1)); /* marker and flag */
    trail found = again(data, &tx);
    CHECK(found.digest == seen.digest && found.count == seen.count && found.count == tx.inputs + tx.outputs);
    status = spv_parse_tx(data, size, &twin, &error);
    CHECK(!status == (tx.end == size));

    /* alone, one byte short, and after other bytes */
    uint8_t *alone = exact_copy(data, tx.end), *moved = zeroed(tx.end + 7, 1);
    CHECK(!spv_parse_tx(alone, tx.end, &twin, &error) && !memcmp(&tx, &twin, sizeof tx));
    check_refusal(spv_walk_tx(alone, tx.end - 1, 0, &twin, &error), &error, tx.end - 1);
    memcpy(moved + 7, data, tx.end);
    CHECK(!spv_walk_tx(moved, tx.end + 7, 7, &twin, &error));
    CHECK(twin.start == 7 && twin.end == tx.end + 7 && twin.inputs_at == tx.inputs_at + 7 && twin.outputs_at == tx.outputs_at + 7);
    CHECK(twin.inputs == tx.inputs && twin.outputs == tx.outputs && twin.witness == (tx.witness ? tx.witness + 7 : 0));
    uint8_t digest[32], wanted[32];
    spv_txid(moved, &twin, digest);
    oracle_txid(alone, &tx, wanted);
    CHECK(!memcmp(digest, wanted, 32));
    spv_wtxid(moved, &twin, digest);
    oracle_wtxid(alone, &tx, wanted);
    CHECK(!memcmp(digest, wanted, 32));
    release(alone);
    release(moved);
    for (size_t i = 0, at = tx.inputs_at; i < tx.inputs; i++) {
        spv_item item = spv_next_input(data, &at);
        check_script(data + item.script, item.script_end - item.script);
    }
    for (size_t i = 0, at = tx.outputs_at; i < tx.outputs; i++) {
        spv_item item = spv_next_output(data, &at);
        check_script(data + item.script, item.script_end - item.script);
    }
}

/* A block with the right root is refused only for duplicate transactions or for its witnesses. */
static void check_commitments(const uint8_t *data, size_t size, spv_hash *ids, uint32_t count) {
    uint8_t *block = exact_copy(data, size), root[32];
    bool mutated, plainly_mutated;
    spv_error error;
    oracle_merkle_root(ids, count, block + 36, &plainly_mutated);
    spv_status status = spv_check_block(block, size, &error);
    CHECK(plainly_mutated == (status && !strcmp(error.field, "merkle root")));
    CHECK(!status || plainly_mutated || !strcmp(error.field, "witness commitment"));
    spv_merkle_root(ids, count, root, &mutated);
    CHECK(same(root, block + 36, 32) && mutated == plainly_mutated);
    block[36] ^= 1;
    CHECK(spv_check_block(block, size, &error) == SPV_FORMAT && !strcmp(error.field, "merkle root"));
    release(block);
}

/* The places of a block's transactions are where a walk finds them. `txs` is NULL if the walk refuses the block. */
static void check_places(const uint8_t *data, size_t size, const spv_tx *txs, uint32_t count, const spv_error *refused) {
    size_t *places;
    uint32_t transactions;
    spv_error error;
    const spv_status status = spv_block_places(data, size, &places, &transactions, &error);
    CHECK(!status == !!txs);
    if (txs) {
        CHECK(transactions == count && places[count] == size);
        for (uint32_t i = 0; i < count; i++)
            CHECK(places[i] == txs[i].start);
    } else {
        check_same_refusal(&error, refused);
    }
    free(places);
}

static void check_block(const uint8_t *data, size_t size) {
    uint32_t count;
    spv_error error;
    spv_tx *txs = walk_whole_block(data, size, &count, &error);
    check_places(data, size, txs, count, &error);
    if (!txs)
        return;
    spv_hash *ids = zeroed(count, sizeof *ids);
    spv_txids(data, txs, count, ids);
    for (uint32_t i = 0; i < count; i++) {
        CHECK(txs[i].start == (i ? txs[i - 1].end : txs[0].start) && txs[i].end <= size);
        again(data, txs + i);
        uint8_t wanted[32];
        oracle_txid(data, txs + i, wanted);
        CHECK(!memcmp(ids[i], wanted, 32));
    }
    CHECK(txs[count - 1].end == size);
    check_commitments(data, size, ids, count);
    release(ids);
    release(txs);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    check_script(data, size);
    check_tx(data, size);
    check_block(data, size);
    return 0;
}
