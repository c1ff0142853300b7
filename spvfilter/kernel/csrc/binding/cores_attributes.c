/* What a core says of itself, and its buffer: the twin of pure.cells.Hashed's attributes. */
#include "binding/cores.h"

#include <sched.h>

bool spv_check_made(spv_core *core) {
    if (core->encoder == SPV_UNMADE)
        PyErr_SetString(PyExc_AttributeError, "the filter has no cells yet: __init__ of its core was not called");
    return core->encoder != SPV_UNMADE;
}

bool spv_check_writable(spv_core *core) {
    if (SPV_LIKELY(core->view.obj && !core->view.readonly))
        return true;
    if (spv_check_made(core))
        PyErr_SetString(spv_known.ReadOnlyError, "the filter is read-only");
    return false;
}

/* pure.cells.flat_view: holds the buffer through a memoryview, so that its owner may release his own. */
bool spv_view_of(PyObject *buffer, size_t size, Py_buffer *view) {
    PyObject *memory = PyMemoryView_FromObject(buffer);
    const int failed = memory ? PyObject_GetBuffer(memory, view, PyBUF_FULL_RO) : -1;
    Py_XDECREF(memory);
    if (failed)
        return false;
    if (!PyBuffer_IsContiguous(view, 'C'))
        PyErr_SetString(spv_known.ParameterError, "a filter's buffer must be contiguous");
    else if ((size_t)view->len != size)
        PyErr_Format(spv_known.ParameterError, "a buffer of %zu bytes expected, not %zd", size, view->len);
    else
        return true;
    PyBuffer_Release(view);
    return false;
}

size_t spv_size_of(uint64_t cells, unsigned shift) {
    return (size_t)((cells >> shift) + ((cells & ((1u << shift) - 1)) != 0));
}

PyObject *spv_core_buffer(PyObject *self, void *Py_UNUSED(closure)) {
    spv_core *core = (spv_core *)self;
    if (!spv_check_made(core))
        return NULL;
    PyObject *buffer;
    SPV_LOCK(core)
    if (!core->view.readonly)
        spv_gate_share(&core->gate); /* whoever has it may write to it, or make another filter of it */
    buffer = Py_NewRef(core->buffer);
    SPV_UNLOCK()
    return buffer;
}

int spv_core_set_buffer(PyObject *self, PyObject *buffer, void *Py_UNUSED(closure)) {
    spv_core *core = (spv_core *)self;
    if (!buffer) {
        PyErr_SetString(PyExc_AttributeError, "a filter's buffer cannot be deleted");
        return -1;
    }
    Py_buffer fresh, old;
    if (!spv_check_made(core) || !spv_view_of(buffer, spv_size_of(core->cells, core->shift), &fresh))
        return -1;
    PyObject *old_buffer;
    SPV_LOCK(core)
    atomic_store(&core->gate.shared, true);
    old = core->view;
    old_buffer = core->buffer;
    core->view = fresh;
    core->buffer = Py_NewRef(buffer);
    SPV_UNLOCK()
    Py_BEGIN_ALLOW_THREADS
    while (atomic_load(&core->writers)) /* into the old one, until their piece is done */
        sched_yield();
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&old);
    Py_DECREF(old_buffer);
    return 0;
}

PyObject *spv_core_body(PyObject *self, void *Py_UNUSED(closure)) {
    spv_core *core = (spv_core *)self;
    if (!spv_check_made(core))
        return NULL;
    PyObject *memory;
    SPV_LOCK(core)
    memory = Py_NewRef(core->view.obj);
    SPV_UNLOCK()
    PyObject *frozen = PyObject_CallMethod(memory, "toreadonly", NULL);
    PyObject *flat = frozen ? PyObject_CallMethod(frozen, "cast", "s", "B") : NULL;
    Py_XDECREF(frozen);
    Py_DECREF(memory);
    return flat;
}

/* What same_shape compares, and in which order. */
static PyObject *attribute(const spv_core *core, int which) {
    switch (which) {
    case SPV_CELLS:
        return PyLong_FromUnsignedLongLong(core->cells);
    case SPV_HASH_FUNCS:
        return PyLong_FromUnsignedLong(core->hash_funcs);
    case SPV_FAMILY:
        return Py_NewRef(core->family);
    case SPV_KEY:
        return Py_NewRef(core->key);
    case SPV_ENCODING:
        return Py_NewRef(core->encoding);
    default:
        return PyBool_FromLong(core->partitioned);
    }
}

PyObject *spv_core_attribute(PyObject *self, void *which) {
    return spv_check_made((spv_core *)self) ? attribute((spv_core *)self, (int)(intptr_t)which) : NULL;
}

static void refuse_difference(spv_core *core, spv_core *other, int which, const char *name) {
    if (which == SPV_KEY) { /* keys are secret */
        PyErr_SetString(spv_known.MismatchError, "filters of different key");
        return;
    }
    PyObject *mine = attribute(core, which), *theirs = attribute(other, which);
    if (mine && theirs && (which == SPV_FAMILY || which == SPV_ENCODING)) {
        Py_XSETREF(mine, PyObject_GetAttrString(mine, "name"));
        Py_XSETREF(theirs, PyObject_GetAttrString(theirs, "name"));
    }
    if (mine && theirs)
        PyErr_Format(spv_known.MismatchError, "filters of different %s: %S and %S", name, mine, theirs);
    Py_XDECREF(mine);
    Py_XDECREF(theirs);
}

spv_core *spv_same_shape(spv_core *core, PyObject *object) {
    static const char *const names[] = {"cells", "hash_funcs", "family", "key", "encoding", "partitioned"};
    if (!spv_is_core(object, 1) && !spv_is_core(object, 3)) {
        PyErr_SetString(PyExc_TypeError, "the shape of a filter can be compared with another filter's only");
        return NULL;
    }
    spv_core *other = (spv_core *)object;
    if (!spv_check_made(core) || !spv_check_made(other))
        return NULL;
    for (int which = SPV_CELLS; which <= SPV_PARTITIONED; which++) {
        PyObject *mine = attribute(core, which), *theirs = attribute(other, which);
        const int equal = mine && theirs ? PyObject_RichCompareBool(mine, theirs, Py_EQ) : -1;
        Py_XDECREF(mine);
        Py_XDECREF(theirs);
        if (equal == 0)
            refuse_difference(core, other, which, names[which]);
        if (equal <= 0)
            return NULL;
    }
    return other;
}

PyObject *spv_core_same_shape(PyObject *self, PyObject *other) {
    return spv_same_shape((spv_core *)self, other) ? Py_NewRef(Py_None) : NULL;
}
