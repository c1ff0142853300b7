#include "watch/index.h"

#include "watch/memory.h"

static const uint16_t NO_TAGS[SPV_GROUP];

static size_t block_size(size_t groups) {
    return (size_t)spv_index_bytes(groups);
}

/* 13 of 15 slots: a third of the groups are full then, and the groups after them mostly are not */
static uint32_t limit_of(size_t groups) {
    return groups > SPV_NONE / 13 ? SPV_NONE : (uint32_t)(groups * 13);
}

static spv_status allocate(spv_index *index, size_t groups) {
    if (groups > SIZE_MAX / 2 / block_size(1))
        return SPV_NOMEM;
    void *block = spv_blank(block_size(groups));
    if (!block)
        return SPV_NOMEM;
    *index = spv_index_over(block, groups, 0);
    return SPV_OK;
}

size_t spv_index_groups(uint32_t count) {
    size_t groups = 1;
    while (limit_of(groups) <= count)
        groups *= 2;
    return groups;
}

spv_index spv_index_over(uint8_t *memory, size_t groups, uint32_t count) {
    return (spv_index){
        .tags = (uint16_t *)(void *)memory,
        .numbers = (uint32_t *)(void *)(memory + groups * SPV_GROUP * sizeof(uint16_t)),
        .mask = groups - 1,
        .reach = SIZE_MAX,
        .count = count,
        .limit = limit_of(groups),
    };
}

void spv_index_init(spv_index *index) {
    *index = (spv_index){.tags = (uint16_t *)(uintptr_t)NO_TAGS, .reach = SIZE_MAX}; /* read only, because `limit` is 0 */
}

void spv_index_free(spv_index *index) {
    if (index->limit && !index->mapped)
        spv_blank_free(index->tags, block_size(index->mask + 1));
}

size_t spv_index_size(const spv_index *index) {
    return index->limit && !index->mapped ? block_size(index->mask + 1) : 0;
}

void spv_index_add(spv_index *index, uint64_t hash, uint32_t number) {
    size_t group = spv_index_group(index, hash);
    for (uint16_t *tags; (tags = index->tags + group * SPV_GROUP)[SPV_PASSED - 1]; group = (group + 1) & index->mask)
        tags[SPV_PASSED] |= spv_passed_bit(hash);
    size_t slot = group * SPV_GROUP + (size_t)__builtin_ctzll(spv_group_slots(index->tags + group * SPV_GROUP, 0)) / SPV_SLOT_BITS;
    index->tags[slot] = spv_index_tag(hash);
    index->numbers[slot] = number;
    index->count++;
}

enum { WINDOW = 16 }; /* number of hashes that are computed ahead while their groups are prefetched */

/* Adds all numbers below `numbers` that have a hash. False if there is no room for them and one more. */
static bool fill(spv_index *index, uint32_t numbers, spv_hash_of *hash_of, const void *context) {
    uint64_t hashes[WINDOW];
    uint32_t ahead[WINDOW];
    unsigned waiting = 0;
    for (uint32_t number = 0; number < numbers; number++) {
        if (!hash_of(context, number, &hashes[waiting]))
            continue;
        spv_index_fetch(index, hashes[waiting]);
        ahead[waiting++] = number;
        if (index->count + waiting >= index->limit)
            return false;
        if (waiting == WINDOW)
            while (waiting)
                waiting--, spv_index_add(index, hashes[waiting], ahead[waiting]);
    }
    while (waiting)
        waiting--, spv_index_add(index, hashes[waiting], ahead[waiting]);
    return true;
}

spv_status spv_index_reserve(spv_index *index, uint32_t numbers, spv_hash_of *hash_of, const void *context) {
    if (SPV_LIKELY(index->count < index->limit && !index->mapped))
        return SPV_OK;
    if (index->limit == SPV_NONE)
        return SPV_RANGE;
    spv_index grown = {0};
    size_t groups = spv_index_groups(index->count);
    for (;; groups *= 2) { /* the count of a mapped index may be wrong */
        spv_status status = allocate(&grown, groups);
        if (status)
            return status;
        if (fill(&grown, numbers, hash_of, context))
            break;
        spv_index_free(&grown);
    }
    spv_index_free(index);
    *index = grown;
    return SPV_OK;
}

spv_status spv_index_copy(const spv_index *index, spv_index *copy) {
    spv_index_init(copy);
    if (!index->limit)
        return SPV_OK;
    if (index->mapped) {
        *copy = *index;
        return SPV_OK;
    }
    spv_status status = allocate(copy, index->mask + 1);
    if (!status) {
        memcpy(copy->tags, index->tags, block_size(index->mask + 1));
        copy->count = index->count;
    } else {
        spv_index_init(copy);
    }
    return status;
}
