#include "binding/cores/batch.h"

#include "binding/arguments.h"
#include "binding/cores/series.h"
#include "binding/cores/single.h"

#include "bloom/bits.h"
#include "bloom/counters.h"

enum {
    CHUNK = 2048,         /* keys of a list taken at once */
    ALONE_FROM = 1 << 13, /* effort from which releasing the lock pays */
    FAR = 1 << 17,        /* bytes of cells from which they are prefetched */
    EFFORT = 1 << 24,     /* between two checks for signals: bytes of keys, plus EFFORT_OF_A_CELL for each cell */
    EFFORT_OF_A_CELL = 8
};

typedef struct {
    spv_core *core;     /* that encodes the keys */
    spv_series *series; /* that takes them, or NULL: the core does */
    bool asks;         /* contains_many; else update */
    size_t fresh;      /* keys that were new */
    uint8_t *mask;     /* answers, a byte each */
    size_t answers, room;
    spv_batch batch;
    uint64_t near[SPV_AHEAD_CELLS];
} batch_run;

static bool make_room(batch_run *run, size_t count) {
    if (!run->asks || run->room - run->answers >= count)
        return true;
    const size_t wanted = run->answers + count, room = wanted > 2 * run->room ? wanted : 2 * run->room;
    uint8_t *mask = PyMem_Realloc(run->mask, room);
    if (!mask) {
        PyErr_NoMemory();
        return false;
    }
    run->mask = mask;
    run->room = room;
    return true;
}

/* The operation itself, without Python. */
static void work(batch_run *run, const spv_keys *keys, size_t from, size_t count) {
    const bool bits = run->core->shift == SPV_BITS;
    if (run->asks && bits)
        spv_bits_has_many(&run->batch, keys, from, count, run->mask + run->answers);
    else if (run->asks)
        spv_counters_has_many(&run->batch, keys, from, count, run->mask + run->answers);
    if (run->asks)
        run->batch.done = count;
    else
        run->fresh += bits ? spv_bits_add_many(&run->batch, keys, from, count) : spv_counters_add_many(&run->batch, keys, from, count);
}

/* The operation without the interpreter's lock. The memory is held meanwhile, since another thread may exchange it; that thread waits
   for the writers. */
static bool work_alone(batch_run *run, const spv_keys *keys, size_t from, size_t count) {
    spv_core *core = run->core;
    spv_memory *memory = spv_hold_memory(core, !run->asks);
    if (!memory)
        return false;
    run->batch.cells = memory->cells;
    if (!run->asks)
        run->batch.shared = spv_gate_enter_unlocked(&core->gate);
    PyThreadState *thread = PyEval_SaveThread();
    work(run, keys, from, count);
    if (!run->asks) {
        spv_gate_leave(&core->gate, run->batch.shared);
        spv_leave(&memory->writers);
    }
    PyEval_RestoreThread(thread);
    spv_let_memory_go(memory);
    return !PyErr_CheckSignals();
}

static bool work_locked(batch_run *run, const spv_keys *keys, size_t from, size_t count) {
    spv_core *core = run->core;
    bool done = true;
    SPV_LOCK(core)
    if (!run->asks)
        done = spv_check_writable(core);
    if (done) {
        run->batch.cells = core->memory->cells;
        run->batch.shared = !run->asks && spv_gate_enter(&core->gate);
        work(run, keys, from, count);
    }
    SPV_UNLOCK()
    return done;
}

static bool work_on_series(batch_run *run, const spv_keys *keys, size_t from, size_t count, bool alone) {
    spv_series_work work = {.keys = keys, .from = from, .count = count, .mask = run->asks ? run->mask + run->answers : NULL, .alone = alone};
    const bool done = spv_series_perform(run->series, &work);
    run->fresh += work.fresh;
    run->batch.done = work.done;
    return done;
}

static bool make_room_for_keys(batch_run *run, size_t *tries) {
    return run->series ? spv_series_make_room(run->series, tries) : spv_core_make_room(run->core, tries);
}

static bool work_many(batch_run *run, const spv_keys *keys, size_t from, size_t count, size_t effort) {
    if (!count)
        return true;
    if (!make_room(run, count))
        return false;
    for (size_t tries = 0;;) {
        run->batch.done = 0;
        const bool alone = effort >= ALONE_FROM;
        if (!(run->series ? work_on_series(run, keys, from, count, alone) : (alone ? work_alone : work_locked)(run, keys, from, count)))
            return false;
        run->answers += run->asks ? count : 0;
        from += run->batch.done;
        count -= run->batch.done;
        if (!count)
            return true;
        if (run->batch.done)
            tries = 0;
        if (!make_room_for_keys(run, &tries)) /* a new key found no room */
            return false;
    }
}

