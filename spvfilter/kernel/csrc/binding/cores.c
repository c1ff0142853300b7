/* BitCore and CounterCore as Python types: their making and their end. The twins are pure/bits.py's classes. */
#include "binding/cores.h"

#include <stddef.h>

static PyTypeObject *types[4]; /* by shift: CounterCore at 1, BitCore at 3 */

bool spv_is_core(PyObject *object, unsigned shift) {
    return PyObject_TypeCheck(object, types[shift]);
}

/* How keys become bytes; SPV_UNMADE with KeyError where that is the user's own and he gave none. */
static spv_encoder encoder_of(PyObject *encoding, PyObject *encode) {
    if (encode)
        return SPV_ENCODE_OWN;
    switch (PyLong_AsLong(encoding)) { /* values.Encoding */
    case 0:
        return SPV_ENCODE_BYTES;
    case 1:
        return SPV_ENCODE_UTF8;
    case 2:
        return SPV_ENCODE_INT64;
    case 3:
        return SPV_ENCODE_UINT64;
    default:
        PyErr_SetObject(PyExc_KeyError, encoding);
        return SPV_UNMADE;
    }
}

typedef struct {
    PyObject *cells, *hash_funcs, *family, *key, *buffer, *encoding, *custom, *encode;
    int partitioned, private;
} core_arguments;

/* The values, some of which Python code makes, into `fresh`, which owns what it gets. */
static bool understand(const core_arguments *given, unsigned shift, spv_core *fresh) {
    fresh->shift = shift;
    fresh->partitioned = given->partitioned;
    fresh->cells = PyLong_AsUnsignedLongLong(given->cells);
    if (fresh->cells == UINT64_MAX && PyErr_Occurred())
        return false;
    const unsigned long functions = PyLong_AsUnsignedLong(given->hash_funcs);
    if (functions == ULONG_MAX && PyErr_Occurred())
        return false;
    if (functions > UINT32_MAX) {
        PyErr_SetString(PyExc_OverflowError, "too many hash functions");
        return false;
    }
    fresh->hash_funcs = (uint32_t)functions;
    fresh->family = PyObject_CallFunctionObjArgs(spv_known.Family, given->family, NULL);
    fresh->encoding = !fresh->family      ? NULL
                      : !given->encoding ? PyObject_CallFunction(spv_known.Encoding, "i", 0)
                                         : PyObject_CallFunctionObjArgs(spv_known.Encoding, given->encoding, NULL);
    if (!fresh->encoding)
        return false;
    if (!spv_view_of(given->buffer, spv_size_of(fresh->cells, shift), &fresh->view))
        return false;
    fresh->buffer = Py_NewRef(given->buffer);
    if (given->partitioned && !functions) {
        PyErr_SetString(PyExc_ZeroDivisionError, "integer division or modulo by zero");
        return false;
    }
    fresh->key = Py_NewRef(given->key);
    fresh->encode = given->encode != Py_None ? Py_NewRef(given->encode) : NULL;
    fresh->encoder = encoder_of(fresh->encoding, fresh->encode);
    if (fresh->encoder == SPV_UNMADE)
        return false;
    const spv_family family = (spv_family)PyLong_AsLong(fresh->family);
    uint8_t key[16] = {0};
    const size_t key_size = (size_t)PyBytes_Size(given->key);
    memcpy(key, PyBytes_AsString(given->key), key_size < sizeof key ? key_size : sizeof key);
    spv_shape_make(&fresh->shape, family, fresh->cells, fresh->hash_funcs, fresh->partitioned, key);
    if (family == SPV_FAMILY_CUSTOM) {
        fresh->custom = PySequence_Tuple(given->custom);
        if (!fresh->custom)
            return false;
        if (fresh->shape.functions && PyTuple_Size(fresh->custom) != (Py_ssize_t)functions) {
            PyErr_Format(spv_known.ParameterError, "%lu hash functions expected, not %zd", functions, PyTuple_Size(fresh->custom));
            return false;
        }
    }
    return true;
}

static void drop(spv_core *core) {
    PyBuffer_Release(&core->view);
    Py_CLEAR(core->buffer);
    Py_CLEAR(core->family);
    Py_CLEAR(core->key);
    Py_CLEAR(core->encoding);
    Py_CLEAR(core->custom);
    Py_CLEAR(core->encode);
}

