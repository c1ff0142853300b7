#include "binding/arguments.h"

#include <time.h>

enum { PAUSE_NS = 2000000 }; /* with the 5 ms after which a waiting thread asks for the GIL, it gets it within 10 ms */

bool spv_rest(spv_pace *pace) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    const uint64_t at = (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
    if (at < pace->next)
        return true;
    /* A thread that has waited for 5 ms asks for the GIL, and Python code then hands it over. Releasing the GIL in C would
       not do: this thread could take it again before the other thread runs, which then waits from the start. */
    PyObject *done = pace->next ? PyObject_CallNoArgs(pace->state->pause) : Py_NewRef(Py_None);
    pace->next = at + PAUSE_NS;
    Py_XDECREF(done);
    /* Before 3.13, Python code overlooks a signal that the system gave to a thread of another library, such as numpy's. */
    return done && !PyErr_CheckSignals();
}

bool spv_refuse_type(const char *message, PyObject *object) {
    PyObject *name = PyType_GetName(Py_TYPE(object));
    if (name)
        PyErr_Format(PyExc_TypeError, message, name);
    Py_XDECREF(name);
    return false;
}

bool spv_refuse_argument(const char *argument, const char *wanted, PyObject *object) {
    PyObject *name = PyType_GetName(Py_TYPE(object));
    if (name)
        PyErr_Format(PyExc_TypeError, "%s: expected %s, not %U", argument, wanted, name);
    Py_XDECREF(name);
    return false;
}

bool spv_check_iterable(PyObject *object, const char *argument, const char *wanted) {
    return PyType_GetSlot(Py_TYPE(object), Py_tp_iter) || PySequence_Check(object) || spv_refuse_argument(argument, wanted, object);
}

static PyObject *copied(PyObject *object) {
    PyObject *bytes;
#ifdef Py_GIL_DISABLED /* a writer that locks the object waits; a bytearray locks itself in 3.14 and later; with earlier versions the copy may be torn */
    Py_BEGIN_CRITICAL_SECTION(object);
    bytes = PyBytes_FromObject(object);
    Py_END_CRITICAL_SECTION();
#else
    bytes = PyBytes_FromObject(object);
#endif
    return bytes;
}

PyObject *spv_snapshot(PyObject *object) {
    if (SPV_LIKELY(PyBytes_Check(object)))
        return Py_NewRef(object);
    if (PyObject_CheckBuffer(object))
        return copied(object);
    spv_refuse_type("expected a bytes-like object, not %U", object);
    return NULL;
}

PyObject *spv_named_snapshot(PyObject *object, const char *argument) {
    if (SPV_UNLIKELY(!PyObject_CheckBuffer(object))) {
        spv_refuse_argument(argument, "a bytes-like object", object);
        return NULL;
    }
    return spv_snapshot(object);
}

/* Returns a list of an iterable's items; if `argument` is not NULL, of their snapshots. */
static PyObject *collect(const spv_state *state, PyObject *iterable, const char *argument) {
    PyObject *iterator = PyObject_GetIter(iterable), *list = iterator ? PyList_New(0) : NULL, *item;
    spv_pace pace = {.state = state};
    while (list && (item = PyIter_Next(iterator))) {
        PyObject *taken = argument ? spv_named_snapshot(item, argument) : Py_NewRef(item);
        Py_DECREF(item);
        if (!taken || PyList_Append(list, taken) || !spv_step(&pace))
            Py_CLEAR(list);
        Py_XDECREF(taken);
    }
    Py_XDECREF(iterator);
    if (list && PyErr_Occurred())
        Py_CLEAR(list);
    return list;
}

PyObject *spv_list(const spv_state *state, PyObject *iterable) {
    if (PyList_CheckExact(iterable))
        return PyList_GetSlice(iterable, 0, PY_SSIZE_T_MAX);
    return collect(state, iterable, NULL);
}

/* Replaces the items of a list that are not bytes objects by their snapshots. The list must not be the caller's. */
static bool snapshot_each(const spv_state *state, PyObject *list, const char *argument) {
    const Py_ssize_t count = PyList_Size(list);
    spv_pace pace = {.state = state};
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *item = PyList_GetItem(list, i);
        if (SPV_LIKELY(PyBytes_CheckExact(item)))
            continue;
        PyObject *taken = spv_named_snapshot(item, argument);
        if (!taken || PyList_SetItem(list, i, taken) || !spv_step(&pace))
            return false;
    }
    return true;
}

