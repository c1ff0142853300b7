#include "watch/marks.h"

#include "array.h"
#include "block/script.h"
#include "block/scripttype.h"
#include "block/walk.h"

#include <inttypes.h>

/* The walk is limited by memory latency. The hashes of a batch are therefore computed first and their groups
   prefetched, before the first of them is looked up. */
enum { LINE = 64, READ_AHEAD = 1024 }; /* bytes of a cache line; bytes of the block that are fetched before they are walked */
enum { BATCH = 64, REASON_SHIFT = 29 /* a block has fewer than 2^25 transactions */ };

static const uint16_t LOOK[SPV_GROUP] = {[SPV_PASSED] = UINT16_MAX}; /* tags that rule nothing out */

typedef struct {
    const uint16_t *tags;
    uint64_t hash;
    const uint8_t *at;
    uint32_t size;
    uint32_t tx; /* number of the transaction, with the reason above REASON_SHIFT */
    uint32_t coin;
} probe;

/* Reads a block's undo in step with its inputs and outputs. */
typedef struct {
    size_t at, start;      /* offset of the next coin, and of the transaction's part */
    spv_tx tx;             /* the current transaction: its number of inputs is known before its first input */
    uint64_t spent, paid;  /* satoshi of the current transaction; `paid` is TOO_MUCH if an output is out of range */
    bool begun;            /* the number of its coins was read */
    spv_status status;
    spv_error error;
} undo_walk;

#define TOO_MUCH (SPV_MAX_MONEY + 1)

typedef struct {
    const spv_table *table, *found;
    spv_marks *marks;
    bool scripts, odd, slow; /* entries may match outputs; also short and long scripts; also by key or data */
    bool known, pushes;      /* there are coins; there are data entries */
    bool types;              /* there are script types */
    uint32_t tx;
    uint32_t coin; /* offset of the input's coin, plus 1; 0 without an undo record */
    uint32_t waiting;
    spv_status status;
    probe batch[BATCH];
    undo_walk undo;
    size_t excess; /* offset of the first transaction that pays more than 21 million coins; 0 if there is none */
} marker;

static void mark(marker *m, const probe *probe, uint32_t number) {
    spv_marks *marks = m->marks;
    spv_mark *grown = spv_array_grown(marks->marks, marks->count, &marks->room, sizeof *grown);
    if (!grown) {
        m->status = SPV_NOMEM;
        return;
    }
    marks->marks = grown;
    grown[marks->count++] = (spv_mark){
        probe->at, probe->tx & (((uint32_t)1 << REASON_SHIFT) - 1), number, probe->coin, probe->tx >> REASON_SHIFT,
    };
}

/* pure.table._match_packed: the entry that the script of the probe's coin matches, or SPV_NONE. */
static uint32_t match_coin(const marker *m, const probe *probe) {
    const spv_bytes undo = m->marks->undo;
    size_t at = probe->coin - 1;
    uint8_t room[SPV_SHORT_SCRIPT], key[SPV_SHORT_KEY];
    spv_packed_coin coin = {0};
    spv_error never; /* unused: the coin was read before, so this cannot fail */
    spv_read_coin(undo.data, undo.size, &at, &coin, &never);
    if (spv_has_full_key(&coin)) {
        spv_packed_key(&coin, key);
        const uint8_t *full = spv_table_find_full_key(m->table, key);
        return full ? spv_table_match_script(m->table, spv_full_key_script(full, room)) : spv_table_find_type(m->table, SPV_TYPE_PUBKEY);
    }
    const spv_wanted wanted = {m->table, spv_plain_script(&coin, room), SPV_SCRIPT};
    const uint32_t number = spv_index_find(&m->table->index, probe->hash, spv_is_entry, &wanted);
    return number == SPV_NONE && m->slow ? spv_table_match_slow(m->table, wanted.value) : number;
}

