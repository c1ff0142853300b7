/* The types BitCore and CounterCore: construction, methods and attributes. The twins are the classes of
   pure/bits.py. */
#ifndef SPV_BINDING_CORES_TYPE_H
#define SPV_BINDING_CORES_TYPE_H

#include "binding/cores/core.h"

/* The number of an IntEnum's member, from its number or any other value that the class accepts. -1 with an exception
   set. */
long spv_member_of(PyObject *enumeration, PyObject *object, bool is_one(long));
bool spv_is_family(long number);

/* Reads the encoding of keys; `given` may be NULL. False with an exception set. */
bool spv_read_encoding(const spv_state *state, PyObject *given, PyObject *encode, spv_core *fresh);

/* Moves a core and its references into the object, `size` bytes together with their header. False if the object was
   initialized before, even while the arguments were read. */
bool spv_move_core(const spv_core *fresh, spv_core *core, size_t size);

int spv_add_cores(PyObject *module, spv_state *state);

#endif
