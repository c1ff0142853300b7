/* Batches of keys: update, contains_many and hash_many, for iterables, buffers and columns. Large pieces are processed without
   the GIL. */
#ifndef SPV_BINDING_CORES_BATCH_H
#define SPV_BINDING_CORES_BATCH_H

#include "binding/cores/core.h"

PyObject *spv_core_update(PyObject *self, PyObject *const *arguments, Py_ssize_t given, PyObject *names);
PyObject *spv_core_contains_many(PyObject *self, PyObject *const *arguments, Py_ssize_t given, PyObject *names);
PyObject *spv_core_hash_many(PyObject *self, PyObject *const *arguments, Py_ssize_t given, PyObject *names);
PyObject *spv_series_update(PyObject *self, PyObject *const *arguments, Py_ssize_t given, PyObject *names);
PyObject *spv_series_contains_many(PyObject *self, PyObject *const *arguments, Py_ssize_t given, PyObject *names);

#endif
