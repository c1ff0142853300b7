#include "bloom/column/arrow.h"

#include <inttypes.h>

enum { WIDEST = INT32_MAX }; /* bytes of a fixed-size binary: the limit of Arrow */

/* largest number of rows, and of rows before the first one; no number of bits or bytes can overflow */
static const int64_t LONGEST = INT64_MAX / 32;

/* Parses the format of a fixed-size binary: w:N. */
static bool width_of(const char *digits, size_t *width) {
    size_t value = 0;
    if (!*digits)
        return false;
    for (; *digits; digits++) {
        if (*digits < '0' || *digits > '9' || value > WIDEST)
            return false;
        value = value * 10 + (size_t)(*digits - '0');
    }
    *width = value;
    return value <= WIDEST;
}

/* False if the type cannot hold keys. */
static bool layout_of(const char *format, spv_arrow_layout *found) {
    static const char numbers[] = "cCsSiIlL";
    static const struct {
        const char *format;
        spv_arrow_layout layout;
    } parts[] = {
        {"u", {SPV_OFFSETS32, SPV_TEXT, 4, false}},     {"U", {SPV_OFFSETS64, SPV_TEXT, 8, false}},
        {"z", {SPV_OFFSETS32, SPV_BINARY, 4, false}},   {"Z", {SPV_OFFSETS64, SPV_BINARY, 8, false}},
        {"vu", {SPV_VIEWS, SPV_TEXT, 16, false}},       {"vz", {SPV_VIEWS, SPV_BINARY, 16, false}},
        {"n", {SPV_NULLS, SPV_NOTHING, 0, false}},
    };
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (!strcmp(format, parts[i].format)) {
            *found = parts[i].layout;
            return true;
        }
    const char *number = format[0] && !format[1] ? strchr(numbers, format[0]) : NULL;
    if (number) {
        const size_t which = (size_t)(number - numbers);
        *found = (spv_arrow_layout){SPV_NUMBERS, SPV_INTEGERS, (size_t)1 << which / 2, which % 2 == 0};
        return true;
    }
    *found = (spv_arrow_layout){SPV_FIXED, SPV_BINARY, 0, false};
    return format[0] == 'w' && format[1] == ':' && width_of(format + 2, &found->width);
}

static spv_status refuse_type(const char *format, spv_error *error) {
    spv_refuse(error, 0, "format", "%.60s", format);
    return SPV_FLAW;
}

spv_status spv_arrow_type_of(const struct ArrowSchema *schema, spv_arrow_type *type, spv_error *error) {
    if (!schema->release || !schema->format)
        return spv_refuse(error, 0, "schema", schema->release ? "it has no format" : "it has already been released");
    type->within = !strcmp(schema->format, "+s");
    if (type->within && schema->n_children != 1) {
        spv_refuse(error, 0, "columns", "%" PRId64, schema->n_children);
        return SPV_FLAW;
    }
    if (type->within && !(schema->children && (schema = schema->children[0]) && schema->release && schema->format))
        return spv_refuse(error, 0, "schema", "its column is missing");
    type->named = schema->dictionary != NULL;
    if (!layout_of(schema->format, &type->keys))
        return refuse_type(schema->format, error);
    if (!type->named)
        return SPV_OK;
    if (type->keys.layout != SPV_NUMBERS)
        return spv_refuse(error, 0, "schema", "a dictionary's numbers are not integers");
    const struct ArrowSchema *values = schema->dictionary;
    if (!values->release || !values->format)
        return spv_refuse(error, 0, "schema", "the schema of the dictionary is missing");
    return values->dictionary || !layout_of(values->format, &type->values) ? refuse_type(values->format, error) : SPV_OK;
}

/* Checks the `length` rows of a column, starting with number `skipped`. */
static spv_status rows(const struct ArrowArray *array, int64_t skipped, int64_t length, spv_column *column, spv_error *error) {
    const size_t first = column->first;
    if (!array->release)
        return spv_refuse(error, first, "array", "it has already been released");
    if (array->length < 0 || array->offset < 0 || array->length > LONGEST || array->offset > LONGEST)
        return spv_refuse(error, first, "length", "%" PRId64 " rows at offset %" PRId64 " are out of range", array->length, array->offset);
    if (skipped > array->length || length > array->length - skipped)
        return spv_refuse(error, first, "length", "expected at least %" PRId64 ", got %" PRId64, skipped + length, array->length);
    if (array->null_count < -1 || array->null_count > array->length)
        return spv_refuse(error, first, "null_count", "must be from -1 to %" PRId64 ", not %" PRId64, array->length, array->null_count);
    if (array->n_children)
        return spv_refuse(error, first, "children", "expected none, got %" PRId64, array->n_children);
    column->length = (size_t)length;
    column->bit = (size_t)(array->offset + skipped);
    return SPV_OK;
}

static const uint8_t *buffer_at(const struct ArrowArray *array, size_t number) {
    return array->buffers[number];
}

