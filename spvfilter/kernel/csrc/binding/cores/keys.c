#include "binding/cores/keys.h"

#include "binding/arguments.h"

/* The bytes of a buffer that is not a bytes object, copied by the rule of binding.h. */
static bool copy_buffer(Py_buffer *view, spv_held *held) {
    held->data = held->near;
    held->size = (size_t)view->len;
    if (held->size > sizeof held->near) {
        held->owner = PyBytes_FromStringAndSize(NULL, view->len);
        if (!held->owner)
            return false;
        held->data = (const uint8_t *)PyBytes_AsString(held->owner);
    }
    return !PyBuffer_ToContiguous((void *)(uintptr_t)held->data, view, view->len, 'C');
}

/* pure.cells.encode_bytes. */
static bool hold_bytes(PyObject *key, spv_held *held) {
    const char *message = "the key must be bytes-like, not %U: keys of other types need `encode`, such as 'utf-8' for str or 'int64' for int";
    Py_buffer view;
    if (PyBytes_Check(key)) {
        held->data = (const uint8_t *)PyBytes_AsString(key);
        held->size = (size_t)PyBytes_Size(key);
        return true;
    }
    if (!PyObject_CheckBuffer(key))
        return spv_refuse_type(message, key);
    if (PyObject_GetBuffer(key, &view, PyBUF_FULL_RO)) {
        if (!PyErr_ExceptionMatches(PyExc_TypeError))
            return false;
        PyErr_Clear();
        return spv_refuse_type(message, key);
    }
    /* NumPy's numbers and strings have buffers with zero dimensions */
    const bool done = view.ndim ? copy_buffer(&view, held) : spv_refuse_type(message, key);
    PyBuffer_Release(&view);
    return done;
}

static bool hold_text(PyObject *key, spv_held *held) {
    if (!PyUnicode_Check(key))
        return spv_refuse_type("the key must be a str, not %U: the filter encodes its keys as utf-8", key);
    Py_ssize_t size;
    held->data = (const uint8_t *)PyUnicode_AsUTF8AndSize(key, &size);
    held->size = (size_t)size;
    return held->data != NULL;
}

/* Writes a Python int to `number` and returns the size. 0 with OverflowError set if it does not fit. */
static size_t to_number(PyObject *whole, uint8_t encoder, uint8_t number[8]) {
    const bool is_signed = encoder == SPV_ENCODE_INT64 || encoder == SPV_ENCODE_INT32, narrow = encoder >= SPV_ENCODE_INT32;
    uint64_t value;
    if (is_signed)
        value = (uint64_t)PyLong_AsLongLong(whole);
    else
        value = PyLong_AsUnsignedLongLong(whole);
    if (value == UINT64_MAX && PyErr_Occurred())
        return 0;
    if (narrow && (is_signed ? (uint64_t)(int32_t)value : (uint32_t)value) != value) {
        PyErr_SetString(PyExc_OverflowError, "int too big to convert");
        return 0;
    }
    spv_put_le32(number, (uint32_t)value);
    spv_put_le32(number + 4, (uint32_t)(value >> 32));
    return narrow ? 4 : 8;
}

static bool hold_number(spv_core *core, PyObject *key, spv_held *held) {
    if (PyBool_Check(key) || !PyIndex_Check(key))
        return spv_refuse_type("the key must be an int, not %U: the filter encodes its keys as integers", key);
    static const char *const names[] = {"int64", "uint64", "int32", "uint32"};
    PyObject *whole = PyNumber_Index(key);
    if (!whole)
        return false;
    held->data = held->near;
    held->size = to_number(whole, core->encoder, held->near);
    if (!held->size && PyErr_ExceptionMatches(PyExc_OverflowError)) {
        const spv_state *state = spv_core_state((PyObject *)core);
        if (state)
            PyErr_Format(state->KeyRangeError, "the int is outside the range of %s, the type of the filter's keys", names[core->encoder - SPV_ENCODE_INT64]);
    }
    Py_DECREF(whole);
    return held->size > 0;
}

static bool hold_encoded(spv_core *core, PyObject *key, spv_held *held) {
    PyObject *encoded = PyObject_CallFunctionObjArgs(core->encode, key, NULL);
    if (!encoded || !hold_bytes(encoded, held)) {
        Py_XDECREF(encoded);
        return false;
    }
    if (PyBytes_Check(encoded))
        held->owner = encoded;
    else
        Py_DECREF(encoded);
    return true;
}

