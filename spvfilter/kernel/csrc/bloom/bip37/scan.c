#include "bloom/bip37/scan.h"

#include "array.h"
#include "block/txid.h"
#include "bloom/bip37/window.h"

enum { AT_ONCE = 8192 }; /* transactions that are walked, then hashed, then tested at once */

/* Owners of elements. The owner of an output's push is the index of the output; these are the other owners. */
#define THE_TXID UINT32_C(0xFFFFFFFF)
#define AN_INPUT UINT32_C(0xFFFFFFFE)

/* The large part of a scan, in one allocation. glibc adapts to its size and does not return it to the system after
   each scan. */
typedef struct {
    spv_window window;
    uint16_t first[SPV_WINDOW]; /* the elements of the window with which transactions begin */
    spv_tx txs[];               /* AT_ONCE transactions, or all of a smaller block; their txids follow */
} buffers;

typedef struct {
    const uint8_t *raw;
    const spv_filter *filter;
    spv_tx_matches *matches;
    spv_window *window;
    uint16_t *first;
    size_t begun;     /* number of transactions that begin in the window */
    spv_tx *txs;
    spv_hash *txids;
    uint32_t done;    /* number of transactions before txs[0] */
    /* The progress of the decisions. */
    uint32_t tx;      /* number of the current transaction, from 1: it is txs[tx - 1] */
    bool found;
    uint32_t matched; /* its last output that matched; AN_INPUT before the first match */
    uint32_t output;  /* one of its outputs, and its offset; they only move forward */
    size_t output_at;
} scan;

void spv_tx_matches_free(spv_tx_matches *matches) {
    free(matches->items);
    *matches = (spv_tx_matches){0};
}

static spv_status append(spv_tx_matches *matches, spv_tx_match match) {
    spv_tx_match *items = spv_array_grown(matches->items, matches->count, &matches->room, sizeof *items);
    if (!items)
        return SPV_NOMEM;
    matches->items = items;
    items[matches->count++] = match;
    return SPV_OK;
}

static void next_tx(scan *s) {
    s->output_at = s->txs[s->tx].outputs_at;
    s->output = 0;
    s->matched = AN_INPUT;
    s->found = false;
    s->tx++;
}

static spv_status find(scan *s) {
    const spv_tx *tx = s->txs + s->tx - 1;
    spv_tx_match match = {.start = tx->start, .end = tx->end, .position = s->done + s->tx - 1};
    if (s->found)
        return SPV_OK;
    s->found = true;
    memcpy(match.txid, s->txids[s->tx - 1], 32);
    return append(s->matches, match);
}

/* Adds the outpoint of the current transaction's output `index` if the filter's flags require it. True if a bit was
   not set before. */
static bool update(scan *s, uint32_t index) {
    spv_item item = {0};
    while (s->output <= index) { /* each index comes only once, in ascending order */
        item = spv_next_output(s->raw, &s->output_at);
        s->output++;
    }
    return spv_filter_update(s->filter, s->raw + item.script, item.script_end - item.script, s->txids[s->tx - 1], index);
}

/* Tests the elements of the window, decides in Core's order which transactions match, and empties the window. */
static spv_status decide(scan *s) {
    spv_window *w = s->window;
    size_t begun = 0;
    spv_status status = SPV_OK;
    spv_window_test(w);
    for (size_t i = spv_window_next(w, 0); i < w->count && !status; i = spv_window_next(w, i + 1)) {
        for (; begun < s->begun && s->first[begun] <= i; begun++)
            next_tx(s);
        uint32_t owner = w->owner[i];
        if ((owner == AN_INPUT ? s->found : owner == s->matched) || !spv_window_contains(w, i))
            continue;
        status = find(s);
        if (owner < AN_INPUT) {
            s->matched = owner;
            w->changed |= update(s, owner);
        }
    }
    for (; begun < s->begun; begun++)
        next_tx(s);
    s->begun = 0;
    spv_window_empty(w);
    return status;
}

SPV_INLINE spv_status put(scan *s, const uint8_t *data, size_t size, uint32_t owner, bool safe) {
    spv_window_put(s->window, data, size, owner, safe);
    return SPV_UNLIKELY(s->window->count == SPV_WINDOW) ? decide(s) : SPV_OK;
}

SPV_INLINE spv_status put_pushes(scan *s, const uint8_t *script, size_t size, uint32_t owner) {
    spv_bytes push;
    spv_status status = SPV_OK;
    for (size_t at = 0; !status && spv_next_push(script, size, &at, &push);)
        status = put(s, push.data, push.size, owner, false);
    return status;
}

