/* Binding of watch/columnlines.h: column_lines. The twin is pure/columnlines.py. */
#ifndef SPV_BINDING_COLUMNLINES_H
#define SPV_BINDING_COLUMNLINES_H

#include "binding/binding.h"

int spv_add_column_lines(PyObject *module, spv_state *state);

#endif
