/* Packed hits as lines of CSV or JSON. The twin of pure.packed.hit_lines, whose docstring has the columns. */
#ifndef SPV_WATCH_RENDER_H
#define SPV_WATCH_RENDER_H

#include "watch/address.h"
#include "watch/labels.h"
#include "watch/packed.h"

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

/* Renders the hits from *at on, up to the first hit that starts at `until` or later. If a script has no address
   because the human-readable part does not fit, it stops there, and *unfit is the result of spv_encode_address.
   Otherwise *unfit is 0. */
spv_status spv_render_hits(const spv_block_lines *of, spv_bytes packed, size_t *at, size_t until, spv_text *text, size_t *unfit,
                           spv_error *error);

#endif
