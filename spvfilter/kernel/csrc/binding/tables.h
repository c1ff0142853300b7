/* Binding of watch/tables.h: block_columns. The twin is pure/tables.py. */
#ifndef SPV_BINDING_TABLES_H
#define SPV_BINDING_TABLES_H

#include "binding/binding.h"

int spv_add_tables(PyObject *module, spv_state *state);

#endif
