#include "bloom/column/column.h"

#include "bloom/column/text.h"

#include <inttypes.h>

static const char *const NUMBERS[] = {"", "int64", "uint64", "int32", "uint32"}; /* by spv_number */

/* Number of bytes of a row that must be copied. */
static size_t copied(const spv_column *column) {
    return column->layout == SPV_WIDE || (column->layout == SPV_FIXED && column->inner != 1) ? column->width : 0;
}

static size_t most(const spv_column *column) {
    const size_t width = copied(column), fit = width > SPV_COLUMN_COPIES ? 1 : width ? SPV_COLUMN_COPIES / width : SPV_COLUMN_ROWS;
    const size_t rows = fit < SPV_COLUMN_ROWS ? fit : SPV_COLUMN_ROWS;
    return column->length < rows ? column->length : rows;
}

static bool has_numbers(const spv_column *column) {
    return (column->values ? column->values : column)->layout == SPV_NUMBERS;
}

size_t spv_column_room(const spv_column *column) {
    return most(column) * (sizeof(spv_bytes) + (has_numbers(column) ? 8 : 0) + copied(column) + 1);
}

void spv_column_lay_out(const spv_column *column, void *memory, spv_column_keys *taken) {
    const size_t rows = most(column);
    taken->most = rows;
    taken->keys = memory;
    taken->numbers = (uint8_t (*)[8])(taken->keys + rows);
    taken->copies = (uint8_t *)(taken->numbers + (has_numbers(column) ? rows : 0));
    taken->present = taken->copies + rows * copied(column);
}

bool spv_column_is_plain(const spv_column *column, spv_number number) {
    if (column->validity || column->values || column->stride != (ptrdiff_t)column->width)
        return false;
    if (column->layout == SPV_FIXED)
        return column->kind == SPV_BINARY && column->inner == 1 && !column->trimmed;
    const bool is_signed = number == SPV_AS_INT64 || number == SPV_AS_INT32;
    return column->layout == SPV_NUMBERS && column->width == spv_number_size(number) && !column->swapped && number && column->is_signed == is_signed;
}

SPV_INLINE bool is_valid(const spv_column *column, size_t row) {
    const size_t bit = column->bit + row;
    return !column->validity || (column->validity[bit >> 3] >> (bit & 7) & 1);
}

SPV_INLINE const uint8_t *item_of(const spv_column *column, size_t row) {
    return column->items + (ptrdiff_t)row * column->stride;
}

/* A number, sign-extended to 64 bits. */
SPV_INLINE uint64_t number_at(const spv_column *column, size_t row) {
    const uint8_t *item = item_of(column, row);
    const bool is_signed = column->is_signed;
    uint16_t two;
    uint32_t four;
    switch (column->width) {
    case 1:
        return is_signed ? (uint64_t)(int8_t)*item : *item;
    case 2:
        two = spv_le16(item);
        two = column->swapped ? (uint16_t)(two << 8 | two >> 8) : two;
        return is_signed ? (uint64_t)(int16_t)two : two;
    case 4:
        four = spv_le32(item);
        four = column->swapped ? __builtin_bswap32(four) : four;
        return is_signed ? (uint64_t)(int32_t)four : four;
    default:
        return column->swapped ? __builtin_bswap64(spv_le64(item)) : spv_le64(item);
    }
}

SPV_COLD static spv_status refuse_number(const spv_column *column, size_t row, uint64_t value, spv_number number, spv_error *error) {
    const char *wanted = NUMBERS[number];
    if (column->is_signed)
        spv_refuse(error, row, "number", "%" PRId64 " does not fit into %s", (int64_t)value, wanted);
    else
        spv_refuse(error, row, "number", "%" PRIu64 " does not fit into %s", value, wanted);
    return SPV_RANGE;
}

/* True if a number fits into its encoding. It has 64 bits, sign-extended if it is signed. */
SPV_INLINE bool fits(uint64_t value, bool is_signed, spv_number number) {
    switch (number) {
    case SPV_AS_INT64:
        return is_signed || !(value >> 63);
    case SPV_AS_UINT64:
        return !is_signed || !(value >> 63);
    case SPV_AS_INT32:
        return is_signed ? (uint64_t)(int32_t)value == value : !(value >> 31);
    case SPV_AS_UINT32:
        return !(value >> 32);
    default:
        return true;
    }
}

SPV_INLINE spv_status take_number(const spv_column *column, size_t row, size_t shown, spv_column_keys *taken, spv_error *error) {
    const uint64_t value = number_at(column, row);
    uint8_t *number = taken->numbers[taken->rows];
    if (SPV_UNLIKELY(!fits(value, column->is_signed, taken->number)))
        return refuse_number(column, shown, value, taken->number, error);
    spv_put_le32(number, (uint32_t)value);
    spv_put_le32(number + 4, (uint32_t)(value >> 32));
    taken->keys[taken->count] = (spv_bytes){number, spv_number_size(taken->number)};
    return SPV_OK;
}

