/* Arguments as the reference takes them, with the rule of binding.h. The twin is pure/arguments.py. */
#ifndef SPV_BINDING_ARGUMENTS_H
#define SPV_BINDING_ARGUMENTS_H

#include "binding/binding.h"

#include "hash/sha256.h"

/* pure.arguments.snapshot: a new reference to the object itself if it is bytes, else to a copy of its buffer as bytes. NULL with
   TypeError if it has no buffer. */
PyObject *spv_snapshot(PyObject *object);

/* The same. The error begins with the name of the argument. */
PyObject *spv_named_snapshot(PyObject *object, const char *argument);

/* The bytes of a snapshot. They live as long as the snapshot. */
SPV_INLINE const uint8_t *spv_data(PyObject *snapshot) {
    return (const uint8_t *)PyBytes_AsString(snapshot);
}

SPV_INLINE size_t spv_size(PyObject *snapshot) {
    return (size_t)PyBytes_Size(snapshot);
}

/* The pace of a loop over an iterator, with only the state before the first step. After every 2 ms, Python handles
   signals and lets other threads run: an iterator made in C does neither by itself. False with an exception set. */
typedef struct {
    const spv_state *state;
    uint64_t next; /* nanoseconds: when other threads may run again */
    unsigned steps;
} spv_pace;

bool spv_rest(spv_pace *pace);

SPV_INLINE bool spv_step(spv_pace *pace) {
    enum { STEPS = 16 }; /* steps between two looks at the clock, which takes as long as a step */
    return ++pace->steps % STEPS || spv_rest(pace);
}

/* A new list of an iterable's items, or of their snapshots. Meanwhile signals are handled and other threads run. NULL
   with an exception set; a TypeError begins with the name of the argument. */
PyObject *spv_list(const spv_state *state, PyObject *iterable);
PyObject *spv_snapshots(const spv_state *state, PyObject *iterable, const char *argument);

/* A tuple of the snapshots of an iterable's items; a tuple of bytes is returned as it is. NULL with an exception set. */
PyObject *spv_tuple_of_bytes(const spv_state *state, PyObject *iterable, const char *argument);

/* The bytes of such a tuple, 32 each, in an array that the caller frees with PyMem_Free. Together with the function
   above it is pure.arguments.hashes_of. NULL with an exception set. */
spv_hash *spv_copy_hashes(const spv_state *state, PyObject *tuple);

/* The same for one object. False with an exception set. */
bool spv_take_hash(const spv_state *state, PyObject *object, spv_hash hash);

/* pure.arguments.whole: an integer, or an object with __index__, from `least` to `most`. False with TypeError, or
   with a ParameterError; both messages begin with `range`. */
bool spv_whole(const spv_state *state, PyObject *object, long long least, long long most, const char *range, long long *number);

/* pure.arguments.offset. */
bool spv_offset(const spv_state *state, PyObject *object, size_t *offset);

/* False with TypeError if a function with positional arguments got another number of arguments. */
bool spv_count_arguments(const char *name, Py_ssize_t count, Py_ssize_t wanted);

/* Sets a TypeError, with the type's name in place of %U. Returns false. */
SPV_COLD bool spv_refuse_type(const char *message, PyObject *object);

/* Sets a TypeError that names the argument, what it must be, and the object's type. Returns false. */
SPV_COLD bool spv_refuse_argument(const char *argument, const char *wanted, PyObject *object);

/* pure.arguments.check_iterable: false with TypeError. */
bool spv_check_iterable(PyObject *object, const char *argument, const char *wanted);

#endif
