#include "binding/cores/series.h"

#include "binding/arguments.h"
#include "binding/cores/batch.h"
#include "binding/cores/single.h"

#include "bloom/bits.h"

enum { FAR = 1 << 17 }; /* cells are prefetched if they have this many bytes or more */

static void end(PyObject *self);

const spv_state *spv_series_state(spv_series *series) {
    PyTypeObject *type = Py_TYPE((PyObject *)series);
    while (PyType_GetSlot(type, Py_tp_dealloc) != (void *)end) /* a class that is defined in Python has another deallocator */
        type = PyType_GetSlot(type, Py_tp_base);
    return PyType_GetModuleState(type);
}

PyObject *spv_slices_of(spv_series *series) {
    PyObject *slices;
    SPV_LOCK(series)
    slices = series->slices;
    Py_XINCREF(slices);
    SPV_UNLOCK()
    if (!slices)
        PyErr_SetString(PyExc_AttributeError, "the series has no slices yet: __init__ of its core was not called");
    return slices;
}

SPV_INLINE spv_core *slice_at(PyObject *slices, Py_ssize_t number) {
    return (spv_core *)PyTuple_GetItem(slices, number);
}

/* 1 if one of the first `count` slices contains the key, else 0; -1 with an exception set. */
static int has(PyObject *slices, Py_ssize_t count, const spv_held *held) {
    int found = 0;
    while (!found && count--)
        found = spv_core_contains_held(slice_at(slices, count), held);
    return found;
}

#ifndef Py_GIL_DISABLED /* the GIL keeps the slices and their memory in place while no Python code runs */
static bool quick(const spv_series *series) {
    return series->count && !series->cores[0]->custom && spv_walk_of(&series->cores[0]->shape) == SPV_WALK_SPREAD;
}

/* The first `count` slices; false with an exception set. */
static bool view(const spv_series *series, size_t count, spv_slice *views) {
    for (size_t i = 0; i < count; i++) {
        const spv_core *core = series->cores[i];
        if (SPV_UNLIKELY(!core->memory))
            return spv_check_made(core);
        views[i] = (spv_slice){&core->shape, core->memory->cells};
    }
    return true;
}

/* Adds a key by its hashes, which are computed once for all slices. SPV_NO_ROOM if there is no room for a new key. */
static int add_hashed(spv_series *series, const spv_held *held) {
    const size_t last = series->count - 1;
    spv_core *core = series->cores[last];
    spv_slice views[SPV_MAX_SLICES];
    if (!view(series, last, views))
        return -1;
    const spv_hash128 hashes = spv_two_hashes(&core->shape, held->data, held->size);
    if (spv_series_has_hashed(views, last, hashes))
        return 0;
    if (!spv_check_writable(core))
        return -1;
    const bool shared = spv_gate_enter(&core->gate);
    const size_t room = spv_room_reserve(&core->room, 1, shared);
    if (SPV_UNLIKELY(!room) && !spv_bits_has_hashed(&core->shape, core->memory->cells, hashes))
        return SPV_NO_ROOM;
    const bool fresh = spv_bits_add_hashed(&core->shape, core->memory->cells, hashes, shared);
    spv_room_give_back(&core->room, fresh ? 0 : room, shared);
    return fresh;
}
#endif

int spv_series_contains_held(spv_series *series, const spv_held *held) {
#ifndef Py_GIL_DISABLED
    spv_slice views[SPV_MAX_SLICES];
    if (SPV_LIKELY(quick(series)))
        return view(series, series->count, views) ? spv_series_has_hashed(views, series->count, spv_two_hashes(views->shape, held->data, held->size)) : -1;
#endif
    PyObject *slices = spv_slices_of(series);
    const int found = slices ? has(slices, PyTuple_Size(slices), held) : -1;
    Py_XDECREF(slices);
    return found;
}

/* Sets the slices. It takes the reference. */
static void set_slices(spv_series *series, PyObject *slices) {
    series->slices = slices;
    series->count = (size_t)PyTuple_Size(slices);
    for (size_t i = 0; i < series->count; i++)
        series->cores[i] = slice_at(slices, (Py_ssize_t)i);
}

