#include "watch/scan.h"

#include "array.h"
#include "block/txid.h"
#include "watch/marks.h"

enum { AHEAD = 64 }; /* txids that are computed together, which is faster */

/* The second half of the scan. It visits the marked transactions in order. After the first output that it finds, it
   also visits every input that may spend such an output. */
typedef struct scan {
    const spv_table *table, *found;
    const spv_marks *marks;
    const uint8_t *raw;
    size_t size;
    spv_hits *hits;
    const struct scan *before; /* in a second run: the first run, which found outputs that earlier transactions spend; else NULL */
    spv_index fresh;    /* outpoint → the hit of the output */
    spv_index by_txid;  /* txid → its number */
    const spv_mark *next, *last;
    spv_tx tx;
    int64_t fee;        /* fee of the transaction; known after it was identified */
    uint32_t position;
    bool marked;        /* the transaction has a mark */
    bool identified;    /* its txid is the last of the txids */
    /* position and number of `ready` txids: of this transaction and the next transactions with marks, which will
       need them */
    uint32_t ready_at, ready_count;
    spv_hash ready[AHEAD];
} scan;

/* Hits and txids. */

static spv_hit *new_hit(spv_hits *hits) {
    spv_hit *grown = spv_array_grown(hits->hits, hits->count, &hits->room, sizeof *grown);
    if (!grown)
        return NULL;
    hits->hits = grown;
    return &grown[hits->count++];
}

void spv_hits_free(spv_hits *hits) {
    free(hits->hits);
    free(hits->txids);
    spv_arena_free(&hits->scripts);
}

static bool txid_hash(const void *context, uint32_t number, uint64_t *hash) {
    const scan *s = context;
    *hash = spv_keyed_hash(&s->table->coin_key, 0, s->hits->txids[number], 32);
    return true;
}

static bool is_same_txid(const void *context, uint32_t number) {
    const scan *s = context;
    return !memcmp(s->hits->txids[number], s->hits->txids[s->hits->txid_count], 32);
}

static void make_ready(scan *s) {
    spv_tx txs[AHEAD] = {s->tx};
    spv_error never; /* unused: the block was walked before, so this cannot fail */
    uint32_t last = s->position;
    s->ready_at = 0;
    s->ready_count = 1;
    for (const spv_mark *mark = s->next; mark != s->last && s->ready_count < AHEAD; mark++)
        if (mark->tx != last) {
            last = mark->tx;
            spv_walk_tx(s->raw, s->size, s->marks->starts[last], &txs[s->ready_count++], &never);
        }
    spv_txids(s->raw, txs, s->ready_count, s->ready);
}

static void make_txid(scan *s, uint8_t txid[32]) {
    if (!s->marked) {
        spv_txid(s->raw, &s->tx, txid);
        return;
    }
    if (s->ready_at == s->ready_count)
        make_ready(s);
    memcpy(txid, s->ready[s->ready_at++], 32);
}

/* The value that the transaction spends minus the value that it pays. The sums were checked. */
static int64_t fee_of(const scan *s) {
    if (!s->marks->spent || !s->position)
        return SPV_NO_VALUE;
    uint64_t fee = 0;
    size_t at = s->marks->spent[s->position];
    spv_packed_coin coin = {0};
    spv_error never; /* unused: the coins were read before, so this cannot fail */
    for (uint32_t n = 0; n < s->tx.inputs; n++) {
        spv_read_coin(s->marks->undo.data, s->marks->undo.size, &at, &coin, &never);
        fee += coin.value;
    }
    at = s->tx.outputs_at;
    for (uint32_t n = 0; n < s->tx.outputs; n++)
        fee -= spv_le64(s->raw + spv_next_output(s->raw, &at).at);
    return (int64_t)fee;
}

/* Computes the txid of a transaction that has a hit, and fails for a repeated txid: a copy has at least the hits of
   the original. */
