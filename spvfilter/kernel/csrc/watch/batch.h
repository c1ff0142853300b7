/* The exact scan of many blocks, in memory or in files. The twins are scan_blocks and scan_files of pure.table. */
#ifndef SPV_WATCH_BATCH_H
#define SPV_WATCH_BATCH_H

#include "block/place.h"
#include "block/undo.h"
#include "watch/scan.h"

/* The result of one block. The caller sets it to zero first. */
typedef struct {
    spv_hits hits;
    spv_error error;   /* valid if the status is SPV_FORMAT or SPV_UNDO */
    spv_status status;
    bool missing;      /* the place cannot be read, or contains no such block; the other members are then unused */
    uint8_t *kept;     /* for a block in a file: copies of the bytes that the hits refer to, because the next block overwrites them */
    uint8_t *packed;   /* the hits as bytes, in place of `hits`, if that is requested and the block has hits */
    size_t packed_size;
} spv_block_result;

typedef struct {
    spv_table *table, *found; /* arguments of spv_watch_block */
    bool check;               /* call spv_check_block before the scan */
    bool packed;              /* results are packed hits */
    const spv_bytes *blocks;  /* blocks in memory; NULL if they are in files, which the next two members describe */
    const spv_place *places;
    uint8_t *memory;          /* room for the largest block */
    const spv_record *records; /* their undo records, checked; NULL without undo records */
    spv_block_result *results;
    size_t count;
} spv_batch;

/* Undo records in memory, with room for SPV_HASH_BEFORE more bytes before each. They are copied from bytes or read
   from their places. A record that cannot be read completely has the state SPV_GONE. */
enum { SPV_HASH_BEFORE = 32 };
spv_record spv_copy_record(spv_bytes record, spv_bytes block, uint8_t *memory);
spv_record spv_read_record(const spv_place *place, uint8_t *memory);

/* Scans block `number` and returns its size in bytes. */
size_t spv_scan_of_batch(const spv_batch *batch, size_t number);
void spv_block_result_free(spv_block_result *result);

#endif
