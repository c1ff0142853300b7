#include "binding/scanning.h"

#include <stdlib.h>

#include "binding/arguments.h"

#include "block/merkle.h"
#include "block/walk.h"
#include "bloom/bip37/scan.h"

static PyObject *merkle_root(PyObject *self, PyObject *given) {
    const spv_state *state = spv_module_state(self);
    PyObject *leaves = spv_tuple_of_bytes(state, given, "leaves");
    const size_t count = leaves ? (size_t)PyTuple_Size(leaves) : 0;
    if (leaves && !count)
        PyErr_SetString(state->ParameterError, "a merkle root needs at least one hash");
    spv_hash *hashes = count ? spv_copy_hashes(state, leaves) : NULL;
    Py_XDECREF(leaves);
    if (!hashes)
        return NULL;
    uint8_t root[32];
    bool mutated;
    Py_BEGIN_ALLOW_THREADS
    spv_merkle_root(hashes, count, root, &mutated);
    Py_END_ALLOW_THREADS
    PyMem_Free(hashes);
    return Py_BuildValue("(NO)", PyBytes_FromStringAndSize((const char *)root, sizeof root), mutated ? Py_True : Py_False);
}

/* Reads positions below `count`. `lack` begins the message for any other position. NULL with an exception set; the
   caller frees the memory by PyMem_Free. */
static size_t *take_positions(const spv_state *state, PyObject *given, size_t count, const char *lack, size_t *wanted) {
    PyObject *list = spv_list(state, given);
    if (!list)
        return NULL;
    *wanted = (size_t)PyList_Size(list);
    size_t *positions = PyMem_Malloc(*wanted * sizeof *positions + 1);
    if (!positions)
        PyErr_NoMemory();
    for (size_t i = 0; positions && i < *wanted; i++) {
        long long position = 0;
        if (spv_whole(state, PyList_GetItem(list, (Py_ssize_t)i), 0, (long long)count - 1, lack, &position)) {
            positions[i] = (size_t)position;
        } else {
            PyMem_Free(positions);
            positions = NULL;
        }
    }
    Py_DECREF(list);
    return positions;
}

/* Arguments of merkle_branches. */
typedef struct {
    spv_hash *leaves; /* a copy */
    size_t count;
    size_t *positions;
    size_t wanted;
} branch_request;

static bool take_leaves(const spv_state *state, PyObject *given, branch_request *request) {
    PyObject *raw = spv_snapshot(given);
    if (!raw)
        return false;
    const size_t size = spv_size(raw);
    if (size % sizeof(spv_hash))
        PyErr_Format(state->ParameterError, "leaves must be a multiple of 32 bytes long, not %zu", size);
    else if (!(request->leaves = PyMem_Malloc(size + 1)))
        PyErr_NoMemory();
    else
        memcpy(request->leaves, spv_data(raw), size);
    request->count = size / sizeof(spv_hash);
    Py_DECREF(raw);
    return request->leaves != NULL;
}

static PyObject *branches_of(const branch_request *request) {
    const size_t size = spv_merkle_depth(request->count) * sizeof(spv_hash);
    spv_hash *branches = PyMem_Malloc(request->wanted * size + 1);
    if (!branches)
        return PyErr_NoMemory();
    Py_BEGIN_ALLOW_THREADS
    spv_merkle_branches(request->leaves, request->count, request->positions, request->wanted, branches);
    Py_END_ALLOW_THREADS
    PyObject *list = PyList_New((Py_ssize_t)request->wanted);
    for (size_t i = 0; list && i < request->wanted; i++) {
        PyObject *branch = PyBytes_FromStringAndSize((const char *)branches + i * size, (Py_ssize_t)size);
        if (!branch || PyList_SetItem(list, (Py_ssize_t)i, branch))
            Py_CLEAR(list);
    }
    PyMem_Free(branches);
    return list;
}

static PyObject *merkle_branches(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    if (!spv_count_arguments("merkle_branches", count, 2))
        return NULL;
    const spv_state *state = spv_module_state(self);
    branch_request request = {0};
    PyObject *made = NULL;
    if (take_leaves(state, arguments[0], &request))
        request.positions = take_positions(state, arguments[1], request.count, "a position must be the position of a leaf", &request.wanted);
    if (request.positions)
        made = request.wanted ? branches_of(&request) : PyList_New(0); /* without leaves, no position is wanted */
    PyMem_Free(request.leaves);
    PyMem_Free(request.positions);
    return made;
}

