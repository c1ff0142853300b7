/* The exact scan: every output and input of a block or transaction that concerns a table. The twin of pure.table's scan_block and scan_tx. */
#ifndef SPV_WATCH_SCAN_H
#define SPV_WATCH_SCAN_H

#include "block/undo.h"
#include "hash/sha256.h"
#include "watch/table.h"

/* values.Hit, except that it points into the scanned bytes, and that a transaction's hits share its txid. */
typedef struct {
    spv_bytes script;        /* in the scanned bytes, in a table, or in `scripts` */
    const uint8_t *outpoint; /* of a spend, in the scanned bytes */
    int64_t value;
    int64_t fee;             /* SPV_NO_VALUE without an undo record, and of a coinbase */
    uint32_t txid;           /* its number among the txids */
    uint32_t position, n, entry;
    bool spend;
} spv_hit;

typedef struct {
    spv_hit *hits;
    spv_hash *txids;
    spv_arena scripts;       /* of coins in the undo record */
    size_t count, room, txid_room;
    uint32_t txid_count;
} spv_hits;

/* Both lock the tables themselves; other threads may change them meanwhile. `found` may be NULL, or the table itself; `record` may be NULL,
   else it is checked. The hits are to be freed even on failure; they point into `raw` and the tables. */
spv_status spv_watch_block(spv_table *table, spv_table *found, const uint8_t *raw, size_t size, const spv_record *record, spv_hits *hits,
                           spv_error *error);
spv_status spv_watch_tx(spv_table *table, const uint8_t *raw, size_t size, spv_hits *hits, spv_error *error);
void spv_hits_free(spv_hits *hits);

#endif
