#include "binding/cores/whole.h"

#include "binding/cores/attributes.h"

#include "bloom/bits.h"
#include "bloom/counters.h"
#include "bloom/whole.h"

enum { ALONE_FROM = 1 << 14, BLOCK = 1 << 16 }; /* least number of bytes for which releasing the GIL pays; bytes between two checks of the gate */

/* The cells of one or two filters, held while the GIL is released. */
typedef struct {
    spv_memory *mine, *theirs;
    uint8_t *cells;
    const uint8_t *others; /* NULL if there is only one */
    size_t size;
    bool writes, shared;
    PyThreadState *thread;
} cells_pair;

/* End it with `release`. False with an exception set. */
static bool acquire(spv_core *core, spv_core *other, bool write, cells_pair *pair) {
    *pair = (cells_pair){.writes = write};
    pair->theirs = other ? spv_hold_memory(other, false) : NULL;
    if (other && !pair->theirs)
        return false;
    pair->mine = spv_hold_memory(core, write);
    if (!pair->mine) {
        if (other)
            spv_let_memory_go(pair->theirs);
        return false;
    }
    pair->cells = pair->mine->cells;
    pair->others = other ? pair->theirs->cells : NULL;
    pair->size = spv_bytes_of_cells(core->cells, core->width);
    if (pair->size >= ALONE_FROM) {
        pair->shared = write && spv_gate_enter_unlocked(&core->gate);
        pair->thread = PyEval_SaveThread();
    } else {
        pair->shared = write && spv_gate_enter(&core->gate);
    }
    return true;
}

static void release(spv_core *core, cells_pair *pair) {
    if (pair->thread && pair->writes)
        spv_gate_leave(&core->gate, pair->shared);
    if (pair->writes)
        spv_leave(&pair->mine->writers);
    if (pair->thread)
        PyEval_RestoreThread(pair->thread);
    if (pair->theirs)
        spv_let_memory_go(pair->theirs);
    spv_let_memory_go(pair->mine);
}

static PyObject *count(spv_core *core, spv_core *other) {
    cells_pair pair;
    if (!acquire(core, other, false, &pair))
        return NULL;
    const uint64_t used = core->width != SPV_BITS ? spv_counters_used(pair.cells, core->width, pair.size)
                          : other                     ? spv_bits_count_union(pair.cells, pair.others, pair.size)
                                                      : spv_bits_count(pair.cells, pair.size);
    release(core, &pair);
    return PyLong_FromUnsignedLongLong(used);
}

PyObject *spv_core_used(PyObject *self, PyObject *Py_UNUSED(none)) {
    return count((spv_core *)self, NULL);
}

/* Returns `other` as a core of the same kind and shape. NULL with an exception set, or without one if it is not a
   core of that kind. */
static spv_core *alike(PyObject *self, PyObject *other) {
    const spv_state *state = spv_core_state(self);
    return state && spv_is_core(state, other, ((spv_core *)self)->width) ? spv_same_shape(self, other) : NULL;
}

PyObject *spv_core_union_set_bits(PyObject *self, PyObject *other) {
    spv_core *same = spv_same_shape(self, other);
    return same ? count((spv_core *)self, same) : NULL;
}

PyObject *spv_core_plane_set_bits(PyObject *self, PyObject *Py_UNUSED(none)) {
    spv_core *core = (spv_core *)self;
    PyObject *list = spv_check_made(core) ? PyList_New(core->hash_funcs) : NULL;
    for (uint32_t i = 0; list && i < core->hash_funcs; i++) {
        cells_pair pair;
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

static void sum4(uint8_t *mine, const uint8_t *theirs, size_t size, bool shared) {
    spv_counters_sum(mine, theirs, 4, size, shared);
}

static void sum8(uint8_t *mine, const uint8_t *theirs, size_t size, bool shared) {
    spv_counters_sum(mine, theirs, 8, size, shared);
}

static void sum16(uint8_t *mine, const uint8_t *theirs, size_t size, bool shared) {
    spv_counters_sum(mine, theirs, 16, size, shared);
}

static void zero(uint8_t *mine, const uint8_t *theirs, size_t size, bool shared) {
    (void)theirs, (void)shared; /* concurrent writes may be kept or lost */
    memset(mine, 0, size);
}

/* mine = mine ∘ theirs; returns self, or NULL with an exception set. */
static PyObject *change(PyObject *self, spv_core *other, mix_cells *mix) {
    spv_core *core = (spv_core *)self;
    cells_pair pair;
    if (!acquire(core, other, true, &pair))
        return NULL;
    for (size_t at = 0; at < pair.size; at += BLOCK) {
        pair.shared = pair.thread ? spv_gate_again(&core->gate, pair.shared) : pair.shared;
        mix(pair.cells + at, other ? pair.others + at : NULL, pair.size - at < BLOCK ? pair.size - at : BLOCK, pair.shared);
    }
    spv_room_forget(&core->room);
    release(core, &pair);
    return Py_NewRef(self);
}

/* The in-place operators, such as self |= other. NotImplemented unless `other` is a core of the same kind. */
static PyObject *combine(PyObject *self, PyObject *other, mix_cells *mix) {
    spv_core *same = alike(self, other);
    if (same)
        return change(self, same, mix);
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_NotImplemented);
}

PyObject *spv_core_or(PyObject *self, PyObject *other) {
    const unsigned width = ((spv_core *)self)->width;
    return combine(self, other, width == SPV_BITS ? spv_bits_or : width == 4 ? sum4 : width == 8 ? sum8 : sum16);
}

PyObject *spv_core_and(PyObject *self, PyObject *other) {
    return combine(self, other, spv_bits_and);
}

PyObject *spv_core_clear_cells(PyObject *self, PyObject *Py_UNUSED(none)) {
    PyObject *same = change(self, NULL, zero);
    if (!same)
        return NULL;
    Py_DECREF(same);
    return Py_NewRef(Py_None);
}

/* Only `<=` is defined. The other comparisons are those of object. */
PyObject *spv_core_compare(PyObject *self, PyObject *other, int operation) {
    if (operation != Py_LE)
        return ((richcmpfunc)PyType_GetSlot(&PyBaseObject_Type, Py_tp_richcompare))(self, other, operation);
    spv_core *core = (spv_core *)self, *same = alike(self, other);
    cells_pair pair;
    if (!same)
        return PyErr_Occurred() ? NULL : Py_NewRef(Py_NotImplemented);
    if (!acquire(core, same, false, &pair))
        return NULL;
    const bool subset = spv_bits_subset(pair.cells, pair.others, pair.size);
    release(core, &pair);
    return PyBool_FromLong(subset);
}

/* The hash of object: without it, a type that defines a comparison has no hash. */
Py_hash_t spv_core_hash(PyObject *self) {
    return ((hashfunc)PyType_GetSlot(&PyBaseObject_Type, Py_tp_hash))(self);
}

PyObject *spv_core_to_bits(PyObject *self, PyObject *Py_UNUSED(none)) {
    spv_core *core = (spv_core *)self;
    cells_pair pair;
    if (!spv_check_made(core))
        return NULL;
    PyObject *bits = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)((core->cells + 7) / 8));
    if (!bits || !acquire(core, NULL, false, &pair)) {
        Py_XDECREF(bits);
        return NULL;
    }
    spv_counters_to_bits(pair.cells, core->width, pair.size, (uint8_t *)PyByteArray_AsString(bits));
    release(core, &pair);
    return bits;
}
