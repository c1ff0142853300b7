/* Fuzz target: columns as lines of CSV and JSON, against a plain check of their buffers and plain printing. The input:

   u8   Bit 0: JSON, otherwise CSV. The rest: the number of rows.
   u8   Number of columns.
   For each column: u8 layout, u8 flags, u8 size of the name, u16 size of the data; then the name, the validity, the
   offsets and the data. Bit 0 of the flags: there is a validity. Bits 1 and 2: validity or offsets lack a byte. */
#include "check.h"
#include "watch/columnlines.h"

#include <inttypes.h>
#include <stdarg.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST_COLUMNS = 6, MOST_ROWS = 40, MOST_NAME = 9, MOST_DATA = 2000 };

typedef struct {
    const uint8_t *data;
    size_t size;
} source;

typedef struct {
    char *text;
    size_t size, room;
} page;

static unsigned take(source *from) {
    if (!from->size)
        return 0;
    from->size--;
    return *from->data++;
}

/* The next bytes, as far as there are any, in memory of exactly their size. */
static spv_bytes take_bytes(source *from, size_t size) {
    const size_t left = size < from->size ? size : from->size;
    uint8_t *copy = exact_copy(from->data, left);
    from->data += left;
    from->size -= left;
    return (spv_bytes){copy, left};
}

__attribute__((format(printf, 2, 3))) static void print(page *to, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    const int size = vsnprintf(to->text + to->size, to->room - to->size, format, arguments);
    va_end(arguments);
    CHECK(size >= 0 && (size_t)size < to->room - to->size);
    to->size += (size_t)size;
}

static uint64_t number(const uint8_t *at, size_t width) {
    uint64_t value = 0;
    for (size_t i = 0; i < width; i++)
        value += (uint64_t)at[i] << 8 * i;
    return value;
}

static bool has_offsets(const spv_read_column *c) {
    return c->layout == SPV_BINARY || c->layout == SPV_TEXT;
}

static bool plain_fits(const spv_read_column *c, size_t rows, bool has_validity) {
    static const size_t bits[] = {[SPV_INT8] = 8, [SPV_INT32] = 32, [SPV_INT64] = 64, [SPV_BITS] = 1, [SPV_HASH] = 256};
    if (has_validity && 8 * c->validity.size < rows)
        return false;
    if (!has_offsets(c))
        return 8 * c->data.size >= rows * bits[c->layout];
    if (c->offsets.size != 4 * rows + 4)
        return false;
    for (size_t i = 0; i <= rows; i++) {
        const uint64_t at = number(c->offsets.data + 4 * i, 4), next = i < rows ? number(c->offsets.data + 4 * i + 4, 4) : c->data.size;
        if (at > next || at > INT32_MAX)
            return false;
    }
    return true;
}

static void print_cell(page *to, const uint8_t *text, size_t size) {
    bool quotes = false;
    for (size_t i = 0; i < size; i++)
        quotes |= text[i] && strchr(",\"\r\n", text[i]);
    print(to, "%s", quotes ? "\"" : "");
    for (size_t i = 0; i < size; i++) {
        to->text[to->size++] = (char)text[i]; /* may be 0 */
        print(to, "%s", text[i] == '"' ? "\"" : "");
    }
    print(to, "%s", quotes ? "\"" : "");
}

static void print_string(page *to, const uint8_t *text, size_t size) {
    print(to, "\"");
    for (size_t i = 0; i < size; i++)
        if (text[i] < 32)
            print(to, "\\u%04x", text[i]);
        else
            print(to, text[i] == '"' || text[i] == '\\' ? "\\%c" : "%c", text[i]);
    print(to, "\"");
}

