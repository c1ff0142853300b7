/* The object of BitCore and CounterCore, and the functions that their methods share. */
#ifndef SPV_BINDING_CORES_CORE_H
#define SPV_BINDING_CORES_CORE_H

#include "binding/cores/memory.h"

#include "bloom/cells.h"

/* How keys become bytes: values.Encoding, with SPV_ENCODE_OWN for the user's function. */
enum {
    SPV_UNMADE, SPV_ENCODE_BYTES, SPV_ENCODE_UTF8, SPV_ENCODE_INT64, SPV_ENCODE_UINT64, SPV_ENCODE_INT32, SPV_ENCODE_UINT32, SPV_ENCODE_OWN
};

/* The shift of a kind: a byte has 2^shift cells. */
enum { SPV_COUNTERS = 1, SPV_BITS = 3 };

/* Initialised once: afterwards only the memory is exchanged, for another of the same size, so that everything else may be read without a
   lock. A filter of few keys is little more than this struct, so every byte counts. */
typedef struct {
    PyObject_HEAD
    spv_memory *memory;
    PyObject *custom;     /* a tuple of the user's functions, or NULL */
    PyObject *encode;     /* the user's own encoding, or NULL */
    spv_shape shape;      /* its `functions` is 0 if there are no cells; hash_funcs is the number given */
    uint64_t cells;
    spv_gate gate;
    spv_room room;
    uint32_t hash_funcs;
    uint8_t encoder;      /* SPV_UNMADE before __init__ has succeeded */
    uint8_t shift;
    bool partitioned;
    bool readonly;        /* the memory */
} spv_core;

/* Whether keys are ints. */
SPV_INLINE bool spv_takes_numbers(const spv_core *core) {
    return core->encoder >= SPV_ENCODE_INT64 && core->encoder <= SPV_ENCODE_UINT32;
}

/* The state of the module, also from an object of a derived class; NULL with an exception set if the module is gone. */
const spv_state *spv_core_state(PyObject *self);

/* Whether an object is a core of the kind with this shift. */
bool spv_is_core(const spv_state *state, PyObject *object, unsigned shift);

size_t spv_bytes_of_cells(uint64_t cells, unsigned shift);

/* False with an exception set if __init__ has not been called, or the cells are read-only. */
bool spv_check_made(const spv_core *core);
bool spv_check_writable_slow(spv_core *core);

SPV_INLINE bool spv_check_writable(spv_core *core) {
    return SPV_LIKELY(core->memory && !core->readonly) || spv_check_writable_slow(core);
}

/* A reference to the memory, for use without the interpreter's lock; if `write`, also counted among its writers. The lock is taken again
   before spv_let_memory_go. NULL with an exception set. */
spv_memory *spv_hold_memory(spv_core *core, bool write);
void spv_let_memory_go(spv_memory *memory);

/* Hashed.make_room: raises CapacityError. */
PyObject *spv_core_refuse(PyObject *self, PyObject *none);
/* Other threads may take the room that make_room has made before this one does: so often a key asks for it before it is refused.
   The twin of pure.cells.MOST_TRIES. */
enum { SPV_MOST_TRIES = 10000 };

/* Asks the filter's make_room for room for a new key; `tries` counts those calls that left none. False with an exception set. */
bool spv_core_make_room(spv_core *core, size_t *tries);

/* Slots of the types. */
int spv_core_traverse(PyObject *self, visitproc visit, void *arg);
int spv_core_clear(PyObject *self);
void spv_core_end(PyObject *self);

#endif
