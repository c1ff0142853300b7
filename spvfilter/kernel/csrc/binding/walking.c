/* Binding of block/walk.h, block/script.h and block/txid.h; the twin of the first half of pure/blocks.py. */
#include "binding/binding.h"

#include "block/script.h"
#include "block/txid.h"
#include "block/walk.h"

static PyObject *place(size_t at, size_t start, size_t end) {
    return Py_BuildValue("(nnn)", (Py_ssize_t)at, (Py_ssize_t)start, (Py_ssize_t)end);
}

/* The places of a walked transaction's inputs or outputs. */
static PyObject *places(const uint8_t *raw, size_t at, uint32_t count, spv_item next(const uint8_t *, size_t *)) {
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (uint32_t i = 0; list && i < count; i++) {
        spv_item item = next(raw, &at);
        PyObject *one = place(item.at, item.script, item.script_end);
        if (!one || PyList_SetItem(list, (Py_ssize_t)i, one)) {
            Py_DECREF(list);
            list = NULL;
        }
    }
    return list;
}

static spv_item next_input(const uint8_t *raw, size_t *at) {
    return spv_next_input(raw, at);
}

static spv_item next_output(const uint8_t *raw, size_t *at) {
    return spv_next_output(raw, at);
}

static PyObject *span_of(const uint8_t *raw, const spv_tx *tx) {
    PyObject *inputs = places(raw, tx->inputs_at, tx->inputs, next_input);
    PyObject *outputs = inputs ? places(raw, tx->outputs_at, tx->outputs, next_output) : NULL;
    PyObject *items = NULL;
    if (outputs)
        items = Py_BuildValue("(nnOOn)", (Py_ssize_t)tx->start, (Py_ssize_t)tx->end, inputs, outputs, (Py_ssize_t)tx->witness);
    Py_XDECREF(inputs);
    Py_XDECREF(outputs);
    return spv_named(spv_known.TxSpan, items);
}

static PyObject *walk_tx(PyObject *self, PyObject *arguments, PyObject *names) {
    static char *keywords[] = {"raw", "at", NULL};
    Py_buffer raw;
    Py_ssize_t at = 0;
    (void)self;
    if (!PyArg_ParseTupleAndKeywords(arguments, names, "y*|n", keywords, &raw, &at))
        return NULL;
    PyObject *span = NULL;
    spv_tx tx;
    spv_error error;
    if (at < 0) {
        PyErr_SetString(PyExc_ValueError, "a negative offset");
    } else if (at > raw.len) { /* the reference counts how many bytes are left, below zero here */
        spv_refuse(&error, (size_t)at, "version", "truncated: 4 bytes wanted, %zd left", raw.len - at);
        spv_raise(SPV_FORMAT, &error);
    } else {
        spv_status status = spv_walk_tx(raw.buf, (size_t)raw.len, (size_t)at, &tx, &error);
        span = status ? spv_raise(status, &error) : span_of(raw.buf, &tx);
    }
    PyBuffer_Release(&raw);
    return span;
}

static PyObject *parse_tx(PyObject *self, PyObject *argument) {
    Py_buffer raw;
    (void)self;
    if (PyObject_GetBuffer(argument, &raw, PyBUF_SIMPLE))
        return NULL;
    spv_tx tx;
    spv_error error;
    spv_status status = spv_parse_tx(raw.buf, (size_t)raw.len, &tx, &error);
    PyObject *span = status ? spv_raise(status, &error) : span_of(raw.buf, &tx);
    PyBuffer_Release(&raw);
    return span;
}

/* The iterator of walk_block: refuses where the reference's generator does, no earlier. */
typedef struct {
    PyObject_HEAD
    Py_buffer raw;
    size_t at;
    uint32_t left;
    enum { FRESH, WALKING, DONE } state;
} block_walk;

static PyTypeObject *block_walk_type;

static PyObject *walk_block(PyObject *self, PyObject *argument) {
    (void)self;
    allocfunc allocate = (allocfunc)PyType_GetSlot(block_walk_type, Py_tp_alloc);
    block_walk *walk = (block_walk *)allocate(block_walk_type, 0);
    if (!walk)
        return NULL;
    walk->state = FRESH;
    if (PyObject_GetBuffer(argument, &walk->raw, PyBUF_SIMPLE)) {
        walk->raw.obj = NULL;
        Py_DECREF((PyObject *)walk);
        return NULL;
    }
    return (PyObject *)walk;
}

