#include "bloom/bits.h"

#include "bloom/blocks.h"
#include "bloom/planes.h"

SPV_INLINE bool add(const spv_shape *shape, uint8_t *bits, const uint8_t *data, size_t size, bool shared, spv_walk walk) {
    spv_cursor cursor = spv_cursor_at(shape, data, size);
    unsigned fresh = 0;
    for (uint32_t i = 0; i < shape->functions; i++)
        fresh |= spv_bit_set(bits, spv_cursor_next(&cursor, walk), shared);
    return fresh != 0;
}

bool spv_bits_add(const spv_shape *shape, uint8_t *bits, const uint8_t *data, size_t size, bool shared) {
    switch (spv_walk_of(shape)) {
    case SPV_WALK_SPREAD:
        return shared ? add(shape, bits, data, size, true, SPV_WALK_SPREAD) : add(shape, bits, data, size, false, SPV_WALK_SPREAD);
    case SPV_WALK_BIP37:
        return shared ? add(shape, bits, data, size, true, SPV_WALK_BIP37) : add(shape, bits, data, size, false, SPV_WALK_BIP37);
    default:
        return add(shape, bits, data, size, shared, SPV_WALK_FOREIGN);
    }
}

SPV_INLINE bool has(const spv_shape *shape, const uint8_t *bits, const uint8_t *data, size_t size, spv_walk walk) {
    spv_cursor cursor = spv_cursor_at(shape, data, size);
    for (uint32_t i = 0; i < shape->functions; i++)
        if (spv_bit_missing(bits, spv_cursor_next(&cursor, walk)))
            return false;
    return true;
}

bool spv_bits_has(const spv_shape *shape, const uint8_t *bits, const uint8_t *data, size_t size) {
    switch (spv_walk_of(shape)) {
    case SPV_WALK_SPREAD:
        return has(shape, bits, data, size, SPV_WALK_SPREAD);
    case SPV_WALK_BIP37:
        return has(shape, bits, data, size, SPV_WALK_BIP37);
    default:
        return has(shape, bits, data, size, SPV_WALK_FOREIGN);
    }
}

bool spv_bits_add_hashed(const spv_shape *shape, uint8_t *bits, spv_hash128 hashes, bool shared) {
    spv_cursor cursor = spv_cursor_of(shape, hashes);
    unsigned fresh = 0;
    for (uint32_t i = 0; i < shape->functions; i++)
        fresh |= spv_bit_set(bits, spv_cursor_next(&cursor, SPV_WALK_SPREAD), shared);
    return fresh != 0;
}

bool spv_bits_has_hashed(const spv_shape *shape, const uint8_t *bits, spv_hash128 hashes) {
    spv_cursor cursor = spv_cursor_of(shape, hashes);
    for (uint32_t i = 0; i < shape->functions; i++)
        if (spv_bit_missing(bits, spv_cursor_next(&cursor, SPV_WALK_SPREAD)))
            return false;
    return true;
}

SPV_INLINE bool set_all(uint8_t *bits, const uint64_t *positions, size_t count, bool shared) {
    unsigned fresh = 0;
    for (size_t i = 0; i < count; i++)
        fresh |= spv_bit_set(bits, positions[i], shared);
    return fresh != 0;
}

bool spv_bits_set(uint8_t *bits, const uint64_t *positions, size_t count, bool shared) {
    return shared ? set_all(bits, positions, count, true) : set_all(bits, positions, count, false);
}

bool spv_bits_all(const uint8_t *bits, const uint64_t *positions, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (spv_bit_missing(bits, positions[i]))
            return false;
    return true;
}

SPV_INLINE size_t set_window(const spv_batch *batch, size_t count, bool shared) {
    const size_t functions = batch->shape->functions;
    const uint64_t *at = batch->positions;
    size_t fresh = 0;
    for (size_t i = 0; i < count; i++, at += functions)
        fresh += set_all(batch->cells, at, functions, shared);
    return fresh;
}

/* The number of keys at the start of a window that are contained. Adding them needs no room. */
static size_t contained(const spv_batch *batch, size_t count) {
    const size_t functions = batch->shape->functions;
    size_t known = 0;
    while (known < count && spv_bits_all(batch->cells, batch->positions + known * functions, functions))
        known++;
    return known;
}

size_t spv_bits_add_many(spv_batch *batch, const spv_keys *keys, size_t from, size_t count) {
    if (spv_planes_suit(batch->shape))
        return spv_planes_add(batch, keys, from, count);
    if (spv_blocks_suit(batch->shape))
        return spv_blocks_add(batch, keys, from, count);
    const size_t window = spv_keys_ahead(batch->shape), end = from + count;
    size_t fresh = 0, now;
    for (size_t at = from; at < end; at += now) {
        const size_t wanted = end - at < window ? end - at : window;
        batch->shared = spv_gate_again(batch->gate, batch->shared);
        const size_t fits = spv_room_reserve(batch->room, wanted, batch->shared);
        spv_hash_ahead(batch, keys, at, fits ? fits : wanted);
        now = fits ? fits : contained(batch, wanted);
        const size_t new = batch->shared ? set_window(batch, now, true) : set_window(batch, now, false);
        fresh += new;
        spv_room_give_back(batch->room, fits > new ? fits - new : 0, batch->shared);
        if (!fits && now < wanted) {
            batch->done = at + now - from;
            return fresh;
        }
    }
    batch->done = count;
    return fresh;
}

/* Without an early exit: half of all keys would mispredict its branch. */
SPV_INLINE uint8_t all_of(const uint8_t *bits, const uint64_t *positions, size_t count) {
    unsigned missing = 0;
    for (size_t i = 0; i < count; i++)
        missing |= spv_bit_missing(bits, positions[i]);
    return !missing;
}

void spv_bits_has_many(const spv_batch *batch, const spv_keys *keys, size_t from, size_t count, uint8_t *mask) {
    const spv_shape *shape = batch->shape;
    if (spv_planes_suit(shape)) {
        spv_planes_has(batch, keys, from, count, mask);
        return;
    }
    if (spv_blocks_suit(shape)) {
        spv_blocks_has(batch, keys, from, count, mask);
        return;
    }
    const size_t window = spv_keys_ahead(shape), functions = shape->functions, end = from + count;
    if (shape->family == SPV_FAMILY_BIP37 && !batch->far) { /* most keys end at the second hash */
        for (size_t at = from; at < end; at++) {
            const spv_bytes key = spv_key_at(keys, at);
            mask[at - from] = spv_bits_has(shape, batch->cells, key.data, key.size);
        }
        return;
    }
    for (size_t at = from; at < end; at += window) {
        const size_t now = end - at < window ? end - at : window;
        spv_hash_ahead(batch, keys, at, now);
        const uint64_t *positions = batch->positions;
        for (size_t i = 0; i < now; i++, positions += functions)
            mask[at - from + i] = all_of(batch->cells, positions, functions);
    }
}
