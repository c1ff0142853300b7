/* The cells of a key in a generic filter: the twin of pure/cells.py's position functions, for all families except
   custom ones. */
#ifndef SPV_BLOOM_CELLS_H
#define SPV_BLOOM_CELLS_H

#include "bloom/foreign.h"
#include "bloom/gate.h"
#include "bloom/room.h"
#include "hash/murmur3.h"
#include "hash/murmur3/x64.h"
#include "hash/siphash.h"

/* values.Family. */
typedef enum {
    SPV_FAMILY_BIP37 = 1,
    SPV_FAMILY_FAST = 2,
    SPV_FAMILY_SIPHASH = 3,
    SPV_FAMILY_SPARK_V1 = 4,
    SPV_FAMILY_SPARK_V2 = 5,
    SPV_FAMILY_REDISBLOOM = 6,
    SPV_FAMILY_SPLIT_BLOCK = 7,
    SPV_FAMILY_CUSTOM = 255
} spv_family;

/* How a family computes a key's cells: by spreading two hashes, by hashing with one seed per function, or as another
   program does it. */
typedef enum { SPV_WALK_SPREAD, SPV_WALK_BIP37, SPV_WALK_FOREIGN } spv_walk;

enum { SPV_AHEAD = 32, SPV_AHEAD_CELLS = 512 }; /* keys that are hashed ahead; their cells, unless a single key has more */
enum { SPV_PLANES = 32 }; /* functions whose cells are computed together */

typedef struct {
    spv_family family;
    uint32_t functions; /* number of cells of a key: k, or 0 if the filter has no cells */
    uint32_t seed;      /* tweak or seed */
    uint64_t k0, k1;    /* key of SipHash */
    uint64_t span;      /* number of cells that a function can reach: m, or the cells of its plane */
    uint64_t stride;    /* distance of the first cells of two successive functions: 0, or the span */
    uint64_t reciprocal; /* ⌈2^64 / span⌉, for BIP-37's remainder of 32-bit hashes; 0 if span is 1 or above 32 bits */
} spv_shape;

SPV_INLINE spv_walk spv_walk_of(const spv_shape *shape) {
    if (shape->family == SPV_FAMILY_FAST || shape->family == SPV_FAMILY_SIPHASH)
        return SPV_WALK_SPREAD;
    return shape->family == SPV_FAMILY_BIP37 ? SPV_WALK_BIP37 : SPV_WALK_FOREIGN;
}

/* Many keys: `keys`, or the rows of a table if `keys` is NULL. */
typedef struct {
    const spv_bytes *keys;
    const uint8_t *rows;
    size_t width; /* bytes of a row */
} spv_keys;

SPV_INLINE spv_bytes spv_key_at(const spv_keys *keys, size_t number) {
    return keys->keys ? keys->keys[number] : (spv_bytes){keys->rows + number * keys->width, keys->width};
}

/* The cells of a filter, and how batches write to them. */
typedef struct {
    const spv_shape *shape;
    uint8_t *cells;
    unsigned width; /* bits of a cell: 1 for bits; 4, 8 or 16 for counters */
    spv_gate *gate;
    uint64_t *positions; /* room for SPV_AHEAD_CELLS cells, or for the cells of one key if it has more */
    bool far;            /* the cells do not fit into a near cache: fetch them ahead */
    bool shared;         /* the result of spv_gate_enter; the batch keeps it up to date */
    spv_room *room;      /* number of new keys that may still be added */
    size_t done;         /* number of keys that the last update processed; it is lower than requested if there was no room for a new key */
} spv_batch;

SPV_INLINE uint64_t spv_high64(uint64_t a, uint64_t b) {
    __extension__ typedef unsigned __int128 wide;
    return (uint64_t)((wide)a * b >> 64);
}

/* The last step of pure.cells._spread: mixes x again, because of small spans, then maps it onto the span by
   multiplication and shift. */
SPV_INLINE uint64_t spv_spread(uint64_t x, uint64_t span) {
    return spv_high64((x ^ x >> 32) * UINT64_C(0xD6E8FEB86659FD93), span);
}

SPV_INLINE spv_hash128 spv_two_of_siphash(uint64_t hash) {
    return (spv_hash128){hash, hash * UINT64_C(0xD6E8FEB86659FD93) | 1};
}

/* The two hashes of a key; the second is odd. */
SPV_INLINE spv_hash128 spv_two_hashes(const spv_shape *shape, const uint8_t *data, size_t size) {
    if (shape->family != SPV_FAMILY_FAST)
        return spv_two_of_siphash(spv_siphash24(data, size, shape->k0, shape->k1));
    spv_hash128 hashes = spv_murmur3_x64_128(data, size, shape->seed);
    hashes.h2 |= 1;
    return hashes;
}

/* A key's cells, computed one after the other when they are needed. */
typedef struct {
    const spv_shape *shape;
    const uint8_t *data;
    size_t size;
    uint64_t x, step, first;
    uint32_t seed;   /* for SPV_WALK_BIP37 */
    unsigned number; /* number of the next function in a split block */
} spv_cursor;

