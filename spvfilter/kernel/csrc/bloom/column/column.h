/* A column of keys: one array of a table's, in memory that somebody else laid out. The twin is pure/columns.py.

   A producer is a stranger. What a column states is checked when its keys are taken: every number is read once, and no value read leads
   outside of the memory that the column's first and last offset, its sizes and its length enclose. Whether the memory itself is as long
   as they say, no layout tells. */
#ifndef SPV_BLOOM_COLUMN_COLUMN_H
#define SPV_BLOOM_COLUMN_COLUMN_H

#include "bloom/cells.h"

enum { SPV_COLUMN_ROWS = 1 << 11, SPV_COLUMN_COPIES = 1 << 18, SPV_COLUMN_BYTES = 1 << 22 }; /* taken at once: rows; bytes copied; of keys */

typedef enum { SPV_TEXT, SPV_BINARY, SPV_INTEGERS, SPV_NOTHING } spv_kind; /* nothing: every row is null */

typedef enum {
    SPV_FIXED,     /* bytes of one width */
    SPV_WIDE,      /* UTF-32, padded with zeros to one width */
    SPV_NUMBERS,   /* integers of 1, 2, 4 or 8 bytes */
    SPV_OFFSETS32, /* length + 1 offsets into data, of 4 or 8 bytes */
    SPV_OFFSETS64,
    SPV_VIEWS,     /* 16 bytes: the size, and up to 12 bytes, or 4 bytes, a block's number and an offset into it */
    SPV_NULLS
} spv_layout;

typedef struct spv_column spv_column;
struct spv_column {
    spv_layout layout;
    spv_kind kind;
    size_t first;  /* the number of row 0 among the caller's keys, for messages */
    size_t length; /* rows */
    const uint8_t *validity; /* a bit for each row, 0 where it is null, or NULL: none is */
    size_t bit;              /* of row 0 */
    const uint8_t *items;    /* row 0's */
    ptrdiff_t stride, inner; /* bytes from one row to the next, and of SPV_FIXED from one byte to the next */
    size_t width;            /* bytes of a row's item */
    bool is_signed, swapped; /* numbers; the other byte order, also of SPV_WIDE */
    bool trimmed;            /* SPV_FIXED without the zeros at its end */
    const uint8_t *data;     /* that the offsets point into, or NULL */
    int64_t end;             /* the last offset */
    const uint8_t *const *blocks; /* of SPV_VIEWS */
    const uint8_t *sizes;         /* i64 each, bytes of the blocks */
    size_t block_count;
    const spv_column *values; /* of a dictionary, whose items are numbers of rows of it, else NULL */
};

/* What numbers become: 8 bytes LE, or 4. In the order of the core's encodings. */
typedef enum { SPV_AS_THEY_ARE, SPV_AS_INT64, SPV_AS_UINT64, SPV_AS_INT32, SPV_AS_UINT32 } spv_number;

SPV_INLINE size_t spv_number_size(spv_number number) {
    return number >= SPV_AS_INT32 ? 4 : 8;
}

/* Keys taken from a column, in memory of the caller's. */
typedef struct {
    size_t rows, count, effort; /* rows taken; keys among them; their bytes */
    size_t most;                /* rows that there is room for */
    bool skip;                  /* nulls are left out; else they are refused */
    spv_number number;
    spv_bytes *keys;
    uint8_t (*numbers)[8];
    uint8_t *copies;
    uint8_t *present; /* for each row, 1, or 0 for a null */
} spv_column_keys;

/* The bytes of memory for the keys that are taken from a column at once, which may be more than there is, and how it is used. */
size_t spv_column_room(const spv_column *column);
void spv_column_lay_out(const spv_column *column, void *memory, spv_column_keys *taken);

/* Whether the column's rows are keys as they lie in memory, `width` bytes each. */
bool spv_column_is_plain(const spv_column *column, spv_number number);

/* Takes keys from row number `from` on, as many as fit, at least one unless it fails. Else the keys before the refused row are taken, and
   the status is SPV_FORMAT for a malformed row, SPV_FLAW for a null, SPV_RANGE for a number that does not fit; error->offset is the row's
   number among the caller's keys. */
spv_status spv_column_take(const spv_column *column, size_t from, spv_column_keys *taken, spv_error *error);

#endif
