#include "binding/hitcolumns.h"

#include "binding/addresses.h"
#include "binding/columnvalue.h"
#include "binding/packed.h"

#include "watch/hitcolumns.h"

/* The arguments of a call: the blocks, snapshots of bytes, and the columns. */
typedef struct {
    PyObject *blocks, *places, *texts; /* `blocks` is a list of (hash, height, time, packed), each a tuple */
    spv_hit_table table;
} call;

static void end(call *of) {
    for (size_t i = 0; i < SPV_HIT_COLUMNS; i++)
        spv_column_free(&of->table.columns[i]);
    Py_XDECREF(of->blocks);
    Py_XDECREF(of->places);
    Py_XDECREF(of->texts);
}

/* Adds the rows of a block without the GIL, which is acquired now and then to check for signals. False with an
   exception set. */
static bool add_block(const spv_state *state, call *of, PyObject *given, PyObject *hrp) {
    enum { SLICE = 1 << 20 }; /* bytes of packed hits between two checks for signals: some milliseconds */
    spv_hit_block block;
    spv_status status = SPV_OK;
    spv_error error;
    PyObject *taken = spv_snapshot(PyTuple_GetItem(given, 3));
    if (!taken)
        return false;
    const spv_bytes packed = {spv_data(taken), spv_size(taken)};
    spv_hits_read read = {0};
    bool done = spv_take_hit_block(
        state, PyTuple_GetItem(given, 0), PyTuple_GetItem(given, 1), PyTuple_GetItem(given, 2), INT32_MAX, &block
    ) && spv_read_packed(state, &read, packed);
    for (size_t at = 0; done && at < packed.size;) {
        const size_t until = packed.size - at > SLICE ? at + SLICE : packed.size;
        Py_BEGIN_ALLOW_THREADS
        status = spv_add_hit_rows(&of->table, &block, packed, &at, until, &error);
        Py_END_ALLOW_THREADS
        if (of->table.unfit)
            done = spv_refuse_hrp(state, hrp, of->table.unfit) != NULL;
        else if (status)
            done = spv_raise(state, status, &error) != NULL;
        else
            done = !PyErr_CheckSignals();
    }
    Py_DECREF(taken);
    return done;
}

/* Takes the blocks. False with an exception set. */
static bool take_blocks(const spv_state *state, PyObject *given, call *of) {
    if (!(of->blocks = spv_list(state, given)))
        return false;
    const Py_ssize_t count = PyList_Size(of->blocks);
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *block = PyList_GetItem(of->blocks, i);
        if (!PyTuple_Check(block) || PyTuple_Size(block) != 4)
            return spv_refuse_type("a block must be a tuple (hash, height, time, packed), not %U", block);
    }
    return true;
}

static bool add_all(const spv_state *state, call *of, PyObject *hrp) {
    const Py_ssize_t count = PyList_Size(of->blocks);
    for (Py_ssize_t i = 0; i < count; i++)
        if (!add_block(state, of, PyList_GetItem(of->blocks, i), hrp))
            return false;
    return true;
}

static PyObject *values_of(const call *of) {
    PyObject *list = PyList_New(SPV_HIT_COLUMNS);
    for (size_t i = 0; list && i < SPV_HIT_COLUMNS; i++) {
        PyObject *value = spv_column_value(&of->table.columns[i]);
        if (!value || PyList_SetItem(list, (Py_ssize_t)i, value))
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *hit_columns(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    const spv_state *state = spv_module_state(self);
    call of = {0};
    PyObject *made = NULL;
    if (!spv_count_arguments("hit_columns", count, 9))
        return NULL;
    const int is_binary = PyObject_IsTrue(arguments[3]);
    if (is_binary >= 0 && take_blocks(state, arguments[0], &of) && spv_offset(state, arguments[1], &of.table.skip)
        && spv_offset(state, arguments[2], &of.table.left) && (of.places = spv_snapshot(arguments[4])) && (of.texts = spv_snapshot(arguments[5]))
        && spv_take_form(state, arguments + 6, &of.table.form)) {
        spv_hit_table_init(&of.table, is_binary);
        of.table.labels = (spv_labels){{spv_data(of.places), spv_size(of.places)}, {spv_data(of.texts), spv_size(of.texts)}};
        if (add_all(state, &of, arguments[8]))
            made = values_of(&of);
    }
    end(&of);
    return made;
}

int spv_add_hit_columns(PyObject *module, spv_state *Py_UNUSED(state)) {
    static PyMethodDef functions[] = {
        SPV_FUNCTION(hit_columns, METH_FASTCALL),
        {NULL, NULL, 0, NULL},
    };
    return PyModule_AddFunctions(module, functions);
}
