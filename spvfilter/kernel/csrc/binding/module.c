/* The module spvfilter.kernel.native: what of the package it knows, its errors, its registration. */
#include "binding/binding.h"

spv_names spv_known;

PyObject *spv_raise(spv_status status, const spv_error *error) {
    if (status == SPV_NOMEM)
        return PyErr_NoMemory();
    if (status == SPV_RANGE) {
        PyErr_SetString(PyExc_OverflowError, "more than the kernel can count");
        return NULL;
    }
    PyObject *arguments = Py_BuildValue("(s)", error->message);
    PyObject *names = arguments ? Py_BuildValue("{s:n,s:s}", "offset", (Py_ssize_t)error->offset, "field", error->field) : NULL;
    PyObject *raised = names ? PyObject_Call(spv_known.FormatError, arguments, names) : NULL;
    if (raised)
        PyErr_SetObject(spv_known.FormatError, raised);
    Py_XDECREF(raised);
    Py_XDECREF(names);
    Py_XDECREF(arguments);
    return NULL;
}

PyObject *spv_named(PyObject *type, PyObject *items) {
    if (!items)
        return NULL;
    PyObject *made = PyObject_CallFunctionObjArgs(spv_known.tuple_new, type, items, NULL);
    Py_DECREF(items);
    return made;
}

typedef struct {
    const char *module, *name;
    PyObject **place;
} known_name;

static int look_up(void) {
    const known_name wanted[] = {
        {"spvfilter.errors", "FormatError", &spv_known.FormatError},
        {"spvfilter.errors", "ParameterError", &spv_known.ParameterError},
        {"spvfilter.errors", "MismatchError", &spv_known.MismatchError},
        {"spvfilter.errors", "ReadOnlyError", &spv_known.ReadOnlyError},
        {"spvfilter.kernel.values", "TxSpan", &spv_known.TxSpan},
        {"spvfilter.kernel.values", "TxMatch", &spv_known.TxMatch},
        {"spvfilter.kernel.values", "Hit", &spv_known.Hit},
        {"spvfilter.kernel.values", "Coin", &spv_known.Coin},
        {"spvfilter.kernel.values", "EntryKind", &spv_known.EntryKind},
        {"spvfilter.kernel.values", "Family", &spv_known.Family},
        {"spvfilter.kernel.values", "Encoding", &spv_known.Encoding},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        PyObject *module = PyImport_ImportModule(wanted[i].module);
        PyObject *found = module ? PyObject_GetAttrString(module, wanted[i].name) : NULL;
        Py_XDECREF(module);
        if (!found)
            return -1;
        Py_XSETREF(*wanted[i].place, found);
    }
    PyObject *made = PyObject_GetAttrString((PyObject *)&PyTuple_Type, "__new__");
    if (!made)
        return -1;
    Py_XSETREF(spv_known.tuple_new, made);
    return 0;
}

PyMODINIT_FUNC PyInit_native(void) {
    static PyModuleDef definition = {
        PyModuleDef_HEAD_INIT,
        .m_name = "native",
        .m_doc = "The compiled twin of the kernel: see pure/blocks.py, pure/bits.py and pure/table.py.",
        .m_size = -1,
    };
    PyObject *module = PyModule_Create(&definition);
    if (!module)
        return NULL;
#ifdef Py_GIL_DISABLED
    PyUnstable_Module_SetGIL(module, Py_MOD_GIL_NOT_USED);
#endif
    static int (*const parts[])(PyObject *) = {
        spv_add_walk,
        spv_add_scan,
        spv_add_headers,
        spv_add_gcs,
        spv_add_watch_table,
        spv_add_cores,
    };
    int failed = look_up();
    for (size_t i = 0; !failed && i < sizeof parts / sizeof parts[0]; i++)
        failed = parts[i](module);
    if (failed) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
