#include "binding/headers.h"

#include "binding/arguments.h"

#include "block/headers.h"

static PyObject *header_hashes(PyObject *self, PyObject *given) {
    PyObject *headers = spv_snapshot(given);
    if (!headers)
        return NULL;
    const size_t size = spv_size(headers);
    spv_error error;
    spv_status status = SPV_OK;
    PyObject *hashes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(size / SPV_HEADER_SIZE * sizeof(spv_hash)));
    if (hashes) {
        const uint8_t *raw = spv_data(headers);
        spv_hash *out = (spv_hash *)PyBytes_AsString(hashes);
        Py_BEGIN_ALLOW_THREADS
        status = spv_header_hashes(raw, size, out, &error);
        Py_END_ALLOW_THREADS
    }
    Py_DECREF(headers);
    if (!status)
        return hashes;
    Py_DECREF(hashes);
    return spv_raise(spv_module_state(self), status, &error);
}

int spv_add_headers(PyObject *module, spv_state *Py_UNUSED(state)) {
    static PyMethodDef functions[] = {
        SPV_FUNCTION(header_hashes, METH_O),
        {NULL, NULL, 0, NULL},
    };
    return PyModule_AddFunctions(module, functions);
}
