/* Columns of keys: arrays of Arrow with any offsets, views and dictionaries, in buffers of exactly the stated size.
   Accepted keys are within the buffers and equal a plain reading. A refused column is malformed. */
#include "selftest.h"

#include "bloom/column/arrow.h"
#include "bloom/column/text.h"

enum { MOST_ROWS = 40, MOST_BYTES = 200 };

static void let_array_go(struct ArrowArray *array) {
    array->release = NULL;
}

static void let_schema_go(struct ArrowSchema *schema) {
    schema->release = NULL;
}

static void put(uint8_t *at, uint64_t value, size_t width) {
    for (size_t i = 0; i < width; i++)
        at[i] = (uint8_t)(value >> 8 * i);
}

static uint64_t get(const uint8_t *at, size_t width) {
    uint64_t value = 0;
    for (size_t i = 0; i < width; i++)
        value |= (uint64_t)at[i] << 8 * i;
    return width == 4 ? (uint64_t)(int32_t)(uint32_t)value : value;
}

/* Every key of the column, up to the first refused one. Returns the number of accepted rows. */
static size_t take_all(const spv_column *column, bool skip, spv_bytes *keys, size_t *count, spv_status *status) {
    spv_column_keys taken = {.skip = skip};
    void *memory = zeroed(spv_column_room(column) + 1, 1);
    size_t rows = 0;
    spv_error error;
    spv_column_lay_out(column, memory, &taken);
    *count = 0;
    *status = SPV_OK;
    while (rows < column->length && *status == SPV_OK) {
        *status = spv_column_take(column, rows, &taken, &error);
        CHECK(taken.rows || *status != SPV_OK);
        for (size_t i = 0; i < taken.count; i++)
            keys[(*count)++] = taken.keys[i];
        rows += taken.rows;
        CHECK(*status == SPV_OK || error.offset == column->first + rows);
    }
    release(memory);
    return rows;
}

static void check_parts(dice *dice) {
    const size_t length = (size_t)(roll(dice) % MOST_ROWS), offset = (size_t)(roll(dice) % 9), width = roll(dice) % 2 ? 4 : 8;
    const size_t size = (size_t)(roll(dice) % MOST_BYTES), count = offset + length + 1;
    const bool text = roll(dice) % 2, nulls = roll(dice) % 3 == 0, skip = roll(dice) % 2;
    uint8_t *data = zeroed(size + !size, 1), *ends = zeroed(count, width), *validity = zeroed(count / 8 + 1, 1);
    roll_bytes(dice, validity, count / 8 + 1);
    for (size_t i = 0; i < size; i++)
        data[i] = (uint8_t)('a' + roll(dice) % 26);
    if (size && roll(dice) % 4 == 0)
        data[roll(dice) % size] = 0xC3;
    for (size_t i = 0; i < count; i++)
        put(ends + i * width, i + 1 == count ? size : size * i / count, width);
    if (roll(dice) % 2) /* a random offset anywhere except in last place, which is the size stated by the producer */
        put(ends + roll(dice) % (count - 1 + (count == 1)) * width, count == 1 ? size : roll(dice) >> roll(dice) % 64, width);
    const void *buffers[3] = {nulls ? validity : NULL, ends, data};
    const char *formats[2][2] = {{"z", "Z"}, {"u", "U"}};
    struct ArrowSchema schema = {.format = formats[text][width == 8], .release = let_schema_go};
    struct ArrowArray array = {
        .length = (int64_t)length, .null_count = nulls ? -1 : 0, .offset = (int64_t)offset, .n_buffers = 3, .buffers = buffers, .release = let_array_go};
    spv_arrow_type type;
    spv_column column, values;
    spv_error error;
    spv_bytes keys[MOST_ROWS];
    size_t taken;
    spv_status status;
    CHECK(spv_arrow_type_of(&schema, &type, &error) == SPV_OK);
    CHECK(spv_arrow_column(&type, &array, 7, &column, &values, &error) == SPV_OK);
    const size_t rows = take_all(&column, skip, keys, &taken, &status);
    for (size_t row = 0, at = 0; row < rows; row++) {
        const size_t bit = offset + row;
        if (nulls && !(validity[bit / 8] >> bit % 8 & 1)) {
            CHECK(skip);
            continue;
        }
        const uint64_t from = get(ends + bit * width, width), to = get(ends + (bit + 1) * width, width);
        CHECK(from <= to && to <= size && keys[at].data == data + from && keys[at].size == to - from);
        CHECK(!text || spv_is_utf8(keys[at]));
        at++;
    }
    if (status == SPV_FORMAT) {
        const uint64_t from = get(ends + (offset + rows) * width, width), to = get(ends + (offset + rows + 1) * width, width);
        CHECK(from > to || to > size || (text && !spv_is_utf8((spv_bytes){data + from, to - from})));
    }
    CHECK(status == SPV_OK ? rows == length : rows < length);
    release(data);
    release(ends);
    release(validity);
}

