#include "binding/headers.h"

#include "binding/arguments.h"

#include "block/hashindex.h"
#include "block/headers.h"

/* A snapshot of whole headers; NULL with an exception set. */
static PyObject *whole_headers(const spv_state *state, PyObject *given) {
    PyObject *headers = spv_snapshot(given);
    spv_error error;
    const spv_status status = headers ? spv_check_headers(spv_size(headers), &error) : SPV_OK;
    if (status) {
        Py_CLEAR(headers);
        spv_raise(state, status, &error);
    }
    return headers;
}

/* A snapshot of `size` bytes. NULL with an exception set: for another size a ParameterError, whose message is
   `format` with the size of the argument. */
static PyObject *exactly(const spv_state *state, PyObject *given, size_t size, const char *format) {
    PyObject *bytes = spv_snapshot(given);
    if (bytes && spv_size(bytes) != size) {
        PyErr_Format(state->ParameterError, format, spv_size(bytes));
        Py_CLEAR(bytes);
    }
    return bytes;
}

/* Snapshots of headers and their hashes. */
typedef struct {
    PyObject *headers, *hashes;
    size_t count;
} hashed_headers;

static bool take_hashed(const spv_state *state, PyObject *const *arguments, hashed_headers *taken) {
    taken->hashes = NULL;
    taken->headers = whole_headers(state, arguments[0]);
    if (!taken->headers)
        return false;
    taken->count = spv_size(taken->headers) / SPV_HEADER_SIZE;
    taken->hashes = spv_snapshot(arguments[1]);
    if (!taken->hashes)
        return false;
    const size_t wanted = taken->count * sizeof(spv_hash), size = spv_size(taken->hashes);
    if (size != wanted)
        PyErr_Format(state->ParameterError, "the hashes of %zu headers must be %zu bytes long, not %zu", taken->count, wanted, size);
    return size == wanted;
}

static void let_go(hashed_headers *taken) {
    Py_XDECREF(taken->headers);
    Py_XDECREF(taken->hashes);
}

static PyObject *header_hashes(PyObject *self, PyObject *given) {
    PyObject *headers = whole_headers(spv_module_state(self), given);
    if (!headers)
        return NULL;
    const size_t size = spv_size(headers);
    PyObject *hashes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(size / SPV_HEADER_SIZE * sizeof(spv_hash)));
    if (hashes) {
        const uint8_t *raw = spv_data(headers);
        spv_hash *out = (spv_hash *)PyBytes_AsString(hashes);
        spv_error error;
        Py_BEGIN_ALLOW_THREADS
        spv_header_hashes(raw, size, out, &error); /* cannot fail: the headers are whole */
        Py_END_ALLOW_THREADS
    }
    Py_DECREF(headers);
    return hashes;
}

static PyObject *linked_headers(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    hashed_headers taken;
    if (!spv_count_arguments("linked_headers", count, 2))
        return NULL;
    PyObject *linked = NULL;
    if (take_hashed(spv_module_state(self), arguments, &taken))
        linked = PyLong_FromSize_t(spv_linked_headers(spv_data(taken.headers), (const spv_hash *)spv_data(taken.hashes), taken.count));
    let_go(&taken);
    return linked;
}

static PyObject *header_bits(PyObject *self, PyObject *given) {
    PyObject *headers = whole_headers(spv_module_state(self), given);
    if (!headers)
        return NULL;
    const size_t count = spv_size(headers) / SPV_HEADER_SIZE;
    const uint8_t *raw = spv_data(headers);
    PyObject *runs = PyList_New(0);
    for (size_t at = 0; runs && at < count;) {
        uint32_t bits;
        const size_t same = spv_same_bits(raw + at * SPV_HEADER_SIZE, count - at, &bits);
        PyObject *run = Py_BuildValue("(kn)", (unsigned long)bits, (Py_ssize_t)same);
        if (!run || PyList_Append(runs, run))
            Py_CLEAR(runs);
        Py_XDECREF(run);
        at += same;
    }
    Py_DECREF(headers);
    return runs;
}

