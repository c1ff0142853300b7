/* Columns as buffers of Arrow's columnar format, while they get rows. */
#ifndef SPV_WATCH_COLUMNS_H
#define SPV_WATCH_COLUMNS_H

#include "spv.h"

/* blocktables.Layout. */
typedef enum { SPV_INT8, SPV_INT32, SPV_INT64, SPV_FLOAT64, SPV_BITS, SPV_HASH, SPV_BINARY, SPV_TEXT } spv_layout;

/* pure.tables.ColumnRows: a column while it gets rows. The caller sets it to zero first. */
typedef struct {
    unsigned table, id;
    spv_layout layout;
    bool is_hex;
    size_t rows, room;    /* rows, and rows for which there is memory */
    size_t nulls;         /* rows without a value */
    uint8_t *validity;    /* a bit for each row */
    uint8_t *offsets;     /* int32, of BINARY and TEXT */
    uint8_t *data;
    size_t size, data_room; /* bytes of values of BINARY and TEXT */
} spv_column;

SPV_INLINE bool spv_has_offsets(const spv_column *column) {
    return column->layout == SPV_BINARY || column->layout == SPV_TEXT;
}

/* Bytes of a column's values. */
size_t spv_column_size(const spv_column *column);
void spv_column_free(spv_column *column);
/* Allocates memory for `more` rows, without the values of BINARY and TEXT. */
spv_status spv_column_reserve(spv_column *column, size_t more);
/* Appends bytes to the last value of a column with offsets. SPV_RANGE if the column is too long. */
spv_status spv_column_append(spv_column *column, const uint8_t *data, size_t size);

/* These functions put a value into the next row. Memory for the row is reserved. */

SPV_INLINE void spv_put_null(spv_column *c) {
    c->nulls++;
    c->rows++;
    if (spv_has_offsets(c))
        spv_put_le32(c->offsets + 4 * c->rows, (uint32_t)c->size);
}

SPV_INLINE size_t spv_put_valid(spv_column *c) {
    const size_t row = c->rows++;
    c->validity[row >> 3] |= (uint8_t)(1u << (row & 7));
    return row;
}

SPV_INLINE void spv_put_32(spv_column *c, uint32_t value) {
    const size_t row = spv_put_valid(c);
    spv_put_le32(c->data + 4 * row, value);
}

SPV_INLINE void spv_put_64(spv_column *c, uint64_t value) {
    const size_t row = spv_put_valid(c);
    spv_put_le32(c->data + 8 * row, (uint32_t)value);
    spv_put_le32(c->data + 8 * row + 4, (uint32_t)(value >> 32));
}

SPV_INLINE void spv_put_float(spv_column *c, double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    spv_put_64(c, bits);
}

SPV_INLINE void spv_put_8(spv_column *c, uint8_t value) {
    const size_t row = spv_put_valid(c);
    c->data[row] = value;
}

SPV_INLINE void spv_put_bit(spv_column *c, bool value) {
    const size_t row = spv_put_valid(c);
    c->data[row >> 3] |= (uint8_t)(value << (row & 7));
}

SPV_INLINE void spv_put_appended(spv_column *c) {
    spv_put_valid(c);
    spv_put_le32(c->offsets + 4 * c->rows, (uint32_t)c->size);
}

SPV_INLINE spv_status spv_put_bytes(spv_column *c, spv_bytes value) {
    const spv_status status = spv_column_append(c, value.data, value.size);
    if (!status)
        spv_put_appended(c);
    return status;
}

/* A hash, given in display order. */
SPV_INLINE spv_status spv_put_hash(spv_column *c, const uint8_t hash[32]) {
    if (SPV_UNLIKELY(c->is_hex))
        return spv_put_bytes(c, (spv_bytes){hash, 32});
    const size_t row = spv_put_valid(c);
    memcpy(c->data + 32 * row, hash, 32);
    return SPV_OK;
}

SPV_INLINE void spv_reverse(const uint8_t *hash, uint8_t out[32]) {
    for (size_t i = 0; i < 4; i++) {
        uint64_t word;
        memcpy(&word, hash + 8 * i, 8);
        word = __builtin_bswap64(word);
        memcpy(out + 24 - 8 * i, &word, 8);
    }
}

SPV_INLINE spv_status spv_put_wire_hash(spv_column *c, const uint8_t *hash) {
    uint8_t shown[32];
    spv_reverse(hash, shown);
    return spv_put_hash(c, shown);
}

#endif
