#include "binding/files.h"

#include "binding/arguments.h"

#include "fork.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>

/* Arguments. */

/* pure.files.checked. */
static bool take_numbers(const spv_state *state, PyObject *const arguments[4], size_t most, spv_place *place) {
    long long descriptor, offset, size;
    PyObject *key = spv_snapshot(arguments[3]);
    if (!key)
        return false;
    static const char of_block[] = "the size of a block must be from 0 to 4000000 bytes";
    static const char of_record[] = "the size of an undo record must be from 0 to 250000000 bytes";
    static const char start[] = "an offset in a file must be from 0 to sys.maxsize minus the largest size";
    const size_t key_size = spv_size(key);
    const bool sound = !key_size || key_size == SPV_FILE_KEY_SIZE;
    memset(place->key, 0, sizeof place->key);
    if (sound)
        memcpy(place->key, spv_data(key), key_size);
    else
        PyErr_Format(state->ParameterError, "a key must be %d bytes long or empty, not %zu", SPV_FILE_KEY_SIZE, key_size);
    Py_DECREF(key);
    if (!sound || !spv_whole(state, arguments[0], 0, INT_MAX, "a file descriptor must be from 0 to 2^31 - 1", &descriptor)
        || !spv_whole(state, arguments[1], 0, PY_SSIZE_T_MAX - (long long)most, start, &offset)
        || !spv_whole(state, arguments[2], 0, (long long)most, most == SPV_MAX_BLOCK_SIZE ? of_block : of_record, &size))
        return false;
    place->descriptor = (int)descriptor;
    place->offset = (uint64_t)offset;
    place->size = (size_t)size;
    return true;
}

static bool take_hash(const spv_state *state, PyObject *object, uint8_t hash[32]) {
    PyObject *taken = spv_snapshot(object);
    if (!taken)
        return false;
    const size_t size = spv_size(taken);
    if (size == 32)
        memcpy(hash, spv_data(taken), 32);
    else
        PyErr_Format(state->ParameterError, "a block hash must be 32 bytes long, not %zu", size);
    Py_DECREF(taken);
    return size == 32;
}

bool spv_take_place(const spv_state *state, PyObject *object, size_t most, spv_place *place) {
    enum { HASH = 4, FIELDS };
    if (!PyTuple_Check(object) || PyTuple_Size(object) != FIELDS)
        return spv_refuse_type("expected a Place, not %U", object);
    PyObject *numbers[HASH];
    for (Py_ssize_t i = 0; i < HASH; i++)
        numbers[i] = PyTuple_GetItem(object, i);
    return take_hash(state, PyTuple_GetItem(object, HASH), place->hash) && take_numbers(state, numbers, most, place);
}

/* read_at. */

static PyObject *read_at(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    spv_place place;
    if (!spv_count_arguments("read_at", count, 4) || !take_numbers(spv_module_state(self), arguments, SPV_MAX_BLOCK_SIZE, &place))
        return NULL;
    for (;;) {
        PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)place.size);
        if (!bytes)
            return NULL;
        uint8_t *data = (uint8_t *)PyBytes_AsString(bytes); /* writing is safe: no other thread has a reference yet */
        size_t size = 0;
        bool done;
        int error;
        Py_BEGIN_ALLOW_THREADS
        done = spv_read_place(&place, data, &size);
        error = errno;
        Py_END_ALLOW_THREADS
        if (done && size == place.size)
            return bytes;
        PyObject *shorter = done ? PyBytes_FromStringAndSize((const char *)data, (Py_ssize_t)size) : NULL;
        Py_DECREF(bytes);
        if (done)
            return shorter;
        if (error != EINTR) {
            errno = error;
            return PyErr_SetFromErrno(PyExc_OSError);
        }
        if (PyErr_CheckSignals())
            return NULL;
    }
}

/* ReadBuffer. */

uint8_t *spv_take_buffer(spv_read_buffer *buffer, size_t size) {
    const unsigned mine = spv_generation();
    unsigned user = atomic_load(&buffer->user);
    do {
        if (user == mine) {
            PyErr_SetString(PyExc_BufferError, "another thread is using this buffer");
            return NULL;
        }
    } while (!atomic_compare_exchange_weak(&buffer->user, &user, mine));
    if (user) { /* a thread of the parent had it and may have been replacing the memory: leak the memory */
        buffer->memory = NULL;
        buffer->room = 0;
    }
    if (size > buffer->room || !buffer->memory) {
        free(buffer->memory);
        buffer->room = 0;
        buffer->memory = malloc(size + 1); /* one more byte, so that the end of a block is never the start of another allocation */
        if (!buffer->memory) {
            spv_let_buffer_go(buffer);
            PyErr_NoMemory();
            return NULL;
        }
        buffer->room = size;
    }
    return buffer->memory;
}

void spv_let_buffer_go(spv_read_buffer *buffer) {
    atomic_store(&buffer->user, 0);
}

static PyObject *new(PyTypeObject *type, PyObject *arguments, PyObject *names) {
    if (PyTuple_Size(arguments) || (names && PyDict_Size(names))) {
        PyErr_SetString(PyExc_TypeError, "ReadBuffer() takes no arguments");
        return NULL;
    }
    return spv_allocate((PyObject *)type);
}

static PyObject *size_of(PyObject *self, PyObject *Py_UNUSED(none)) {
    return PyLong_FromSize_t(sizeof(spv_read_buffer) + ((spv_read_buffer *)self)->room);
}

static int traverse(PyObject *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    return 0;
}

static int clear(PyObject *self) {
    (void)self; /* it contains no objects */
    return 0;
}

static void end(PyObject *self) {
    spv_read_buffer *buffer = (spv_read_buffer *)self;
    if (!atomic_load(&buffer->user)) /* if a thread of the parent had it, the memory is leaked */
        free(buffer->memory);
    spv_end_object(self, clear);
}

int spv_add_files(PyObject *module, spv_state *state) {
    static PyMethodDef functions[] = {
        SPV_FUNCTION(read_at, METH_FASTCALL),
        {NULL, NULL, 0, NULL},
    };
    static PyMethodDef methods[] = {
        {"__sizeof__", size_of, METH_NOARGS, "Bytes of memory."},
        {NULL, NULL, 0, NULL},
    };
    static PyType_Slot slots[] = {
        {Py_tp_doc, SPV_DOC_ReadBuffer},
        {Py_tp_new, new},
        {Py_tp_traverse, traverse},
        {Py_tp_dealloc, end},
        {Py_tp_methods, methods},
        {0, NULL},
    };
    static PyType_Spec spec = {
        .name = "spvfilter.kernel.native.ReadBuffer",
        .basicsize = sizeof(spv_read_buffer),
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
        .slots = slots,
    };
    return spv_make_type(module, &state->ReadBuffer, &spec, true) ? PyModule_AddFunctions(module, functions) : -1;
}
