#include "watch/marks.h"

#include "array.h"
#include "block/walk.h"

/* The walk is bound by memory latency: the hashes of a batch are made and their groups prefetched before the first of them is looked up. */
enum { BATCH = 64, REASON_SHIFT = 30 /* a block has fewer than 2^25 transactions */ };

static const uint16_t LOOK[SPV_GROUP] = {[SPV_GROUP - 1] = 1}; /* tags that rule nothing out */

typedef struct {
    const uint16_t *tags;
    uint64_t hash;
    const uint8_t *at;
    uint32_t size;
    uint32_t tx; /* and the reason above REASON_SHIFT */
} probe;

typedef struct {
    const spv_table *table, *found;
    spv_marks *marks;
    bool scripts, odd, slow; /* some entry may match an output; one of any size; one whose script is not an entry */
    bool known, pushes;      /* there are coins; there are data entries */
    uint32_t tx;
    uint32_t waiting;
    spv_status status;
    probe batch[BATCH];
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
        probe->at, probe->tx & (((uint32_t)1 << REASON_SHIFT) - 1), number, probe->tx >> REASON_SHIFT,
    };
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
    m->batch[m->waiting] = (probe){tags, hash, at, (uint32_t)size, m->tx | reason << REASON_SHIFT};
    if (SPV_UNLIKELY(++m->waiting == BATCH))
        resolve(m);
}

SPV_INLINE void on_output(void *context, const uint8_t *raw, size_t value_at, size_t script, size_t script_end) {
    (void)value_at;
    marker *m = context;
    size_t size = script_end - script;
    if (!m->scripts || (!spv_is_middling(size) && !m->odd)) /* no entry has this size */
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
        uint64_t hash = spv_outpoint_hash(&m->table->key, outpoint);
        ask(m, SPV_KNOWN, spv_index_fetch(&m->table->coin_index, hash), hash, outpoint, SPV_OUTPOINT_SIZE);
    }
    if (m->found) {
        uint64_t hash = spv_outpoint_hash(&m->found->key, outpoint);
        ask(m, SPV_EARLIER, spv_index_fetch(&m->found->coin_index, hash), hash, outpoint, SPV_OUTPOINT_SIZE);
    }
    if (m->pushes)
        ask(m, SPV_PUSHED, LOOK, 0, outpoint, 0);
}

static marker begin(const spv_table *table, const spv_table *found, spv_marks *marks) {
    bool pushes = table->of_kind[SPV_DATA], slow = pushes || table->of_kind[SPV_MULTISIG_KEY];
    *marks = (spv_marks){0};
    return (marker){
        .table = table,
        .found = found,
        .marks = marks,
        .scripts = slow || table->of_kind[SPV_SCRIPT],
        .known = table->coins.count,
        .pushes = pushes,
        .slow = slow,
        .odd = slow || table->odd_scripts,
    };
}

static spv_status walk(marker *m, const uint8_t *raw, size_t size, size_t at, spv_tx *tx, spv_error *error) {
    return spv_walk_tx_with(raw, size, at, tx, on_input, on_output, m, error);
}

static spv_status end(marker *m) {
    resolve(m);
    return m->status;
}

spv_status spv_mark_block(const spv_table *table, const spv_table *found, const uint8_t *raw, size_t size, spv_marks *marks, spv_error *error) {
    marker m = begin(table, found, marks);
    size_t at = 0;
    spv_tx tx;
    spv_status status = spv_block_start(raw, size, &at, &marks->transactions, error);
    if (status)
        return status;
    marks->starts = malloc(marks->transactions * sizeof *marks->starts); /* each has 10 bytes or more in `raw` */
    if (!marks->starts)
        return SPV_NOMEM;
    for (; m.tx < marks->transactions; m.tx++, at = tx.end) {
        marks->starts[m.tx] = at;
        if ((status = walk(&m, raw, size, at, &tx, error)))
            return status;
    }
    status = spv_block_end(size, at, error);
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
}
