/* The base of the binding, which is the only folder that knows Python. It contains no logic that could be in the other folders.

   The rule for arguments. A caller may pass memory that another thread, a callback of the collector or any Python code run meanwhile
   changes or resizes. So an entry first takes its arguments, before it releases the interpreter's lock or reads a byte:

   - Bytes are taken with spv_snapshot: a bytes object as it is, since it is immutable; a copy of any other buffer. No buffer of the caller's
     is held on return.
   - Iterables are first copied into a list of our own, with spv_list or spv_snapshots, which handle signals meanwhile.
   - The exceptions are a filter's cells (`buffer`) and buffers given as batches of keys, which are used in place: they are held while they
     are used, so that they are neither resized nor freed, their sizes are read once, and positions are in range whatever is read.

   tests/kernel/test_arguments.py tests this for all entries.

   No format of Py_BuildValue or PyArg_Parse* has a `#`: its meaning differs between the Python versions that a wheel is built with and
   runs under. Bytes are made by PyBytes_FromStringAndSize and taken as snapshots. */
#ifndef SPV_BINDING_BINDING_H
#define SPV_BINDING_BINDING_H

#include <pyconfig.h> /* says whether this Python is free-threaded: such a one has no stable ABI before 3.15 */
#ifndef Py_GIL_DISABLED
#define Py_LIMITED_API 0x030B0000
#endif
#include <Python.h>

#include "binding/docs/functions.h"
#include "binding/docs/types.h"

#include "spv.h"

#ifndef Py_XSETREF /* not in the limited API */
#define Py_XSETREF(place, object) \
    do { \
        PyObject *spv_old = (place); \
        (place) = (object); \
        Py_XDECREF(spv_old); \
    } while (0)
#endif

/* In place of the interpreter's lock, under a free-threaded Python: no other thread that takes it has the object meanwhile. What is between
   the two neither returns nor jumps out. */
#ifdef Py_GIL_DISABLED
#define SPV_LOCK(object) Py_BEGIN_CRITICAL_SECTION((PyObject *)(object));
#define SPV_UNLOCK() Py_END_CRITICAL_SECTION()
#else
#define SPV_LOCK(object) {
#define SPV_UNLOCK() }
#endif

/* Rows of a PyMethodDef table with the signature and docstring of the reference: a module function, and a method that the reference's class
   `owner` defines. Only functions of the types that METH_… stands for are accepted. */
#define SPV_ANY_FUNCTION(function) (PyCFunction)(void (*)(void))(function)
#define SPV_CALLED(function) \
    _Generic( \
        &(function), \
        PyObject *(*)(PyObject *, PyObject *): SPV_ANY_FUNCTION(function), \
        PyObject *(*)(PyObject *, PyObject *, PyObject *): SPV_ANY_FUNCTION(function), \
        PyObject *(*)(PyObject *, PyObject *const *, Py_ssize_t): SPV_ANY_FUNCTION(function), \
        PyObject *(*)(PyObject *, PyObject *const *, Py_ssize_t, PyObject *): SPV_ANY_FUNCTION(function))
#define SPV_ROW(name, function, how, doc) {#name, SPV_CALLED(function), how, PyDoc_STR(doc)}
#define SPV_FUNCTION(name, how) SPV_ROW(name, name, how, SPV_DOC_##name)
#define SPV_METHOD(owner, name, function, how) SPV_ROW(name, function, how, SPV_DOC_##owner##_##name)

/* The state of one interpreter's module: classes of the package, imported once, and the module's own types. It consists of references
   only. */
typedef struct {
    PyObject *FormatError, *UndoError, *ColumnError, *ParameterError, *MismatchError, *ReadOnlyError, *CapacityError, *ProofError; /* spvfilter.errors */
    PyObject *TxSpan, *TxMatch, *ProvedTx, *Flaw, *Hit, *Coin, *SpentCoin, *EntryKind, *Family, *Encoding; /* spvfilter.kernel.values */
    PyObject *batch_of; /* of spvfilter.kernel.columns */
    PyObject *entry_kinds[4]; /* the members of EntryKind, by number */
    PyObject *BitCore, *CounterCore, *SeriesCore, *CellMemory, *GcsQuery, *WatchTable, *WatchTableIterator, *BlockWalk, *ReadBuffer;
} spv_state;

/* The state, from a module function's `self`, and from an object whose type cannot be subclassed. */
SPV_INLINE const spv_state *spv_module_state(PyObject *module) {
    return PyModule_GetState(module);
}

SPV_INLINE const spv_state *spv_object_state(PyObject *self) {
    return PyType_GetModuleState(Py_TYPE(self));
}

/* The FormatError or UndoError that a refusal stands for; NULL with another exception set. */
PyObject *spv_format_error(const spv_state *state, spv_status status, const spv_error *error);

/* Sets the exception that a status stands for and returns NULL. */
PyObject *spv_raise(const spv_state *state, spv_status status, const spv_error *error);

/* An instance of a NamedTuple class from a tuple, which is consumed (NULL passes through): what tuple.__new__(type, items) makes. */
PyObject *spv_named(PyObject *type, PyObject *items);

/* An attribute by its name, and what a method returns, called with `argument` or, if that is NULL, with nothing; NULL with an exception set.
   The name is interned, since Python's cache of types keeps each string that was looked up in it: up to 4,096 of those that are made anew
   for every call, as PyObject_GetAttrString and PyObject_CallMethod do. */
PyObject *spv_attribute(PyObject *of, const char *name);
PyObject *spv_call(PyObject *of, const char *name, PyObject *argument);

/* Makes a type of the module from its spec and stores it in `*place` of the state; if `public`, also adds it to the module. False with
   an exception set. */
bool spv_make_type(PyObject *module, PyObject **place, PyType_Spec *spec, bool public);

/* A new object of a type, all zero after its head; NULL with an exception set. */
PyObject *spv_allocate(PyObject *type);

/* Deallocates an object of a type that the collector tracks; `clear` is the type's Py_tp_clear. */
SPV_INLINE void spv_end_object(PyObject *self, int clear(PyObject *self)) {
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    clear(self);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF((PyObject *)type);
}

#endif
