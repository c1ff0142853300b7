#include "binding/rows.h"

#include "binding/arguments.h"

#include "hash/blake2b.h"

static void add_value(spv_blake2b *hash, char kind, const void *data, size_t size) {
    uint8_t head[9] = {(uint8_t)kind};
    for (size_t i = 0; i < 8; i++)
        head[1 + i] = (uint8_t)((uint64_t)size >> 8 * i);
    spv_blake2b_add(hash, head, sizeof head);
    spv_blake2b_add(hash, data, size);
}

/* Adds a value that is computed as bytes or text; it takes the reference. False with an exception set. */
static bool add_made(spv_blake2b *hash, char kind, PyObject *made) {
    PyObject *bytes = made && PyUnicode_Check(made) ? PyUnicode_AsEncodedString(made, "utf-8", "surrogatepass") : Py_XNewRef(made);
    Py_XDECREF(made);
    if (!bytes)
        return false;
    add_value(hash, kind, spv_data(bytes), spv_size(bytes));
    Py_DECREF(bytes);
    return true;
}

static bool add_integer(spv_blake2b *hash, PyObject *value) {
    enum { DIGITS = 20 };
    char digits[DIGITS];
    int overflow = 0;
    const long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
    if (overflow)
        return add_made(hash, 'i', PyNumber_ToBase(value, 10));
    if (number == -1 && PyErr_Occurred())
        return false;
    char *at = digits + DIGITS;
    unsigned long long rest = number < 0 ? 0 - (unsigned long long)number : (unsigned long long)number;
    do {
        *--at = (char)('0' + rest % 10);
    } while (rest /= 10);
    if (number < 0)
        *--at = '-';
    add_value(hash, 'i', at, (size_t)(digits + DIGITS - at));
    return true;
}

static bool add_text(spv_blake2b *hash, PyObject *value) {
    Py_ssize_t size = 0;
    const char *text = PyUnicode_AsUTF8AndSize(value, &size);
    if (text) {
        add_value(hash, 's', text, (size_t)size);
        return true;
    }
    if (!PyErr_ExceptionMatches(PyExc_UnicodeEncodeError)) /* a surrogate */
        return false;
    PyErr_Clear();
    return add_made(hash, 's', Py_NewRef(value));
}

/* A value of another type, such as a float, which only a damaged file contains. */
static bool add_other(spv_blake2b *hash, PyObject *value) {
    PyObject *name = spv_attribute((PyObject *)Py_TYPE(value), "__name__"), *first = name ? PyUnicode_Substring(name, 0, 1) : NULL;
    PyObject *kind = first ? PyUnicode_AsEncodedString(first, "utf-8", "surrogatepass") : NULL;
    const char letter = kind && spv_size(kind) ? (char)*spv_data(kind) : 0;
    const bool is_named = kind != NULL;
    Py_XDECREF(kind);
    Py_XDECREF(first);
    Py_XDECREF(name);
    return is_named && add_made(hash, letter, PyObject_Str(value));
}

static PyObject *row_mark(PyObject *Py_UNUSED(self), PyObject *const *arguments, Py_ssize_t count) {
    if (!spv_count_arguments("row_mark", count, 2))
        return NULL;
    if (!PyUnicode_Check(arguments[0])) {
        spv_refuse_type("a table's name must be a str, not %U", arguments[0]);
        return NULL;
    }
    Py_ssize_t size = 0;
    const char *table = PyUnicode_AsUTF8AndSize(arguments[0], &size);
    PyObject *row = table ? PySequence_Tuple(arguments[1]) : NULL; /* a tuple itself */
    if (!row)
        return NULL;
    spv_blake2b hash;
    spv_blake2b_start(&hash);
    spv_blake2b_add(&hash, (const uint8_t *)table, (size_t)size);
    bool is_added = true;
    const Py_ssize_t values = PyTuple_Size(row);
    for (Py_ssize_t at = 0; is_added && at < values; at++) {
        PyObject *value = PyTuple_GetItem(row, at);
        if (PyLong_Check(value))
            is_added = add_integer(&hash, value);
        else if (value == Py_None)
            add_value(&hash, 'N', "None", 4);
        else if (PyBytes_Check(value))
            add_value(&hash, 'b', spv_data(value), spv_size(value));
        else if (PyUnicode_Check(value))
            is_added = add_text(&hash, value);
        else
            is_added = add_other(&hash, value);
    }
    Py_DECREF(row);
    return is_added ? PyLong_FromUnsignedLongLong(spv_blake2b_end(&hash) >> 1) : NULL;
}

int spv_add_rows(PyObject *module, spv_state *Py_UNUSED(state)) {
    static PyMethodDef functions[] = {
        SPV_FUNCTION(row_mark, METH_FASTCALL),
        {NULL, NULL, 0, NULL},
    };
    return PyModule_AddFunctions(module, functions);
}
