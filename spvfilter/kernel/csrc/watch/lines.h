/* Lines `address` or `address,label` of a text file, added to a watch table. */
#ifndef SPV_WATCH_LINES_H
#define SPV_WATCH_LINES_H

#include "watch/address.h"
#include "watch/table.h"

/* A label of an entry: bytes of UTF-8 without control characters, line breaks or surrogates. */
typedef struct {
    spv_bytes text;
    uint32_t entry;
} spv_label;

typedef struct {
    spv_label *labels;
    size_t count, room;
    size_t lines;   /* number of lines taken, from the first one */
    size_t consumed; /* number of their bytes */
} spv_address_lines;

enum { SPV_MOST_JOBS = 256 };

/* Adds the addresses of whole lines `address` or `address,label` (ended by LF or CRLF), up to the first other line.
   `jobs` threads decode them, at most SPV_MOST_JOBS; the calling thread is one of them, and adds them in their order.
   The caller frees the result even after a failure. The lines before a failure have been added. */
spv_status spv_add_address_lines(spv_table *table, const spv_address_network *network, spv_bytes chunk, unsigned jobs, spv_address_lines *taken);
void spv_address_lines_free(spv_address_lines *taken);

#endif
