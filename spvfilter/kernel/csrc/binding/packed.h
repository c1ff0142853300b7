/* Module functions for packed hits: packing, unpacking, sums and lines. */
#ifndef SPV_BINDING_PACKED_H
#define SPV_BINDING_PACKED_H

#include "binding/binding.h"

int spv_add_packed(PyObject *module, spv_state *state);

#endif