static PyObject *block_walk_next(PyObject *self) {
    block_walk *walk = (block_walk *)self;
    const uint8_t *raw = walk->raw.buf;
    size_t size = (size_t)walk->raw.len;
    spv_error error;
    spv_status status = SPV_OK;
    if (walk->state == DONE)
        return NULL;
    if (walk->state == FRESH) {
        status = spv_block_start(raw, size, &walk->at, &walk->left, &error);
        walk->state = WALKING;
    }
    if (!status && walk->left) {
        spv_tx tx;
        status = spv_walk_tx(raw, size, walk->at, &tx, &error);
        if (!status) {
            walk->at = tx.end;
            walk->left--;
            return span_of(raw, &tx);
        }
    }
    walk->state = DONE;
    if (!status)
        status = spv_block_end(size, walk->at, &error);
    return status ? spv_raise(status, &error) : NULL;
}

static void block_walk_dealloc(PyObject *self) {
    block_walk *walk = (block_walk *)self;
    PyTypeObject *type = Py_TYPE(self);
    if (walk->raw.obj)
        PyBuffer_Release(&walk->raw);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF((PyObject *)type);
}

/* What an identifier needs of a TxSpan: three numbers that lie within `raw` in their order. */
static bool read_span(PyObject *span, const Py_buffer *raw, spv_tx *tx) {
    static const Py_ssize_t index[] = {0, 1, 4};
    size_t numbers[3];
    for (size_t i = 0; i < 3; i++) {
        PyObject *item = PySequence_GetItem(span, index[i]);
        numbers[i] = item ? PyLong_AsSize_t(item) : 0;
        Py_XDECREF(item);
        if (PyErr_Occurred())
            return false;
    }
    *tx = (spv_tx){.start = numbers[0], .end = numbers[1], .witness = numbers[2]};
    bool fits = tx->end <= (size_t)raw->len && tx->start <= tx->end && tx->end - tx->start >= SPV_MIN_TX_SIZE;
    if (fits && tx->witness)
        fits = tx->witness >= tx->start + 6 && tx->witness <= tx->end - 4;
    if (!fits)
        PyErr_SetString(PyExc_ValueError, "the span is not of a transaction in these bytes");
    return fits;
}

typedef PyObject *of_span(const uint8_t *raw, const spv_tx *tx);

static PyObject *with_span(PyObject *arguments, PyObject *names, of_span *call) {
    static char *keywords[] = {"raw", "tx", NULL};
    Py_buffer raw;
    PyObject *span;
    if (!PyArg_ParseTupleAndKeywords(arguments, names, "y*O", keywords, &raw, &span))
        return NULL;
    spv_tx tx;
    PyObject *result = read_span(span, &raw, &tx) ? call(raw.buf, &tx) : NULL;
    PyBuffer_Release(&raw);
    return result;
}

static PyObject *txid_of(const uint8_t *raw, const spv_tx *tx) {
    uint8_t digest[32];
    spv_txid(raw, tx, digest);
    return PyBytes_FromStringAndSize((const char *)digest, sizeof digest);
}

static PyObject *wtxid_of(const uint8_t *raw, const spv_tx *tx) {
    uint8_t digest[32];
    spv_wtxid(raw, tx, digest);
    return PyBytes_FromStringAndSize((const char *)digest, sizeof digest);
}

static PyObject *stripped_of(const uint8_t *raw, const spv_tx *tx) {
    const uint8_t *from = raw + tx->start;
    size_t size = tx->end - tx->start;
    if (!tx->witness)
        return PyBytes_FromStringAndSize((const char *)from, (Py_ssize_t)size);
    size_t body = tx->witness - tx->start - 6;
    PyObject *stripped = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(body + 8));
    if (!stripped)
        return NULL;
    char *to = PyBytes_AsString(stripped);
    memcpy(to, from, 4);
    memcpy(to + 4, from + 6, body);
    memcpy(to + 4 + body, raw + tx->end - 4, 4);
    return stripped;
}

