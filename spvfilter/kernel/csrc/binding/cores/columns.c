#include "binding/cores/columns.h"

#include "binding/arguments.h"

#include "bloom/column/arrow.h"

static const char *const KINDS[] = {"text", "binary", "integers", "nulls"}; /* spv_kind */

/* pure.columns.check_kind: false with TypeError if the encoding does not take keys of this kind. */
static bool check_kind(const spv_core *core, spv_kind kind) {
    const char *wanted = NULL;
    switch (core->encoder) {
    case SPV_ENCODE_BYTES:
        wanted = kind == SPV_BINARY ? NULL : "expected a column of binary, not of %s: other keys need `encode`";
        break;
    case SPV_ENCODE_UTF8:
        wanted = kind == SPV_TEXT ? NULL : "expected a column of text, not of %s: the filter encodes its keys as utf-8";
        break;
    case SPV_ENCODE_INT64:
    case SPV_ENCODE_UINT64:
    case SPV_ENCODE_INT32:
    case SPV_ENCODE_UINT32:
        wanted = kind == SPV_INTEGERS ? NULL : "expected a column of integers, not of %s: the filter encodes its keys as integers";
        break;
    default:
        break;
    }
    if (!wanted || kind == SPV_NOTHING)
        return true;
    PyErr_Format(PyExc_TypeError, wanted, KINDS[kind]);
    return false;
}

static spv_number number_of(const spv_core *core) {
    return spv_takes_numbers(core) ? (spv_number)(SPV_AS_INT64 + (core->encoder - SPV_ENCODE_INT64)) : SPV_AS_THEY_ARE;
}

/* Sets the exception for a row or an array that is refused. */
static void refuse(const spv_core *core, spv_status status, const spv_error *error) {
    const spv_state *state = spv_core_state((PyObject *)(uintptr_t)core);
    if (!state)
        return;
    if (status == SPV_FLAW) {
        PyErr_Format(PyExc_TypeError, "key %zu is null, which is not a key: nulls='skip' leaves nulls out", error->offset);
        return;
    }
    if (status == SPV_RANGE) {
        PyErr_Format(state->KeyRangeError, "key %zu: %s", error->offset, error->message);
        return;
    }
    PyObject *arguments = Py_BuildValue("(s)", error->message), *names = Py_BuildValue("{s:n,s:s}", "row", (Py_ssize_t)error->offset, "field", error->field);
    PyObject *raised = arguments && names ? PyObject_Call(state->ColumnError, arguments, names) : NULL;
    if (raised)
        PyErr_SetObject(state->ColumnError, raised);
    Py_XDECREF(raised);
    Py_XDECREF(arguments);
    Py_XDECREF(names);
}

/* Keys. */

/* A key as an object of the type that `add` takes: str, bytes or int. */
static PyObject *object_of(const spv_column *column, const spv_bytes *key) {
    if (column->values)
        column = column->values;
    switch (column->kind) {
    case SPV_TEXT:
        return PyUnicode_DecodeUTF8((const char *)key->data, (Py_ssize_t)key->size, NULL);
    case SPV_BINARY:
        return PyBytes_FromStringAndSize((const char *)key->data, (Py_ssize_t)key->size);
    default:
        return column->is_signed ? PyLong_FromLongLong((int64_t)spv_le64(key->data)) : PyLong_FromUnsignedLongLong(spv_le64(key->data));
    }
}

/* Processes keys one by one, because the user's functions are called for them. */
static bool run_each(spv_run *run, const spv_column *column, const spv_column_keys *taken) {
    bool done = true;
    for (size_t row = 0, at = 0; done && row < taken->rows; row++) {
        if (!taken->present[row]) {
            done = spv_run_skip(run);
            continue;
        }
        const spv_bytes *key = taken->keys + at++;
        if (run->core->encoder == SPV_ENCODE_OWN) {
            PyObject *object = object_of(column, key);
            done = object && spv_run_one(run, object);
            Py_XDECREF(object);
        } else {
            const spv_held held = {.data = key->data, .size = key->size};
            done = spv_run_held(run, &held);
        }
        done = done && spv_step(&run->pace);
    }
    return done;
}

