#include "binding/watchtable/entries.h"

static bool take_kind(const spv_state *state, PyObject *object, unsigned *kind) {
    for (unsigned i = 0; i < SPV_KINDS; i++)
        if (object == state->entry_kinds[i]) {
            *kind = i;
            return true;
        }
    PyObject *member = PyObject_CallFunctionObjArgs(state->EntryKind, object, NULL); /* raises ValueError if there is no such kind */
    const long value = member ? PyLong_AsLong(member) : -1;
    Py_XDECREF(member);
    *kind = (unsigned)value;
    return value >= 0 && value < SPV_KINDS;
}

static PyObject *number_or_no_entry(uint32_t number) {
    return PyLong_FromLongLong(number == SPV_NONE ? -1 : (long long)number); /* NO_ENTRY */
}

PyObject *spv_wt_add(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    const spv_state *state = spv_object_state(self);
    unsigned kind;
    if (!spv_count_arguments("add", count, 2) || !take_kind(state, arguments[0], &kind))
        return NULL;
    PyObject *value = spv_snapshot(arguments[1]);
    if (!value || !spv_check_entry(state, kind, value)) {
        Py_XDECREF(value);
        return NULL;
    }
    spv_table *table = spv_table_of(self);
    uint32_t number;
    PyThreadState *thread = spv_begin_write(table);
    const spv_status status = spv_table_add(table, kind, spv_bytes_of(value), &number);
    spv_finish_write(table, thread);
    Py_DECREF(value);
    return status ? spv_raise(state, status, NULL) : number_or_no_entry(number);
}

PyObject *spv_wt_find(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    unsigned kind;
    if (!spv_count_arguments("find", count, 2) || !take_kind(spv_object_state(self), arguments[0], &kind))
        return NULL;
    PyObject *value = spv_snapshot(arguments[1]);
    if (!value)
        return NULL;
    spv_table *table = spv_table_of(self);
    PyThreadState *thread = spv_begin_read(table);
    const uint32_t number = spv_table_find(table, kind, spv_bytes_of(value));
    spv_finish_read(table, thread);
    Py_DECREF(value);
    return number_or_no_entry(number);
}

PyObject *spv_wt_count_of(PyObject *self, PyObject *argument) {
    unsigned kind;
    if (!take_kind(spv_object_state(self), argument, &kind))
        return NULL;
    spv_table *table = spv_table_of(self);
    PyThreadState *thread = spv_begin_read(table);
    const uint32_t count = table->of_kind[kind];
    spv_finish_read(table, thread);
    return PyLong_FromUnsignedLong(count);
}

PyObject *spv_wt_entry(PyObject *self, PyObject *argument) {
    spv_table *table = spv_table_of(self);
    PyObject *whole = PyNumber_Index(argument), *found = NULL;
    if (!whole)
        return NULL;
    int overflow;
    const long long number = PyLong_AsLongLongAndOverflow(whole, &overflow);
    spv_entry entry;
    bool is_there;
    PyThreadState *thread = spv_begin_read(table);
    is_there = !overflow && number >= 0 && (unsigned long long)number < spv_table_count(table);
    entry = spv_table_entry(table, is_there ? (uint32_t)number : SPV_NONE);
    spv_finish_read(table, thread);
    if (is_there)
        found = spv_entry_value(spv_object_state(self), entry);
    else
        PyErr_Format(PyExc_IndexError, "there is no entry %S", whole);
    Py_DECREF(whole);
    return found;
}

PyObject *spv_wt_coin(PyObject *self, PyObject *argument) {
    spv_table *table = spv_table_of(self);
    spv_coin known = {0};
    PyObject *snapshot = spv_snapshot(argument);
    if (!snapshot)
        return NULL;
    PyThreadState *thread = spv_begin_read(table);
    const uint32_t number = spv_size(snapshot) == SPV_OUTPOINT_SIZE ? spv_table_find_coin(table, spv_data(snapshot)) : SPV_NONE;
    if (number != SPV_NONE)
        known = spv_table_coin(table, number);
    spv_finish_read(table, thread);
    Py_DECREF(snapshot);
    return number == SPV_NONE ? Py_NewRef(Py_None) : spv_coin_value(spv_object_state(self), &known);
}

PyObject *spv_wt_set_coin(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    const spv_state *state = spv_object_state(self);
    spv_table *table = spv_table_of(self);
    spv_coin new;
    spv_held_coin held;
    if (!spv_count_arguments("set_coin", count, 4)
        || !spv_take_coin(state, arguments[0], arguments[1], arguments[2], arguments[3], &new, &held))
        return NULL;
    PyThreadState *thread = spv_begin_write(table);
    const spv_status status = spv_table_set_coin(table, &new, false);
    spv_finish_write(table, thread);
    spv_let_coin_go(&held);
    return status ? spv_raise(state, status, NULL) : Py_NewRef(Py_None);
}

PyObject *spv_wt_match_script(PyObject *self, PyObject *argument) {
    spv_table *table = spv_table_of(self);
    PyObject *script = spv_snapshot(argument);
    if (!script)
        return NULL;
    PyThreadState *thread = spv_begin_read(table);
    const uint32_t number = spv_table_match_script(table, spv_bytes_of(script));
    spv_finish_read(table, thread);
    Py_DECREF(script);
    return number_or_no_entry(number);
}