/* Looks up a probe that the tags could not rule out. */
static __attribute__((noinline)) void look(marker *m, const probe *probe) {
    unsigned reason = probe->tx >> REASON_SHIFT;
    const spv_wanted wanted = {reason == SPV_EARLIER ? m->found : m->table, {probe->at, probe->size}, SPV_SCRIPT};
    uint32_t number;
    if (reason == SPV_PAID) {
        number = spv_index_find(&m->table->index, probe->hash, spv_is_entry, &wanted);
        if (number == SPV_NONE && m->slow)
            number = spv_table_match_slow(m->table, wanted.value);
    } else if (reason == SPV_SPENT) {
        number = match_coin(m, probe);
    } else if (reason == SPV_PUSHED) {
        size_t at = 0;
        spv_item input = spv_next_input(probe->at, &at);
        number = spv_table_match_pushes(m->table, (spv_bytes){probe->at + input.script, input.script_end - input.script});
    } else {
        number = spv_index_find(&wanted.table->coin_index, probe->hash, spv_is_coin, &wanted);
    }
    if (number != SPV_NONE)
        mark(m, probe, number);
}

static __attribute__((noinline)) void resolve(marker *m) {
    for (uint32_t i = 0; i < m->waiting; i++) {
        const probe *probe = &m->batch[i];
        if (SPV_UNLIKELY(!spv_tags_lack(probe->tags, probe->hash)))
            look(m, probe);
    }
    m->waiting = 0;
}

SPV_INLINE void ask(marker *m, unsigned reason, const uint16_t *tags, uint64_t hash, const uint8_t *at, size_t size) {
    m->batch[m->waiting] = (probe){tags, hash, at, (uint32_t)size, m->tx | reason << REASON_SHIFT, m->coin};
    if (SPV_UNLIKELY(++m->waiting == BATCH))
        resolve(m);
}

SPV_INLINE void on_output(void *context, const uint8_t *raw, size_t value_at, size_t script, size_t script_end) {
    (void)value_at;
    marker *m = context;
    size_t size = script_end - script;
    if (!m->scripts || (!spv_is_middling(size) && !m->odd)) /* no entry has a script of this size */
        return;
    uint64_t hash = spv_keyed_hash(&m->table->key, SPV_SCRIPT, raw + script, size);
    const uint16_t *tags = spv_index_fetch(&m->table->index, hash);
    ask(m, SPV_PAID, m->slow ? LOOK : tags, hash, raw + script, size);
}

SPV_INLINE void on_input(void *context, const uint8_t *raw, size_t outpoint_at, size_t script, size_t script_end) {
    (void)script, (void)script_end;
    marker *m = context;
    const uint8_t *outpoint = raw + outpoint_at;
    if (m->known) {
        uint64_t hash = spv_outpoint_hash(&m->table->coin_key, outpoint);
        ask(m, SPV_KNOWN, spv_index_fetch(&m->table->coin_index, hash), hash, outpoint, SPV_OUTPOINT_SIZE);
    }
    if (m->found) {
        uint64_t hash = spv_outpoint_hash(&m->found->coin_key, outpoint);
        ask(m, SPV_EARLIER, spv_index_fetch(&m->found->coin_index, hash), hash, outpoint, SPV_OUTPOINT_SIZE);
    }
    if (m->pushes)
        ask(m, SPV_PUSHED, LOOK, 0, outpoint, 0);
}

/* Undo records. */

static void refuse_undo(undo_walk *u, spv_status status) {
    u->status = spv_refuse_undo(status);
}

/* Reads the number of a transaction's coins. It must be the number of its inputs. */
static void begin_tx(marker *m) {
    undo_walk *u = &m->undo;
    const spv_bytes undo = m->marks->undo;
    uint64_t count = 0;
    u->begun = true;
    u->start = u->at;
    u->status = spv_undo_count(undo.data, undo.size, &u->at, SPV_MIN_COIN_SIZE, &count, "undo input count", &u->error);
    if (!u->status && count != u->tx.inputs)
        refuse_undo(u, spv_refuse(&u->error, u->start, "undo input count", "must be %u, as in transaction %u, not %u", u->tx.inputs, m->tx, (unsigned)count));
    m->marks->spent[m->tx] = u->at;
}

SPV_INLINE void ask_coin(marker *m, const spv_packed_coin *coin, const uint8_t *outpoint) {
    uint8_t room[SPV_SHORT_SCRIPT];
    if (SPV_UNLIKELY(spv_has_full_key(coin))) {
        if (!m->table->full_keys.count && !m->types)
            return;
        spv_packed_key(coin, room);
        const uint64_t hash = spv_full_key_hash(&m->table->key, room);
        const uint16_t *tags = spv_index_fetch(&m->table->full_keys, hash);
        ask(m, SPV_SPENT, m->types ? LOOK : tags, hash, outpoint, SPV_OUTPOINT_SIZE);
        return;
    }
    const spv_bytes script = spv_plain_script(coin, room);
    if (!m->scripts || (!spv_is_middling(script.size) && !m->odd))
        return;
    const uint64_t hash = spv_keyed_hash(&m->table->key, SPV_SCRIPT, script.data, script.size);
    const uint16_t *tags = spv_index_fetch(&m->table->index, hash);
    ask(m, SPV_SPENT, m->slow ? LOOK : tags, hash, outpoint, SPV_OUTPOINT_SIZE);
}