/* Moves the answers of the keys to their rows. */
static void spread(spv_run *run, const spv_column_keys *taken) {
    uint8_t *mask = run->mask + (run->answers - taken->count);
    for (size_t row = taken->rows, at = taken->count; row > at;) {
        row--;
        mask[row] = taken->present[row] ? mask[--at] : 0;
    }
    run->answers += taken->rows - taken->count;
}

static bool run_taken(spv_run *run, const spv_column *column, const spv_column_keys *taken) {
    if (run->core->custom || run->core->encoder == SPV_ENCODE_OWN)
        return run_each(run, column, taken);
    const size_t effort = taken->effort + taken->count * spv_effort_of(run->core, 0);
    if (!spv_run_make_room(run, taken->rows) || !spv_run_many(run, &(spv_keys){.keys = taken->keys}, 0, taken->count, effort))
        return false;
    if (run->asks && run->width == 1 && taken->rows) /* without rows there may be no mask yet; skipped nulls have no hashes */
        spread(run, taken);
    return !PyErr_CheckSignals();
}

static bool run_rows(spv_run *run, const spv_column *column) {
    const size_t count = column->length, slice = SPV_EFFORT / spv_effort_of(run->core, column->width) + 1;
    const spv_keys keys = {.rows = column->items, .width = column->width};
    for (size_t at = 0, now; at < count; at += now) {
        now = count - at < slice ? count - at : slice;
        if (!spv_run_many(run, &keys, at, now, now * spv_effort_of(run->core, column->width)))
            return false;
    }
    return true;
}

static bool run_keys(spv_run *run, const spv_column *column) {
    spv_column_keys taken = {.skip = run->skip, .number = number_of(run->core)};
    void *memory = PyMem_Malloc(spv_column_room(column));
    if (!memory) {
        PyErr_NoMemory();
        return false;
    }
    spv_column_lay_out(column, memory, &taken);
    bool done = true;
    for (size_t from = 0; done && from < column->length; from += taken.rows) {
        spv_error error;
        const spv_status status = spv_column_take(column, from, &taken, &error);
        done = run_taken(run, column, &taken);
        if (done && status != SPV_OK) {
            refuse(run->core, status, &error);
            done = false;
        }
    }
    PyMem_Free(memory);
    return done;
}

static bool run_column(spv_run *run, const spv_column *column) {
    const spv_core *core = run->core;
    if (!check_kind(core, column->kind))
        return false;
    const bool plain = !core->custom && core->encoder != SPV_ENCODE_OWN && spv_column_is_plain(column, number_of(core));
    const bool done = !column->length || (plain ? run_rows(run, column) : run_keys(run, column));
    run->rows += column->length;
    return done;
}

/* Buffers. */

/* True for byte strings of a fixed width, which NumPy calls S. */
static bool is_padded(const Py_buffer *view, const char *kind) {
    const size_t digits = strspn(kind, "0123456789");
    return view->ndim == 1 && digits && !strcmp(kind + digits, "s");
}

/* False with an exception set if the caller did not say whether the zeros at the end belong to the keys. */
static bool check_padding(const spv_run *run, const Py_buffer *view) {
    if (!check_kind(run->core, SPV_BINARY))
        return false;
    if (run->padding != SPV_PADDING_UNSAID)
        return true;
    PyErr_Format(
        PyExc_TypeError,
        "NumPy's S hides zeros at the end of keys: pass padding='keep' if each key has the full width, or padding='strip' for text; or"
        " pass .view('V%zd') or uint8[n, %zd]",
        view->itemsize,
        view->itemsize
    );
    return false;
}

/* pure.columns.of_buffer: the column in a buffer, from its format without the mark of its byte order. False if its
   items cannot be keys here. */
