#include "binding/cores/batch.h"

#include "binding/arguments.h"
#include "binding/cores/columns.h"

#include "bloom/planes.h"

enum {
    CHUNK = 1024,  /* keys of a list that are taken at once */
    TOGETHER = 16, /* keys of a list that are fetched together */
    FAR = 1 << 17  /* bytes of cells from which they are prefetched, unless they suit planes.h */
};

/* Keys of an iterable, and the objects that own their bytes. */
typedef struct {
    size_t count, effort;
    spv_bytes keys[CHUNK];
    union {
        PyObject *owner;
        uint8_t number[8];
    } held[CHUNK];
} taken_keys;

/* Performs the operation on the keys taken. It does so even if the next key has set an exception. */
static bool work_taken(spv_run *run, taken_keys *taken) {
    PyObject *type, *error, *trace;
    const bool numbers = spv_takes_numbers(run->core);
    PyErr_Fetch(&type, &error, &trace);
    const bool done = spv_run_many(run, &(spv_keys){.keys = taken->keys}, 0, taken->count, taken->effort);
    for (size_t i = 0; !numbers && i < taken->count; i++)
        Py_DECREF(taken->held[i].owner);
    taken->count = taken->effort = 0;
    if (done) {
        PyErr_Restore(type, error, trace);
        return true;
    }
    Py_XDECREF(type);
    Py_XDECREF(error);
    Py_XDECREF(trace);
    return false;
}

/* True if an object stands for a missing key: None, or NaN, which tables use for a missing string. */
static bool is_missing(PyObject *key) {
    if (key == Py_None)
        return true;
    if (!PyFloat_CheckExact(key))
        return false;
    const double value = PyFloat_AsDouble(key);
    return value != value;
}

/* The result of taking a key: taken, without running Python code; done, and Python code may have run; or failed,
   with an exception set. */
typedef enum { KEY_TAKEN, KEY_DONE, KEY_FAILED } key_fate;

/* The reference to the key is borrowed. The key is therefore held before anything is allocated: an allocation may
   start a garbage collection, and that may run Python code that drops the key. */
static key_fate take(spv_run *run, taken_keys *taken, PyObject *key) {
    const size_t at = taken->count;
    Py_INCREF(key);
    if (SPV_LIKELY(spv_hold_quick(run->core, key, taken->held[at].number, &taken->keys[at]))) {
        if (taken->keys[at].data != taken->held[at].number)
            taken->held[at].owner = key;
        else
            Py_DECREF(key);
        taken->effort += spv_effort_of(run->core, taken->keys[at].size);
        if (SPV_LIKELY(++taken->count < CHUNK && taken->effort < SPV_EFFORT))
            return KEY_TAKEN;
        return work_taken(run, taken) ? KEY_DONE : KEY_FAILED;
    }
    const bool done = work_taken(run, taken) && (run->skip && is_missing(key) ? spv_run_skip(run) : spv_run_one(run, key)) && spv_step(&run->pace);
    Py_DECREF(key);
    return done ? KEY_DONE : KEY_FAILED;
}

#ifndef Py_GIL_DISABLED
/* Takes the keys of a list or tuple by index. Some keys at a time are fetched together; they need no references
   until they are taken. Python code may change the list, so the remaining keys are looked up again after any Python
   code. */
static bool take_sequence(spv_run *run, taken_keys *taken, PyObject *keys, PyObject *get(PyObject *, Py_ssize_t)) {
    PyObject *borrowed[TOGETHER];
    Py_ssize_t size;
    for (Py_ssize_t i = 0; i < (size = PySequence_Size(keys));) {
        const size_t count = size - i < TOGETHER ? (size_t)(size - i) : TOGETHER;
        for (size_t j = 0; j < count; j++) {
            borrowed[j] = get(keys, i + (Py_ssize_t)j);
            __builtin_prefetch(borrowed[j]);
        }
        key_fate fate = KEY_TAKEN;
        for (size_t j = 0; j < count && fate == KEY_TAKEN; j++, i++)
            fate = take(run, taken, borrowed[j]);
        if (fate == KEY_FAILED)
            return false;
    }
    return true;
}
#endif

