/* WatchTable's scans, which release the GIL, and `learn`. */
#ifndef SPV_BINDING_WATCHTABLE_SCAN_H
#define SPV_BINDING_WATCHTABLE_SCAN_H

#include "binding/watchtable/object.h"

PyObject *spv_wt_scan_block(PyObject *self, PyObject *arguments, PyObject *names);
PyObject *spv_wt_scan_tx(PyObject *self, PyObject *raw);
PyObject *spv_wt_learn(PyObject *self, PyObject *hits);

#endif