static int make(PyObject *self, PyObject *arguments, PyObject *names, unsigned shift) {
    static char *known[] = {"cells", "hash_funcs", "family", "key", "buffer", "encoding", "partitioned", "custom", "encode", "private", NULL};
    core_arguments given = {.custom = Py_None, .encode = Py_None};
    if (!PyArg_ParseTupleAndKeywords(
            arguments, names, "OOOSO|OpOOp", known, &given.cells, &given.hash_funcs, &given.family, &given.key, &given.buffer,
            &given.encoding, &given.partitioned, &given.custom, &given.encode, &given.private))
        return -1;
    spv_core *core = (spv_core *)self, fresh;
    memset(&fresh, 0, sizeof fresh);
    bool again = false, understood = understand(&given, shift, &fresh);
    SPV_LOCK(core)
    again = core->encoder != SPV_UNMADE;
    if (understood && !again) {
        core->shift = fresh.shift;
        core->partitioned = fresh.partitioned;
        core->hash_funcs = fresh.hash_funcs;
        core->cells = fresh.cells;
        core->shape = fresh.shape;
        core->view = fresh.view;
        core->buffer = fresh.buffer;
        core->family = fresh.family;
        core->key = fresh.key;
        core->encoding = fresh.encoding;
        core->custom = fresh.custom;
        core->encode = fresh.encode;
#ifdef Py_GIL_DISABLED
        given.private = 0;
#endif
        atomic_init(&core->gate.shared, !given.private);
        core->encoder = fresh.encoder;
    }
    SPV_UNLOCK()
    if (understood && !again)
        return 0;
    drop(&fresh);
    if (understood)
        PyErr_SetString(PyExc_TypeError, "a filter's core is made once");
    return -1;
}

static int make_bits(PyObject *self, PyObject *arguments, PyObject *names) {
    return make(self, arguments, names, 3);
}

static int make_counters(PyObject *self, PyObject *arguments, PyObject *names) {
    return make(self, arguments, names, 1);
}

