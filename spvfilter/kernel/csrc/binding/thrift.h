/* Binding of block/thrift.h: thrift_end. The twin is pure/thrift.py. */
#ifndef SPV_BINDING_THRIFT_H
#define SPV_BINDING_THRIFT_H

#include "binding/binding.h"

int spv_add_thrift(PyObject *module, spv_state *state);

#endif
