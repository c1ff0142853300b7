/* CellMemory: the memory of a core's cells. Its address never changes, so that a holder of a reference may use it without the
   interpreter's lock. */
#ifndef SPV_BINDING_CORES_MEMORY_H
#define SPV_BINDING_CORES_MEMORY_H

#include "binding/binding.h"

#include "fork.h"

/* The memory is either its own, after its head, and exported as its buffer, or that of the user's object.

   The user's memory is held by a memoryview of our own and nothing else. A Py_buffer of it would have to be released before the
   collector clears the memoryview; releasing it later crashes Python 3.11 and 3.12. The collector does not track the memoryview but
   visits its references through this object, so it does not clear it, and nobody can find it and release it. */
typedef struct {
    PyObject_VAR_HEAD      /* its size is that of `own` */
    uint8_t *cells;
    PyObject *given;       /* the user's object, or NULL */
    PyObject *view;        /* a memoryview of that */
    spv_visitors writers;  /* threads that write without the interpreter's lock */
    uint8_t own[];
} spv_memory;

/* `size` bytes of zeros; NULL with MemoryError. */
spv_memory *spv_new_memory(const spv_state *state, size_t size);

/* pure.cells.flat_view: the memory of a buffer, of exactly `size` bytes; NULL with an exception set. */
spv_memory *spv_memory_of(const spv_state *state, PyObject *buffer, size_t size, bool *readonly);

/* The user's object, or a memoryview of its own memory. */
PyObject *spv_memory_buffer(const spv_memory *memory);
/* A read-only memoryview of the bytes. */
PyObject *spv_memory_body(const spv_memory *memory);

bool spv_make_memory_type(PyObject *module, spv_state *state);

#endif
