#include "watch/columnlines.h"

#include "watch/decimal.h"
#include "watch/hex.h"

#include <stdlib.h>

bool spv_lines_layout(spv_bytes name, spv_layout *layout) {
    static const struct {
        const char *name;
        spv_layout layout;
    } LAYOUTS[] = {
        {"int8", SPV_INT8}, {"int32", SPV_INT32}, {"int64", SPV_INT64}, {"bits", SPV_BITS}, {"hash", SPV_HASH},
        {"binary", SPV_BINARY}, {"text", SPV_TEXT},
    };
    for (size_t i = 0; i < sizeof LAYOUTS / sizeof LAYOUTS[0]; i++)
        if (strlen(LAYOUTS[i].name) == name.size && !memcmp(LAYOUTS[i].name, name.data, name.size)) {
            *layout = LAYOUTS[i].layout;
            return true;
        }
    return false;
}

static bool offsets_fit(spv_bytes offsets, size_t rows, size_t size) {
    if (!offsets.data || offsets.size % 4 || offsets.size / 4 - 1 != rows)
        return false;
    uint32_t last = 0;
    for (size_t i = 0; i <= rows; i++) {
        const uint32_t at = spv_le32(offsets.data + 4 * i);
        if (at > INT32_MAX || at < last)
            return false;
        last = at;
    }
    return last <= size;
}

bool spv_column_fits(const spv_read_column *column, size_t rows) {
    if (column->validity.data && column->validity.size < (rows + 7) / 8)
        return false;
    switch (column->layout) {
    case SPV_BINARY:
    case SPV_TEXT:
        return offsets_fit(column->offsets, rows, column->data.size);
    case SPV_BITS:
        return column->data.size >= (rows + 7) / 8;
    case SPV_HASH:
        return column->data.size / 32 >= rows;
    case SPV_INT8:
        return column->data.size >= rows;
    default:
        return column->data.size / (column->layout == SPV_INT32 ? 4 : 8) >= rows;
    }
}

/* The bytes of a row's value in a column with bytes. */
static spv_bytes bytes_at(const spv_read_column *column, size_t row) {
    if (column->layout == SPV_HASH)
        return (spv_bytes){column->data.data + 32 * row, 32};
    const uint32_t at = spv_le32(column->offsets.data + 4 * row), end = spv_le32(column->offsets.data + 4 * row + 4);
    return (spv_bytes){column->data.data + at, end - at};
}

static bool has_bytes(const spv_read_column *column) {
    return column->layout == SPV_HASH || column->layout == SPV_BINARY || column->layout == SPV_TEXT;
}

/* Reserves memory and returns the position of its first byte. NULL: no memory. */
static uint8_t *reserve(spv_text *text, size_t more) {
    if (more > SIZE_MAX / 4 || text->size > SIZE_MAX / 4)
        return NULL;
    if (SPV_UNLIKELY(text->size + more > text->room)) {
        const size_t room = 2 * (text->size + more);
        uint8_t *grown = realloc(text->data, room);
        if (!grown)
            return NULL;
        text->data = grown;
        text->room = room;
    }
    return text->data + text->size;
}

/* These functions write and return the end. */

static uint8_t *put(uint8_t *to, const char *text) {
    const size_t size = strlen(text);
    memcpy(to, text, size);
    return to + size;
}

/* A text of CSV, with quotes if it needs them. */
static uint8_t *put_cell(uint8_t *to, spv_bytes text) {
    bool is_special = false;
    for (size_t i = 0; i < text.size; i++) {
        const uint8_t byte = text.data[i];
        is_special |= byte == ',' || byte == '"' || byte == '\r' || byte == '\n';
    }
    if (is_special)
        *to++ = '"';
    for (size_t i = 0; i < text.size; i++) {
        if (text.data[i] == '"')
            *to++ = '"';
        *to++ = text.data[i];
    }
    if (is_special)
        *to++ = '"';
    return to;
}

/* A string of JSON. */
static uint8_t *put_string(uint8_t *to, spv_bytes text) {
    *to++ = '"';
    for (size_t i = 0; i < text.size; i++) {
        const uint8_t byte = text.data[i];
        if (byte == '"' || byte == '\\')
            *to++ = '\\';
        if (byte < 0x20) {
            to = put(to, "\\u00");
            to = spv_put_hex(to, (spv_bytes){&text.data[i], 1});
        } else {
            *to++ = byte;
        }
    }
    *to++ = '"';
    return to;
}

static uint8_t *put_bytes(uint8_t *to, spv_form form, const spv_read_column *column, size_t row) {
    const spv_bytes value = bytes_at(column, row);
    if (column->layout == SPV_TEXT)
        return form == SPV_CSV ? put_cell(to, value) : put_string(to, value);
    if (form == SPV_CSV)
        return spv_put_hex(to, value);
    *to++ = '"';
    to = spv_put_hex(to, value);
    *to++ = '"';
    return to;
}

static int64_t number_at(const spv_read_column *column, size_t row) {
    const uint8_t *data = column->data.data;
    if (column->layout == SPV_INT8)
        return (int8_t)data[row];
    return column->layout == SPV_INT32 ? (int32_t)spv_le32(data + 4 * row) : (int64_t)spv_le64(data + 8 * row);
}

static uint8_t *put_value(uint8_t *to, spv_form form, const spv_read_column *column, size_t row) {
    if (column->validity.data && !(column->validity.data[row >> 3] >> (row & 7) & 1))
        return form == SPV_CSV ? to : put(to, "null");
    if (has_bytes(column))
        return put_bytes(to, form, column, row);
    if (column->layout == SPV_BITS)
        return put(to, column->data.data[row >> 3] >> (row & 7) & 1 ? "true" : "false");
    const int64_t number = number_at(column, row);
    if (number < 0)
        *to++ = '-';
    return spv_put_number(to, number < 0 ? 0 - (uint64_t)number : (uint64_t)number);
}

/* Bytes that are enough for a value and its name. */
static size_t most_bytes(spv_form form, const spv_read_column *column, size_t row) {
    enum { PLAIN = 32 /* a number, a boolean or null, and the marks around a value */, LONGEST_ESCAPE = 6 };
    const size_t key = form == SPV_CSV ? 0 : LONGEST_ESCAPE * column->name.size;
    return PLAIN + key + (has_bytes(column) ? bytes_at(column, row).size * (column->layout == SPV_TEXT ? LONGEST_ESCAPE : 2) : 0);
}

bool spv_render_rows(spv_form form, const spv_read_column *columns, size_t count, size_t *at, size_t until, spv_text *text) {
    for (; *at < until; ++*at) {
        size_t more = 0;
        for (size_t i = 0; i < count; i++)
            more += most_bytes(form, &columns[i], *at);
        uint8_t *to = reserve(text, more + 4);
        if (!to)
            return false;
        if (form == SPV_JSON_LINES)
            *to++ = '{';
        for (size_t i = 0; i < count; i++) {
            if (i)
                *to++ = ',';
            if (form == SPV_JSON_LINES) {
                to = put_string(to, columns[i].name);
                *to++ = ':';
            }
            to = put_value(to, form, &columns[i], *at);
        }
        if (form == SPV_JSON_LINES)
            *to++ = '}';
        *to++ = '\n';
        text->size = (size_t)(to - text->data);
    }
    return true;
}
