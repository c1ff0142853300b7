#include "binding/cores/type.h"

#include "binding/arguments.h"
#include "binding/cores/attributes.h"
#include "binding/cores/batch.h"
#include "binding/cores/fuse.h"
#include "binding/cores/series.h"
#include "binding/cores/single.h"
#include "binding/cores/whole.h"

/* Construction. The arguments are read into a core on the stack. It owns its references and is then moved into the
   object. */

typedef struct {
    PyObject *cells, *hash_funcs, *family, *key, *buffer, *encoding, *partitioned, *custom, *encode, *private, *counter_bits;
} core_arguments;

/* A core of bits takes no counter_bits. */
static bool parse(PyObject *arguments, PyObject *names, bool bits, core_arguments *given) {
    static char *keywords[] = {"cells",       "hash_funcs", "family", "key",     "buffer",       "encoding",
                               "partitioned", "custom",     "encode", "private", "counter_bits", NULL};
    static char *fewer[] = {"cells", "hash_funcs", "family", "key", "buffer", "encoding", "partitioned", "custom", "encode", "private", NULL};
    *given = (core_arguments){.partitioned = Py_False, .custom = Py_None, .encode = Py_None, .private = Py_False};
    return PyArg_ParseTupleAndKeywords(
        arguments, names, bits ? "OOOOO|OOOOO" : "OOOOO|OOOOOO", bits ? fewer : keywords, &given->cells, &given->hash_funcs, &given->family, &given->key, &given->buffer,
        &given->encoding, &given->partitioned, &given->custom, &given->encode, &given->private, &given->counter_bits);
}

long spv_member_of(PyObject *enumeration, PyObject *object, bool is_one(long)) {
    const long number = PyLong_Check(object) ? PyLong_AsLong(object) : -1;
    if (is_one(number))
        return number;
    PyErr_Clear();
    PyObject *member = PyObject_CallFunctionObjArgs(enumeration, object, NULL); /* raises ValueError if there is no such member */
    const long found = member ? PyLong_AsLong(member) : -1;
    Py_XDECREF(member);
    return found;
}

bool spv_is_family(long number) {
    return (number >= SPV_FAMILY_BIP37 && number <= SPV_FAMILY_SPLIT_BLOCK) || number == SPV_FAMILY_CUSTOM;
}

enum { CALLABLE = 255 }; /* values.Encoding.CALLABLE */

static bool is_encoding(long number) {
    return (number >= 0 && number <= 5) || number == CALLABLE;
}

/* Reads the cells and functions, and the hash family with its key. */
static bool read_shape(const spv_state *state, const core_arguments *given, spv_core *fresh) {
    long long cells, functions;
    if (!spv_whole(state, given->cells, 0, INT64_MAX, "cells must be from 0 to 2^63 - 1", &cells)
        || !spv_whole(state, given->hash_funcs, 0, UINT32_MAX, "hash_funcs must be from 0 to 2^32 - 1", &functions))
        return false;
    const long family = spv_member_of(state->Family, given->family, spv_is_family);
    const int partitioned = family < 0 ? -1 : PyObject_IsTrue(given->partitioned);
    if (partitioned < 0)
        return false;
    if (partitioned && !functions) {
        PyErr_SetString(state->ParameterError, "a partitioned layout needs at least one hash function");
        return false;
    }
    if (family == SPV_FAMILY_SPLIT_BLOCK && !spv_is_split_block((uint64_t)cells, (uint32_t)functions, partitioned)) {
        PyErr_SetString(
            state->ParameterError, "a split-block filter must have 8 hash functions and 1 to 2^32 256-bit blocks, and cannot be partitioned");
        return false;
    }
    PyObject *key = spv_named_snapshot(given->key, "key");
    if (key && spv_size(key) == 16) {
        fresh->cells = (uint64_t)cells;
        fresh->hash_funcs = (uint32_t)functions;
        fresh->partitioned = partitioned;
        spv_shape_make(&fresh->shape, (spv_family)family, fresh->cells, fresh->hash_funcs, fresh->partitioned, spv_data(key));
    } else if (key) {
        PyErr_Format(state->ParameterError, "a hash family's key must be 16 bytes long, not %zu", spv_size(key));
    }
    const bool made = key && !PyErr_Occurred();
    Py_XDECREF(key);
    return made;
}

bool spv_read_encoding(const spv_state *state, PyObject *given, PyObject *encode, spv_core *fresh) {
    static const uint8_t encoders[] = {SPV_ENCODE_BYTES, SPV_ENCODE_UTF8, SPV_ENCODE_INT64, SPV_ENCODE_UINT64, SPV_ENCODE_INT32, SPV_ENCODE_UINT32};
    const long encoding = given ? spv_member_of(state->Encoding, given, is_encoding) : 0;
    if (encoding < 0)
        return false;
    if ((encoding == CALLABLE) != (encode != Py_None)) {
        PyErr_SetString(state->ParameterError, "the encoding must be CALLABLE if `encode` is given, and only then");
        return false;
    }
    fresh->encoder = encoding == CALLABLE ? SPV_ENCODE_OWN : encoders[encoding];
    fresh->encode = encoding == CALLABLE ? Py_NewRef(encode) : NULL;
    return true;
}

