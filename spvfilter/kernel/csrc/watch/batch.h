/* The exact scan of many blocks, in memory or in files. The twin of pure.table's scan_blocks and scan_files. */
#ifndef SPV_WATCH_BATCH_H
#define SPV_WATCH_BATCH_H

#include "block/place.h"
#include "watch/scan.h"

/* What a block gives; all zero before. */
typedef struct {
    spv_hits hits;
    spv_error error;   /* where the status is SPV_FORMAT */
    spv_status status;
    bool missing;      /* in its place lies no such block, or nothing that can be read; then there is nothing else */
    uint8_t *kept;     /* of a block in a file: what the hits refer to in its bytes, which the next block overwrites */
} spv_block_result;

typedef struct {
    spv_table *table, *found; /* as spv_watch_block takes them */
    bool check;               /* with spv_check_block before the scan */
    const spv_bytes *blocks;  /* in memory; or NULL, and then in files: */
    const spv_place *places;
    uint8_t *memory;          /* room for the largest of them */
    spv_block_result *results;
    size_t count;
} spv_batch;

/* Block `number`; gives the bytes it has. */
size_t spv_scan_of_batch(const spv_batch *batch, size_t number);
void spv_block_result_free(spv_block_result *result);

#endif