/* judge_headers. */

static bool take_times(const spv_state *state, PyObject *given, spv_header_rules *rules) {
    PyObject *times = spv_snapshot(given);
    if (!times)
        return false;
    const size_t size = spv_size(times);
    const bool sound = size % 4 == 0 && size >= 4 && size <= 4 * SPV_MEDIAN_SPAN;
    if (!sound)
        PyErr_Format(state->ParameterError, "expected 1 to %d times of 4 bytes each, not %zu bytes", SPV_MEDIAN_SPAN, size);
    rules->known = sound ? size / 4 : 0;
    for (size_t i = 0; i < rules->known; i++)
        rules->times[i] = spv_le32(spv_data(times) + 4 * i);
    Py_DECREF(times);
    return sound;
}

static bool take_numbers(const spv_state *state, PyObject *const *arguments, spv_header_rules *rules) {
    const long long most = 1LL << 32;
    long long late_by, least_version, latest;
    if (!spv_whole(state, arguments[0], 0, most, "a difference of times must be from 0 to 2^32", &late_by)
        || !spv_whole(state, arguments[1], INT32_MIN, INT32_MAX, "a version must be a signed 32-bit number", &least_version)
        || !spv_whole(state, arguments[2], -1, most, "the latest time must be from -1 to 2^32", &latest))
        return false;
    rules->late_by = (uint64_t)late_by;
    rules->least_version = least_version;
    rules->latest = latest;
    return true;
}

static PyObject *judged(const spv_state *state, PyObject *const *arguments, const hashed_headers *taken, spv_header_rules *rules) {
    enum { DIFFICULTY_SIZE = 36 };
    const char *format = "bits and target must be 36 bytes long, not %zu";
    PyObject *usual = exactly(state, arguments[0], DIFFICULTY_SIZE, format);
    PyObject *late = usual ? exactly(state, arguments[1], DIFFICULTY_SIZE, format) : NULL, *result = NULL;
    if (late && take_numbers(state, arguments + 2, rules)) {
        const uint8_t *headers = spv_data(taken->headers);
        const spv_hash *hashes = (const spv_hash *)spv_data(taken->hashes);
        size_t good, late_ones;
        rules->usual = spv_data(usual);
        rules->late = spv_data(late);
        Py_BEGIN_ALLOW_THREADS
        good = spv_judge_headers(headers, hashes, taken->count, rules, &late_ones);
        Py_END_ALLOW_THREADS
        result = Py_BuildValue("(nn)", (Py_ssize_t)good, (Py_ssize_t)late_ones);
    }
    Py_XDECREF(usual);
    Py_XDECREF(late);
    return result;
}

static PyObject *judge_headers(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    enum { HEADERS = 0, TIMES = 2, DIFFICULTIES = 3, ARGUMENTS = 8 };
    const spv_state *state = spv_module_state(self);
    hashed_headers taken;
    spv_header_rules rules;
    if (!spv_count_arguments("judge_headers", count, ARGUMENTS))
        return NULL;
    PyObject *result = NULL;
    if (take_hashed(state, arguments + HEADERS, &taken) && take_times(state, arguments[TIMES], &rules))
        result = judged(state, arguments + DIFFICULTIES, &taken, &rules);
    let_go(&taken);
    return result;
}

/* The index. */

/* Memory for an index of `count` headers. NULL with an exception set. */
static PyObject *index_room(const spv_state *state, size_t count) {
    if (count && count <= SPV_MOST_INDEXED)
        return PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(count * SPV_INDEX_ENTRY));
    PyErr_Format(state->ParameterError, "an index takes 1 to %d headers, not %zu", SPV_MOST_INDEXED, count);
    return NULL;
}

