/* Binding of block/curve.h: child_keys. The twin is pure/childkeys.py. */
#ifndef SPV_BINDING_CHILDKEYS_H
#define SPV_BINDING_CHILDKEYS_H

#include "binding/binding.h"

int spv_add_childkeys(PyObject *module, spv_state *state);

#endif
