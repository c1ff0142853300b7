/* Whole arrays of cells: counts, unions, comparison, clearing. Without the interpreter's lock where they are large. */
#include "binding/cores.h"

enum { ALONE_FROM = 1 << 14, BLOCK = 1 << 16 }; /* bytes: from which giving up the lock pays; between two looks at the gate */

/* The cells of two filters, or of one, held while the lock is given up. */
typedef struct {
    Py_buffer mine, theirs;
    uint8_t *cells;
    const uint8_t *others; /* NULL where there is one only */
    size_t size;
    bool writes, shared;
    PyThreadState *state;
} cells_pair;

static bool hold_one(spv_core *core, Py_buffer *held, bool write) {
    int failed = 0;
    SPV_LOCK(core)
    if (write && !spv_check_writable(core))
        failed = -1;
    else
        failed = PyObject_GetBuffer(core->view.obj, held, PyBUF_FULL_RO);
    if (!failed && write)
        atomic_fetch_add(&core->writers, 1);
    SPV_UNLOCK()
    return !failed;
}

/* Ends with release; false with an exception set. */
static bool acquire(spv_core *core, spv_core *other, bool write, cells_pair *pair) {
    *pair = (cells_pair){.writes = write};
    if (!hold_one(core, &pair->mine, write))
        return false;
    if (other && !hold_one(other, &pair->theirs, false)) {
        if (write)
            atomic_fetch_sub(&core->writers, 1);
        PyBuffer_Release(&pair->mine);
        return false;
    }
    pair->cells = pair->mine.buf;
    pair->others = other ? pair->theirs.buf : NULL;
    pair->size = (size_t)pair->mine.len;
    if (pair->size >= ALONE_FROM) {
        pair->shared = write && spv_gate_enter_unlocked(&core->gate);
        pair->state = PyEval_SaveThread();
    } else {
        pair->shared = write && spv_gate_enter(&core->gate);
    }
    return true;
}

static void release(spv_core *core, cells_pair *pair) {
    if (pair->state && pair->writes)
        spv_gate_leave(&core->gate, pair->shared);
    if (pair->writes)
        atomic_fetch_sub(&core->writers, 1);
    if (pair->state)
        PyEval_RestoreThread(pair->state);
    PyBuffer_Release(&pair->theirs);
    PyBuffer_Release(&pair->mine);
}

static PyObject *count(spv_core *core, spv_core *other) {
    cells_pair pair;
    if (!spv_check_made(core) || !acquire(core, other, false, &pair))
        return NULL;
    const uint64_t used = core->shift == 1 ? spv_counters_used(pair.cells, pair.size)
                          : other          ? spv_bits_count_union(pair.cells, pair.others, pair.size)
                                           : spv_bits_count(pair.cells, pair.size);
    release(core, &pair);
    return PyLong_FromUnsignedLongLong(used);
}

PyObject *spv_core_used(PyObject *self, PyObject *Py_UNUSED(none)) {
    return count((spv_core *)self, NULL);
}

PyObject *spv_core_union_set_bits(PyObject *self, PyObject *other) {
    spv_core *same = spv_same_shape((spv_core *)self, other);
    return same ? count((spv_core *)self, same) : NULL;
}

PyObject *spv_core_plane_set_bits(PyObject *self, PyObject *Py_UNUSED(none)) {
    spv_core *core = (spv_core *)self;
    cells_pair pair;
    PyObject *list = spv_check_made(core) ? PyList_New(core->hash_funcs) : NULL;
    for (uint32_t i = 0; list && i < core->hash_funcs; i++) {
        PyObject *found = NULL;
        if (acquire(core, NULL, false, &pair)) {
            const uint64_t first = i * core->shape.stride;
            const uint64_t used = spv_bits_count_between(pair.cells, first, first + core->shape.span);
            release(core, &pair);
            found = PyLong_FromUnsignedLongLong(used);
        }
        if (!found || PyList_SetItem(list, i, found))
            Py_CLEAR(list);
    }
    return list;
}

typedef void mix_cells(uint8_t *mine, const uint8_t *theirs, size_t size, bool shared);

static void zero(uint8_t *mine, const uint8_t *theirs, size_t size, bool shared) {
    (void)theirs, (void)shared; /* what is written meanwhile may stay or go */
    memset(mine, 0, size);
}

/* mine = mine ∘ theirs; itself, or NULL with an exception set. */
static PyObject *change(PyObject *self, spv_core *other, mix_cells *mix) {
    spv_core *core = (spv_core *)self;
    cells_pair pair;
    if (!acquire(core, other, true, &pair))
        return NULL;
    for (size_t at = 0; at < pair.size; at += BLOCK) {
        pair.shared = pair.state ? spv_gate_again(&core->gate, pair.shared) : pair.shared;
        mix(pair.cells + at, other ? pair.others + at : NULL, pair.size - at < BLOCK ? pair.size - at : BLOCK, pair.shared);
    }
    release(core, &pair);
    return Py_NewRef(self);
}

/* self |= other and the like: with a core of the other kind, or what is none, another may know what to do. */
static PyObject *combine(PyObject *self, PyObject *other, mix_cells *mix) {
    spv_core *core = (spv_core *)self;
    if (!spv_is_core(other, core->shift))
        return Py_NewRef(Py_NotImplemented);
    spv_core *same = spv_same_shape(core, other);
    return same ? change(self, same, mix) : NULL;
}

PyObject *spv_core_or(PyObject *self, PyObject *other) {
    return combine(self, other, ((spv_core *)self)->shift == 3 ? spv_bits_or : spv_counters_sum);
}

PyObject *spv_core_and(PyObject *self, PyObject *other) {
    return combine(self, other, spv_bits_and);
}

PyObject *spv_core_clear(PyObject *self, PyObject *Py_UNUSED(none)) {
    PyObject *same = spv_check_made((spv_core *)self) ? change(self, NULL, zero) : NULL;
    if (!same)
        return NULL;
    Py_DECREF(same);
    return Py_NewRef(Py_None);
}

/* `<=` is ours, the rest object's own. */
PyObject *spv_core_compare(PyObject *self, PyObject *other, int operation) {
    if (operation != Py_LE)
        return ((richcmpfunc)PyType_GetSlot(&PyBaseObject_Type, Py_tp_richcompare))(self, other, operation);
    spv_core *core = (spv_core *)self;
    cells_pair pair;
    if (!spv_is_core(other, core->shift))
        return Py_NewRef(Py_NotImplemented);
    spv_core *same = spv_same_shape(core, other);
    if (!same || !acquire(core, same, false, &pair))
        return NULL;
    const bool subset = spv_bits_subset(pair.cells, pair.others, pair.size);
    release(core, &pair);
    return PyBool_FromLong(subset);
}

PyObject *spv_core_to_bits(PyObject *self, PyObject *Py_UNUSED(none)) {
    spv_core *core = (spv_core *)self;
    cells_pair pair;
    if (!spv_check_made(core))
        return NULL;
    PyObject *bits = PyByteArray_FromStringAndSize(NULL, (core->view.len + 3) / 4);
    if (!bits || !acquire(core, NULL, false, &pair)) {
        Py_XDECREF(bits);
        return NULL;
    }
    spv_counters_to_bits(pair.cells, pair.size, (uint8_t *)PyByteArray_AsString(bits));
    release(core, &pair);
    return bits;
}