static void check_views(dice *dice) {
    const size_t length = (size_t)(roll(dice) % MOST_ROWS), size = 20 + (size_t)(roll(dice) % MOST_BYTES);
    uint8_t *block = zeroed(size, 1), *items = zeroed(length + !length, 16), sizes[8];
    put(sizes, size, 8);
    for (size_t i = 0; i < size; i++)
        block[i] = (uint8_t)('a' + roll(dice) % 2);
    for (size_t i = 0; i < length; i++) {
        const uint64_t bytes = roll(dice) % 24, at = roll(dice) % 12;
        put(items + 16 * i, roll(dice) % 16 ? bytes : roll(dice), 4);
        memcpy(items + 16 * i + 4, block + at, 4);
        put(items + 16 * i + 8, roll(dice) % 16 ? 0 : roll(dice), 4);
        put(items + 16 * i + 12, roll(dice) % 16 ? at : roll(dice), 4);
    }
    const void *buffers[4] = {NULL, items, block, sizes};
    struct ArrowSchema schema = {.format = "vz", .release = let_schema_go};
    struct ArrowArray array = {.length = (int64_t)length, .n_buffers = 4, .buffers = buffers, .release = let_array_go};
    spv_arrow_type type;
    spv_column column, values;
    spv_error error;
    spv_bytes keys[MOST_ROWS];
    size_t taken;
    spv_status status;
    CHECK(spv_arrow_type_of(&schema, &type, &error) == SPV_OK && spv_arrow_column(&type, &array, 0, &column, &values, &error) == SPV_OK);
    const size_t rows = take_all(&column, false, keys, &taken, &status);
    CHECK(taken == rows && (status == SPV_OK ? rows == length : rows < length));
    for (size_t i = 0; i < rows; i++) {
        const bool inside = keys[i].size <= 12;
        const uint8_t *from = inside ? items + 16 * i + 4 : block + get(items + 16 * i + 12, 4);
        CHECK(keys[i].data == from && keys[i].size == get(items + 16 * i, 4) && !memcmp(from, items + 16 * i + 4, keys[i].size < 4 ? keys[i].size : 4));
        CHECK(inside || (from + keys[i].size <= block + size && !get(items + 16 * i + 8, 4)));
    }
    release(block);
    release(items);
}

static void check_names(dice *dice) {
    const uint8_t ends[16] = {0, 0, 0, 0, 1, 0, 0, 0, 3, 0, 0, 0, 3, 0, 0, 0}, data[3] = {'a', 'b', 'c'};
    uint8_t index = (uint8_t)(roll(dice) % 6);
    const bool is_signed = roll(dice) % 2;
    index = roll(dice) % 4 ? index : (uint8_t)(index | 0x80);
    const void *parts[3] = {NULL, ends, data}, *indexes[2] = {NULL, &index};
    struct ArrowSchema words = {.format = "u", .release = let_schema_go}, schema = {.format = is_signed ? "c" : "C", .dictionary = &words, .release = let_schema_go};
    struct ArrowArray texts = {.length = 3, .n_buffers = 3, .buffers = parts, .release = let_array_go};
    struct ArrowArray array = {.length = 1, .n_buffers = 2, .buffers = indexes, .dictionary = &texts, .release = let_array_go};
    spv_arrow_type type;
    spv_column column, values;
    spv_error error;
    spv_bytes key;
    size_t taken;
    spv_status status;
    CHECK(spv_arrow_type_of(&schema, &type, &error) == SPV_OK && spv_arrow_column(&type, &array, 0, &column, &values, &error) == SPV_OK);
    CHECK(take_all(&column, false, &key, &taken, &status) == (index < 3) && (status == SPV_OK) == (index < 3));
    CHECK(index >= 3 || (key.size == (size_t[]){1, 2, 0}[index] && !memcmp(key.data, data + (index > 0), key.size)));
}

/* Every character becomes valid UTF-8. A value that is no character is refused. */
static void check_text(dice *dice) {
    for (uint32_t character = 1; character < 0x110400; character += 1 + (uint32_t)(roll(dice) % 40)) {
        uint8_t wide[8] = {0}, text[8];
        uint32_t bad = 0;
        size_t size = 0;
        put(wide, character, 4);
        const bool good = character < 0xD800 || (character > 0xDFFF && character < 0x110000);
        CHECK(spv_utf32_to_utf8(wide, 2, false, text, &size, &bad) == good && (good || bad == character));
        if (!good)
            continue;
        CHECK(size == 1u + (character > 0x7F) + (character > 0x7FF) + (character > 0xFFFF) && spv_is_utf8((spv_bytes){text, size}));
        CHECK(spv_is_ascii((spv_bytes){text, size}) == (character < 0x80));
        CHECK(size == 1 || !spv_is_utf8((spv_bytes){text, size - 1}));
        CHECK(size == 1 || !spv_is_utf8((spv_bytes){text + 1, size - 1}));
    }
}

void test_columns(void) {
    dice dice = {20261};
    for (int round = 0; round < 20000; round++) {
        check_parts(&dice);
        check_views(&dice);
        check_names(&dice);
    }
    check_text(&dice);
}
