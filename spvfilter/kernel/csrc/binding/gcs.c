#include "binding/gcs.h"

#include "binding/arguments.h"

#include "gcs/build.h"
#include "gcs/decode.h"
#include "gcs/match.h"

#include <stdlib.h>

enum { KEY_SIZE = 16 };

static bool take_p(const spv_state *state, PyObject *object, unsigned *p) {
    long long number;
    if (!spv_whole(state, object, 1, 32, "p must be from 1 to 32", &number))
        return false;
    *p = (unsigned)number;
    return true;
}

/* pure.gcs.check_parameters. */
static bool parameters(const spv_state *state, PyObject *given_p, PyObject *given_m, unsigned *p, uint64_t *m) {
    long long number;
    if (!take_p(state, given_p, p) || !spv_whole(state, given_m, 1, UINT32_MAX, "m must be from 1 to 2^32 - 1", &number))
        return false;
    *m = (uint64_t)number;
    return true;
}

/* A snapshot of a SipHash key; NULL with an exception set. */
static PyObject *key_of(const spv_state *state, PyObject *given, const char *argument) {
    PyObject *key = spv_named_snapshot(given, argument);
    if (key && spv_size(key) != KEY_SIZE) {
        PyErr_Format(state->ParameterError, "a SipHash key must be 16 bytes long, not %zu", spv_size(key));
        Py_CLEAR(key);
    }
    return key;
}

/* The bytes of the snapshots in a list, in an array that the caller frees with PyMem_Free. `room_of` returns how
   many bytes of room follow the array. The list owns the bytes. */
static spv_bytes *bytes_of(PyObject *snapshots, size_t *count, size_t room_of(size_t count)) {
    *count = (size_t)PyList_Size(snapshots);
    spv_bytes *items = PyMem_Malloc(*count * sizeof *items + room_of(*count));
    for (size_t i = 0; items && i < *count; i++) {
        char *data = NULL;
        Py_ssize_t size = 0;
        PyBytes_AsStringAndSize(PyList_GetItem(snapshots, (Py_ssize_t)i), &data, &size); /* cannot fail: it is a bytes object */
        items[i] = (spv_bytes){(const uint8_t *)data, (size_t)size};
    }
    if (!items)
        PyErr_NoMemory();
    return items;
}

static size_t no_room(size_t Py_UNUSED(count)) {
    return 0;
}

static PyObject *build(const spv_state *state, PyObject *list, PyObject *key, unsigned p, uint64_t m) {
    size_t count, size = 0;
    spv_bytes *items = bytes_of(list, &count, spv_gcs_room);
    if (!items)
        return NULL;
    const uint8_t *key_data = spv_data(key);
    uint8_t *built = NULL;
    spv_status status;
    Py_BEGIN_ALLOW_THREADS
    status = spv_gcs_build(items, count, items + count, key_data, p, m, &built, &size);
    Py_END_ALLOW_THREADS
    PyObject *result = NULL;
    if (status == SPV_RANGE)
        PyErr_Format(state->ParameterError, "a set can contain at most %d items", SPV_GCS_MAX_ITEMS);
    else
        result = status ? spv_raise(state, status, NULL) : PyBytes_FromStringAndSize((const char *)built, (Py_ssize_t)size);
    free(built);
    PyMem_Free(items);
    return result;
}

static PyObject *gcs_build(PyObject *self, PyObject *arguments, PyObject *names) {
    static char *keywords[] = {"items", "key", "p", "m", NULL};
    const spv_state *state = spv_module_state(self);
    PyObject *iterable, *given_key, *given_p, *given_m, *result = NULL;
    unsigned p;
    uint64_t m;
    if (!PyArg_ParseTupleAndKeywords(arguments, names, "OOOO:gcs_build", keywords, &iterable, &given_key, &given_p, &given_m))
        return NULL;
    PyObject *key = parameters(state, given_p, given_m, &p, &m) ? key_of(state, given_key, "key") : NULL;
    PyObject *list = key ? spv_snapshots(state, iterable, "items") : NULL;
    if (list)
        result = build(state, list, key, p, m);
    Py_XDECREF(list);
    Py_XDECREF(key);
    return result;
}

static PyObject *gcs_check(PyObject *self, PyObject *arguments, PyObject *names) {
    static char *keywords[] = {"data", "p", NULL};
    const spv_state *state = spv_module_state(self);
    PyObject *given, *given_p;
    unsigned p;
    if (!PyArg_ParseTupleAndKeywords(arguments, names, "OO:gcs_check", keywords, &given, &given_p))
        return NULL;
    PyObject *data = take_p(state, given_p, &p) ? spv_named_snapshot(given, "data") : NULL;
    if (!data)
        return NULL;
    const uint8_t *set = spv_data(data);
    const size_t size = spv_size(data);
    spv_gcs_values values = {0};
    spv_error error;
    spv_status status;
    Py_BEGIN_ALLOW_THREADS
    status = spv_gcs_decode(set, size, p, &values, &error);
    free(values.values);
    Py_END_ALLOW_THREADS
    Py_DECREF(data);
    return status ? spv_raise(state, status, &error) : PyLong_FromSize_t(values.count);
}

