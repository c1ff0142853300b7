/* Binding of block/place.h: read_at, ReadBuffer, and places as arguments. The twin is pure/files.py. */
#ifndef SPV_BINDING_FILES_H
#define SPV_BINDING_FILES_H

#include "binding/binding.h"

#include "block/place.h"

#include <stdatomic.h>

/* ReadBuffer: memory into which blocks are read, one after the other. */
typedef struct {
    PyObject_HEAD
    uint8_t *memory;
    size_t room;
    atomic_uint user; /* generation of the process whose thread uses it, or 0; a forked child does not have that thread */
} spv_read_buffer;

/* Takes the memory, with room for `size` bytes, until spv_let_buffer_go. NULL with an exception set: BufferError if
   another thread has taken it. */
uint8_t *spv_take_buffer(spv_read_buffer *buffer, size_t size);
void spv_let_buffer_go(spv_read_buffer *buffer);

/* pure.table._place, with at most `most` bytes. False with an exception set. */
bool spv_take_place(const spv_state *state, PyObject *object, size_t most, spv_place *place);

int spv_add_files(PyObject *module, spv_state *state);

#endif
