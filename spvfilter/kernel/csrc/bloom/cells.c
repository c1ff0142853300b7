#include "bloom/cells.h"

#include "hash/cpu.h"
#include "hash/siphash/many.h"

void spv_shape_make(spv_shape *shape, spv_family family, uint64_t cells, uint32_t hash_funcs, bool partitioned, const uint8_t key[16]) {
    const uint64_t span = partitioned && hash_funcs ? cells / hash_funcs : cells;
    *shape = (spv_shape){
        .family = family,
        .functions = span ? hash_funcs : 0,
        .seed = spv_le32(key),
        .k0 = spv_le64(key),
        .k1 = spv_le64(key + 8),
        .span = span,
        .stride = partitioned ? span : 0,
        .reciprocal = span > 1 && span <= UINT32_MAX ? UINT64_MAX / span + 1 : 0,
    };
}

typedef spv_window window;

enum { WORDS = 16, LANES_MOST = 8 }; /* words of a key that is hashed beside others of its length; most lanes of a vector */
enum { ROWS_AHEAD = 4 * SPV_AHEAD };

#if defined(__x86_64__)
#define HASH hash_avx2
#define SPREAD spread_avx2
#define LANES 4
#define TARGET __attribute__((target("avx2")))
#include "bloom/lanes.h"

#define HASH hash_avx512
#define SPREAD spread_avx512
#define LANES 8
#define TARGET __attribute__((target("avx512f,avx512dq")))
#include "bloom/lanes.h"

/* Fetches the rows of the next window while the current one is hashed: beyond a page, the processor does not
   prefetch by itself. */
SPV_INLINE void fetch_rows(const spv_keys *keys, size_t from, size_t count) {
    const uintptr_t rows = (uintptr_t)keys->rows + (from + ROWS_AHEAD) * keys->width;
    for (size_t at = 0; at < count * keys->width; at += 64)
        __builtin_prefetch((const void *)(rows + at), 0);
}

/* True if the keys have one length, *size bytes, that fits into a window's words. */
SPV_INLINE bool alike(const spv_keys *keys, size_t from, size_t count, size_t *size) {
    *size = spv_key_at(keys, from).size;
    bool same = *size <= 8 * WORDS;
    for (size_t i = 1; keys->keys && i < count; i++)
        same &= keys->keys[from + i].size == *size;
    return same;
}

/* Writes the words of keys of one length, and zeros into unused lanes of a vector. */
SPV_INLINE void lay_out(const spv_keys *keys, size_t from, size_t count, size_t size, uint64_t (*words)[SPV_AHEAD]) {
    const size_t whole = size / 8;
    for (size_t word = 0; word < whole; word++)
        for (size_t i = 0; i < count; i++)
            words[word][i] = spv_le64(spv_key_at(keys, from + i).data + 8 * word);
    if (size >= 8) /* like spv_tail64, but without branches */
        for (size_t i = 0; size & 7 && i < count; i++)
            words[whole][i] = spv_le64(spv_key_at(keys, from + i).data + size - 8) >> (64 - 8 * (size & 7));
    else
        for (size_t i = 0; size && i < count; i++)
            words[0][i] = spv_tail64(spv_key_at(keys, from + i).data, size);
    for (size_t i = count; i % LANES_MOST; i++)
        for (size_t word = 0; 8 * word < size; word++)
            words[word][i] = 0;
}
#endif

/* Hashes the keys one after the other. */
static void hash_each(const spv_shape *shape, const spv_keys *keys, size_t from, size_t count, window *to) {
    const spv_shape known = {.family = SPV_FAMILY_FAST, .seed = shape->seed};
    for (size_t i = 0; i < count; i++) {
        const spv_bytes key = spv_key_at(keys, from + i);
        const spv_hash128 hashes = spv_two_hashes(&known, key.data, key.size);
        to->x[i] = hashes.h1;
        to->step[i] = hashes.h2;
    }
}

static void fast(const spv_shape *shape, const spv_keys *keys, size_t from, size_t count, window *to) {
#if defined(__x86_64__)
    _Alignas(64) uint64_t words[WORDS][SPV_AHEAD];
    const unsigned cpu = spv_cpu();
    size_t size;
    if (cpu & SPV_CPU_AVX2 && alike(keys, from, count, &size)) {
        if (keys->keys) {
            lay_out(keys, from, count, size, words);
        } else {
            fetch_rows(keys, from, count);
            lay_out(&(spv_keys){.rows = keys->rows, .width = size}, from, count, size, words);
        }
        (cpu & SPV_CPU_AVX512 ? hash_avx512 : hash_avx2)((const uint64_t (*)[SPV_AHEAD])words, size, shape->seed, count, to);
        return;
    }
#endif
    hash_each(shape, keys, from, count, to);
}

