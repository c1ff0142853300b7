#include "binding/walking.h"

#include "binding/arguments.h"

#include "block/script.h"
#include "block/txid.h"
#include "block/walk.h"

/* Spans. */

/* The offsets of a walked transaction's inputs or outputs. */
static PyObject *places(const uint8_t *raw, size_t at, uint32_t count, spv_item next(const uint8_t *, size_t *)) {
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (uint32_t i = 0; list && i < count; i++) {
        const spv_item item = next(raw, &at);
        PyObject *one = Py_BuildValue("(nnn)", (Py_ssize_t)item.at, (Py_ssize_t)item.script, (Py_ssize_t)item.script_end);
        if (!one || PyList_SetItem(list, (Py_ssize_t)i, one))
            Py_CLEAR(list);
    }
    return list;
}

static spv_item next_input(const uint8_t *raw, size_t *at) {
    return spv_next_input(raw, at);
}

static spv_item next_output(const uint8_t *raw, size_t *at) {
    return spv_next_output(raw, at);
}

static PyObject *span_of(const spv_state *state, const uint8_t *raw, const spv_tx *tx) {
    PyObject *inputs = places(raw, tx->inputs_at, tx->inputs, next_input);
    PyObject *outputs = inputs ? places(raw, tx->outputs_at, tx->outputs, next_output) : NULL;
    PyObject *items = NULL;
    if (outputs)
        items = Py_BuildValue("(nnOOn)", (Py_ssize_t)tx->start, (Py_ssize_t)tx->end, inputs, outputs, (Py_ssize_t)tx->witness);
    Py_XDECREF(inputs);
    Py_XDECREF(outputs);
    return spv_named(state->TxSpan, items);
}

static PyObject *walk_tx(PyObject *self, PyObject *arguments, PyObject *names) {
    static char *keywords[] = {"raw", "at", NULL};
    const spv_state *state = spv_module_state(self);
    PyObject *given, *from = NULL, *span = NULL;
    size_t at = 0;
    if (!PyArg_ParseTupleAndKeywords(arguments, names, "O|O:walk_tx", keywords, &given, &from))
        return NULL;
    PyObject *raw = spv_snapshot(given);
    if (raw && (!from || spv_offset(state, from, &at))) {
        const size_t size = spv_size(raw);
        spv_tx tx;
        spv_error error;
        spv_status status;
        if (at > size) /* the reference's number of bytes left is negative here */
            status = spv_refuse(&error, at, "version", "truncated: expected 4 bytes, %lld left", (long long)size - (long long)at);
        else
            status = spv_walk_tx(spv_data(raw), size, at, &tx, &error);
        span = status ? spv_raise(state, status, &error) : span_of(state, spv_data(raw), &tx);
    }
    Py_XDECREF(raw);
    return span;
}

static PyObject *parse_tx(PyObject *self, PyObject *given) {
    const spv_state *state = spv_module_state(self);
    PyObject *raw = spv_snapshot(given);
    if (!raw)
        return NULL;
    spv_tx tx;
    spv_error error;
    const spv_status status = spv_parse_tx(spv_data(raw), spv_size(raw), &tx, &error);
    PyObject *span = status ? spv_raise(state, status, &error) : span_of(state, spv_data(raw), &tx);
    Py_DECREF(raw);
    return span;
}

static PyObject *spent_outpoints(PyObject *self, PyObject *given) {
    PyObject *raw = spv_snapshot(given);
    if (!raw)
        return NULL;
    const uint8_t *data = spv_data(raw);
    spv_tx tx;
    spv_error error;
    const spv_status status = spv_parse_tx(data, spv_size(raw), &tx, &error);
    PyObject *list = status ? spv_raise(spv_module_state(self), status, &error) : PyList_New((Py_ssize_t)tx.inputs);
    size_t at = status ? 0 : tx.inputs_at;
    for (uint32_t i = 0; list && i < tx.inputs; i++) {
        const spv_item input = spv_next_input(data, &at);
        PyObject *outpoint = PyBytes_FromStringAndSize((const char *)data + input.at, 36);
        if (!outpoint || PyList_SetItem(list, (Py_ssize_t)i, outpoint))
            Py_CLEAR(list);
    }
    Py_DECREF(raw);
    return list;
}

