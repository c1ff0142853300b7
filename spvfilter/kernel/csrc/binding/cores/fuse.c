#include "binding/cores/fuse.h"

#include "binding/arguments.h"
#include "binding/cores/attributes.h"
#include "binding/cores/batch.h"
#include "binding/cores/type.h"

enum { HASH_SIZE = 8 };

/* Construction, as in type.c. */

/* pure.fuse._Shape.__init__. */
static bool read_fuse(const spv_state *state, PyObject *bits, PyObject *seed, PyObject *length, PyObject *segments, spv_fuse *fuse) {
    long long numbers[4];
    if (!spv_whole(state, bits, 8, 32, "a fingerprint must be 8, 16 or 32 bits long", numbers)
        || !spv_whole(state, seed, 0, UINT32_MAX, "seed must be from 0 to 2^32 - 1", numbers + 1)
        || !spv_whole(state, length, 1, SPV_FUSE_SEGMENT, "a segment must have 1 to 2^18 cells", numbers + 2)
        || !spv_whole(state, segments, 0, UINT32_MAX, "segments must be from 0 to 2^32 - 1", numbers + 3))
        return false;
    *fuse = (spv_fuse){
        .seed = (uint32_t)numbers[1], .length = (uint32_t)numbers[2], .segments = (uint32_t)numbers[3], .width = (unsigned)numbers[0] / 8};
    if (numbers[0] != 8 && numbers[0] != 16 && numbers[0] != 32)
        PyErr_Format(state->ParameterError, "a fingerprint must be 8, 16 or 32 bits long, not %lld", numbers[0]);
    else if (numbers[2] & (numbers[2] - 1))
        PyErr_Format(state->ParameterError, "the number of cells in a segment must be a power of two, not %lld", numbers[2]);
    else if (spv_fuse_cells(fuse) > UINT32_MAX)
        PyErr_Format(state->ParameterError, "a table must have fewer than 2^32 cells, not %llu", (unsigned long long)spv_fuse_cells(fuse));
    else
        return true;
    return false;
}

static bool read_family(const spv_state *state, PyObject *given, PyObject *given_key, spv_core *fresh) {
    const long family = spv_member_of(state->Family, given, spv_is_family);
    if (family < 0)
        return false;
    if (family != SPV_FAMILY_FAST && family != SPV_FAMILY_SIPHASH && family != SPV_FAMILY_CUSTOM) {
        PyErr_SetString(state->ParameterError, "a static filter needs 64-bit hashes: use FastHash, SipHash or CustomHash");
        return false;
    }
    PyObject *key = spv_named_snapshot(given_key, "key");
    const bool fits = key && spv_size(key) == 16;
    if (fits)
        spv_shape_make(&fresh->shape, (spv_family)family, 1, 1, false, spv_data(key));
    else if (key)
        PyErr_Format(state->ParameterError, "a hash family's key must be 16 bytes long, not %zu", spv_size(key));
    Py_XDECREF(key);
    return fits;
}

static bool read_custom(const spv_state *state, PyObject *custom, spv_core *fresh) {
    const bool own = fresh->shape.family == SPV_FAMILY_CUSTOM;
    if (own != (custom != Py_None)) {
        PyErr_SetString(state->ParameterError, "the family must be CUSTOM if `custom` is given, and only then");
        return false;
    }
    fresh->custom = own ? Py_NewRef(custom) : NULL;
    return true;
}

static bool read_table(const spv_state *state, PyObject *buffer, spv_fuse_core *fresh) {
    fresh->core.cells = spv_fuse_cells(&fresh->fuse) * fresh->fuse.width;
    fresh->core.memory = spv_memory_of(state, buffer, (size_t)fresh->core.cells, 1, &fresh->core.readonly);
    fresh->core.readonly = true;
    atomic_init(&fresh->core.gate.shared, true);
    atomic_init(&fresh->core.room, SPV_UNLIMITED);
    return fresh->core.memory != NULL;
}

