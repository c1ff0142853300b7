/* Tables of blocks: blocks, transactions, inputs, outputs and items as columns. The twin is pure/tables.py. */
#ifndef SPV_WATCH_TABLES_H
#define SPV_WATCH_TABLES_H

#include "block/undo.h"
#include "watch/address.h"
#include "watch/columns.h"

/* The columns that are wanted, and the network of the addresses. */
typedef struct {
    spv_column *columns;
    size_t count;
    spv_address_form form;
    size_t unfit; /* after a failure with SPV_RANGE: SPV_HRP_UNFIT, or the size of an address that is too long; else 0 */
} spv_tables;

/* pure.tables.ColumnRows.named. False if no column has this name. */
bool spv_column_named(spv_bytes name, spv_column *column);
/* pure.tables._add_block: adds the rows of a block. `record` is checked; its memory is NULL if there is none. With
   packed hits, only transactions with hits have rows; without data, all of them. After a failure the columns are
   unusable. */
spv_status spv_add_block_rows(
    spv_tables *tables, spv_bytes block, const spv_record *record, int32_t height, spv_bytes hits, spv_error *error
);

#endif
