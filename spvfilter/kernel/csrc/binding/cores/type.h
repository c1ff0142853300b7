/* The types BitCore and CounterCore: construction, methods and attributes. The twins are pure/bits.py's classes. */
#ifndef SPV_BINDING_CORES_TYPE_H
#define SPV_BINDING_CORES_TYPE_H

#include "binding/binding.h"

int spv_add_cores(PyObject *module, spv_state *state);

#endif
