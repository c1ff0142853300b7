/* The object of a WatchTable, its locks, and the arguments and results that its methods share. */
#ifndef SPV_BINDING_WATCHTABLE_OBJECT_H
#define SPV_BINDING_WATCHTABLE_OBJECT_H

#include "binding/arguments.h"

#include "watch/table.h"

typedef struct {
    PyObject_HEAD
    spv_table *table;
    PyObject *view; /* a memoryview of the image that the table was made from, or NULL */
    /* Keeps the memory of the image. It is a buffer of the object below the memoryview: Python before 3.11.8 and 3.12.2
       crashes when the garbage collector clears a memoryview that has exported a buffer (gh-77894). */
    Py_buffer memory;
} spv_table_object;

SPV_INLINE spv_table *spv_table_of(PyObject *self) {
    return ((spv_table_object *)self)->table;
}

/* A WatchTable that owns `table`. `view` is a memoryview of the table's image, or NULL. On failure, `table` is freed. */
PyObject *spv_wrap_table(PyObject *type, spv_table *table, PyObject *view);

/* Locking. If a thread has to wait for the lock, the GIL is released until `finish`. Do not use Python between begin
   and finish. A thread never waits for a table's lock while it holds the GIL. */
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

/* A snapshot's bytes. */
SPV_INLINE spv_bytes spv_bytes_of(PyObject *snapshot) {
    return (spv_bytes){spv_data(snapshot), spv_size(snapshot)};
}

PyObject *spv_bytes_or_none(spv_bytes bytes);

/* values.WatchedCoin. */
PyObject *spv_coin_value(const spv_state *state, const spv_coin *coin);

/* An entry as (kind, bytes). */
PyObject *spv_entry_value(const spv_state *state, spv_entry entry);

/* pure.table._check_outpoint. */
bool spv_check_outpoint(const spv_state *state, PyObject *snapshot);
/* pure.table._check_entry: false with an exception set if the bytes are no entry of this kind. */
bool spv_check_entry(const spv_state *state, unsigned kind, PyObject *snapshot);

/* pure.table._checked: the coin of an outpoint. Its bytes belong to the objects held, which the caller releases.
   False with an exception set and nothing held. */
typedef struct {
    PyObject *outpoint, *script; /* snapshots; script may be NULL */
} spv_held_coin;

bool spv_take_coin(const spv_state *state, PyObject *outpoint, PyObject *entry, PyObject *value, PyObject *script, spv_coin *coin,
                   spv_held_coin *held);

SPV_INLINE void spv_let_coin_go(spv_held_coin *held) {
    Py_XDECREF(held->outpoint);
    Py_XDECREF(held->script);
}

#endif