SPV_INLINE void on_spent(void *context, const uint8_t *raw, size_t outpoint_at, size_t script, size_t script_end) {
    marker *m = context;
    undo_walk *u = &m->undo;
    m->coin = 0;
    if (SPV_LIKELY(m->tx && !u->status)) {
        if (!u->begun)
            begin_tx(m);
        const spv_bytes undo = m->marks->undo;
        const size_t at = u->at;
        spv_packed_coin coin = {0};
        if (SPV_LIKELY(!u->status))
            u->status = spv_read_coin(undo.data, undo.size, &u->at, &coin, &u->error);
        if (SPV_LIKELY(!u->status)) {
            m->coin = (uint32_t)at + 1;
            u->spent += coin.value;
            if (SPV_UNLIKELY(u->spent > SPV_MAX_MONEY))
                refuse_undo(u, spv_refuse(&u->error, at, "undo amount", "transaction %u spends more than 21 million coins", m->tx));
            ask_coin(m, &coin, raw + outpoint_at);
        }
    }
    on_input(context, raw, outpoint_at, script, script_end);
}

/* An output of a block without an undo record. */
SPV_INLINE void on_valued(void *context, const uint8_t *raw, size_t value_at, size_t script, size_t script_end) {
    marker *m = context;
    const uint64_t value = spv_le64(raw + value_at);
    m->undo.paid = value > SPV_MAX_MONEY || m->undo.paid + value > SPV_MAX_MONEY ? TOO_MUCH : m->undo.paid + value;
    on_output(context, raw, value_at, script, script_end);
}

SPV_INLINE void on_paid(void *context, const uint8_t *raw, size_t value_at, size_t script, size_t script_end) {
    marker *m = context;
    const uint64_t value = spv_le64(raw + value_at);
    m->undo.paid = value > SPV_MAX_MONEY || m->undo.paid + value > SPV_MAX_MONEY ? TOO_MUCH : m->undo.paid + value;
    on_output(context, raw, value_at, script, script_end);
}

static void end_tx(marker *m) {
    undo_walk *u = &m->undo;
    if (m->tx && !u->status && !u->begun) /* the last transaction had no inputs */
        begin_tx(m);
    if (m->tx && !u->status && u->spent < u->paid)
        refuse_undo(u, spv_refuse(&u->error, u->start, "undo amount", "transaction %u pays more than it spends", m->tx));
    u->begun = false;
    u->spent = u->paid = 0;
}

static void begin_undo(marker *m) {
    undo_walk *u = &m->undo;
    const spv_bytes undo = m->marks->undo;
    uint64_t total = 0;
    u->status = spv_undo_count(undo.data, undo.size, &u->at, 1, &total, "undo transaction count", &u->error);
    if (!u->status && total != m->marks->transactions - 1)
        refuse_undo(u, spv_refuse(&u->error, 0, "undo transaction count", "must be %u, as in the block, not %u", m->marks->transactions - 1, (unsigned)total));
}

static spv_status end_undo(marker *m, const spv_record *record, spv_error *error) {
    undo_walk *u = &m->undo;
    if (record->state != SPV_SOUND)
        return spv_refuse_record(record, error);
    if (!u->status)
        u->status = spv_undo_end(m->marks->undo.size, u->at, &u->error);
    if (u->status)
        *error = u->error;
    return u->status;
}

static marker begin(const spv_table *table, const spv_table *found, spv_marks *marks) {
    bool pushes = table->of_kind[SPV_DATA], types = table->of_kind[SPV_SCRIPT_TYPE];
    bool slow = pushes || types || table->of_kind[SPV_MULTISIG_KEY] || table->prefix_sizes;
    *marks = (spv_marks){0};
    return (marker){
        .table = table,
        .found = found,
        .marks = marks,
        .scripts = slow || table->of_kind[SPV_SCRIPT],
        .known = table->coins.count,
        .pushes = pushes,
        .types = types,
        .slow = slow,
        .odd = slow || table->odd_scripts,
    };
}