/* Starts foreign._spark_v1, _spark_v2, _redisbloom or _in_block: the state before the first cell. */
SPV_INLINE void spv_foreign_start(spv_cursor *cursor) {
    const uint8_t *data = cursor->data;
    const size_t size = cursor->size;
    uint32_t start, step;
    switch (cursor->shape->family) {
    case SPV_FAMILY_SPLIT_BLOCK:
        cursor->x = spv_xxhash64(data, size);
        cursor->first = spv_block_of(cursor->x, cursor->shape->span);
        return;
    case SPV_FAMILY_REDISBLOOM:
        cursor->x = spv_murmur64a(data, size, SPV_MURMUR2);
        cursor->step = spv_murmur64a(data, size, cursor->x);
        return;
    default:
        start = spv_spark_murmur(data, size, cursor->seed);
        step = spv_spark_murmur(data, size, start);
        cursor->x = cursor->shape->family == SPV_FAMILY_SPARK_V1 ? start : (uint64_t)(int32_t)start * INT32_MAX;
        cursor->step = (uint64_t)(int32_t)step;
    }
}

/* The next cell of these walks, without the first cell of the function. */
SPV_INLINE uint64_t spv_foreign_next(spv_cursor *cursor) {
    const uint64_t span = cursor->shape->span;
    uint64_t at = cursor->x;
    switch (cursor->shape->family) {
    case SPV_FAMILY_SPLIT_BLOCK:
        return spv_bit_in_block(at, cursor->number++);
    case SPV_FAMILY_REDISBLOOM:
        cursor->x += cursor->step;
        return at % span;
    case SPV_FAMILY_SPARK_V1:
        at = cursor->x = (uint32_t)(at + cursor->step);
        return (at >> 31 ? at ^ UINT32_MAX : at) % span;
    default:
        at = cursor->x += cursor->step;
        return (at >> 63 ? ~at : at) % span;
    }
}

SPV_INLINE spv_cursor spv_cursor_at(const spv_shape *shape, const uint8_t *data, size_t size) {
    spv_cursor cursor = {.shape = shape, .data = data, .size = size, .seed = shape->seed};
    const spv_walk walk = spv_walk_of(shape);
    if (walk == SPV_WALK_SPREAD) {
        const spv_hash128 hashes = spv_two_hashes(shape, data, size);
        cursor.x = hashes.h1;
        cursor.step = hashes.h2;
    } else if (walk == SPV_WALK_FOREIGN) {
        spv_foreign_start(&cursor);
    }
    return cursor;
}

/* The same for a key whose two hashes are known. */
SPV_INLINE spv_cursor spv_cursor_of(const spv_shape *shape, spv_hash128 hashes) {
    return (spv_cursor){.shape = shape, .x = hashes.h1, .step = hashes.h2, .seed = shape->seed};
}

/* `walk` is the walk of the family. It is an argument so that the compiler knows it. */
SPV_INLINE uint64_t spv_cursor_next(spv_cursor *cursor, spv_walk walk) {
    const spv_shape *shape = cursor->shape;
    uint64_t cell;
    if (walk == SPV_WALK_BIP37) { /* function i is murmur3 seeded with i * 0xFBA4C795 + tweak, modulo the span */
        const uint32_t hash = spv_murmur3_32(cursor->data, cursor->size, cursor->seed);
        cursor->seed += UINT32_C(0xFBA4C795);
        cell = shape->reciprocal ? spv_high64(shape->reciprocal * hash, shape->span) : hash % shape->span;
    } else if (walk == SPV_WALK_FOREIGN) {
        cell = spv_foreign_next(cursor);
    } else {
        cell = spv_spread(cursor->x, shape->span);
        cursor->x += cursor->step;
    }
    cell += cursor->first;
    cursor->first += shape->stride;
    return cell;
}

/* pure.cells.Hashed.__init__: `key` is 16 bytes. */
void spv_shape_make(spv_shape *shape, spv_family family, uint64_t cells, uint32_t hash_funcs, bool partitioned, const uint8_t key[16]);

/* Computes all cells of `count` keys, starting with number `from`, key by key. */
void spv_positions(const spv_shape *shape, const spv_keys *keys, size_t from, size_t count, uint64_t *positions);

/* The same, into batch->positions. It also fetches the bytes of the cells. */
void spv_hash_ahead(const spv_batch *batch, const spv_keys *keys, size_t from, size_t count);

/* The state of up to SPV_AHEAD keys during their walks: the value to spread, and the value to add for the next
   function. */
typedef struct {
    _Alignas(64) uint64_t x[SPV_AHEAD], step[SPV_AHEAD];
} spv_window;

/* Computes the hashes of up to SPV_AHEAD keys, in a family with two hashes. They are the same for every shape with
   the same family and key. */
void spv_hash_window(const spv_shape *shape, const spv_keys *keys, size_t from, size_t count, spv_window *hashed);
/* Computes the next cells of hashed keys: planes[j][i] is the cell of key i for function first + j. Unused lanes of
   a vector write cells after the last key. */
void spv_spread_planes(const spv_shape *shape, spv_window *hashed, size_t count, size_t first, size_t functions, uint64_t (*planes)[SPV_AHEAD]);
/* Computes the next cells of hashed keys, for the next `functions` functions, key by key. Fetches them if there is a
   batch. */
void spv_spread_window(const spv_shape *shape, spv_window *hashed, size_t count, size_t functions, uint64_t *positions, const spv_batch *batch);

/* The number of keys that are hashed ahead. */
SPV_INLINE size_t spv_keys_ahead(const spv_shape *shape) {
    const size_t fit = shape->functions ? SPV_AHEAD_CELLS / shape->functions : SPV_AHEAD;
    return fit > SPV_AHEAD ? SPV_AHEAD : fit ? fit : 1;
}

#endif
