#include "binding/watchtable/scan.h"

#include "watch/batch.h"

#include <stdlib.h>

PyObject *spv_hit_value(const spv_state *state, const spv_packed_hit *hit, PyObject *txid) {
    uint8_t made[SPV_OUTPOINT_SIZE];
    const uint8_t *outpoint = hit->outpoint;
    if (!outpoint) {
        memcpy(made, hit->txid, 32);
        spv_put_le32(made + 32, hit->n);
        outpoint = made;
    }
    PyObject *values[] = {
        PyBool_FromLong(hit->spend), PyLong_FromUnsignedLong(hit->position), Py_NewRef(txid), PyLong_FromUnsignedLong(hit->n),
        PyBytes_FromStringAndSize((const char *)outpoint, SPV_OUTPOINT_SIZE), PyLong_FromLongLong(hit->value),
        spv_bytes_or_none(hit->script), PyLong_FromUnsignedLong(hit->entry), PyLong_FromLongLong(hit->fee),
    };
    enum { VALUES = sizeof values / sizeof values[0] };
    PyObject *items = PyTuple_New(VALUES);
    bool whole = items != NULL;
    for (Py_ssize_t i = 0; i < VALUES; i++) {
        whole = whole && values[i];
        if (items)
            PyTuple_SetItem(items, i, values[i]); /* takes the reference, which may be NULL */
        else
            Py_XDECREF(values[i]);
    }
    if (!whole)
        Py_CLEAR(items);
    return spv_named(state->Hit, items);
}

PyObject *spv_hit_values(const spv_state *state, const spv_hits *found) {
    PyObject *list = PyList_New((Py_ssize_t)found->count);
    PyObject *txid = NULL;
    for (size_t i = 0; list && i < found->count; i++) {
        const spv_packed_hit hit = spv_hit_at(found, i);
        if (!i || found->hits[i].txid != found->hits[i - 1].txid) { /* the txid of a transaction is one object for all of its hits */
            Py_XDECREF(txid);
            txid = PyBytes_FromStringAndSize((const char *)hit.txid, 32);
        }
        PyObject *value = txid ? spv_hit_value(state, &hit, txid) : NULL;
        if (!value || PyList_SetItem(list, (Py_ssize_t)i, value))
            Py_CLEAR(list);
    }
    Py_XDECREF(txid);
    return list;
}

bool spv_take_found(const spv_state *state, PyObject *found, spv_table **table) {
    *table = NULL;
    if (found == Py_None)
        return true;
    if (!PyObject_TypeCheck(found, (PyTypeObject *)state->WatchTable))
        return spv_refuse_type("found must be a WatchTable or None, not %U", found);
    *table = spv_table_of(found);
    return true;
}

/* The checked record of a block, and its memory, which the caller frees. No record if `bytes` has no data. */
static spv_status take_record(spv_bytes bytes, spv_bytes block, uint8_t **memory, spv_record *record) {
    *memory = NULL;
    *record = (spv_record){0};
    if (!bytes.data)
        return SPV_OK;
    if (!(*memory = malloc(SPV_HASH_BEFORE + bytes.size)))
        return SPV_NOMEM;
    *record = spv_copy_record(bytes, block, *memory);
    return spv_check_records(record, 1);
}

PyObject *spv_wt_scan_block(PyObject *self, PyObject *arguments, PyObject *names) {
    static char *keywords[] = {"raw", "found", "undo", NULL};
    const spv_state *state = spv_object_state(self);
    PyObject *given, *found = Py_None, *beside = Py_None;
    if (!PyArg_ParseTupleAndKeywords(arguments, names, "O|OO:scan_block", keywords, &given, &found, &beside))
        return NULL;
    spv_table *table = spv_table_of(self), *earlier;
    PyObject *raw = spv_take_found(state, found, &earlier) ? spv_snapshot(given) : NULL;
    PyObject *undo = raw && beside != Py_None ? spv_snapshot(beside) : NULL;
    if (!raw || (!undo && beside != Py_None)) {
        Py_XDECREF(raw);
        return NULL;
    }
    const spv_bytes block = spv_bytes_of(raw), bytes = undo ? spv_bytes_of(undo) : (spv_bytes){NULL, 0};
    spv_hits hits = {0};
    spv_record record;
    uint8_t *memory;
    spv_error error;
    spv_status status;
    Py_BEGIN_ALLOW_THREADS
    status = take_record(bytes, block, &memory, &record);
    if (!status)
        status = spv_watch_block(table, earlier, block.data, block.size, undo ? &record : NULL, &hits, &error);
    Py_END_ALLOW_THREADS
    PyObject *list = status ? spv_raise(state, status, &error) : spv_hit_values(state, &hits);
    spv_hits_free(&hits);
    free(memory);
    Py_DECREF(raw);
    Py_XDECREF(undo);
    return list;
}

