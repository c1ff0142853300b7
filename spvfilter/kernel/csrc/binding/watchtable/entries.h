/* Methods for single entries and coins of a WatchTable. */
#ifndef SPV_BINDING_WATCHTABLE_ENTRIES_H
#define SPV_BINDING_WATCHTABLE_ENTRIES_H

#include "binding/watchtable/object.h"

PyObject *spv_wt_add(PyObject *self, PyObject *const *arguments, Py_ssize_t count);
PyObject *spv_wt_count_of(PyObject *self, PyObject *argument);
PyObject *spv_wt_find(PyObject *self, PyObject *const *arguments, Py_ssize_t count);
PyObject *spv_wt_entry(PyObject *self, PyObject *number);
PyObject *spv_wt_coin(PyObject *self, PyObject *outpoint);
PyObject *spv_wt_set_coin(PyObject *self, PyObject *const *arguments, Py_ssize_t count);
PyObject *spv_wt_match_script(PyObject *self, PyObject *script);

#endif
