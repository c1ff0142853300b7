#include "binding/tables.h"

#include "binding/addresses.h"
#include "binding/columnvalue.h"
#include "binding/watchtable/batch.h"

#include "watch/tables.h"

#include <stdlib.h>

/* The arguments of one call. */
typedef struct {
    PyObject *held, *held_hits; /* lists of the snapshots of the blocks and of their hits, or NULL without hits */
    spv_bytes *blocks, *hits;
    int32_t *heights;
    size_t count;
    spv_beside beside;
    spv_tables tables;
} call;

static void end(call *of) {
    for (size_t i = 0; i < of->tables.count; i++)
        spv_column_free(&of->tables.columns[i]);
    PyMem_Free(of->tables.columns);
    PyMem_Free(of->heights);
    spv_records_let_go(&of->beside);
    PyMem_Free(of->blocks);
    PyMem_Free(of->hits);
    Py_XDECREF(of->held);
    Py_XDECREF(of->held_hits);
}

/* The bytes of a list of snapshots, in an array that the caller frees with PyMem_Free. NULL with an exception set. */
static spv_bytes *all_bytes(PyObject *held) {
    const size_t count = (size_t)PyList_Size(held);
    spv_bytes *made = PyMem_Malloc((count + 1) * sizeof *made);
    if (!made)
        PyErr_NoMemory();
    for (size_t i = 0; made && i < count; i++) {
        PyObject *each = PyList_GetItem(held, (Py_ssize_t)i);
        made[i] = (spv_bytes){spv_data(each), spv_size(each)};
    }
    return made;
}

static bool take_blocks(const spv_state *state, PyObject *blocks, PyObject *records, call *of) {
    if (!(of->held = spv_snapshots(state, blocks, "blocks")) || !(of->blocks = all_bytes(of->held)))
        return false;
    of->count = (size_t)PyList_Size(of->held);
    return spv_take_records(state, records, of->blocks, of->count, &of->beside);
}

static bool take_hits(const spv_state *state, PyObject *hits, call *of) {
    if (hits == Py_None)
        return true;
    if (!(of->held_hits = spv_snapshots(state, hits, "hits")) || !(of->hits = all_bytes(of->held_hits)))
        return false;
    const size_t count = (size_t)PyList_Size(of->held_hits);
    if (count != of->count)
        PyErr_Format(state->ParameterError, "the number of items in hits (%zu) must equal the number of blocks (%zu)", count, of->count);
    return count == of->count;
}

static bool take_heights(const spv_state *state, PyObject *given, call *of) {
    static const char range[] = "a height must be from 0 to 2^31 - 1, or -1 if it is not known";
    PyObject *list = spv_list(state, given);
    if (!list)
        return false;
    const size_t count = (size_t)PyList_Size(list);
    bool taken = (of->heights = PyMem_Malloc((count + 1) * sizeof *of->heights)) || PyErr_NoMemory();
    for (size_t i = 0; taken && i < count; i++) {
        long long height = 0;
        taken = spv_whole(state, PyList_GetItem(list, (Py_ssize_t)i), -1, INT32_MAX, range, &height);
        of->heights[i] = (int32_t)height;
    }
    if (taken && count != of->count) {
        PyErr_Format(state->ParameterError, "the number of heights (%zu) must equal the number of blocks (%zu)", count, of->count);
        taken = false;
    }
    Py_DECREF(list);
    return taken;
}

/* pure.tables.ColumnRows.named. */
static bool take_column(const spv_state *state, PyObject *name, spv_column *column) {
    if (!PyUnicode_Check(name))
        return spv_refuse_type("the name of a column must be a str, not %U", name);
    PyObject *text = PyUnicode_AsEncodedString(name, "utf-8", "replace");
    if (!text)
        return false;
    const bool known = spv_column_named((spv_bytes){spv_data(text), spv_size(text)}, column);
    Py_DECREF(text);
    if (known)
        return true;
    PyObject *shown = PyUnicode_Substring(name, 0, 100);
    if (shown)
        PyErr_Format(state->ParameterError, "no such column: %U", shown);
    Py_XDECREF(shown);
    return false;
}

static bool take_columns(const spv_state *state, PyObject *given, call *of) {
    PyObject *list = spv_list(state, given);
    if (!list)
        return false;
    const size_t count = (size_t)PyList_Size(list);
    bool taken = (of->tables.columns = PyMem_Calloc(count + 1, sizeof *of->tables.columns)) || PyErr_NoMemory();
    of->tables.count = taken ? count : 0;
    for (size_t i = 0; taken && i < count; i++)
        taken = take_column(state, PyList_GetItem(list, (Py_ssize_t)i), &of->tables.columns[i]);
    Py_DECREF(list);
    return taken;
}

/* Adds the rows of all blocks without the GIL, which is acquired now and then to check for signals. False with an
   exception set. */
static bool add_all(const spv_state *state, call *of, PyObject *hrp) {
    enum { SLICE = 1 << 24 }; /* bytes of blocks between two checks for signals: some ten milliseconds */
    static const spv_record none = {0};
    spv_status status = SPV_OK;
    spv_error error = {0};
    for (size_t at = 0; at < of->count;) {
        Py_BEGIN_ALLOW_THREADS
        for (size_t done = 0; at < of->count && done < SLICE && !status; at++) {
            const spv_record *record = of->beside.records ? &of->beside.records[at] : &none;
            status = spv_add_block_rows(
                &of->tables, of->blocks[at], record, of->heights[at], of->hits ? of->hits[at] : (spv_bytes){NULL, 0}, &error
            );
            done += of->blocks[at].size + 1024;
        }
        Py_END_ALLOW_THREADS
        if (status && of->tables.unfit)
            return spv_refuse_hrp(state, hrp, of->tables.unfit) != NULL;
        if (status)
            return spv_raise(state, status, &error) != NULL;
        if (PyErr_CheckSignals())
            return false;
    }
    return true;
}

static PyObject *values_of(const spv_tables *tables) {
    PyObject *list = PyList_New((Py_ssize_t)tables->count);
    for (size_t i = 0; list && i < tables->count; i++) {
        PyObject *value = spv_column_value(&tables->columns[i]);
        if (!value || PyList_SetItem(list, (Py_ssize_t)i, value))
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *block_columns(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    const spv_state *state = spv_module_state(self);
    call of = {0};
    PyObject *made = NULL;
    if (!spv_count_arguments("block_columns", count, 8))
        return NULL;
    if (take_blocks(state, arguments[0], arguments[1], &of) && take_heights(state, arguments[2], &of) && take_columns(state, arguments[3], &of)
        && spv_take_form(state, arguments + 4, &of.tables.form) && take_hits(state, arguments[7], &of)
        && spv_load_records(state, &of.beside, of.count, NULL)
        && add_all(state, &of, arguments[6]))
        made = values_of(&of.tables);
    end(&of);
    return made;
}

int spv_add_tables(PyObject *module, spv_state *Py_UNUSED(state)) {
    static PyMethodDef functions[] = {
        SPV_FUNCTION(block_columns, METH_FASTCALL),
        {NULL, NULL, 0, NULL},
    };
    return PyModule_AddFunctions(module, functions);
}
