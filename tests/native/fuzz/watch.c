/* Fuzz target: the watch table and its exact scan against lists searched from end to end. The input is a table, then
   blocks:

   u8   Kind. Bit 0: collect coins in a second table. Bit 1: in the table itself. Bit 2: learn after each block.
        Bit 3: a single transaction.
   u8   Number of entries. Each has u8 kind, u24 offset and u8 length of its bytes in the blocks.
   u8   Number of coins. Each has u24 offset of an outpoint in the blocks, u8 entry and u8 flags.
        Flags: bit 0 adds a value, bit 1 the entry as the script.
   Then blocks. Each has u24 length and its bytes. The last one may be shorter. */
#include "block/scripttype.h"
#include "oracle_watch.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_BLOCKS = 4 };

typedef struct {
    spv_table *table, *found;
    plain_table plain, plain_found;
    plain_table *collects; /* the table in which the plain scan collects, or NULL */
    bool learns;
} lists;

static uint32_t le24(const uint8_t *at) {
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16;
}

static void add_entry(lists *lists, unsigned kind, spv_bytes value) {
    uint32_t number;
    if (kind == SPV_OUTPOINT && value.size != 36)
        return;
    if (kind == SPV_DATA_PREFIX && (value.size < 1 || value.size > SPV_MAX_PREFIX))
        return;
    if (kind == SPV_SCRIPT_TYPE && (value.size != 1 || *value.data >= SPV_SCRIPT_TYPES))
        return;
    CHECK(!spv_table_add(lists->table, kind, value, &number));
    CHECK(number == plain_add(&lists->plain, kind, value));
}

static void set_coin(lists *lists, const uint8_t *outpoint, uint8_t entry, uint8_t known) {
    plain_coin coin = {.entry = entry, .value = known & 1 ? 100000000 + entry : SPV_NO_VALUE};
    if (entry >= lists->plain.entry_count)
        return;
    if (known & 2)
        coin.script = lists->plain.entries[entry].value;
    memcpy(coin.outpoint, outpoint, 36);
    CHECK(!spv_table_set_coin(lists->table, &(spv_coin){coin.outpoint, coin.script, coin.value, coin.entry}, false));
    plain_set_coin(&lists->plain, &coin, false);
}

static void learn(lists *lists, const plain_hits *hits) {
    for (size_t i = 0; i < hits->count; i++) {
        const plain_coin *coin = &hits->hits[i].coin;
        if (hits->hits[i].spend || plain_is_pattern(&lists->plain, coin->entry))
            continue;
        CHECK(!spv_table_set_coin(lists->table, &(spv_coin){coin->outpoint, coin->script, coin->value, coin->entry}, false));
        plain_set_coin(&lists->plain, coin, false);
    }
}

/* Offset of the first transaction that pays more than 21 million coins; 0 if there is none. */
static size_t excess_at(const uint8_t *raw, const spv_tx *txs, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        size_t at = txs[i].outputs_at;
        double total = 0; /* exact up to 2^53, which is more than all coins */
        for (uint32_t n = 0; n < txs[i].outputs; n++)
            total += (double)spv_le64(raw + spv_next_output(raw, &at).at);
        if (total > 2100000000000000.0)
            return txs[i].start;
    }
    return 0;
}

static void scan_block(lists *lists, const uint8_t *raw, size_t size) {
    spv_hits hits;
    plain_hits plain = {0};
    spv_error error, wanted;
    uint32_t count;
    spv_tx *txs = walk_whole_block(raw, size, &count, &wanted);
    spv_status status = spv_watch_block(lists->table, lists->found, raw, size, NULL, &hits, &error);
    if (!txs) {
        check_refusal(status, &error, size);
        check_same_refusal(&error, &wanted);
    } else if (excess_at(raw, txs, count)) {
        CHECK(status == SPV_FORMAT && error.offset == excess_at(raw, txs, count) && !strcmp(error.field, "output values"));
    } else if (plain_scan(&lists->plain, lists->collects, raw, txs, count, &plain)) {
        CHECK(!status);
        check_same_hits(&hits, &plain);
        if (lists->learns)
            learn(lists, &plain);
    } else {
        CHECK(status == SPV_FORMAT && error.offset == SPV_HEADER_SIZE && !strcmp(error.field, "transactions"));
    }
    spv_hits_free(&hits);
    free(plain.hits);
    release(txs);
}