static bool note(batch_run *run, int answer) {
    if (answer < 0 || !make_room(run, 1))
        return false;
    if (run->asks)
        run->mask[run->answers++] = (uint8_t)answer;
    else
        run->fresh += (size_t)answer;
    return true;
}

static bool work_one(batch_run *run, PyObject *key) {
    if (run->series)
        return note(run, run->asks ? spv_series_contains_key(run->series, key) : spv_series_add_key(run->series, key));
    return note(run, run->asks ? spv_core_contains((PyObject *)run->core, key) : spv_core_add(run->core, key));
}

/* Keys taken from an iterable, and the objects that own their bytes. */
typedef struct {
    size_t count, effort;
    spv_bytes keys[CHUNK];
    union {
        PyObject *owner;
        uint8_t number[8];
    } held[CHUNK];
} taken_keys;

/* The operation on the keys taken, which is done even if the key after them has set an exception. */
static bool work_taken(batch_run *run, taken_keys *taken) {
    PyObject *type, *error, *trace;
    const bool numbers = run->core->encoder == SPV_ENCODE_INT64 || run->core->encoder == SPV_ENCODE_UINT64;
    PyErr_Fetch(&type, &error, &trace);
    const bool done = work_many(run, &(spv_keys){.keys = taken->keys}, 0, taken->count, taken->effort);
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

SPV_INLINE size_t effort_of(const spv_core *core, size_t size) {
    return size + (size_t)core->shape.functions * EFFORT_OF_A_CELL + 1;
}

static bool take(batch_run *run, taken_keys *taken, PyObject *key) {
    const size_t at = taken->count;
    if (SPV_LIKELY(spv_hold_quick(run->core, key, taken->held[at].number, &taken->keys[at]))) {
        if (taken->keys[at].data != taken->held[at].number)
            taken->held[at].owner = Py_NewRef(key);
        taken->effort += effort_of(run->core, taken->keys[at].size);
        return (++taken->count < CHUNK && taken->effort < EFFORT) || work_taken(run, taken);
    }
    Py_INCREF(key);
    const bool done = work_taken(run, taken) && work_one(run, key);
    Py_DECREF(key);
    return done;
}

#ifndef Py_GIL_DISABLED
/* Takes the keys of a list or tuple by index, which needs no references and allows prefetching. */
static bool take_sequence(batch_run *run, taken_keys *taken, PyObject *keys, PyObject *get(PyObject *, Py_ssize_t)) {
    const Py_ssize_t ahead = 8;
    Py_ssize_t size;
    for (Py_ssize_t i = 0; i < (size = PySequence_Size(keys)); i++) { /* the Python code of an encoding may change a list */
        if (i + ahead < size)
            __builtin_prefetch(get(keys, i + ahead));
        if (!take(run, taken, get(keys, i)))
            return false;
    }
    return true;
}
#endif

static bool take_iterator(batch_run *run, taken_keys *taken, PyObject *keys, bool one_by_one) {
    PyObject *iterator = PyObject_GetIter(keys), *key;
    bool done = iterator != NULL;
    while (done && (key = PyIter_Next(iterator))) {
        done = (one_by_one ? work_one(run, key) : take(run, taken, key)) && !PyErr_CheckSignals();
        Py_DECREF(key);
    }
    Py_XDECREF(iterator);
    return done && !PyErr_Occurred();
}

/* Keys are taken ahead if nobody can notice: if iterating runs no Python code, which could look at the filter in between. */
static bool run_iterable(batch_run *run, PyObject *keys) {
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

/* pure.cells._check_batch: false with TypeError for a buffer that is not a batch of keys. */
static bool check_rows(const spv_core *core, const Py_buffer *view) {
    const char *format = view->format ? view->format : "B", *kind = format + strspn(format, "@=<");
    const char letter = kind[0] && !kind[1] ? kind[0] : '?';
    const char *wanted = "an iterable of what `encode` takes";
    bool fits = false;
    if (!PyBuffer_IsContiguous(view, 'C')) {
        PyErr_SetString(PyExc_TypeError, "a buffer of keys must be contiguous");
        return false;
    }
    switch (core->encoder) {
    case SPV_ENCODE_BYTES:
        fits = (view->ndim == 2 && strchr("Bbc", letter)) || (view->ndim == 1 && strchr("hHiIlLqQ", letter));
        wanted = "n×w bytes in two dimensions, or integers in one";
        break;
    case SPV_ENCODE_INT64:
        fits = view->ndim == 1 && view->itemsize == 8 && strchr("lq", letter);
        wanted = "int64 in one dimension";
        break;
    case SPV_ENCODE_UINT64:
        fits = view->ndim == 1 && view->itemsize == 8 && strchr("LQ", letter);
        wanted = "uint64 in one dimension";
        break;
    default:
        break;
    }
    if (fits)
        return true;
    PyObject *shown = PyUnicode_FromString(format);
    if (shown)
        PyErr_Format(PyExc_TypeError, "a batch of keys is here %s, not a buffer of %R in %d", wanted, shown, view->ndim);
    Py_XDECREF(shown);
    return false;
}

static bool run_rows(batch_run *run, const Py_buffer *view) {
    if (!check_rows(run->core, view))
        return false;
    const size_t count = (size_t)view->shape[0], width = count ? (size_t)view->len / count : 0;
    const size_t slice = EFFORT / effort_of(run->core, width) + 1;
    const spv_keys keys = {.rows = view->buf, .width = width};
    if (!run->core->custom) {
        for (size_t at = 0, now; at < count; at += now) {
            now = count - at < slice ? count - at : slice;
            if (!work_many(run, &keys, at, now, now * effort_of(run->core, width)))
                return false;
        }
        return true;
    }
    for (size_t at = 0; at < count; at++) {
        const spv_held held = {.data = keys.rows + at * width, .size = width};
        const int answer = run->series ? (run->asks ? spv_series_contains_held(run->series, &held) : spv_series_add_held(run->series, &held))
                                       : (run->asks ? spv_core_contains_held(run->core, &held) : spv_core_add_held(run->core, &held));
        if (!note(run, answer) || PyErr_CheckSignals())
            return false;
    }
    return true;
}

/* pure.cells.Hashed._keys, and the operation on them. */
static bool run_batch(batch_run *run, PyObject *keys) {
    Py_buffer view;
    if (PyBytes_Check(keys) || PyByteArray_Check(keys) || PyUnicode_Check(keys))
        return spv_refuse_type("a batch of keys expected, not one %U", keys);
    if (!PyObject_CheckBuffer(keys))
        return run_iterable(run, keys);
    if (PyObject_GetBuffer(keys, &view, PyBUF_FULL_RO)) {
        if (!PyErr_ExceptionMatches(PyExc_TypeError))
            return false;
        PyErr_Clear();
        return run_iterable(run, keys);
    }
    const bool done = run_rows(run, &view);
    PyBuffer_Release(&view);
    return done;
}

static PyObject *run(spv_core *core, spv_series *series, PyObject *keys, bool asks) {
    if (!spv_check_made(core))
        return NULL;
    batch_run run;
    run.core = core;
    run.series = series;
    run.asks = asks;
    run.fresh = run.answers = run.room = 0;
    run.mask = NULL;
    run.batch = (spv_batch){.shape = &core->shape, .shift = core->shift, .gate = &core->gate, .far = spv_bytes_of_cells(core->cells, core->shift) > FAR, .room = &core->room};
    run.batch.positions = core->shape.functions <= SPV_AHEAD_CELLS ? run.near : PyMem_Malloc(core->shape.functions * sizeof(uint64_t));
    if (!run.batch.positions)
        return PyErr_NoMemory();
    PyObject *result = NULL;
    if (run_batch(&run, keys))
        result = asks ? PyBytes_FromStringAndSize((const char *)run.mask, (Py_ssize_t)run.answers) : PyLong_FromSize_t(run.fresh);
    PyMem_Free(run.mask);
    if (run.batch.positions != run.near)
        PyMem_Free(run.batch.positions);
    return result;
}

PyObject *spv_core_update(PyObject *self, PyObject *keys) {
    return run((spv_core *)self, NULL, keys, false);
}

PyObject *spv_core_contains_many(PyObject *self, PyObject *keys) {
    return run((spv_core *)self, NULL, keys, true);
}

static PyObject *run_series(PyObject *self, PyObject *keys, bool asks) {
    PyObject *slices = spv_slices_of((spv_series *)self);
    PyObject *result = slices ? run((spv_core *)PyTuple_GetItem(slices, 0), (spv_series *)self, keys, asks) : NULL;
    Py_XDECREF(slices);
    return result;
}

PyObject *spv_series_update(PyObject *self, PyObject *keys) {
    return run_series(self, keys, false);
}

PyObject *spv_series_contains_many(PyObject *self, PyObject *keys) {
    return run_series(self, keys, true);
}