static PyObject *refuse(PyObject *self, PyObject *Py_UNUSED(none)) {
    const spv_state *state = spv_series_state((spv_series *)self);
    if (state)
        PyErr_SetString(state->CapacityError, "there is no room for another key");
    return NULL;
}

bool spv_series_make_room(spv_series *series, size_t *tries) {
    PyObject *done = spv_call((PyObject *)series, "_make_room", NULL), *slices = done ? spv_slices_of(series) : NULL;
    bool room = false;
    if (slices) {
        room = spv_room_left(&slice_at(slices, PyTuple_Size(slices) - 1)->room) > 0 || ++*tries < SPV_MOST_TRIES;
        if (!room)
            refuse((PyObject *)series, NULL);
    }
    Py_XDECREF(done);
    Py_XDECREF(slices);
    return room && !PyErr_CheckSignals();
}

static int try_add(spv_series *series, const spv_held *held) {
#ifndef Py_GIL_DISABLED
    if (SPV_LIKELY(quick(series)))
        return add_hashed(series, held);
#endif
    PyObject *slices = spv_slices_of(series);
    const Py_ssize_t last = slices ? PyTuple_Size(slices) - 1 : 0;
    const int known = slices ? has(slices, last, held) : -1;
    const int fresh = known > 0 ? 0 : known < 0 ? -1 : spv_core_try_add(slice_at(slices, last), held);
    Py_XDECREF(slices);
    return fresh;
}

int spv_series_add_held(spv_series *series, const spv_held *held) {
    size_t tries = 0;
    for (;;) {
        const int fresh = try_add(series, held);
        if (fresh != SPV_NO_ROOM)
            return fresh;
        if (!spv_series_make_room(series, &tries))
            return -1;
    }
}

/* Any slice can encode keys. The series always keeps the first one. */
static int of_key(spv_series *series, PyObject *key, int of_held(spv_series *, const spv_held *)) {
    PyObject *slices = spv_slices_of(series);
    spv_held held;
    int result = -1;
    if (slices && spv_hold(slice_at(slices, 0), key, &held)) {
        result = of_held(series, &held);
        spv_let_go(&held);
    }
    Py_XDECREF(slices);
    return result;
}

int spv_series_add_key(spv_series *series, PyObject *key) {
    return of_key(series, key, spv_series_add_held);
}

int spv_series_contains_key(spv_series *series, PyObject *key) {
    return of_key(series, key, spv_series_contains_held);
}

/* The slices during a batch, with their memory held. */
typedef struct {
    size_t count;
    spv_memory *memories[SPV_MAX_SLICES];
    spv_slice views[SPV_MAX_SLICES];
    spv_batch last;
    uint64_t near[SPV_AHEAD_CELLS];
} held_slices;

static void let_go(held_slices *held) {
    for (size_t i = 0; i < held->count; i++)
        spv_let_memory_go(held->memories[i]);
    if (held->last.positions != held->near)
        PyMem_Free(held->last.positions);
    PyMem_Free(held);
}

static held_slices *hold_slices(PyObject *slices, bool adds) {
    const size_t count = (size_t)PyTuple_Size(slices);
    spv_core *last = slice_at(slices, (Py_ssize_t)count - 1);
    held_slices *held = PyMem_Malloc(sizeof *held);
    if (!held) {
        PyErr_NoMemory();
        return NULL;
    }
    held->count = 0;
    held->last = (spv_batch){
        .shape = &last->shape, .width = 1, .gate = &last->gate, .far = spv_bytes_of_cells(last->cells, last->width) > FAR, .room = &last->room};
    held->last.positions = last->shape.functions <= SPV_AHEAD_CELLS ? held->near : PyMem_Malloc(last->shape.functions * sizeof(uint64_t));
    if (!held->last.positions)
        PyErr_NoMemory();
    while (held->last.positions && held->count < count) {
        spv_core *core = slice_at(slices, (Py_ssize_t)held->count);
        spv_memory *memory = spv_hold_memory(core, adds && core == last);
        if (!memory)
            break;
        held->views[held->count] = (spv_slice){&core->shape, memory->cells};
        held->memories[held->count++] = memory;
    }
    if (held->count == count) {
        held->last.cells = held->memories[count - 1]->cells;
        return held;
    }
    let_go(held);
    return NULL;
}

