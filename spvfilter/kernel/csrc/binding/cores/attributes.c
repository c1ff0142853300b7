#include "binding/cores/attributes.h"

#include "binding/arguments.h"

#include "bloom/counters.h"

PyObject *spv_core_buffer(PyObject *self, void *Py_UNUSED(closure)) {
    spv_core *core = (spv_core *)self;
    if (!spv_check_made(core))
        return NULL;
    PyObject *buffer;
    SPV_LOCK(core)
    if (!core->readonly)
        spv_gate_share(&core->gate); /* the holder of the buffer may write to it, or make another filter of it */
    buffer = spv_memory_buffer(core->memory);
    SPV_UNLOCK()
    return buffer;
}

/* Returns when no thread writes to the old memory any more. Writes that begin after the call go to the new memory. */
int spv_core_set_buffer(PyObject *self, PyObject *buffer, void *Py_UNUSED(closure)) {
    spv_core *core = (spv_core *)self;
    if (!buffer) {
        PyErr_SetString(PyExc_AttributeError, "a filter's buffer cannot be deleted");
        return -1;
    }
    const spv_state *state = spv_check_made(core) ? spv_core_state(self) : NULL;
    bool readonly;
    spv_memory *fresh = state ? spv_memory_of(state, buffer, spv_bytes_of_cells(core->cells, core->width), spv_alignment(core->width), &readonly) : NULL, *old;
    if (!fresh)
        return -1;
    SPV_LOCK(core)
    spv_gate_share(&core->gate); /* the new memory may be the same bytes */
    old = core->memory;
    core->memory = fresh;
    core->readonly = readonly;
    spv_room_forget(&core->room);
    SPV_UNLOCK()
    Py_BEGIN_ALLOW_THREADS
    spv_wait_for(&old->writers);
    Py_END_ALLOW_THREADS
    Py_DECREF((PyObject *)old);
    return 0;
}

PyObject *spv_core_room(PyObject *self, void *Py_UNUSED(closure)) {
    spv_core *core = (spv_core *)self;
    if (!spv_check_made(core))
        return NULL;
    const int64_t room = spv_room_left(&core->room);
    return room == SPV_UNLIMITED ? Py_NewRef(Py_None) : PyLong_FromLongLong(room < 0 ? -1 : room);
}

int spv_core_set_room(PyObject *self, PyObject *value, void *Py_UNUSED(closure)) {
    spv_core *core = (spv_core *)self;
    long long room = SPV_UNLIMITED;
    if (!value) {
        PyErr_SetString(PyExc_AttributeError, "a filter's room cannot be deleted");
        return -1;
    }
    const spv_state *state = spv_check_made(core) ? spv_core_state(self) : NULL;
    if (!state || (value != Py_None && !spv_whole(state, value, -1, INT64_MAX - 1, "room must be from -1 to 2^63 - 2, or None", &room)))
        return -1;
    atomic_store_explicit(&core->room, room, memory_order_relaxed);
    return 0;
}

PyObject *spv_core_body(PyObject *self, void *Py_UNUSED(closure)) {
    spv_memory *memory = spv_hold_memory((spv_core *)self, false);
    if (!memory)
        return NULL;
    PyObject *body = spv_memory_body(memory);
    spv_let_memory_go(memory);
    return body;
}

/* The 16 bytes from which the numbers of the shape were made. */
static PyObject *key_of(const spv_shape *shape) {
    uint8_t key[16];
    for (size_t i = 0; i < 8; i++) {
        key[i] = (uint8_t)(shape->k0 >> 8 * i);
        key[8 + i] = (uint8_t)(shape->k1 >> 8 * i);
    }
    return PyBytes_FromStringAndSize((const char *)key, sizeof key);
}

