#include "binding/columnlines.h"

#include "binding/arguments.h"

#include "watch/columnlines.h"

#include <stdlib.h>

enum { PARTS = 4 /* items of a column: its rows, and snapshots of its buffers */ };

/* The arguments of a call. */
typedef struct {
    PyObject **held; /* the name and the buffers of each column; NULL where there is none */
    spv_read_column *columns;
    size_t count, rows;
    spv_form form;
} call;

static void end(call *of) {
    for (size_t i = 0; of->held && i < PARTS * of->count; i++)
        Py_XDECREF(of->held[i]);
    PyMem_Free(of->held);
    PyMem_Free(of->columns);
}

/* pure.columnlines._encoded. */
static bool take_name(PyObject *name, PyObject **held, spv_read_column *column) {
    if (!PyUnicode_Check(name))
        return spv_refuse_type("the name of a column must be a str, not %U", name);
    if (!(*held = PyUnicode_AsEncodedString(name, "utf-8", "replace")))
        return false;
    column->name = (spv_bytes){spv_data(*held), spv_size(*held)};
    return true;
}

static bool take_layout(const spv_state *state, PyObject *given, spv_read_column *column) {
    if (!PyUnicode_Check(given))
        return spv_refuse_type("a layout must be a str, not %U", given);
    PyObject *text = PyUnicode_AsEncodedString(given, "utf-8", "replace");
    if (!text)
        return false;
    const bool known = spv_lines_layout((spv_bytes){spv_data(text), spv_size(text)}, &column->layout);
    Py_DECREF(text);
    if (known)
        return true;
    PyObject *shown = PyUnicode_Substring(given, 0, 100);
    if (shown)
        PyErr_Format(state->ParameterError, "cannot write lines of the layout %U", shown);
    Py_XDECREF(shown);
    return false;
}

static bool take_buffer(PyObject *given, PyObject **held, spv_bytes *buffer) {
    if (!(*held = spv_snapshot(given)))
        return false;
    *buffer = (spv_bytes){spv_data(*held), spv_size(*held)};
    return true;
}

static bool take_column(const spv_state *state, PyObject *given, size_t number, call *of) {
    spv_read_column *column = &of->columns[number];
    PyObject **held = &of->held[PARTS * number + 1];
    long long rows = 0;
    if (!PyTuple_Check(given) || PyTuple_Size(given) != PARTS)
        return spv_refuse_type("a column must be a tuple of four items, not %U", given);
    if (!spv_whole(state, PyTuple_GetItem(given, 0), 0, INT32_MAX, "a number of rows must be from 0 to 2^31 - 1", &rows))
        return false;
    if (!number)
        of->rows = (size_t)rows;
    bool fits = (size_t)rows == of->rows;
    if (fits) {
        PyObject *validity = PyTuple_GetItem(given, 1), *offsets = PyTuple_GetItem(given, 2);
        if ((validity != Py_None && !take_buffer(validity, &held[0], &column->validity))
            || (offsets != Py_None && !take_buffer(offsets, &held[1], &column->offsets))
            || !take_buffer(PyTuple_GetItem(given, 3), &held[2], &column->data))
            return false;
        fits = spv_column_fits(column, of->rows);
    }
    if (!fits)
        PyErr_Format(state->ParameterError, "column %zu does not have %zu rows", number, of->rows);
    return fits;
}

/* Takes the lists of names, layouts and columns. False with an exception set. */
static bool take_lists(const spv_state *state, PyObject *names, PyObject *layouts, PyObject *columns, call *of) {
    const size_t count = (size_t)PyList_Size(names), kinds = (size_t)PyList_Size(layouts), given = (size_t)PyList_Size(columns);
    const size_t room = (count > kinds ? count : kinds) + 1;
    of->held = PyMem_Calloc(PARTS * room, sizeof *of->held);
    of->columns = PyMem_Calloc(room, sizeof *of->columns);
    if (!of->held || !of->columns)
        return PyErr_NoMemory() != NULL;
    of->count = room;
    for (size_t i = 0; i < count; i++)
        if (!take_name(PyList_GetItem(names, (Py_ssize_t)i), &of->held[PARTS * i], &of->columns[i]))
            return false;
    for (size_t i = 0; i < kinds; i++)
        if (!take_layout(state, PyList_GetItem(layouts, (Py_ssize_t)i), &of->columns[i]))
            return false;
    if (count != kinds || kinds != given) {
        PyErr_Format(state->ParameterError, "the numbers of names (%zu), layouts (%zu) and columns (%zu) must be equal", count, kinds, given);
        return false;
    }
    of->count = count;
    for (size_t i = 0; i < count; i++)
        if (!take_column(state, PyList_GetItem(columns, (Py_ssize_t)i), i, of))
            return false;
    return true;
}

static bool take_arguments(const spv_state *state, PyObject *const *given, call *of) {
    long long form = 0;
    if (!spv_whole(state, given[0], 0, SPV_FORMS - 1, "a form must be 0 or 1", &form))
        return false;
    of->form = (spv_form)form;
    PyObject *names = spv_list(state, given[1]), *layouts = names ? spv_list(state, given[2]) : NULL;
    PyObject *columns = layouts ? spv_list(state, given[3]) : NULL;
    const bool taken = columns && take_lists(state, names, layouts, columns, of);
    Py_XDECREF(names);
    Py_XDECREF(layouts);
    Py_XDECREF(columns);
    return taken;
}

static PyObject *render(const call *of) {
    enum { SLICE = 1 << 12 }; /* rows between two checks for signals: some milliseconds */
    spv_text text = {0};
    PyObject *made = NULL;
    bool done = true;
    for (size_t at = 0; of->count && at < of->rows && done;) {
        const size_t until = of->rows - at > SLICE ? at + SLICE : of->rows;
        Py_BEGIN_ALLOW_THREADS
        done = spv_render_rows(of->form, of->columns, of->count, &at, until, &text);
        Py_END_ALLOW_THREADS
        if (!done)
            PyErr_NoMemory();
        else
            done = !PyErr_CheckSignals();
    }
    if (done)
        made = PyBytes_FromStringAndSize((const char *)text.data, (Py_ssize_t)text.size);
    free(text.data);
    return made;
}

static PyObject *column_lines(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    call of = {0};
    PyObject *made = NULL;
    if (!spv_count_arguments("column_lines", count, 4))
        return NULL;
    if (take_arguments(spv_module_state(self), arguments, &of))
        made = render(&of);
    end(&of);
    return made;
}

int spv_add_column_lines(PyObject *module, spv_state *Py_UNUSED(state)) {
    static PyMethodDef functions[] = {
        SPV_FUNCTION(column_lines, METH_FASTCALL),
        {NULL, NULL, 0, NULL},
    };
    return PyModule_AddFunctions(module, functions);
}
