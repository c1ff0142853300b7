/* Binding of watch/scan.h: WatchTable's scans, without the GIL, and what it learns of their hits. */
#include "binding/watchtable.h"

#include <stdlib.h>

/* Makes the hits' values; the txid of a transaction is one object for all of them. */
static PyObject *hit_values(const spv_hits *found, const spv_hit *hit, PyObject *txid) {
    uint8_t made[SPV_OUTPOINT_SIZE];
    const uint8_t *outpoint = hit->outpoint;
    if (!outpoint) {
        memcpy(made, found->txids[hit->txid], 32);
        spv_put_le32(made + 32, hit->n);
        outpoint = made;
    }
    PyObject *values[] = {
        PyBool_FromLong(hit->spend), PyLong_FromUnsignedLong(hit->position), Py_NewRef(txid), PyLong_FromUnsignedLong(hit->n),
        PyBytes_FromStringAndSize((const char *)outpoint, SPV_OUTPOINT_SIZE), PyLong_FromLongLong(hit->value),
        spv_bytes_or_none(hit->script), PyLong_FromUnsignedLong(hit->entry),
    };
    enum { VALUES = sizeof values / sizeof values[0] };
    PyObject *items = PyTuple_New(VALUES);
    bool whole = items != NULL;
    for (Py_ssize_t i = 0; i < VALUES; i++) {
        whole = whole && values[i];
        if (items)
            PyTuple_SetItem(items, i, values[i]); /* keeps it, and a NULL as well */
        else
            Py_XDECREF(values[i]);
    }
    if (!whole)
        Py_CLEAR(items);
    return spv_named(spv_known.Hit, items);
}

static PyObject *list_of(const spv_hits *found) {
    PyObject *list = PyList_New((Py_ssize_t)found->count);
    PyObject *txid = NULL;
    for (size_t i = 0; list && i < found->count; i++) {
        const spv_hit *hit = &found->hits[i];
        if (!i || hit->txid != found->hits[i - 1].txid) {
            Py_XDECREF(txid);
            txid = PyBytes_FromStringAndSize((const char *)found->txids[hit->txid], 32);
        }
        PyObject *value = txid ? hit_values(found, hit, txid) : NULL;
        if (!value || PyList_SetItem(list, (Py_ssize_t)i, value)) {
            Py_DECREF(list);
            list = NULL;
        }
    }
    Py_XDECREF(txid);
    return list;
}

PyObject *spv_wt_scan_block(PyObject *self, PyObject *arguments, PyObject *names) {
    static char *keywords[] = {"raw", "found", NULL};
    PyObject *raw, *found = Py_None;
    spv_bytes block;
    if (!PyArg_ParseTupleAndKeywords(arguments, names, "O|O:scan_block", keywords, &raw, &found) || !spv_take_bytes(raw, &block))
        return NULL;
    if (found != Py_None && !PyObject_TypeCheck(found, spv_watch_table_type))
        return PyErr_Format(PyExc_TypeError, "found must be a WatchTable or None");
    spv_hits hits;
    spv_error error;
    spv_status status;
    Py_BEGIN_ALLOW_THREADS
    status = spv_watch_block(spv_table_of(self), found == Py_None ? NULL : spv_table_of(found), block.data, block.size, &hits, &error);
    Py_END_ALLOW_THREADS
    PyObject *list = status ? spv_raise(status, &error) : list_of(&hits);
    spv_hits_free(&hits);
    return list;
}

PyObject *spv_wt_scan_tx(PyObject *self, PyObject *raw) {
    spv_bytes tx;
    spv_hits hits;
    spv_error error;
    spv_status status;
    if (!spv_take_bytes(raw, &tx))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = spv_watch_tx(spv_table_of(self), tx.data, tx.size, &hits, &error);
    Py_END_ALLOW_THREADS
    PyObject *list = status ? spv_raise(status, &error) : list_of(&hits);
    spv_hits_free(&hits);
    return list;
}

/* values.Hit: spend, position, txid, n, outpoint, value, script, entry. 1 for an output, 0 for a spend, -1 with an exception set. */
static int take_hit(PyObject *hit, spv_coin *coin) {
    if (!PyTuple_Check(hit) || PyTuple_Size(hit) != 8) {
        PyErr_SetString(PyExc_TypeError, "a Hit expected");
        return -1;
    }
    int spend = PyObject_IsTrue(PyTuple_GetItem(hit, 0));
    if (spend)
        return spend < 0 ? -1 : 0;
    PyObject *outpoint = PyTuple_GetItem(hit, 4), *value = PyTuple_GetItem(hit, 5);
    return spv_take_coin(outpoint, PyTuple_GetItem(hit, 7), value, PyTuple_GetItem(hit, 6), coin) ? 1 : -1;
}

PyObject *spv_wt_learn(PyObject *self, PyObject *hits) {
    spv_table *table = spv_table_of(self);
    PyObject *list = PySequence_List(hits); /* whatever that runs, it does before the lock is taken */
    if (!list)
        return NULL;
    Py_ssize_t size = PyList_Size(list);
    size_t count = 0;
    spv_coin *coins = malloc(((size_t)size + 1) * sizeof *coins);
    spv_status status = coins ? SPV_OK : SPV_NOMEM;
    int taken = 0;
    for (Py_ssize_t i = 0; coins && i < size && taken >= 0; i++) {
        taken = take_hit(PyList_GetItem(list, i), &coins[count]);
        count += taken == 1;
    }
    if (coins && taken >= 0 && count) {
        PyThreadState *state = spv_begin_write(table);
        for (size_t i = 0; i < count && !status; i++)
            status = spv_table_set_coin(table, &coins[i], false);
        spv_finish_write(table, state);
    }
    free(coins);
    Py_DECREF(list);
    if (status)
        return spv_raise(status, NULL);
    if (taken < 0)
        return NULL;
    Py_RETURN_NONE;
}
