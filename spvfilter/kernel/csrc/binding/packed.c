#include "binding/packed.h"

#include "binding/addresses.h"
#include "binding/watchtable/scan.h"

#include "watch/render.h"

enum {
    SLICE = 1 << 20, /* bytes of packed hits between two checks for signals: some milliseconds */
    LARGE = 1 << 15, /* for as many bytes or more the GIL is released; with fewer, waiting for it could take longer than the work */
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
        PyErr_Format(state->ParameterError, "a txid must be 32 bytes long, not %zu", spv_size(held->txid));
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
            PyErr_Format(state->ParameterError, "the outpoint of an output must be its txid and number, not %U", shown);
        Py_XDECREF(shown);
        return false;
    }
    if (PyTuple_GetItem(hit, OF_SCRIPT) == Py_None)
        return true;
    if (!(held->script = spv_snapshot(PyTuple_GetItem(hit, OF_SCRIPT))))
        return false;
    held->hit.script = spv_bytes_of(held->script);
    if (held->hit.script.size >= SPV_NO_SCRIPT)
        PyErr_Format(state->ParameterError, "a script must be shorter than 2^32 - 1 bytes, not %zu bytes long", held->hit.script.size);
    return held->hit.script.size < SPV_NO_SCRIPT;
}

/* pure.packed._checked. False with an exception set. */
static bool take_hit(const spv_state *state, PyObject *hit, held_hit *held) {
    static const char satoshi[] = "a value or fee must be at least 0 satoshi, or -1 if it is not known";
    long long position, n, value, fee, entry;
    *held = (held_hit){0};
    if (!PyObject_TypeCheck(hit, (PyTypeObject *)state->Hit) || PyTuple_Size(hit) != OF_HIT)
        return spv_refuse_type("expected a Hit, not %U", hit);
    if (!spv_whole(state, PyTuple_GetItem(hit, OF_POSITION), 0, UINT32_MAX, "a position in a block must be from 0 to 2^32 - 1", &position)
        || !spv_whole(state, PyTuple_GetItem(hit, OF_N), 0, UINT32_MAX, "the number of an output or input must be from 0 to 2^32 - 1", &n))
        return false;
    const int spend = PyObject_IsTrue(PyTuple_GetItem(hit, OF_SPEND));
    held->hit.spend = spend > 0;
    held->hit.position = (uint32_t)position;
    held->hit.n = (uint32_t)n;
    if (spend < 0 || !take_bytes(state, held, hit)
        || !spv_whole(state, PyTuple_GetItem(hit, OF_VALUE), SPV_NO_VALUE, INT64_MAX, satoshi, &value)
        || !spv_whole(state, PyTuple_GetItem(hit, OF_FEE), SPV_NO_VALUE, INT64_MAX, satoshi, &fee)
        || !spv_whole(state, PyTuple_GetItem(hit, OF_ENTRY), 0, SPV_MAX_ENTRY, "the number of an entry must be from 0 to 2^31 - 2", &entry))
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

/* count_hits. */

bool spv_read_packed(const spv_state *state, spv_hits_read *read, spv_bytes packed) {
    spv_status status = SPV_OK;
    spv_error error;
    for (size_t at = 0; at < packed.size && !status;) {
        PyThreadState *thread = begin_work(packed);
        status = spv_read_hits(read, packed, &at, slice_end(at, packed.size), &error);
        finish_work(thread);
        if (!status && PyErr_CheckSignals())
            return false;
    }
    return !status || spv_raise(state, status, &error);
}

static PyObject *count_hits(PyObject *self, PyObject *given) {
    PyObject *taken = spv_snapshot(given);
    if (!taken)
        return NULL;
    spv_hits_read read = {0};
    const bool done = spv_read_packed(spv_module_state(self), &read, spv_bytes_of(taken));
    Py_DECREF(taken);
    return done ? PyLong_FromSize_t(read.count) : NULL;
}

/* The numbers may be many, and are read once: a snapshot is made only of memory with gaps. */
static PyObject *is_ascending(PyObject *self, PyObject *given) {
    const spv_state *state = spv_module_state(self);
    PyObject *is = NULL;
    Py_buffer buffer;
    if (PyObject_GetBuffer(given, &buffer, PyBUF_SIMPLE)) {
        PyErr_Clear();
        PyObject *taken = spv_snapshot(given);
        is = taken ? is_ascending(self, taken) : NULL;
        Py_XDECREF(taken);
        return is;
    }
    if (buffer.len % 4)
        PyErr_Format(state->ParameterError, "numbers must be a multiple of 4 bytes long, not %zd", buffer.len);
    else
        is = PyBool_FromLong(spv_is_ascending((spv_bytes){buffer.buf, (size_t)buffer.len}));
    PyBuffer_Release(&buffer);
    return is;
}

/* add_hit_sums. */

/* Adds all hits, without releasing the GIL. A list of the numbers that wrapped around; NULL with an exception set. */
static PyObject *added(uint8_t *numbers, spv_bytes packed) {
    PyObject *list = PyList_New(0);
    size_t wrapped;
    for (size_t at = 0; list && spv_add_numbers(numbers, packed, &at, &wrapped);) {
        PyObject *number = PyLong_FromSize_t(wrapped);
        if (!number || PyList_Append(list, number))
            Py_CLEAR(list);
        Py_XDECREF(number);
    }
    return list;
}

static PyObject *add_hit_sums(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    const spv_state *state = spv_module_state(self);
    PyObject *taken = spv_count_arguments("add_hit_sums", count, 2) ? spv_snapshot(arguments[0]) : NULL, *list = NULL;
    spv_hits_read read = {0};
    Py_buffer view;
    if (taken && spv_read_packed(state, &read, spv_bytes_of(taken)) && !PyObject_GetBuffer(arguments[1], &view, PyBUF_WRITABLE)) {
        const size_t entries = (size_t)view.len / SPV_SUMS_SIZE;
        if ((size_t)view.len % SPV_SUMS_SIZE)
            PyErr_Format(state->ParameterError, "sums must be a multiple of 32 bytes long, not %zd", view.len);
        else if (read.count && read.most >= entries)
            PyErr_Format(PyExc_IndexError, "a hit belongs to entry %lu, but there are sums of %zu entries", (unsigned long)read.most, entries);
        else
            list = added(view.buf, spv_bytes_of(taken));
        PyBuffer_Release(&view);
    }
    Py_XDECREF(taken);
    return list;
}

/* hit_lines. */

/* The arguments of a call: snapshots, and the values in them. */
typedef struct {
    PyObject *packed, *places, *texts, *hrp; /* `hrp` is borrowed */
    spv_block_lines lines;
} rendering;

static void let_rendering_go(rendering *of) {
    Py_XDECREF(of->packed);
    Py_XDECREF(of->places);
    Py_XDECREF(of->texts);
}

static bool take_block_hash(const spv_state *state, PyObject *given, uint8_t hash[32]) {
    PyObject *bytes = spv_snapshot(given);
    if (!bytes)
        return false;
    const size_t size = spv_size(bytes);
    if (size == sizeof(spv_hash))
        memcpy(hash, spv_data(bytes), size);
    else
        PyErr_Format(state->ParameterError, "a block hash must be 32 bytes long, not %zu", size);
    Py_DECREF(bytes);
    return size == sizeof(spv_hash);
}

bool spv_take_hit_block(const spv_state *state, PyObject *hash, PyObject *height, PyObject *time, long long most, spv_hit_block *block) {
    long long number = 0;
    if (!take_block_hash(state, hash, block->hash))
        return false;
    const char *range = most == UINT32_MAX ? "a height must be from 0 to 2^32 - 1" : "a height must be from 0 to 2^31 - 1";
    block->has_height = height != Py_None;
    if (block->has_height && !spv_whole(state, height, 0, most, range, &number))
        return false;
    block->height = (uint32_t)number;
    if (!spv_whole(state, time, 0, UINT32_MAX, "a block's time must be from 0 to 2^32 - 1", &number))
        return false;
    block->time = (uint32_t)number;
    return true;
}

/* Takes the arguments. False with an exception set. */
static bool take_arguments(const spv_state *state, PyObject *const *given, rendering *of) {
    long long form;
    if (!(of->packed = spv_snapshot(given[0])) || !spv_whole(state, given[1], 0, SPV_FORMS - 1, "a form must be 0 or 1", &form)
        || !(of->places = spv_snapshot(given[2])) || !(of->texts = spv_snapshot(given[3])))
        return false;
    of->lines.form = (spv_form)form;
    of->lines.labels = (spv_labels){spv_bytes_of(of->places), spv_bytes_of(of->texts)};
    of->hrp = given[9];
    return spv_take_hit_block(state, given[4], given[5], given[6], UINT32_MAX, &of->lines.block) && spv_take_form(state, given + 7, &of->lines.network);
}

static PyObject *render(const spv_state *state, const rendering *of) {
    const spv_bytes packed = spv_bytes_of(of->packed);
    spv_hits_read read = {0};
    spv_text text = {0};
    spv_status status = SPV_OK;
    spv_error error;
    size_t unfit = 0;
    bool broken = false;
    if (!spv_read_packed(state, &read, packed))
        return NULL;
    if (!spv_text_reserve(&text, packed, read.count))
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
        "packed", "form", "label_places", "label_texts", "block_hash", "height", "time", "p2pkh_version", "p2sh_version", "hrp", NULL,
    };
    const spv_state *state = spv_module_state(self);
    PyObject *given[10], *made = NULL;
    if (!PyArg_ParseTupleAndKeywords(arguments, names, "OOOOOOOOOO:hit_lines", keywords, &given[0], &given[1], &given[2], &given[3], &given[4],
                                     &given[5], &given[6], &given[7], &given[8], &given[9]))
        return NULL;
    rendering of = {0};
    if (take_arguments(state, given, &of))
        made = render(state, &of);
    let_rendering_go(&of);
    return made;
}

int spv_add_packed(PyObject *module, spv_state *Py_UNUSED(state)) {
    static PyMethodDef functions[] = {
        SPV_FUNCTION(add_hit_sums, METH_FASTCALL),
        SPV_FUNCTION(count_hits, METH_O),
        SPV_FUNCTION(hit_lines, METH_VARARGS | METH_KEYWORDS),
        SPV_FUNCTION(hit_sums, METH_O),
        SPV_FUNCTION(is_ascending, METH_O),
        SPV_FUNCTION(pack_hits, METH_O),
        SPV_FUNCTION(unpack_hits, METH_O),
        {NULL, NULL, 0, NULL},
    };
    return PyModule_AddFunctions(module, functions);
}
