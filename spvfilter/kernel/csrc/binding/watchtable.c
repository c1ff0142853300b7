/* Binding of watch/table.h: the type WatchTable, the twin of pure.table.WatchTable. Its scans are in watchtable_scan.c. */
#include "binding/watchtable.h"

#include <errno.h>

PyTypeObject *spv_watch_table_type;
PyObject *spv_entry_kinds[SPV_KINDS];

/* arguments */

bool spv_count_arguments(const char *name, Py_ssize_t count, Py_ssize_t wanted) {
    if (count != wanted)
        PyErr_Format(PyExc_TypeError, "%s() takes %zd arguments (%zd given)", name, wanted, count);
    return count == wanted;
}

bool spv_take_bytes(PyObject *object, spv_bytes *bytes) {
    char *at;
    Py_ssize_t size;
    if (PyBytes_AsStringAndSize(object, &at, &size)) /* TypeError for anything else: only bytes never change */
        return false;
    *bytes = (spv_bytes){(const uint8_t *)at, (size_t)size};
    return true;
}

static bool take_kind(PyObject *object, unsigned *kind) {
    for (unsigned i = 0; i < SPV_KINDS; i++)
        if (object == spv_entry_kinds[i]) {
            *kind = i;
            return true;
        }
    PyObject *member = PyObject_CallFunctionObjArgs(spv_known.EntryKind, object, NULL); /* ValueError for what is none */
    long value = member ? PyLong_AsLong(member) : -1;
    Py_XDECREF(member);
    *kind = (unsigned)value;
    return value >= 0 && value < SPV_KINDS;
}

static bool is_outpoint(spv_bytes value) {
    if (value.size != SPV_OUTPOINT_SIZE)
        PyErr_Format(spv_known.ParameterError, "an outpoint has 36 bytes, not %zu", value.size);
    return value.size == SPV_OUTPOINT_SIZE;
}

/* A whole number from `least` to `most`. */
static bool take_number(PyObject *object, long long least, long long most, const char *what, long long *number) {
    int overflow;
    *number = PyLong_AsLongLongAndOverflow(object, &overflow);
    if (*number == -1 && PyErr_Occurred())
        return false;
    if (!overflow && *number >= least && *number <= most)
        return true;
    PyErr_Format(spv_known.ParameterError, "%s: %S", what, object);
    return false;
}

bool spv_take_coin(PyObject *outpoint, PyObject *entry, PyObject *value, PyObject *script, spv_coin *coin) {
    spv_bytes point;
    long long number, satoshi;
    *coin = (spv_coin){0};
    if (!spv_take_bytes(outpoint, &point) || !is_outpoint(point) || (script != Py_None && !spv_take_bytes(script, &coin->script)))
        return false;
    if (!take_number(entry, 0, SPV_MAX_ENTRY, "not the number of an entry", &number))
        return false;
    if (!take_number(value, SPV_NO_VALUE, INT64_MAX, "not a value in satoshi", &satoshi))
        return false;
    coin->outpoint = point.data;
    coin->entry = (uint32_t)number;
    coin->value = satoshi;
    return true;
}

PyObject *spv_bytes_or_none(spv_bytes bytes) {
    if (!bytes.data)
        return Py_NewRef(Py_None);
    return PyBytes_FromStringAndSize((const char *)bytes.data, (Py_ssize_t)bytes.size);
}

static PyObject *number_or_no_entry(uint32_t number) {
    return PyLong_FromLongLong(number == SPV_NONE ? -1 : (long long)number); /* NO_ENTRY */
}

/* methods */

static PyObject *add(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    unsigned kind;
    spv_bytes value;
    if (!spv_count_arguments("add", count, 2) || !take_kind(arguments[0], &kind) || !spv_take_bytes(arguments[1], &value))
        return NULL;
    if (kind == SPV_OUTPOINT && !is_outpoint(value))
        return NULL;
    spv_table *table = spv_table_of(self);
    uint32_t number;
    PyThreadState *state = spv_begin_write(table);
    spv_status status = spv_table_add(table, kind, value, &number);
    spv_finish_write(table, state);
    return status ? spv_raise(status, NULL) : number_or_no_entry(number);
}

