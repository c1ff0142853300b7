/* A generic filter's bits: the twin of pure.bits.BitCore. Bit b is 1 << (b & 7) of byte b >> 3.

   `shared`: writes must be atomic (gate.h). Buffers need no alignment. */
#ifndef SPV_BLOOM_BITS_H
#define SPV_BLOOM_BITS_H

#include "bloom/cells.h"

SPV_INLINE unsigned spv_bit_mask(uint64_t at) {
    /* a table, because many processors load faster than they shift by a variable */
    static const uint8_t masks[8] = {1, 2, 4, 8, 16, 32, 64, 128};
    return masks[at & 7];
}

/* Sets a bit. Not zero if it was not set before. */
SPV_INLINE unsigned spv_bit_set(uint8_t *bits, uint64_t at, bool shared) {
    uint8_t *byte = bits + (at >> 3);
    const unsigned mask = spv_bit_mask(at), before = __atomic_load_n(byte, __ATOMIC_RELAXED);
    if (!shared) {
        __atomic_store_n(byte, (uint8_t)(before | mask), __ATOMIC_RELAXED);
        return mask & ~before;
    }
    if (before & mask)
        return 0;
    return mask & ~(unsigned)__atomic_fetch_or(byte, (uint8_t)mask, __ATOMIC_RELAXED);
}

/* Not zero if a bit is not set. */
SPV_INLINE unsigned spv_bit_missing(const uint8_t *bits, uint64_t at) {
    return spv_bit_mask(at) & ~(unsigned)__atomic_load_n(bits + (at >> 3), __ATOMIC_RELAXED);
}

/* BitCore.add and `in`, for one key. */
bool spv_bits_add(const spv_shape *shape, uint8_t *bits, const uint8_t *data, size_t size, bool shared);
bool spv_bits_has(const spv_shape *shape, const uint8_t *bits, const uint8_t *data, size_t size);

/* The same for a key whose two hashes are known, in a family with two hashes. */
bool spv_bits_add_hashed(const spv_shape *shape, uint8_t *bits, spv_hash128 hashes, bool shared);
bool spv_bits_has_hashed(const spv_shape *shape, const uint8_t *bits, spv_hash128 hashes);

/* BitCore._set and _all_set, for positions that were computed elsewhere. */
bool spv_bits_set(uint8_t *bits, const uint64_t *positions, size_t count, bool shared);
bool spv_bits_all(const uint8_t *bits, const uint64_t *positions, size_t count);

/* BitCore.update: returns how many of the `count` keys, starting with number `from`, were new. Stops before a new key for
   which there is no room (batch->done). */
size_t spv_bits_add_many(spv_batch *batch, const spv_keys *keys, size_t from, size_t count);
/* BitCore.contains_many: sets mask[i] to 1 if key from + i is contained, else to 0. */
void spv_bits_has_many(const spv_batch *batch, const spv_keys *keys, size_t from, size_t count, uint8_t *mask);

#endif
