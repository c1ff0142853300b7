#define _DEFAULT_SOURCE /* for MAP_ANONYMOUS and madvise */
#define _DARWIN_C_SOURCE
#include "watch/memory.h"

#include <stdlib.h>
#include <sys/mman.h>

enum {
    LINE = 64,                /* bytes of a cache line */
    HUGE_PAGE = 2 << 20,      /* bytes of a huge page on most machines */
    LEAST_CHUNK = 1 << 10,    /* bytes of the smallest chunk */
    MOST_CHUNK = 1 << 20,
    LEAST_RECORDS = 16
};

/* Blank memory. */

static size_t mapped_size(size_t size) {
    return (size + HUGE_PAGE - 1) & ~(size_t)(HUGE_PAGE - 1);
}

static void *map_huge(size_t size) {
    uint8_t *start = mmap(NULL, size + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED)
        return NULL;
    size_t before = (size_t)(-(uintptr_t)start & (HUGE_PAGE - 1));
    if (before)
        munmap(start, before);
    if (before != HUGE_PAGE)
        munmap(start + before + size, HUGE_PAGE - before);
#ifdef MADV_HUGEPAGE
    madvise(start + before, size, MADV_HUGEPAGE); /* a hint, which may fail */
#endif
    return start + before;
}

void *spv_blank(size_t size) {
    if (size > SIZE_MAX / 2)
        return NULL;
    if (size >= HUGE_PAGE)
        return map_huge(mapped_size(size));
    size = (size + LINE - 1) & ~(size_t)(LINE - 1);
    void *memory = aligned_alloc(LINE, size);
    if (memory)
        memset(memory, 0, size);
    return memory;
}

void spv_blank_free(void *memory, size_t size) {
    if (memory && size >= HUGE_PAGE)
        munmap(memory, mapped_size(size));
    else
        free(memory);
}

/* Arenas. */

struct spv_chunk {
    spv_chunk *next;
    uint8_t bytes[];
};

uint8_t *spv_arena_take(spv_arena *arena, size_t size) {
    if (SPV_LIKELY(size <= arena->left)) {
        uint8_t *taken = arena->at;
        arena->at += size;
        arena->left -= size;
        return taken;
    }
    size_t usual = arena->total / 8; /* keeps the unused part of the last chunk below an eighth of the total */
    usual = usual < LEAST_CHUNK ? LEAST_CHUNK : usual > MOST_CHUNK ? MOST_CHUNK : usual;
    usual -= sizeof(spv_chunk) + 16;
    bool alone = size > usual / 4; /* long bytes get their own chunk, and the current chunk stays in use */
    size_t room = alone ? size : usual;
    if (room > SIZE_MAX / 2)
        return NULL;
    spv_chunk *chunk = malloc(sizeof *chunk + room);
    if (!chunk)
        return NULL;
    arena->total += sizeof *chunk + room;
    if (alone && arena->chunks) {
        chunk->next = arena->chunks->next;
        arena->chunks->next = chunk;
        return chunk->bytes;
    }
    chunk->next = arena->chunks;
    arena->chunks = chunk;
    arena->at = chunk->bytes + size;
    arena->left = room - size;
    return chunk->bytes;
}

void spv_arena_free(spv_arena *arena) {
    for (spv_chunk *chunk = arena->chunks, *next; chunk; chunk = next) {
        next = chunk->next;
        free(chunk);
    }
}

/* Piles. */

static size_t segments_of(const spv_pile *pile) {
    return ((size_t)pile->room + SPV_SEGMENT - 1) >> SPV_SEGMENT_SHIFT;
}

spv_status spv_pile_reserve(spv_pile *pile) {
    if (SPV_LIKELY(pile->count < pile->room))
        return SPV_OK;
    if (pile->room >= (uint32_t)1 << 31)
        return SPV_RANGE;
    size_t have = segments_of(pile);
    /* the list of segments doubles its size: 8 bytes for each 256 records */
    if (!(have & (have - 1)) && (pile->room >= SPV_SEGMENT || !have)) {
        uint8_t **segments = realloc(pile->segments, (have ? 2 * have : 1) * sizeof *segments);
        if (!segments)
            return SPV_NOMEM;
        if (!have)
            segments[0] = NULL;
        pile->segments = segments;
    }
    bool first = pile->room < SPV_SEGMENT;
    uint32_t room = !first ? SPV_SEGMENT : pile->room ? 2 * pile->room : LEAST_RECORDS;
    uint8_t *segment = realloc(first ? pile->segments[0] : NULL, room * pile->record);
    if (!segment)
        return SPV_NOMEM;
    pile->segments[first ? 0 : have] = segment;
    pile->room = first ? room : pile->room + SPV_SEGMENT;
    return SPV_OK;
}

spv_status spv_pile_copy(const spv_pile *pile, spv_pile *copy) {
    *copy = (spv_pile){.record = pile->record};
    for (uint32_t number = 0; number < pile->count; number += SPV_SEGMENT) {
        uint32_t count = pile->count - number < SPV_SEGMENT ? pile->count - number : SPV_SEGMENT;
        do {
            spv_status status = spv_pile_reserve(copy);
            if (status)
                return status;
            copy->count = copy->room < number + count ? copy->room : number + count;
        } while (copy->count < number + count);
        memcpy(spv_pile_at(copy, number, copy->record), spv_pile_at(pile, number, pile->record), count * pile->record);
    }
    return SPV_OK;
}

size_t spv_pile_size(const spv_pile *pile) {
    return pile->room * pile->record + segments_of(pile) * sizeof *pile->segments;
}

void spv_pile_free(spv_pile *pile) {
    for (size_t i = 0; i < segments_of(pile); i++)
        free(pile->segments[i]);
    free(pile->segments);
}
