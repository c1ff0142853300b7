#include "binding/watchtable/lines.h"

#include "binding/addresses.h"

#include "watch/lines.h"
#include "watch/render.h"

#include <stdlib.h>

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
        && spv_whole(state, arguments[5], 1, SPV_MOST_JOBS, "the number of threads must be from 1 to 256", &jobs)) {
        const size_t size = spv_size(chunk);
        if (at > size)
            PyErr_Format(PyExc_IndexError, "the offset must be at most %zu, the size of the chunk, not %zu", size, at);
        else
            result = add_lines(self, &network, (spv_bytes){spv_data(chunk) + at, size - at}, (unsigned)jobs);
    }
    Py_XDECREF(chunk);
    return result;
}

/* script_totals. */

static PyObject *rendered(PyObject *self, spv_totals *totals, PyObject *hrp) {
    const spv_state *state = spv_object_state(self);
    spv_table *table = spv_table_of(self);
    spv_text text = {0};
    spv_status status;
    spv_error error;
    size_t next, unfit;
    PyObject *made = NULL;
    totals->table = table;
    Py_BEGIN_ALLOW_THREADS
    spv_read(&table->lock);
    status = spv_render_totals(totals, &text, &next, &unfit, &error);
    spv_end_read(&table->lock);
    Py_END_ALLOW_THREADS
    if (status)
        spv_raise(state, status, &error);
    else if (unfit)
        spv_refuse_hrp(state, hrp, unfit);
    else
        made = Py_BuildValue("(Nn)", PyBytes_FromStringAndSize((const char *)text.data, (Py_ssize_t)text.size), (Py_ssize_t)next);
    free(text.data);
    return made;
}

PyObject *spv_wt_script_totals(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    const spv_state *state = spv_object_state(self);
    spv_totals totals = {0};
    long long first;
    if (!spv_count_arguments("script_totals", count, 7))
        return NULL;
    PyObject *sums = spv_snapshot(arguments[0]), *places = NULL, *texts = NULL, *made = NULL;
    if (sums && spv_whole(state, arguments[1], 0, SPV_MAX_ENTRY, "the number of an entry must be from 0 to 2^31 - 2", &first) && (places = spv_snapshot(arguments[2]))
        && (texts = spv_snapshot(arguments[3])) && spv_take_form(state, arguments + 4, &totals.network)) {
        totals.sums = spv_bytes_of(sums);
        totals.first = (uint32_t)first;
        totals.labels = (spv_labels){spv_bytes_of(places), spv_bytes_of(texts)};
        if (totals.sums.size % SPV_SUMS_SIZE)
            PyErr_Format(state->ParameterError, "sums must be a multiple of 32 bytes long, not %zu", totals.sums.size);
        else
            made = rendered(self, &totals, arguments[6]);
    }
    Py_XDECREF(sums);
    Py_XDECREF(places);
    Py_XDECREF(texts);
    return made;
}