static void work_on(held_slices *held, spv_series_work *work) {
    work->done = work->count;
    if (work->mask) {
        spv_series_has_many(held->views, held->count, work->keys, work->from, work->count, work->mask);
        return;
    }
    work->fresh += spv_series_add_many(held->views, held->count - 1, &held->last, work->keys, work->from, work->count);
    work->done = held->last.done;
}

bool spv_series_perform(spv_series *series, spv_series_work *work) {
    PyObject *slices = spv_slices_of(series);
    held_slices *held = slices ? hold_slices(slices, !work->mask) : NULL;
    if (!held) {
        Py_XDECREF(slices);
        return false;
    }
    spv_gate *gate = held->last.gate;
    spv_visitors *writers = &held->memories[held->count - 1]->writers;
    if (!work->mask)
        held->last.shared = work->alone ? spv_gate_enter_unlocked(gate) : spv_gate_enter(gate);
    PyThreadState *thread = work->alone ? PyEval_SaveThread() : NULL;
    work_on(held, work);
    if (!work->mask && work->alone)
        spv_gate_leave(gate, held->last.shared);
    if (!work->mask)
        spv_leave(writers);
    if (thread)
        PyEval_RestoreThread(thread);
    let_go(held);
    Py_DECREF(slices);
    return !work->alone || !PyErr_CheckSignals();
}

/* Methods. */

static int contains(PyObject *self, PyObject *key) {
    return spv_series_contains_key((spv_series *)self, key);
}

static PyObject *add(PyObject *self, PyObject *key) {
    const int fresh = spv_series_add_key((spv_series *)self, key);
    return fresh < 0 ? NULL : PyBool_FromLong(fresh);
}

/* pure.series._check. */
static bool check(const spv_state *state, PyObject *first, PyObject *slice) {
    if (!spv_is_core(state, slice, SPV_BITS)) {
        PyErr_SetString(PyExc_TypeError, "every slice of a series must be a BitCore");
        return false;
    }
    const spv_core *one = (spv_core *)first, *other = (spv_core *)slice;
    if (!spv_check_made(one) || !spv_check_made(other))
        return false;
    const spv_shape *mine = &one->shape, *theirs = &other->shape;
    if (mine->family == theirs->family && mine->k0 == theirs->k0 && mine->k1 == theirs->k1 && one->encoder == other->encoder)
        return true;
    PyErr_SetString(state->MismatchError, "the slices of a series must have the same hash family, key and encoding");
    return false;
}

static PyObject *checked(const spv_state *state, PyObject *iterable) {
    PyObject *list = spv_list(state, iterable), *slices = list ? PyList_AsTuple(list) : NULL;
    Py_XDECREF(list);
    const Py_ssize_t count = slices ? PyTuple_Size(slices) : 0;
    bool fits = slices && count >= 1 && count <= SPV_MAX_SLICES;
    if (slices && !fits)
        PyErr_Format(state->ParameterError, "a series must have 1 to %d slices, not %zd", SPV_MAX_SLICES, count);
    for (Py_ssize_t i = 0; fits && i < count; i++)
        fits = check(state, spv_is_core(state, PyTuple_GetItem(slices, 0), SPV_BITS) ? PyTuple_GetItem(slices, 0) : NULL, PyTuple_GetItem(slices, i));
    if (!fits)
        Py_CLEAR(slices);
    return slices;
}

static int make(PyObject *self, PyObject *arguments, PyObject *names) {
    static char *keywords[] = {"slices", NULL};
    spv_series *series = (spv_series *)self;
    const spv_state *state = spv_series_state(series);
    PyObject *iterable;
    if (!state || !PyArg_ParseTupleAndKeywords(arguments, names, "O", keywords, &iterable))
        return -1;
    PyObject *slices = checked(state, iterable);
    if (!slices)
        return -1;
    SPV_LOCK(series)
    if (!series->slices) {
        set_slices(series, slices);
        slices = NULL;
    }
    SPV_UNLOCK()
    if (!slices)
        return 0;
    Py_DECREF(slices);
    PyErr_SetString(PyExc_TypeError, "a series can be initialized only once");
    return -1;
}