void spv_spread_planes(const spv_shape *shape, spv_window *keys, size_t count, size_t first, size_t functions, uint64_t (*planes)[SPV_AHEAD]) {
    uint64_t cell = first * shape->stride;
#if defined(__x86_64__)
    const unsigned cpu = spv_cpu();
    if (cpu & SPV_CPU_AVX2 && shape->span <= UINT32_MAX) { /* the sizes that vectors can handle */
        (cpu & SPV_CPU_AVX512 ? spread_avx512 : spread_avx2)(keys, count, shape->span, cell, shape->stride, functions, planes);
        return;
    }
#endif
    for (size_t j = 0; j < functions; j++, cell += shape->stride)
        for (size_t i = 0; i < count; i++) {
            planes[j][i] = cell + spv_spread(keys->x[i], shape->span);
            keys->x[i] += keys->step[i];
        }
}

static void siphash(const spv_shape *shape, const spv_keys *keys, size_t from, size_t count, window *to) {
    spv_bytes messages[SPV_AHEAD] = {{0}};
    for (size_t i = 0; i < count; i++)
        messages[i] = spv_key_at(keys, from + i);
    spv_siphash24_each(messages, count, shape->k0, shape->k1, to->x);
    for (size_t i = 0; i < count; i++)
        to->step[i] = spv_two_of_siphash(to->x[i]).h2;
}

void spv_hash_window(const spv_shape *shape, const spv_keys *keys, size_t from, size_t count, spv_window *hashed) {
    (shape->family == SPV_FAMILY_FAST ? fast : siphash)(shape, keys, from, count, hashed);
    for (size_t i = count; i % LANES_MOST; i++) /* unused lanes */
        hashed->x[i] = hashed->step[i] = 0;
}

void spv_spread_window(const spv_shape *shape, spv_window *hashed, size_t count, size_t functions, uint64_t *positions, const spv_batch *batch) {
    _Alignas(64) uint64_t planes[SPV_PLANES][SPV_AHEAD];
    for (size_t first = 0, now; first < functions; first += now) {
        now = functions - first < SPV_PLANES ? functions - first : SPV_PLANES;
        spv_spread_planes(shape, hashed, count, first, now, planes);
        for (size_t j = 0; j < now; j++) {
            for (size_t i = 0; i < count; i++)
                positions[i * functions + first + j] = planes[j][i];
            for (size_t i = 0; batch && i < count; i++)
                __builtin_prefetch(batch->cells + (planes[j][i] * batch->width >> 3), 1);
        }
    }
}

/* Spreads up to SPV_AHEAD keys, whose computations do not wait for each other. */
static void spread_window(
    const spv_shape *shape, const spv_keys *keys, size_t from, size_t count, uint64_t *positions, const spv_batch *batch
) {
    window hashed;
    spv_hash_window(shape, keys, from, count, &hashed);
    spv_spread_window(shape, &hashed, count, shape->functions, positions, batch);
}

/* Computes the cells of one key, in a family that does not spread two hashes. */
SPV_INLINE void walk(const spv_shape *shape, const spv_bytes key, spv_walk how, uint64_t *positions, const spv_batch *batch) {
    spv_cursor cursor = spv_cursor_at(shape, key.data, key.size);
    for (uint32_t i = 0; i < shape->functions; i++) {
        positions[i] = spv_cursor_next(&cursor, how);
        if (batch)
            __builtin_prefetch(batch->cells + (positions[i] * batch->width >> 3), 1);
    }
}

/* `batch` is NULL if nothing needs to be fetched. */
SPV_INLINE void positions_of(
    const spv_shape *shape, const spv_keys *keys, size_t from, size_t count, uint64_t *positions, const spv_batch *batch) {
    const size_t functions = shape->functions, end = functions ? from + count : from;
    const spv_walk how = spv_walk_of(shape);
    if (how != SPV_WALK_SPREAD) {
        for (; from < end; from++, positions += functions)
            walk(shape, spv_key_at(keys, from), how, positions, batch);
        return;
    }
    for (size_t some; from < end; from += some, positions += some * functions) {
        some = end - from < SPV_AHEAD ? end - from : SPV_AHEAD;
        spread_window(shape, keys, from, some, positions, batch);
    }
}

void spv_positions(const spv_shape *shape, const spv_keys *keys, size_t from, size_t count, uint64_t *positions) {
    positions_of(shape, keys, from, count, positions, NULL);
}

void spv_hash_ahead(const spv_batch *batch, const spv_keys *keys, size_t from, size_t count) {
    positions_of(batch->shape, keys, from, count, batch->positions, batch->far ? batch : NULL);
}
