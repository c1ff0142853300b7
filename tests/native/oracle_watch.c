#include "oracle_watch.h"

#include "block/scripttype.h"
#include "oracle.h"
#include "oracle_script.h"

static void *grown(void *items, size_t count, size_t *room, size_t size) {
    if (count < *room)
        return items;
    *room = *room ? 2 * *room : 16;
    items = realloc(items, *room * size);
    CHECK(items);
    return items;
}

static bool equal(spv_bytes one, spv_bytes other) {
    return one.size == other.size && same(one.data, other.data, one.size);
}

void plain_free(plain_table *table) {
    free(table->entries);
    free(table->coins);
}

plain_coin *plain_find_coin(const plain_table *table, const uint8_t *outpoint) {
    for (size_t i = 0; i < table->coin_count; i++)
        if (same(table->coins[i].outpoint, outpoint, 36))
            return table->coins + i;
    return NULL;
}

uint32_t plain_find(const plain_table *table, unsigned kind, spv_bytes value) {
    if (kind == SPV_OUTPOINT) { /* found only while the coin belongs to it */
        const plain_coin *coin = plain_find_coin(table, value.data);
        if (!coin || coin->entry >= table->entry_count)
            return SPV_NONE;
        const plain_entry *entry = table->entries + coin->entry;
        return entry->kind == kind && equal(entry->value, value) ? coin->entry : SPV_NONE;
    }
    for (size_t i = 0; i < table->entry_count; i++)
        if (table->entries[i].kind == kind && equal(table->entries[i].value, value))
            return (uint32_t)i;
    return SPV_NONE;
}

uint32_t plain_add(plain_table *table, unsigned kind, spv_bytes value) {
    uint32_t number = plain_find(table, kind, value);
    if (number != SPV_NONE)
        return number;
    number = (uint32_t)table->entry_count;
    table->entries = grown(table->entries, table->entry_count, &table->entry_room, sizeof *table->entries);
    table->entries[table->entry_count++] = (plain_entry){kind, value};
    if (kind == SPV_OUTPOINT) {
        plain_coin *known = plain_find_coin(table, value.data);
        if (known) {
            known->entry = number;
        } else {
            plain_coin coin = {.entry = number, .value = SPV_NO_VALUE};
            memcpy(coin.outpoint, value.data, 36);
            plain_set_coin(table, &coin, true);
        }
    }
    return number;
}

static plain_coin joined(const plain_coin *old, const plain_coin *new) {
    plain_coin coin = *old;
    if (coin.value == SPV_NO_VALUE)
        coin.value = new->value;
    if (!coin.script.data)
        coin.script = new->script;
    return coin;
}

void plain_set_coin(plain_table *table, const plain_coin *coin, bool replace) {
    plain_coin *known = plain_find_coin(table, coin->outpoint);
    if (known) {
        *known = replace ? *coin : joined(known, coin);
        return;
    }
    table->coins = grown(table->coins, table->coin_count, &table->coin_room, sizeof *table->coins);
    table->coins[table->coin_count++] = *coin;
}

static uint32_t match_pushes(const plain_table *table, spv_bytes script) {
    plain_operation operation;
    for (size_t at = 0; plain_next(script, at, &operation); at = operation.end) {
        uint32_t number = operation.data.size ? plain_find(table, SPV_DATA, operation.data) : SPV_NONE;
        if (number != SPV_NONE)
            return number;
    }
    return SPV_NONE;
}

/* The longest data prefix of the first push after OP_RETURN. OP_1NEGATE and OP_1 to OP_16 push one byte. */
static uint32_t match_prefix(const plain_table *table, spv_bytes script) {
    plain_operation operation;
    uint8_t value;
    spv_bytes data = {NULL, 0};
    uint32_t number = SPV_NONE;
    if (script.size < 2 || script.data[0] != 0x6A)
        return SPV_NONE;
    if (script.data[1] >= 0x51 && script.data[1] <= 0x60) {
        value = (uint8_t)(script.data[1] - 0x50);
        data = (spv_bytes){&value, 1};
    } else if (script.data[1] == 0x4F) {
        value = 0x81;
        data = (spv_bytes){&value, 1};
    } else if (script.data[1] <= 0x4E && plain_next(script, 1, &operation)) {
        data = operation.data;
    }
    for (size_t size = data.size; size && number == SPV_NONE; size--)
        number = plain_find(table, SPV_DATA_PREFIX, (spv_bytes){data.data, size});
    return number;
}

bool plain_is_pattern(const plain_table *table, uint32_t entry) {
    return table->entries[entry].kind >= SPV_DATA_PREFIX;
}

uint32_t plain_match_script(const plain_table *table, spv_bytes script) {
    const uint8_t type = (uint8_t)spv_solve(script); /* tests/kernel compares it with the reference in Python */
    spv_bytes keys[SPV_MAX_MULTISIG_KEYS];
    uint32_t number = plain_find(table, SPV_SCRIPT, script);
    size_t count = plain_multisig_keys(script, keys);
    for (size_t i = 0; i < count && number == SPV_NONE; i++)
        number = plain_find(table, SPV_MULTISIG_KEY, (spv_bytes){keys[i].data, keys[i].size});
    if (number == SPV_NONE)
        number = match_pushes(table, script);
    if (number == SPV_NONE)
        number = match_prefix(table, script);
    return number == SPV_NONE ? plain_find(table, SPV_SCRIPT_TYPE, (spv_bytes){&type, 1}) : number;
}