static PyObject *longer(PyObject *slices, PyObject *slice) {
    const Py_ssize_t count = PyTuple_Size(slices);
    PyObject *list = PySequence_List(slices), *tuple = NULL;
    if (list && !PyList_Append(list, slice))
        tuple = PyList_AsTuple(list);
    Py_XDECREF(list);
    return tuple && PyTuple_Size(tuple) == count + 1 ? tuple : NULL;
}

static PyObject *append(PyObject *self, PyObject *const *arguments, Py_ssize_t given) {
    spv_series *series = (spv_series *)self;
    long long most;
    const spv_state *state = spv_count_arguments("append", given, 2) ? spv_series_state(series) : NULL;
    PyObject *slices = state ? spv_slices_of(series) : NULL, *more = NULL, *old = NULL;
    if (!slices)
        return NULL;
    const Py_ssize_t count = PyTuple_Size(slices);
    bool done = false, good = check(state, PyTuple_GetItem(slices, 0), arguments[0])
        && spv_whole(state, arguments[1], 0, INT64_MAX, "count must be from 0 to 2^63 - 1", &most);
    if (good && count <= most) {
        if (count == SPV_MAX_SLICES)
            PyErr_Format(state->CapacityError, "a series can have at most %d slices", SPV_MAX_SLICES);
        good = count < SPV_MAX_SLICES && (more = longer(slices, arguments[0])) != NULL;
    }
    if (good && more) {
        SPV_LOCK(series)
        if (series->slices == slices) { /* no other thread has appended a slice */
            old = series->slices;
            set_slices(series, more);
            more = NULL;
            done = true;
        }
        SPV_UNLOCK()
    }
    Py_XDECREF(more);
    Py_XDECREF(old);
    Py_DECREF(slices);
    return good ? PyBool_FromLong(done) : NULL;
}

static PyObject *get_slices(PyObject *self, void *Py_UNUSED(closure)) {
    return spv_slices_of((spv_series *)self);
}

static int traverse(PyObject *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((spv_series *)self)->slices);
    return 0;
}

static int clear(PyObject *self) {
    ((spv_series *)self)->count = 0;
    Py_CLEAR(((spv_series *)self)->slices);
    return 0;
}

static void end(PyObject *self) {
    spv_end_object(self, clear);
}

static PyMethodDef methods[] = {
    SPV_METHOD(SeriesCore, add, add, METH_O),
    SPV_METHOD(SeriesCore, append, append, METH_FASTCALL),
    SPV_METHOD(SeriesCore, contains_many, spv_series_contains_many, METH_FASTCALL | METH_KEYWORDS),
    {"_make_room", refuse, METH_NOARGS, NULL},
    SPV_METHOD(SeriesCore, update, spv_series_update, METH_FASTCALL | METH_KEYWORDS),
    {0},
};

static PyGetSetDef attributes[] = {{"slices", get_slices, NULL, PyDoc_STR(SPV_DOC_SeriesCore_slices), NULL}, {0}};

int spv_add_series(PyObject *module, spv_state *state) {
    static PyType_Slot slots[] = {
        {Py_tp_doc, (void *)SPV_DOC_SeriesCore}, {Py_tp_new, (void *)PyType_GenericNew}, {Py_tp_init, (void *)make},
        {Py_tp_dealloc, (void *)end}, {Py_tp_traverse, (void *)traverse}, {Py_tp_clear, (void *)clear}, {Py_tp_methods, methods},
        {Py_tp_getset, attributes}, {Py_sq_contains, (void *)contains}, {0},
    };
    PyType_Spec spec = {
        .name = "spvfilter.kernel.native.SeriesCore",
        .basicsize = sizeof(spv_series),
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
        .slots = slots,
    };
    return spv_make_type(module, &state->SeriesCore, &spec, true) ? 0 : -1;
}
