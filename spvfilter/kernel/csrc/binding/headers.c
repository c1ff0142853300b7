/* Binding of block/headers.h; the twin of pure/headers.py. */
#include "binding/binding.h"

#include "block/headers.h"

static PyObject *header_hashes(PyObject *self, PyObject *argument) {
    Py_buffer headers;
    (void)self;
    if (PyObject_GetBuffer(argument, &headers, PyBUF_SIMPLE))
        return NULL;
    spv_error error;
    spv_status status = SPV_OK;
    PyObject *hashes = PyBytes_FromStringAndSize(NULL, headers.len / SPV_HEADER_SIZE * (Py_ssize_t)sizeof(spv_hash));
    if (hashes) {
        spv_hash *out = (spv_hash *)PyBytes_AsString(hashes);
        Py_BEGIN_ALLOW_THREADS
        status = spv_header_hashes(headers.buf, (size_t)headers.len, out, &error);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&headers);
    if (status) {
        Py_DECREF(hashes);
        return spv_raise(status, &error);
    }
    return hashes;
}

int spv_add_headers(PyObject *module) {
    static PyMethodDef functions[] = {
        {"header_hashes", header_hashes, METH_O, "The hashes of headers of 80 bytes each: see pure.headers.header_hashes."},
        {NULL, NULL, 0, NULL},
    };
    return PyModule_AddFunctions(module, functions);
}
