/* A column of keys: an array of a table, in memory that another library laid out. The twin is pure/columns.py.

   That library is not trusted. The numbers in a column are checked when its keys are taken. Every number is read
   once. No number can make the code read outside the memory that the first and last offset, the sizes and the length
   of the column describe. No layout contains the real length of that memory. */
#ifndef SPV_BLOOM_COLUMN_COLUMN_H
#define SPV_BLOOM_COLUMN_COLUMN_H

#include "bloom/cells.h"

/* limits for one call of spv_column_take: rows; bytes that are copied; bytes of keys */
enum { SPV_COLUMN_ROWS = 1 << 11, SPV_COLUMN_COPIES = 1 << 18, SPV_COLUMN_BYTES = 1 << 22 };

typedef enum { SPV_TEXT, SPV_BINARY, SPV_INTEGERS, SPV_NOTHING } spv_kind; /* SPV_NOTHING: every row is null */

typedef enum {
    SPV_FIXED,     /* bytes of a fixed width */
    SPV_WIDE,      /* UTF-32, padded with zeros to a fixed width */
    SPV_NUMBERS,   /* integers of 1, 2, 4 or 8 bytes */
    SPV_OFFSETS32, /* length + 1 offsets into data, of 4 or 8 bytes */
    SPV_OFFSETS64,
    SPV_VIEWS,     /* 16 bytes: the size, then a value of up to 12 bytes, or its first 4 bytes, a block's number and an offset in it */
    SPV_NULLS
} spv_layout;

typedef struct spv_column spv_column;
struct spv_column {
    spv_layout layout;
    spv_kind kind;
    size_t first;  /* number of row 0 among the caller's keys, for messages */
    size_t length; /* number of rows */
    const uint8_t *validity; /* a bit for each row, 0 if it is null; NULL if no row is null */
    size_t bit;              /* number of row 0's bit */
    const uint8_t *items;    /* item of row 0 */
    ptrdiff_t stride, inner; /* bytes from one row to the next; for SPV_FIXED also from one byte to the next */
    size_t width;            /* bytes of a row's item */
    bool is_signed, swapped; /* for numbers: signed; opposite byte order (also for SPV_WIDE) */
    bool trimmed;            /* SPV_FIXED: ignore the zeros at the end */
    const uint8_t *data;     /* the data of the offsets, or NULL */
    int64_t end;             /* the last offset */
    const uint8_t *const *blocks; /* blocks of SPV_VIEWS */
    const uint8_t *sizes;         /* sizes of the blocks in bytes, i64 each */
    size_t block_count;
    const spv_column *values; /* a dictionary, if the items are numbers of its rows; else NULL */
};

/* Encoding of numbers, in 8 or 4 bytes little endian. The order is that of the core's encodings. */
typedef enum { SPV_AS_THEY_ARE, SPV_AS_INT64, SPV_AS_UINT64, SPV_AS_INT32, SPV_AS_UINT32 } spv_number;

SPV_INLINE size_t spv_number_size(spv_number number) {
    return number >= SPV_AS_INT32 ? 4 : 8;
}

/* Keys that were taken from a column, in the caller's memory. */
typedef struct {
    size_t rows, count, effort; /* number of rows taken; number of keys; bytes of the keys */
    size_t most;                /* room, in rows */
    bool skip;                  /* nulls are skipped; else they are refused */
    spv_number number;
    spv_bytes *keys;
    uint8_t (*numbers)[8];
    uint8_t *copies;
    uint8_t *present; /* for each row: 1, or 0 for a null */
} spv_column_keys;

/* The bytes of memory that one call of spv_column_take needs (they may exceed the machine's memory), and a function
   that divides this memory. */
size_t spv_column_room(const spv_column *column);
void spv_column_lay_out(const spv_column *column, void *memory, spv_column_keys *taken);

/* True if the rows of the column are keys as they are in memory, `width` bytes each. */
bool spv_column_is_plain(const spv_column *column, spv_number number);

/* Takes as many keys as fit, starting with row number `from`. It takes at least one row unless it fails.

   If a row is refused, the keys before it are taken. The status is then SPV_FORMAT for a malformed row, SPV_FLAW for
   a null, or SPV_RANGE for a number that does not fit. The offset of the error is the number of the row among the caller's
   keys. */
spv_status spv_column_take(const spv_column *column, size_t from, spv_column_keys *taken, spv_error *error);

#endif
