/* What the files that bind WatchTable share. */
#ifndef SPV_BINDING_WATCHTABLE_H
#define SPV_BINDING_WATCHTABLE_H

#include "binding/binding.h"

#include "watch/scan.h"
#include "watch/table.h"

typedef struct {
    PyObject_HEAD
    spv_table *table;
} watch_table;

extern PyTypeObject *spv_watch_table_type;
extern PyObject *spv_entry_kinds[SPV_KINDS]; /* the members of EntryKind */

SPV_INLINE spv_table *spv_table_of(PyObject *self) {
    return ((watch_table *)self)->table;
}

/* Locking, with the GIL released while there is something to wait for; then it stays released until the end, so no Python between
   the two. Nobody who has the GIL waits for a table's lock. */
SPV_INLINE PyThreadState *spv_begin_read(spv_table *table) {
    if (SPV_LIKELY(spv_try_read(&table->lock)))
        return NULL;
    PyThreadState *state = PyEval_SaveThread();
    spv_read(&table->lock);
    return state;
}

SPV_INLINE PyThreadState *spv_begin_write(spv_table *table) {
    if (SPV_LIKELY(spv_try_write(&table->lock)))
        return NULL;
    PyThreadState *state = PyEval_SaveThread();
    spv_write(&table->lock);
    return state;
}

SPV_INLINE void spv_finish_read(spv_table *table, PyThreadState *state) {
    spv_end_read(&table->lock);
    if (SPV_UNLIKELY(state != NULL))
        PyEval_RestoreThread(state);
}

SPV_INLINE void spv_finish_write(spv_table *table, PyThreadState *state) {
    spv_end_write(&table->lock);
    if (SPV_UNLIKELY(state != NULL))
        PyEval_RestoreThread(state);
}

PyObject *spv_bytes_or_none(spv_bytes bytes);
/* Arguments as the reference takes them; false with an exception set. */
bool spv_take_bytes(PyObject *object, spv_bytes *bytes);
bool spv_take_coin(PyObject *outpoint, PyObject *entry, PyObject *value, PyObject *script, spv_coin *coin);
bool spv_count_arguments(const char *name, Py_ssize_t count, Py_ssize_t wanted);

/* methods in other files */
PyObject *spv_wt_entries(PyObject *self, PyObject *nothing);
PyObject *spv_wt_coins(PyObject *self, PyObject *nothing);
PyObject *spv_wt_learn(PyObject *self, PyObject *hits);
PyObject *spv_wt_scan_block(PyObject *self, PyObject *arguments, PyObject *names);
PyObject *spv_wt_scan_tx(PyObject *self, PyObject *raw);
PyObject *spv_wt_add_address_lines(PyObject *self, PyObject *const *arguments, Py_ssize_t count);
int spv_add_watch_table_iterator(PyObject *module);
int spv_add_decode_address(PyObject *module);

#endif