static bool read_memory(const spv_state *state, const core_arguments *given, spv_core *fresh) {
    const size_t size = spv_bytes_of_cells(fresh->cells, fresh->width);
    const bool own = given->buffer == Py_None;
    const int private = own ? 1 : PyObject_IsTrue(given->private);
    if (private < 0)
        return false;
    fresh->memory = own ? spv_new_memory(state, size) : spv_memory_of(state, given->buffer, size, spv_alignment(fresh->width), &fresh->readonly);
#ifdef Py_GIL_DISABLED
    atomic_init(&fresh->gate.shared, true);
#else
    atomic_init(&fresh->gate.shared, !private);
#endif
    atomic_init(&fresh->room, SPV_UNLIMITED);
    return fresh->memory != NULL;
}

/* Reads the user's functions, if the family is CUSTOM. */
static bool read_functions(const spv_state *state, const core_arguments *given, spv_core *fresh) {
    if (fresh->shape.family != SPV_FAMILY_CUSTOM || !fresh->shape.functions)
        return true;
    PyObject *list = spv_list(state, given->custom);
    fresh->custom = list ? PyList_AsTuple(list) : NULL;
    Py_XDECREF(list);
    if (!fresh->custom)
        return false;
    const Py_ssize_t count = PyTuple_Size(fresh->custom);
    if ((size_t)count != fresh->hash_funcs)
        PyErr_Format(state->ParameterError, "expected %lu hash functions, not %zd", (unsigned long)fresh->hash_funcs, count);
    return (size_t)count == fresh->hash_funcs;
}

bool spv_move_core(const spv_core *fresh, spv_core *core, size_t size) {
    bool moved = false;
    SPV_LOCK(core)
    if (core->encoder == SPV_UNMADE) {
        const size_t head = offsetof(spv_core, memory); /* everything after the header of the object */
        memcpy((char *)core + head, (const char *)fresh + head, size - head);
        moved = true;
    }
    SPV_UNLOCK()
    return moved;
}

/* Reads the width of the cells. */
static bool read_width(const spv_state *state, const core_arguments *given, bool bits, spv_core *fresh) {
    static const char expected[] = "counter_bits must be 4, 8 or 16";
    long long width = bits ? SPV_BITS : 4;
    if (given->counter_bits && !spv_whole(state, given->counter_bits, 4, 16, expected, &width))
        return false;
    if (!bits && width != 4 && width != 8 && width != 16) {
        PyErr_Format(state->ParameterError, "%s, not %lld", expected, width);
        return false;
    }
    fresh->width = (uint8_t)width;
    return true;
}

static int make(PyObject *self, PyObject *arguments, PyObject *names, bool bits) {
    core_arguments given;
    const spv_state *state = spv_core_state(self);
    if (!state || !parse(arguments, names, bits, &given))
        return -1;
    spv_core fresh;
    memset(&fresh, 0, sizeof fresh);
    const bool read = read_width(state, &given, bits, &fresh) && read_shape(state, &given, &fresh) && spv_read_encoding(state, given.encoding, given.encode, &fresh) && read_memory(state, &given, &fresh)
        && read_functions(state, &given, &fresh);
    if (read && spv_move_core(&fresh, (spv_core *)self, sizeof fresh))
        return 0;
    if (read)
        PyErr_SetString(PyExc_TypeError, "a filter's core can be initialized only once");
    spv_core_clear((PyObject *)&fresh);
    return -1;
}

static int make_bits(PyObject *self, PyObject *arguments, PyObject *names) {
    return make(self, arguments, names, true);
}

static int make_counters(PyObject *self, PyObject *arguments, PyObject *names) {
    return make(self, arguments, names, false);
}

static PyMethodDef bit_methods[] = {
    SPV_METHOD(BitCore, add, spv_core_add_method, METH_O),
    SPV_METHOD(BitCore, update, spv_core_update, METH_FASTCALL | METH_KEYWORDS),
    SPV_METHOD(BitCore, contains_many, spv_core_contains_many, METH_FASTCALL | METH_KEYWORDS),
    SPV_METHOD(Hashed, positions, spv_core_positions, METH_O),
    {"_same_shape", spv_core_same_shape, METH_O, NULL},
    {"_make_room", spv_core_refuse, METH_NOARGS, NULL},
    SPV_METHOD(BitCore, set_bits, spv_core_used, METH_NOARGS),
    SPV_METHOD(BitCore, union_set_bits, spv_core_union_set_bits, METH_O),
    SPV_METHOD(BitCore, plane_set_bits, spv_core_plane_set_bits, METH_NOARGS),
    SPV_METHOD(BitCore, clear, spv_core_clear_cells, METH_NOARGS),
    {0},
};

