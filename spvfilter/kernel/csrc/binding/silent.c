#include "binding/silent.h"

#include "binding/arguments.h"

#include "block/silent.h"

/* pure.silent._Inputs. */
typedef struct {
    uint8_t *taproot_keys, *keys; /* room for a key of each input */
    size_t taproot_size, size;
    PyObject *hashed, *paths;     /* lists of pairs */
    uint32_t unknown;
    bool is_refused;
} inputs;

static bool append_pair(PyObject *list, const spv_silent_input *input) {
    PyObject *key = PyBytes_FromStringAndSize((const char *)input->key.data, (Py_ssize_t)input->key.size);
    PyObject *with = PyBytes_FromStringAndSize((const char *)input->with.data, (Py_ssize_t)input->with.size);
    PyObject *pair = key && with ? PyTuple_Pack(2, key, with) : NULL;
    const bool done = pair && !PyList_Append(list, pair);
    Py_XDECREF(pair);
    Py_XDECREF(with);
    Py_XDECREF(key);
    return done;
}

/* False with an exception set. */
static bool take_input(inputs *taken, const spv_silent_input *input) {
    switch (input->kind) {
    case SPV_SILENT_TAPROOT:
        memcpy(taken->taproot_keys + taken->taproot_size, input->key.data, input->key.size);
        taken->taproot_size += input->key.size;
        return true;
    case SPV_SILENT_KEY:
        memcpy(taken->keys + taken->size, input->key.data, input->key.size);
        taken->size += input->key.size;
        return true;
    case SPV_SILENT_HASHED:
        return append_pair(taken->hashed, input);
    case SPV_SILENT_PATH:
        return append_pair(taken->paths, input);
    case SPV_SILENT_UNKNOWN:
        taken->unknown++;
        return true;
    case SPV_SILENT_REFUSED:
        taken->is_refused = true;
        return true;
    default:
        return true;
    }
}

/* pure.silent._taproot_outputs. NULL with an exception set. */
static PyObject *taproot_outputs(const uint8_t *raw, const spv_tx *tx) {
    PyObject *list = PyList_New(0);
    size_t at = tx->outputs_at;
    for (uint32_t n = 0; list && n < tx->outputs; n++) {
        const spv_item output = spv_next_output(raw, &at);
        if (!spv_is_taproot(raw + output.script, output.script_end - output.script))
            continue;
        PyObject *key = PyBytes_FromStringAndSize((const char *)raw + output.script + 2, 32);
        PyObject *pair = key ? Py_BuildValue("(kN)", (unsigned long)n, key) : NULL;
        if (!pair || PyList_Append(list, pair))
            Py_CLEAR(list);
        Py_XDECREF(pair);
    }
    return list;
}

static bool take_inputs(inputs *taken, const uint8_t *raw, const spv_tx *tx, PyObject *scripts, spv_bytes *smallest) {
    size_t at = tx->inputs_at, witness = tx->witness;
    for (uint32_t n = 0; n < tx->inputs && !taken->is_refused; n++) {
        const spv_item input = spv_next_input(raw, &at);
        PyObject *script = scripts ? PyList_GetItem(scripts, (Py_ssize_t)n) : Py_None;
        spv_bytes spent = {NULL, 0};
        if (script != Py_None)
            spent = (spv_bytes){spv_data(script), spv_size(script)};
        const spv_silent_input read = spv_read_silent_input(raw, &input, &witness, spent);
        if (!smallest->data || memcmp(raw + input.at, smallest->data, 36) < 0)
            *smallest = (spv_bytes){raw + input.at, 36};
        if (!take_input(taken, &read))
            return false;
    }
    return true;
}