/* SPV_FIXED: the item itself, or a copy without gaps. */
SPV_INLINE spv_status take_fixed(const spv_column *column, size_t row, spv_column_keys *taken) {
    const uint8_t *item = item_of(column, row);
    size_t size = column->width;
    if (column->inner != 1) {
        uint8_t *copy = taken->copies + taken->rows * size;
        for (size_t i = 0; i < size; i++)
            copy[i] = item[(ptrdiff_t)i * column->inner];
        item = copy;
    }
    while (column->trimmed && size && !item[size - 1])
        size--;
    taken->keys[taken->count] = (spv_bytes){item, size};
    return SPV_OK;
}

static spv_status take_wide(const spv_column *column, size_t row, size_t shown, spv_column_keys *taken, spv_error *error) {
    uint8_t *text = taken->copies + taken->rows * column->width;
    size_t size = 0;
    uint32_t bad;
    if (!spv_utf32_to_utf8(item_of(column, row), column->width / 4, column->swapped, text, &size, &bad))
        return spv_refuse(error, shown, "text", "U+%04" PRIX32 " is not a character", bad);
    taken->keys[taken->count] = (spv_bytes){text, size};
    return SPV_OK;
}

/* An offset of 4 or 8 bytes. */
SPV_INLINE int64_t part(const uint8_t *items, size_t at, bool wide) {
    return wide ? (int64_t)spv_le64(items + at) : (int32_t)spv_le32(items + at);
}

SPV_INLINE spv_status take_part(const spv_column *column, size_t row, size_t shown, bool wide, spv_bytes *key, spv_error *error) {
    const uint8_t *item = item_of(column, row);
    const int64_t from = part(item, 0, wide), to = part(item, wide ? 8 : 4, wide);
    if (SPV_UNLIKELY(from < 0 || from > to || to > column->end))
        return spv_refuse(error, shown, "offsets", "bytes %" PRId64 " to %" PRId64 " are not a range within 0 to %" PRId64, from, to, column->end);
    if (SPV_UNLIKELY(!column->data && from < to))
        return spv_refuse(error, shown, "data", "the buffer is missing");
    *key = (spv_bytes){column->data ? column->data + from : (const uint8_t *)"", (size_t)(to - from)};
    return SPV_OK;
}

static spv_status refuse_range(size_t shown, int32_t from, int64_t to, int32_t block, int64_t whole, spv_error *error) {
    static const char message[] = "bytes %" PRId32 " to %" PRId64 " are outside buffer %" PRId32 ", which is %" PRId64 " bytes long";
    return spv_refuse(error, shown, "view", message, from, to, block, whole);
}

SPV_INLINE spv_status take_view(const spv_column *column, size_t row, size_t shown, spv_bytes *key, spv_error *error) {
    const uint8_t *item = item_of(column, row);
    const int32_t size = (int32_t)spv_le32(item), block = (int32_t)spv_le32(item + 8), at = (int32_t)spv_le32(item + 12);
    if (SPV_UNLIKELY(size < 0))
        return spv_refuse(error, shown, "view", "its size must not be negative, but is %" PRId32, size);
    if (size <= 12) {
        *key = (spv_bytes){item + 4, (size_t)size};
        return SPV_OK;
    }
    if (SPV_UNLIKELY(block < 0 || (size_t)block >= column->block_count))
        return spv_refuse(error, shown, "view", "buffer %" PRId32 " does not exist: the number of data buffers is %zu", block, column->block_count);
    const int64_t whole = (int64_t)spv_le64(column->sizes + 8 * (size_t)block);
    if (SPV_UNLIKELY(at < 0 || (int64_t)at + size > whole))
        return refuse_range(shown, at, (int64_t)at + size, block, whole, error);
    if (SPV_UNLIKELY(!column->blocks[block]))
        return spv_refuse(error, shown, "view", "buffer %" PRId32 " is missing", block);
    *key = (spv_bytes){column->blocks[block] + at, (size_t)size};
    if (SPV_UNLIKELY(memcmp(key->data, item + 4, 4)))
        return spv_refuse(error, shown, "view", "its prefix does not match the value");
    return SPV_OK;
}