/* GcsQuery. */

typedef struct {
    PyObject_HEAD
    spv_gcs_query *query;
    PyObject *items; /* a list of bytes, for pickles */
} query_object;

static PyObject *query_new(PyTypeObject *type, PyObject *arguments, PyObject *names) {
    static char *keywords[] = {"items", NULL};
    PyObject *iterable;
    if (!PyArg_ParseTupleAndKeywords(arguments, names, "O:GcsQuery", keywords, &iterable))
        return NULL;
    const spv_state *state = PyType_GetModuleState(type);
    PyObject *list = state ? spv_snapshots(state, iterable, "items") : NULL, *self = NULL;
    size_t count;
    spv_bytes *items = list ? bytes_of(list, &count, no_room) : NULL;
    if (items)
        self = spv_allocate((PyObject *)type);
    if (self && !(((query_object *)self)->query = spv_gcs_query_new(items, count))) {
        PyErr_NoMemory();
        Py_CLEAR(self);
    }
    PyMem_Free(items);
    if (self)
        ((query_object *)self)->items = list;
    else
        Py_XDECREF(list);
    return self;
}

static PyObject *query_reduce(PyObject *self, PyObject *unused) {
    (void)unused;
    PyObject *items = PySequence_List(((query_object *)self)->items);
    return items ? Py_BuildValue("O(N)", (PyObject *)Py_TYPE(self), items) : NULL;
}

static int query_traverse(PyObject *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((query_object *)self)->items);
    return 0;
}

static int query_clear(PyObject *self) {
    Py_CLEAR(((query_object *)self)->items);
    return 0;
}

static void query_end(PyObject *self) {
    spv_gcs_query_free(((query_object *)self)->query);
    spv_end_object(self, query_clear);
}

static Py_ssize_t query_length(PyObject *self) {
    return (Py_ssize_t)spv_gcs_query_count(((query_object *)self)->query);
}

static PyObject *match_any(PyObject *self, PyObject *arguments, PyObject *names) {
    static char *keywords[] = {"data", "key", "p", "m", NULL};
    const spv_state *state = spv_object_state(self);
    PyObject *given, *given_key, *given_p, *given_m;
    unsigned p;
    uint64_t m;
    if (!PyArg_ParseTupleAndKeywords(arguments, names, "OOOO:match_any", keywords, &given, &given_key, &given_p, &given_m))
        return NULL;
    PyObject *key = parameters(state, given_p, given_m, &p, &m) ? key_of(state, given_key, "key") : NULL;
    PyObject *data = key ? spv_named_snapshot(given, "data") : NULL, *result = NULL;
    if (data) {
        const spv_gcs_query *query = ((query_object *)self)->query;
        const spv_gcs_set set = {spv_data(key), {spv_data(data), spv_size(data)}};
        spv_error error;
        spv_status status;
        uint8_t match = 0;
        size_t failed;
        Py_BEGIN_ALLOW_THREADS
        status = spv_gcs_match_many(query, &set, 1, p, m, &match, &failed, &error);
        Py_END_ALLOW_THREADS
        result = status ? spv_raise(state, status, &error) : PyBool_FromLong(match);
    }
    Py_XDECREF(data);
    Py_XDECREF(key);
    return result;
}

/* The sets of match_many, and a list that owns their bytes. */
typedef struct {
    PyObject *held;
    spv_gcs_set *sets;
    size_t count;
} set_arguments;

static const char PAIRS[] = "pairs (key, data) of bytes";

static bool read_set(const spv_state *state, PyObject *pair, set_arguments *read) {
    static const char sets[] = "sets";
    if (!PyTuple_Check(pair) || PyTuple_Size(pair) != 2)
        return spv_refuse_argument(sets, PAIRS, pair);
    PyObject *key = key_of(state, PyTuple_GetItem(pair, 0), sets);
    PyObject *data = key ? spv_named_snapshot(PyTuple_GetItem(pair, 1), sets) : NULL;
    const bool kept = data && !PyList_Append(read->held, key) && !PyList_Append(read->held, data);
    if (kept)
        read->sets[read->count++] = (spv_gcs_set){spv_data(key), {spv_data(data), spv_size(data)}};
    Py_XDECREF(key);
    Py_XDECREF(data);
    return kept;
}