/* The iterator of walk_block. It refuses a block at the same step as the generator of the reference. */

typedef struct {
    PyObject_HEAD
    PyObject *raw; /* a snapshot of the block */
    size_t at;
    uint32_t left;
    enum { FRESH, WALKING, DONE } state;
} block_walk;

static PyObject *walk_block(PyObject *self, PyObject *given) {
    PyObject *raw = spv_snapshot(given);
    PyObject *walk = raw ? spv_allocate(spv_module_state(self)->BlockWalk) : NULL;
    if (walk)
        ((block_walk *)walk)->raw = raw; /* its state is FRESH, which is 0 */
    else
        Py_XDECREF(raw);
    return walk;
}

/* The span of the next transaction. NULL at the end, or with an exception set. */
static PyObject *walk_on(block_walk *walk) {
    if (walk->state == DONE)
        return NULL;
    const spv_state *state = spv_object_state((PyObject *)walk);
    const uint8_t *raw = spv_data(walk->raw);
    const size_t size = spv_size(walk->raw);
    spv_error error;
    spv_status status = SPV_OK;
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
            return span_of(state, raw, &tx);
        }
    }
    walk->state = DONE;
    if (!status)
        status = spv_block_end(size, walk->at, &error);
    return status ? spv_raise(state, status, &error) : NULL;
}

static PyObject *block_walk_next(PyObject *self) {
    PyObject *span;
    SPV_LOCK(self)
    span = walk_on((block_walk *)self);
    SPV_UNLOCK()
    return span;
}

static int block_walk_traverse(PyObject *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((block_walk *)self)->raw); /* an object of a class derived from bytes may refer to any objects */
    return 0;
}

static int block_walk_clear(PyObject *self) {
    ((block_walk *)self)->state = DONE;
    Py_CLEAR(((block_walk *)self)->raw);
    return 0;
}

static void block_walk_end(PyObject *self) {
    spv_end_object(self, block_walk_clear);
}

/* Hashes of a span's bytes. */

/* pure.blocks._spanned: the three offsets of a TxSpan that a txid depends on. They must lie within `raw`, in order. */
static bool read_span(const spv_state *state, PyObject *span, size_t size, spv_tx *tx) {
    static const Py_ssize_t index[] = {0, 1, 4};
    size_t numbers[3];
    if (!PyObject_TypeCheck(span, (PyTypeObject *)state->TxSpan) || PyTuple_Size(span) != 5) {
        spv_refuse_type("expected a TxSpan, not %U", span);
        return false;
    }
    for (size_t i = 0; i < 3; i++)
        if (!spv_offset(state, PyTuple_GetItem(span, index[i]), &numbers[i]))
            return false;
    *tx = (spv_tx){.start = numbers[0], .end = numbers[1], .witness = numbers[2]};
    bool fits = tx->end <= size && tx->start <= tx->end && tx->end - tx->start >= SPV_MIN_TX_SIZE;
    if (fits && tx->witness)
        fits = tx->witness >= tx->start + 6 && tx->witness <= tx->end - 4;
    if (!fits)
        PyErr_SetString(state->ParameterError, "the span does not belong to a transaction in these bytes");
    return fits;
}

typedef PyObject *of_span(const uint8_t *raw, const spv_tx *tx);