static void scan_tx(lists *lists, const uint8_t *raw, size_t size) {
    spv_hits hits;
    plain_hits plain = {0};
    spv_error error, wanted;
    spv_tx tx;
    spv_status parsed = spv_parse_tx(raw, size, &tx, &wanted);
    spv_status status = spv_watch_tx(lists->table, raw, size, &hits, &error);
    CHECK(status == parsed);
    if (status) {
        check_same_refusal(&error, &wanted);
    } else {
        CHECK(plain_scan(&lists->plain, NULL, raw, &tx, 1, &plain));
        check_same_hits(&hits, &plain);
        if (lists->learns)
            learn(lists, &plain);
    }
    spv_hits_free(&hits);
    free(plain.hits);
}

/* A copy without every third coin, and an outpoint that is not watched: entries stay. */
static void check_without(const lists *lists) {
    const size_t most = lists->plain.coin_count / 3 + 1;
    plain_table left = {.entries = lists->plain.entries, .entry_count = lists->plain.entry_count};
    uint8_t *gone = zeroed(most, SPV_OUTPOINT_SIZE);
    left.coins = zeroed(lists->plain.coin_count, sizeof *left.coins);
    for (size_t i = 0, count = 1; i < lists->plain.coin_count; i++) {
        const plain_coin *coin = &lists->plain.coins[i];
        const bool taken = i % 3 == 2, is_entry = plain_find(&lists->plain, SPV_OUTPOINT, (spv_bytes){coin->outpoint, SPV_OUTPOINT_SIZE}) != SPV_NONE;
        if (taken)
            memcpy(gone + SPV_OUTPOINT_SIZE * count++, coin->outpoint, SPV_OUTPOINT_SIZE);
        if (!taken || is_entry)
            left.coins[left.coin_count++] = *coin;
    }
    const size_t known = plain_find_coin(&lists->plain, gone) != NULL; /* the null outpoint */
    spv_table *copy;
    CHECK(!spv_table_without(lists->table, gone + SPV_OUTPOINT_SIZE * known, most - known, &copy));
    check_same_table(copy, &left);
    spv_table_free(copy);
    release(left.coins);
    release(gone);
}

static void scan_all(lists *lists, const uint8_t *data, size_t size, bool alone) {
    uint8_t *copies[MAX_BLOCKS] = {NULL};
    for (int i = 0; i < MAX_BLOCKS && size >= 3; i++) {
        size_t length = le24(data);
        data += 3, size -= 3;
        length = length < size && i < MAX_BLOCKS - 1 ? length : size;
        copies[i] = exact_copy(data, length);
        (alone ? scan_tx : scan_block)(lists, copies[i], length);
        data += length, size -= length;
    }
    check_same_table(lists->table, &lists->plain); /* their scripts are in the blocks, which are freed later */
    if (lists->collects == &lists->plain_found)
        check_same_table(lists->found, &lists->plain_found);
    spv_table *copy;
    CHECK(!spv_table_copy(lists->table, &copy));
    spv_table_free(lists->table);
    lists->table = copy;
    check_same_table(copy, &lists->plain);
    if (lists->plain.coin_count % 4 == 0) /* it costs as much as all other checks */
        check_without(lists);
    for (int i = 0; i < MAX_BLOCKS; i++)
        release(copies[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 3)
        return 0;
    const uint8_t kind = data[0], *entries = data + 2, *coins = entries + 5 * (size_t)data[1];
    if (size < 3 + 5 * (size_t)data[1])
        return 0;
    const uint8_t *body = coins + 1 + 5 * (size_t)coins[0];
    if (size < (size_t)(coins - data) + 1 + 5 * (size_t)coins[0])
        return 0;
    size_t body_size = size - (size_t)(body - data);
    lists lists = {.table = spv_table_new(), .learns = kind & 4};
    CHECK(lists.table);
    if (kind & 2) {
        lists.found = lists.table;
        lists.collects = &lists.plain;
    } else if (kind & 1) {
        CHECK(lists.found = spv_table_new());
        lists.collects = &lists.plain_found;
    }
    for (const uint8_t *entry = entries; entry < coins; entry += 5)
        if (le24(entry + 1) <= body_size && entry[4] <= body_size - le24(entry + 1))
            add_entry(&lists, entry[0] % SPV_KINDS, (spv_bytes){body + le24(entry + 1), entry[4]});
    for (const uint8_t *coin = coins + 1; coin < body; coin += 5)
        if (le24(coin) <= body_size && body_size - le24(coin) >= 36)
            set_coin(&lists, body + le24(coin), coin[3], coin[4]);
    scan_all(&lists, body, body_size, kind & 8);
    if (lists.found && !(kind & 2))
        spv_table_free(lists.found);
    spv_table_free(lists.table);
    plain_free(&lists.plain);
    plain_free(&lists.plain_found);
    return 0;
}
