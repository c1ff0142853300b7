#include "binding/packed.h"

#include "binding/addresses.h"
#include "binding/watchtable/scan.h"

#include "array.h"
#include "watch/render.h"

#include <stddef.h>

enum {
    SLICE = 1 << 20, /* bytes of packed hits between two checks for signals: some milliseconds */
    LARGE = 1 << 15, /* from here on the GIL is released; for less, waiting for it could take longer than the work */
};

static size_t slice_end(size_t at, size_t end) {
    return end - at > SLICE ? at + SLICE : end;
}

static PyThreadState *begin_work(spv_bytes packed) {
    return packed.size < LARGE ? NULL : PyEval_SaveThread();
}

static void finish_work(PyThreadState *thread) {
    if (thread)
        PyEval_RestoreThread(thread);
}

/* unpack_hits. */

static PyObject *unpacked(const spv_state *state, spv_bytes packed) {
    PyObject *list = PyList_New(0), *txid = NULL;
    const uint8_t *same = NULL;
    spv_pace pace = {.state = state};
    for (size_t at = 0, until = slice_end(0, packed.size); list && at < packed.size;) {
        spv_packed_hit hit;
        spv_error error;
        const spv_status status = spv_next_hit(packed, &at, &hit, &error);
        if (status) {
            spv_raise(state, status, &error);
            Py_CLEAR(list);
            break;
        }
        if (!same || memcmp(same, hit.txid, sizeof(spv_hash))) {
            Py_XDECREF(txid);
            txid = PyBytes_FromStringAndSize((const char *)hit.txid, sizeof(spv_hash));
            same = hit.txid;
        }
        PyObject *value = txid ? spv_hit_value(state, &hit, txid) : NULL;
        if (!value || PyList_Append(list, value))
            Py_CLEAR(list);
        Py_XDECREF(value);
        if (list && at >= until) {
            until = slice_end(at, packed.size);
            if (!spv_rest(&pace))
                Py_CLEAR(list);
        }
    }
    Py_XDECREF(txid);
    return list;
}

static PyObject *unpack_hits(PyObject *self, PyObject *given) {
    PyObject *taken = spv_snapshot(given);
    if (!taken)
        return NULL;
    PyObject *list = unpacked(spv_module_state(self), spv_bytes_of(taken));
    Py_DECREF(taken);
    return list;
}

/* pack_hits. */

enum { OF_SPEND, OF_POSITION, OF_TXID, OF_N, OF_OUTPOINT, OF_VALUE, OF_SCRIPT, OF_ENTRY, OF_FEE, OF_HIT /* fields of values.Hit */ };

/* A hit, and the snapshots that it points into. */
typedef struct {
    spv_packed_hit hit;
    PyObject *txid, *outpoint, *script;
} held_hit;

static void let_hit_go(held_hit *held) {
    Py_XDECREF(held->txid);
    Py_XDECREF(held->outpoint);
    Py_XDECREF(held->script);
}

static bool take_bytes(const spv_state *state, held_hit *held, PyObject *hit) {
    if (!(held->txid = spv_snapshot(PyTuple_GetItem(hit, OF_TXID))) || !(held->outpoint = spv_snapshot(PyTuple_GetItem(hit, OF_OUTPOINT))))
        return false;
    if (spv_size(held->txid) != sizeof(spv_hash)) {
        PyErr_Format(state->ParameterError, "a txid has 32 bytes, not %zu", spv_size(held->txid));
        return false;
    }
    if (!spv_check_outpoint(state, held->outpoint))
        return false;
    held->hit.txid = spv_data(held->txid);
    const uint8_t *outpoint = spv_data(held->outpoint);
    if (held->hit.spend) {
        held->hit.outpoint = outpoint;
    } else if (memcmp(outpoint, held->hit.txid, sizeof(spv_hash)) || spv_le32(outpoint + sizeof(spv_hash)) != held->hit.n) {
        PyObject *shown = spv_call(held->outpoint, "hex", NULL);
        if (shown)
            PyErr_Format(state->ParameterError, "the outpoint of an output is its txid and number, not %U", shown);
        Py_XDECREF(shown);
        return false;
    }
    if (PyTuple_GetItem(hit, OF_SCRIPT) == Py_None)
        return true;
    if (!(held->script = spv_snapshot(PyTuple_GetItem(hit, OF_SCRIPT))))
        return false;
    held->hit.script = spv_bytes_of(held->script);
    if (held->hit.script.size >= SPV_NO_SCRIPT)
        PyErr_Format(state->ParameterError, "a script of %zu bytes", held->hit.script.size);
    return held->hit.script.size < SPV_NO_SCRIPT;
}

