/* Binding of block/silent.h: silent_candidate. The twin is pure/silent.py. */
#ifndef SPV_BINDING_SILENT_H
#define SPV_BINDING_SILENT_H

#include "binding/binding.h"

int spv_add_silent(PyObject *module, spv_state *state);

#endif