static PyObject *index_of(const spv_state *state, PyObject *headers, const spv_hash last) {
    const size_t count = spv_size(headers) / SPV_HEADER_SIZE;
    PyObject *index = index_room(state, count);
    if (!index)
        return NULL;
    const uint8_t *raw = spv_data(headers);
    uint8_t *out = (uint8_t *)PyBytes_AsString(index);
    spv_status status;
    Py_BEGIN_ALLOW_THREADS
    status = spv_index_headers(raw, count, last, out);
    Py_END_ALLOW_THREADS
    if (!status)
        return index;
    Py_DECREF(index);
    return spv_raise(state, status, NULL);
}

static PyObject *index_headers(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    const spv_state *state = spv_module_state(self);
    spv_hash last;
    PyObject *headers = spv_count_arguments("index_headers", count, 2) ? whole_headers(state, arguments[0]) : NULL, *index = NULL;
    if (headers && spv_take_hash(state, arguments[1], last))
        index = index_of(state, headers, last);
    Py_XDECREF(headers);
    return index;
}

static bool is_index(const spv_state *state, PyObject *index) {
    const size_t size = spv_size(index);
    if (size % SPV_INDEX_ENTRY)
        PyErr_Format(state->ParameterError, "an index must be a multiple of %d bytes long, not %zu", SPV_INDEX_ENTRY, size);
    return size % SPV_INDEX_ENTRY == 0;
}

/* The bytes of a tuple of indexes, to be freed with PyMem_Free, and the number of their headers. NULL with an
   exception set. */
static spv_bytes *indexes_of(const spv_state *state, PyObject *tuple, size_t *count) {
    const Py_ssize_t all = PyTuple_Size(tuple);
    spv_bytes *indexes = PyMem_Malloc((size_t)(all + 1) * sizeof *indexes);
    if (!indexes)
        PyErr_NoMemory();
    *count = 0;
    for (Py_ssize_t i = 0; indexes && i < all; i++) {
        PyObject *index = PyTuple_GetItem(tuple, i);
        if (!is_index(state, index)) {
            PyMem_Free(indexes);
            return NULL;
        }
        indexes[i] = (spv_bytes){spv_data(index), spv_size(index)};
        *count += spv_size(index) / SPV_INDEX_ENTRY;
    }
    return indexes;
}

static PyObject *join_indexes(PyObject *self, PyObject *given) {
    const spv_state *state = spv_module_state(self);
    size_t count;
    PyObject *tuple = spv_tuple_of_bytes(state, given, "indexes");
    spv_bytes *indexes = tuple ? indexes_of(state, tuple, &count) : NULL;
    PyObject *joined = indexes ? index_room(state, count) : NULL;
    spv_status status = SPV_OK;
    if (joined) {
        const size_t number = (size_t)PyTuple_Size(tuple);
        uint8_t *out = (uint8_t *)PyBytes_AsString(joined);
        Py_BEGIN_ALLOW_THREADS
        status = spv_join_indexes(indexes, number, out);
        Py_END_ALLOW_THREADS
    }
    if (status)
        Py_CLEAR(joined);
    if (status == SPV_RANGE)
        PyErr_SetString(state->ParameterError, "an index must contain each number exactly once");
    else if (status)
        spv_raise(state, status, NULL);
    PyMem_Free(indexes);
    Py_XDECREF(tuple);
    return joined;
}

/* Appends the matches of one index. False with an exception set. */
static bool append_found(const spv_state *state, PyObject *found, PyObject *index, Py_ssize_t place, const spv_hash hash) {
    if (!is_index(state, index))
        return false;
    const uint8_t *numbers;
    const size_t count = spv_find_header(spv_data(index), spv_size(index) / SPV_INDEX_ENTRY, hash, &numbers);
    bool done = true;
    for (size_t i = 0; done && i < count; i++) {
        PyObject *pair = Py_BuildValue("(ni)", place, (int)spv_le16(numbers + 2 * i));
        done = pair && !PyList_Append(found, pair);
        Py_XDECREF(pair);
    }
    return done;
}