/* pure.packed._checked. False with an exception set. */
static bool take_hit(const spv_state *state, PyObject *hit, held_hit *held) {
    long long position, n, value, fee, entry;
    *held = (held_hit){0};
    if (!PyObject_TypeCheck(hit, (PyTypeObject *)state->Hit) || PyTuple_Size(hit) != OF_HIT)
        return spv_refuse_type("a Hit expected, not %U", hit);
    if (!spv_whole(state, PyTuple_GetItem(hit, OF_POSITION), 0, UINT32_MAX, "not a position in a block", &position)
        || !spv_whole(state, PyTuple_GetItem(hit, OF_N), 0, UINT32_MAX, "not the number of an output or input", &n))
        return false;
    const int spend = PyObject_IsTrue(PyTuple_GetItem(hit, OF_SPEND));
    held->hit.spend = spend > 0;
    held->hit.position = (uint32_t)position;
    held->hit.n = (uint32_t)n;
    if (spend < 0 || !take_bytes(state, held, hit)
        || !spv_whole(state, PyTuple_GetItem(hit, OF_VALUE), SPV_NO_VALUE, INT64_MAX, "not a value in satoshi", &value)
        || !spv_whole(state, PyTuple_GetItem(hit, OF_FEE), SPV_NO_VALUE, INT64_MAX, "not a value in satoshi", &fee)
        || !spv_whole(state, PyTuple_GetItem(hit, OF_ENTRY), 0, SPV_MAX_ENTRY, "not the number of an entry", &entry))
        return false;
    held->hit.value = value;
    held->hit.fee = fee;
    held->hit.entry = (uint32_t)entry;
    return true;
}

/* Appends a hit. False with an exception set. */
static bool append(spv_text *to, const spv_packed_hit *hit) {
    const size_t more = spv_packed_size(hit);
    if (more > to->room - to->size) {
        const size_t room = more <= SIZE_MAX / 4 && to->size <= SIZE_MAX / 4 ? 2 * to->size + more : 0;
        uint8_t *grown = room ? realloc(to->data, room) : NULL;
        if (!grown)
            return PyErr_NoMemory() != NULL;
        to->data = grown;
        to->room = room;
    }
    to->size = (size_t)(spv_put_hit(to->data + to->size, hit) - to->data);
    return true;
}

static PyObject *pack_hits(PyObject *self, PyObject *hits) {
    const spv_state *state = spv_module_state(self);
    PyObject *list = spv_list(state, hits), *made = NULL;
    if (!list)
        return NULL;
    spv_text packed = {0};
    const Py_ssize_t count = PyList_Size(list);
    spv_pace pace = {.state = state};
    bool done = true;
    for (Py_ssize_t i = 0; i < count && done; i++) {
        held_hit held;
        done = take_hit(state, PyList_GetItem(list, i), &held) && append(&packed, &held.hit) && spv_step(&pace);
        let_hit_go(&held);
    }
    if (done)
        made = PyBytes_FromStringAndSize((const char *)packed.data, (Py_ssize_t)packed.size);
    free(packed.data);
    Py_DECREF(list);
    return made;
}

/* hit_sums. */

static PyObject *sum_values(const spv_sums *sums) {
    PyObject *list = PyList_New((Py_ssize_t)sums->entries.count);
    for (uint32_t i = 0; list && i < sums->entries.count; i++) {
        const spv_sum *sum = &sums->sums[i];
        PyObject *value = Py_BuildValue(
            "(kKKKK)", (unsigned long)sum->entry, (unsigned long long)sum->matches, (unsigned long long)sum->received,
            (unsigned long long)sum->spent, (unsigned long long)sum->unknown
        );
        if (!value || PyList_SetItem(list, (Py_ssize_t)i, value))
            Py_CLEAR(list);
    }
    return list;
}

