/* Packed hits as lines of CSV or JSON, and sums of entries as lines of CSV. The twins are pure.packed.hit_lines and
   pure.table.WatchTable.script_totals, whose docstrings have the columns. */
#ifndef SPV_WATCH_RENDER_H
#define SPV_WATCH_RENDER_H

#include "watch/address.h"
#include "watch/labels.h"
#include "watch/packed.h"
#include "watch/table.h"

typedef enum { SPV_CSV, SPV_JSON_LINES, SPV_FORMS } spv_form;

/* The parts that all lines of a block have in common. */
typedef struct {
    spv_form form;
    spv_hit_block block;
    spv_address_form network;
    spv_labels labels; /* as the lines show them */
} spv_block_lines;

/* Bytes that grow. An empty text is all zero. The caller frees `data`. */
typedef struct {
    uint8_t *data;
    size_t size, room;
} spv_text;

/* Reserves memory for the lines of `hits` hits without labels. The text grows if that is not enough. False: no
   memory. */
bool spv_text_reserve(spv_text *text, spv_bytes packed, size_t hits);

/* Renders the hits at *at, up to the first hit that starts at `until` or later. If a script has no address
   because the human-readable part does not fit, it stops there, and *unfit is the result of spv_encode_address.
   Otherwise *unfit is 0. */
spv_status spv_render_hits(const spv_block_lines *of, spv_bytes packed, size_t *at, size_t until, spv_text *text, size_t *unfit,
                           spv_error *error);

enum { SPV_SUMS_SIZE = 4 * sizeof(uint64_t) /* bytes of the numbers of an entry, in native order */ };

/* The sums of the entries, starting with number `first`, and the facts that their lines need. */
typedef struct {
    const spv_table *table;
    spv_bytes sums; /* SPV_SUMS_SIZE bytes for each entry */
    uint32_t first;
    spv_labels labels;
    spv_address_form network;
} spv_totals;

/* Renders the entries that have matches, and stops at an entry that is not a script. *next is the number of the entry
   where it stopped. The value of *unfit is as in spv_render_hits. */
spv_status spv_render_totals(const spv_totals *of, spv_text *text, size_t *next, size_t *unfit, spv_error *error);

#endif