static bool take_iterator(spv_run *run, taken_keys *taken, PyObject *keys, bool one_by_one) {
    PyObject *iterator = PyObject_GetIter(keys), *key;
    bool done = iterator != NULL;
    while (done && (key = PyIter_Next(iterator))) {
        done = (one_by_one && !(run->skip && is_missing(key)) ? spv_run_one(run, key) : take(run, taken, key) != KEY_FAILED) && spv_step(&run->pace);
        Py_DECREF(key);
    }
    Py_XDECREF(iterator);
    return done && !PyErr_Occurred();
}

/* Keys are taken ahead if nobody can notice that: if the iteration runs no Python code, which could look at the
   filter. */
static bool run_iterable(spv_run *run, PyObject *keys) {
    if (!spv_check_iterable(keys, "keys", "an iterable, a buffer or a column"))
        return false;
    const bool list = PyList_CheckExact(keys), tuple = PyTuple_CheckExact(keys);
    taken_keys *taken = PyMem_Malloc(sizeof *taken);
    if (!taken) {
        PyErr_NoMemory();
        return false;
    }
    taken->count = taken->effort = 0;
    bool done;
#ifndef Py_GIL_DISABLED
    if (list || tuple)
        done = take_sequence(run, taken, keys, list ? PyList_GetItem : PyTuple_GetItem);
    else
#endif
        done = take_iterator(run, taken, keys, !(list || tuple || PyAnySet_CheckExact(keys) || PyDict_CheckExact(keys)));
    if (taken->count)
        done = work_taken(run, taken) && done;
    PyMem_Free(taken);
    return done;
}

/* pure.columns.of_buffer, and the operation on the column. NumPy itself refuses an array of a type that has no
   buffer. */
static bool run_buffer(spv_run *run, PyObject *keys, bool strict) {
    Py_buffer view;
    if (PyObject_GetBuffer(keys, &view, PyBUF_FULL_RO)) {
        if (strict || !PyErr_ExceptionMatches(PyExc_TypeError))
            return false;
        PyErr_Clear();
        return run_iterable(run, keys);
    }
    const bool done = spv_run_view(run, &view, strict);
    PyBuffer_Release(&view);
    return done;
}

/* A piece that columns.batch_of has made: a tuple of its kind and its contents. */
static bool run_piece(spv_run *run, PyObject *piece) {
    int kind;
    PyObject *keys;
    if (!PyArg_ParseTuple(piece, "iO", &kind, &keys))
        return false;
    switch (kind) {
    case 0: /* columns.KEYS */
        return run_iterable(run, keys);
    case 1: /* columns.BUFFER, and columns.VALUES */
    case 2:
        return run_buffer(run, keys, kind == 2);
    case 3: /* columns.ARRAY */
        return spv_run_array(run, keys);
    default: /* columns.STREAM */
        return spv_run_stream(run, keys);
    }
}

static bool run_pieces(spv_run *run, PyObject *pieces) {
    PyObject *iterator = PyObject_GetIter(pieces), *piece;
    bool done = iterator != NULL;
    while (done && (piece = PyIter_Next(iterator))) {
        done = run_piece(run, piece);
        Py_DECREF(piece);
    }
    Py_XDECREF(iterator);
    return done && !PyErr_Occurred();
}

/* pure.columns.opened, and the operation on the keys. `batch` is the result of columns.batch_of. */
static bool run_batch(spv_run *run, PyObject *keys, PyObject *batch) {
    if (batch != Py_None) {
        PyObject *pieces = spv_attribute(batch, "pieces");
        const bool done = pieces && run_pieces(run, pieces);
        Py_XDECREF(pieces);
        return done;
    }
    return PyObject_CheckBuffer(keys) ? run_buffer(run, keys, false) : run_iterable(run, keys);
}