static PyObject *attribute(const spv_state *state, const spv_core *core, int which) {
    static const int encodings[] = {
        [SPV_ENCODE_BYTES] = 0, [SPV_ENCODE_UTF8] = 1, [SPV_ENCODE_INT64] = 2, [SPV_ENCODE_UINT64] = 3, [SPV_ENCODE_INT32] = 4,
        [SPV_ENCODE_UINT32] = 5, [SPV_ENCODE_OWN] = 255,
    };
    switch (which) {
    case SPV_CELLS:
        return PyLong_FromUnsignedLongLong(core->cells);
    case SPV_HASH_FUNCS:
        return PyLong_FromUnsignedLong(core->hash_funcs);
    case SPV_FAMILY:
        return PyObject_CallFunction(state->Family, "i", (int)core->shape.family);
    case SPV_KEY:
        return key_of(&core->shape);
    case SPV_ENCODING:
        return PyObject_CallFunction(state->Encoding, "i", encodings[core->encoder]);
    case SPV_PARTITIONED:
        return PyBool_FromLong(core->partitioned);
    case SPV_COUNTER_BITS:
        return PyLong_FromLong(core->width);
    default:
        return PyLong_FromUnsignedLong(spv_counter_limit(core->width));
    }
}

PyObject *spv_core_attribute(PyObject *self, void *which) {
    const spv_state *state = spv_check_made((spv_core *)self) ? spv_core_state(self) : NULL;
    return state ? attribute(state, (spv_core *)self, (int)(intptr_t)which) : NULL;
}

static bool differs(const spv_core *mine, const spv_core *theirs, int which) {
    switch (which) {
    case SPV_CELLS:
        return mine->cells != theirs->cells;
    case SPV_HASH_FUNCS:
        return mine->hash_funcs != theirs->hash_funcs;
    case SPV_FAMILY:
        return mine->shape.family != theirs->shape.family;
    case SPV_KEY:
        return mine->shape.k0 != theirs->shape.k0 || mine->shape.k1 != theirs->shape.k1;
    case SPV_ENCODING:
        return mine->encoder != theirs->encoder;
    case SPV_PARTITIONED:
        return mine->partitioned != theirs->partitioned;
    default:
        return mine->width != theirs->width;
    }
}

static void refuse_difference(const spv_state *state, const spv_core *core, const spv_core *other, int which, const char *name) {
    if (which == SPV_KEY) { /* a key may be secret */
        PyErr_SetString(state->MismatchError, "the filters differ in key");
        return;
    }
    PyObject *mine = attribute(state, core, which), *theirs = mine ? attribute(state, other, which) : NULL;
    if (theirs && (which == SPV_FAMILY || which == SPV_ENCODING)) {
        Py_XSETREF(mine, spv_attribute(mine, "name"));
        Py_XSETREF(theirs, spv_attribute(theirs, "name"));
    }
    if (mine && theirs)
        PyErr_Format(state->MismatchError, "the filters differ in %s: %S and %S", name, mine, theirs);
    Py_XDECREF(mine);
    Py_XDECREF(theirs);
}

spv_core *spv_same_shape(PyObject *self, PyObject *object) {
    static const char *const names[] = {"cells", "hash_funcs", "family", "key", "encoding", "partitioned", "counter_bits"};
    spv_core *core = (spv_core *)self, *other = (spv_core *)object;
    const spv_state *state = spv_core_state(self);
    if (!state)
        return NULL;
    if (!spv_is_core(state, object, core->width)) {
        spv_refuse_type(core->width == SPV_BITS ? "other must be a filter of bits, not %U" : "other must be a filter of counters, not %U", object);
        return NULL;
    }
    if (!spv_check_made(core) || !spv_check_made(other))
        return NULL;
    for (int which = SPV_CELLS; which <= SPV_COUNTER_BITS; which++)
        if (differs(core, other, which)) {
            refuse_difference(state, core, other, which, names[which]);
            return NULL;
        }
    return other;
}

PyObject *spv_core_same_shape(PyObject *self, PyObject *other) {
    return spv_same_shape(self, other) ? Py_NewRef(Py_None) : NULL;
}
