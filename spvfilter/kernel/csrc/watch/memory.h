/* Memory of a watch table: arenas, piles of records, and zeroed blocks on huge pages. Arenas and piles grow in
   chunks, and their bytes never move. */
#ifndef SPV_WATCH_MEMORY_H
#define SPV_WATCH_MEMORY_H

#include "spv.h"

/* Allocates zeroed memory at the start of a cache line, on huge pages if it is large. NULL: no memory. */
void *spv_blank(size_t size);
void spv_blank_free(void *memory, size_t size);

/* Bytes of any length. They do not move, and are freed together. An empty arena is all zero. */
typedef struct spv_chunk spv_chunk;
typedef struct {
    spv_chunk *chunks;
    uint8_t *at; /* free memory in the first chunk */
    size_t left;
    size_t total; /* bytes of all chunks */
} spv_arena;

uint8_t *spv_arena_take(spv_arena *arena, size_t size); /* NULL: no memory */
void spv_arena_free(spv_arena *arena);

/* Records of one size, found by number, in segments. Only the first segment ever moves, while it is small. */
enum { SPV_SEGMENT_SHIFT = 8, SPV_SEGMENT = 1 << SPV_SEGMENT_SHIFT };
typedef struct {
    uint8_t **segments;
    size_t record; /* bytes of a record */
    uint32_t count, room;
} spv_pile;

spv_status spv_pile_reserve(spv_pile *pile); /* reserves memory for one more record */
spv_status spv_pile_copy(const spv_pile *pile, spv_pile *copy);
size_t spv_pile_size(const spv_pile *pile); /* bytes allocated */
void spv_pile_free(spv_pile *pile);

SPV_INLINE void *spv_pile_at(const spv_pile *pile, uint32_t number, size_t record) {
    return pile->segments[number >> SPV_SEGMENT_SHIFT] + (size_t)(number & (SPV_SEGMENT - 1)) * record;
}

#endif
