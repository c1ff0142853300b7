/* The exact scan of real blocks against lists searched from end to end. The tables have scripts of the blocks among
   many others. */
#include "selftest.h"

#include "oracle_watch.h"
#include "block/script.h"

enum { STRANGERS = 100, RUN = 40 /* blocks scanned with one table */ };

typedef struct {
    spv_table *table, *found;
    plain_table plain, plain_found;
    uint8_t *strangers;
} watched;

static void add(watched *w, unsigned kind, const uint8_t *at, size_t size) {
    uint32_t number;
    CHECK(!spv_table_add(w->table, kind, (spv_bytes){at, size}, &number));
    CHECK(number == plain_add(&w->plain, kind, (spv_bytes){at, size}));
}

static void add_something_of(watched *w, const real_block *block, dice *dice) {
    const spv_tx *tx = block->txs + roll(dice) % block->transactions;
    size_t in = tx->inputs_at, out = tx->outputs_at, at = 0;
    spv_bytes push, keys[SPV_MAX_MULTISIG_KEYS];
    spv_item input, output;
    for (uint64_t n = roll(dice) % tx->inputs + 1; n; n--)
        input = spv_next_input(block->raw, &in);
    for (uint64_t n = roll(dice) % tx->outputs + 1; n; n--)
        output = spv_next_output(block->raw, &out);
    const uint8_t *script = block->raw + output.script;
    size_t size = output.script_end - output.script, count = spv_multisig_keys(script, size, keys);
    switch (roll(dice) % 6) {
    case 0:
        add(w, SPV_OUTPOINT, block->raw + input.at, 36);
        return;
    case 1:
        if (spv_next_push(block->raw + input.script, input.script_end - input.script, &at, &push))
            add(w, SPV_DATA, push.data, push.size);
        return;
    case 2:
        if (spv_next_push(script, size, &at, &push))
            add(w, SPV_DATA, push.data, push.size);
        return;
    default:
        if (count)
            add(w, SPV_MULTISIG_KEY, keys[count - 1].data, keys[count - 1].size);
        else
            add(w, SPV_SCRIPT, script, size);
    }
}

static watched begin(const real_block *blocks, size_t count, dice *dice) {
    watched w = {.table = spv_table_new(), .found = spv_table_new(), .strangers = zeroed(STRANGERS, 40)};
    CHECK(w.table && w.found);
    roll_bytes(dice, w.strangers, STRANGERS * 40);
    for (size_t i = 0; i < STRANGERS; i++)
        add(&w, (unsigned)(i % SPV_OUTPOINT), w.strangers + 40 * i, i % 40);
    for (size_t i = 0; i < count; i++)
        for (int picks = 0; picks < 4; picks++)
            add_something_of(&w, blocks + i, dice);
    return w;
}

static void end(watched *w) {
    spv_table *copy;
    check_same_table(w->table, &w->plain);
    check_same_table(w->found, &w->plain_found);
    CHECK(!spv_table_copy(w->table, &copy));
    spv_table_free(w->table);
    check_same_table(copy, &w->plain);
    spv_table_free(copy);
    spv_table_free(w->found);
    plain_free(&w->plain);
    plain_free(&w->plain_found);
    release(w->strangers);
}

void test_watch_scans(const real_block *blocks, size_t count) {
    dice dice = {11};
    size_t found = 0;
    for (size_t first = 0; first < count; first += RUN) {
        size_t some = count - first < RUN ? count - first : RUN;
        watched w = begin(blocks + first, some, &dice);
        for (size_t i = first; i < first + some; i++) {
            const real_block *block = blocks + i;
            spv_hits hits;
            plain_hits plain = {0};
            spv_error error;
            CHECK(!spv_watch_block(w.table, w.found, block->raw, block->size, NULL, &hits, &error));
            CHECK(plain_scan(&w.plain, &w.plain_found, block->raw, block->txs, block->transactions, &plain));
            check_same_hits(&hits, &plain);
            found += hits.count;
            spv_hits_free(&hits);
            free(plain.hits);
        }
        end(&w);
    }
    CHECK(found || !count);
}