bool spv_hold_slow(spv_core *core, PyObject *key, spv_held *held) {
    bool done = false;
    switch (core->encoder) {
    case SPV_ENCODE_BYTES:
        done = hold_bytes(key, held);
        break;
    case SPV_ENCODE_UTF8:
        done = hold_text(key, held);
        break;
    case SPV_ENCODE_INT64:
    case SPV_ENCODE_UINT64:
    case SPV_ENCODE_INT32:
    case SPV_ENCODE_UINT32:
        done = hold_number(core, key, held);
        break;
    case SPV_ENCODE_OWN:
        done = hold_encoded(core, key, held);
        break;
    default:
        return spv_check_made(core);
    }
    if (!done)
        spv_let_go(held);
    return done;
}

bool spv_hold_quick(spv_core *core, PyObject *key, uint8_t number[8], spv_bytes *found) {
    Py_ssize_t size;
    char *text;
    if (core->custom)
        return false;
    switch (core->encoder) {
    case SPV_ENCODE_BYTES:
        if ((!Py_IS_TYPE(key, &PyBytes_Type) && !PyBytes_Check(key)) || PyBytes_AsStringAndSize(key, &text, &size))
            return false;
        *found = (spv_bytes){(const uint8_t *)text, (size_t)size};
        return true;
    case SPV_ENCODE_UTF8:
        if (!PyUnicode_Check(key))
            return false;
        found->data = (const uint8_t *)PyUnicode_AsUTF8AndSize(key, &size);
        found->size = (size_t)size;
        if (!found->data)
            PyErr_Clear();
        return found->data != NULL;
    case SPV_ENCODE_INT64:
    case SPV_ENCODE_UINT64:
    case SPV_ENCODE_INT32:
    case SPV_ENCODE_UINT32:
        if (!PyLong_CheckExact(key))
            return false;
        *found = (spv_bytes){number, to_number(key, core->encoder, number)};
        if (found->size)
            return true;
        PyErr_Clear();
        return false;
    default:
        return false;
    }
}

/* A Python int modulo a span. For a class derived from int, the remainder of int itself is used. */
static PyObject *remainder_of(PyObject *whole, uint64_t span) {
    PyObject *divisor = PyLong_FromUnsignedLongLong(span);
    PyObject *rest = divisor ? ((binaryfunc)PyType_GetSlot(&PyLong_Type, Py_nb_remainder))(whole, divisor) : NULL;
    Py_XDECREF(divisor);
    return rest;
}

/* Calls one of the user's functions for a key: the cell, within its span. False with an exception set. */
static bool own_position(spv_core *core, size_t number, PyObject *data, uint64_t *position) {
    PyObject *result = PyObject_CallFunctionObjArgs(PyTuple_GetItem(core->custom, (Py_ssize_t)number), data, NULL);
    PyObject *whole = result ? PyNumber_Index(result) : NULL;
    Py_XDECREF(result);
    PyObject *rest = whole ? remainder_of(whole, core->shape.span) : NULL;
    Py_XDECREF(whole);
    if (!rest)
        return false;
    *position = number * core->shape.stride + PyLong_AsUnsignedLongLong(rest);
    Py_DECREF(rest);
    return true;
}

uint64_t *spv_positions_of(spv_core *core, const spv_held *held, uint64_t room[SPV_NEAR]) {
    const size_t functions = core->shape.functions;
    uint64_t *positions = functions <= SPV_NEAR ? room : PyMem_Malloc(functions * sizeof *positions);
    if (!positions) {
        PyErr_NoMemory();
        return NULL;
    }
    if (!core->custom || !functions) {
        const spv_bytes key = {held->data, held->size};
        spv_positions(&core->shape, &(spv_keys){.keys = &key}, 0, 1, positions);
        return positions;
    }
    PyObject *data = PyBytes_FromStringAndSize((const char *)held->data, (Py_ssize_t)held->size);
    size_t made = 0;
    while (data && made < functions && own_position(core, made, data, positions + made))
        made++;
    Py_XDECREF(data);
    if (data && made == functions)
        return positions;
    spv_free_positions(positions, room);
    return NULL;
}
