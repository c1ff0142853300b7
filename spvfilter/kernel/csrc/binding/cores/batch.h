/* Batches of keys: update and contains_many, of iterables and of buffers. Large pieces are processed without the interpreter's lock. */
#ifndef SPV_BINDING_CORES_BATCH_H
#define SPV_BINDING_CORES_BATCH_H

#include "binding/cores/core.h"

PyObject *spv_core_update(PyObject *self, PyObject *keys);
PyObject *spv_core_contains_many(PyObject *self, PyObject *keys);
PyObject *spv_series_update(PyObject *self, PyObject *keys);
PyObject *spv_series_contains_many(PyObject *self, PyObject *keys);

#endif
