/* Binding of gcs/: the type GcsQuery, gcs_build and gcs_check; the twin of pure/gcs.py. */
#ifndef SPV_BINDING_GCS_H
#define SPV_BINDING_GCS_H

#include "binding/binding.h"

/* Adds them to the module; -1 with an exception set on failure. */
int spv_add_gcs(PyObject *module, spv_state *state);

#endif