PyObject *spv_snapshots(const spv_state *state, PyObject *iterable, const char *argument) {
    static const char wanted[] = "an iterable of bytes";
    /* iterating over these yields ints or strings */
    if (PyBytes_Check(iterable) || PyByteArray_Check(iterable) || PyUnicode_Check(iterable)) {
        spv_refuse_argument(argument, wanted, iterable);
        return NULL;
    }
    if (!spv_check_iterable(iterable, argument, wanted))
        return NULL;
    if (!PyList_CheckExact(iterable))
        return collect(state, iterable, argument);
    PyObject *list = spv_list(state, iterable);
    if (list && !snapshot_each(state, list, argument))
        Py_CLEAR(list);
    return list;
}

/* Copies a hash from a snapshot. */
static bool copy_hash(const spv_state *state, PyObject *bytes, spv_hash hash) {
    const bool fits = spv_size(bytes) == sizeof(spv_hash);
    if (fits)
        memcpy(hash, spv_data(bytes), sizeof(spv_hash));
    else
        PyErr_Format(state->ParameterError, "a hash must be 32 bytes long, not %zu", spv_size(bytes));
    return fits;
}

bool spv_take_hash(const spv_state *state, PyObject *object, spv_hash hash) {
    PyObject *bytes = spv_snapshot(object);
    const bool taken = bytes && copy_hash(state, bytes, hash);
    Py_XDECREF(bytes);
    return taken;
}

/* True for a tuple of bytes, which is a snapshot already. */
static bool is_tuple_of_bytes(PyObject *object) {
    if (!PyTuple_CheckExact(object))
        return false;
    const Py_ssize_t count = PyTuple_Size(object);
    Py_ssize_t at = 0;
    while (at < count && PyBytes_CheckExact(PyTuple_GetItem(object, at)))
        at++;
    return at == count;
}

PyObject *spv_tuple_of_bytes(const spv_state *state, PyObject *iterable, const char *argument) {
    if (is_tuple_of_bytes(iterable))
        return Py_NewRef(iterable);
    PyObject *list = spv_snapshots(state, iterable, argument), *tuple = list ? PyList_AsTuple(list) : NULL;
    Py_XDECREF(list);
    return tuple;
}

spv_hash *spv_copy_hashes(const spv_state *state, PyObject *tuple) {
    const Py_ssize_t count = PyTuple_Size(tuple);
    spv_hash *hashes = PyMem_Malloc((size_t)count * sizeof *hashes);
    if (!hashes)
        PyErr_NoMemory();
    for (Py_ssize_t i = 0; hashes && i < count; i++)
        if (!copy_hash(state, PyTuple_GetItem(tuple, i), hashes[i])) {
            PyMem_Free(hashes);
            hashes = NULL;
        }
    return hashes;
}

bool spv_whole(const spv_state *state, PyObject *object, long long least, long long most, const char *range, long long *number) {
    if (SPV_UNLIKELY(!PyIndex_Check(object))) {
        spv_refuse_argument(range, "an int", object);
        return false;
    }
    PyObject *whole = PyNumber_Index(object);
    if (!whole)
        return false;
    int overflow;
    *number = PyLong_AsLongLongAndOverflow(whole, &overflow);
    const bool fits = !overflow && *number >= least && *number <= most;
    if (!fits)
        PyErr_Format(state->ParameterError, "%s, not %S", range, whole);
    Py_DECREF(whole);
    return fits;
}

bool spv_offset(const spv_state *state, PyObject *object, size_t *offset) {
    long long number;
    if (!spv_whole(state, object, 0, PY_SSIZE_T_MAX, "an offset or a count must be from 0 to sys.maxsize", &number))
        return false;
    *offset = (size_t)number;
    return true;
}

bool spv_count_arguments(const char *name, Py_ssize_t count, Py_ssize_t wanted) {
    if (count != wanted)
        PyErr_Format(PyExc_TypeError, "%s() takes %zd arguments (%zd given)", name, wanted, count);
    return count == wanted;
}