/* The result of columns.batch_of for a batch: None for a plain buffer or iterable. NULL with an exception set. */
static PyObject *batch_of(const spv_run *run, PyObject *keys) {
    if (PyBytes_Check(keys) || PyByteArray_Check(keys) || PyUnicode_Check(keys)) {
        spv_refuse_type("expected a batch of keys, not one %U", keys);
        return NULL;
    }
    if (PyList_CheckExact(keys) || PyTuple_CheckExact(keys) || PyMemoryView_Check(keys) || PyAnySet_CheckExact(keys) || PyDict_CheckExact(keys))
        return Py_NewRef(Py_None);
    return PyObject_CallFunction(run->pace.state->batch_of, "OO", keys, run->skip ? Py_True : Py_False);
}

/* The answers, as a mask in the type of the batch's library. */
static PyObject *answer(const spv_run *run, PyObject *batch) {
    PyObject *mask = PyBytes_FromStringAndSize((const char *)run->mask, (Py_ssize_t)(run->answers * run->width));
    if (!mask || batch == Py_None || run->width > 1)
        return mask;
    PyObject *found = spv_call(batch, "answer", mask);
    Py_DECREF(mask);
    return found;
}

/* Processes one of several batches. Returns the mask for contains_many, otherwise None. NULL with an exception set. */
static PyObject *run_one_of(spv_run *run, PyObject *keys) {
    PyObject *batch = batch_of(run, keys), *result = NULL;
    run->rows = 0;
    if (batch && run_batch(run, keys, batch))
        result = run->asks ? answer(run, batch) : Py_NewRef(Py_None);
    Py_XDECREF(batch);
    return result;
}

static bool is_far(const spv_core *core) {
    const bool planes = core->width == SPV_BITS && spv_planes_suit(&core->shape);
    return spv_bytes_of_cells(core->cells, core->width) > (planes ? SPV_PLANES_FAR : FAR);
}

/* The names of the operations are those of the methods. */
typedef enum { ADDS, ASKS, HASHES } operation;
static const char *const METHODS[] = {"update", "contains_many", "hash_many"};

/* The arguments that have names. */
typedef struct {
    bool skip;
    spv_padding padding;
} options;

static PyObject *run_all(spv_core *core, spv_series *series, PyObject *const *batches, Py_ssize_t count, operation asked, options chosen) {
    const bool asks = asked != ADDS;
    const spv_state *state = spv_core_state((PyObject *)core);
    if (!state || !spv_check_made(core))
        return NULL;
    spv_run run;
    run.core = core;
    run.series = series;
    run.asks = asks;
    run.width = asked == HASHES ? sizeof(uint64_t) : 1;
    run.skip = chosen.skip;
    run.padding = chosen.padding;
    run.fresh = run.answers = run.room = run.rows = 0;
    run.mask = NULL;
    run.pace = (spv_pace){.state = state};
    run.batch = (spv_batch){.shape = &core->shape, .width = core->width, .gate = &core->gate, .far = is_far(core), .room = &core->room};
    run.batch.positions = core->shape.functions <= SPV_AHEAD_CELLS ? run.near : PyMem_Malloc(core->shape.functions * sizeof(uint64_t));
    if (!run.batch.positions)
        return PyErr_NoMemory();
    PyObject *result = Py_NewRef(Py_None);
    for (Py_ssize_t i = 0; result && i < count; i++)
        Py_XSETREF(result, run_one_of(&run, batches[i]));
    if (result && !asks)
        Py_XSETREF(result, PyLong_FromSize_t(run.fresh));
    PyMem_Free(run.mask);
    if (run.batch.positions != run.near)
        PyMem_Free(run.batch.positions);
    return result;
}

/* columns.skips: 1 if nulls are skipped, else 0; -1 with an exception set. */
static int skips(const spv_state *state, PyObject *nulls) {
    if (PyUnicode_Check(nulls) && !PyUnicode_CompareWithASCIIString(nulls, "raise"))
        return 0;
    if (PyUnicode_Check(nulls) && !PyUnicode_CompareWithASCIIString(nulls, "skip"))
        return 1;
    PyErr_Format(state->ParameterError, "nulls must be 'raise' or 'skip', not %R", nulls);
    return -1;
}

