/* The iterators that WatchTable's entries() and coins() give: by number, one lookup under the lock for each step. */
#include "binding/watchtable.h"

#include <stdatomic.h>

typedef struct {
    PyObject_HEAD
    PyObject *owner; /* the WatchTable */
    PyObject *(*item)(spv_table *table, uint32_t number);
    _Atomic uint32_t next;
    uint32_t end; /* what came later is not given */
} table_iterator;

static PyTypeObject *iterator_type;

static PyObject *entry_item(spv_table *table, uint32_t number) {
    PyThreadState *state = spv_begin_read(table);
    const uint8_t *record = spv_table_record(table, number);
    spv_finish_read(table, state);
    return Py_BuildValue("(ON)", spv_entry_kinds[record[0] & 3], spv_bytes_or_none(spv_entry_bytes(record)));
}

static PyObject *coin_item(spv_table *table, uint32_t number) {
    uint8_t outpoint[SPV_OUTPOINT_SIZE];
    PyThreadState *state = spv_begin_read(table);
    spv_coin coin = spv_table_coin(table, number);
    memcpy(outpoint, coin.outpoint, sizeof outpoint);
    spv_finish_read(table, state);
    PyObject *items = Py_BuildValue("(kLN)", (unsigned long)coin.entry, (long long)coin.value, spv_bytes_or_none(coin.script));
    PyObject *known = spv_named(spv_known.Coin, items);
    return known ? Py_BuildValue("(NN)", PyBytes_FromStringAndSize((const char *)outpoint, sizeof outpoint), known) : NULL;
}

static PyObject *iterate(PyObject *owner, PyObject *item(spv_table *, uint32_t), uint32_t end) {
    allocfunc allocate = (allocfunc)PyType_GetSlot(iterator_type, Py_tp_alloc);
    table_iterator *iterator = (table_iterator *)allocate(iterator_type, 0);
    if (iterator) {
        iterator->owner = Py_NewRef(owner);
        iterator->item = item;
        iterator->end = end;
    }
    return (PyObject *)iterator;
}

PyObject *spv_wt_entries(PyObject *self, PyObject *nothing) {
    (void)nothing;
    spv_table *table = spv_table_of(self);
    PyThreadState *state = spv_begin_read(table);
    uint32_t end = table->entries.count;
    spv_finish_read(table, state);
    return iterate(self, entry_item, end);
}

PyObject *spv_wt_coins(PyObject *self, PyObject *nothing) {
    (void)nothing;
    spv_table *table = spv_table_of(self);
    PyThreadState *state = spv_begin_read(table);
    uint32_t end = table->coins.count;
    spv_finish_read(table, state);
    return iterate(self, coin_item, end);
}

static PyObject *step(PyObject *self) {
    table_iterator *iterator = (table_iterator *)self;
    uint32_t number = atomic_fetch_add(&iterator->next, 1);
    if (number < iterator->end)
        return iterator->item(spv_table_of(iterator->owner), number);
    atomic_store(&iterator->next, iterator->end);
    return NULL;
}

static PyObject *self_again(PyObject *self) {
    return Py_NewRef(self);
}

static void dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    Py_XDECREF(((table_iterator *)self)->owner);
    release(self);
    Py_DECREF(type);
}

int spv_add_watch_table_iterator(PyObject *module) {
    (void)module;
    PyType_Slot slots[] = {
        {Py_tp_iter, self_again},
        {Py_tp_iternext, step},
        {Py_tp_dealloc, dealloc},
        {0, NULL},
    };
    PyType_Spec spec = {
        "spvfilter.kernel.native.WatchTableIterator", sizeof(table_iterator), 0,
        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots,
    };
    PyObject *type = PyType_FromSpec(&spec);
    if (!type)
        return -1;
    iterator_type = (PyTypeObject *)type;
    return 0;
}
