/* The object of BitCore, CounterCore and FuseCore, and the functions that their methods share. */
#ifndef SPV_BINDING_CORES_CORE_H
#define SPV_BINDING_CORES_CORE_H

#include "binding/cores/memory.h"

#include "bloom/fuse.h"

/* Encoding of keys: values.Encoding, with SPV_ENCODE_OWN for the user's function. */
enum {
    SPV_UNMADE, SPV_ENCODE_BYTES, SPV_ENCODE_UTF8, SPV_ENCODE_INT64, SPV_ENCODE_UINT64, SPV_ENCODE_INT32, SPV_ENCODE_UINT32, SPV_ENCODE_OWN
};

/* The width of a cell in bits: 1, or 4, 8 or 16 for counters. A table of fingerprints counts its cells in bytes, and
   has a width of its own. */
enum { SPV_BITS = 1, SPV_FINGERPRINTS = 32 };

/* It is initialized once. Afterwards only the memory is replaced, by memory of the same size, so that everything
   else can be read without a lock. A filter of few keys is little more than this struct, so every byte counts. */
typedef struct {
    PyObject_HEAD
    spv_memory *memory;
    PyObject *custom;     /* a tuple of the user's functions, or NULL */
    PyObject *encode;     /* the user's own encoding, or NULL */
    spv_shape shape;      /* its `functions` is 0 if there are no cells; hash_funcs is the number that the user gave */
    uint64_t cells;
    spv_gate gate;
    spv_room room;
    uint32_t hash_funcs;
    uint8_t encoder;      /* SPV_UNMADE before __init__ has succeeded */
    uint8_t width;
    bool partitioned;
    bool readonly;        /* the memory is read-only */
} spv_core;

/* FuseCore: a core of fingerprints. Its `custom` is the user's function, and its `shape` only hashes. */
typedef struct {
    spv_core core;
    spv_fuse fuse;
} spv_fuse_core;

/* True if keys are ints. */
SPV_INLINE bool spv_takes_numbers(const spv_core *core) {
    return core->encoder >= SPV_ENCODE_INT64 && core->encoder <= SPV_ENCODE_UINT32;
}

/* The state of the module, even for an object of a derived class. NULL with an exception set if the module is gone. */
const spv_state *spv_core_state(PyObject *self);

/* True if an object is a core of bits, if the width is SPV_BITS, or of counters. */
bool spv_is_core(const spv_state *state, PyObject *object, unsigned width);

size_t spv_bytes_of_cells(uint64_t cells, unsigned width);

/* The alignment of a buffer of such cells, in bytes. */
SPV_INLINE size_t spv_alignment(unsigned width) {
    return width == 16 ? 2 : 1;
}

/* False with an exception set if __init__ has not been called, or the cells are read-only. */
bool spv_check_made(const spv_core *core);
bool spv_check_writable_slow(spv_core *core);

SPV_INLINE bool spv_check_writable(spv_core *core) {
    return SPV_LIKELY(core->memory && !core->readonly) || spv_check_writable_slow(core);
}

/* A reference to the memory, for use without the GIL. With `write`, the thread also counts among its writers.
   Acquire the GIL again before spv_let_memory_go. NULL with an exception set. */
spv_memory *spv_hold_memory(spv_core *core, bool write);
void spv_let_memory_go(spv_memory *memory);

/* Hashed.make_room: raises CapacityError. */
PyObject *spv_core_refuse(PyObject *self, PyObject *none);
/* The number of times that a key asks for room before it is refused. Other threads may use up the room that
   make_room has made. The twin is pure.cells.MOST_TRIES. */
enum { SPV_MOST_TRIES = 10000 };

/* Calls the filter's make_room for a new key. `tries` counts the calls that left no room. False with an exception
   set. */
bool spv_core_make_room(spv_core *core, size_t *tries);

/* Slots of the types. */
int spv_core_traverse(PyObject *self, visitproc visit, void *arg);
int spv_core_clear(PyObject *self);
void spv_core_end(PyObject *self);

#endif
