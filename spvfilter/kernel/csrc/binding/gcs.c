/* Binding of gcs/: the type GcsQuery, gcs_build and gcs_check; the twin of pure/gcs.py. */
#include "binding/binding.h"

#include "gcs/build.h"
#include "gcs/decode.h"
#include "gcs/match.h"

#include <stdlib.h>

/* The bytes of a list's items, which must all be bytes objects; the list keeps them where they are. */
static spv_bytes *list_bytes(PyObject *list, size_t *count) {
    *count = (size_t)PyList_Size(list);
    spv_bytes *items = PyMem_Malloc((*count ? *count : 1) * sizeof *items);
    if (!items) {
        PyErr_NoMemory();
        return NULL;
    }
    for (size_t i = 0; i < *count; i++) {
        char *data;
        Py_ssize_t size;
        if (PyBytes_AsStringAndSize(PyList_GetItem(list, (Py_ssize_t)i), &data, &size)) {
            PyMem_Free(items);
            return NULL;
        }
        items[i] = (spv_bytes){(const uint8_t *)data, (size_t)size};
    }
    return items;
}

/* An iterable's items as bytes objects in a list of our own; bytearrays and the like are copied. */
static PyObject *bytes_list(PyObject *iterable) {
    if (PyBytes_Check(iterable) || PyUnicode_Check(iterable)) {
        PyErr_SetString(PyExc_TypeError, "an iterable of bytes expected, not one");
        return NULL;
    }
    PyObject *list = PySequence_List(iterable);
    for (Py_ssize_t i = 0; list && i < PyList_Size(list); i++) {
        PyObject *item = PyList_GetItem(list, i);
        if (PyBytes_Check(item))
            continue;
        PyObject *copy = PyLong_Check(item) ? NULL : PyBytes_FromObject(item);
        if (!copy && !PyErr_Occurred())
            PyErr_SetString(PyExc_TypeError, "bytes expected, not an int");
        if (!copy || PyList_SetItem(list, i, copy)) {
            Py_DECREF(list);
            list = NULL;
        }
    }
    return list;
}

static bool parameters(long long p, long long m, Py_ssize_t key) {
    if (p < 1 || p > 32)
        PyErr_Format(spv_known.ParameterError, "P is from 1 to 32: %lld", p);
    else if (m < 1 || m > UINT32_MAX)
        PyErr_Format(spv_known.ParameterError, "M is from 1 to 2^32 - 1: %lld", m);
    else if (key != 16)
        PyErr_Format(spv_known.ParameterError, "a SipHash key has 16 bytes, not %zd", key);
    else
        return true;
    return false;
}

static PyObject *gcs_build(PyObject *self, PyObject *arguments, PyObject *names) {
    static char *keywords[] = {"items", "key", "p", "m", NULL};
    PyObject *iterable, *result = NULL;
    Py_buffer key;
    long long p, m;
    (void)self;
    if (!PyArg_ParseTupleAndKeywords(arguments, names, "Oy*LL", keywords, &iterable, &key, &p, &m))
        return NULL;
    PyObject *list = parameters(p, m, key.len) ? bytes_list(iterable) : NULL;
    size_t count;
    spv_bytes *items = list ? list_bytes(list, &count) : NULL;
    if (items) {
        uint8_t *built = NULL;
        size_t size = 0;
        spv_status status;
        Py_BEGIN_ALLOW_THREADS
        status = spv_gcs_build(items, count, key.buf, (unsigned)p, (uint64_t)m, &built, &size);
        Py_END_ALLOW_THREADS
        if (status == SPV_RANGE)
            PyErr_Format(spv_known.ParameterError, "a set holds at most %d items", SPV_GCS_MAX_ITEMS);
        else
            result = status ? spv_raise(status, NULL) : PyBytes_FromStringAndSize((const char *)built, (Py_ssize_t)size);
        free(built);
        PyMem_Free(items);
    }
    Py_XDECREF(list);
    PyBuffer_Release(&key);
    return result;
}

static PyObject *gcs_check(PyObject *self, PyObject *arguments, PyObject *names) {
    static char *keywords[] = {"data", "p", NULL};
    Py_buffer data;
    long long p;
    (void)self;
    if (!PyArg_ParseTupleAndKeywords(arguments, names, "y*L", keywords, &data, &p))
        return NULL;
    PyObject *result = NULL;
    if (parameters(p, 1, 16)) {
        spv_gcs_values values = {0};
        spv_error error;
        spv_status status;
        Py_BEGIN_ALLOW_THREADS
        status = spv_gcs_decode(data.buf, (size_t)data.len, (unsigned)p, &values, &error);
        free(values.values);
        Py_END_ALLOW_THREADS
        result = status ? spv_raise(status, &error) : PyLong_FromSize_t(values.count);
    }
    PyBuffer_Release(&data);
    return result;
}

typedef struct {
    PyObject_HEAD
    spv_gcs_query *query;
} query_object;

static PyObject *query_new(PyTypeObject *type, PyObject *arguments, PyObject *names) {
    static char *keywords[] = {"items", NULL};
    PyObject *iterable;
    if (!PyArg_ParseTupleAndKeywords(arguments, names, "O", keywords, &iterable))
        return NULL;
    PyObject *list = bytes_list(iterable);
    size_t count;
    spv_bytes *items = list ? list_bytes(list, &count) : NULL;
    query_object *self = NULL;
    if (items) {
        allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
        self = (query_object *)allocate(type, 0);
        if (self && !(self->query = spv_gcs_query_new(items, count))) {
            PyErr_NoMemory();
            Py_DECREF((PyObject *)self);
            self = NULL;
        }
        PyMem_Free(items);
    }
    Py_XDECREF(list);
    return (PyObject *)self;
}

