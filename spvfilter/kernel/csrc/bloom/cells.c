#include "bloom/cells.h"

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

SPV_INLINE void spread(const spv_shape *shape, const uint8_t *data, size_t size, uint64_t *positions) {
    const spv_hash128 hashes = spv_two_hashes(shape, data, size);
    const uint64_t span = shape->span, stride = shape->stride;
    uint64_t x = hashes.h1, first = 0;
    for (uint32_t i = 0; i < shape->functions; i++) {
        positions[i] = first + spv_spread(x, span);
        x += hashes.h2;
        first += stride;
    }
}

static void bip37(const spv_shape *shape, const uint8_t *data, size_t size, uint64_t *positions) {
    spv_cursor cursor = spv_cursor_at(shape, data, size);
    for (uint32_t i = 0; i < shape->functions; i++)
        positions[i] = spv_cursor_next(&cursor, true);
}

/* `batch` is NULL where nothing is to be fetched. */
SPV_INLINE void positions_of(
    const spv_shape *shape, const spv_keys *keys, size_t from, size_t count, uint64_t *positions, const spv_batch *batch) {
    const size_t functions = shape->functions;
    for (size_t i = 0; i < count && functions; i++, positions += functions) {
        const spv_bytes key = spv_key_at(keys, from + i);
        if (shape->family == SPV_FAMILY_BIP37)
            bip37(shape, key.data, key.size, positions);
        else
            spread(shape, key.data, key.size, positions);
        for (size_t j = 0; batch && j < functions; j++)
            __builtin_prefetch(batch->cells + (positions[j] >> batch->shift), 1);
    }
}

void spv_positions(const spv_shape *shape, const spv_keys *keys, size_t from, size_t count, uint64_t *positions) {
    positions_of(shape, keys, from, count, positions, NULL);
}

void spv_hash_ahead(const spv_batch *batch, const spv_keys *keys, size_t from, size_t count) {
    positions_of(batch->shape, keys, from, count, batch->positions, batch->far ? batch : NULL);
}