static void print_value(page *to, bool json, const spv_read_column *c, size_t row) {
    const char *const quote = json ? "\"" : "";
    const size_t start = has_offsets(c) ? number(c->offsets.data + 4 * row, 4) : 32 * row;
    const size_t end = has_offsets(c) ? number(c->offsets.data + 4 * row + 4, 4) : 32 * row + 32;
    if (c->validity.data && !(c->validity.data[row / 8] >> row % 8 & 1)) {
        print(to, "%s", json ? "null" : "");
        return;
    }
    switch (c->layout) {
    case SPV_INT8:
        print(to, "%d", (int8_t)c->data.data[row]);
        return;
    case SPV_INT32:
        print(to, "%" PRId32, (int32_t)number(c->data.data + 4 * row, 4));
        return;
    case SPV_INT64:
        print(to, "%" PRId64, (int64_t)number(c->data.data + 8 * row, 8));
        return;
    case SPV_BITS:
        print(to, "%s", c->data.data[row / 8] >> row % 8 & 1 ? "true" : "false");
        return;
    case SPV_TEXT:
        (json ? print_string : print_cell)(to, c->data.data + start, end - start);
        return;
    default:
        print(to, "%s", quote);
        for (size_t i = start; i < end; i++)
            print(to, "%02x", c->data.data[i]);
        print(to, "%s", quote);
    }
}

static void check_lines(bool json, const spv_read_column *columns, size_t count, size_t rows) {
    page page = {.room = 1 + rows * (8 + count * (40 + 6 * (MOST_NAME + MOST_DATA)))};
    page.text = zeroed(page.room, 1);
    for (size_t row = 0; row < rows; row++) {
        print(&page, "%s", json ? "{" : "");
        for (size_t i = 0; i < count; i++) {
            print(&page, "%s", i ? "," : "");
            if (json) {
                print_string(&page, columns[i].name.data, columns[i].name.size);
                print(&page, ":");
            }
            print_value(&page, json, &columns[i], row);
        }
        print(&page, json ? "}\n" : "\n");
    }
    spv_text text = {0};
    size_t at = 0;
    CHECK(spv_render_rows(json ? SPV_JSON_LINES : SPV_CSV, columns, count, &at, rows / 2, &text) && at == rows / 2);
    CHECK(spv_render_rows(json ? SPV_JSON_LINES : SPV_CSV, columns, count, &at, rows, &text) && at == rows);
    CHECK(text.size == page.size && same(text.data, page.text, page.size));
    free(text.data);
    release(page.text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const spv_layout layouts[] = {SPV_INT8, SPV_INT32, SPV_INT64, SPV_BITS, SPV_HASH, SPV_BINARY, SPV_TEXT};
    source from = {data, size};
    const unsigned head = take(&from);
    const size_t rows = head / 2 % MOST_ROWS, count = take(&from) % (MOST_COLUMNS + 1);
    spv_read_column columns[MOST_COLUMNS] = {{.layout = SPV_INT8}};
    bool fit = true;
    for (size_t i = 0; i < count; i++) {
        spv_read_column *c = &columns[i];
        c->layout = layouts[take(&from) % 7];
        const unsigned flags = take(&from);
        const size_t name = take(&from) % (MOST_NAME + 1), low = take(&from), values = (low + 256 * take(&from)) % (MOST_DATA + 1);
        const size_t valid = (rows + 7) / 8, lacks = flags & 2 && valid;
        c->name = take_bytes(&from, name);
        if (flags & 1)
            c->validity = take_bytes(&from, valid - lacks);
        if (has_offsets(c))
            c->offsets = take_bytes(&from, 4 * rows + 4 - (flags & 4 ? 1 : 0));
        c->data = take_bytes(&from, values);
        const bool fits = plain_fits(c, rows, flags & 1);
        CHECK(spv_column_fits(c, rows) == fits);
        fit &= fits;
    }
    if (fit)
        check_lines(head & 1, columns, count, rows);
    for (size_t i = 0; i < count; i++) {
        release((uint8_t *)columns[i].name.data);
        release((uint8_t *)columns[i].validity.data);
        release((uint8_t *)columns[i].offsets.data);
        release((uint8_t *)columns[i].data.data);
    }
    return 0;
}
