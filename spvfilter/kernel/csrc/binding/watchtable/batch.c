#include "binding/watchtable/batch.h"

#include "binding/files.h"
#include "binding/watchtable/scan.h"

#include <stdlib.h>

/* Scans all blocks without the GIL, which is acquired now and then to check for signals. False with an exception
   set. */
static bool scan_all(const spv_state *state, const spv_batch *of) {
    enum { SLICE = 1 << 26 }; /* bytes of blocks between two checks for signals: some ten milliseconds */
    size_t at = 0;
    bool broken = false;
    while (at < of->count && !broken) {
        Py_BEGIN_ALLOW_THREADS
        for (size_t done = 0; at < of->count && done < SLICE && !broken; at++) {
            done += spv_scan_of_batch(of, at) + 1024;
            broken = of->results[at].status && of->results[at].status != SPV_FORMAT && of->results[at].status != SPV_UNDO;
        }
        Py_END_ALLOW_THREADS
        if (broken)
            spv_raise(state, of->results[at - 1].status, NULL);
        else
            broken = PyErr_CheckSignals();
    }
    return !broken;
}

static PyObject *value_of(const spv_state *state, const spv_block_result *of, bool packed) {
    if (of->missing)
        return Py_NewRef(Py_None);
    if (of->status)
        return spv_format_error(state, of->status, &of->error);
    if (packed)
        return PyBytes_FromStringAndSize((const char *)of->packed, (Py_ssize_t)of->packed_size);
    return spv_hit_values(state, &of->hits);
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
        PyObject *value = value_of(state, &of->results[i], of->packed);
        if (!value || PyList_SetItem(list, (Py_ssize_t)i, value))
            Py_CLEAR(list);
    }
    for (size_t i = 0; i < of->count; i++)
        spv_block_result_free(&of->results[i]);
    free(of->results);
    return list;
}

/* Undo records. */

void spv_records_let_go(spv_beside *of) {
    PyMem_Free(of->memory);
    PyMem_Free(of->records);
    PyMem_Free(of->places);
    Py_XDECREF(of->given);
}

/* Takes a list with an item for each of `count` blocks. False with an exception set. */
static bool take_beside(const spv_state *state, PyObject *undo, size_t count, const char *what, spv_beside *of) {
    *of = (spv_beside){0};
    if (undo == Py_None)
        return true;
    of->given = spv_list(state, undo);
    if (!of->given)
        return false;
    if ((size_t)PyList_Size(of->given) != count) {
        PyErr_Format(state->ParameterError, "the number of undo records (%zd) must equal the number of %s (%zu)", PyList_Size(of->given), what, count);
        return false;
    }
    of->records = PyMem_Calloc(count + 1, sizeof *of->records);
    return of->records || PyErr_NoMemory();
}

bool spv_take_records(const spv_state *state, PyObject *undo, const spv_bytes *blocks, size_t count, spv_beside *of) {
    size_t total = 0;
    if (!take_beside(state, undo, count, "blocks", of))
        return false;
    for (size_t i = 0; of->given && i < count; i++) {
        PyObject *item = PyList_GetItem(of->given, (Py_ssize_t)i);
        PyObject *taken = item == Py_None ? Py_NewRef(item) : spv_snapshot(item);
        if (!taken || PyList_SetItem(of->given, (Py_ssize_t)i, taken))
            return false;
        total += taken == Py_None ? 0 : SPV_HASH_BEFORE + spv_size(taken);
    }
    if (!of->given)
        return true;
    uint8_t *at = of->memory = PyMem_Malloc(total + 1);
    if (!at)
        return PyErr_NoMemory() != NULL;
    for (size_t i = 0; i < count; i++) {
        PyObject *item = PyList_GetItem(of->given, (Py_ssize_t)i);
        if (item == Py_None)
            continue;
        of->records[i] = spv_copy_record(spv_bytes_of(item), blocks[i], at);
        at += SPV_HASH_BEFORE + spv_size(item);
    }
    return true;
}

/* Takes the places of records, and computes the memory that they need together. */
static bool take_record_places(const spv_state *state, PyObject *undo, size_t count, size_t *total, spv_beside *of) {
    *total = 0;
    if (!take_beside(state, undo, count, "places", of))
        return false;
    if (!of->given)
        return true;
    of->places = PyMem_Calloc(count + 1, sizeof *of->places);
    if (!of->places)
        return PyErr_NoMemory() != NULL;
    for (size_t i = 0; i < count; i++) {
        PyObject *item = PyList_GetItem(of->given, (Py_ssize_t)i);
        of->places[i].descriptor = -1; /* there is no place */
        if (item == Py_None)
            continue;
        if (!spv_take_place(state, item, SPV_MAX_UNDO_SIZE, &of->places[i]))
            return false;
        *total += SPV_HASH_BEFORE + of->places[i].size;
    }
    return true;
}

