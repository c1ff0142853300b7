#include "binding/addresses.h"

#include "binding/columnvalue.h"

#include "watch/addresscolumn.h"

static bool take_version(const spv_state *state, PyObject *object, uint8_t *version) {
    long long number;
    if (!spv_whole(state, object, 0, UINT8_MAX, "a version byte must be from 0 to 255", &number))
        return false;
    *version = (uint8_t)number;
    return true;
}

/* pure.address.check_network. The bytes of the human-readable part live as long as its str. False with an exception
   set. */
static bool take_parameters(const spv_state *state, PyObject *const *arguments, uint8_t versions[2], spv_bytes *hrp) {
    if (!take_version(state, arguments[0], &versions[0]) || !take_version(state, arguments[1], &versions[1]))
        return false;
    if (!PyUnicode_Check(arguments[2]))
        return spv_refuse_type("the human-readable part must be a str, not %U", arguments[2]);
    Py_ssize_t size;
    const char *text = PyUnicode_AsUTF8AndSize(arguments[2], &size);
    if (!text)
        return false;
    *hrp = (spv_bytes){(const uint8_t *)text, (size_t)size};
    return true;
}

bool spv_take_network(const spv_state *state, PyObject *const *arguments, spv_address_network *network) {
    uint8_t versions[2];
    spv_bytes hrp;
    if (!take_parameters(state, arguments, versions, &hrp))
        return false;
    if (!spv_address_network_init(network, versions[0], versions[1], hrp))
        /* without it, no segwit address is decoded */
        spv_address_network_init(network, versions[0], versions[1], (spv_bytes){hrp.data, 0});
    return true;
}

bool spv_take_form(const spv_state *state, PyObject *const *arguments, spv_address_form *form) {
    uint8_t versions[2];
    spv_bytes hrp;
    if (!take_parameters(state, arguments, versions, &hrp))
        return false;
    spv_address_form_init(form, versions[0], versions[1], hrp);
    return true;
}

PyObject *spv_refuse_hrp(const spv_state *state, PyObject *hrp, size_t unfit) {
    if (unfit != SPV_HRP_UNFIT)
        return PyErr_Format(state->ParameterError, "a bech32 string must be at most %d characters long, not %zu", SPV_MAX_ADDRESS, unfit);
    PyObject *shown = PyUnicode_Substring(hrp, 0, 100);
    if (shown)
        PyErr_Format(state->ParameterError, "a human-readable part must be lower-case printable ASCII, not %R", shown);
    Py_XDECREF(shown);
    return NULL;
}

static PyObject *encode_address(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    const spv_state *state = spv_module_state(self);
    spv_address_form form;
    uint8_t text[SPV_MAX_ADDRESS];
    if (!spv_count_arguments("encode_address", count, 4))
        return NULL;
    PyObject *script = spv_snapshot(arguments[0]);
    if (!script || !spv_take_form(state, arguments + 1, &form)) {
        Py_XDECREF(script);
        return NULL;
    }
    const size_t size = spv_encode_address(&form, (spv_bytes){spv_data(script), spv_size(script)}, NULL, text);
    Py_DECREF(script);
    if (!size)
        Py_RETURN_NONE;
    if (size > SPV_MAX_ADDRESS)
        return spv_refuse_hrp(state, arguments[3], size);
    return PyUnicode_DecodeASCII((const char *)text, (Py_ssize_t)size, NULL);
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
    if (!text) { /* the text has surrogates: address.py raises the error */
        PyErr_Clear();
        Py_RETURN_NONE;
    }
    if (!spv_decode_address(&network, (const uint8_t *)text, (size_t)size, &script))
        Py_RETURN_NONE;
    return PyBytes_FromStringAndSize((const char *)script.bytes, (Py_ssize_t)script.size);
}

/* True if offsets ascend from 0 or more to the size of the scripts or less. */
static bool offsets_fit(spv_bytes offsets, size_t size) {
    uint32_t last = 0;
    if (offsets.size % 4 || !offsets.size)
        return false;
    for (size_t at = 0; at < offsets.size; at += 4) {
        const uint32_t next = spv_le32(offsets.data + at);
        if (next > INT32_MAX || next < last)
            return false;
        last = next;
    }
    return last <= size;
}

static PyObject *addresses_of(const spv_state *state, PyObject *held[2], PyObject *const *arguments) {
    enum { SLICE = 1 << 14 }; /* scripts between two checks for signals: some milliseconds */
    const spv_bytes offsets = {spv_data(held[0]), spv_size(held[0])}, scripts = {spv_data(held[1]), spv_size(held[1])};
    spv_column column = {.layout = SPV_TEXT};
    spv_address_form form;
    spv_status status = SPV_OK;
    spv_error error = {0};
    size_t unfit = 0;
    PyObject *made = NULL;
    if (!spv_take_form(state, arguments + 2, &form))
        return NULL;
    if (!offsets_fit(offsets, scripts.size))
        return PyErr_Format(state->ParameterError, "the offsets (%zu bytes) do not match the scripts (%zu bytes)", offsets.size, scripts.size);
    const size_t rows = offsets.size / 4 - 1;
    bool broken = false;
    for (size_t at = 0; at < rows && !status && !broken;) {
        const size_t until = rows - at > SLICE ? at + SLICE : rows;
        Py_BEGIN_ALLOW_THREADS
        status = spv_add_addresses_of(&form, offsets.data, scripts.data, &at, until, &column, &unfit);
        Py_END_ALLOW_THREADS
        broken = !status && PyErr_CheckSignals();
    }
    if (unfit)
        spv_refuse_hrp(state, arguments[4], unfit);
    else if (status)
        spv_raise(state, status, &error);
    else if (!broken)
        made = spv_column_value(&column);
    spv_column_free(&column);
    return made;
}

static PyObject *script_addresses(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    if (!spv_count_arguments("script_addresses", count, 5))
        return NULL;
    PyObject *held[2] = {spv_snapshot(arguments[0]), NULL}, *made = NULL;
    if (held[0] && (held[1] = spv_snapshot(arguments[1])))
        made = addresses_of(spv_module_state(self), held, arguments);
    Py_XDECREF(held[0]);
    Py_XDECREF(held[1]);
    return made;
}

int spv_add_addresses(PyObject *module, spv_state *Py_UNUSED(state)) {
    static PyMethodDef functions[] = {
        SPV_FUNCTION(decode_address, METH_FASTCALL),
        SPV_FUNCTION(encode_address, METH_FASTCALL),
        SPV_FUNCTION(script_addresses, METH_FASTCALL),
        {NULL, NULL, 0, NULL},
    };
    return PyModule_AddFunctions(module, functions);
}
