#include "binding/addresses.h"

static bool take_version(const spv_state *state, PyObject *object, uint8_t *version) {
    long long number;
    if (!spv_whole(state, object, 0, UINT8_MAX, "a version byte is from 0 to 255", &number))
        return false;
    *version = (uint8_t)number;
    return true;
}

bool spv_take_network(const spv_state *state, PyObject *const *arguments, spv_address_network *network) {
    uint8_t p2pkh_version, p2sh_version;
    if (!take_version(state, arguments[0], &p2pkh_version) || !take_version(state, arguments[1], &p2sh_version))
        return false;
    if (!PyUnicode_Check(arguments[2]))
        return spv_refuse_type("the human-readable part is a str, not %U", arguments[2]);
    Py_ssize_t size;
    const char *hrp = PyUnicode_AsUTF8AndSize(arguments[2], &size);
    if (!hrp)
        return false;
    const uint8_t *data = (const uint8_t *)hrp;
    if (!spv_address_network_init(network, p2pkh_version, p2sh_version, (spv_bytes){data, (size_t)size}))
        spv_address_network_init(network, p2pkh_version, p2sh_version, (spv_bytes){data, 0}); /* then no segwit address is decoded */
    return true;
}

static PyObject *decode_address(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    spv_address_network network;
    spv_script script;
    Py_ssize_t size;
    if (!spv_count_arguments("decode_address", count, 4) || !spv_take_network(spv_module_state(self), arguments + 1, &network))
        return NULL;
    if (!PyUnicode_Check(arguments[0]))
        Py_RETURN_NONE;
    const char *text = PyUnicode_AsUTF8AndSize(arguments[0], &size);
    if (!text) { /* surrogates: address.py raises the error */
        PyErr_Clear();
        Py_RETURN_NONE;
    }
    if (!spv_decode_address(&network, (const uint8_t *)text, (size_t)size, &script))
        Py_RETURN_NONE;
    return PyBytes_FromStringAndSize((const char *)script.bytes, (Py_ssize_t)script.size);
}

int spv_add_addresses(PyObject *module, spv_state *Py_UNUSED(state)) {
    static PyMethodDef functions[] = {
        SPV_FUNCTION(decode_address, METH_FASTCALL),
        {NULL, NULL, 0, NULL},
    };
    return PyModule_AddFunctions(module, functions);
}
