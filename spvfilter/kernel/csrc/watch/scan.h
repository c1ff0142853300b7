/* The exact scan: every output and input of a block or transaction that concerns a table. The twin of pure.table's scan_block and scan_tx. */
#ifndef SPV_WATCH_SCAN_H
#define SPV_WATCH_SCAN_H

#include "hash/sha256.h"
#include "watch/table.h"

/* values.Hit, but for what stands in the bytes scanned and for txids, which a transaction's hits share. */
typedef struct {
    spv_bytes script;        /* in the bytes scanned or in a table */
    const uint8_t *outpoint; /* of a spend: in the bytes scanned */
    int64_t value;
    uint32_t txid;           /* its number among the txids */
    uint32_t position, n, entry;
    bool spend;
} spv_hit;

typedef struct {
    spv_hit *hits;
    spv_hash *txids;
    size_t count, room, txid_room;
    uint32_t txid_count;
} spv_hits;

/* Both lock the tables themselves: others may learn meanwhile. `found` may be NULL, or the table itself. The hits are to be freed
   whatever the status; they point into `raw` and the tables. */
spv_status spv_watch_block(spv_table *table, spv_table *found, const uint8_t *raw, size_t size, spv_hits *hits, spv_error *error);
spv_status spv_watch_tx(spv_table *table, const uint8_t *raw, size_t size, spv_hits *hits, spv_error *error);
void spv_hits_free(spv_hits *hits);

#endif