static PyObject *with_span(PyObject *self, PyObject *arguments, PyObject *names, of_span *call) {
    static char *keywords[] = {"raw", "tx", NULL};
    PyObject *given, *span, *result = NULL;
    if (!PyArg_ParseTupleAndKeywords(arguments, names, "OO", keywords, &given, &span))
        return NULL;
    PyObject *raw = spv_snapshot(given);
    spv_tx tx;
    if (raw && read_span(spv_module_state(self), span, spv_size(raw), &tx))
        result = call(spv_data(raw), &tx);
    Py_XDECREF(raw);
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
    const size_t size = tx->end - tx->start;
    if (!tx->witness)
        return PyBytes_FromStringAndSize((const char *)from, (Py_ssize_t)size);
    const size_t body = tx->witness - tx->start - 6;
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
    return with_span(self, arguments, names, txid_of);
}

static PyObject *wtxid(PyObject *self, PyObject *arguments, PyObject *names) {
    return with_span(self, arguments, names, wtxid_of);
}

static PyObject *strip_witness(PyObject *self, PyObject *arguments, PyObject *names) {
    return with_span(self, arguments, names, stripped_of);
}

/* Scripts. */

static PyObject *is_pubkey(PyObject *Py_UNUSED(self), PyObject *given) {
    PyObject *data = spv_snapshot(given);
    if (!data)
        return NULL;
    const bool is = spv_is_pubkey(spv_data(data), spv_size(data));
    Py_DECREF(data);
    return PyBool_FromLong(is);
}

static PyObject *is_p2pk(PyObject *Py_UNUSED(self), PyObject *given) {
    PyObject *script = spv_snapshot(given);
    if (!script)
        return NULL;
    const bool is = spv_is_p2pk(spv_data(script), spv_size(script));
    Py_DECREF(script);
    return PyBool_FromLong(is);
}

static PyObject *multisig_keys(PyObject *Py_UNUSED(self), PyObject *given) {
    PyObject *script = spv_snapshot(given);
    if (!script)
        return NULL;
    spv_bytes keys[SPV_MAX_MULTISIG_KEYS];
    const size_t count = spv_multisig_keys(spv_data(script), spv_size(script), keys);
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (size_t i = 0; list && i < count; i++) {
        PyObject *key = PyBytes_FromStringAndSize((const char *)keys[i].data, (Py_ssize_t)keys[i].size);
        if (!key || PyList_SetItem(list, (Py_ssize_t)i, key))
            Py_CLEAR(list);
    }
    Py_DECREF(script);
    return list;
}

int spv_add_walk(PyObject *module, spv_state *state) {
    static PyMethodDef functions[] = {
        SPV_FUNCTION(walk_tx, METH_VARARGS | METH_KEYWORDS),
        SPV_FUNCTION(parse_tx, METH_O),
        SPV_FUNCTION(spent_outpoints, METH_O),
        SPV_FUNCTION(walk_block, METH_O),
        SPV_FUNCTION(txid, METH_VARARGS | METH_KEYWORDS),
        SPV_FUNCTION(wtxid, METH_VARARGS | METH_KEYWORDS),
        SPV_FUNCTION(strip_witness, METH_VARARGS | METH_KEYWORDS),
        SPV_FUNCTION(is_pubkey, METH_O),
        SPV_FUNCTION(is_p2pk, METH_O),
        SPV_FUNCTION(multisig_keys, METH_O),
        {NULL, NULL, 0, NULL},
    };
    static PyType_Slot slots[] = {
        {Py_tp_iter, PyObject_SelfIter},
        {Py_tp_iternext, block_walk_next},
        {Py_tp_traverse, block_walk_traverse},
        {Py_tp_clear, block_walk_clear},
        {Py_tp_dealloc, block_walk_end},
        {0, NULL},
    };
    static PyType_Spec spec = {
        .name = "spvfilter.kernel.native.BlockWalk",
        .basicsize = sizeof(block_walk),
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
        .slots = slots,
    };
    return spv_make_type(module, &state->BlockWalk, &spec, false) ? PyModule_AddFunctions(module, functions) : -1;
}
