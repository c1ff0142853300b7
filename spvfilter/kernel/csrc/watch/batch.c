#include "watch/batch.h"

#include "block/merkle.h"
#include "watch/packed.h"

#include <stdlib.h>

static bool is_within(const uint8_t *data, spv_bytes block) {
    return (uintptr_t)data >= (uintptr_t)block.data && (uintptr_t)data <= (uintptr_t)(block.data + block.size);
}

/* Copies bytes to `*to`, moves `*to` past them, and returns the copy. */
static const uint8_t *moved(uint8_t **to, const uint8_t *data, size_t size) {
    const uint8_t *copy = memcpy(*to, data, size);
    *to += size;
    return copy;
}

/* Copies the bytes of the block that the hits refer to: spent outpoints, and scripts that are not in a table. */
static spv_status keep(spv_block_result *result, spv_bytes block) {
    size_t size = 0;
    for (size_t i = 0; i < result->hits.count; i++) {
        const spv_hit *hit = &result->hits.hits[i];
        size += (hit->outpoint ? SPV_OUTPOINT_SIZE : 0) + (is_within(hit->script.data, block) ? hit->script.size : 0);
    }
    uint8_t *to = result->kept = malloc(size + 1);
    if (!to)
        return SPV_NOMEM;
    for (size_t i = 0; i < result->hits.count; i++) {
        spv_hit *hit = &result->hits.hits[i];
        if (hit->outpoint)
            hit->outpoint = moved(&to, hit->outpoint, SPV_OUTPOINT_SIZE);
        if (is_within(hit->script.data, block))
            hit->script.data = moved(&to, hit->script.data, hit->script.size);
    }
    return SPV_OK;
}

spv_record spv_copy_record(spv_bytes record, spv_bytes block, uint8_t *memory) {
    enum { PREVIOUS = 4 }; /* offset of the previous block's hash; a block without it is refused before its record is checked */
    memset(memory, 0, SPV_HASH_BEFORE);
    if (block.size >= SPV_HEADER_SIZE)
        memcpy(memory, block.data + PREVIOUS, SPV_HASH_BEFORE);
    if (record.size)
        memcpy(memory + SPV_HASH_BEFORE, record.data, record.size);
    return spv_record_of(memory, record.size);
}

spv_record spv_read_record(const spv_place *place, uint8_t *memory) {
    size_t size = 0;
    memcpy(memory, place->hash, SPV_HASH_BEFORE);
    if (!spv_read_place(place, memory + SPV_HASH_BEFORE, &size))
        size = 0;
    if (size != place->size)
        return (spv_record){memory, place->size, size, SPV_GONE};
    return spv_record_of(memory, size);
}

/* pure.table._record_at: the errors of a record that are found before the block is parsed. */
static spv_status check_place(const spv_record *record, spv_bytes block, spv_error *error) {
    if (record->state == SPV_GONE)
        return spv_refuse_record(record, error);
    if (memcmp(record->memory, block.data + 4, SPV_HASH_BEFORE))
        return spv_refuse_undo(spv_refuse(error, 0, "undo record", "the record belongs to a block with a different parent"));
    return SPV_OK;
}

static spv_status scan(const spv_batch *batch, spv_bytes block, size_t number, spv_block_result *result) {
    const spv_record *record = batch->records && batch->records[number].memory ? &batch->records[number] : NULL;
    spv_status status = SPV_OK;
    if (batch->check)
        status = spv_check_block(block.data, block.size, &result->error);
    if (!status && record && batch->places)
        status = check_place(record, block, &result->error);
    if (status)
        return status;
    return spv_watch_block(batch->table, batch->found, block.data, block.size, record, &result->hits, &result->error);
}

/* Packs the hits and frees them. */
static spv_status pack(spv_block_result *result) {
    const spv_status status = spv_pack_hits(&result->hits, &result->packed, &result->packed_size);
    spv_hits_free(&result->hits);
    result->hits = (spv_hits){0};
    return status;
}

size_t spv_scan_of_batch(const spv_batch *batch, size_t number) {
    spv_block_result *result = &batch->results[number];
    if (batch->blocks) {
        result->status = scan(batch, batch->blocks[number], number, result);
        if (!result->status && result->hits.count && batch->packed)
            result->status = pack(result);
        return batch->blocks[number].size;
    }
    const spv_place *place = &batch->places[number];
    spv_bytes block = {batch->memory, 0};
    result->missing = !spv_read_place(place, batch->memory, &block.size) || !spv_is_block_of(place, block.data, block.size);
    if (!result->missing)
        result->status = scan(batch, block, number, result);
    if (!result->status && result->hits.count)
        result->status = batch->packed ? pack(result) : keep(result, block);
    return place->size;
}

void spv_block_result_free(spv_block_result *result) {
    spv_hits_free(&result->hits);
    free(result->kept);
    free(result->packed);
}
