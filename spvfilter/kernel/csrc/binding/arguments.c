#include "binding/arguments.h"

bool spv_refuse_type(const char *message, PyObject *object) {
    PyObject *name = PyType_GetName(Py_TYPE(object));
    if (name)
        PyErr_Format(PyExc_TypeError, message, name);
    Py_XDECREF(name);
    return false;
}

PyObject *spv_snapshot(PyObject *object) {
    if (SPV_LIKELY(PyBytes_Check(object)))
        return Py_NewRef(object);
    if (PyObject_CheckBuffer(object))
        return PyBytes_FromObject(object);
    spv_refuse_type("a bytes-like object expected, not %U", object);
    return NULL;
}

/* A list of what `of`, which returns a new reference or fails, makes of each item. */
static PyObject *collect(PyObject *iterable, PyObject *of(PyObject *)) {
    PyObject *iterator = PyObject_GetIter(iterable), *list = iterator ? PyList_New(0) : NULL, *item;
    while (list && (item = PyIter_Next(iterator))) {
        PyObject *taken = of(item);
        Py_DECREF(item);
        if (!taken || PyList_Append(list, taken) || PyErr_CheckSignals())
            Py_CLEAR(list);
        Py_XDECREF(taken);
    }
    Py_XDECREF(iterator);
    if (list && PyErr_Occurred())
        Py_CLEAR(list);
    return list;
}

static PyObject *itself(PyObject *object) {
    return Py_NewRef(object);
}

PyObject *spv_list(PyObject *iterable) {
    return collect(iterable, itself);
}

PyObject *spv_snapshots(PyObject *iterable) {
    if (PyBytes_Check(iterable) || PyByteArray_Check(iterable) || PyUnicode_Check(iterable)) { /* iterating these gives ints or strings */
        PyErr_SetString(PyExc_TypeError, "an iterable of bytes expected, not one");
        return NULL;
    }
    return collect(iterable, spv_snapshot);
}

bool spv_whole(const spv_state *state, PyObject *object, long long least, long long most, const char *range, long long *number) {
    PyObject *whole = PyNumber_Index(object);
    if (!whole)
        return false;
    int overflow;
    *number = PyLong_AsLongLongAndOverflow(whole, &overflow);
    const bool fits = !overflow && *number >= least && *number <= most;
    if (!fits)
        PyErr_Format(state->ParameterError, "%s: %S", range, whole);
    Py_DECREF(whole);
    return fits;
}

bool spv_offset(const spv_state *state, PyObject *object, size_t *offset) {
    long long number;
    if (!spv_whole(state, object, 0, PY_SSIZE_T_MAX, "not an offset", &number))
        return false;
    *offset = (size_t)number;
    return true;
}

bool spv_count_arguments(const char *name, Py_ssize_t count, Py_ssize_t wanted) {
    if (count != wanted)
        PyErr_Format(PyExc_TypeError, "%s() takes %zd arguments (%zd given)", name, wanted, count);
    return count == wanted;
}
