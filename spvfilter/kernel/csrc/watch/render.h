/* Packed hits as lines of CSV or JSON. The twin of pure.packed.hit_lines, whose docstring has the columns. */
#ifndef SPV_WATCH_RENDER_H
#define SPV_WATCH_RENDER_H

#include "watch/address.h"
#include "watch/packed.h"

typedef enum { SPV_CSV, SPV_JSON_LINES, SPV_FORMS } spv_form;

/* What the lines of a block have in common. */
typedef struct {
    spv_form form;
    uint8_t block_hash[32];    /* wire order */
    bool has_height;
    uint32_t height, time;
    spv_address_form network;
    const spv_entries *entries; /* those of the hits */
    const spv_bytes *labels;    /* one for each of them, as the lines show it; empty: none. NULL: no entry has any */
} spv_block_lines;

/* Bytes that grow: all zero when empty, `data` to be freed. */
typedef struct {
    uint8_t *data;
    size_t size, room;
} spv_text;

/* Makes room for the lines of so many hits, without labels; it grows if that is not enough. False: no memory. */
bool spv_text_reserve(spv_text *text, spv_bytes packed, size_t hits);

/* Renders the hits from *at on, up to the first at `until` or behind. If a script has no address because the human-readable part is unfit,
   it stops there and *unfit is what spv_encode_address returned; else that is 0. */
spv_status spv_render_hits(const spv_block_lines *of, spv_bytes packed, size_t *at, size_t until, spv_text *text, size_t *unfit,
                           spv_error *error);

#endif
