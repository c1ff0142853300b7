/* WatchTable.add_address_lines. */
#ifndef SPV_BINDING_WATCHTABLE_LINES_H
#define SPV_BINDING_WATCHTABLE_LINES_H

#include "binding/watchtable/object.h"

PyObject *spv_wt_script_totals(PyObject *self, PyObject *const *arguments, Py_ssize_t count);
PyObject *spv_wt_add_address_lines(PyObject *self, PyObject *const *arguments, Py_ssize_t count);

#endif