static PyObject *block_txids(PyObject *self, PyObject *given) {
    PyObject *raw = spv_snapshot(given), *made = NULL;
    if (!raw)
        return NULL;
    const uint8_t *data = spv_data(raw);
    const size_t size = spv_size(raw);
    spv_hash *txids = NULL;
    uint32_t count = 0;
    spv_error error;
    spv_status status;
    Py_BEGIN_ALLOW_THREADS
    status = spv_block_txids(data, size, &txids, &count, &error);
    Py_END_ALLOW_THREADS
    Py_DECREF(raw);
    if (!status)
        made = PyBytes_FromStringAndSize((const char *)txids, (Py_ssize_t)count * (Py_ssize_t)sizeof *txids);
    free(txids);
    return status ? spv_raise(spv_module_state(self), status, &error) : made;
}

static PyObject *txs_between(const uint8_t *raw, const size_t *places, const size_t *positions, size_t wanted) {
    PyObject *list = PyList_New((Py_ssize_t)wanted);
    for (size_t i = 0; list && i < wanted; i++) {
        const size_t start = places[positions[i]], end = places[positions[i] + 1];
        PyObject *tx = PyBytes_FromStringAndSize((const char *)raw + start, (Py_ssize_t)(end - start));
        if (!tx || PyList_SetItem(list, (Py_ssize_t)i, tx))
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *block_txs(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    if (!spv_count_arguments("block_txs", count, 2))
        return NULL;
    const spv_state *state = spv_module_state(self);
    PyObject *raw = spv_snapshot(arguments[0]), *made = NULL;
    if (!raw)
        return NULL;
    const uint8_t *data = spv_data(raw);
    const size_t size = spv_size(raw);
    size_t *places, *positions = NULL, wanted = 0;
    uint32_t transactions;
    spv_error error;
    spv_status status;
    Py_BEGIN_ALLOW_THREADS
    status = spv_block_places(data, size, &places, &transactions, &error);
    Py_END_ALLOW_THREADS
    if (status)
        spv_raise(state, status, &error);
    else
        positions = take_positions(state, arguments[1], transactions, "a position must be that of a transaction", &wanted);
    if (positions)
        made = txs_between(data, places, positions, wanted);
    PyMem_Free(positions);
    free(places);
    Py_DECREF(raw);
    return made;
}

/* Calls a check of a block, without the GIL. */
static PyObject *checked(PyObject *self, PyObject *given, spv_status (*check)(const uint8_t *, size_t, spv_error *)) {
    PyObject *raw = spv_snapshot(given);
    if (!raw)
        return NULL;
    const uint8_t *data = spv_data(raw);
    const size_t size = spv_size(raw);
    spv_error error;
    spv_status status;
    Py_BEGIN_ALLOW_THREADS
    status = check(data, size, &error);
    Py_END_ALLOW_THREADS
    Py_DECREF(raw);
    return status ? spv_raise(spv_module_state(self), status, &error) : Py_NewRef(Py_None);
}

static PyObject *check_block(PyObject *self, PyObject *given) {
    return checked(self, given, spv_check_block);
}

static PyObject *check_amounts(PyObject *self, PyObject *given) {
    return checked(self, given, spv_check_amounts);
}

/* The arguments of both scans.

   `bits` is a new bytes object, and the scan writes to it. It is created without contents, because Python shares
   short bytes objects that are created with their contents. */
typedef struct {
    PyObject *raw, *bits;
    spv_bip37 filter;
} scan_arguments;

static bool read_numbers(const spv_state *state, PyObject *hash_funcs, PyObject *tweak, PyObject *flags, spv_bip37 *filter) {
    long long number;
    if (!spv_whole(state, hash_funcs, 0, 50, "hash_funcs must be from 0 to 50", &number))
        return false;
    filter->hash_funcs = (uint32_t)number;
    if (!spv_whole(state, tweak, 0, UINT32_MAX, "tweak must be from 0 to 2^32 - 1", &number))
        return false;
    filter->tweak = (uint32_t)number;
    if (!spv_whole(state, flags, 0, UINT8_MAX, "flags must be from 0 to 255", &number))
        return false;
    filter->flags = (int)number;
    return true;
}

static void let_go(scan_arguments *held) {
    Py_CLEAR(held->raw);
    Py_CLEAR(held->bits);
}

static bool read_arguments(const spv_state *state, PyObject *arguments, PyObject *names, scan_arguments *held) {
    static char *keywords[] = {"raw", "bits", "hash_funcs", "tweak", "flags", NULL};
    PyObject *raw, *bits, *hash_funcs, *tweak, *flags;
    *held = (scan_arguments){0};
    if (!PyArg_ParseTupleAndKeywords(arguments, names, "OOOOO", keywords, &raw, &bits, &hash_funcs, &tweak, &flags))
        return false;
    held->raw = spv_snapshot(raw);
    PyObject *before = held->raw ? spv_snapshot(bits) : NULL;
    held->bits = before ? PyBytes_FromStringAndSize(NULL, PyBytes_Size(before)) : NULL;
    if (held->bits) {
        held->filter.bits = (uint8_t *)PyBytes_AsString(held->bits);
        held->filter.size = spv_size(before);
        memcpy(held->filter.bits, spv_data(before), held->filter.size);
    }
    Py_XDECREF(before);
    if (held->bits && read_numbers(state, hash_funcs, tweak, flags, &held->filter))
        return true;
    let_go(held);
    return false;
}

static PyObject *matches_list(const spv_state *state, const spv_tx_matches *matches) {
    PyObject *list = PyList_New((Py_ssize_t)matches->count);
    for (size_t i = 0; list && i < matches->count; i++) {
        const spv_tx_match *match = matches->items + i;
        PyObject *txid = PyBytes_FromStringAndSize((const char *)match->txid, 32);
        PyObject *items = Py_BuildValue("(nNnn)", (Py_ssize_t)match->position, txid, (Py_ssize_t)match->start, (Py_ssize_t)match->end);
        PyObject *one = spv_named(state->TxMatch, items);
        if (!one || PyList_SetItem(list, (Py_ssize_t)i, one))
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *bip37_scan_block(PyObject *self, PyObject *arguments, PyObject *names) {
    const spv_state *state = spv_module_state(self);
    scan_arguments held;
    if (!read_arguments(state, arguments, names, &held))
        return NULL;
    const uint8_t *raw = spv_data(held.raw);
    const size_t size = spv_size(held.raw);
    spv_tx_matches matches = {0};
    spv_error error;
    spv_status status;
    Py_BEGIN_ALLOW_THREADS
    status = spv_bip37_scan_block(raw, size, &held.filter, &matches, &error);
    Py_END_ALLOW_THREADS
    PyObject *list = status ? spv_raise(state, status, &error) : matches_list(state, &matches);
    spv_tx_matches_free(&matches);
    PyObject *result = list ? PyTuple_Pack(2, list, held.bits) : NULL;
    Py_XDECREF(list);
    let_go(&held);
    return result;
}

static PyObject *bip37_scan_tx(PyObject *self, PyObject *arguments, PyObject *names) {
    const spv_state *state = spv_module_state(self);
    scan_arguments held;
    if (!read_arguments(state, arguments, names, &held))
        return NULL;
    const uint8_t *raw = spv_data(held.raw);
    const size_t size = spv_size(held.raw);
    bool relevant = false;
    spv_error error;
    spv_status status;
    Py_BEGIN_ALLOW_THREADS
    status = spv_bip37_scan_tx(raw, size, &held.filter, &relevant, &error);
    Py_END_ALLOW_THREADS
    PyObject *result = status ? spv_raise(state, status, &error) : PyTuple_Pack(2, relevant ? Py_True : Py_False, held.bits);
    let_go(&held);
    return result;
}

int spv_add_scan(PyObject *module, spv_state *Py_UNUSED(state)) {
    static PyMethodDef functions[] = {
        SPV_FUNCTION(merkle_root, METH_O),
        SPV_FUNCTION(merkle_branches, METH_FASTCALL),
        SPV_FUNCTION(block_txids, METH_O),
        SPV_FUNCTION(block_txs, METH_FASTCALL),
        SPV_FUNCTION(check_amounts, METH_O),
        SPV_FUNCTION(check_block, METH_O),
        SPV_FUNCTION(bip37_scan_block, METH_VARARGS | METH_KEYWORDS),
        SPV_FUNCTION(bip37_scan_tx, METH_VARARGS | METH_KEYWORDS),
        {NULL, NULL, 0, NULL},
    };
    return PyModule_AddFunctions(module, functions);
}