static int traverse(PyObject *self, visitproc visit, void *arg) {
    spv_core *core = (spv_core *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(core->view.obj);
    Py_VISIT(core->buffer);
    Py_VISIT(core->family);
    Py_VISIT(core->encoding);
    Py_VISIT(core->custom);
    Py_VISIT(core->encode);
    return 0;
}

static int clear(PyObject *self) {
    ((spv_core *)self)->encoder = SPV_UNMADE; /* whatever still calls it finds nothing */
    drop((spv_core *)self);
    return 0;
}

static void end(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    clear(self);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

/* Only `<=` is defined here: then a type would else have no hash. */
static Py_hash_t hash(PyObject *self) {
    return ((hashfunc)PyType_GetSlot(&PyBaseObject_Type, Py_tp_hash))(self);
}

#define METHOD(name, function, how, signature, doc) {name, function, how, PyDoc_STR(name signature "\n--\n\n" doc)}

static PyMethodDef bit_methods[] = {
    METHOD("add", spv_core_add_method, METH_O, "($self, key, /)", "Set the key's bits; True if it was new."),
    METHOD("update", spv_core_update, METH_O, "($self, keys, /)", "Add a batch; how many were new."),
    METHOD("contains_many", spv_core_contains_many, METH_O, "($self, keys, /)", "For each key of a batch one byte, 1 if it is contained, else 0."),
    METHOD("positions", spv_core_positions, METH_O, "($self, key, /)", "The bits of a key, one of each function, in their order."),
    METHOD("same_shape", spv_core_same_shape, METH_O, "($self, other, /)", "Raises MismatchError unless both put every key into the same bits."),
    METHOD("set_bits", spv_core_used, METH_NOARGS, "($self, /)", "How many bits are 1."),
    METHOD("union_set_bits", spv_core_union_set_bits, METH_O, "($self, other, /)", "How many bits are 1 in either."),
    METHOD("plane_set_bits", spv_core_plane_set_bits, METH_NOARGS, "($self, /)", "How many bits are 1 in each function's plane."),
    METHOD("clear", spv_core_clear, METH_NOARGS, "($self, /)", "Set every bit to 0."),
    {0},
};

static PyMethodDef counter_methods[] = {
    METHOD("add", spv_core_add_method, METH_O, "($self, key, /)", "Count the key once more; True if it was new."),
    METHOD("remove", spv_core_remove, METH_O, "($self, key, /)", "Count the key once less; KeyError if it is not contained."),
    METHOD("count", spv_core_count, METH_O, "($self, key, /)", "How often the key was added, at most; 15 means 15 or more."),
    METHOD("update", spv_core_update, METH_O, "($self, keys, /)", "Add a batch; how many were new."),
    METHOD("contains_many", spv_core_contains_many, METH_O, "($self, keys, /)", "For each key of a batch one byte, 1 if it is contained, else 0."),
    METHOD("positions", spv_core_positions, METH_O, "($self, key, /)", "The counters of a key, one of each function, in their order."),
    METHOD("same_shape", spv_core_same_shape, METH_O, "($self, other, /)", "Raises MismatchError unless both put every key into the same counters."),
    METHOD("set_cells", spv_core_used, METH_NOARGS, "($self, /)", "How many counters are not 0."),
    METHOD("to_bits", spv_core_to_bits, METH_NOARGS, "($self, /)", "A bit for each counter, set where it is not 0."),
    METHOD("clear", spv_core_clear, METH_NOARGS, "($self, /)", "Set every counter to 0."),
    {0},
};

#define ATTRIBUTE(name, which) {name, spv_core_attribute, NULL, NULL, (void *)(intptr_t)(which)}
#define ATTRIBUTES \
    ATTRIBUTE("cells", SPV_CELLS), ATTRIBUTE("hash_funcs", SPV_HASH_FUNCS), ATTRIBUTE("family", SPV_FAMILY), ATTRIBUTE("key", SPV_KEY), \
        ATTRIBUTE("encoding", SPV_ENCODING), ATTRIBUTE("partitioned", SPV_PARTITIONED), \
        {"buffer", spv_core_buffer, spv_core_set_buffer, NULL, NULL}, {"body", spv_core_body, NULL, NULL, NULL}

static PyGetSetDef bit_attributes[] = {ATTRIBUTES, ATTRIBUTE("bits", SPV_CELLS), {0}};
static PyGetSetDef counter_attributes[] = {ATTRIBUTES, {0}};

#define SLOTS(init, methods, attributes, doc) \
    {Py_tp_doc, (void *)(doc)}, {Py_tp_new, (void *)PyType_GenericNew}, {Py_tp_init, (void *)(init)}, {Py_tp_dealloc, (void *)end}, \
        {Py_tp_traverse, (void *)traverse}, {Py_tp_clear, (void *)clear}, {Py_tp_methods, (methods)}, {Py_tp_getset, (attributes)}, \
        {Py_sq_contains, (void *)spv_core_contains}, {Py_nb_inplace_or, (void *)spv_core_or}

static PyType_Slot bit_slots[] = {
    SLOTS(make_bits, bit_methods, bit_attributes, "A bit array with k hash functions; its readable twin is pure.bits.BitCore."),
    {Py_nb_inplace_and, (void *)spv_core_and},
    {Py_tp_richcompare, (void *)spv_core_compare},
    {Py_tp_hash, (void *)hash},
    {0},
};

static PyType_Slot counter_slots[] = {
    SLOTS(make_counters, counter_methods, counter_attributes, "An array of 4-bit counters with k hash functions; its readable twin is pure.bits.CounterCore."),
    {0},
};

static int add_type(PyObject *module, const char *name, PyType_Slot *slots, unsigned shift) {
    PyType_Spec spec = {
        .name = shift == 3 ? "spvfilter.kernel.native.BitCore" : "spvfilter.kernel.native.CounterCore",
        .basicsize = sizeof(spv_core),
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
        .slots = slots,
    };
    PyObject *type = PyType_FromSpec(&spec);
    if (!type)
        return -1;
    types[shift] = (PyTypeObject *)type; /* borrowed from the module from here on */
    const int failed = PyModule_AddObjectRef(module, name, type);
    Py_DECREF(type);
    return failed;
}

int spv_add_cores(PyObject *module) {
    return add_type(module, "BitCore", bit_slots, 3) || add_type(module, "CounterCore", counter_slots, 1) ? -1 : 0;
}
