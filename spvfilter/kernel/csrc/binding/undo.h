/* Binding of block/undo.h: spent_coins, the twin of pure/undo.py. */
#ifndef SPV_BINDING_UNDO_H
#define SPV_BINDING_UNDO_H

#include "binding/binding.h"

/* Adds it to the module; -1 with an exception set where that fails. */
int spv_add_undo(PyObject *module, spv_state *state);

#endif
