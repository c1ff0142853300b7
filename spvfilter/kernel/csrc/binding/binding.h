/* What the files of the binding share. Only this folder knows Python; it holds no logic that csrc/ could have.

   The rule for arguments. A caller may hand in memory that another thread, a callback of the collector or any Python code on the way
   changes or resizes. So an entry first takes its arguments, before it gives up the interpreter's lock or reads a byte:

   - Bytes are taken with spv_snapshot: a bytes object as it is, which nothing changes; of whatever else has a buffer, a copy. No buffer of
     the caller's is held on return.
   - What is iterated is taken into a list of our own first, with spv_list or spv_snapshots, which see signals meanwhile.
   - The exception are the cells of a filter (`buffer`) and buffers as batches of keys, which are used in place: they are held as long as they
     are used, so that they are neither resized nor freed, their sizes are read once, and whatever values are read, places are in range.

   tests/kernel/test_arguments.py holds all entries to it.

   No format of Py_BuildValue or PyArg_Parse* has a `#`: what it stands for differs between the versions of Python whose headers a wheel is
   built with and those it runs under. Bytes are made by PyBytes_FromStringAndSize and taken as snapshots. */
#ifndef SPV_BINDING_BINDING_H
#define SPV_BINDING_BINDING_H

#ifndef Py_GIL_DISABLED
#define Py_LIMITED_API 0x030B0000
#endif
#include <Python.h>

#include "spv.h"

#ifndef Py_XSETREF /* not in the limited API */
#define Py_XSETREF(place, object) \
    do { \
        PyObject *spv_old = (place); \
        (place) = (object); \
        Py_XDECREF(spv_old); \
    } while (0)
#endif

/* What one interpreter's module holds: classes of the package, imported once, and the module's own types. Nothing but references. */
typedef struct {
    PyObject *FormatError, *ParameterError, *MismatchError, *ReadOnlyError; /* spvfilter.errors */
    PyObject *TxSpan, *TxMatch, *Hit, *Coin, *EntryKind, *Family, *Encoding; /* spvfilter.kernel.values */
    PyObject *entry_kinds[4]; /* the members of EntryKind, by number */
    PyObject *BitCore, *CounterCore, *CellMemory, *GcsQuery, *WatchTable, *WatchTableIterator, *BlockWalk;
} spv_state;

/* The state, of a module function's `self`, and of an object whose type cannot be subclassed. */
SPV_INLINE const spv_state *spv_module_state(PyObject *module) {
    return PyModule_GetState(module);
}

SPV_INLINE const spv_state *spv_object_state(PyObject *self) {
    return PyType_GetModuleState(Py_TYPE(self));
}

/* Raises what a status means and returns NULL. */
PyObject *spv_raise(const spv_state *state, spv_status status, const spv_error *error);

/* An instance of a NamedTuple class from a tuple, which is consumed (NULL passes through): tuple.__new__(type, items). */
PyObject *spv_named(PyObject *type, PyObject *items);

/* A type of the module from its spec, put into `*place` of the state; with `public`, also under its name into the module. False with an
   exception set. */
bool spv_make_type(PyObject *module, PyObject **place, PyType_Spec *spec, bool public);

/* A new object of a type, all zero behind its head; NULL with an exception set. */
PyObject *spv_allocate(PyObject *type);

/* What the collector and the last reference do to an object of a type that is tracked by the collector; Py_tp_clear is `clear`. */
SPV_INLINE void spv_end_object(PyObject *self, int clear(PyObject *self)) {
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    clear(self);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF((PyObject *)type);
}

#endif
