#include "binding/childkeys.h"

#include "binding/arguments.h"

#include "block/curve.h"

/* Snapshots of the arguments, and the parent as an uncompressed key. */
typedef struct {
    PyObject *parent, *tweaks;
    uint8_t full[SPV_FULL_KEY];
} family;

static bool is_key(PyObject *parent, uint8_t full[SPV_FULL_KEY]) {
    const uint8_t *key = spv_data(parent);
    return spv_size(parent) == SPV_SHORT_KEY && (key[0] == 2 || key[0] == 3) && spv_full_key(key, full);
}

/* False with an exception set. */
static bool take_family(const spv_state *state, PyObject *const *arguments, family *taken) {
    taken->tweaks = NULL;
    taken->parent = spv_snapshot(arguments[0]);
    if (taken->parent)
        taken->tweaks = spv_snapshot(arguments[1]);
    if (!taken->tweaks)
        return false;
    const size_t size = spv_size(taken->tweaks);
    if (!is_key(taken->parent, taken->full))
        PyErr_SetString(state->ParameterError, "the parent must be a compressed public key of 33 bytes");
    else if (size % SPV_TWEAK)
        PyErr_Format(state->ParameterError, "the tweaks must be a multiple of 32 bytes long, not %zu", size);
    else
        return true;
    return false;
}

static PyObject *child_keys(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    const spv_state *state = spv_module_state(self);
    family taken;
    if (!spv_count_arguments("child_keys", count, 2))
        return NULL;
    PyObject *keys = NULL;
    if (take_family(state, arguments, &taken)) {
        const size_t number = spv_size(taken.tweaks) / SPV_TWEAK;
        keys = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(number * SPV_SHORT_KEY));
        if (keys) {
            const uint8_t *tweaks = spv_data(taken.tweaks);
            uint8_t *out = (uint8_t *)PyBytes_AsString(keys);
            spv_status status;
            Py_BEGIN_ALLOW_THREADS
            status = spv_child_keys(taken.full, tweaks, number, out);
            Py_END_ALLOW_THREADS
            if (status) {
                Py_CLEAR(keys);
                PyErr_NoMemory();
            }
        }
    }
    Py_XDECREF(taken.parent);
    Py_XDECREF(taken.tweaks);
    return keys;
}

int spv_add_childkeys(PyObject *module, spv_state *Py_UNUSED(state)) {
    static PyMethodDef functions[] = {
        SPV_FUNCTION(child_keys, METH_FASTCALL),
        {NULL, NULL, 0, NULL},
    };
    return PyModule_AddFunctions(module, functions);
}
