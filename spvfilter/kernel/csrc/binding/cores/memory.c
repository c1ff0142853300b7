#include "binding/cores/memory.h"

#include "binding/arguments.h"

spv_memory *spv_new_memory(const spv_state *state, size_t size) {
    PyTypeObject *type = (PyTypeObject *)state->CellMemory;
    if (size > PY_SSIZE_T_MAX - sizeof(spv_memory)) {
        PyErr_NoMemory();
        return NULL;
    }
    spv_memory *memory = (spv_memory *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, (Py_ssize_t)size); /* the memory is zeroed */
    if (memory)
        memory->cells = memory->own;
    return memory;
}

/* The memory of the memoryview, if it is contiguous and has that size. */
static uint8_t *flat(const spv_state *state, PyObject *view, size_t size, size_t alignment, bool *readonly) {
    Py_buffer flat;
    if (PyObject_GetBuffer(view, &flat, PyBUF_FULL_RO))
        return NULL;
    uint8_t *cells = NULL;
    if (!PyBuffer_IsContiguous(&flat, 'C'))
        PyErr_SetString(state->ParameterError, "a filter's buffer must be contiguous");
    else if ((size_t)flat.len != size)
        PyErr_Format(state->ParameterError, "expected a buffer of %zu bytes, not %zd", size, flat.len);
    else if ((uintptr_t)flat.buf % alignment)
        PyErr_SetString(state->ParameterError, "a buffer of 16-bit counters must be at an even address");
    else
        cells = flat.buf;
    *readonly = flat.readonly;
    PyBuffer_Release(&flat);
    return cells;
}

spv_memory *spv_memory_of(const spv_state *state, PyObject *buffer, size_t size, size_t alignment, bool *readonly) {
    PyObject *view = NULL;
    if (PyObject_CheckBuffer(buffer))
        view = PyMemoryView_FromObject(buffer);
    else
        spv_refuse_argument("buffer", "a bytes-like object", buffer);
    if (!view)
        return NULL;
    uint8_t *cells = flat(state, view, size, alignment, readonly);
    spv_memory *memory = cells || !PyErr_Occurred() ? spv_new_memory(state, 0) : NULL; /* an empty buffer may have no address */
    if (!memory) {
        Py_DECREF(view);
        return NULL;
    }
    PyObject_GC_UnTrack(view);
    memory->cells = cells;
    memory->view = view;
    memory->given = Py_NewRef(buffer);
    return memory;
}

PyObject *spv_memory_buffer(const spv_memory *memory) {
    return memory->given ? Py_NewRef(memory->given) : PyMemoryView_FromObject((PyObject *)memory);
}

PyObject *spv_memory_body(const spv_memory *memory) {
    PyObject *view = PyMemoryView_FromObject(memory->view ? memory->view : (PyObject *)memory);
    PyObject *frozen = view ? spv_call(view, "toreadonly", NULL) : NULL, *bytes = frozen ? PyUnicode_FromString("B") : NULL;
    PyObject *flat = bytes ? spv_call(frozen, "cast", bytes) : NULL;
    Py_XDECREF(view);
    Py_XDECREF(frozen);
    Py_XDECREF(bytes);
    return flat;
}

static int get_buffer(PyObject *self, Py_buffer *view, int flags) {
    spv_memory *memory = (spv_memory *)self;
    return PyBuffer_FillInfo(view, self, memory->own, Py_SIZE(self), 0, flags);
}

static int traverse(PyObject *self, visitproc visit, void *arg) {
    const spv_memory *memory = (spv_memory *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(memory->given);
    if (memory->view) /* visits the references of the memoryview as references of this object */
        return ((traverseproc)PyType_GetSlot(Py_TYPE(memory->view), Py_tp_traverse))(memory->view, visit, arg);
    return 0;
}

/* Called only with the last reference. A reference cycle that includes this object contains a core, and is broken
   there. */
static int let_go(PyObject *self) {
    spv_memory *memory = (spv_memory *)self;
    if (memory->view)
        PyObject_GC_Track(memory->view); /* its deallocation expects that it is tracked */
    Py_CLEAR(memory->view);
    Py_CLEAR(memory->given);
    return 0;
}

static void end(PyObject *self) {
    spv_end_object(self, let_go);
}

bool spv_make_memory_type(PyObject *module, spv_state *state) {
    static PyType_Slot slots[] = {
        {Py_tp_traverse, traverse},
        {Py_tp_dealloc, end},
        {Py_bf_getbuffer, get_buffer},
        {0, NULL},
    };
    static PyType_Spec spec = {
        .name = "spvfilter.kernel.native.CellMemory",
        .basicsize = offsetof(spv_memory, own),
        .itemsize = 1,
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
        .slots = slots,
    };
    return spv_make_type(module, &state->CellMemory, &spec, false);
}