static PyObject *find(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    unsigned kind;
    spv_bytes value;
    if (!spv_count_arguments("find", count, 2) || !take_kind(arguments[0], &kind) || !spv_take_bytes(arguments[1], &value))
        return NULL;
    spv_table *table = spv_table_of(self);
    PyThreadState *state = spv_begin_read(table);
    uint32_t number = spv_table_find(table, kind, value);
    spv_finish_read(table, state);
    return number_or_no_entry(number);
}

static PyObject *entry(PyObject *self, PyObject *argument) {
    spv_table *table = spv_table_of(self);
    Py_ssize_t number = PyNumber_AsSsize_t(argument, PyExc_IndexError);
    if (number == -1 && PyErr_Occurred())
        return NULL;
    const uint8_t *record = NULL;
    PyThreadState *state = spv_begin_read(table);
    if (number >= 0 && (size_t)number < table->entries.count)
        record = spv_table_record(table, (uint32_t)number);
    spv_finish_read(table, state);
    if (!record)
        return PyErr_Format(PyExc_IndexError, "no entry %zd", number);
    return Py_BuildValue("(ON)", spv_entry_kinds[record[0] & 3], spv_bytes_or_none(spv_entry_bytes(record)));
}

static PyObject *coin(PyObject *self, PyObject *argument) {
    spv_table *table = spv_table_of(self);
    spv_bytes outpoint;
    spv_coin known = {0};
    if (!spv_take_bytes(argument, &outpoint))
        return NULL;
    PyThreadState *state = spv_begin_read(table);
    uint32_t number = outpoint.size == SPV_OUTPOINT_SIZE ? spv_table_find_coin(table, outpoint.data) : SPV_NONE;
    if (number != SPV_NONE)
        known = spv_table_coin(table, number);
    spv_finish_read(table, state);
    if (number == SPV_NONE)
        Py_RETURN_NONE;
    PyObject *items = Py_BuildValue("(kLN)", (unsigned long)known.entry, (long long)known.value, spv_bytes_or_none(known.script));
    return spv_named(spv_known.Coin, items);
}

static PyObject *set_coin(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    spv_table *table = spv_table_of(self);
    spv_coin new;
    if (!spv_count_arguments("set_coin", count, 4) || !spv_take_coin(arguments[0], arguments[1], arguments[2], arguments[3], &new))
        return NULL;
    PyThreadState *state = spv_begin_write(table);
    spv_status status = spv_table_set_coin(table, &new, false);
    spv_finish_write(table, state);
    if (status)
        return spv_raise(status, NULL);
    Py_RETURN_NONE;
}

static PyObject *match_script(PyObject *self, PyObject *argument) {
    spv_table *table = spv_table_of(self);
    spv_bytes script;
    if (!spv_take_bytes(argument, &script))
        return NULL;
    PyThreadState *state = spv_begin_read(table);
    uint32_t number = spv_table_match_script(table, script);
    spv_finish_read(table, state);
    return number_or_no_entry(number);
}

static Py_ssize_t length(PyObject *self) {
    spv_table *table = spv_table_of(self);
    PyThreadState *state = spv_begin_read(table);
    uint32_t count = table->entries.count;
    spv_finish_read(table, state);
    return (Py_ssize_t)count;
}

static PyObject *size_of(PyObject *self, PyObject *nothing) {
    (void)nothing;
    spv_table *table = spv_table_of(self);
    PyThreadState *state = spv_begin_read(table);
    size_t size = sizeof(watch_table) + spv_table_size(table);
    spv_finish_read(table, state);
    return PyLong_FromSize_t(size);
}

/* life */

static PyObject *wrap(PyTypeObject *type, spv_table *table) {
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    PyObject *self = allocate(type, 0);
    if (self)
        ((watch_table *)self)->table = table;
    else
        spv_table_free(table);
    return self;
}

