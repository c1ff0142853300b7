/* A key's bytes and cells. The twins are encode_… in pure/cells.py, and Family.CUSTOM. */
#ifndef SPV_BINDING_CORES_KEYS_H
#define SPV_BINDING_CORES_KEYS_H

#include "binding/cores/core.h"

enum { SPV_NEAR_BYTES = 64, SPV_NEAR = 64 };

/* The bytes of a key: of an object that `owner` or the caller holds, or a copy. Release them with spv_let_go. */
typedef struct {
    const uint8_t *data;
    size_t size;
    PyObject *owner; /* NULL if the caller holds the object */
    uint8_t near[SPV_NEAR_BYTES];
} spv_held;

bool spv_hold_slow(spv_core *core, PyObject *key, spv_held *held);

/* pure.cells.Hashed._encode: false with an exception set if the key cannot be encoded. */
SPV_INLINE bool spv_hold(spv_core *core, PyObject *key, spv_held *held) {
    held->owner = NULL;
    if (SPV_LIKELY(core->encoder == SPV_ENCODE_BYTES && Py_IS_TYPE(key, &PyBytes_Type))) {
        held->data = (const uint8_t *)PyBytes_AsString(key);
        held->size = (size_t)PyBytes_Size(key);
        return true;
    }
    return spv_hold_slow(core, key, held);
}

SPV_INLINE void spv_let_go(spv_held *held) {
    Py_XDECREF(held->owner);
}

/* The bytes of a key, if its encoding runs no Python code, and if the bytes live as long as the key or fit into
   `number`. Otherwise false without an exception: call spv_hold, which encodes or refuses the key. */
bool spv_hold_quick(spv_core *core, PyObject *key, uint8_t number[8], spv_bytes *found);

/* pure.cells.Hashed._positions of a held key: in `room` if SPV_NEAR is enough, otherwise in memory that
   spv_free_positions frees. NULL with an exception set. Runs the user's functions if the family is CUSTOM. */
uint64_t *spv_positions_of(spv_core *core, const spv_held *held, uint64_t room[SPV_NEAR]);

SPV_INLINE void spv_free_positions(uint64_t *positions, const uint64_t *room) {
    if (positions != room)
        PyMem_Free(positions);
}

#endif
