/* Binding of block/headers.h and block/hashindex.h; the twin of pure/headers.py. */
#ifndef SPV_BINDING_HEADERS_H
#define SPV_BINDING_HEADERS_H

#include "binding/binding.h"

/* Adds them to the module; -1 with an exception set on failure. */
int spv_add_headers(PyObject *module, spv_state *state);

#endif