/* pure_table.WatchTable._scan: the coin of the outpoint that an input spends, if it concerns the table. */
static bool spent_by(
    const plain_table *table, const plain_table *earlier, const plain_table *fresh, const uint8_t *outpoint, spv_bytes script, plain_coin *coin
) {
    const plain_coin *known = plain_find_coin(table, outpoint), *seen = earlier ? plain_find_coin(earlier, outpoint) : NULL;
    if (!seen)
        seen = plain_find_coin(fresh, outpoint);
    if (known || seen) {
        *coin = !known ? *seen : !seen ? *known : joined(known, seen);
        return true;
    }
    *coin = (plain_coin){.entry = match_pushes(table, script), .value = SPV_NO_VALUE};
    memcpy(coin->outpoint, outpoint, 36);
    return coin->entry != SPV_NONE;
}

static void append(plain_hits *hits, const plain_hit *hit) {
    hits->hits = grown(hits->hits, hits->count, &hits->room, sizeof *hits->hits);
    hits->hits[hits->count++] = *hit;
}

static void scan_tx(
    const plain_table *table, const plain_table *earlier, plain_table *fresh, const uint8_t *raw, const spv_tx *tx, uint32_t position,
    plain_hits *hits
) {
    plain_hit hit = {.position = position, .spend = true};
    size_t at = tx->inputs_at;
    oracle_txid(raw, tx, hit.txid);
    for (hit.n = 0; hit.n < tx->inputs; hit.n++) {
        spv_item input = spv_next_input(raw, &at);
        spv_bytes script = {raw + input.script, input.script_end - input.script};
        if (spent_by(table, earlier, fresh, raw + input.at, script, &hit.coin))
            append(hits, &hit);
    }
    hit.spend = false;
    at = tx->outputs_at;
    for (hit.n = 0; hit.n < tx->outputs; hit.n++) {
        spv_item output = spv_next_output(raw, &at);
        spv_bytes script = {raw + output.script, output.script_end - output.script};
        int64_t value = (int64_t)spv_le64(raw + output.at);
        hit.coin = (plain_coin){.entry = plain_match_script(table, script), .value = value < -1 ? -1 : value, .script = script};
        if (hit.coin.entry == SPV_NONE)
            continue;
        memcpy(hit.coin.outpoint, hit.txid, 32);
        spv_put_le32(hit.coin.outpoint + 32, hit.n);
        append(hits, &hit);
        if (!plain_is_pattern(table, hit.coin.entry))
            plain_set_coin(fresh, &hit.coin, true);
    }
}

bool plain_scan(const plain_table *table, plain_table *found, const uint8_t *raw, const spv_tx *txs, uint32_t count, plain_hits *hits) {
    plain_table fresh = {0};
    size_t first = hits->count;
    for (int run = 0; run < 2; run++) { /* the second run knows the outputs that earlier transactions spend */
        hits->count = first;
        for (uint32_t i = 0; i < count; i++)
            scan_tx(table, found, &fresh, raw, txs + i, i, hits);
    }
    bool doubled = false;
    for (size_t i = first; i < hits->count && !doubled; i++)
        for (size_t k = first; k < i && !doubled; k++) {
            const plain_hit *one = hits->hits + i, *other = hits->hits + k;
            doubled = one->spend == other->spend && one->n == other->n && same(one->txid, other->txid, 32);
        }
    for (size_t i = 0; found && !doubled && i < fresh.coin_count; i++)
        plain_set_coin(found, fresh.coins + i, true);
    plain_free(&fresh);
    return !doubled;
}

void check_same_hits(const spv_hits *hits, const plain_hits *plain) {
    CHECK(hits->count == plain->count);
    for (size_t i = 0; i < plain->count; i++) {
        const spv_hit *hit = hits->hits + i;
        const plain_hit *wanted = plain->hits + i;
        uint8_t outpoint[36];
        CHECK(hit->spend == wanted->spend && hit->position == wanted->position && hit->n == wanted->n);
        CHECK(hit->txid < hits->txid_count && same(hits->txids[hit->txid], wanted->txid, 32));
        CHECK(hit->entry == wanted->coin.entry && hit->value == wanted->coin.value);
        CHECK(!hit->script.data == !wanted->coin.script.data && equal(hit->script, wanted->coin.script));
        memcpy(outpoint, hits->txids[hit->txid], 32);
        spv_put_le32(outpoint + 32, hit->n);
        CHECK(same(hit->spend ? hit->outpoint : outpoint, wanted->coin.outpoint, 36));
    }
}

void check_same_table(const spv_table *table, const plain_table *plain) {
    CHECK(spv_table_count(table) == plain->entry_count && table->coins.count == plain->coin_count);
    for (uint32_t i = 0; i < plain->entry_count; i++) {
        const plain_entry *entry = plain->entries + i;
        CHECK(spv_table_entry(table, i).kind == entry->kind && equal(spv_table_entry(table, i).value, entry->value));
        CHECK(spv_table_find(table, entry->kind, entry->value) == plain_find(plain, entry->kind, entry->value));
    }
    for (uint32_t i = 0; i < plain->coin_count; i++) {
        const plain_coin *wanted = plain->coins + i;
        uint32_t number = spv_table_find_coin(table, wanted->outpoint);
        CHECK(number != SPV_NONE);
        spv_coin coin = spv_table_coin(table, number);
        CHECK(same(coin.outpoint, wanted->outpoint, 36) && coin.value == wanted->value && coin.entry == wanted->entry);
        CHECK(!coin.script.data == !wanted->script.data && equal(coin.script, wanted->script));
    }
}
