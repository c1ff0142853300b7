#include "binding/frames.h"

#include "binding/arguments.h"

#include "block/frames.h"

enum { LONG = 1 << 16 }; /* bytes: a checksum that takes some 50 µs, for which the interpreter's lock is given up */

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

static PyObject *pair_of(const spv_frame *frame) {
    PyObject *command = PyUnicode_DecodeASCII((const char *)frame->command.data, (Py_ssize_t)frame->command.size, NULL);
    PyObject *payload = PyBytes_FromStringAndSize((const char *)frame->payload.data, (Py_ssize_t)frame->payload.size);
    PyObject *pair = command && payload ? PyTuple_Pack(2, command, payload) : NULL;
    Py_XDECREF(command);
    Py_XDECREF(payload);
    return pair;
}

static PyObject *frames_of(PyObject *stream, const uint8_t *magic) {
    PyObject *frames = PyList_New(0);
    size_t at = 0;
    for (spv_frame frame; frames && is_sound(stream, at, magic, &frame); at += SPV_ENVELOPE_SIZE + frame.payload.size) {
        PyObject *pair = pair_of(&frame);
        if (!pair || PyList_Append(frames, pair))
            Py_CLEAR(frames);
        Py_XDECREF(pair);
    }
    return frames ? Py_BuildValue("(Nn)", frames, (Py_ssize_t)at) : NULL;
}

static PyObject *sound_frames(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    if (!spv_count_arguments("sound_frames", count, 2))
        return NULL;
    PyObject *stream = spv_snapshot(arguments[0]), *magic = stream ? spv_snapshot(arguments[1]) : NULL, *result = NULL;
    if (magic && spv_size(magic) != 4)
        PyErr_Format(spv_module_state(self)->ParameterError, "a network's magic has 4 bytes, not %zu", spv_size(magic));
    else if (magic)
        result = frames_of(stream, spv_data(magic));
    Py_XDECREF(magic);
    Py_XDECREF(stream);
    return result;
}

int spv_add_frames(PyObject *module, spv_state *Py_UNUSED(state)) {
    static PyMethodDef functions[] = {
        SPV_FUNCTION(sound_frames, METH_FASTCALL),
        {NULL, NULL, 0, NULL},
    };
    return PyModule_AddFunctions(module, functions);
}
