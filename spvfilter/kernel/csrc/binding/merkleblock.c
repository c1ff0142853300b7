#include "binding/merkleblock.h"

#include "binding/arguments.h"

#include "block/merkleblock.h"

enum { LONG = 200 }; /* hashes of a proof that takes about 20 µs: for as many or more the GIL is released */

static PyObject *bytes_of(const void *data, size_t size) {
    return PyBytes_FromStringAndSize(data, (Py_ssize_t)size);
}

static PyObject *parse_merkleblock(PyObject *self, PyObject *given) {
    PyObject *raw = spv_snapshot(given);
    if (!raw)
        return NULL;
    spv_partial_tree tree;
    spv_error error;
    const spv_status status = spv_parse_merkleblock(spv_data(raw), spv_size(raw), &tree, &error);
    if (status) {
        Py_DECREF(raw);
        return spv_raise(spv_module_state(self), status, &error);
    }
    PyObject *hashes = PyTuple_New((Py_ssize_t)tree.count);
    for (size_t i = 0; hashes && i < tree.count; i++) {
        PyObject *hash = bytes_of(tree.hashes[i], sizeof(spv_hash));
        if (!hash || PyTuple_SetItem(hashes, (Py_ssize_t)i, hash))
            Py_CLEAR(hashes);
    }
    PyObject *flags = hashes ? bytes_of(tree.flags.data, tree.flags.size) : NULL;
    PyObject *result = flags ? Py_BuildValue("(kOO)", (unsigned long)tree.total, hashes, flags) : NULL;
    Py_XDECREF(flags);
    Py_XDECREF(hashes);
    Py_DECREF(raw);
    return result;
}

/* A ProvedTx. Its txid is the caller's own object if that is exactly of type bytes. */
static PyObject *proved_tx(PyObject *type, allocfunc allocate, uint32_t position, PyObject *txid) {
    PyObject *tx = allocate((PyTypeObject *)type, 2), *number = PyLong_FromUnsignedLong(position);
    PyObject *hash = PyBytes_CheckExact(txid) ? Py_NewRef(txid) : bytes_of(spv_data(txid), sizeof(spv_hash));
    if (tx && number && hash) {
        PyTuple_SetItem(tx, 0, number);
        PyTuple_SetItem(tx, 1, hash);
        PyObject_GC_UnTrack(tx); /* it cannot be part of a cycle: the garbage collector need not visit thousands of them */
        return tx;
    }
    Py_XDECREF(tx);
    Py_XDECREF(number);
    Py_XDECREF(hash);
    return NULL;
}

/* The tuple (matched, ambiguous). */
static PyObject *proved(const spv_state *state, PyObject *hashes, const spv_proof *proof) {
    const allocfunc allocate = (allocfunc)PyType_GetSlot((PyTypeObject *)state->ProvedTx, Py_tp_alloc);
    PyObject *matched = PyTuple_New((Py_ssize_t)proof->count);
    for (size_t i = 0; matched && i < proof->count; i++) {
        const spv_proved_tx *one = proof->matched + i;
        PyObject *tx = proved_tx(state->ProvedTx, allocate, one->position, PyTuple_GetItem(hashes, (Py_ssize_t)one->hash));
        if (!tx || PyTuple_SetItem(matched, (Py_ssize_t)i, tx))
            Py_CLEAR(matched);
    }
    return matched ? Py_BuildValue("(NO)", matched, proof->ambiguous ? Py_True : Py_False) : NULL;
}

static spv_status extract(const spv_partial_tree *tree, const spv_hash root, spv_proof *proof, spv_error *error) {
    spv_status status;
    if (tree->count < LONG)
        return spv_extract_matches(tree, root, proof, error);
    Py_BEGIN_ALLOW_THREADS
    status = spv_extract_matches(tree, root, proof, error);
    Py_END_ALLOW_THREADS
    return status;
}

static PyObject *extract_matches(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    const spv_state *state = spv_module_state(self);
    long long total;
    spv_hash root;
    spv_partial_tree tree;
    if (!spv_count_arguments("extract_matches", count, 4) || !spv_take_hash(state, arguments[0], root)
        || !spv_whole(state, arguments[1], 0, UINT32_MAX, "total must be from 0 to 2^32 - 1", &total))
        return NULL;
    PyObject *given = spv_tuple_of_bytes(state, arguments[2], "hashes"), *flags = NULL, *result = NULL;
    spv_hash *hashes = given ? spv_copy_hashes(state, given) : NULL;
    if (hashes)
        flags = spv_snapshot(arguments[3]);
    tree.count = hashes ? (size_t)PyTuple_Size(given) : 0;
    spv_proof proof = {.matched = flags ? PyMem_Malloc(tree.count * sizeof *proof.matched) : NULL};
    if (proof.matched) {
        spv_error error;
        tree.total = (uint32_t)total;
        tree.hashes = (const spv_hash *)hashes;
        tree.flags = (spv_bytes){spv_data(flags), spv_size(flags)};
        const spv_status status = extract(&tree, root, &proof, &error);
        result = status ? spv_raise(state, status, &error) : proved(state, given, &proof);
    } else if (flags) {
        PyErr_NoMemory();
    }
    PyMem_Free(proof.matched);
    PyMem_Free(hashes);
    Py_XDECREF(flags);
    Py_XDECREF(given);
    return result;
}

int spv_add_merkleblock(PyObject *module, spv_state *Py_UNUSED(state)) {
    static PyMethodDef functions[] = {
        SPV_FUNCTION(parse_merkleblock, METH_O),
        SPV_FUNCTION(extract_matches, METH_FASTCALL),
        {NULL, NULL, 0, NULL},
    };
    return PyModule_AddFunctions(module, functions);
}