/* The candidate, None, or NULL with an exception set. It takes the reference to the outputs. */
static PyObject *candidate_of(const spv_state *state, const uint8_t *raw, const spv_tx *tx, PyObject *scripts, PyObject *outputs) {
    inputs taken = {.hashed = PyList_New(0), .paths = PyList_New(0)};
    taken.taproot_keys = PyMem_Malloc((size_t)tx->inputs * 32);
    taken.keys = PyMem_Malloc((size_t)tx->inputs * 33);
    spv_bytes smallest = {NULL, 0};
    PyObject *made = NULL;
    if (!taken.taproot_keys || !taken.keys)
        PyErr_NoMemory();
    else if (taken.hashed && taken.paths && take_inputs(&taken, raw, tx, scripts, &smallest)) {
        const bool shows = taken.taproot_size || taken.size || taken.unknown || PyList_Size(taken.hashed) || PyList_Size(taken.paths);
        if (taken.is_refused || !shows)
            made = Py_NewRef(Py_None);
        else {
            PyObject *point = PyBytes_FromStringAndSize((const char *)smallest.data, 36);
            PyObject *taproot_keys = PyBytes_FromStringAndSize((const char *)taken.taproot_keys, (Py_ssize_t)taken.taproot_size);
            PyObject *keys = PyBytes_FromStringAndSize((const char *)taken.keys, (Py_ssize_t)taken.size);
            PyObject *unknown = PyLong_FromUnsignedLong(taken.unknown);
            PyObject *items = NULL;
            if (point && taproot_keys && keys && unknown)
                items = PyTuple_Pack(7, point, taproot_keys, keys, taken.hashed, taken.paths, outputs, unknown);
            made = spv_named(state->SilentCandidate, items);
            Py_XDECREF(unknown);
            Py_XDECREF(keys);
            Py_XDECREF(taproot_keys);
            Py_XDECREF(point);
        }
    }
    PyMem_Free(taken.keys);
    PyMem_Free(taken.taproot_keys);
    Py_XDECREF(taken.paths);
    Py_XDECREF(taken.hashed);
    Py_DECREF(outputs);
    return made;
}

/* A list of the scripts' snapshots and of None, NULL with an exception set. */
static PyObject *scripts_of(const spv_state *state, PyObject *given) {
    PyObject *list = spv_list(state, given);
    for (Py_ssize_t i = 0; list && i < PyList_Size(list); i++) {
        PyObject *item = PyList_GetItem(list, i);
        if (item == Py_None)
            continue;
        PyObject *script = spv_snapshot(item);
        if (!script || PyList_SetItem(list, i, script))
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *silent_candidate(PyObject *self, PyObject *const *given, Py_ssize_t count) {
    const spv_state *state = spv_module_state(self);
    size_t at = 0;
    if (!spv_count_arguments("silent_candidate", count, 3))
        return NULL;
    PyObject *taken = spv_snapshot(given[0]), *scripts = NULL, *result = NULL;
    if (!taken || !spv_offset(state, given[1], &at) || (given[2] != Py_None && !(scripts = scripts_of(state, given[2]))))
        goto done;
    const uint8_t *raw = spv_data(taken);
    const size_t size = spv_size(taken);
    spv_tx tx;
    spv_error error;
    spv_status status;
    if (at > size) /* the reference's number of bytes left is negative here */
        status = spv_refuse(&error, at, "version", "truncated: expected 4 bytes, %lld left", (long long)size - (long long)at);
    else
        status = spv_walk_tx(raw, size, at, &tx, &error);
    if (!status && scripts && (size_t)PyList_Size(scripts) != tx.inputs)
        status = spv_refuse(&error, at, "spent outputs", "expected %lu spent outputs, not %zu", (unsigned long)tx.inputs, (size_t)PyList_Size(scripts));
    if (status) {
        spv_raise(state, status, &error);
        goto done;
    }
    PyObject *outputs = taproot_outputs(raw, &tx), *candidate = NULL;
    if (outputs && (!PyList_Size(outputs) || !tx.inputs)) {
        Py_DECREF(outputs);
        candidate = Py_NewRef(Py_None);
    } else if (outputs)
        candidate = candidate_of(state, raw, &tx, scripts, outputs);
    if (candidate)
        result = Py_BuildValue("(nN)", (Py_ssize_t)tx.end, candidate);
done:
    Py_XDECREF(scripts);
    Py_XDECREF(taken);
    return result;
}

int spv_add_silent(PyObject *module, spv_state *Py_UNUSED(state)) {
    static PyMethodDef functions[] = {
        SPV_FUNCTION(silent_candidate, METH_FASTCALL),
        {NULL, NULL, 0, NULL},
    };
    return PyModule_AddFunctions(module, functions);
}