static spv_status identify(scan *s, spv_error *error) {
    spv_hits *hits = s->hits;
    if (s->identified)
        return SPV_OK;
    spv_hash *grown = spv_array_grown(hits->txids, hits->txid_count, &hits->txid_room, sizeof *grown);
    if (!grown)
        return SPV_NOMEM;
    hits->txids = grown;
    make_txid(s, hits->txids[hits->txid_count]);
    spv_status status = spv_index_reserve(&s->by_txid, hits->txid_count, txid_hash, s);
    if (status)
        return status;
    uint64_t hash;
    txid_hash(s, hits->txid_count, &hash);
    if (spv_index_find(&s->by_txid, hash, is_same_txid, s) != SPV_NONE)
        return spv_refuse(error, SPV_HEADER_SIZE, "transactions", "duplicated transactions (CVE-2012-2459)");
    spv_index_add(&s->by_txid, hash, hits->txid_count++);
    s->fee = fee_of(s);
    s->identified = true;
    return SPV_OK;
}

/* Fresh coins: outputs found in this block. */

static void outpoint_of(const spv_hits *hits, const spv_hit *hit, uint8_t outpoint[SPV_OUTPOINT_SIZE]) {
    memcpy(outpoint, hits->txids[hit->txid], 32);
    spv_put_le32(outpoint + 32, hit->n);
}

static bool fresh_hash(const void *context, uint32_t number, uint64_t *hash) {
    const scan *s = context;
    const spv_hit *hit = &s->hits->hits[number];
    uint8_t outpoint[SPV_OUTPOINT_SIZE];
    if (hit->spend || hit->pattern)
        return false;
    outpoint_of(s->hits, hit, outpoint);
    *hash = spv_outpoint_hash(&s->table->coin_key, outpoint);
    return true;
}

typedef struct {
    const scan *scan;
    const uint8_t *outpoint;
} spent;

static bool is_fresh(const void *context, uint32_t number) {
    const spent *spent = context;
    const spv_hits *hits = spent->scan->hits;
    const spv_hit *hit = &hits->hits[number];
    return hit->n == spv_le32(spent->outpoint + 32) && !memcmp(hits->txids[hit->txid], spent->outpoint, 32);
}

/* The output of this block with an outpoint, NULL if it was not found. */
static const spv_hit *fresh_of(const scan *s, const uint8_t *outpoint) {
    const spent wanted = {s, outpoint};
    if (!s->fresh.count)
        return NULL;
    const uint32_t number = spv_index_find(&s->fresh, spv_outpoint_hash(&s->table->coin_key, outpoint), is_fresh, &wanted);
    return number == SPV_NONE ? NULL : &s->hits->hits[number];
}

/* One transaction. */

/* Adds the facts of the undo record, at byte `at`, to the known facts about a spent coin. */
static spv_status add_undo(scan *s, size_t at, spv_coin *known, spv_error *error) {
    const spv_bytes undo = s->marks->undo;
    const size_t start = at;
    uint8_t room[SPV_SHORT_SCRIPT];
    spv_packed_coin coin = {0};
    spv_bytes script = {NULL, 0};
    spv_read_coin(undo.data, undo.size, &at, &coin, error);
    if (known->value == SPV_NO_VALUE)
        known->value = (int64_t)coin.value;
    if (known->script.data)
        return SPV_OK;
    spv_status status = spv_script_of_coin(&coin, start, room, &script, error);
    if (status)
        return status;
    uint8_t *kept = spv_arena_take(&s->hits->scripts, script.size + 1);
    if (!kept)
        return SPV_NOMEM;
    if (script.size)
        memcpy(kept, script.data, script.size);
    known->script = (spv_bytes){kept, script.size};
    return SPV_OK;
}

