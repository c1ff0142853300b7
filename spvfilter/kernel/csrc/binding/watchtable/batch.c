#include "binding/watchtable/batch.h"

#include "binding/files.h"
#include "binding/watchtable/scan.h"

#include "watch/batch.h"

#include <stdlib.h>

/* Scans all blocks without the interpreter's lock, which is taken now and then to check for signals. False with an exception set. */
static bool scan_all(const spv_state *state, const spv_batch *of) {
    enum { SLICE = 1 << 26 }; /* bytes of blocks between two checks, some ten milliseconds */
    size_t at = 0;
    bool broken = false;
    while (at < of->count && !broken) {
        Py_BEGIN_ALLOW_THREADS
        for (size_t done = 0; at < of->count && done < SLICE && !broken; at++) {
            done += spv_scan_of_batch(of, at) + 1024;
            broken = of->results[at].status && of->results[at].status != SPV_FORMAT;
        }
        Py_END_ALLOW_THREADS
        if (broken)
            spv_raise(state, of->results[at - 1].status, NULL);
        else
            broken = PyErr_CheckSignals();
    }
    return !broken;
}

static PyObject *value_of(const spv_state *state, const spv_block_result *of) {
    if (of->missing)
        return Py_NewRef(Py_None);
    return of->status ? spv_format_error(state, &of->error) : spv_hit_values(state, &of->hits);
}

/* Scans the batch and returns the list of its results. */
static PyObject *scan_batch(const spv_state *state, spv_batch *of) {
    PyObject *list = NULL;
    of->results = calloc(of->count + 1, sizeof *of->results);
    if (!of->results)
        return PyErr_NoMemory();
    if (scan_all(state, of))
        list = PyList_New((Py_ssize_t)of->count);
    for (size_t i = 0; list && i < of->count; i++) {
        PyObject *value = value_of(state, &of->results[i]);
        if (!value || PyList_SetItem(list, (Py_ssize_t)i, value))
            Py_CLEAR(list);
    }
    for (size_t i = 0; i < of->count; i++)
        spv_block_result_free(&of->results[i]);
    free(of->results);
    return list;
}

PyObject *spv_wt_scan_blocks(PyObject *self, PyObject *arguments, PyObject *names) {
    static char *keywords[] = {"blocks", "found", "check", NULL};
    const spv_state *state = spv_object_state(self);
    PyObject *given, *found = Py_None, *made = NULL;
    int check = 0;
    spv_table *earlier;
    if (!PyArg_ParseTupleAndKeywords(arguments, names, "O|Op:scan_blocks", keywords, &given, &found, &check)
        || !spv_take_found(state, found, &earlier))
        return NULL;
    PyObject *held = spv_snapshots(given);
    if (!held)
        return NULL;
    const size_t count = (size_t)PyList_Size(held);
    spv_bytes *blocks = PyMem_Malloc((count + 1) * sizeof *blocks);
    if (blocks) {
        for (size_t i = 0; i < count; i++)
            blocks[i] = spv_bytes_of(PyList_GetItem(held, (Py_ssize_t)i));
        made = scan_batch(
            state,
            &(spv_batch){.table = spv_table_of(self), .found = earlier, .check = check, .blocks = blocks, .count = count}
        );
    } else {
        PyErr_NoMemory();
    }
    PyMem_Free(blocks);
    Py_DECREF(held);
    return made;
}

/* An array of places, to be freed, and the size of the largest block. NULL with an exception set. */
static spv_place *take_places(const spv_state *state, PyObject *list, size_t count, size_t *largest) {
    spv_place *places = PyMem_Malloc((count + 1) * sizeof *places);
    if (!places) {
        PyErr_NoMemory();
        return NULL;
    }
    *largest = 0;
    for (size_t i = 0; i < count; i++) {
        if (!spv_take_place(state, PyList_GetItem(list, (Py_ssize_t)i), &places[i])) {
            PyMem_Free(places);
            return NULL;
        }
        if (places[i].size > *largest)
            *largest = places[i].size;
    }
    return places;
}

PyObject *spv_wt_scan_files(PyObject *self, PyObject *arguments, PyObject *names) {
    static char *keywords[] = {"places", "buffer", "found", "check", NULL};
    const spv_state *state = spv_object_state(self);
    PyObject *given, *object, *found = Py_None, *made = NULL;
    int check = 0;
    spv_table *earlier;
    if (!PyArg_ParseTupleAndKeywords(arguments, names, "OO|Op:scan_files", keywords, &given, &object, &found, &check)
        || !spv_take_found(state, found, &earlier))
        return NULL;
    if (!PyObject_TypeCheck(object, (PyTypeObject *)state->ReadBuffer)) {
        spv_refuse_type("a ReadBuffer expected, not %U", object);
        return NULL;
    }
    spv_read_buffer *buffer = (spv_read_buffer *)object;
    PyObject *list = spv_list(given);
    const size_t count = list ? (size_t)PyList_Size(list) : 0;
    size_t largest;
    spv_place *places = list ? take_places(state, list, count, &largest) : NULL;
    uint8_t *memory = places ? spv_take_buffer(buffer, largest) : NULL;
    if (memory) {
        made = scan_batch(
            state,
            &(spv_batch){
                .table = spv_table_of(self), .found = earlier, .check = check, .places = places, .memory = memory, .count = count,
            }
        );
        spv_let_buffer_go(buffer);
    }
    PyMem_Free(places);
    Py_XDECREF(list);
    return made;
}