static bool describe(const spv_core *core, const Py_buffer *view, const char *kind, bool strict, spv_column *column) {
    const size_t digits = strspn(kind, "0123456789");
    const char letter = kind[digits] && !kind[digits + 1] ? kind[digits] : '?';
    const bool bytes = core->encoder == SPV_ENCODE_BYTES;
    if (view->ndim == 2 && bytes && !strict && !digits && strchr("Bbc", letter)) {
        column->width = (size_t)view->shape[1];
        column->inner = view->strides ? view->strides[1] : 1;
        return true;
    }
    if (view->ndim != 1)
        return false;
    if (digits && (letter == 's' || letter == 'x'))
        return true; /* `spv_run_view` decides about the zeros at the end */
    if (letter == 'w') {
        column->layout = SPV_WIDE;
        column->kind = SPV_TEXT;
        return view->itemsize % 4 == 0;
    }
    if (digits || letter == '?')
        return false;
    if (bytes && !strict)
        return strchr("hHiIlLqQ", letter) && !column->swapped;
    column->layout = SPV_NUMBERS;
    column->kind = SPV_INTEGERS;
    column->is_signed = strchr("bhilqn", letter) != NULL;
    return strchr("bBhHiIlLqQnN", letter) && (view->itemsize == 1 || view->itemsize == 2 || view->itemsize == 4 || view->itemsize == 8);
}

static bool refuse_view(const spv_core *core, const Py_buffer *view, const char *format, bool strict) {
    const char *wanted = "an iterable of keys for `encode`, or a row of text, byte strings or integers";
    if (core->encoder == SPV_ENCODE_BYTES)
        wanted = strict ? "a row of byte strings" : "n×w bytes in two dimensions, or integers or byte strings in one";
    else if (core->encoder == SPV_ENCODE_UTF8)
        wanted = "an iterable of keys for `encode`, or text in one dimension";
    else if (core->encoder != SPV_ENCODE_OWN)
        wanted = "integers in one dimension";
    PyObject *shown = PyUnicode_FromString(format);
    const char *plural = view->ndim == 1 ? "" : "s";
    static const char message[] = "a batch of keys for this filter must be %s, not a buffer of %R with %d dimension%s";
    if (shown)
        PyErr_Format(PyExc_TypeError, message, wanted, shown, view->ndim, plural);
    Py_XDECREF(shown);
    return false;
}

bool spv_run_view(spv_run *run, const Py_buffer *view, bool strict) {
    const char *format = view->format ? view->format : "B", *kind = format + strspn(format, "@=<>!");
    spv_column column = {
        .layout = SPV_FIXED, .kind = SPV_BINARY, .first = run->rows, .items = view->buf, .width = (size_t)view->itemsize, .inner = 1,
        .swapped = format[0] == '>' || format[0] == '!',
    };
    for (int i = 0; view->suboffsets && i < view->ndim; i++)
        if (view->suboffsets[i] >= 0) {
            PyErr_SetString(PyExc_TypeError, "a buffer of keys must not contain pointers (suboffsets)");
            return false;
        }
    if (is_padded(view, kind)) {
        if (!check_padding(run, view))
            return false;
        column.trimmed = run->padding == SPV_PADDING_STRIP;
    }
    if (!describe(run->core, view, kind, strict, &column))
        return refuse_view(run->core, view, format, strict);
    column.length = (size_t)view->shape[0];
    column.stride = view->strides ? view->strides[0] : (ptrdiff_t)column.width;
    return run_column(run, &column);
}

/* Arrow */

/* Like `refuse`, for a type that cannot hold keys. */
static bool refuse_type(const spv_core *core, spv_status status, const spv_error *error) {
    if (status != SPV_FLAW)
        refuse(core, status, error);
    else if (!strcmp(error->field, "columns"))
        PyErr_Format(PyExc_TypeError, "keys: expected one column, got %s: choose one of them", error->message);
    else
        PyErr_Format(PyExc_TypeError, "keys: expected a column of text, binary or integers, not of Arrow's type '%s'", error->message);
    return false;
}

static bool read_type(spv_run *run, const struct ArrowSchema *schema, spv_arrow_type *type) {
    spv_error error;
    const spv_status status = spv_arrow_type_of(schema, type, &error);
    if (status != SPV_OK)
        return refuse_type(run->core, status, &error);
    return check_kind(run->core, (type->named ? &type->values : &type->keys)->kind);
}

static bool run_arrow(spv_run *run, const spv_arrow_type *type, const struct ArrowArray *array) {
    spv_column column, values;
    spv_error error;
    const spv_status status = spv_arrow_column(type, array, run->rows, &column, &values, &error);
    if (status == SPV_OK)
        return run_column(run, &column);
    refuse(run->core, status, &error);
    return false;
}