static spv_status spend(scan *s, spv_item input, uint32_t n, spv_error *error) {
    const uint8_t *outpoint = s->raw + input.at;
    const spv_mark *of[SPV_REASONS] = {NULL};
    uint32_t in_undo = 0; /* offset of its coin, plus 1 */
    for (; s->next != s->last && s->next->at == outpoint; s->next++) {
        of[s->next->reason] = s->next;
        in_undo = s->next->coin;
    }
    spv_coin coin = {.entry = SPV_NONE};
    if (of[SPV_EARLIER]) {
        coin = spv_table_coin(s->found, of[SPV_EARLIER]->number);
    } else {
        const spv_hit *paid = fresh_of(s->before ? s->before : s, outpoint);
        if (paid)
            coin = (spv_coin){NULL, paid->script, paid->value, paid->entry};
    }
    if (of[SPV_KNOWN]) {
        spv_coin known = spv_table_coin(s->table, of[SPV_KNOWN]->number);
        coin = coin.entry == SPV_NONE ? known : spv_coin_joined(known, coin);
    } else if (coin.entry == SPV_NONE) {
        const spv_mark *mark = of[SPV_SPENT] ? of[SPV_SPENT] : of[SPV_PUSHED];
        if (!mark)
            return SPV_OK;
        coin = (spv_coin){NULL, {NULL, 0}, SPV_NO_VALUE, mark->number};
    }
    spv_status status = in_undo ? add_undo(s, in_undo - 1, &coin, error) : SPV_OK;
    if (!status)
        status = identify(s, error);
    if (status)
        return status;
    spv_hit *hit = new_hit(s->hits);
    if (!hit)
        return SPV_NOMEM;
    *hit = (spv_hit){coin.script, outpoint, coin.value, s->fee, s->hits->txid_count - 1, s->position, n, coin.entry, true, false};
    return SPV_OK;
}

static spv_status pay(scan *s, spv_item output, uint32_t n, spv_error *error) {
    spv_bytes script = {s->raw + output.script, output.script_end - output.script};
    int64_t value = (int64_t)spv_le64(s->raw + output.at);
    spv_status status = identify(s, error);
    if (status)
        return status;
    if (s->hits->count >= SPV_NONE)
        return SPV_RANGE;
    uint32_t number = (uint32_t)s->hits->count;
    uint64_t hash;
    if ((status = spv_index_reserve(&s->fresh, number, fresh_hash, s)))
        return status;
    spv_hit *hit = new_hit(s->hits);
    if (!hit)
        return SPV_NOMEM;
    if (value < SPV_NO_VALUE)
        value = SPV_NO_VALUE; /* consensus rejects negative values */
    const uint32_t entry = s->next++->number;
    *hit = (spv_hit){script, NULL, value, s->fee, s->hits->txid_count - 1, s->position, n, entry, false, spv_is_pattern(s->table, entry)};
    if (fresh_hash(s, number, &hash))
        spv_index_add(&s->fresh, hash, number);
    return SPV_OK;
}

static spv_status transaction(scan *s, spv_error *error) {
    spv_status status = SPV_OK;
    size_t at = s->tx.inputs_at;
    s->marked = s->next != s->last && s->next->tx == s->position;
    s->identified = false;
    if (s->marked || s->fresh.count || s->before)
        for (uint32_t n = 0; n < s->tx.inputs && !status; n++)
            status = spend(s, spv_next_input(s->raw, &at), n, error);
    at = s->tx.outputs_at;
    for (uint32_t n = 0; n < s->tx.outputs && !status && s->next != s->last && s->next->tx == s->position; n++) {
        spv_item output = spv_next_output(s->raw, &at);
        if (s->next->at == s->raw + output.script)
            status = pay(s, output, n, error);
    }
    return status;
}

static spv_status follow(scan *s, spv_error *error) {
    spv_status status = SPV_OK;
    for (;; s->position++) {
        if (!s->fresh.count && !s->before) { /* no output was found that can be spent: go on to the next mark */
            if (s->next == s->last)
                return SPV_OK;
            s->position = s->next->tx;
        } else if (s->position == s->marks->transactions) {
            return SPV_OK;
        }
        status = spv_walk_tx(s->raw, s->size, s->marks->starts[s->position], &s->tx, error);
        if (!status)
            status = transaction(s, error);
        if (status)
            return status;
    }
}

/* True if an output that was found is spent by an earlier transaction of the block, which no node accepts. */
static bool is_spent_before(const scan *s) {
    spv_error never; /* unused: the block was walked before, so this cannot fail */
    uint64_t firsts = 0; /* a bit for each first byte of their txids */
    uint32_t last = 0;
    for (size_t i = 0; i < s->hits->count; i++)
        if (!s->hits->hits[i].spend && !s->hits->hits[i].pattern) {
            last = s->hits->hits[i].position;
            firsts |= UINT64_C(1) << (s->hits->txids[s->hits->hits[i].txid][0] & 63);
        }
    for (uint32_t position = 1; position < last; position++) {
        spv_tx tx;
        spv_walk_tx(s->raw, s->size, s->marks->starts[position], &tx, &never);
        size_t at = tx.inputs_at;
        for (uint32_t n = 0; n < tx.inputs; n++) {
            const uint8_t *outpoint = s->raw + spv_next_input(s->raw, &at).at;
            const spv_hit *paid = firsts >> (outpoint[0] & 63) & 1 ? fresh_of(s, outpoint) : NULL;
            if (paid && paid->position > position)
                return true;
        }
    }
    return false;
}