PyObject *spv_wt_scan_tx(PyObject *self, PyObject *given) {
    const spv_state *state = spv_object_state(self);
    PyObject *raw = spv_snapshot(given);
    if (!raw)
        return NULL;
    spv_table *table = spv_table_of(self);
    const spv_bytes tx = spv_bytes_of(raw);
    spv_hits hits;
    spv_error error;
    spv_status status;
    Py_BEGIN_ALLOW_THREADS
    status = spv_watch_tx(table, tx.data, tx.size, &hits, &error);
    Py_END_ALLOW_THREADS
    PyObject *list = status ? spv_raise(state, status, &error) : spv_hit_values(state, &hits);
    spv_hits_free(&hits);
    Py_DECREF(raw);
    return list;
}

/* learn. */

enum { SPEND, OUTPOINT = 4, VALUE, SCRIPT, ENTRY, FEE, FIELDS }; /* fields of values.Hit */

/* The coins of the outputs among hits. */
typedef struct {
    spv_coin *coins;
    spv_held_coin *held;
    size_t count;
} learned;

/* False with an exception set. */
static bool take_hit(const spv_state *state, PyObject *hit, learned *to) {
    if (!PyObject_TypeCheck(hit, (PyTypeObject *)state->Hit) || PyTuple_Size(hit) != FIELDS)
        return spv_refuse_type("expected a Hit, not %U", hit);
    const int spend = PyObject_IsTrue(PyTuple_GetItem(hit, SPEND));
    if (spend)
        return spend > 0;
    PyObject *outpoint = PyTuple_GetItem(hit, OUTPOINT), *entry = PyTuple_GetItem(hit, ENTRY);
    PyObject *value = PyTuple_GetItem(hit, VALUE), *script = PyTuple_GetItem(hit, SCRIPT);
    if (!spv_take_coin(state, outpoint, entry, value, script, &to->coins[to->count], &to->held[to->count]))
        return false;
    to->count++;
    return true;
}

static bool take_hits(const spv_state *state, PyObject *list, learned *to) {
    const size_t size = (size_t)PyList_Size(list);
    to->coins = PyMem_Malloc((size + 1) * sizeof *to->coins);
    to->held = PyMem_Malloc((size + 1) * sizeof *to->held);
    if (!to->coins || !to->held) {
        PyErr_NoMemory();
        return false;
    }
    for (size_t i = 0; i < size; i++)
        if (!take_hit(state, PyList_GetItem(list, (Py_ssize_t)i), to))
            return false;
    return true;
}

PyObject *spv_wt_learn(PyObject *self, PyObject *hits) {
    const spv_state *state = spv_object_state(self);
    spv_table *table = spv_table_of(self);
    PyObject *list = spv_list(state, hits); /* all Python code of the iterable and of the hits runs before the lock is taken */
    learned taken = {0};
    bool done = list && take_hits(state, list, &taken);
    if (done && taken.count) {
        spv_status status = SPV_OK;
        PyThreadState *thread = spv_begin_write(table);
        for (size_t i = 0; i < taken.count && !status; i++)
            if (!spv_is_pattern(table, taken.coins[i].entry))
                status = spv_table_set_coin(table, &taken.coins[i], false);
        spv_finish_write(table, thread);
        done = !status || spv_raise(state, status, NULL);
    }
    for (size_t i = 0; i < taken.count; i++)
        spv_let_coin_go(&taken.held[i]);
    PyMem_Free(taken.held);
    PyMem_Free(taken.coins);
    Py_XDECREF(list);
    return done ? Py_NewRef(Py_None) : NULL;
}

/* learn_packed. */

static spv_status learn_outputs(spv_table *table, spv_bytes packed, size_t *outputs) {
    spv_status status = SPV_OK;
    for (size_t at = 0; at < packed.size && !status;) {
        spv_packed_hit hit;
        spv_error error;
        status = spv_next_hit(packed, &at, &hit, &error);
        if (status || hit.spend || spv_is_pattern(table, hit.entry))
            continue;
        uint8_t outpoint[SPV_OUTPOINT_SIZE];
        memcpy(outpoint, hit.txid, sizeof(spv_hash));
        spv_put_le32(outpoint + sizeof(spv_hash), hit.n);
        const spv_coin coin = {.outpoint = outpoint, .script = hit.script, .value = hit.value, .entry = hit.entry};
        status = spv_table_set_coin(table, &coin, false);
        ++*outputs;
    }
    return status;
}

PyObject *spv_wt_learn_packed(PyObject *self, PyObject *given) {
    const spv_state *state = spv_object_state(self);
    spv_table *table = spv_table_of(self);
    PyObject *taken = spv_snapshot(given);
    if (!taken)
        return NULL;
    const spv_bytes packed = spv_bytes_of(taken);
    spv_error error;
    spv_hits_read read = {0};
    size_t at = 0, outputs = 0;
    spv_status status = spv_read_hits(&read, packed, &at, packed.size, &error); /* reads everything before any outpoint is added */
    if (!status && read.count) {
        PyThreadState *thread = spv_begin_write(table);
        status = learn_outputs(table, packed, &outputs);
        spv_finish_write(table, thread);
    }
    Py_DECREF(taken);
    return status ? spv_raise(state, status, &error) : PyLong_FromSize_t(outputs);
}