static PyObject *txid(PyObject *self, PyObject *arguments, PyObject *names) {
    (void)self;
    return with_span(arguments, names, txid_of);
}

static PyObject *wtxid(PyObject *self, PyObject *arguments, PyObject *names) {
    (void)self;
    return with_span(arguments, names, wtxid_of);
}

static PyObject *strip_witness(PyObject *self, PyObject *arguments, PyObject *names) {
    (void)self;
    return with_span(arguments, names, stripped_of);
}

static PyObject *is_pubkey(PyObject *self, PyObject *argument) {
    Py_buffer data;
    (void)self;
    if (PyObject_GetBuffer(argument, &data, PyBUF_SIMPLE))
        return NULL;
    bool is = spv_is_pubkey(data.buf, (size_t)data.len);
    PyBuffer_Release(&data);
    return PyBool_FromLong(is);
}

static PyObject *is_p2pk(PyObject *self, PyObject *argument) {
    Py_buffer script;
    (void)self;
    if (PyObject_GetBuffer(argument, &script, PyBUF_SIMPLE))
        return NULL;
    bool is = spv_is_p2pk(script.buf, (size_t)script.len);
    PyBuffer_Release(&script);
    return PyBool_FromLong(is);
}

static PyObject *multisig_keys(PyObject *self, PyObject *argument) {
    Py_buffer script;
    spv_bytes keys[SPV_MAX_MULTISIG_KEYS];
    (void)self;
    if (PyObject_GetBuffer(argument, &script, PyBUF_SIMPLE))
        return NULL;
    size_t count = spv_multisig_keys(script.buf, (size_t)script.len, keys);
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (size_t i = 0; list && i < count; i++) {
        PyObject *key = PyBytes_FromStringAndSize((const char *)keys[i].data, (Py_ssize_t)keys[i].size);
        if (!key || PyList_SetItem(list, (Py_ssize_t)i, key)) {
            Py_DECREF(list);
            list = NULL;
        }
    }
    PyBuffer_Release(&script);
    return list;
}

int spv_add_walk(PyObject *module) {
    static PyMethodDef functions[] = {
        {"walk_tx", (PyCFunction)(void (*)(void))walk_tx, METH_VARARGS | METH_KEYWORDS, "The transaction that starts at byte `at`: see pure.walk_tx."},
        {"parse_tx", parse_tx, METH_O, "The one transaction that fills `raw`: see pure.parse_tx."},
        {"walk_block", walk_block, METH_O, "The transactions of the block that fills `raw`: see pure.walk_block."},
        {"txid", (PyCFunction)(void (*)(void))txid, METH_VARARGS | METH_KEYWORDS, "sha256d of the stripped transaction: see pure.txid."},
        {"wtxid", (PyCFunction)(void (*)(void))wtxid, METH_VARARGS | METH_KEYWORDS, "sha256d with the witness: see pure.wtxid."},
        {"strip_witness", (PyCFunction)(void (*)(void))strip_witness, METH_VARARGS | METH_KEYWORDS, "The bytes without witness: see pure.strip_witness."},
        {"is_pubkey", is_pubkey, METH_O, "Whether the bytes have the shape of a public key: see pure.is_pubkey."},
        {"is_p2pk", is_p2pk, METH_O, "Whether a script is pay to public key: see pure.is_p2pk."},
        {"multisig_keys", multisig_keys, METH_O, "The keys of a bare multisig script: see pure.multisig_keys."},
        {NULL, NULL, 0, NULL},
    };
    static PyType_Slot slots[] = {
        {Py_tp_iter, PyObject_SelfIter},
        {Py_tp_iternext, block_walk_next},
        {Py_tp_dealloc, block_walk_dealloc},
        {0, NULL},
    };
    static PyType_Spec spec = {
        .name = "spvfilter.kernel.native.BlockWalk",
        .basicsize = sizeof(block_walk),
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
        .slots = slots,
    };
    PyObject *type = PyType_FromSpec(&spec);
    if (!type)
        return -1;
    block_walk_type = (PyTypeObject *)type; /* for as long as the process lives */
    return PyModule_AddFunctions(module, functions);
}