/* Scans again, with all outputs that the first run found. */
static spv_status follow_again(const scan *first, spv_hits *hits, spv_error *error) {
    scan s = {
        .table = first->table, .found = first->found, .marks = first->marks, .raw = first->raw, .size = first->size, .hits = hits,
        .before = first, .next = first->marks->marks, .last = first->last,
    };
    spv_index_init(&s.fresh);
    spv_index_init(&s.by_txid);
    const spv_status status = follow(&s, error);
    spv_index_free(&s.fresh);
    spv_index_free(&s.by_txid);
    return status;
}

static spv_status follow_all(const spv_table *table, const spv_table *found, const uint8_t *raw, size_t size, const spv_marks *marks,
                             spv_hits *hits, spv_error *error) {
    if (!marks->count)
        return SPV_OK;
    scan s = {
        .table = table, .found = found, .marks = marks, .raw = raw, .size = size, .hits = hits,
        .next = marks->marks, .last = marks->marks + marks->count,
    };
    spv_index_init(&s.fresh);
    spv_index_init(&s.by_txid);
    spv_status status = follow(&s, error);
    if (!status && s.fresh.count && !marks->spent && is_spent_before(&s)) {
        spv_hits again = {0};
        status = follow_again(&s, &again, error);
        spv_hits_free(hits);
        *hits = again;
    }
    spv_index_free(&s.fresh);
    spv_index_free(&s.by_txid);
    return status;
}

/* Locks. */

static void read_both(spv_table *table, spv_table *found) {
    if (found && found != table) {
        bool before = (uintptr_t)found < (uintptr_t)table;
        spv_read(before ? &found->lock : &table->lock);
        spv_read(before ? &table->lock : &found->lock);
    } else {
        spv_read(&table->lock);
    }
}

/* Makes the outputs among the hits coins of `found`. They replace the known facts. */
static spv_status keep(spv_table *found, const spv_hits *hits) {
    spv_status status = SPV_OK;
    spv_write(&found->lock);
    for (size_t i = 0; i < hits->count && !status; i++) {
        const spv_hit *hit = &hits->hits[i];
        uint8_t outpoint[SPV_OUTPOINT_SIZE];
        if (hit->spend || hit->pattern)
            continue;
        outpoint_of(hits, hit, outpoint);
        status = spv_table_set_coin(found, &(spv_coin){outpoint, hit->script, hit->value, hit->entry}, true);
    }
    spv_end_write(&found->lock);
    return status;
}

spv_status spv_watch_block(spv_table *table, spv_table *found, const uint8_t *raw, size_t size, const spv_record *record, spv_hits *hits,
                           spv_error *error) {
    spv_marks marks;
    *hits = (spv_hits){0};
    read_both(table, found);
    const spv_table *earlier = found && found->coins.count ? found : NULL;
    spv_status status = spv_mark_block(table, earlier, raw, size, record, &marks, error);
    if (!status)
        status = follow_all(table, earlier, raw, size, &marks, hits, error);
    if (found && found != table)
        spv_end_read(&found->lock);
    spv_end_read(&table->lock);
    spv_marks_free(&marks);
    return !status && found && hits->count ? keep(found, hits) : status;
}

spv_status spv_watch_tx(spv_table *table, const uint8_t *raw, size_t size, spv_hits *hits, spv_error *error) {
    spv_marks marks;
    *hits = (spv_hits){0};
    spv_read(&table->lock);
    spv_status status = spv_mark_tx(table, raw, size, &marks, error);
    if (!status)
        status = follow_all(table, NULL, raw, size, &marks, hits, error);
    spv_end_read(&table->lock);
    spv_marks_free(&marks);
    return status;
}
