/* Packed hits as columns. The twin of pure.hitcolumns.hit_columns, whose docstring has the columns. */
#ifndef SPV_WATCH_HITCOLUMNS_H
#define SPV_WATCH_HITCOLUMNS_H

#include "watch/address.h"
#include "watch/columns.h"
#include "watch/labels.h"
#include "watch/packed.h"

enum { SPV_HIT_COLUMNS = 14 };

/* The columns while they get rows, and the values that all rows share. */
typedef struct {
    spv_column columns[SPV_HIT_COLUMNS];
    bool is_binary;     /* hashes are 32 bytes, not text */
    spv_labels labels;
    spv_address_form form;
    size_t skip, left;  /* hits to skip before the first row, and rows to add at most */
    size_t unfit;       /* after a failure with SPV_RANGE: as in spv_tables */
} spv_hit_table;

/* Chooses the layouts of the columns. All other bytes of the columns are zero before. */
void spv_hit_table_init(spv_hit_table *of, bool is_binary);
/* Adds the hits at *at, up to the first hit that starts at `until` or later. After a failure the columns are
   unusable. */
spv_status spv_add_hit_rows(spv_hit_table *of, const spv_hit_block *block, spv_bytes packed, size_t *at, size_t until, spv_error *error);

#endif
