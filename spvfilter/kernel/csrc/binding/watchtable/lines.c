#include "binding/watchtable/lines.h"

#include "binding/addresses.h"

#include "watch/lines.h"

static PyObject *label_list(const spv_address_lines *taken) {
    PyObject *list = PyList_New((Py_ssize_t)taken->count);
    for (size_t i = 0; list && i < taken->count; i++) {
        const spv_label *label = &taken->labels[i];
        PyObject *text = PyBytes_FromStringAndSize((const char *)label->text.data, (Py_ssize_t)label->text.size);
        PyObject *pair = Py_BuildValue("(kN)", (unsigned long)label->entry, text);
        if (!pair || PyList_SetItem(list, (Py_ssize_t)i, pair))
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *add_lines(PyObject *self, const spv_address_network *network, spv_bytes chunk, unsigned jobs) {
    spv_table *table = spv_table_of(self);
    spv_address_lines taken;
    spv_status status;
    PyObject *result = NULL;
    Py_BEGIN_ALLOW_THREADS
    spv_write(&table->lock);
    status = spv_add_address_lines(table, network, chunk, jobs, &taken);
    spv_end_write(&table->lock);
    Py_END_ALLOW_THREADS
    if (status)
        spv_raise(spv_object_state(self), status, NULL);
    else
        result = Py_BuildValue("(nnN)", (Py_ssize_t)taken.consumed, (Py_ssize_t)taken.lines, label_list(&taken));
    spv_address_lines_free(&taken);
    return result;
}

PyObject *spv_wt_add_address_lines(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    const spv_state *state = spv_object_state(self);
    spv_address_network network;
    size_t at;
    long long jobs;
    if (!spv_count_arguments("add_address_lines", count, 6))
        return NULL;
    PyObject *chunk = spv_snapshot(arguments[0]), *result = NULL;
    if (chunk && spv_offset(state, arguments[1], &at) && spv_take_network(state, arguments + 2, &network)
        && spv_whole(state, arguments[5], 1, SPV_MOST_JOBS, "not a number of threads", &jobs)) {
        const size_t size = spv_size(chunk);
        if (at > size)
            PyErr_Format(PyExc_IndexError, "byte %zu of %zu", at, size);
        else
            result = add_lines(self, &network, (spv_bytes){spv_data(chunk) + at, size - at}, (unsigned)jobs);
    }
    Py_XDECREF(chunk);
    return result;
}
