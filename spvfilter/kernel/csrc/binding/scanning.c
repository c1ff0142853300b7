/* Binding of block/merkle.h and bloom/bip37/scan.h; the twin of the second half of pure/blocks.py. */
#include "binding/binding.h"

#include "block/merkle.h"
#include "bloom/bip37/scan.h"

static PyObject *merkle_root(PyObject *self, PyObject *argument) {
    (void)self;
    PyObject *leaves = PySequence_List(argument); /* a copy: items taken one by one may run code */
    if (!leaves)
        return NULL;
    size_t count = (size_t)PyList_Size(leaves);
    spv_hash *hashes = count ? PyMem_Malloc(count * sizeof *hashes) : NULL;
    PyObject *result = NULL;
    if (!count) {
        PyErr_SetString(PyExc_IndexError, "no hashes, no root");
    } else if (!hashes) {
        PyErr_NoMemory();
    } else {
        size_t i = 0;
        for (; i < count; i++) {
            char *digest;
            Py_ssize_t size;
            if (PyBytes_AsStringAndSize(PyList_GetItem(leaves, (Py_ssize_t)i), &digest, &size))
                break;
            if (size != 32) {
                PyErr_Format(PyExc_ValueError, "a hash has 32 bytes, not %zd", size);
                break;
            }
            memcpy(hashes + i, digest, 32);
        }
        if (i == count) {
            uint8_t root[32];
            bool mutated;
            Py_BEGIN_ALLOW_THREADS
            spv_merkle_root(hashes, count, root, &mutated);
            Py_END_ALLOW_THREADS
            result = Py_BuildValue("(NO)", PyBytes_FromStringAndSize((const char *)root, sizeof root), mutated ? Py_True : Py_False);
        }
    }
    PyMem_Free(hashes);
    Py_DECREF(leaves);
    return result;
}

static PyObject *check_block(PyObject *self, PyObject *argument) {
    Py_buffer raw;
    (void)self;
    if (PyObject_GetBuffer(argument, &raw, PyBUF_SIMPLE))
        return NULL;
    spv_error error;
    spv_status status;
    Py_BEGIN_ALLOW_THREADS
    status = spv_check_block(raw.buf, (size_t)raw.len, &error);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&raw);
    if (status)
        return spv_raise(status, &error);
    Py_INCREF(Py_None);
    return Py_None;
}

static bool u32(PyObject *number, uint32_t *value) {
    unsigned long long wide = PyLong_AsUnsignedLongLong(number);
    if (PyErr_Occurred())
        return false;
    if (wide > UINT32_MAX) {
        PyErr_SetString(PyExc_OverflowError, "not a u32");
        return false;
    }
    *value = (uint32_t)wide;
    return true;
}

/* The arguments both scans share. `bits` becomes a new bytes object, which nobody else has yet and the scan may write: made without
   contents, since Python shares the short ones made with theirs. */
static bool read_arguments(PyObject *arguments, PyObject *names, Py_buffer *raw, PyObject **bits, spv_bip37 *filter) {
    static char *keywords[] = {"raw", "bits", "hash_funcs", "tweak", "flags", NULL};
    Py_buffer given;
    PyObject *hash_funcs, *tweak;
    if (!PyArg_ParseTupleAndKeywords(arguments, names, "y*y*OOi", keywords, raw, &given, &hash_funcs, &tweak, &filter->flags))
        return false;
    *bits = PyBytes_FromStringAndSize(NULL, given.len);
    if (*bits)
        memcpy(PyBytes_AsString(*bits), given.buf, (size_t)given.len);
    PyBuffer_Release(&given);
    if (*bits && u32(hash_funcs, &filter->hash_funcs) && u32(tweak, &filter->tweak)) {
        filter->bits = (uint8_t *)PyBytes_AsString(*bits);
        filter->size = (size_t)PyBytes_Size(*bits);
        return true;
    }
    Py_XDECREF(*bits);
    PyBuffer_Release(raw);
    return false;
}

static PyObject *matches_list(const spv_tx_matches *matches) {
    PyObject *list = PyList_New((Py_ssize_t)matches->count);
    for (size_t i = 0; list && i < matches->count; i++) {
        const spv_tx_match *match = matches->items + i;
        PyObject *one = spv_named(
            spv_known.TxMatch,
            Py_BuildValue(
                "(nNnn)", (Py_ssize_t)match->position, PyBytes_FromStringAndSize((const char *)match->txid, 32),
                (Py_ssize_t)match->start, (Py_ssize_t)match->end
            )
        );
        if (!one || PyList_SetItem(list, (Py_ssize_t)i, one)) {
            Py_DECREF(list);
            list = NULL;
        }
    }
    return list;
}

static PyObject *bip37_scan_block(PyObject *self, PyObject *arguments, PyObject *names) {
    Py_buffer raw;
    PyObject *bits, *list = NULL;
    spv_bip37 filter;
    (void)self;
    if (!read_arguments(arguments, names, &raw, &bits, &filter))
        return NULL;
    spv_tx_matches matches = {0};
    spv_error error;
    spv_status status;
    Py_BEGIN_ALLOW_THREADS
    status = spv_bip37_scan_block(raw.buf, (size_t)raw.len, &filter, &matches, &error);
    Py_END_ALLOW_THREADS
    list = status ? spv_raise(status, &error) : matches_list(&matches);
    spv_tx_matches_free(&matches);
    PyBuffer_Release(&raw);
    PyObject *result = list ? PyTuple_Pack(2, list, bits) : NULL;
    Py_XDECREF(list);
    Py_DECREF(bits);
    return result;
}

static PyObject *bip37_scan_tx(PyObject *self, PyObject *arguments, PyObject *names) {
    Py_buffer raw;
    PyObject *bits;
    spv_bip37 filter;
    (void)self;
    if (!read_arguments(arguments, names, &raw, &bits, &filter))
        return NULL;
    bool relevant = false;
    spv_error error;
    spv_status status;
    Py_BEGIN_ALLOW_THREADS
    status = spv_bip37_scan_tx(raw.buf, (size_t)raw.len, &filter, &relevant, &error);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&raw);
    PyObject *result = status ? spv_raise(status, &error) : PyTuple_Pack(2, relevant ? Py_True : Py_False, bits);
    Py_DECREF(bits);
    return result;
}

int spv_add_scan(PyObject *module) {
    static PyMethodDef functions[] = {
        {"merkle_root", merkle_root, METH_O, "(root, mutated) of ≥ 1 hashes: see pure.merkle_root."},
        {"check_block", check_block, METH_O, "That a block's transactions are those its header commits to: see pure.check_block."},
        {"bip37_scan_block", (PyCFunction)(void (*)(void))bip37_scan_block, METH_VARARGS | METH_KEYWORDS,
         "What of a block a node's filter matches, and its bits after it: see pure.bip37_scan_block."},
        {"bip37_scan_tx", (PyCFunction)(void (*)(void))bip37_scan_tx, METH_VARARGS | METH_KEYWORDS,
         "Whether a node's filter matches a transaction, and its bits after it: see pure.bip37_scan_tx."},
        {NULL, NULL, 0, NULL},
    };
    return PyModule_AddFunctions(module, functions);
}
