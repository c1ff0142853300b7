/* Binding of gcs/: the type GcsQuery, gcs_build and gcs_check. The twin is pure/gcs.py. */
#ifndef SPV_BINDING_GCS_H
#define SPV_BINDING_GCS_H

#include "binding/binding.h"

/* Adds them to the module. Returns -1 with an exception set if that fails. */
int spv_add_gcs(PyObject *module, spv_state *state);

#endif