/* Adds the elements of a transaction to the window, in Core's order. */
static spv_status put_tx(scan *s, const spv_tx *tx, const uint8_t *txid) {
    s->first[s->begun++] = (uint16_t)s->window->count;
    spv_status status = put(s, txid, 32, THE_TXID, true);
    size_t at = tx->outputs_at;
    for (uint32_t i = 0; i < tx->outputs && !status; i++) {
        spv_item output = spv_next_output(s->raw, &at);
        status = put_pushes(s, s->raw + output.script, output.script_end - output.script, i);
    }
    at = tx->inputs_at;
    for (uint32_t i = 0; i < tx->inputs && !status; i++) {
        spv_item input = spv_next_input(s->raw, &at);
        status = put(s, s->raw + input.at, 36, AN_INPUT, false);
        if (!status)
            status = put_pushes(s, s->raw + input.script, input.script_end - input.script, AN_INPUT);
    }
    return status;
}

static spv_status scan_txs(scan *s, size_t count) {
    spv_status status = SPV_OK;
    s->tx = 0;
    spv_txids(s->raw, s->txs, count, s->txids);
    for (size_t i = 0; i < count && !status; i++)
        status = put_tx(s, s->txs + i, s->txids[i]);
    return status ? status : decide(s);
}

static spv_status scan_all(scan *s, size_t size, size_t at, uint32_t count, spv_error *error) {
    while (s->done < count) {
        uint32_t some = 0;
        for (; some < AT_ONCE && s->done + some < count; some++) {
            spv_status status = spv_walk_tx(s->raw, size, at, s->txs + some, error);
            if (status)
                return status;
            at = s->txs[some].end;
        }
        spv_status status = scan_txs(s, some);
        if (status)
            return status;
        s->done += some;
    }
    return spv_block_end(size, at, error);
}

spv_status spv_bip37_scan_block(const uint8_t *raw, size_t size, const spv_bip37 *filter, spv_tx_matches *matches, spv_error *error) {
    size_t at;
    uint32_t count;
    /* fails if the bytes cannot hold so many transactions as the block claims */
    spv_status status = spv_block_start(raw, size, &at, &count, error);
    if (status)
        return status;
    size_t room = count < AT_ONCE ? count : AT_ONCE;
    spv_filter ready = spv_filter_of(filter);
    buffers *memory = malloc(sizeof *memory + room * (sizeof(spv_tx) + sizeof(spv_hash)) + SPV_MURMUR3_BEYOND);
    if (!memory)
        return SPV_NOMEM;
    scan s = {
        .raw = raw,
        .filter = &ready,
        .matches = matches,
        .window = &memory->window,
        .first = memory->first,
        .txs = memory->txs,
        .txids = (spv_hash *)(memory->txs + room),
    };
    spv_window_start(s.window, &ready, spv_murmur3_usable(0), raw, size);
    status = scan_all(&s, size, at, count, error);
    free(memory);
    return status;
}

static bool pushes_any(const spv_filter *filter, const uint8_t *script, size_t size) {
    spv_bytes push;
    uint32_t bit;
    for (size_t at = 0; spv_next_push(script, size, &at, &push);)
        if (spv_filter_contains(filter, push.data, push.size, &bit))
            return true;
    return false;
}

/* pure._is_relevant */
static bool is_relevant(const uint8_t *raw, const spv_tx *tx, const spv_filter *filter) {
    uint8_t txid[32];
    uint32_t bit;
    spv_txid(raw, tx, txid);
    bool found = spv_filter_contains(filter, txid, sizeof txid, &bit);
    size_t at = tx->outputs_at;
    for (uint32_t i = 0; i < tx->outputs; i++) {
        spv_item output = spv_next_output(raw, &at);
        if (pushes_any(filter, raw + output.script, output.script_end - output.script)) {
            found = true;
            spv_filter_update(filter, raw + output.script, output.script_end - output.script, txid, i);
        }
    }
    at = tx->inputs_at;
    for (uint32_t i = 0; i < tx->inputs && !found; i++) {
        spv_item input = spv_next_input(raw, &at);
        found = spv_filter_contains(filter, raw + input.at, 36, &bit)
            || pushes_any(filter, raw + input.script, input.script_end - input.script);
    }
    return found;
}

spv_status spv_bip37_scan_tx(const uint8_t *raw, size_t size, const spv_bip37 *filter, bool *relevant, spv_error *error) {
    spv_tx tx;
    spv_status status = spv_parse_tx(raw, size, &tx, error);
    spv_filter ready = spv_filter_of(filter);
    if (!status)
        *relevant = is_relevant(raw, &tx, &ready);
    return status;
}
