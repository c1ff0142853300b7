/* Module functions for packed hits: hits of them and back, sums, lines. */
#ifndef SPV_BINDING_PACKED_H
#define SPV_BINDING_PACKED_H

#include "binding/binding.h"

int spv_add_packed(PyObject *module, spv_state *state);

#endif
