/* One key at a time: add, in, positions, remove, count. */
#ifndef SPV_BINDING_CORES_SINGLE_H
#define SPV_BINDING_CORES_SINGLE_H

#include "binding/cores/keys.h"

/* Adds a key, or a held key: 1 if it was new. Looks it up: 1 if it is contained. -1 with an exception set. */
int spv_core_add(spv_core *core, PyObject *key);
int spv_core_add_held(spv_core *core, const spv_held *held);

enum { SPV_NO_ROOM = -2 };

/* The same, but returns SPV_NO_ROOM, without an exception, if there is no room for a new key. */
int spv_core_try_add(spv_core *core, const spv_held *held);
int spv_core_contains(PyObject *self, PyObject *key);
int spv_core_contains_held(spv_core *core, const spv_held *held);

PyObject *spv_core_add_method(PyObject *self, PyObject *key);
PyObject *spv_core_positions(PyObject *self, PyObject *key);
PyObject *spv_core_remove(PyObject *self, PyObject *key);
PyObject *spv_core_count(PyObject *self, PyObject *key);

#endif
