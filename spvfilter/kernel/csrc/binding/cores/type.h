/* The types BitCore and CounterCore: construction, methods and attributes. The twins are the classes of
   pure/bits.py. */
#ifndef SPV_BINDING_CORES_TYPE_H
#define SPV_BINDING_CORES_TYPE_H

#include "binding/binding.h"

int spv_add_cores(PyObject *module, spv_state *state);

#endif
