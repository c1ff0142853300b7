#include "watch/batch.h"

#include "block/merkle.h"

#include <stdlib.h>

static bool is_within(const uint8_t *data, spv_bytes block) {
    return (uintptr_t)data >= (uintptr_t)block.data && (uintptr_t)data <= (uintptr_t)(block.data + block.size);
}

/* Copies bytes to `*to`, which moves on, and returns the copy. */
static const uint8_t *moved(uint8_t **to, const uint8_t *data, size_t size) {
    const uint8_t *copy = memcpy(*to, data, size);
    *to += size;
    return copy;
}

/* Copies the bytes of the block that the hits refer to: spent outpoints, and scripts that are in no table. */
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

static spv_status scan(const spv_batch *batch, spv_bytes block, spv_block_result *result) {
    if (batch->check) {
        spv_status status = spv_check_block(block.data, block.size, &result->error);
        if (status)
            return status;
    }
    return spv_watch_block(batch->table, batch->found, block.data, block.size, &result->hits, &result->error);
}

size_t spv_scan_of_batch(const spv_batch *batch, size_t number) {
    spv_block_result *result = &batch->results[number];
    if (batch->blocks) {
        result->status = scan(batch, batch->blocks[number], result);
        return batch->blocks[number].size;
    }
    const spv_place *place = &batch->places[number];
    spv_bytes block = {batch->memory, 0};
    result->missing = !spv_read_place(place, batch->memory, &block.size) || !spv_is_block_of(place, block.data, block.size);
    if (!result->missing)
        result->status = scan(batch, block, result);
    if (!result->status && result->hits.count)
        result->status = keep(result, block);
    return place->size;
}

void spv_block_result_free(spv_block_result *result) {
    spv_hits_free(&result->hits);
    free(result->kept);
}
