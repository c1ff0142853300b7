/* The module spvfilter.kernel.native: its imports from the package, its errors, its registration. Every interpreter has its own
   instance. */
#include "binding/addresses.h"
#include "binding/childkeys.h"
#include "binding/columnlines.h"
#include "binding/cores/type.h"
#include "binding/files.h"
#include "binding/frames.h"
#include "binding/gcs.h"
#include "binding/headers.h"
#include "binding/hitcolumns.h"
#include "binding/merkleblock.h"
#include "binding/packed.h"
#include "binding/rows.h"
#include "binding/scanning.h"
#include "binding/silent.h"
#include "binding/tables.h"
#include "binding/thrift.h"
#include "binding/undo.h"
#include "binding/walking.h"
#include "binding/watchtable/type.h"

#include "fork.h"

enum { REFERENCES = sizeof(spv_state) / sizeof(PyObject *) };

PyObject *spv_format_error(const spv_state *state, spv_status status, const spv_error *error) {
    PyObject *class = status == SPV_UNDO ? state->UndoError : state->FormatError;
    PyObject *arguments = Py_BuildValue("(s)", error->message);
    PyObject *names = arguments ? Py_BuildValue("{s:n,s:s}", "offset", (Py_ssize_t)error->offset, "field", error->field) : NULL;
    PyObject *made = names ? PyObject_Call(class, arguments, names) : NULL;
    Py_XDECREF(names);
    Py_XDECREF(arguments);
    return made;
}

static PyObject *proof_error(const spv_state *state, const spv_error *error) {
    PyObject *arguments = Py_BuildValue("(s)", error->message);
    PyObject *names = arguments ? Py_BuildValue("{s:N}", "cause", PyObject_CallFunction(state->Flaw, "s", error->field)) : NULL;
    PyObject *made = names ? PyObject_Call(state->ProofError, arguments, names) : NULL;
    Py_XDECREF(names);
    Py_XDECREF(arguments);
    return made;
}

PyObject *spv_raise(const spv_state *state, spv_status status, const spv_error *error) {
    if (status == SPV_NOMEM)
        return PyErr_NoMemory();
    if (status == SPV_RANGE) {
        PyErr_SetString(PyExc_OverflowError, "the data is larger than the kernel can handle");
        return NULL;
    }
    PyObject *raised = status == SPV_FLAW ? proof_error(state, error) : spv_format_error(state, status, error);
    if (raised)
        PyErr_SetObject((PyObject *)Py_TYPE(raised), raised);
    Py_XDECREF(raised);
    return NULL;
}

PyObject *spv_named(PyObject *type, PyObject *items) {
    const Py_ssize_t count = items ? PyTuple_Size(items) : 0;
    PyObject *made = items ? ((allocfunc)PyType_GetSlot((PyTypeObject *)type, Py_tp_alloc))((PyTypeObject *)type, count) : NULL;
    for (Py_ssize_t i = 0; made && i < count; i++)
        PyTuple_SetItem(made, i, Py_NewRef(PyTuple_GetItem(items, i))); /* cannot fail: the tuple is new */
    Py_XDECREF(items);
    return made;
}

PyObject *spv_attribute(PyObject *of, const char *name) {
    PyObject *interned = PyUnicode_InternFromString(name), *value = interned ? PyObject_GetAttr(of, interned) : NULL;
    Py_XDECREF(interned);
    return value;
}

PyObject *spv_call(PyObject *of, const char *name, PyObject *argument) {
    PyObject *method = spv_attribute(of, name), *result = method ? PyObject_CallFunctionObjArgs(method, argument, NULL) : NULL;
    Py_XDECREF(method);
    return result;
}

bool spv_make_type(PyObject *module, PyObject **place, PyType_Spec *spec, bool public) {
    *place = PyType_FromModuleAndSpec(module, spec, NULL);
    return *place && (!public || !PyModule_AddType(module, (PyTypeObject *)*place));
}

PyObject *spv_allocate(PyObject *type) {
    return ((allocfunc)PyType_GetSlot((PyTypeObject *)type, Py_tp_alloc))((PyTypeObject *)type, 0);
}

static PyObject *new_pause(void) {
    PyObject *code = Py_CompileString("lambda: None", "spvfilter.kernel.native", Py_eval_input), *names = code ? PyDict_New() : NULL;
    PyObject *function = names ? PyEval_EvalCode(code, names, names) : NULL;
    Py_XDECREF(names);
    Py_XDECREF(code);
    return function;
}