bool spv_load_records(const spv_state *state, spv_beside *of, size_t count, uint8_t *memory) {
    spv_status status;
    Py_BEGIN_ALLOW_THREADS
    for (size_t i = 0; of->places && i < count; i++) {
        if (of->places[i].descriptor < 0)
            continue;
        of->records[i] = spv_read_record(&of->places[i], memory);
        memory += SPV_HASH_BEFORE + of->places[i].size;
    }
    status = of->records ? spv_check_records(of->records, count) : SPV_OK;
    Py_END_ALLOW_THREADS
    return !status || spv_raise(state, status, NULL);
}

PyObject *spv_wt_scan_blocks(PyObject *self, PyObject *arguments, PyObject *names) {
    static char *keywords[] = {"blocks", "found", "check", "undo", "packed", NULL};
    const spv_state *state = spv_object_state(self);
    PyObject *given, *found = Py_None, *undo = Py_None, *made = NULL;
    int check = 0, packed = 0;
    spv_table *earlier;
    if (!PyArg_ParseTupleAndKeywords(arguments, names, "O|OpOp:scan_blocks", keywords, &given, &found, &check, &undo, &packed)
        || !spv_take_found(state, found, &earlier))
        return NULL;
    PyObject *held = spv_snapshots(state, given, "blocks");
    if (!held)
        return NULL;
    const size_t count = (size_t)PyList_Size(held);
    spv_bytes *blocks = PyMem_Malloc((count + 1) * sizeof *blocks);
    if (blocks) {
        for (size_t i = 0; i < count; i++)
            blocks[i] = spv_bytes_of(PyList_GetItem(held, (Py_ssize_t)i));
        spv_beside of;
        if (spv_take_records(state, undo, blocks, count, &of) && spv_load_records(state, &of, count, NULL))
            made = scan_batch(
                state,
                &(spv_batch){
                    .table = spv_table_of(self), .found = earlier, .check = check, .packed = packed, .blocks = blocks, .records = of.records, .count = count,
                }
            );
        spv_records_let_go(&of);
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
        if (!spv_take_place(state, PyList_GetItem(list, (Py_ssize_t)i), SPV_MAX_BLOCK_SIZE, &places[i])) {
            PyMem_Free(places);
            return NULL;
        }
        if (places[i].size > *largest)
            *largest = places[i].size;
    }
    return places;
}

PyObject *spv_wt_scan_files(PyObject *self, PyObject *arguments, PyObject *names) {
    static char *keywords[] = {"places", "buffer", "found", "check", "undo", "packed", NULL};
    const spv_state *state = spv_object_state(self);
    PyObject *given, *object, *found = Py_None, *undo = Py_None, *made = NULL;
    int check = 0, packed = 0;
    spv_table *earlier;
    if (!PyArg_ParseTupleAndKeywords(arguments, names, "OO|OpOp:scan_files", keywords, &given, &object, &found, &check, &undo, &packed)
        || !spv_take_found(state, found, &earlier))
        return NULL;
    if (!PyObject_TypeCheck(object, (PyTypeObject *)state->ReadBuffer)) {
        spv_refuse_type("expected a ReadBuffer, not %U", object);
        return NULL;
    }
    spv_read_buffer *buffer = (spv_read_buffer *)object;
    PyObject *list = spv_list(state, given);
    const size_t count = list ? (size_t)PyList_Size(list) : 0;
    size_t largest, total;
    spv_beside of = {0};
    spv_place *places = list ? take_places(state, list, count, &largest) : NULL;
    const bool taken = places && take_record_places(state, undo, count, &total, &of);
    uint8_t *memory = taken ? spv_take_buffer(buffer, largest + total) : NULL;
    if (memory) {
        if (spv_load_records(state, &of, count, memory + largest))
            made = scan_batch(
                state,
                &(spv_batch){
                    .table = spv_table_of(self), .found = earlier, .check = check, .packed = packed, .places = places, .memory = memory, .records = of.records,
                    .count = count,
                }
            );
        spv_let_buffer_go(buffer);
    }
    spv_records_let_go(&of);
    PyMem_Free(places);
    Py_XDECREF(list);
    return made;
}