/* Adds all hits. False with an exception set. */
static bool add_all(const spv_state *state, spv_sums *sums, spv_bytes packed) {
    spv_status status = SPV_OK;
    spv_error error;
    for (size_t at = 0; at < packed.size && !status;) {
        PyThreadState *thread = begin_work(packed);
        status = spv_add_hits(sums, packed, &at, slice_end(at, packed.size), &error);
        finish_work(thread);
        if (!status && PyErr_CheckSignals())
            return false;
    }
    return !status || spv_raise(state, status, &error);
}

static PyObject *hit_sums(PyObject *self, PyObject *given) {
    PyObject *taken = spv_snapshot(given), *list = NULL;
    if (!taken)
        return NULL;
    spv_sums sums;
    spv_sums_init(&sums);
    if (add_all(spv_module_state(self), &sums, spv_bytes_of(taken))) {
        spv_sort_sums(&sums);
        list = sum_values(&sums);
    }
    spv_sums_free(&sums);
    Py_DECREF(taken);
    return list;
}

/* hit_lines. */

/* The arguments of a call: snapshots, and the values in them. */
typedef struct {
    PyObject *packed, *labels, *hrp; /* `hrp` is borrowed */
    PyObject **label_of;             /* snapshots or NULL, one for each entry */
    spv_bytes *label_bytes;
    size_t hits;
    spv_block_lines lines;
    spv_entries entries;             /* the last member: it begins with memory that need not be zeroed */
} rendering;

static void let_rendering_go(rendering *of) {
    for (uint32_t i = 0; of->label_of && i < of->entries.count; i++)
        Py_XDECREF(of->label_of[i]);
    PyMem_Free(of->label_of);
    PyMem_Free(of->label_bytes);
    spv_entries_free(&of->entries);
    Py_XDECREF(of->packed);
}

static bool take_block(const spv_state *state, PyObject *hash, PyObject *height, PyObject *time, spv_block_lines *lines) {
    long long number = 0;
    PyObject *bytes = spv_snapshot(hash);
    if (!bytes)
        return false;
    const size_t size = spv_size(bytes);
    if (size == sizeof lines->block_hash)
        memcpy(lines->block_hash, spv_data(bytes), size);
    else
        PyErr_Format(state->ParameterError, "a block hash has 32 bytes, not %zu", size);
    Py_DECREF(bytes);
    if (size != sizeof lines->block_hash)
        return false;
    lines->has_height = height != Py_None;
    if (lines->has_height && !spv_whole(state, height, 0, UINT32_MAX, "not a height", &number))
        return false;
    lines->height = (uint32_t)number;
    if (!spv_whole(state, time, 0, UINT32_MAX, "not a time of a block", &number))
        return false;
    lines->time = (uint32_t)number;
    return true;
}

/* Takes the arguments except the labels, which are looked up later. False with an exception set. */
static bool take_arguments(const spv_state *state, PyObject *const *given, rendering *of) {
    long long form;
    if (!(of->packed = spv_snapshot(given[0])) || !spv_whole(state, given[1], 0, SPV_FORMS - 1, "a form is 0 or 1", &form))
        return false;
    of->lines.form = (spv_form)form;
    if (!PyDict_Check(given[2]))
        return spv_refuse_type("labels is a dict, not %U", given[2]);
    of->labels = given[2];
    of->hrp = given[8];
    return take_block(state, given[3], given[4], given[5], &of->lines) && spv_take_form(state, given + 6, &of->lines.network);
}

/* Reads all hits, and collects their entries if there are labels. False with an exception set. */
static bool take_entries(const spv_state *state, rendering *of) {
    const spv_bytes packed = spv_bytes_of(of->packed);
    spv_status status = SPV_OK;
    spv_error error;
    spv_entries *entries = PyDict_Size(of->labels) ? &of->entries : NULL; /* without labels there is nothing to look up */
    for (size_t at = 0; at < packed.size && !status;) {
        PyThreadState *thread = begin_work(packed);
        status = spv_read_hits(entries, packed, &at, slice_end(at, packed.size), &of->hits, &error);
        finish_work(thread);
        if (!status && PyErr_CheckSignals())
            return false;
    }
    return !status || spv_raise(state, status, &error);
}