/* Remembers the first transaction that pays more than 21 million coins. */
static void note_excess(marker *m, size_t at) {
    if (m->undo.paid == TOO_MUCH && !m->excess)
        m->excess = at;
}

static spv_status walk(marker *m, const uint8_t *raw, size_t size, size_t at, spv_tx *tx, spv_error *error) {
    return spv_walk_tx_with(raw, size, at, tx, on_input, on_output, m, error);
}

static spv_status end(marker *m) {
    resolve(m);
    return m->status;
}

/* Prefetches the bytes at `at`, which the walk will read. A block that is read for the first time is not in a
   cache. The processor does not prefetch across a page, and is too late when the walk jumps from script to script. */
SPV_INLINE void fetch(const uint8_t *raw, size_t size, size_t at, size_t *fetched) {
    const size_t end = size - at < READ_AHEAD ? size : at + READ_AHEAD;
    for (*fetched = *fetched < at ? at : *fetched; *fetched < end; *fetched += LINE)
        __builtin_prefetch(raw + *fetched);
}

static spv_status walk_txs(marker *m, const uint8_t *raw, size_t size, size_t *at, spv_error *error) {
    spv_marks *marks = m->marks;
    spv_status status = SPV_OK;
    spv_tx tx = {0};
    size_t fetched = *at;
    for (; m->tx < marks->transactions && !status; m->tx++, *at = tx.end) {
        marks->starts[m->tx] = *at;
        fetch(raw, size, *at, &fetched);
        status = spv_walk_tx_with(raw, size, *at, &tx, on_input, on_valued, m, error);
        note_excess(m, *at);
        m->undo.paid = 0;
    }
    return status;
}

static spv_status walk_with_undo(marker *m, const uint8_t *raw, size_t size, size_t *at, spv_error *error) {
    spv_marks *marks = m->marks;
    spv_tx *tx = &m->undo.tx;
    spv_status status = SPV_OK;
    size_t fetched = *at;
    for (; m->tx < marks->transactions && !status; m->tx++, *at = tx->end) {
        marks->starts[m->tx] = *at;
        fetch(raw, size, *at, &fetched);
        status = spv_walk_tx_with(raw, size, *at, tx, on_spent, on_paid, m, error);
        note_excess(m, *at);
        if (!status)
            end_tx(m);
    }
    return status;
}

spv_status spv_mark_block(const spv_table *table, const spv_table *found, const uint8_t *raw, size_t size, const spv_record *record, spv_marks *marks,
                          spv_error *error) {
    marker m = begin(table, found, marks);
    size_t at = 0;
    spv_status status = spv_block_start(raw, size, &at, &marks->transactions, error);
    if (status)
        return status;
    const bool with_undo = record && record->state == SPV_SOUND;
    marks->starts = malloc(marks->transactions * sizeof *marks->starts); /* each transaction has 10 bytes or more in `raw` */
    if (with_undo)
        marks->spent = malloc(marks->transactions * sizeof *marks->spent);
    if (!marks->starts || (with_undo && !marks->spent))
        return SPV_NOMEM;
    if (with_undo) {
        marks->undo = spv_undo_of(record);
        begin_undo(&m);
        status = walk_with_undo(&m, raw, size, &at, error);
    } else {
        status = walk_txs(&m, raw, size, &at, error);
    }
    if (!status)
        status = spv_block_end(size, at, error);
    if (!status && m.excess) /* pure.blocks.check_amounts_of */
        status = spv_refuse(error, m.excess, "output values", "must be from 0 to %" PRIu64 " satoshi", (uint64_t)SPV_MAX_MONEY);
    if (!status && record)
        status = end_undo(&m, record, error);
    return status ? status : end(&m);
}

spv_status spv_mark_tx(const spv_table *table, const uint8_t *raw, size_t size, spv_marks *marks, spv_error *error) {
    marker m = begin(table, NULL, marks);
    spv_tx tx;
    spv_status status = walk(&m, raw, size, 0, &tx, error);
    if (!status)
        status = spv_tx_end(size, &tx, error);
    if (status)
        return status;
    marks->transactions = 1;
    if (!(marks->starts = calloc(1, sizeof *marks->starts)))
        return SPV_NOMEM;
    return end(&m);
}

void spv_marks_free(spv_marks *marks) {
    free(marks->marks);
    free(marks->starts);
    free(marks->spent);
}
