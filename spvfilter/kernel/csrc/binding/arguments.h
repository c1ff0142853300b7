/* Arguments as the reference takes them, by the rule of binding.h. The twin is pure/arguments.py. */
#ifndef SPV_BINDING_ARGUMENTS_H
#define SPV_BINDING_ARGUMENTS_H

#include "binding/binding.h"

/* pure.arguments.snapshot: the bytes object itself, or a bytes object with a copy of what else has a buffer; a new reference. NULL with
   TypeError for what has none. */
PyObject *spv_snapshot(PyObject *object);

/* A snapshot's bytes, which stay as long as it. */
SPV_INLINE const uint8_t *spv_data(PyObject *snapshot) {
    return (const uint8_t *)PyBytes_AsString(snapshot);
}

SPV_INLINE size_t spv_size(PyObject *snapshot) {
    return (size_t)PyBytes_Size(snapshot);
}

/* What an iterable gives, in a list of our own: of any objects, or of their snapshots. Signals are seen meanwhile. NULL with an exception
   set. */
PyObject *spv_list(PyObject *iterable);
PyObject *spv_snapshots(PyObject *iterable);

/* pure.arguments.whole: an integer from `least` to `most`, or what has __index__. False with TypeError, or with ParameterError that begins
   with `range`. */
bool spv_whole(const spv_state *state, PyObject *object, long long least, long long most, const char *range, long long *number);

/* pure.arguments.offset. */
bool spv_offset(const spv_state *state, PyObject *object, size_t *offset);

/* False with TypeError where a function of positional arguments only was given another number of them. */
bool spv_count_arguments(const char *name, Py_ssize_t count, Py_ssize_t wanted);

/* Raises TypeError with the type's name at %U; false. */
SPV_COLD bool spv_refuse_type(const char *message, PyObject *object);

#endif
