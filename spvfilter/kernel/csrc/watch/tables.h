/* Tables of blocks: blocks, transactions, inputs and outputs as columns. The twin is pure/tables.py. */
#ifndef SPV_WATCH_TABLES_H
#define SPV_WATCH_TABLES_H

#include "block/undo.h"
#include "watch/address.h"

/* blocktables.Layout. */
typedef enum { SPV_INT8, SPV_INT32, SPV_INT64, SPV_FLOAT64, SPV_BITS, SPV_HASH, SPV_BINARY, SPV_TEXT } spv_layout;

/* pure.tables._Wanted: a column while it gets rows. The caller sets it to zero first. */
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

/* The columns that are wanted, and the network of the addresses. */
typedef struct {
    spv_column *columns;
    size_t count;
    spv_address_form form;
    size_t unfit; /* after a failure with SPV_RANGE: SPV_HRP_UNFIT, or the size of an address that is too long; else 0 */
} spv_tables;

/* pure.tables._Wanted.named. False if no column has this name. */
bool spv_column_named(spv_bytes name, spv_column *column);
/* pure.tables._add_block: adds the rows of a block. `record` is checked; its memory is NULL if there is none. After
   a failure the columns are unusable. */
spv_status spv_add_block_rows(spv_tables *tables, spv_bytes block, const spv_record *record, int32_t height, spv_error *error);
/* Bytes of a column's values. */
size_t spv_column_size(const spv_column *column);
void spv_column_free(spv_column *column);

#endif
