/* CellMemory: what holds the cells of a core. It is never exchanged for other memory, so that whoever has a reference may go on using it
   without the interpreter's lock. */
#ifndef SPV_BINDING_CORES_MEMORY_H
#define SPV_BINDING_CORES_MEMORY_H

#include "binding/binding.h"

#include "fork.h"

/* Either its own, behind its head, which its buffer exports; or that of the user's object.

   The user's memory is held through a memoryview of our own, and by nothing else: no Py_buffer of it is kept, which would have to be
   released before the collector clears the memoryview, and in 3.11 and 3.12 crashes where it is released later. The collector does not track
   the memoryview, but sees through this object what it refers to: so it does not clear it, and nobody finds it and releases it. */
typedef struct {
    PyObject_VAR_HEAD      /* of its own bytes */
    uint8_t *cells;
    PyObject *given;       /* what the user gave, or NULL */
    PyObject *view;        /* a memoryview of that */
    spv_visitors writers;  /* without the interpreter's lock */
    uint8_t own[];
} spv_memory;

/* `size` bytes of zeros; NULL with MemoryError. */
spv_memory *spv_new_memory(const spv_state *state, size_t size);

/* pure.cells.flat_view: the memory of a buffer, of exactly `size` bytes; NULL with an exception set. */
spv_memory *spv_memory_of(const spv_state *state, PyObject *buffer, size_t size, bool *readonly);

/* What the user gave, or a memoryview. */
PyObject *spv_memory_buffer(const spv_memory *memory);
/* A memoryview of bytes that does not write. */
PyObject *spv_memory_body(const spv_memory *memory);

bool spv_make_memory_type(PyObject *module, spv_state *state);

#endif
