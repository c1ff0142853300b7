/* Binding of watch/hitcolumns.h: hit_columns. The twin is pure/hitcolumns.py. */
#ifndef SPV_BINDING_HITCOLUMNS_H
#define SPV_BINDING_HITCOLUMNS_H

#include "binding/binding.h"

int spv_add_hit_columns(PyObject *module, spv_state *state);

#endif
