#include "binding/cores/single.h"

#include "bloom/bits.h"
#include "bloom/counters.h"

/* Adds a key at its positions, with the GIL. */
static int add_at(spv_core *core, uint64_t *positions) {
    const size_t functions = core->shape.functions;
    if (!spv_check_writable(core))
        return -1;
    uint8_t *cells = core->memory->cells;
    const bool bits = core->width == SPV_BITS, shared = spv_gate_enter(&core->gate);
    const size_t room = spv_room_reserve(&core->room, 1, shared);
    if (SPV_UNLIKELY(!room) && !(bits ? spv_bits_all(cells, positions, functions) : spv_counters_least(cells, core->width, positions, functions) > 0))
        return SPV_NO_ROOM;
    const bool fresh = bits ? spv_bits_set(cells, positions, functions, shared) : spv_counters_add(cells, core->width, positions, functions, shared);
    spv_room_give_back(&core->room, fresh ? 0 : room, shared);
    return fresh;
}

/* Adds a key to bits with the GIL. It computes each position when it is needed. */
SPV_INLINE int add_lazily(spv_core *core, const spv_held *held) {
    if (SPV_UNLIKELY(!spv_check_writable(core)))
        return -1;
    const bool shared = spv_gate_enter(&core->gate);
    const size_t room = spv_room_reserve(&core->room, 1, shared);
    if (SPV_UNLIKELY(!room) && !spv_bits_has(&core->shape, core->memory->cells, held->data, held->size))
        return SPV_NO_ROOM;
    const bool fresh = spv_bits_add(&core->shape, core->memory->cells, held->data, held->size, shared);
    spv_room_give_back(&core->room, fresh ? 0 : room, shared);
    return fresh;
}

SPV_INLINE bool lazily(const spv_core *core) { /* that is faster, if the kind allows it */
    return core->width == SPV_BITS && !core->custom;
}

int spv_core_try_add(spv_core *core, const spv_held *held) {
    uint64_t room[SPV_NEAR], *positions = NULL;
    int fresh;
    if (!lazily(core) && !(positions = spv_positions_of(core, held, room)))
        return -1;
    SPV_LOCK(core)
    fresh = positions ? add_at(core, positions) : add_lazily(core, held);
    SPV_UNLOCK()
    if (positions)
        spv_free_positions(positions, room);
    return fresh;
}

int spv_core_add_held(spv_core *core, const spv_held *held) {
    size_t tries = 0;
    int fresh;
    do
        fresh = spv_core_try_add(core, held);
    while (SPV_UNLIKELY(fresh == SPV_NO_ROOM) && spv_core_make_room(core, &tries));
    return fresh == SPV_NO_ROOM ? -1 : fresh;
}

int spv_core_add(spv_core *core, PyObject *key) {
    spv_held held;
    if (!spv_hold(core, key, &held))
        return -1;
    const int fresh = spv_core_add_held(core, &held);
    spv_let_go(&held);
    return fresh;
}

/* The smallest of a key's counters, or 1 if all its bits are set, else 0. -1 with an exception set. */
static int least_of(spv_core *core, const spv_held *held) {
    uint64_t room[SPV_NEAR], *positions = spv_positions_of(core, held, room);
    int least = -1;
    if (!positions)
        return -1;
    SPV_LOCK(core)
    least = core->width == SPV_BITS ? (int)spv_bits_all(core->memory->cells, positions, core->shape.functions)
                             : (int)spv_counters_least(core->memory->cells, core->width, positions, core->shape.functions);
    SPV_UNLOCK()
    spv_free_positions(positions, room);
    return least;
}

int spv_core_contains_held(spv_core *core, const spv_held *held) {
    int found;
    if (SPV_LIKELY(lazily(core))) {
        SPV_LOCK(core)
        found = spv_bits_has(&core->shape, core->memory->cells, held->data, held->size);
        SPV_UNLOCK()
        return found;
    }
    found = least_of(core, held);
    return found < 0 ? -1 : found > 0;
}

int spv_core_contains(PyObject *self, PyObject *key) {
    spv_core *core = (spv_core *)self;
    spv_held held;
    if (!spv_hold(core, key, &held))
        return -1;
    const int found = spv_core_contains_held(core, &held);
    spv_let_go(&held);
    return found;
}

PyObject *spv_core_add_method(PyObject *self, PyObject *key) {
    const int fresh = spv_core_add((spv_core *)self, key);
    return fresh < 0 ? NULL : PyBool_FromLong(fresh);
}

PyObject *spv_core_count(PyObject *self, PyObject *key) {
    spv_held held;
    if (!spv_hold((spv_core *)self, key, &held))
        return NULL;
    const int least = least_of((spv_core *)self, &held);
    spv_let_go(&held);
    return least < 0 ? NULL : PyLong_FromLong(least);
}

PyObject *spv_core_remove(PyObject *self, PyObject *key) {
    spv_core *core = (spv_core *)self;
    spv_held held;
    if (!spv_hold(core, key, &held))
        return NULL;
    uint64_t room[SPV_NEAR], *positions = spv_positions_of(core, &held, room);
    const size_t functions = core->shape.functions;
    bool was_there = true, gone;
    if (positions) {
        SPV_LOCK(core)
        if (!spv_counters_least(core->memory->cells, core->width, positions, functions))
            was_there = false; /* the KeyError takes precedence over ReadOnlyError */
        else if (spv_check_writable(core)) {
            const bool shared = spv_gate_enter(&core->gate);
            was_there = spv_counters_remove(core->memory->cells, core->width, positions, functions, shared, &gone);
            spv_room_give_back(&core->room, gone, shared);
        }
        SPV_UNLOCK()
        spv_free_positions(positions, room);
    }
    spv_let_go(&held);
    PyObject *absent = was_there ? NULL : PyObject_CallFunctionObjArgs(PyExc_KeyError, key, NULL);
    if (absent)
        PyErr_SetObject(PyExc_KeyError, absent); /* an instance, because a tuple would be taken for several arguments */
    Py_XDECREF(absent);
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

PyObject *spv_core_positions(PyObject *self, PyObject *key) {
    spv_core *core = (spv_core *)self;
    spv_held held;
    if (!spv_hold(core, key, &held))
        return NULL;
    uint64_t room[SPV_NEAR], *positions = spv_positions_of(core, &held, room);
    PyObject *list = positions ? PyList_New(core->shape.functions) : NULL;
    for (uint32_t i = 0; list && i < core->shape.functions; i++) {
        PyObject *cell = PyLong_FromUnsignedLongLong(positions[i]);
        if (!cell || PyList_SetItem(list, i, cell))
            Py_CLEAR(list);
    }
    if (positions)
        spv_free_positions(positions, room);
    spv_let_go(&held);
    return list;
}
