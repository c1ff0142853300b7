#include "binding/watchtable/object.h"

#include "block/scripttype.h"

/* Lets a table keep the memory of its image. False with an exception set. */
static bool keep_memory(spv_table_object *self, PyObject *view) {
    PyObject *owner = PyObject_GetAttrString(view, "obj");
    const bool is_kept = owner && !PyObject_GetBuffer(owner, &self->memory, PyBUF_SIMPLE);
    Py_XDECREF(owner);
    if (is_kept)
        self->view = Py_NewRef(view);
    return is_kept;
}

PyObject *spv_wrap_table(PyObject *type, spv_table *table, PyObject *view) {
    PyObject *self = spv_allocate(type);
    if (!self) {
        spv_table_free(table);
        return NULL;
    }
    ((spv_table_object *)self)->table = table;
    if (view && !keep_memory((spv_table_object *)self, view))
        Py_CLEAR(self);
    return self;
}

PyObject *spv_bytes_or_none(spv_bytes bytes) {
    if (!bytes.data)
        return Py_NewRef(Py_None);
    return PyBytes_FromStringAndSize((const char *)bytes.data, (Py_ssize_t)bytes.size);
}

PyObject *spv_coin_value(const spv_state *state, const spv_coin *coin) {
    PyObject *items = Py_BuildValue("(kLN)", (unsigned long)coin->entry, (long long)coin->value, spv_bytes_or_none(coin->script));
    return spv_named(state->WatchedCoin, items);
}

PyObject *spv_entry_value(const spv_state *state, spv_entry entry) {
    return Py_BuildValue("(ON)", state->entry_kinds[entry.kind], spv_bytes_or_none(entry.value));
}

bool spv_check_outpoint(const spv_state *state, PyObject *snapshot) {
    const size_t size = spv_size(snapshot);
    if (size != SPV_OUTPOINT_SIZE)
        PyErr_Format(state->ParameterError, "an outpoint must be 36 bytes long, not %zu", size);
    return size == SPV_OUTPOINT_SIZE;
}

bool spv_check_entry(const spv_state *state, unsigned kind, PyObject *snapshot) {
    const size_t size = spv_size(snapshot);
    if (kind == SPV_OUTPOINT)
        return spv_check_outpoint(state, snapshot);
    if (kind == SPV_DATA_PREFIX && (!size || size > SPV_MAX_PREFIX)) {
        PyErr_Format(state->ParameterError, "a data prefix must be 1 to %d bytes long, not %zu", SPV_MAX_PREFIX, size);
        return false;
    }
    if (kind == SPV_SCRIPT_TYPE && (size != 1 || spv_data(snapshot)[0] >= SPV_SCRIPT_TYPES)) {
        PyErr_SetString(state->ParameterError, "a script type must be one byte, the number of a ScriptType");
        return false;
    }
    return true;
}

bool spv_take_coin(const spv_state *state, PyObject *outpoint, PyObject *entry, PyObject *value, PyObject *script, spv_coin *coin,
                   spv_held_coin *held) {
    long long number, satoshi;
    *held = (spv_held_coin){.outpoint = spv_snapshot(outpoint)};
    bool fits = held->outpoint && spv_check_outpoint(state, held->outpoint);
    if (fits && script != Py_None)
        fits = (held->script = spv_snapshot(script)) != NULL;
    fits = fits && spv_whole(state, entry, 0, SPV_MAX_ENTRY, "the number of an entry must be from 0 to 2^31 - 2", &number)
        && spv_whole(state, value, SPV_NO_VALUE, INT64_MAX, "a value must be at least 0 satoshi, or -1 if it is not known", &satoshi);
    if (!fits) {
        spv_let_coin_go(held);
        return false;
    }
    *coin = (spv_coin){
        .outpoint = spv_data(held->outpoint),
        .script = held->script ? spv_bytes_of(held->script) : (spv_bytes){NULL, 0},
        .value = satoshi,
        .entry = (uint32_t)number,
    };
    return true;
}
