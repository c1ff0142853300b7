/* Batches that are columns: buffers, and arrays and streams of Arrow's C data interface. */
#ifndef SPV_BINDING_CORES_COLUMNS_H
#define SPV_BINDING_CORES_COLUMNS_H

#include "binding/cores/run.h"

/* The keys in a buffer. If `strict`, its items are what single keys have to be; else rows of bytes and integers of a size stand for the
   bytes that they are. False with an exception set, after the keys before. */
bool spv_run_view(spv_run *run, const Py_buffer *view, bool strict);

/* The keys in what __arrow_c_array__ and __arrow_c_stream__ have returned: two capsules in a tuple, and one capsule. What is in them is
   moved out and released once. */
bool spv_run_array(spv_run *run, PyObject *capsules);
bool spv_run_stream(spv_run *run, PyObject *capsule);

#endif