static PyMethodDef counter_methods[] = {
    SPV_METHOD(CounterCore, add, spv_core_add_method, METH_O),
    SPV_METHOD(CounterCore, remove, spv_core_remove, METH_O),
    SPV_METHOD(CounterCore, count, spv_core_count, METH_O),
    SPV_METHOD(CounterCore, update, spv_core_update, METH_FASTCALL | METH_KEYWORDS),
    SPV_METHOD(CounterCore, contains_many, spv_core_contains_many, METH_FASTCALL | METH_KEYWORDS),
    SPV_METHOD(Hashed, positions, spv_core_positions, METH_O),
    {"_same_shape", spv_core_same_shape, METH_O, NULL},
    {"_make_room", spv_core_refuse, METH_NOARGS, NULL},
    SPV_METHOD(CounterCore, set_cells, spv_core_used, METH_NOARGS),
    SPV_METHOD(CounterCore, to_bits, spv_core_to_bits, METH_NOARGS),
    SPV_METHOD(CounterCore, clear, spv_core_clear_cells, METH_NOARGS),
    {0},
};

#define ATTRIBUTE(owner, name, which) {#name, spv_core_attribute, NULL, PyDoc_STR(SPV_DOC_##owner##_##name), (void *)(intptr_t)(which)}
#define ATTRIBUTES \
    ATTRIBUTE(Hashed, cells, SPV_CELLS), ATTRIBUTE(Hashed, hash_funcs, SPV_HASH_FUNCS), ATTRIBUTE(Hashed, family, SPV_FAMILY), \
        ATTRIBUTE(Hashed, key, SPV_KEY), ATTRIBUTE(Hashed, encoding, SPV_ENCODING), ATTRIBUTE(Hashed, partitioned, SPV_PARTITIONED), \
        {"room", spv_core_room, spv_core_set_room, PyDoc_STR(SPV_DOC_Hashed_room), NULL}, \
        {"buffer", spv_core_buffer, spv_core_set_buffer, PyDoc_STR(SPV_DOC_Hashed_buffer), NULL}, \
        {"body", spv_core_body, NULL, PyDoc_STR(SPV_DOC_Hashed_body), NULL}

static PyGetSetDef bit_attributes[] = {ATTRIBUTES, ATTRIBUTE(BitCore, bits, SPV_CELLS), {0}};
static PyGetSetDef counter_attributes[] = {
    ATTRIBUTES, ATTRIBUTE(CounterCore, counter_bits, SPV_COUNTER_BITS), ATTRIBUTE(CounterCore, counter_limit, SPV_COUNTER_LIMIT), {0}};

#define SLOTS(init, methods, attributes, doc) \
    {Py_tp_doc, (void *)(doc)}, {Py_tp_new, (void *)PyType_GenericNew}, {Py_tp_init, (void *)(init)}, {Py_tp_dealloc, (void *)spv_core_end}, \
        {Py_tp_traverse, (void *)spv_core_traverse}, {Py_tp_clear, (void *)spv_core_clear}, {Py_tp_methods, (methods)}, {Py_tp_getset, (attributes)}, \
        {Py_sq_contains, (void *)spv_core_contains}, {Py_nb_inplace_or, (void *)spv_core_or}

static PyType_Slot bit_slots[] = {
    SLOTS(make_bits, bit_methods, bit_attributes, SPV_DOC_BitCore),
    {Py_nb_inplace_and, (void *)spv_core_and},
    {Py_tp_richcompare, (void *)spv_core_compare},
    {Py_tp_hash, (void *)spv_core_hash},
    {0},
};

static PyType_Slot counter_slots[] = {
    SLOTS(make_counters, counter_methods, counter_attributes, SPV_DOC_CounterCore),
    {0},
};

static bool make_type(PyObject *module, PyObject **place, const char *name, PyType_Slot *slots) {
    PyType_Spec spec = {
        .name = name,
        .basicsize = sizeof(spv_core),
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
        .slots = slots,
    };
    return spv_make_type(module, place, &spec, true);
}

int spv_add_cores(PyObject *module, spv_state *state) {
    return spv_make_memory_type(module, state) && make_type(module, &state->BitCore, "spvfilter.kernel.native.BitCore", bit_slots)
            && make_type(module, &state->CounterCore, "spvfilter.kernel.native.CounterCore", counter_slots)
            && spv_make_fuse_type(module, state)
        ? spv_add_series(module, state)
        : -1;
}
