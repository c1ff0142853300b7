/* The BIP-37 scan of real blocks against the plain one, with filters that match none, some or all transactions. */
#include "selftest.h"

#include "oracle_bip37.h"
#include "block/script.h"

static void insert_something_of(const real_block *block, dice *dice, const spv_bip37 *filter) {
    const spv_tx *tx = block->txs + roll(dice) % block->transactions;
    uint8_t txid[32];
    spv_bytes push;
    size_t script_at = 0, at = tx->inputs_at;
    switch (roll(dice) % 4) {
    case 0:
        oracle_txid(block->raw, tx, txid);
        oracle_bloom_insert(filter, txid, 32);
        return;
    case 1:
        for (uint64_t n = roll(dice) % tx->inputs; n; n--)
            spv_next_input(block->raw, &at);
        oracle_bloom_insert(filter, block->raw + at, 36);
        return;
    default:
        at = tx->outputs_at;
        for (uint64_t n = roll(dice) % tx->outputs; n; n--)
            spv_next_output(block->raw, &at);
        spv_item output = spv_next_output(block->raw, &at);
        if (spv_next_push(block->raw + output.script, output.script_end - output.script, &script_at, &push))
            oracle_bloom_insert(filter, push.data, push.size);
    }
}

static size_t scan(const real_block *block, const spv_bip37 *prepared) {
    spv_bip37 fast = *prepared, plain = *prepared;
    spv_tx_matches matches = {0};
    spv_error error;
    size_t found = 0;
    fast.bits = exact_copy(prepared->bits, prepared->size);
    plain.bits = exact_copy(prepared->bits, prepared->size);
    CHECK(!spv_bip37_scan_block(block->raw, block->size, &fast, &matches, &error));
    for (uint32_t n = 0; n < block->transactions; n++) {
        if (!oracle_is_relevant(block->raw, block->txs + n, &plain))
            continue;
        uint8_t txid[32];
        oracle_txid(block->raw, block->txs + n, txid);
        CHECK(found < matches.count && matches.items[found].position == n && !memcmp(matches.items[found].txid, txid, 32));
        CHECK(matches.items[found].start == block->txs[n].start && matches.items[found].end == block->txs[n].end);
        found++;
    }
    CHECK(found == matches.count);
    CHECK(!memcmp(fast.bits, plain.bits, prepared->size));
    spv_tx_matches_free(&matches);
    release(fast.bits);
    release(plain.bits);
    return found;
}

void test_bip37_scans(const real_block *blocks, size_t count) {
    static const struct {
        size_t size;
        uint32_t hash_funcs;
        size_t elements;
    } shapes[] = {{0, 5, 0}, {8, 0, 0}, {1, 1, 1}, {3, 2, 0}, {24, 13, 3}, {3000, 17, 100}, {3594, 19, 900}, {36000, 50, 40}};
    dice dice = {37};
    size_t found = 0;
    for (size_t i = 0; i < count; i++)
        for (size_t shape = 0; shape < sizeof shapes / sizeof *shapes; shape++) {
            spv_bip37 filter = {.size = shapes[shape].size, .hash_funcs = shapes[shape].hash_funcs};
            filter.tweak = (uint32_t)roll(&dice);
            filter.flags = (int)(roll(&dice) % 3);
            filter.bits = zeroed(filter.size, 1);
            for (size_t n = 0; n < shapes[shape].elements; n++)
                insert_something_of(blocks + i, &dice, &filter);
            size_t matches = scan(blocks + i, &filter);
            CHECK(matches == blocks[i].transactions || (filter.size && filter.hash_funcs));
            found += matches;
            release(filter.bits);
        }
    CHECK(found || !count);
}
