/* Binding of watch/batch.h: WatchTable's scans of several blocks in one call. */
#ifndef SPV_BINDING_WATCHTABLE_BATCH_H
#define SPV_BINDING_WATCHTABLE_BATCH_H

#include "binding/watchtable/object.h"

PyObject *spv_wt_scan_blocks(PyObject *self, PyObject *arguments, PyObject *names);
PyObject *spv_wt_scan_files(PyObject *self, PyObject *arguments, PyObject *names);

#endif