static PyObject *find_header(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    const spv_state *state = spv_module_state(self);
    spv_hash hash;
    PyObject *indexes = spv_count_arguments("find_header", count, 2) ? spv_tuple_of_bytes(state, arguments[0], "indexes") : NULL;
    PyObject *found = indexes && spv_take_hash(state, arguments[1], hash) ? PyList_New(0) : NULL;
    const Py_ssize_t all = found ? PyTuple_Size(indexes) : 0;
    for (Py_ssize_t place = 0; found && place < all; place++)
        if (!append_found(state, found, PyTuple_GetItem(indexes, place), place, hash))
            Py_CLEAR(found);
    Py_XDECREF(indexes);
    return found;
}

/* Filter headers. */

static PyObject *chained(const spv_state *state, PyObject *hashes, const spv_hash previous) {
    const size_t size = spv_size(hashes);
    if (size % sizeof(spv_hash)) {
        PyErr_Format(state->ParameterError, "filter hashes must be a multiple of 32 bytes long, not %zu", size);
        return NULL;
    }
    PyObject *headers = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
    if (headers) {
        const spv_hash *from = (const spv_hash *)spv_data(hashes);
        spv_hash *out = (spv_hash *)PyBytes_AsString(headers);
        Py_BEGIN_ALLOW_THREADS
        spv_chain_filter_headers(from, size / sizeof(spv_hash), previous, out);
        Py_END_ALLOW_THREADS
    }
    return headers;
}

static PyObject *chain_filter_headers(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    const spv_state *state = spv_module_state(self);
    spv_hash previous;
    PyObject *hashes = spv_count_arguments("chain_filter_headers", count, 2) ? spv_snapshot(arguments[0]) : NULL, *headers = NULL;
    if (hashes && spv_take_hash(state, arguments[1], previous))
        headers = chained(state, hashes, previous);
    Py_XDECREF(hashes);
    return headers;
}

/* The filter hashes of a list of snapshots. NULL with an exception set. */
static PyObject *hashes_of(PyObject *filters) {
    enum { LONG = 1 << 16 }; /* bytes whose hashing takes about 50 µs: for as many or more the GIL is released */
    const size_t count = (size_t)PyList_Size(filters);
    size_t total = 0;
    PyObject *hashes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(count * sizeof(spv_hash)));
    spv_bytes *items = hashes ? PyMem_Malloc(count * sizeof *items) : NULL;
    if (!items) {
        Py_XDECREF(hashes);
        return PyErr_Occurred() ? NULL : PyErr_NoMemory();
    }
    for (size_t i = 0; i < count; i++) {
        PyObject *filter = PyList_GetItem(filters, (Py_ssize_t)i);
        items[i] = (spv_bytes){spv_data(filter), spv_size(filter)};
        total += items[i].size;
    }
    spv_hash *out = (spv_hash *)PyBytes_AsString(hashes);
    if (total < LONG) {
        spv_filter_hashes(items, count, out);
    } else {
        Py_BEGIN_ALLOW_THREADS
        spv_filter_hashes(items, count, out);
        Py_END_ALLOW_THREADS
    }
    PyMem_Free(items);
    return hashes;
}

static PyObject *filter_hashes(PyObject *self, PyObject *given) {
    PyObject *filters = spv_snapshots(spv_module_state(self), given, "filters"), *hashes = filters ? hashes_of(filters) : NULL;
    Py_XDECREF(filters);
    return hashes;
}

int spv_add_headers(PyObject *module, spv_state *Py_UNUSED(state)) {
    static PyMethodDef functions[] = {
        SPV_FUNCTION(header_hashes, METH_O),
        SPV_FUNCTION(linked_headers, METH_FASTCALL),
        SPV_FUNCTION(header_bits, METH_O),
        SPV_FUNCTION(judge_headers, METH_FASTCALL),
        SPV_FUNCTION(index_headers, METH_FASTCALL),
        SPV_FUNCTION(join_indexes, METH_O),
        SPV_FUNCTION(find_header, METH_FASTCALL),
        SPV_FUNCTION(chain_filter_headers, METH_FASTCALL),
        SPV_FUNCTION(filter_hashes, METH_O),
        {NULL, NULL, 0, NULL},
    };
    return PyModule_AddFunctions(module, functions);
}
