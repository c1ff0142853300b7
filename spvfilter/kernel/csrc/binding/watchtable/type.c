#include "binding/watchtable/type.h"

#include "binding/watchtable/batch.h"
#include "binding/watchtable/entries.h"
#include "binding/watchtable/image.h"
#include "binding/watchtable/iterators.h"
#include "binding/watchtable/lines.h"
#include "binding/watchtable/scan.h"

#include <errno.h>

static PyObject *new(PyTypeObject *type, PyObject *arguments, PyObject *names) {
    static char *keywords[] = {"image", NULL};
    PyObject *image = Py_None;
    if (!PyArg_ParseTupleAndKeywords(arguments, names, "|O:WatchTable", keywords, &image))
        return NULL;
    if (image != Py_None)
        return spv_table_over(type, image);
    spv_table *table = spv_table_new();
    if (table)
        return spv_wrap_table((PyObject *)type, table, NULL);
    return errno == ENOMEM ? PyErr_NoMemory() : PyErr_SetFromErrno(PyExc_OSError);
}

static PyObject *view_of(PyObject *self) {
    return ((spv_table_object *)self)->view;
}

static PyObject *copy(PyObject *self, PyObject *Py_UNUSED(none)) {
    const spv_state *state = spv_object_state(self);
    spv_table *table = spv_table_of(self), *twin;
    spv_status status;
    Py_BEGIN_ALLOW_THREADS
    spv_read(&table->lock);
    status = spv_table_copy(table, &twin);
    spv_end_read(&table->lock);
    Py_END_ALLOW_THREADS
    return status ? spv_raise(state, status, NULL) : spv_wrap_table(state->WatchTable, twin, view_of(self));
}

/* The outpoints of a list of snapshots, one after the other, in memory that the caller frees with PyMem_Free. NULL
   with an exception set. */
static uint8_t *joined_outpoints(const spv_state *state, PyObject *list) {
    const size_t count = (size_t)PyList_Size(list);
    uint8_t *outpoints = PyMem_Malloc(count * SPV_OUTPOINT_SIZE + 1);
    if (!outpoints)
        PyErr_NoMemory();
    for (size_t i = 0; outpoints && i < count; i++) {
        PyObject *outpoint = PyList_GetItem(list, (Py_ssize_t)i);
        if (spv_check_outpoint(state, outpoint)) {
            memcpy(outpoints + i * SPV_OUTPOINT_SIZE, spv_data(outpoint), SPV_OUTPOINT_SIZE);
        } else {
            PyMem_Free(outpoints);
            outpoints = NULL;
        }
    }
    return outpoints;
}

static PyObject *without(PyObject *self, PyObject *given) {
    const spv_state *state = spv_object_state(self);
    PyObject *list = spv_snapshots(state, given, "outpoints"), *made = NULL;
    uint8_t *outpoints = list ? joined_outpoints(state, list) : NULL;
    if (outpoints) {
        spv_table *table = spv_table_of(self), *twin;
        const size_t count = (size_t)PyList_Size(list);
        spv_status status;
        Py_BEGIN_ALLOW_THREADS
        spv_read(&table->lock);
        status = spv_table_without(table, outpoints, count, &twin);
        spv_end_read(&table->lock);
        Py_END_ALLOW_THREADS
        made = status ? spv_raise(state, status, NULL) : spv_wrap_table(state->WatchTable, twin, view_of(self));
    }
    PyMem_Free(outpoints);
    Py_XDECREF(list);
    return made;
}

static Py_ssize_t length(PyObject *self) {
    spv_table *table = spv_table_of(self);
    PyThreadState *thread = spv_begin_read(table);
    const uint32_t count = spv_table_count(table);
    spv_finish_read(table, thread);
    return (Py_ssize_t)count;
}

