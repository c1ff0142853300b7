/* Binding of watch/address.h and watch/lines.h: decode_address, and WatchTable's add_address_lines; the twins are in pure/address.py and pure/table.py. */
#include "binding/watchtable.h"

#include "watch/address.h"
#include "watch/lines.h"

/* The parameters p2pkh_version, p2sh_version, hrp; false with an exception set. What the kernel does not know decides nothing. */
static bool take_network(PyObject *const *arguments, spv_address_network *network) {
    long p2pkh_version = PyLong_AsLong(arguments[0]);
    long p2sh_version = p2pkh_version == -1 && PyErr_Occurred() ? -1 : PyLong_AsLong(arguments[1]);
    if (p2sh_version == -1 && PyErr_Occurred())
        return false;
    Py_ssize_t size;
    const char *hrp = PyUnicode_AsUTF8AndSize(arguments[2], &size);
    if (!hrp)
        return false;
    if (p2pkh_version < 0 || p2pkh_version > 255 || p2sh_version < 0 || p2sh_version > 255) {
        PyErr_SetString(spv_known.ParameterError, "a version byte is from 0 to 255");
        return false;
    }
    spv_bytes part = {(const uint8_t *)hrp, (size_t)size};
    if (!spv_address_network_init(network, (uint8_t)p2pkh_version, (uint8_t)p2sh_version, part))
        spv_address_network_init(network, (uint8_t)p2pkh_version, (uint8_t)p2sh_version, (spv_bytes){part.data, 0});
    return true;
}

static PyObject *decode_address(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    (void)self;
    spv_address_network network;
    spv_script script;
    Py_ssize_t size;
    if (!spv_count_arguments("decode_address", count, 4) || !take_network(arguments + 1, &network))
        return NULL;
    if (!PyUnicode_Check(arguments[0]))
        Py_RETURN_NONE;
    const char *text = PyUnicode_AsUTF8AndSize(arguments[0], &size);
    if (!text) { /* surrogates: no address, says who knows the right error */
        PyErr_Clear();
        Py_RETURN_NONE;
    }
    if (!spv_decode_address(&network, (const uint8_t *)text, (size_t)size, &script))
        Py_RETURN_NONE;
    return PyBytes_FromStringAndSize((const char *)script.bytes, (Py_ssize_t)script.size);
}

static PyObject *label_list(const spv_address_lines *taken) {
    PyObject *list = PyList_New((Py_ssize_t)taken->count);
    for (size_t i = 0; list && i < taken->count; i++) {
        const spv_label *label = &taken->labels[i];
        PyObject *text = PyBytes_FromStringAndSize((const char *)label->text.data, (Py_ssize_t)label->text.size);
        PyObject *pair = Py_BuildValue("(kN)", (unsigned long)label->entry, text);
        if (!pair || PyList_SetItem(list, (Py_ssize_t)i, pair)) {
            Py_DECREF(list);
            list = NULL;
        }
    }
    return list;
}

PyObject *spv_wt_add_address_lines(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    spv_table *table = spv_table_of(self);
    spv_address_network network;
    spv_address_lines taken;
    spv_bytes chunk;
    spv_status status;
    if (!spv_count_arguments("add_address_lines", count, 5) || !spv_take_bytes(arguments[0], &chunk) || !take_network(arguments + 2, &network))
        return NULL;
    Py_ssize_t at = PyNumber_AsSsize_t(arguments[1], PyExc_IndexError);
    if (at == -1 && PyErr_Occurred())
        return NULL;
    if (at < 0 || (size_t)at > chunk.size)
        return PyErr_Format(PyExc_IndexError, "byte %zd of %zu", at, chunk.size);
    chunk.data += at;
    chunk.size -= (size_t)at;
    Py_BEGIN_ALLOW_THREADS
    spv_write(&table->lock);
    status = spv_add_address_lines(table, &network, chunk, &taken);
    spv_end_write(&table->lock);
    Py_END_ALLOW_THREADS
    PyObject *result = NULL;
    if (status)
        spv_raise(status, NULL);
    else
        result = Py_BuildValue("(nnN)", (Py_ssize_t)taken.consumed, (Py_ssize_t)taken.lines, label_list(&taken));
    spv_address_lines_free(&taken);
    return result;
}

int spv_add_decode_address(PyObject *module) {
    static PyMethodDef functions[] = {
        {"decode_address", (PyCFunction)(void (*)(void))decode_address, METH_FASTCALL,
         "The scriptPubKey of a valid address of a network with these parameters, or None: not decided here."},
        {NULL, NULL, 0, NULL},
    };
    return PyModule_AddFunctions(module, functions);
}
