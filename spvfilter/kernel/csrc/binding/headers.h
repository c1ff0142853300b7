/* Binding of block/headers.h and block/hashindex.h. The twin is pure/headers.py. */
#ifndef SPV_BINDING_HEADERS_H
#define SPV_BINDING_HEADERS_H

#include "binding/binding.h"

/* Adds the functions to the module. Returns -1 with an exception set if that fails. */
int spv_add_headers(PyObject *module, spv_state *state);

#endif