/* Looks up a key: *value is a new reference, or NULL if there is none. False with an exception set. */
static bool look_up(PyObject *dict, PyObject *key, PyObject **value) {
#ifdef Py_GIL_DISABLED
    return PyDict_GetItemRef(dict, key, value) >= 0;
#else
    *value = PyDict_GetItemWithError(dict, key);
    Py_XINCREF(*value);
    return *value || !PyErr_Occurred();
#endif
}

/* Looks up the label of an entry: *label is a snapshot, or NULL if it has none. False with an exception set. */
static bool take_label(PyObject *labels, uint32_t entry, PyObject **label) {
    PyObject *key = PyLong_FromUnsignedLong(entry), *found = NULL;
    const bool looked = key && look_up(labels, key, &found);
    const bool has_one = found && found != Py_None;
    *label = has_one ? spv_snapshot(found) : NULL;
    Py_XDECREF(found);
    Py_XDECREF(key);
    return looked && (!has_one || *label);
}

static bool take_labels(rendering *of) {
    const uint32_t count = of->entries.count;
    of->lines.entries = &of->entries;
    if (!count)
        return true;
    of->label_of = PyMem_Calloc((size_t)count + 1, sizeof *of->label_of);
    of->label_bytes = PyMem_Calloc((size_t)count + 1, sizeof *of->label_bytes);
    if (!of->label_of || !of->label_bytes)
        return PyErr_NoMemory() != NULL;
    for (uint32_t i = 0; i < count; i++) {
        if (!take_label(of->labels, of->entries.entries[i], &of->label_of[i]))
            return false;
        if (of->label_of[i])
            of->label_bytes[i] = spv_bytes_of(of->label_of[i]);
    }
    of->lines.labels = of->label_bytes;
    return true;
}

static PyObject *render(const spv_state *state, const rendering *of) {
    const spv_bytes packed = spv_bytes_of(of->packed);
    spv_text text = {0};
    spv_status status = SPV_OK;
    spv_error error;
    size_t unfit = 0;
    bool broken = false;
    if (!spv_text_reserve(&text, packed, of->hits))
        return PyErr_NoMemory();
    for (size_t at = 0; at < packed.size && !status && !unfit && !broken;) {
        PyThreadState *thread = begin_work(packed);
        status = spv_render_hits(&of->lines, packed, &at, slice_end(at, packed.size), &text, &unfit, &error);
        finish_work(thread);
        broken = !status && !unfit && PyErr_CheckSignals();
    }
    PyObject *made = NULL;
    if (unfit)
        spv_refuse_hrp(state, of->hrp, unfit);
    else if (status)
        spv_raise(state, status, &error);
    else if (!broken)
        made = PyBytes_FromStringAndSize((const char *)text.data, (Py_ssize_t)text.size);
    free(text.data);
    return made;
}

static PyObject *hit_lines(PyObject *self, PyObject *arguments, PyObject *names) {
    static char *keywords[] = {
        "packed", "form", "labels", "block_hash", "height", "time", "p2pkh_version", "p2sh_version", "hrp", NULL,
    };
    const spv_state *state = spv_module_state(self);
    PyObject *given[9], *made = NULL;
    if (!PyArg_ParseTupleAndKeywords(arguments, names, "OOOOOOOOO:hit_lines", keywords, &given[0], &given[1], &given[2], &given[3], &given[4],
                                     &given[5], &given[6], &given[7], &given[8]))
        return NULL;
    rendering of;
    memset(&of, 0, offsetof(rendering, entries));
    spv_entries_init(&of.entries);
    if (take_arguments(state, given, &of) && take_entries(state, &of) && take_labels(&of))
        made = render(state, &of);
    let_rendering_go(&of);
    return made;
}

int spv_add_packed(PyObject *module, spv_state *Py_UNUSED(state)) {
    static PyMethodDef functions[] = {
        SPV_FUNCTION(hit_lines, METH_VARARGS | METH_KEYWORDS),
        SPV_FUNCTION(hit_sums, METH_O),
        SPV_FUNCTION(pack_hits, METH_O),
        SPV_FUNCTION(unpack_hits, METH_O),
        {NULL, NULL, 0, NULL},
    };
    return PyModule_AddFunctions(module, functions);
}
