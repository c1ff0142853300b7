#include "binding/undo.h"

#include "binding/arguments.h"

#include "block/undo.h"

/* pure.undo._spent: returns the coin at *at and moves *at past it. NULL with an exception set. */
static PyObject *spent_coin(const spv_state *state, spv_bytes undo, size_t *at) {
    const size_t start = *at;
    uint8_t room[SPV_SHORT_SCRIPT];
    spv_packed_coin coin = {0};
    spv_bytes script = {NULL, 0};
    spv_error error;
    spv_status status = spv_read_coin(undo.data, undo.size, at, &coin, &error);
    if (!status)
        status = spv_script_of_coin(&coin, start, room, &script, &error);
    if (status)
        return spv_raise(state, status, &error);
    const uint32_t height = coin.code >> 1;
    PyObject *values[] = {
        PyLong_FromUnsignedLongLong(coin.value), PyBytes_FromStringAndSize((const char *)script.data, (Py_ssize_t)script.size),
        height ? PyLong_FromUnsignedLong(height) : Py_NewRef(Py_None), height ? PyBool_FromLong(coin.code & 1) : Py_NewRef(Py_None),
    };
    PyObject *items = NULL;
    if (values[0] && values[1] && values[2])
        items = PyTuple_Pack(4, values[0], values[1], values[2], values[3]);
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++)
        Py_XDECREF(values[i]);
    return spv_named(state->SpentCoin, items);
}

/* The coins of one transaction. */
static PyObject *coins_of_tx(const spv_state *state, spv_bytes undo, size_t *at) {
    uint64_t count = 0;
    spv_error error;
    const spv_status status = spv_undo_count(undo.data, undo.size, at, SPV_MIN_COIN_SIZE, &count, "undo input count", &error);
    if (status)
        return spv_raise(state, status, &error);
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (uint64_t i = 0; list && i < count; i++) {
        PyObject *coin = spent_coin(state, undo, at);
        if (!coin || PyList_SetItem(list, (Py_ssize_t)i, coin))
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *spent_coins(PyObject *self, PyObject *given) {
    const spv_state *state = spv_module_state(self);
    PyObject *taken = spv_snapshot(given);
    if (!taken)
        return NULL;
    const spv_bytes undo = {spv_data(taken), spv_size(taken)};
    size_t at = 0;
    uint64_t total = 0;
    spv_error error;
    spv_status status = spv_undo_count(undo.data, undo.size, &at, 1, &total, "undo transaction count", &error);
    PyObject *list = status ? spv_raise(state, status, &error) : PyList_New((Py_ssize_t)total);
    spv_pace pace = {.state = state};
    for (uint64_t i = 0; list && i < total; i++) {
        PyObject *coins = coins_of_tx(state, undo, &at);
        if (!coins || PyList_SetItem(list, (Py_ssize_t)i, coins) || !spv_step(&pace))
            Py_CLEAR(list);
    }
    if (list && (status = spv_undo_end(undo.size, at, &error))) {
        Py_CLEAR(list);
        spv_raise(state, status, &error);
    }
    Py_DECREF(taken);
    return list;
}

int spv_add_undo(PyObject *module, spv_state *Py_UNUSED(state)) {
    static PyMethodDef functions[] = {
        SPV_FUNCTION(spent_coins, METH_O),
        {NULL, NULL, 0, NULL},
    };
    return PyModule_AddFunctions(module, functions);
}
