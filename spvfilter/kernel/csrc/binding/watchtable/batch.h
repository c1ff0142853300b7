/* WatchTable's scans of many blocks in one call, in memory or in files. */
#ifndef SPV_BINDING_WATCHTABLE_BATCH_H
#define SPV_BINDING_WATCHTABLE_BATCH_H

#include "binding/watchtable/object.h"

PyObject *spv_wt_scan_blocks(PyObject *self, PyObject *arguments, PyObject *names);
PyObject *spv_wt_scan_files(PyObject *self, PyObject *arguments, PyObject *names);

#endif
