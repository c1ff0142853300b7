#include "binding/frames.h"

#include "binding/arguments.h"

#include "block/frames.h"

enum { LONG = 1 << 16 }; /* bytes of a payload whose checksum takes about 50 µs: for as many or more the GIL is released */

static bool is_sound(PyObject *stream, size_t at, const uint8_t *magic, spv_frame *frame) {
    const uint8_t *head = spv_data(stream) + at;
    const size_t left = spv_size(stream) - at;
    bool sound;
    if (left < LONG || spv_le32(head + 16) < LONG)
        return spv_sound_frame(head, left, magic, frame);
    Py_BEGIN_ALLOW_THREADS
    sound = spv_sound_frame(head, left, magic, frame);
    Py_END_ALLOW_THREADS
    return sound;
}

/* A tuple of two new references, which it takes. NULL with an exception set if one of them is NULL. */
static PyObject *pair(PyObject *first, PyObject *second) {
    PyObject *made = first && second ? PyTuple_Pack(2, first, second) : NULL;
    Py_XDECREF(first);
    Py_XDECREF(second);
    return made;
}

/* Appends a new reference, which it takes. False with an exception set. */
static bool append(PyObject *list, PyObject *item) {
    const bool is_done = item && !PyList_Append(list, item);
    Py_XDECREF(item);
    return is_done;
}

static PyObject *bytes_of(spv_bytes bytes) {
    return PyBytes_FromStringAndSize((const char *)bytes.data, (Py_ssize_t)bytes.size);
}

static PyObject *item_of(const spv_frame *frame) {
    return pair(PyUnicode_DecodeASCII((const char *)frame->command.data, (Py_ssize_t)frame->command.size, NULL), bytes_of(frame->payload));
}

static PyObject *frames_of(PyObject *stream, const uint8_t *magic) {
    PyObject *frames = PyList_New(0);
    size_t at = 0;
    for (spv_frame frame; frames && is_sound(stream, at, magic, &frame); at += SPV_ENVELOPE_SIZE + frame.payload.size)
        if (!append(frames, item_of(&frame)))
            Py_CLEAR(frames);
    return frames ? Py_BuildValue("(Nn)", frames, (Py_ssize_t)at) : NULL;
}

/* Successive filters that are not appended to the items yet. `filters` is NULL if there are none. */
typedef struct {
    PyObject *filters;
    size_t size; /* their bytes in the stream */
} spv_run;

static bool end_run(PyObject *items, spv_run *run) {
    PyObject *filters = run->filters;
    run->filters = NULL;
    return !filters || append(items, pair(filters, PyLong_FromSize_t(run->size)));
}

static bool extend_run(spv_run *run, const spv_frame *frame, const spv_block_filter *found) {
    if (!run->filters) {
        *run = (spv_run){PyList_New(0), 0};
        if (!run->filters)
            return false;
    }
    run->size += SPV_ENVELOPE_SIZE + frame->payload.size;
    return append(run->filters, pair(bytes_of((spv_bytes){found->block, sizeof(spv_hash)}), bytes_of(found->filter)));
}

static PyObject *items_of(PyObject *stream, const uint8_t *magic) {
    PyObject *items = PyList_New(0);
    spv_run run = {NULL, 0};
    size_t at = 0;
    for (spv_frame frame; items && is_sound(stream, at, magic, &frame); at += SPV_ENVELOPE_SIZE + frame.payload.size) {
        spv_block_filter found;
        const bool is_filter = spv_basic_filter(&frame, &found);
        if (is_filter ? !extend_run(&run, &frame, &found) : !end_run(items, &run) || !append(items, item_of(&frame)))
            Py_CLEAR(items);
    }
    if (items && !end_run(items, &run))
        Py_CLEAR(items);
    Py_XDECREF(run.filters);
    return items ? Py_BuildValue("(Nn)", items, (Py_ssize_t)at) : NULL;
}

/* Takes snapshots of both arguments and returns the result of `make` for them. */
static PyObject *made_of(const char *name, PyObject *self, PyObject *const *arguments, Py_ssize_t count,
                         PyObject *make(PyObject *stream, const uint8_t *magic)) {
    if (!spv_count_arguments(name, count, 2))
        return NULL;
    PyObject *stream = spv_snapshot(arguments[0]), *magic = stream ? spv_snapshot(arguments[1]) : NULL, *result = NULL;
    if (magic && spv_size(magic) != 4)
        PyErr_Format(spv_module_state(self)->ParameterError, "a network's magic must be 4 bytes long, not %zu", spv_size(magic));
    else if (magic)
        result = make(stream, spv_data(magic));
    Py_XDECREF(magic);
    Py_XDECREF(stream);
    return result;
}

static PyObject *sound_frames(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    return made_of("sound_frames", self, arguments, count, frames_of);
}

static PyObject *joined_frames(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    return made_of("joined_frames", self, arguments, count, items_of);
}

int spv_add_frames(PyObject *module, spv_state *Py_UNUSED(state)) {
    static PyMethodDef functions[] = {
        SPV_FUNCTION(sound_frames, METH_FASTCALL),
        SPV_FUNCTION(joined_frames, METH_FASTCALL),
        {NULL, NULL, 0, NULL},
    };
    return PyModule_AddFunctions(module, functions);
}
