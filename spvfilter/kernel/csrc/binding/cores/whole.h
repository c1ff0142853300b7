/* Operations on whole arrays of cells: counts, unions, comparison, clearing. Large arrays are processed without the
   GIL. */
#ifndef SPV_BINDING_CORES_WHOLE_H
#define SPV_BINDING_CORES_WHOLE_H

#include "binding/cores/core.h"

PyObject *spv_core_used(PyObject *self, PyObject *none);
PyObject *spv_core_union_set_bits(PyObject *self, PyObject *other);
PyObject *spv_core_plane_set_bits(PyObject *self, PyObject *none);
PyObject *spv_core_or(PyObject *self, PyObject *other);
PyObject *spv_core_and(PyObject *self, PyObject *other);
PyObject *spv_core_compare(PyObject *self, PyObject *other, int operation);
Py_hash_t spv_core_hash(PyObject *self);
PyObject *spv_core_clear_cells(PyObject *self, PyObject *none);
PyObject *spv_core_to_bits(PyObject *self, PyObject *none);

#endif