static PyObject *size_of(PyObject *self, PyObject *Py_UNUSED(none)) {
    spv_table *table = spv_table_of(self);
    PyThreadState *thread = spv_begin_read(table);
    const size_t size = sizeof(spv_table_object) + spv_table_size(table);
    spv_finish_read(table, thread);
    return PyLong_FromSize_t(size);
}

static int traverse(PyObject *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(view_of(self));
    Py_VISIT(((spv_table_object *)self)->memory.obj);
    return 0;
}

/* Called only with the last reference: a scan in another thread may use the image until then. */
static int clear(PyObject *self) {
    spv_table_free(spv_table_of(self));
    Py_CLEAR(((spv_table_object *)self)->view);
    PyBuffer_Release(&((spv_table_object *)self)->memory);
    return 0;
}

static void end(PyObject *self) {
    spv_end_object(self, clear);
}

static PyMethodDef methods[] = {
    SPV_METHOD(WatchTable, add, spv_wt_add, METH_FASTCALL),
    SPV_METHOD(WatchTable, find, spv_wt_find, METH_FASTCALL),
    SPV_METHOD(WatchTable, entry, spv_wt_entry, METH_O),
    SPV_METHOD(WatchTable, entries, spv_wt_entries, METH_NOARGS),
    SPV_METHOD(WatchTable, packed_entries, spv_wt_packed_entries, METH_FASTCALL),
    SPV_METHOD(WatchTable, count_of, spv_wt_count_of, METH_O),
    SPV_METHOD(WatchTable, image, spv_wt_image, METH_NOARGS),
    SPV_METHOD(WatchTable, image_size, spv_wt_image_size, METH_NOARGS),
    SPV_METHOD(WatchTable, write_image, spv_wt_write_image, METH_FASTCALL),
    SPV_METHOD(WatchTable, coin, spv_wt_coin, METH_O),
    SPV_METHOD(WatchTable, coins, spv_wt_coins, METH_NOARGS),
    SPV_METHOD(WatchTable, set_coin, spv_wt_set_coin, METH_FASTCALL),
    SPV_METHOD(WatchTable, learn, spv_wt_learn, METH_O),
    SPV_METHOD(WatchTable, learn_packed, spv_wt_learn_packed, METH_O),
    SPV_METHOD(WatchTable, copy, copy, METH_NOARGS),
    SPV_METHOD(WatchTable, without, without, METH_O),
    SPV_METHOD(WatchTable, match_script, spv_wt_match_script, METH_O),
    SPV_METHOD(WatchTable, scan_block, spv_wt_scan_block, METH_VARARGS | METH_KEYWORDS),
    SPV_METHOD(WatchTable, scan_blocks, spv_wt_scan_blocks, METH_VARARGS | METH_KEYWORDS),
    SPV_METHOD(WatchTable, scan_files, spv_wt_scan_files, METH_VARARGS | METH_KEYWORDS),
    SPV_METHOD(WatchTable, scan_tx, spv_wt_scan_tx, METH_O),
    SPV_METHOD(WatchTable, script_totals, spv_wt_script_totals, METH_FASTCALL),
    SPV_METHOD(WatchTable, add_address_lines, spv_wt_add_address_lines, METH_FASTCALL),
    {"__sizeof__", size_of, METH_NOARGS, "Bytes of memory."},
    {NULL, NULL, 0, NULL},
};

int spv_add_watch_table(PyObject *module, spv_state *state) {
    static PyType_Slot slots[] = {
        {Py_tp_doc, SPV_DOC_WatchTable},
        {Py_tp_new, new},
        {Py_tp_traverse, traverse},
        {Py_tp_dealloc, end},
        {Py_tp_methods, methods},
        {Py_sq_length, length},
        {0, NULL},
    };
    static PyType_Spec spec = {
        .name = "spvfilter.kernel.native.WatchTable",
        .basicsize = sizeof(spv_table_object),
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
        .slots = slots,
    };
    return spv_make_table_iterator(module, state) && spv_make_type(module, &state->WatchTable, &spec, true) ? 0 : -1;
}
