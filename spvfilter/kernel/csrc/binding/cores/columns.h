/* Batches that are columns: buffers, and arrays and streams of Arrow's C data interface. */
#ifndef SPV_BINDING_CORES_COLUMNS_H
#define SPV_BINDING_CORES_COLUMNS_H

#include "binding/cores/run.h"

/* Processes the keys in a buffer. If `strict`, its items must have the type that `add` takes. Otherwise rows of
   bytes, and integers of a fixed size, stand for their bytes. False with an exception set; the keys before it were
   processed. */
bool spv_run_view(spv_run *run, const Py_buffer *view, bool strict);

/* Processes the keys in the results of __arrow_c_array__ (a tuple of two capsules) and __arrow_c_stream__ (a
   capsule). The contents of the capsules are moved out and released once. */
bool spv_run_array(spv_run *run, PyObject *capsules);
bool spv_run_stream(spv_run *run, PyObject *capsule);

#endif