/* Imports everything at once: a child that was forked while another thread imports a module would wait for that
   thread. */
static bool import(spv_state *state) {
    const struct {
        const char *module, *name;
        PyObject **place;
    } wanted[] = {
#define FROM(module, name) {"spvfilter." module, #name, &state->name}
        FROM("errors", FormatError),    FROM("errors", ParameterError), FROM("errors", MismatchError),    FROM("errors", ReadOnlyError), FROM("errors", CapacityError),
        FROM("errors", KeyRangeError),
        FROM("kernel.values", TxSpan),  FROM("kernel.values", TxMatch), FROM("kernel.values", Hit),       FROM("kernel.values", WatchedCoin),
        FROM("errors", UndoError),      FROM("errors", ColumnError),         FROM("kernel.values", SpentCoin), FROM("kernel.values", SilentCandidate),
        FROM("errors", ProofError),     FROM("kernel.values", Flaw),    FROM("kernel.values", ProvedTx),
        FROM("kernel.columns", batch_of),
        FROM("kernel.values", Family),  FROM("kernel.values", Encoding), FROM("kernel.values", EntryKind),
#undef FROM
    };
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        PyObject *module = PyImport_ImportModule(wanted[i].module);
        *wanted[i].place = module ? spv_attribute(module, wanted[i].name) : NULL;
        Py_XDECREF(module);
        if (!*wanted[i].place)
            return false;
    }
    for (int i = 0; i < (int)(sizeof state->entry_kinds / sizeof state->entry_kinds[0]); i++)
        if (!(state->entry_kinds[i] = PyObject_CallFunction(state->EntryKind, "i", i)))
            return false;
    return (state->pause = new_pause()) != NULL;
}

static int execute(PyObject *module) {
    static int (*const parts[])(PyObject *, spv_state *) = {
        spv_add_walk, spv_add_scan, spv_add_headers, spv_add_merkleblock, spv_add_addresses, spv_add_files, spv_add_frames, spv_add_undo, spv_add_thrift, spv_add_rows, spv_add_childkeys, spv_add_packed, spv_add_hit_columns, spv_add_column_lines, spv_add_silent, spv_add_tables, spv_add_gcs, spv_add_watch_table, spv_add_cores,
    };
    spv_state *state = PyModule_GetState(module);
    if (!spv_watch_forks()) {
        PyErr_NoMemory();
        return -1;
    }
    int failed = import(state) ? 0 : -1;
    for (size_t i = 0; !failed && i < sizeof parts / sizeof parts[0]; i++)
        failed = parts[i](module, state);
    return failed;
}

static int traverse(PyObject *module, visitproc visit, void *arg) {
    PyObject **held = PyModule_GetState(module);
    for (size_t i = 0; held && i < REFERENCES; i++)
        Py_VISIT(held[i]);
    return 0;
}

static int clear(PyObject *module) {
    PyObject **held = PyModule_GetState(module);
    for (size_t i = 0; held && i < REFERENCES; i++)
        Py_CLEAR(held[i]);
    return 0;
}

static void end(void *module) {
    clear(module);
}

PyMODINIT_FUNC PyInit_native(void) {
    /* Py_mod_multiple_interpreters, which the limited API of 3.11 does not have */
    enum { MULTIPLE_INTERPRETERS = 3, FROM_3_12 = 0x030C0000 };
    static PyModuleDef_Slot slots[] = {
        {MULTIPLE_INTERPRETERS, (void *)2}, /* Py_MOD_PER_INTERPRETER_GIL_SUPPORTED; before 3.12 an unknown slot is an error */
        {Py_mod_exec, (void *)execute},
#ifdef Py_GIL_DISABLED
        {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
        {0, NULL},
    };
    static PyModuleDef definition = {
        PyModuleDef_HEAD_INIT,
        .m_name = "native",
        .m_doc = "The compiled kernel; spvfilter.kernel.pure is its readable reference.",
        .m_size = sizeof(spv_state),
        .m_traverse = traverse,
        .m_clear = clear,
        .m_free = end,
    };
    definition.m_slots = slots + (Py_Version < FROM_3_12);
    return PyModuleDef_Init(&definition);
}
