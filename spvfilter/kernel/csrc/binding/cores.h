/* What the files that bind BitCore and CounterCore share: one struct for both, and a key's bytes while they are needed. */
#ifndef SPV_BINDING_CORES_H
#define SPV_BINDING_CORES_H

#include "binding/binding.h"

#include "bloom/bits.h"
#include "bloom/counters.h"
#include "bloom/whole.h"

#ifdef Py_GIL_DISABLED /* what the interpreter's lock does elsewhere: nobody changes the buffer meanwhile */
#define SPV_LOCK(core) Py_BEGIN_CRITICAL_SECTION((PyObject *)(core));
#define SPV_UNLOCK() Py_END_CRITICAL_SECTION()
#else
#define SPV_LOCK(core) {
#define SPV_UNLOCK() }
#endif

typedef enum { SPV_UNMADE, SPV_ENCODE_BYTES, SPV_ENCODE_UTF8, SPV_ENCODE_INT64, SPV_ENCODE_UINT64, SPV_ENCODE_OWN } spv_encoder;

/* Made once: afterwards only the buffer changes, for another of the same size, so that all else may be read without any lock. */
typedef struct {
    PyObject_HEAD
    spv_encoder encoder;  /* SPV_UNMADE before __init__ has succeeded */
    unsigned shift;       /* 2^shift cells are in a byte: 3 in a BitCore, 1 in a CounterCore */
    bool partitioned;
    uint32_t hash_funcs;
    uint64_t cells;
    spv_shape shape;
    spv_gate gate;
    atomic_int writers;   /* batches that write without the interpreter's lock */
    Py_buffer view;       /* of a memoryview of `buffer` */
    PyObject *buffer, *family, *key, *encoding;
    PyObject *custom;     /* a tuple of the user's functions, or NULL */
    PyObject *encode;     /* the user's own encoding, or NULL */
} spv_core;

/* A key's bytes; spv_let_go when done. */
typedef struct {
    const uint8_t *data;
    size_t size;
    PyObject *owner;     /* of the bytes, or NULL where the caller's key is */
    bool viewed;         /* `view` is held */
    void *copy;          /* of what is not contiguous, or NULL */
    uint8_t number[8];
    Py_buffer view;
} spv_held;

bool spv_hold_slow(spv_core *core, PyObject *key, spv_held *held);
void spv_let_go_slow(spv_held *held);

/* pure.cells.Hashed._encode: false with an exception set where the key is none. */
SPV_INLINE bool spv_hold(spv_core *core, PyObject *key, spv_held *held) {
    held->owner = NULL;
    held->viewed = false;
    held->copy = NULL;
    if (SPV_LIKELY(core->encoder == SPV_ENCODE_BYTES && Py_IS_TYPE(key, &PyBytes_Type))) {
        held->data = (const uint8_t *)PyBytes_AsString(key);
        held->size = (size_t)PyBytes_Size(key);
        return true;
    }
    return spv_hold_slow(core, key, held);
}

SPV_INLINE void spv_let_go(spv_held *held) {
    if (SPV_UNLIKELY(held->owner || held->viewed || held->copy))
        spv_let_go_slow(held);
}

/* Where encoding the key runs no one's Python code and the result lives as long as the key, or is a number put into `number`: true and
   its bytes. Else false, with no exception set: spv_hold then tells what it is. */
bool spv_hold_quick(spv_core *core, PyObject *key, uint8_t number[8], spv_bytes *found);

/* pure.cells.Hashed._positions of a held key, into `room` where SPV_NEAR suffices, else into memory that spv_free_positions frees; NULL
   with an exception set. Runs the user's functions where the family is his own. */
enum { SPV_NEAR = 64 };
uint64_t *spv_positions_of(spv_core *core, const spv_held *held, uint64_t room[SPV_NEAR]);

SPV_INLINE void spv_free_positions(uint64_t *positions, const uint64_t *room) {
    if (positions != room)
        PyMem_Free(positions);
}

/* False with the exception where __init__ has not been called, or the cells are read-only. */
bool spv_check_made(spv_core *core);
bool spv_check_writable(spv_core *core);

/* `other` as a core whose keys go into the same cells as this one's; NULL with an exception set. */
spv_core *spv_same_shape(spv_core *core, PyObject *other);
bool spv_is_core(PyObject *object, unsigned shift);

/* pure.cells.flat_view: holds the buffer, of exactly `size` bytes, through a memoryview; false with an exception set. */
bool spv_view_of(PyObject *buffer, size_t size, Py_buffer *view);
size_t spv_size_of(uint64_t cells, unsigned shift); /* bytes of the buffer */

/* What a core says of itself; same_shape compares it in this order. */
enum { SPV_CELLS, SPV_HASH_FUNCS, SPV_FAMILY, SPV_KEY, SPV_ENCODING, SPV_PARTITIONED };

/* One key, or its bytes: whether it was new, whether it is contained; -1 with an exception set. */
int spv_core_add(spv_core *core, PyObject *key);
int spv_core_add_held(spv_core *core, const spv_held *held);
int spv_core_contains(PyObject *self, PyObject *key);
int spv_core_contains_held(spv_core *core, const spv_held *held);

/* The attributes and methods, by the files that have them. */
PyObject *spv_core_attribute(PyObject *self, void *which); /* cores_attributes.c */
PyObject *spv_core_buffer(PyObject *self, void *closure);
int spv_core_set_buffer(PyObject *self, PyObject *buffer, void *closure);
PyObject *spv_core_body(PyObject *self, void *closure);
PyObject *spv_core_same_shape(PyObject *self, PyObject *other);
PyObject *spv_core_add_method(PyObject *self, PyObject *key); /* cores_single.c */
PyObject *spv_core_positions(PyObject *self, PyObject *key);
PyObject *spv_core_remove(PyObject *self, PyObject *key);
PyObject *spv_core_count(PyObject *self, PyObject *key);
PyObject *spv_core_update(PyObject *self, PyObject *keys); /* cores_batch.c */
PyObject *spv_core_contains_many(PyObject *self, PyObject *keys);
PyObject *spv_core_used(PyObject *self, PyObject *none); /* cores_whole.c */
PyObject *spv_core_union_set_bits(PyObject *self, PyObject *other);
PyObject *spv_core_plane_set_bits(PyObject *self, PyObject *none);
PyObject *spv_core_or(PyObject *self, PyObject *other);
PyObject *spv_core_and(PyObject *self, PyObject *other);
PyObject *spv_core_compare(PyObject *self, PyObject *other, int operation);
PyObject *spv_core_clear(PyObject *self, PyObject *none);
PyObject *spv_core_to_bits(PyObject *self, PyObject *none);

#endif
