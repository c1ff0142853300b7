#include "binding/watchtable/iterators.h"

#include <stdatomic.h>

typedef PyObject *item_of(const spv_state *state, spv_table *table, uint32_t number);

typedef struct {
    PyObject_HEAD
    PyObject *owner; /* the WatchTable */
    item_of *item;
    _Atomic uint32_t next;
    uint32_t end; /* later entries are not yielded */
} table_iterator;

static PyObject *entry_item(const spv_state *state, spv_table *table, uint32_t number) {
    PyThreadState *thread = spv_begin_read(table);
    const spv_entry entry = spv_table_entry(table, number);
    spv_finish_read(table, thread);
    return spv_entry_value(state, entry);
}

static PyObject *coin_item(const spv_state *state, spv_table *table, uint32_t number) {
    uint8_t outpoint[SPV_OUTPOINT_SIZE];
    PyThreadState *thread = spv_begin_read(table);
    const spv_coin coin = spv_table_coin(table, number);
    memcpy(outpoint, coin.outpoint, sizeof outpoint);
    spv_finish_read(table, thread);
    PyObject *known = spv_coin_value(state, &coin);
    return known ? Py_BuildValue("(NN)", PyBytes_FromStringAndSize((const char *)outpoint, sizeof outpoint), known) : NULL;
}

static PyObject *iterate(PyObject *owner, item_of *item, uint32_t end) {
    PyObject *self = spv_allocate(spv_object_state(owner)->WatchTableIterator);
    table_iterator *iterator = (table_iterator *)self;
    if (iterator) {
        iterator->owner = Py_NewRef(owner);
        iterator->item = item;
        iterator->end = end;
    }
    return self;
}

PyObject *spv_wt_entries(PyObject *self, PyObject *Py_UNUSED(none)) {
    spv_table *table = spv_table_of(self);
    PyThreadState *thread = spv_begin_read(table);
    const uint32_t end = spv_table_count(table);
    spv_finish_read(table, thread);
    return iterate(self, entry_item, end);
}

PyObject *spv_wt_coins(PyObject *self, PyObject *Py_UNUSED(none)) {
    spv_table *table = spv_table_of(self);
    PyThreadState *thread = spv_begin_read(table);
    const uint32_t end = table->coins.count;
    spv_finish_read(table, thread);
    return iterate(self, coin_item, end);
}

static PyObject *step(PyObject *self) {
    table_iterator *iterator = (table_iterator *)self;
    const uint32_t number = atomic_fetch_add(&iterator->next, 1);
    if (number < iterator->end)
        return iterator->item(spv_object_state(self), spv_table_of(iterator->owner), number);
    atomic_store(&iterator->next, iterator->end);
    return NULL;
}

static int traverse(PyObject *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((table_iterator *)self)->owner);
    return 0;
}

static int clear(PyObject *self) {
    table_iterator *iterator = (table_iterator *)self;
    iterator->end = 0;
    Py_CLEAR(iterator->owner);
    return 0;
}

static void end(PyObject *self) {
    spv_end_object(self, clear);
}

bool spv_make_table_iterator(PyObject *module, spv_state *state) {
    static PyType_Slot slots[] = {
        {Py_tp_iter, PyObject_SelfIter},
        {Py_tp_iternext, step},
        {Py_tp_traverse, traverse},
        {Py_tp_clear, clear},
        {Py_tp_dealloc, end},
        {0, NULL},
    };
    static PyType_Spec spec = {
        .name = "spvfilter.kernel.native.WatchTableIterator",
        .basicsize = sizeof(table_iterator),
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
        .slots = slots,
    };
    return spv_make_type(module, &state->WatchTableIterator, &spec, false);
}