static void query_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    spv_gcs_query_free(((query_object *)self)->query);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF((PyObject *)type);
}

static Py_ssize_t query_length(PyObject *self) {
    return (Py_ssize_t)spv_gcs_query_count(((query_object *)self)->query);
}

static PyObject *match_any(PyObject *self, PyObject *arguments, PyObject *names) {
    static char *keywords[] = {"data", "key", "p", "m", NULL};
    Py_buffer data, key;
    long long p, m;
    if (!PyArg_ParseTupleAndKeywords(arguments, names, "y*y*LL", keywords, &data, &key, &p, &m))
        return NULL;
    PyObject *result = NULL;
    if (parameters(p, m, key.len)) {
        spv_error error;
        spv_status status;
        uint8_t match = 0;
        size_t failed;
        const spv_gcs_query *query = ((query_object *)self)->query;
        spv_gcs_set set = {key.buf, {data.buf, (size_t)data.len}};
        Py_BEGIN_ALLOW_THREADS
        status = spv_gcs_match_many(query, &set, 1, (unsigned)p, (uint64_t)m, &match, &failed, &error);
        Py_END_ALLOW_THREADS
        result = status ? spv_raise(status, &error) : PyBool_FromLong(match);
    }
    PyBuffer_Release(&key);
    PyBuffer_Release(&data);
    return result;
}

static spv_gcs_set *read_sets(PyObject *list, size_t *count) {
    *count = (size_t)PyList_Size(list);
    spv_gcs_set *sets = PyMem_Malloc((*count ? *count : 1) * sizeof *sets);
    if (!sets) {
        PyErr_NoMemory();
        return NULL;
    }
    for (size_t i = 0; i < *count; i++) {
        PyObject *pair = PyList_GetItem(list, (Py_ssize_t)i);
        char *key, *data;
        Py_ssize_t key_size, size;
        if (!PyTuple_Check(pair) || PyTuple_Size(pair) != 2) {
            PyErr_SetString(PyExc_TypeError, "pairs (key, data) of bytes expected");
        } else if (!PyBytes_AsStringAndSize(PyTuple_GetItem(pair, 0), &key, &key_size)
                   && !PyBytes_AsStringAndSize(PyTuple_GetItem(pair, 1), &data, &size) && parameters(1, 1, key_size)) {
            sets[i] = (spv_gcs_set){(const uint8_t *)key, {(const uint8_t *)data, (size_t)size}};
            continue;
        }
        PyMem_Free(sets);
        return NULL;
    }
    return sets;
}

static PyObject *match_many(PyObject *self, PyObject *arguments, PyObject *names) {
    static char *keywords[] = {"sets", "p", "m", NULL};
    PyObject *sequence;
    long long p, m;
    if (!PyArg_ParseTupleAndKeywords(arguments, names, "OLL", keywords, &sequence, &p, &m) || !parameters(p, m, 16))
        return NULL;
    PyObject *list = PySequence_List(sequence); /* holds the pairs, and they their bytes, until the end */
    size_t count, failed = 0;
    spv_gcs_set *sets = list ? read_sets(list, &count) : NULL;
    PyObject *mask = sets ? PyBytes_FromStringAndSize(NULL, (Py_ssize_t)count) : NULL;
    if (mask) {
        uint8_t *to = (uint8_t *)PyBytes_AsString(mask);
        const spv_gcs_query *query = ((query_object *)self)->query;
        spv_error error;
        spv_status status;
        Py_BEGIN_ALLOW_THREADS
        status = spv_gcs_match_many(query, sets, count, (unsigned)p, (uint64_t)m, to, &failed, &error);
        Py_END_ALLOW_THREADS
        if (status) {
            char field[80];
            if (status == SPV_FORMAT) {
                PyOS_snprintf(field, sizeof field, "%s of filter %zu", error.field, failed);
                error.field = field;
            }
            spv_raise(status, &error);
            Py_DECREF(mask);
            mask = NULL;
        }
    }
    PyMem_Free(sets);
    Py_XDECREF(list);
    return mask;
}

int spv_add_gcs(PyObject *module) {
    static PyMethodDef functions[] = {
        {"gcs_build", (PyCFunction)(void (*)(void))gcs_build, METH_VARARGS | METH_KEYWORDS, "A Golomb-coded set: see pure.gcs.gcs_build."},
        {"gcs_check", (PyCFunction)(void (*)(void))gcs_check, METH_VARARGS | METH_KEYWORDS, "N of a sound set: see pure.gcs.gcs_check."},
        {NULL, NULL, 0, NULL},
    };
    static PyMethodDef methods[] = {
        {"match_any", (PyCFunction)(void (*)(void))match_any, METH_VARARGS | METH_KEYWORDS, "Whether a set contains any of the items."},
        {"match_many", (PyCFunction)(void (*)(void))match_many, METH_VARARGS | METH_KEYWORDS, "The same for many (key, data), one byte each."},
        {NULL, NULL, 0, NULL},
    };
    static PyType_Slot slots[] = {
        {Py_tp_new, query_new},
        {Py_tp_dealloc, query_dealloc},
        {Py_tp_methods, methods},
        {Py_sq_length, query_length},
        {Py_tp_doc, "Items to look for in many sets: see pure.gcs.GcsQuery."},
        {0, NULL},
    };
    static PyType_Spec spec = {
        .name = "spvfilter.kernel.native.GcsQuery",
        .basicsize = sizeof(query_object),
        .flags = Py_TPFLAGS_DEFAULT,
        .slots = slots,
    };
    PyObject *type = PyType_FromSpec(&spec);
    if (!type || PyModule_AddObjectRef(module, "GcsQuery", type)) {
        Py_XDECREF(type);
        return -1;
    }
    Py_DECREF(type);
    return PyModule_AddFunctions(module, functions);
}
