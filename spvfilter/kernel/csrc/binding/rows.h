/* Binding of hash/blake2b.h: row_mark. The twin is pure/rows.py. */
#ifndef SPV_BINDING_ROWS_H
#define SPV_BINDING_ROWS_H

#include "binding/binding.h"

int spv_add_rows(PyObject *module, spv_state *state);

#endif