static int make(PyObject *self, PyObject *arguments, PyObject *names) {
    static char *keywords[] = {"fingerprint_bits", "seed",   "segment_length", "segments", "family", "key",
                               "buffer",           "encoding", "custom",       "encode",   NULL};
    PyObject *bits, *seed, *length, *segments, *family, *key, *buffer, *encoding = NULL, *custom = Py_None, *encode = Py_None;
    const spv_state *state = spv_core_state(self);
    if (!state
        || !PyArg_ParseTupleAndKeywords(
            arguments, names, "OOOOOOO|OOO", keywords, &bits, &seed, &length, &segments, &family, &key, &buffer, &encoding, &custom, &encode))
        return -1;
    spv_fuse_core fresh;
    memset(&fresh, 0, sizeof fresh);
    fresh.core.width = SPV_FINGERPRINTS;
    const bool read = read_fuse(state, bits, seed, length, segments, &fresh.fuse) && read_family(state, family, key, &fresh.core)
        && spv_read_encoding(state, encoding, encode, &fresh.core) && read_custom(state, custom, &fresh.core) && read_table(state, buffer, &fresh);
    if (read && spv_move_core(&fresh.core, (spv_core *)self, sizeof fresh))
        return 0;
    if (read)
        PyErr_SetString(PyExc_TypeError, "a filter's core can be initialized only once");
    spv_core_clear((PyObject *)&fresh);
    return -1;
}

/* Keys. */

static bool own_hash(PyObject *function, const spv_held *held, uint64_t *hash) {
    PyObject *data = PyBytes_FromStringAndSize((const char *)held->data, (Py_ssize_t)held->size);
    PyObject *result = data ? PyObject_CallFunctionObjArgs(function, data, NULL) : NULL;
    PyObject *whole = result ? PyNumber_Index(result) : NULL;
    Py_XDECREF(data);
    Py_XDECREF(result);
    if (!whole)
        return false;
    *hash = PyLong_AsUnsignedLongLongMask(whole);
    Py_DECREF(whole);
    return true;
}

bool spv_fuse_hash_held(spv_core *core, const spv_held *held, uint64_t *hash) {
    if (core->custom)
        return own_hash(core->custom, held, hash);
    *hash = spv_fuse_hash(&core->shape, held->data, held->size);
    return true;
}

int spv_fuse_contains_held(spv_fuse_core *fused, const spv_held *held) {
    uint64_t hash;
    if (!spv_fuse_hash_held(&fused->core, held, &hash))
        return -1;
    if (!spv_check_made(&fused->core)) /* the user's function may have cleared it */
        return -1;
    return spv_fuse_has(&fused->fuse, fused->core.memory->cells, hash);
}

static int contains(PyObject *self, PyObject *key) {
    spv_fuse_core *fused = (spv_fuse_core *)self;
    uint8_t number[8];
    spv_bytes quick;
    spv_held held;
    if (SPV_LIKELY(fused->core.memory && spv_hold_quick(&fused->core, key, number, &quick)))
        return spv_fuse_has(&fused->fuse, fused->core.memory->cells, spv_fuse_hash(&fused->core.shape, quick.data, quick.size));
    if (!spv_hold((spv_core *)self, key, &held))
        return -1;
    const int found = spv_fuse_contains_held((spv_fuse_core *)self, &held);
    spv_let_go(&held);
    return found;
}

/* Building. */

/* A snapshot of hashes; NULL with an exception set. */
static PyObject *hashes_of(const spv_state *state, PyObject *given) {
    PyObject *hashes = spv_snapshot(given);
    if (hashes && spv_size(hashes) % HASH_SIZE) {
        PyErr_Format(state->ParameterError, "hashes must be a multiple of 8 bytes long, not %zu", spv_size(hashes));
        Py_CLEAR(hashes);
    }
    return hashes;
}

static PyObject *fuse_merge(PyObject *module, PyObject *given) {
    const spv_state *state = spv_module_state(module);
    PyObject *hashes = hashes_of(state, given), *merged = hashes ? PyBytes_FromStringAndSize(NULL, PyBytes_Size(hashes)) : NULL;
    if (merged) {
        const size_t count = spv_size(hashes) / HASH_SIZE;
        const uint8_t *data = spv_data(hashes);
        uint8_t *to = (uint8_t *)PyBytes_AsString(merged);
        size_t distinct = 0;
        spv_status status = SPV_OK;
        Py_BEGIN_ALLOW_THREADS
        if (count) /* the bytes object without bytes is shared */
            status = spv_fuse_merge(data, count, to, &distinct);
        Py_END_ALLOW_THREADS
        if (status)
            Py_XSETREF(merged, spv_raise(state, status, NULL));
        else if (distinct < count)
            Py_XSETREF(merged, PyBytes_FromStringAndSize((const char *)to, (Py_ssize_t)(distinct * HASH_SIZE)));
    }
    Py_XDECREF(hashes);
    return merged;
}

