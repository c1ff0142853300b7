/* The base of the binding, the only folder that uses Python. The binding contains no logic that could be in the
   other folders.

   The rule for arguments. A caller may pass memory that other code changes or resizes during the call: another
   thread, a callback of the garbage collector, or any Python code. An entry function therefore first takes its
   arguments, before it releases the GIL or reads a byte:

   - Bytes are taken with spv_snapshot: a bytes object as it is, because it is immutable; a copy of any other buffer.
     No
   buffer of the caller is held after the call.
   - Iterables are first copied into a new list, with spv_list or spv_snapshots, which handle signals.
   - There are three exceptions: a filter's cells (`buffer`), the image of a table, and buffers that are batches of
     keys. They are used in place.
   They are held during the call, so that they are neither resized nor freed. Their sizes are read only once.
   Positions are in range for any contents.

   tests/kernel/test_arguments.py tests this for all entry functions.

   No format of Py_BuildValue or PyArg_Parse* has a `#`: its meaning differs between Python versions, and a wheel may
   run under another version than it was built with. Bytes are made by PyBytes_FromStringAndSize and taken as
   snapshots. */
#ifndef SPV_BINDING_BINDING_H
#define SPV_BINDING_BINDING_H

#include <pyconfig.h> /* for Py_GIL_DISABLED: a free-threaded Python has no stable ABI before 3.15 */
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

/* Replaces the GIL in a free-threaded Python: between the two macros no other thread that uses them has the object.
   Code between them must neither return nor jump out. */
#ifdef Py_GIL_DISABLED
#define SPV_LOCK(object) Py_BEGIN_CRITICAL_SECTION((PyObject *)(object));
#define SPV_UNLOCK() Py_END_CRITICAL_SECTION()
#else
#define SPV_LOCK(object) {
#define SPV_UNLOCK() }
#endif

/* Rows of a PyMethodDef table, with the signature and docstring of the reference: for a module function, and for a
   method that the reference's class `owner` defines. Only functions of the types that METH_… stands for are
   accepted. */
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

/* The state of one interpreter's module: classes of the package, imported once, and the module's own types. It
   contains only references. */
typedef struct {
    /* spvfilter.errors */
    PyObject *FormatError, *UndoError, *ColumnError, *ParameterError, *MismatchError, *ReadOnlyError, *KeyRangeError, *CapacityError, *ProofError;
    PyObject *TxSpan, *TxMatch, *ProvedTx, *Flaw, *Hit, *WatchedCoin, *SpentCoin, *SilentCandidate, *EntryKind, *Family, *Encoding; /* spvfilter.kernel.values */
    PyObject *batch_of; /* from spvfilter.kernel.columns */
    PyObject *pause;    /* a Python function that does nothing: before it runs, Python handles signals and lets other threads run */
    PyObject *entry_kinds[6]; /* the members of EntryKind, by number */
    PyObject *BitCore, *CounterCore, *FuseCore, *SeriesCore, *CellMemory, *GcsQuery, *WatchTable, *WatchTableIterator, *BlockWalk, *ReadBuffer;
} spv_state;

/* The state: from a module function's `self`, and from an object whose type cannot be subclassed. */
SPV_INLINE const spv_state *spv_module_state(PyObject *module) {
    return PyModule_GetState(module);
}

SPV_INLINE const spv_state *spv_object_state(PyObject *self) {
    return PyType_GetModuleState(Py_TYPE(self));
}

/* The FormatError or UndoError for a status. NULL with another exception set. */
PyObject *spv_format_error(const spv_state *state, spv_status status, const spv_error *error);

/* Sets the exception for a status and returns NULL. */
PyObject *spv_raise(const spv_state *state, spv_status status, const spv_error *error);

/* Makes an instance of a NamedTuple class from a tuple, as tuple.__new__(type, items) does. It takes the reference
   to the tuple; NULL returns NULL. */
PyObject *spv_named(PyObject *type, PyObject *items);

/* Two functions: an attribute by its name, and the result of a method, which is called with `argument`, or without
   arguments if that is NULL. NULL with an exception set.

   The name is interned. Python's cache of types keeps each string that it has looked up, up to 4,096 of them.
   PyObject_GetAttrString and PyObject_CallMethod make a new string in every call. */
PyObject *spv_attribute(PyObject *of, const char *name);
PyObject *spv_call(PyObject *of, const char *name, PyObject *argument);

/* Makes a type of the module from its spec and stores it at `*place` in the state. If `public`, it also adds the
   type to the module. False with an exception set. */
bool spv_make_type(PyObject *module, PyObject **place, PyType_Spec *spec, bool public);

/* A new object of a type, all zero after its header. NULL with an exception set. */
PyObject *spv_allocate(PyObject *type);

/* Deallocates an object of a type that the garbage collector tracks. `clear` is the type's Py_tp_clear. */
SPV_INLINE void spv_end_object(PyObject *self, int clear(PyObject *self)) {
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    clear(self);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF((PyObject *)type);
}

#endif
