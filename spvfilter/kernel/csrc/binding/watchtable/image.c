#include "binding/watchtable/image.h"

#include "watch/image.h"

PyObject *spv_table_over(PyTypeObject *type, PyObject *image) {
    const spv_state *state = PyType_GetModuleState(type);
    Py_buffer buffer;
    spv_table *table = NULL;
    spv_error error;
    spv_status status;
    if (PyObject_GetBuffer(image, &buffer, PyBUF_SIMPLE)) {
        if (PyErr_ExceptionMatches(PyExc_TypeError))
            spv_refuse_type("expected a bytes-like object, not %U", image);
        return NULL;
    }
    if ((uintptr_t)buffer.buf % SPV_IMAGE_ALIGNMENT) {
        PyErr_Format(state->ParameterError, "an image must be at an address divisible by %d: copy it", SPV_IMAGE_ALIGNMENT);
        PyBuffer_Release(&buffer);
        return NULL;
    }
    PyObject *view = PyMemoryView_FromObject(image);
    if (!view) {
        PyBuffer_Release(&buffer);
        return NULL;
    }
    const spv_bytes bytes = {buffer.buf, (size_t)buffer.len};
    Py_BEGIN_ALLOW_THREADS
    status = spv_table_open(bytes, &table, &error);
    Py_END_ALLOW_THREADS
    PyObject *self = status ? spv_raise(state, status, &error) : spv_wrap_table((PyObject *)type, table, view);
    Py_DECREF(view);
    PyBuffer_Release(&buffer);
    return self;
}

PyObject *spv_wt_packed_entries(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    const spv_state *state = spv_object_state(self);
    long long first, most;
    if (!spv_count_arguments("packed_entries", count, 2) || !spv_whole(state, arguments[0], 0, UINT32_MAX, "the number of an entry must be from 0 to 2^32 - 1", &first)
        || !spv_whole(state, arguments[1], 0, UINT32_MAX, "a number of entries must be from 0 to 2^32 - 1", &most))
        return NULL;
    spv_table *table = spv_table_of(self);
    PyThreadState *thread = spv_begin_read(table);
    const uint32_t entries = spv_table_count(table);
    const uint32_t start = first < entries ? (uint32_t)first : entries, end = most < entries - start ? start + (uint32_t)most : entries;
    const size_t size = spv_pack_entries(table, start, end, NULL, 0);
    spv_finish_read(table, thread);
    PyObject *packed = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
    if (!packed)
        return NULL;
    thread = spv_begin_read(table);
    const size_t written = spv_pack_entries(table, start, end, (uint8_t *)PyBytes_AsString(packed), size);
    spv_finish_read(table, thread);
    if (written == size)
        return packed;
    Py_DECREF(packed);
    spv_error error;
    return spv_raise(state, spv_refuse(&error, 0, "entry", "the image was changed while it was read"), &error);
}

PyObject *spv_wt_image(PyObject *self, PyObject *Py_UNUSED(none)) {
    spv_table *table = spv_table_of(self);
    PyThreadState *thread = spv_begin_read(table);
    const bool changed = table->changed;
    spv_finish_read(table, thread);
    return changed ? Py_NewRef(Py_None) : PyMemoryView_FromObject(((spv_table_object *)self)->view);
}

PyObject *spv_wt_image_size(PyObject *self, PyObject *Py_UNUSED(none)) {
    spv_table *table = spv_table_of(self);
    size_t size;
    spv_status status;
    Py_BEGIN_ALLOW_THREADS
    spv_read(&table->lock);
    status = spv_image_size(table, &size);
    spv_end_read(&table->lock);
    Py_END_ALLOW_THREADS
    return status ? spv_raise(spv_object_state(self), status, NULL) : PyLong_FromSize_t(size);
}

PyObject *spv_wt_write_image(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    const spv_state *state = spv_object_state(self);
    spv_table *table = spv_table_of(self);
    spv_table_key key;
    Py_buffer room;
    spv_error error;
    spv_status status;
    if (!spv_count_arguments("write_image", count, 2))
        return NULL;
    PyObject *given = spv_snapshot(arguments[1]);
    if (!given)
        return NULL;
    const size_t key_size = spv_size(given);
    if (key_size == sizeof key)
        memcpy(&key, spv_data(given), sizeof key);
    Py_DECREF(given);
    if (key_size != sizeof key)
        return PyErr_Format(state->ParameterError, "a key must be %zu bytes long, not %zu", sizeof key, key_size);
    if (PyObject_GetBuffer(arguments[0], &room, PyBUF_WRITABLE))
        return NULL;
    if ((uintptr_t)room.buf % SPV_IMAGE_ALIGNMENT) {
        PyErr_Format(state->ParameterError, "an image must be at an address divisible by %d", SPV_IMAGE_ALIGNMENT);
        PyBuffer_Release(&room);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    spv_read(&table->lock);
    status = spv_image_write(table, &key, room.buf, (size_t)room.len, &error);
    spv_end_read(&table->lock);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&room);
    return status ? spv_raise(state, status, &error) : Py_NewRef(Py_None);
}