/* columns.keeps: false with an exception set. */
static bool keeps(const spv_state *state, PyObject *padding, spv_padding *found) {
    *found = SPV_PADDING_UNSAID;
    if (padding == Py_None)
        return true;
    if (PyUnicode_Check(padding) && !PyUnicode_CompareWithASCIIString(padding, "keep"))
        *found = SPV_PADDING_KEEP;
    else if (PyUnicode_Check(padding) && !PyUnicode_CompareWithASCIIString(padding, "strip"))
        *found = SPV_PADDING_STRIP;
    else
        PyErr_Format(state->ParameterError, "padding must be 'keep' or 'strip', not %R", padding);
    return *found != SPV_PADDING_UNSAID;
}

/* The arguments of update, (*keys, nulls='raise', padding=None), and of the others, (keys, /, *, nulls='raise',
   padding=None). False with an exception set. */
static bool read_arguments(
    const spv_state *state, operation asked, PyObject *const *arguments, Py_ssize_t given, PyObject *names, options *chosen) {
    const Py_ssize_t named = names ? PyTuple_Size(names) : 0;
    for (Py_ssize_t i = 0; i < named; i++) {
        PyObject *key = PyTuple_GetItem(names, i);
        if (!PyUnicode_CompareWithASCIIString(key, "padding")) {
            if (!keeps(state, arguments[given + i], &chosen->padding))
                return false;
            continue;
        }
        if (PyUnicode_CompareWithASCIIString(key, "nulls")) {
            PyErr_Format(PyExc_TypeError, "%s() got an unexpected keyword argument '%U'", METHODS[asked], key);
            return false;
        }
        const int found = skips(state, arguments[given + i]);
        if (found < 0)
            return false;
        chosen->skip = found;
    }
    return asked == ADDS || spv_count_arguments(METHODS[asked], given, 1);
}

static PyObject *run_core(PyObject *self, PyObject *const *arguments, Py_ssize_t given, PyObject *names, operation asked) {
    options chosen = {.skip = false, .padding = SPV_PADDING_UNSAID};
    const spv_state *state = SPV_LIKELY(given == 1 && !names) ? NULL : spv_core_state(self);
    if ((given != 1 || names) && (!state || !read_arguments(state, asked, arguments, given, names, &chosen)))
        return NULL;
    return run_all((spv_core *)self, NULL, arguments, given, asked, chosen);
}

PyObject *spv_core_update(PyObject *self, PyObject *const *arguments, Py_ssize_t given, PyObject *names) {
    return run_core(self, arguments, given, names, ADDS);
}

PyObject *spv_core_contains_many(PyObject *self, PyObject *const *arguments, Py_ssize_t given, PyObject *names) {
    return run_core(self, arguments, given, names, ASKS);
}

PyObject *spv_core_hash_many(PyObject *self, PyObject *const *arguments, Py_ssize_t given, PyObject *names) {
    return run_core(self, arguments, given, names, HASHES);
}

static PyObject *run_series(PyObject *self, PyObject *const *arguments, Py_ssize_t given, PyObject *names, operation asked) {
    options chosen = {.skip = false, .padding = SPV_PADDING_UNSAID};
    const spv_state *state = spv_series_state((spv_series *)self);
    if (!state || !read_arguments(state, asked, arguments, given, names, &chosen))
        return NULL;
    PyObject *slices = spv_slices_of((spv_series *)self);
    PyObject *result = slices ? run_all((spv_core *)PyTuple_GetItem(slices, 0), (spv_series *)self, arguments, given, asked, chosen) : NULL;
    Py_XDECREF(slices);
    return result;
}

PyObject *spv_series_update(PyObject *self, PyObject *const *arguments, Py_ssize_t given, PyObject *names) {
    return run_series(self, arguments, given, names, ADDS);
}

PyObject *spv_series_contains_many(PyObject *self, PyObject *const *arguments, Py_ssize_t given, PyObject *names) {
    return run_series(self, arguments, given, names, ASKS);
}