/* Reads the blocks of views, and their sizes, which follow the blocks. */
static spv_status blocks(const struct ArrowArray *array, spv_column *column, spv_error *error) {
    column->block_count = (size_t)array->n_buffers - 3;
    column->blocks = (const uint8_t *const *)(const void *)(array->buffers + 2);
    column->sizes = buffer_at(array, (size_t)array->n_buffers - 1);
    if (column->block_count && !column->sizes)
        return spv_refuse(error, column->first, "sizes", "the buffer is missing");
    for (size_t i = 0; i < column->block_count; i++) {
        const int64_t size = (int64_t)spv_le64(column->sizes + 8 * i);
        if (size < 0)
            return spv_refuse(error, column->first, "sizes", "the size of buffer %zu must not be negative, but is %" PRId64, i, size);
    }
    return SPV_OK;
}

/* Reads the last offset. No other offset may exceed it. */
static spv_status last_offset(const struct ArrowArray *array, spv_column *column, spv_error *error) {
    const uint8_t *last = column->items + column->length * column->width;
    column->data = buffer_at(array, 2);
    column->end = column->width == 8 ? (int64_t)spv_le64(last) : (int32_t)spv_le32(last);
    return column->end < 0 ? spv_refuse(error, column->first, "offsets", "the last one must not be negative, but is %" PRId64, column->end) : SPV_OK;
}

static spv_status buffers(const spv_arrow_layout *layout, const struct ArrowArray *array, spv_column *column, spv_error *error) {
    const bool parts = layout->layout == SPV_OFFSETS32 || layout->layout == SPV_OFFSETS64, views = layout->layout == SPV_VIEWS;
    const int64_t wanted = layout->layout == SPV_NULLS ? 0 : parts || views ? 3 : 2;
    if (views ? array->n_buffers < wanted || array->n_buffers > INT32_MAX : array->n_buffers != wanted)
        return spv_refuse(error, column->first, "buffers", "expected %" PRId64 ", got %" PRId64, wanted, array->n_buffers);
    if (!wanted)
        return SPV_OK;
    if (!array->buffers)
        return spv_refuse(error, column->first, "buffers", "they are missing");
    column->validity = array->null_count ? buffer_at(array, 0) : NULL;
    if (array->null_count > 0 && !column->validity)
        return spv_refuse(error, column->first, "null_count", "must be at most 0 without a validity buffer, not %" PRId64, array->null_count);
    column->items = buffer_at(array, 1);
    if (!column->length)
        return SPV_OK;
    if (!column->items && column->width)
        return spv_refuse(error, column->first, parts ? "offsets" : "data", "the buffer is missing");
    column->items = column->width ? column->items + column->bit * column->width : (const uint8_t *)"";
    return parts ? last_offset(array, column, error) : views ? blocks(array, column, error) : SPV_OK;
}

/* Makes a column of one array, without its dictionary. */
static spv_status open_column(
    const spv_arrow_layout *layout, const struct ArrowArray *array, int64_t skipped, int64_t length, size_t first, spv_column *column, spv_error *error) {
    *column = (spv_column){
        .layout = layout->layout, .kind = layout->kind, .first = first, .stride = (ptrdiff_t)layout->width, .inner = 1, .width = layout->width, .is_signed = layout->is_signed,
    };
    const spv_status status = rows(array, skipped, length, column, error);
    if (status != SPV_OK)
        return status;
    if (layout->width && column->bit + column->length > (size_t)LONGEST / layout->width)
        return spv_refuse(error, first, "length", "%zu rows of %zu bytes are too many", column->bit + column->length, layout->width);
    return buffers(layout, array, column, error);
}

/* Returns the column of a table. The table must have exactly one column and no nulls of its own. */
static spv_status unwrap(const struct ArrowArray *table, size_t first, const struct ArrowArray **column, spv_error *error) {
    if (!table->release)
        return spv_refuse(error, first, "array", "it has already been released");
    if (table->n_children != 1 || !table->children || !table->children[0])
        return spv_refuse(error, first, "children", "expected 1, got %" PRId64, table->n_children);
    if (table->length < 0 || table->offset < 0 || table->length > LONGEST || table->offset > LONGEST)
        return spv_refuse(error, first, "length", "%" PRId64 " rows at offset %" PRId64 " are out of range", table->length, table->offset);
    if (table->null_count && table->n_buffers > 0 && table->buffers && table->buffers[0])
        return spv_refuse(error, first, "null_count", "the table itself contains null rows; only its column may contain nulls");
    *column = table->children[0];
    return SPV_OK;
}

spv_status spv_arrow_column(
    const spv_arrow_type *type, const struct ArrowArray *array, size_t first, spv_column *column, spv_column *values, spv_error *error) {
    const struct ArrowArray *keys = array;
    if (type->within && unwrap(array, first, &keys, error) != SPV_OK)
        return SPV_FORMAT;
    const int64_t skipped = type->within ? array->offset : 0;
    if (open_column(&type->keys, keys, skipped, array->length, first, column, error) != SPV_OK)
        return SPV_FORMAT;
    if ((keys->dictionary != NULL) != type->named)
        return spv_refuse(error, first, "dictionary", type->named ? "its type has one, but the array has none" : "the array has one, but its type has none");
    if (!type->named)
        return SPV_OK;
    if (open_column(&type->values, keys->dictionary, 0, keys->dictionary->length, first, values, error) != SPV_OK)
        return SPV_FORMAT;
    if (keys->dictionary->dictionary)
        return spv_refuse(error, first, "dictionary", "it must not have a dictionary itself");
    column->values = values;
    column->kind = values->kind;
    return SPV_OK;
}
