#include "binding/columnvalue.h"

static PyObject *bytes_of(const uint8_t *data, size_t size) {
    return PyBytes_FromStringAndSize((const char *)data, (Py_ssize_t)size);
}

static PyObject *offsets_of(const spv_column *column) {
    static const uint8_t first[4] = {0}; /* of a column without rows */
    if (column->layout != SPV_BINARY && column->layout != SPV_TEXT)
        return Py_NewRef(Py_None);
    return column->rows ? bytes_of(column->offsets, 4 * (column->rows + 1)) : bytes_of(first, sizeof first);
}

PyObject *spv_column_value(const spv_column *column) {
    PyObject *items[] = {
        PyLong_FromSize_t(column->rows),
        column->nulls ? bytes_of(column->validity, (column->rows + 7) / 8) : Py_NewRef(Py_None),
        offsets_of(column),
        bytes_of(column->data, spv_column_size(column)),
    };
    PyObject *made = items[0] && items[1] && items[2] && items[3] ? PyTuple_Pack(4, items[0], items[1], items[2], items[3]) : NULL;
    for (size_t i = 0; i < sizeof items / sizeof items[0]; i++)
        Py_XDECREF(items[i]);
    return made;
}