/* Releases a producer's struct. That may run Python code, so it keeps the exception that is set. */
#define RELEASE(given) \
    do { \
        PyObject *type, *value, *trace; \
        PyErr_Fetch(&type, &value, &trace); \
        if ((given)->release) \
            (given)->release(given); \
        PyErr_Restore(type, value, trace); \
    } while (0)

/* Moves the struct out of a capsule, so that the capsule does not release it. False with an exception set. */
#define MOVE(capsule, name, to) \
    do { \
        void *held = PyCapsule_GetPointer(capsule, name); \
        if (held) { \
            SPV_LOCK(capsule) \
            memcpy(to, held, sizeof *(to)); \
            memset((char *)held + offsetof(__typeof__(*(to)), release), 0, sizeof (to)->release); \
            SPV_UNLOCK() \
        } \
    } while (0)

static bool is_capsule(PyObject *object, const char *name) {
    if (PyCapsule_CheckExact(object) && PyCapsule_IsValid(object, name))
        return true;
    PyErr_Format(PyExc_TypeError, "expected a capsule '%s' of Arrow's C data interface, not %R", name, object);
    return false;
}

bool spv_run_array(spv_run *run, PyObject *capsules) {
    PyObject *first, *second;
    struct ArrowSchema schema = {0};
    struct ArrowArray array = {0};
    spv_arrow_type type;
    if (!PyArg_ParseTuple(capsules, "OO", &first, &second) || !is_capsule(first, "arrow_schema") || !is_capsule(second, "arrow_array"))
        return false;
    MOVE(first, "arrow_schema", &schema);
    MOVE(second, "arrow_array", &array);
    const bool done = read_type(run, &schema, &type) && run_arrow(run, &type, &array);
    RELEASE(&array);
    RELEASE(&schema);
    return done;
}

/* Sets the exception for a producer's own error. */
static bool refuse_stream(struct ArrowArrayStream *stream, int code) {
    const char *said = stream->get_last_error ? stream->get_last_error(stream) : NULL;
    PyObject *text = said ? PyUnicode_DecodeUTF8(said, (Py_ssize_t)strlen(said), "replace") : PyUnicode_FromString("it does not say why");
    PyObject *arguments = text ? Py_BuildValue("iN", code, PyUnicode_FromFormat("a stream of Arrow arrays failed: %U", text)) : NULL;
    if (arguments)
        PyErr_SetObject(PyExc_OSError, arguments);
    Py_XDECREF(arguments);
    Py_XDECREF(text);
    return false;
}

/* Gets the next array. A released array is the end. A producer may wait for other threads, so it runs without the
   GIL. */
static bool next_array(struct ArrowArrayStream *stream, struct ArrowArray *array) {
    memset(array, 0, sizeof *array);
    PyThreadState *thread = PyEval_SaveThread();
    const int code = stream->get_next(stream, array);
    PyEval_RestoreThread(thread);
    return !code || refuse_stream(stream, code);
}

static bool run_arrays(spv_run *run, struct ArrowArrayStream *stream, const spv_arrow_type *type) {
    bool done, more;
    do {
        struct ArrowArray array;
        done = next_array(stream, &array);
        more = done && array.release;
        if (more) {
            done = run_arrow(run, type, &array);
            RELEASE(&array);
        }
    } while (done && !PyErr_CheckSignals() && more);
    return done && !PyErr_Occurred();
}

bool spv_run_stream(spv_run *run, PyObject *capsule) {
    struct ArrowArrayStream stream = {0};
    struct ArrowSchema schema = {0};
    spv_arrow_type type;
    if (!is_capsule(capsule, "arrow_array_stream"))
        return false;
    MOVE(capsule, "arrow_array_stream", &stream);
    bool done = false;
    if (!stream.release || !stream.get_schema || !stream.get_next) {
        refuse(run->core, SPV_FORMAT, &(spv_error){.field = "stream", .message = "it has already been released, or is incomplete"});
    } else {
        PyThreadState *thread = PyEval_SaveThread();
        const int code = stream.get_schema(&stream, &schema);
        PyEval_RestoreThread(thread);
        done = code ? refuse_stream(&stream, code) : read_type(run, &schema, &type) && run_arrays(run, &stream, &type);
    }
    RELEASE(&schema);
    RELEASE(&stream);
    return done;
}
