#include "bloom/fuse.h"

#include <stdlib.h>

typedef struct {
    uint32_t at[3];
} places;

/* _Shape.mixed. */
SPV_INLINE uint64_t mixed(uint64_t hash, uint32_t seed) {
    uint64_t x = hash + seed * UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ x >> 33) * UINT64_C(0xFF51AFD7ED558CCD);
    x = (x ^ x >> 33) * UINT64_C(0xC4CEB9FE1A85EC53);
    return x ^ x >> 33;
}

/* _Shape.places: each place is within its segment, whatever x is. */
SPV_INLINE places places_of(const spv_fuse *fuse, uint64_t x) {
    const uint32_t length = fuse->length, mask = length - 1;
    const uint32_t first = (uint32_t)spv_high64(x, (uint64_t)fuse->segments * length);
    return (places){{first, (first + length) ^ ((uint32_t)(x >> 18) & mask), (first + 2 * length) ^ ((uint32_t)x & mask)}};
}

/* _Shape.fingerprint. */
SPV_INLINE uint32_t print_of(uint64_t x, unsigned width) {
    return (uint32_t)(x * UINT64_C(0xD6E8FEB86659FD93) >> (64 - 8 * width));
}

SPV_INLINE uint32_t cell(const uint8_t *table, uint32_t at, unsigned width) {
    const uint8_t *place = table + (size_t)at * width;
    return width == 1 ? *place : width == 2 ? spv_le16(place) : spv_le32(place);
}

SPV_INLINE bool matches(const uint8_t *table, const places *of, uint64_t x, unsigned width) {
    return (cell(table, of->at[0], width) ^ cell(table, of->at[1], width) ^ cell(table, of->at[2], width)) == print_of(x, width);
}

bool spv_fuse_has(const spv_fuse *fuse, const uint8_t *table, uint64_t hash) {
    if (!fuse->segments)
        return false;
    const uint64_t x = mixed(hash, fuse->seed);
    const places of = places_of(fuse, x);
    return matches(table, &of, x, fuse->width);
}

/* `width` is an argument so that the compiler knows it. */
SPV_INLINE void has_window(const spv_fuse *fuse, const uint8_t *table, spv_window *hashed, size_t count, uint8_t *mask, unsigned width) {
    places of[SPV_AHEAD];
    for (size_t i = 0; i < count; i++) {
        hashed->x[i] = mixed(hashed->x[i], fuse->seed);
        of[i] = places_of(fuse, hashed->x[i]);
        for (size_t j = 0; j < 3; j++)
            __builtin_prefetch(table + (size_t)of[i].at[j] * width);
    }
    for (size_t i = 0; i < count; i++)
        mask[i] = matches(table, of + i, hashed->x[i], width);
}

void spv_fuse_has_many(
    const spv_fuse *fuse, const spv_shape *shape, const uint8_t *table, const spv_keys *keys, size_t from, size_t count, uint8_t *mask
) {
    if (!fuse->segments) {
        memset(mask, 0, count);
        return;
    }
    spv_window hashed;
    for (size_t done = 0, now; done < count; done += now) {
        now = count - done < SPV_AHEAD ? count - done : SPV_AHEAD;
        spv_hash_window(shape, keys, from + done, now, &hashed);
        if (fuse->width == 1)
            has_window(fuse, table, &hashed, now, mask + done, 1);
        else if (fuse->width == 2)
            has_window(fuse, table, &hashed, now, mask + done, 2);
        else
            has_window(fuse, table, &hashed, now, mask + done, 4);
    }
}

SPV_INLINE void put64(uint8_t *at, uint64_t value) {
    spv_put_le32(at, (uint32_t)value);
    spv_put_le32(at + 4, (uint32_t)(value >> 32));
}

