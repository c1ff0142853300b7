/* The exact scan: every output and input of a block or transaction that matches a table. The twins are scan_block
   and scan_tx of pure.table. */
#ifndef SPV_WATCH_SCAN_H
#define SPV_WATCH_SCAN_H

#include "block/undo.h"
#include "hash/sha256.h"
#include "watch/table.h"

/* Like values.Hit, but it points into the scanned bytes, and the hits of a transaction share its txid. */
typedef struct {
    spv_bytes script;        /* in the scanned bytes, in a table, or in `scripts` */
    const uint8_t *outpoint; /* outpoint of a spend, in the scanned bytes */
    int64_t value;
    int64_t fee;             /* SPV_NO_VALUE for a coinbase, and without an undo record */
    uint32_t txid;           /* number of the txid */
    uint32_t position, n, entry;
    bool spend;
    bool pattern;            /* an output of an entry that is a data prefix or a script type: its coin is not learned */
} spv_hit;

typedef struct {
    spv_hit *hits;
    spv_hash *txids;
    spv_arena scripts;       /* scripts of coins in the undo record */
    size_t count, room, txid_room;
    uint32_t txid_count;
} spv_hits;

/* Both functions lock the tables themselves; other threads may change the tables at the same time. `found` may be
   NULL, or the table itself. `record` may be NULL; otherwise it has been checked. The caller frees the hits even
   after a failure. They point into `raw` and the tables. */
spv_status spv_watch_block(spv_table *table, spv_table *found, const uint8_t *raw, size_t size, const spv_record *record, spv_hits *hits,
                           spv_error *error);
spv_status spv_watch_tx(spv_table *table, const uint8_t *raw, size_t size, spv_hits *hits, spv_error *error);
void spv_hits_free(spv_hits *hits);

#endif