/* Takes the key in a row that is not null. `shown` is the number of the row in messages. */
SPV_INLINE spv_status take_key(const spv_column *column, spv_layout layout, size_t row, size_t shown, spv_column_keys *taken, spv_error *error) {
    spv_bytes *key = taken->keys + taken->count;
    spv_status status;
    switch (layout) {
    case SPV_FIXED:
        status = take_fixed(column, row, taken);
        break;
    case SPV_WIDE:
        return take_wide(column, row, shown, taken, error);
    case SPV_NUMBERS:
        return take_number(column, row, shown, taken, error);
    case SPV_OFFSETS32:
        status = take_part(column, row, shown, false, key, error);
        break;
    case SPV_OFFSETS64:
        status = take_part(column, row, shown, true, key, error);
        break;
    default:
        status = take_view(column, row, shown, key, error);
        break;
    }
    if (status == SPV_OK && column->kind == SPV_TEXT && SPV_UNLIKELY(!spv_is_ascii(*key) && !spv_is_utf8(*key)))
        return spv_refuse(error, shown, "text", "it is not valid UTF-8");
    return status;
}

/* Takes the key that a row of a dictionary refers to. *missing becomes true if that key is null. */
static spv_status take_named(const spv_column *column, size_t row, size_t shown, spv_column_keys *taken, bool *missing, spv_error *error) {
    const spv_column *values = column->values;
    const uint64_t index = number_at(column, row);
    if (index >= values->length && column->is_signed)
        return spv_refuse(error, shown, "dictionary", "number %" PRId64 " is outside the dictionary, whose length is %zu", (int64_t)index, values->length);
    if (index >= values->length)
        return spv_refuse(error, shown, "dictionary", "number %" PRIu64 " is outside the dictionary, whose length is %zu", index, values->length);
    *missing = values->layout == SPV_NULLS || !is_valid(values, (size_t)index);
    return *missing ? SPV_OK : take_key(values, values->layout, (size_t)index, shown, taken, error);
}

/* Takes rows, starting with `from`, up to the first row that is refused. */
SPV_INLINE spv_status take(const spv_column *column, spv_layout layout, size_t from, size_t count, spv_column_keys *taken, spv_error *error) {
    while (taken->rows < count && taken->effort < SPV_COLUMN_BYTES) {
        const size_t row = from + taken->rows;
        bool missing = layout == SPV_NULLS || !is_valid(column, row);
        spv_status status = SPV_OK;
        if (!missing && column->values)
            status = take_named(column, row, column->first + row, taken, &missing, error);
        else if (!missing)
            status = take_key(column, layout, row, column->first + row, taken, error);
        if (SPV_UNLIKELY(status != SPV_OK))
            return status;
        if (SPV_UNLIKELY(missing && !taken->skip)) {
            spv_refuse(error, column->first + row, "null", "it is missing");
            return SPV_FLAW;
        }
        taken->present[taken->rows++] = !missing;
        if (!missing)
            taken->effort += taken->keys[taken->count++].size;
    }
    return SPV_OK;
}

/* The same for offsets without nulls. Stops before a row that is refused, and at a text that may be invalid. */
SPV_INLINE void take_parts(const spv_column *column, size_t from, size_t count, bool wide, spv_column_keys *taken) {
    const uint8_t *items = item_of(column, from), *data = column->data;
    const size_t step = wide ? 8 : 4;
    int64_t start = part(items, 0, wide);
    const int64_t first = start;
    if (start < 0 || !data)
        return;
    size_t row = 0;
    while (row < count && start - first < SPV_COLUMN_BYTES) {
        const int64_t end = part(items, (row + 1) * step, wide);
        if (SPV_UNLIKELY(start > end || end > column->end))
            break;
        taken->keys[row++] = (spv_bytes){data + start, (size_t)(end - start)};
        start = end;
    }
    if (column->kind == SPV_TEXT && !spv_is_ascii((spv_bytes){data + first, (size_t)(start - first)}))
        return;
    memset(taken->present, 1, row);
    taken->rows = taken->count = row;
    taken->effort = (size_t)(start - first);
}

spv_status spv_column_take(const spv_column *column, size_t from, spv_column_keys *taken, spv_error *error) {
    const size_t left = column->length - from, count = left < taken->most ? left : taken->most;
    taken->rows = taken->count = taken->effort = 0;
    switch (column->layout) {
    case SPV_FIXED:
        return take(column, SPV_FIXED, from, count, taken, error);
    case SPV_NUMBERS:
        return take(column, SPV_NUMBERS, from, count, taken, error);
    case SPV_OFFSETS32:
        if (!column->validity)
            take_parts(column, from, count, false, taken);
        return take(column, SPV_OFFSETS32, from, count, taken, error);
    case SPV_OFFSETS64:
        if (!column->validity)
            take_parts(column, from, count, true, taken);
        return take(column, SPV_OFFSETS64, from, count, taken, error);
    case SPV_VIEWS:
        return take(column, SPV_VIEWS, from, count, taken, error);
    default:
        return take(column, column->layout, from, count, taken, error);
    }
}
