/* What the files of the binding share. Only this folder knows Python; it holds no logic that csrc/ could have.
 * No format of Py_BuildValue or PyArg_Parse* has a `#`: what it stands for differs between the versions of Python whose headers a wheel is
 * built with and those it runs under. Bytes are made by PyBytes_FromStringAndSize and taken as a Py_buffer. */
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

/* Classes and functions of the package, looked up once when the module is made; borrowed from it for as long as the process lives. */
typedef struct {
    PyObject *FormatError, *ParameterError, *MismatchError, *ReadOnlyError; /* spvfilter.errors */
    PyObject *TxSpan, *TxMatch, *Hit, *Coin, *EntryKind, *Family, *Encoding; /* spvfilter.kernel.values */
    PyObject *tuple_new;
} spv_names;
extern spv_names spv_known;

/* Raises what a status means and returns NULL. */
PyObject *spv_raise(spv_status status, const spv_error *error);

/* An instance of a NamedTuple class from a tuple, which is consumed (NULL passes through): tuple.__new__(type, items). */
PyObject *spv_named(PyObject *type, PyObject *items);

/* Each adds its type to the module; -1 with an exception set where that fails. */
int spv_add_watch_table(PyObject *module); /* WatchTable */
int spv_add_gcs(PyObject *module);         /* GcsQuery, gcs_build, gcs_check */
int spv_add_cores(PyObject *module);       /* BitCore, CounterCore */
int spv_add_walk(PyObject *module);        /* walk_tx … wtxid, is_pubkey … multisig_keys */
int spv_add_scan(PyObject *module);        /* merkle_root, check_block, bip37_scan_block, bip37_scan_tx */
int spv_add_headers(PyObject *module);     /* header_hashes */

#endif