static bool read_sets(const spv_state *state, PyObject *list, set_arguments *read) {
    const Py_ssize_t count = PyList_Size(list);
    read->held = PyList_New(0);
    read->sets = read->held ? PyMem_Malloc((size_t)(count + 1) * sizeof *read->sets) : NULL;
    if (read->held && !read->sets)
        PyErr_NoMemory();
    for (Py_ssize_t i = 0; read->sets && i < count; i++)
        if (!read_set(state, PyList_GetItem(list, i), read))
            return false;
    return read->sets != NULL;
}

/* Bytes of sets that are matched between two checks for signals; bytes that count for each item that is hashed. A
   byte takes some 2 ns. */
enum { SLICE = 1 << 24, ITEM = 4 };

static spv_status match_slices(const spv_gcs_query *query, const set_arguments *read, unsigned p, uint64_t m, uint8_t *mask, size_t *failed,
                               spv_error *error, bool *interrupted) {
    spv_status status = SPV_OK;
    for (size_t from = 0, end; from < read->count && !status && !*interrupted; from = end) {
        size_t size = 0;
        for (end = from; end < read->count && size < SLICE; end++)
            size += read->sets[end].data.size + ITEM * spv_gcs_query_count(query);
        Py_BEGIN_ALLOW_THREADS
        status = spv_gcs_match_many(query, read->sets + from, end - from, p, m, mask + from, failed, error);
        Py_END_ALLOW_THREADS
        *failed += from;
        *interrupted = PyErr_CheckSignals() != 0;
    }
    return status;
}

static PyObject *match_sets(const spv_state *state, const spv_gcs_query *query, const set_arguments *read, unsigned p, uint64_t m) {
    PyObject *mask = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)read->count);
    if (!mask)
        return NULL;
    size_t failed = 0;
    spv_error error;
    bool interrupted = false;
    const spv_status status = match_slices(query, read, p, m, (uint8_t *)PyBytes_AsString(mask), &failed, &error, &interrupted);
    if (!status && !interrupted)
        return mask;
    if (!interrupted) {
        char field[80];
        if (status == SPV_FORMAT) {
            PyOS_snprintf(field, sizeof field, "%s of filter %zu", error.field, failed);
            error.field = field;
        }
        spv_raise(state, status, &error);
    }
    Py_DECREF(mask);
    return NULL;
}

static PyObject *match_many(PyObject *self, PyObject *arguments, PyObject *names) {
    static char *keywords[] = {"sets", "p", "m", NULL};
    const spv_state *state = spv_object_state(self);
    PyObject *given, *given_p, *given_m, *mask = NULL;
    unsigned p;
    uint64_t m;
    if (!PyArg_ParseTupleAndKeywords(arguments, names, "OOO:match_many", keywords, &given, &given_p, &given_m)
        || !parameters(state, given_p, given_m, &p, &m))
        return NULL;
    PyObject *list = spv_check_iterable(given, "sets", PAIRS) ? spv_list(state, given) : NULL;
    set_arguments read = {0};
    if (list && read_sets(state, list, &read))
        mask = match_sets(state, ((query_object *)self)->query, &read, p, m);
    PyMem_Free(read.sets);
    Py_XDECREF(read.held);
    Py_XDECREF(list);
    return mask;
}

int spv_add_gcs(PyObject *module, spv_state *state) {
    static PyMethodDef functions[] = {
        SPV_FUNCTION(gcs_build, METH_VARARGS | METH_KEYWORDS),
        SPV_FUNCTION(gcs_check, METH_VARARGS | METH_KEYWORDS),
        {NULL, NULL, 0, NULL},
    };
    static PyMethodDef methods[] = {
        SPV_METHOD(GcsQuery, match_any, match_any, METH_VARARGS | METH_KEYWORDS),
        SPV_METHOD(GcsQuery, match_many, match_many, METH_VARARGS | METH_KEYWORDS),
        {"__reduce__", query_reduce, METH_NOARGS, NULL},
        {NULL, NULL, 0, NULL},
    };
    static PyType_Slot slots[] = {
        {Py_tp_new, query_new},
        {Py_tp_traverse, query_traverse},
        {Py_tp_dealloc, query_end},
        {Py_tp_methods, methods},
        {Py_sq_length, query_length},
        {Py_tp_doc, SPV_DOC_GcsQuery},
        {0, NULL},
    };
    static PyType_Spec spec = {
        .name = "spvfilter.kernel.native.GcsQuery",
        .basicsize = sizeof(query_object),
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
        .slots = slots,
    };
    return spv_make_type(module, &state->GcsQuery, &spec, true) ? PyModule_AddFunctions(module, functions) : -1;
}
