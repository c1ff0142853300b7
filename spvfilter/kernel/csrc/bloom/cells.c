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

enum { WORDS = 16, LANES_MOST = 8 }; /* of a key that is hashed beside others of its length */

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
#endif

/* One key after the other. */
static void hash_each(const spv_shape *shape, const spv_keys *keys, size_t from, size_t count, window *to) {
    const spv_shape known = {.family = SPV_FAMILY_FAST, .seed = shape->seed};
    for (size_t i = 0; i < count; i++) {
        const spv_bytes key = spv_key_at(keys, from + i);
        const spv_hash128 hashes = spv_two_hashes(&known, key.data, key.size);
        to->x[i] = hashes.h1;
        to->step[i] = hashes.h2;
    }
}

/* The words of keys of one length, and of a vector's lanes that are left over; false for different lengths or long ones. */
SPV_INLINE bool lay_out(const spv_keys *keys, size_t from, size_t count, uint64_t (*words)[SPV_AHEAD]) {
    const size_t size = spv_key_at(keys, from).size, whole = size / 8;
    if (size > 8 * WORDS)
        return false;
    for (size_t i = 0; i < count; i++) {
        const spv_bytes key = spv_key_at(keys, from + i);
        if (key.size != size)
            return false;
        for (size_t word = 0; word < whole; word++)
            words[word][i] = spv_le64(key.data + 8 * word);
        if (size & 7)
            words[whole][i] = spv_tail64(key.data, size);
    }
    for (size_t i = count; i % LANES_MOST; i++)
        for (size_t word = 0; 8 * word < size; word++)
            words[word][i] = 0;
    return true;
}

static void fast(const spv_shape *shape, const spv_keys *keys, size_t from, size_t count, window *to) {
#if defined(__x86_64__)
    _Alignas(64) uint64_t words[WORDS][SPV_AHEAD];
    const unsigned cpu = spv_cpu();
    if (cpu & SPV_CPU_AVX2 && lay_out(keys, from, count, words)) {
        const size_t size = spv_key_at(keys, from).size;
        (cpu & SPV_CPU_AVX512 ? hash_avx512 : hash_avx2)((const uint64_t (*)[SPV_AHEAD])words, size, shape->seed, count, to);
        return;
    }
#endif
    hash_each(shape, keys, from, count, to);
}

/* The next cell of each key; spans below 2^32 are what vectors can do. */
static void spread(const spv_shape *shape, window *keys, size_t count, uint64_t first, uint64_t *positions) {
#if defined(__x86_64__)
    const unsigned cpu = spv_cpu();
    if (cpu & SPV_CPU_AVX512 && shape->span <= UINT32_MAX) {
        spread_avx512(keys, count, shape->span, first, positions);
        return;
    }
    if (cpu & SPV_CPU_AVX2 && shape->span <= UINT32_MAX) {
        spread_avx2(keys, count, shape->span, first, positions);
        return;
    }
#endif
    for (size_t i = 0; i < count; i++) {
        positions[i] = first + spv_spread(keys->x[i], shape->span);
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
    for (size_t i = count; i % LANES_MOST; i++) /* lanes that are left over */
        hashed->x[i] = hashed->step[i] = 0;
}

void spv_spread_window(const spv_shape *shape, spv_window *hashed, size_t count, size_t functions, uint64_t *positions, const spv_batch *batch) {
    _Alignas(64) uint64_t next[SPV_AHEAD];
    uint64_t first = 0;
    for (size_t j = 0; j < functions; j++, first += shape->stride) {
        spread(shape, hashed, count, first, next);
        for (size_t i = 0; i < count; i++)
            positions[i * functions + j] = next[i];
        for (size_t i = 0; batch && i < count; i++)
            __builtin_prefetch(batch->cells + (next[i] >> batch->shift), 1);
    }
}

/* Up to SPV_AHEAD keys, whose hashes do not wait for each other. */
static void spread_window(
    const spv_shape *shape, const spv_keys *keys, size_t from, size_t count, uint64_t *positions, const spv_batch *batch
) {
    window hashed;
    spv_hash_window(shape, keys, from, count, &hashed);
    spv_spread_window(shape, &hashed, count, shape->functions, positions, batch);
}

/* One key, of a family that is not spread. */
SPV_INLINE void walk(const spv_shape *shape, const spv_bytes key, spv_walk how, uint64_t *positions, const spv_batch *batch) {
    spv_cursor cursor = spv_cursor_at(shape, key.data, key.size);
    for (uint32_t i = 0; i < shape->functions; i++) {
        positions[i] = spv_cursor_next(&cursor, how);
        if (batch)
            __builtin_prefetch(batch->cells + (positions[i] >> batch->shift), 1);
    }
}

/* `batch` is NULL where nothing is to be fetched. */
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
