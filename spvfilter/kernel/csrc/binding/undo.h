/* Binding of block/undo.h: spent_coins. The twin is pure/undo.py. */
#ifndef SPV_BINDING_UNDO_H
#define SPV_BINDING_UNDO_H

#include "binding/binding.h"

/* Adds the function to the module. Returns -1 with an exception set if that fails. */
int spv_add_undo(PyObject *module, spv_state *state);

#endif
