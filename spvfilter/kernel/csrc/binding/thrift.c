#include "binding/thrift.h"

#include "binding/arguments.h"

#include "block/thrift.h"

static PyObject *thrift_end(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    enum { MOST = 15 };
    const spv_state *state = spv_module_state(self);
    long long kind = 0;
    size_t at = 0;
    if (!spv_count_arguments("thrift_end", count, 3))
        return NULL;
    PyObject *raw = spv_snapshot(arguments[0]);
    if (!raw || !spv_offset(state, arguments[1], &at) || !spv_whole(state, arguments[2], 0, MOST, "a type must be from 0 to 15", &kind)) {
        Py_XDECREF(raw);
        return NULL;
    }
    const spv_bytes bytes = {spv_data(raw), spv_size(raw)};
    /* with the GIL: a value takes less than a microsecond, unless somebody made it to be long */
    const bool is_sound = spv_thrift_end(bytes, (unsigned)kind, &at);
    Py_DECREF(raw);
    return is_sound ? PyLong_FromSize_t(at) : PyLong_FromLong(-1);
}

int spv_add_thrift(PyObject *module, spv_state *Py_UNUSED(state)) {
    static PyMethodDef functions[] = {
        SPV_FUNCTION(thrift_end, METH_FASTCALL),
        {NULL, NULL, 0, NULL},
    };
    return PyModule_AddFunctions(module, functions);
}