void spv_fuse_hash_many(const spv_shape *shape, const spv_keys *keys, size_t from, size_t count, uint8_t *hashes) {
    spv_window hashed;
    for (size_t done = 0, now; done < count; done += now) {
        now = count - done < SPV_AHEAD ? count - done : SPV_AHEAD;
        spv_hash_window(shape, keys, from + done, now, &hashed);
        for (size_t i = 0; i < now; i++)
            put64(hashes + 8 * (done + i), hashed.x[i]);
    }
}

/* Merging. The hashes are distributed to parts by the highest bits of their x, and each part is merged by itself. */

enum { PART = 1 << 11, MOST_PART_BITS = 12, FIRST_SET = 1 << 13 }; /* hashes of a part at least; places of the first set */

/* A set of hashes with open addressing. 0 marks a free place, so the hash 0 is remembered separately. */
typedef struct {
    uint64_t *slots;
    size_t room, count;
    bool has_zero;
} hash_set;

/* Adds a hash; false if it was there. */
SPV_INLINE bool put(hash_set *set, uint64_t hash) {
    if (!hash) {
        const bool fresh = !set->has_zero;
        set->has_zero = true;
        return fresh;
    }
    size_t at = (size_t)mixed(hash, 0) & (set->room - 1);
    for (; set->slots[at]; at = (at + 1) & (set->room - 1))
        if (set->slots[at] == hash)
            return false;
    set->slots[at] = hash;
    set->count++;
    return true;
}

/* Empties the set, with that much room, and adds hashes. False if there is no memory. */
static bool refill(hash_set *set, size_t room, const uint8_t *hashes, size_t count) {
    if (room != set->room) {
        free(set->slots);
        set->slots = malloc(room * sizeof *set->slots);
        if (!set->slots)
            return false;
    }
    *set = (hash_set){.slots = set->slots, .room = room};
    memset(set->slots, 0, room * sizeof *set->slots);
    for (size_t i = 0; i < count; i++)
        put(set, spv_le64(hashes + 8 * i));
    return true;
}

/* Moves the distinct hashes from `from` to `to`, which may begin earlier in the same array. */
static bool merge_part(hash_set *set, const uint8_t *from, size_t count, uint8_t *to, size_t *distinct) {
    size_t kept = 0;
    if (!refill(set, set->room ? set->room : FIRST_SET, NULL, 0))
        return false;
    for (size_t i = 0; i < count; i++) {
        const uint64_t hash = spv_le64(from + 8 * i);
        if (2 * set->count >= set->room && !refill(set, 2 * set->room, to, kept))
            return false;
        if (put(set, hash))
            put64(to + 8 * kept++, hash);
    }
    *distinct += kept;
    return true;
}

spv_status spv_fuse_merge(const uint8_t *hashes, size_t count, uint8_t *merged, size_t *distinct) {
    unsigned bits = 0;
    while (bits < MOST_PART_BITS && count >> bits > PART)
        bits++;
    const size_t parts = (size_t)1 << bits;
    size_t *ends = calloc(parts + 1, sizeof *ends);
    hash_set set = {0};
    bool done = ends != NULL;
    if (done) {
        /* x >> 1 >> (63 - bits), because a shift by 64 is undefined */
        for (size_t i = 0; i < count; i++)
            ends[(mixed(spv_le64(hashes + 8 * i), 0) >> 1 >> (63 - bits)) + 1]++;
        for (size_t part = 0; part < parts; part++)
            ends[part + 1] += ends[part];
        for (size_t i = 0; i < count; i++) {
            const uint64_t hash = spv_le64(hashes + 8 * i);
            put64(merged + 8 * ends[mixed(hash, 0) >> 1 >> (63 - bits)]++, hash);
        }
    }
    *distinct = 0;
    for (size_t part = 0, start = 0; done && part < parts; start = ends[part++]) /* ends[part] is now the end of the part */
        done = merge_part(&set, merged + 8 * start, ends[part] - start, merged + 8 * *distinct, distinct);
    free(set.slots);
    free(ends);
    return done ? SPV_OK : SPV_NOMEM;
}

/* The build. */

