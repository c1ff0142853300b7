/* Columns as lines of CSV or JSON. The twin is pure/columnlines.py. */
#ifndef SPV_WATCH_COLUMNLINES_H
#define SPV_WATCH_COLUMNLINES_H

#include "watch/columns.h"
#include "watch/render.h"

/* A column that is read. It does not own its memory. */
typedef struct {
    spv_bytes name; /* in UTF-8 */
    spv_layout layout;
    spv_bytes validity, offsets, data; /* `validity` has no data if every row has a value */
} spv_read_column;

/* pure.columnlines._layout. False if lines have no such layout. */
bool spv_lines_layout(spv_bytes name, spv_layout *layout);
/* True if the buffers of a column fit its rows. */
bool spv_column_fits(const spv_read_column *column, size_t rows);
/* Renders the rows at *at, up to `until`. The columns fit their rows. False: no memory. */
bool spv_render_rows(spv_form form, const spv_read_column *columns, size_t count, size_t *at, size_t until, spv_text *text);

#endif
