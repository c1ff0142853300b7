/* CellMemory: the memory of a core's cells. Its address never changes, so that a thread with a reference may use it
   without the GIL. */
#ifndef SPV_BINDING_CORES_MEMORY_H
#define SPV_BINDING_CORES_MEMORY_H

#include "binding/binding.h"

#include "fork.h"

#include <stddef.h>

/* The memory either follows the header of this object, which exports it as its buffer, or belongs to an object of
   the user.

   The user's memory is held only by a memoryview that this object owns. A Py_buffer would have to be released before
   the garbage collector clears the memoryview; releasing it later crashes Python 3.11 and 3.12. The garbage
   collector does not track the memoryview, but visits its references through this object. It therefore never clears
   the memoryview, and no other code can find it and release it. */
typedef struct {
    PyObject_VAR_HEAD      /* its size is the size of `own` */
    uint8_t *cells;
    PyObject *given;       /* the user's object, or NULL */
    PyObject *view;        /* a memoryview of `given` */
    spv_visitors writers;  /* threads that write without the GIL */
    uint8_t own[];
} spv_memory;

/* Memory of `size` zero bytes. NULL with MemoryError. */
spv_memory *spv_new_memory(const spv_state *state, size_t size);

_Static_assert(offsetof(spv_memory, own) % 2 == 0, "counters of 16 bits need an even address");

/* pure.cells.flat_view: the memory of a buffer of exactly `size` bytes, at a multiple of `alignment`. NULL with an
   exception set. */
spv_memory *spv_memory_of(const spv_state *state, PyObject *buffer, size_t size, size_t alignment, bool *readonly);

/* The user's object, or a memoryview of its own memory. */
PyObject *spv_memory_buffer(const spv_memory *memory);
/* A read-only memoryview of the bytes. */
PyObject *spv_memory_body(const spv_memory *memory);

bool spv_make_memory_type(PyObject *module, spv_state *state);

#endif
