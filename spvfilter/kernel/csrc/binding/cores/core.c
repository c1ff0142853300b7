#include "binding/cores/core.h"

const spv_state *spv_core_state(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    while (PyType_GetSlot(type, Py_tp_dealloc) != (void *)spv_core_end) /* a class that is defined in Python has another deallocator */
        type = PyType_GetSlot(type, Py_tp_base);
    return PyType_GetModuleState(type);
}

bool spv_is_core(const spv_state *state, PyObject *object, unsigned width) {
    return PyObject_TypeCheck(object, (PyTypeObject *)(width == SPV_BITS ? state->BitCore : state->CounterCore));
}

size_t spv_bytes_of_cells(uint64_t cells, unsigned width) {
    switch (width) {
    case SPV_BITS:
        return (size_t)(cells / 8 + (cells % 8 != 0));
    case 4:
        return (size_t)(cells / 2 + cells % 2);
    case 16:
        return (size_t)(2 * cells);
    default:
        return (size_t)cells;
    }
}

bool spv_check_made(const spv_core *core) {
    if (core->encoder == SPV_UNMADE)
        PyErr_SetString(PyExc_AttributeError, "the filter has no cells yet: __init__ of its core was not called");
    return core->encoder != SPV_UNMADE;
}

bool spv_check_writable_slow(spv_core *core) {
    const spv_state *state = spv_check_made(core) ? spv_core_state((PyObject *)core) : NULL;
    if (state)
        PyErr_SetString(state->ReadOnlyError, "the filter is read-only: change a copy of it, or open its file with writable=True");
    return false;
}

spv_memory *spv_hold_memory(spv_core *core, bool write) {
    spv_memory *memory = NULL;
    SPV_LOCK(core)
    if (write ? spv_check_writable(core) : spv_check_made(core)) {
        memory = core->memory;
        Py_INCREF((PyObject *)memory);
        if (write)
            spv_visit(&memory->writers);
    }
    SPV_UNLOCK()
    return memory;
}

void spv_let_memory_go(spv_memory *memory) {
    Py_DECREF((PyObject *)memory);
}

PyObject *spv_core_refuse(PyObject *self, PyObject *Py_UNUSED(none)) {
    const spv_state *state = spv_core_state(self);
    if (state)
        PyErr_SetString(state->CapacityError, "there is no room for another key");
    return NULL;
}

bool spv_core_make_room(spv_core *core, size_t *tries) {
    PyObject *done = spv_call((PyObject *)core, "_make_room", NULL), *refused;
    Py_XDECREF(done);
    if (done && spv_room_left(&core->room) <= 0 && ++*tries == SPV_MOST_TRIES) {
        refused = spv_core_refuse((PyObject *)core, NULL);
        Py_XDECREF(refused);
        return false;
    }
    return done && !PyErr_CheckSignals();
}

int spv_core_traverse(PyObject *self, visitproc visit, void *arg) {
    const spv_core *core = (spv_core *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT((PyObject *)core->memory);
    Py_VISIT(core->custom);
    Py_VISIT(core->encode);
    return 0;
}

int spv_core_clear(PyObject *self) {
    spv_core *core = (spv_core *)self;
    core->encoder = SPV_UNMADE; /* later calls fail */
    Py_CLEAR(core->memory);
    Py_CLEAR(core->custom);
    Py_CLEAR(core->encode);
    return 0;
}

void spv_core_end(PyObject *self) {
    spv_end_object(self, spv_core_clear);
}
