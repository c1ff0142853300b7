/* The attributes of a core, and its buffer. The twin is pure.cells.Hashed. */
#ifndef SPV_BINDING_CORES_ATTRIBUTES_H
#define SPV_BINDING_CORES_ATTRIBUTES_H

#include "binding/cores/core.h"

/* The attributes that same_shape compares, in this order. */
enum { SPV_CELLS, SPV_HASH_FUNCS, SPV_FAMILY, SPV_KEY, SPV_ENCODING, SPV_PARTITIONED, SPV_COUNTER_BITS, SPV_COUNTER_LIMIT };

PyObject *spv_core_attribute(PyObject *self, void *which);
PyObject *spv_core_buffer(PyObject *self, void *closure);
int spv_core_set_buffer(PyObject *self, PyObject *buffer, void *closure);
PyObject *spv_core_room(PyObject *self, void *closure);
int spv_core_set_room(PyObject *self, PyObject *value, void *closure);
PyObject *spv_core_body(PyObject *self, void *closure);

/* Returns `other` as a core that puts its keys into the same cells as this core. NULL with an exception set. */
spv_core *spv_same_shape(PyObject *self, PyObject *other);
PyObject *spv_core_same_shape(PyObject *self, PyObject *other);

#endif