enum { BLOCK = 1 << 12, FETCHED = 16 }; /* pure.fuse._BLOCK; cells that are fetched ahead */

typedef struct {
    uint64_t *sums; /* for each cell: the XOR of the x of its keys */
    uint8_t *counts;
    uint32_t *order; /* the queue; its start is overwritten by the cells in the order in which they are peeled */
} work;

/* False if a cell has more keys than a byte counts. */
static bool count_keys(const spv_fuse *fuse, const uint8_t *hashes, size_t count, const work *on) {
    for (size_t i = 0; i < count; i++) {
        const uint64_t x = mixed(spv_le64(hashes + 8 * i), fuse->seed);
        const places of = places_of(fuse, x);
        for (size_t j = 0; j < 3; j++) {
            on->sums[of.at[j]] ^= x;
            if (SPV_UNLIKELY(!++on->counts[of.at[j]]))
                return false;
        }
    }
    return true;
}

/* _peeled: returns the number of cells. A cell enters the queue at most once. */
static size_t peel(const spv_fuse *fuse, uint32_t cells, const work *on) {
    size_t peeled = 0, next = 0, end = 0;
    for (uint32_t start = 0; start < cells;) {
        const uint32_t stop = cells - start < BLOCK ? cells : start + BLOCK;
        for (; start < stop; start++) {
            on->order[end] = start;
            end += on->counts[start] == 1;
        }
        while (next < end) {
            const uint32_t at = on->order[next++];
            if (on->counts[at] != 1)
                continue;
            on->order[peeled++] = at;
            const uint64_t x = on->sums[at];
            const places of = places_of(fuse, x);
            for (size_t j = 0; j < 3; j++) {
                const uint32_t other = of.at[j];
                on->counts[other]--;
                on->sums[other] ^= other == at ? 0 : x;
                on->order[end] = other;
                end += on->counts[other] == 1;
            }
        }
    }
    return peeled;
}

SPV_INLINE void set_cells(const spv_fuse *fuse, const work *on, size_t peeled, uint8_t *table, unsigned width) {
    while (peeled) {
        if (peeled > FETCHED)
            __builtin_prefetch(on->sums + on->order[peeled - FETCHED]);
        const uint32_t at = on->order[--peeled];
        const uint64_t x = on->sums[at];
        const places of = places_of(fuse, x);
        const uint32_t value = cell(table, of.at[0], width) ^ cell(table, of.at[1], width) ^ cell(table, of.at[2], width) ^ print_of(x, width);
        for (unsigned byte = 0; byte < width; byte++)
            table[(size_t)at * width + byte] = (uint8_t)(value >> 8 * byte);
    }
}

static spv_status build(const spv_fuse *fuse, const uint8_t *hashes, size_t count, uint8_t *table, const work *on) {
    const uint32_t cells = (uint32_t)spv_fuse_cells(fuse);
    if (!count_keys(fuse, hashes, count, on) || peel(fuse, cells, on) != count)
        return SPV_FLAW;
    memset(table, 0, (size_t)cells * fuse->width);
    if (fuse->width == 1)
        set_cells(fuse, on, count, table, 1);
    else if (fuse->width == 2)
        set_cells(fuse, on, count, table, 2);
    else
        set_cells(fuse, on, count, table, 4);
    return SPV_OK;
}

spv_status spv_fuse_build(const spv_fuse *fuse, const uint8_t *hashes, size_t count, uint8_t *table) {
    const size_t cells = (size_t)spv_fuse_cells(fuse);
    if (!cells || count > cells)
        return count ? SPV_FLAW : SPV_OK;
    /* one place more: a cell is written to the queue before it is known whether it is added */
    const work on = {calloc(cells, sizeof(uint64_t)), calloc(cells, 1), malloc((cells + 1) * sizeof(uint32_t))};
    const spv_status status = on.sums && on.counts && on.order ? build(fuse, hashes, count, table, &on) : SPV_NOMEM;
    free(on.sums);
    free(on.counts);
    free(on.order);
    return status;
}
