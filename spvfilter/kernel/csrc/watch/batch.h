/* The exact scan of many blocks, in memory or in files. The twin of pure.table's scan_blocks and scan_files. */
#ifndef SPV_WATCH_BATCH_H
#define SPV_WATCH_BATCH_H

#include "block/place.h"
#include "block/undo.h"
#include "watch/scan.h"

/* The result of one block, zeroed by the caller. */
typedef struct {
    spv_hits hits;
    spv_error error;   /* if the status is SPV_FORMAT or SPV_UNDO */
    spv_status status;
    bool missing;      /* the place cannot be read, or holds no such block; then the other members are unused */
    uint8_t *kept;     /* for a block in a file: copies of the bytes that the hits refer to, as the next block overwrites them */
    uint8_t *packed;   /* the hits as bytes, in place of `hits`, if that is wanted and the block has any */
    size_t packed_size;
} spv_block_result;

typedef struct {
    spv_table *table, *found; /* as spv_watch_block takes them */
    bool check;               /* call spv_check_block before the scan */
    bool packed;              /* results are packed hits */
    const spv_bytes *blocks;  /* in memory; NULL if they are in files, which the next two describe: */
    const spv_place *places;
    uint8_t *memory;          /* room for the largest of them */
    const spv_record *records; /* their undo records, checked; NULL if there are none */
    spv_block_result *results;
    size_t count;
} spv_batch;

/* An undo record in `memory`, which has room for SPV_HASH_BEFORE more bytes: from bytes given beside a block, or from its place. One that
   cannot be read whole has the state SPV_GONE. */
enum { SPV_HASH_BEFORE = 32 };
spv_record spv_copy_record(spv_bytes record, spv_bytes block, uint8_t *memory);
spv_record spv_read_record(const spv_place *place, uint8_t *memory);

/* Scans block `number` and returns its size in bytes. */
size_t spv_scan_of_batch(const spv_batch *batch, size_t number);
void spv_block_result_free(spv_block_result *result);

#endif