static PyObject *new(PyTypeObject *type, PyObject *arguments, PyObject *names) {
    if (PyTuple_Size(arguments) || (names && PyDict_Size(names))) {
        PyErr_SetString(PyExc_TypeError, "WatchTable() takes no arguments");
        return NULL;
    }
    spv_table *table = spv_table_new();
    if (table)
        return wrap(type, table);
    return errno == ENOMEM ? PyErr_NoMemory() : PyErr_SetFromErrno(PyExc_OSError);
}

static PyObject *copy(PyObject *self, PyObject *nothing) {
    (void)nothing;
    spv_table *table = spv_table_of(self), *twin;
    spv_status status;
    Py_BEGIN_ALLOW_THREADS
    spv_read(&table->lock);
    status = spv_table_copy(table, &twin);
    spv_end_read(&table->lock);
    Py_END_ALLOW_THREADS
    return status ? spv_raise(status, NULL) : wrap(spv_watch_table_type, twin);
}

static void dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    spv_table_free(spv_table_of(self));
    release(self);
    Py_DECREF(type);
}

#define FAST(function) (PyCFunction)(void (*)(void))(function)

static PyMethodDef methods[] = {
    {"add", FAST(add), METH_FASTCALL, "The entry's number, from 0; an entry already there keeps its own."},
    {"find", FAST(find), METH_FASTCALL, "The number of an entry, or NO_ENTRY."},
    {"entry", entry, METH_O, "Kind and bytes of an entry by its number."},
    {"entries", spv_wt_entries, METH_NOARGS, "Every entry there is now, in the order of their numbers."},
    {"coin", coin, METH_O, "What is known of an outpoint (36 bytes), if it is watched."},
    {"coins", spv_wt_coins, METH_NOARGS, "Every outpoint watched now (36 bytes) with what is known of it when its turn comes."},
    {"set_coin", FAST(set_coin), METH_FASTCALL,
     "Watch an outpoint on behalf of `entry`; an outpoint already watched keeps its entry and gains what it lacked."},
    {"learn", spv_wt_learn, METH_O, "Watch the outpoints of the outputs among `hits`."},
    {"copy", copy, METH_NOARGS, "A table that shares nothing with this one."},
    {"match_script", match_script, METH_O,
     "The entry that an output with this scriptPubKey concerns, or NO_ENTRY: by script, then by multisig key, then by data."},
    {"scan_block", FAST(spv_wt_scan_block), METH_VARARGS | METH_KEYWORDS,
     "Every output and input of a block that concerns the table: transactions in order, inputs before outputs."},
    {"scan_tx", spv_wt_scan_tx, METH_O, "The same for one transaction. Raises FormatError for a malformed one."},
    {"add_address_lines", FAST(spv_wt_add_address_lines), METH_FASTCALL,
     "Add the addresses of lines that hold one each, with or without a label, up to the first other line."},
    {"__sizeof__", size_of, METH_NOARGS, "Bytes of memory."},
    {NULL, NULL, 0, NULL},
};

int spv_add_watch_table(PyObject *module) {
    PyType_Slot slots[] = {
        {Py_tp_doc, "Entries and coins, and the scan for them. Scans read only; what they found is learned by `learn`."},
        {Py_tp_new, new},
        {Py_tp_dealloc, dealloc},
        {Py_tp_methods, methods},
        {Py_sq_length, length},
        {0, NULL},
    };
    PyType_Spec spec = {"spvfilter.kernel.native.WatchTable", sizeof(watch_table), 0, Py_TPFLAGS_DEFAULT, slots};
    PyObject *type = PyType_FromSpec(&spec);
    if (!type)
        return -1;
    spv_watch_table_type = (PyTypeObject *)type;
    for (int i = 0; i < SPV_KINDS; i++) {
        PyObject *member = PyObject_CallFunction(spv_known.EntryKind, "i", i);
        if (!member)
            return -1;
        Py_XSETREF(spv_entry_kinds[i], member);
    }
    if (PyModule_AddObjectRef(module, "WatchTable", type))
        return -1;
    return spv_add_watch_table_iterator(module) || spv_add_decode_address(module) ? -1 : 0;
}