static PyObject *build(const spv_state *state, PyObject *hashes, const spv_fuse *fuse, PyObject *buffer) {
    Py_buffer table;
    if (PyObject_GetBuffer(buffer, &table, PyBUF_WRITABLE))
        return NULL;
    const size_t size = (size_t)spv_fuse_cells(fuse) * fuse->width;
    PyObject *built = NULL;
    if ((size_t)table.len != size) {
        PyErr_Format(state->ParameterError, "expected a buffer of %zu bytes, not %zd", size, table.len);
    } else {
        const uint8_t *data = spv_data(hashes);
        const size_t count = spv_size(hashes) / HASH_SIZE;
        spv_status status;
        Py_BEGIN_ALLOW_THREADS
        status = spv_fuse_build(fuse, data, count, table.buf);
        Py_END_ALLOW_THREADS
        built = status == SPV_NOMEM ? spv_raise(state, status, NULL) : PyBool_FromLong(status == SPV_OK);
    }
    PyBuffer_Release(&table);
    return built;
}

static PyObject *fuse_build(PyObject *module, PyObject *arguments, PyObject *names) {
    static char *keywords[] = {"hashes", "fingerprint_bits", "seed", "segment_length", "segments", "buffer", NULL};
    const spv_state *state = spv_module_state(module);
    PyObject *given, *bits, *seed, *length, *segments, *buffer;
    spv_fuse fuse;
    if (!PyArg_ParseTupleAndKeywords(arguments, names, "OOOOOO", keywords, &given, &bits, &seed, &length, &segments, &buffer)
        || !read_fuse(state, bits, seed, length, segments, &fuse))
        return NULL;
    PyObject *hashes = hashes_of(state, given), *built = hashes ? build(state, hashes, &fuse, buffer) : NULL;
    Py_XDECREF(hashes);
    return built;
}

/* The type. */

enum { SEED, LENGTH, SEGMENTS, PRINT_BITS };

static PyObject *number(PyObject *self, void *which) {
    if (!spv_check_made((spv_core *)self))
        return NULL;
    const spv_fuse *fuse = &((spv_fuse_core *)self)->fuse;
    const uint32_t numbers[] = {[SEED] = fuse->seed, [LENGTH] = fuse->length, [SEGMENTS] = fuse->segments, [PRINT_BITS] = 8 * fuse->width};
    return PyLong_FromUnsignedLong(numbers[(intptr_t)which]);
}

bool spv_make_fuse_type(PyObject *module, spv_state *state) {
    static PyMethodDef methods[] = {
        SPV_METHOD(FuseCore, contains_many, spv_core_contains_many, METH_FASTCALL | METH_KEYWORDS),
        SPV_METHOD(FuseCore, hash_many, spv_core_hash_many, METH_FASTCALL | METH_KEYWORDS),
        {0},
    };
    static PyMethodDef functions[] = {
        SPV_FUNCTION(fuse_merge, METH_O),
        SPV_FUNCTION(fuse_build, METH_VARARGS | METH_KEYWORDS),
        {0},
    };
#define ATTRIBUTE(name, get, which) {#name, get, NULL, PyDoc_STR(SPV_DOC_FuseCore_##name), (void *)(intptr_t)(which)}
    static PyGetSetDef attributes[] = {
        ATTRIBUTE(family, spv_core_attribute, SPV_FAMILY),
        ATTRIBUTE(key, spv_core_attribute, SPV_KEY),
        ATTRIBUTE(encoding, spv_core_attribute, SPV_ENCODING),
        ATTRIBUTE(fingerprint_bits, number, PRINT_BITS),
        ATTRIBUTE(seed, number, SEED),
        ATTRIBUTE(segment_length, number, LENGTH),
        ATTRIBUTE(segments, number, SEGMENTS),
        ATTRIBUTE(body, spv_core_body, 0),
        {0},
    };
    static PyType_Slot slots[] = {
        {Py_tp_doc, (void *)SPV_DOC_FuseCore},
        {Py_tp_new, (void *)PyType_GenericNew},
        {Py_tp_init, (void *)make},
        {Py_tp_dealloc, (void *)spv_core_end},
        {Py_tp_traverse, (void *)spv_core_traverse},
        {Py_tp_clear, (void *)spv_core_clear},
        {Py_tp_methods, methods},
        {Py_tp_getset, attributes},
        {Py_sq_contains, (void *)contains},
        {0},
    };
    static PyType_Spec spec = {
        .name = "spvfilter.kernel.native.FuseCore",
        .basicsize = sizeof(spv_fuse_core),
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
        .slots = slots,
    };
    return spv_make_type(module, &state->FuseCore, &spec, true) && !PyModule_AddFunctions(module, functions);
}
