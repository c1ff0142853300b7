/* Template: fast hashes of a window of keys of one length, and their cells, several keys in a vector. It needs the
   names HASH and SPREAD, LANES (of a vector) and TARGET, and undefines all four. */

#define MIX1(k) ((k) *= SPV_MURMUR_C1, (k) = (k) << 31 | (k) >> 33, (k) *= SPV_MURMUR_C2)
#define MIX2(k) ((k) *= SPV_MURMUR_C2, (k) = (k) << 33 | (k) >> 31, (k) *= SPV_MURMUR_C1)
#define FINAL(h) ((h) ^= (h) >> 33, (h) *= UINT64_C(0xFF51AFD7ED558CCD), (h) ^= (h) >> 33, (h) *= UINT64_C(0xC4CEB9FE1A85EC53), (h) ^= (h) >> 33)

/* spv_murmur3_x64_128 of keys of `size` bytes in the layout words[word][key]. */
TARGET static void HASH(const uint64_t (*words)[SPV_AHEAD], size_t size, uint32_t seed, size_t count, window *to) {
    typedef uint64_t vector __attribute__((vector_size(8 * LANES)));
    const vector zero = {0};
    const size_t whole = size / 16 * 2, all = (size + 7) / 8;
    for (size_t i = 0; i < count; i += LANES) {
        vector h1 = zero + seed, h2 = zero + seed, k1, k2;
        for (size_t word = 0; word < whole; word += 2) {
            memcpy(&k1, words[word] + i, sizeof k1);
            memcpy(&k2, words[word + 1] + i, sizeof k2);
            MIX1(k1);
            MIX2(k2);
            h1 ^= k1;
            h1 = ((h1 << 27 | h1 >> 37) + h2) * 5 + 0x52DCE729;
            h2 ^= k2;
            h2 = ((h2 << 31 | h2 >> 33) + h1) * 5 + 0x38495AB5;
        }
        if (all > whole) {
            memcpy(&k1, words[whole] + i, sizeof k1);
            MIX1(k1);
            h1 ^= k1;
        }
        if (all > whole + 1) {
            memcpy(&k2, words[whole + 1] + i, sizeof k2);
            MIX2(k2);
            h2 ^= k2;
        }
        h1 ^= zero + size;
        h2 ^= zero + size;
        h1 += h2;
        h2 += h1;
        FINAL(h1);
        FINAL(h2);
        h1 += h2;
        h2 += h1;
        h2 |= zero + 1;
        memcpy(to->x + i, &h1, sizeof h1);
        memcpy(to->step + i, &h2, sizeof h2);
    }
}

/* spv_spread of each key's x onto a span below 2^32, and its step to the next function, for `functions` functions. */
TARGET static void SPREAD(
    window *keys, size_t count, uint64_t span, uint64_t first, uint64_t stride, size_t functions, uint64_t (*planes)[SPV_AHEAD]
) {
    typedef uint64_t vector __attribute__((vector_size(8 * LANES)));
    const vector zero = {0}, spans = zero + span;
    for (size_t i = 0; i < count; i += LANES) {
        vector x, step, cell = zero + first;
        memcpy(&x, keys->x + i, sizeof x);
        memcpy(&step, keys->step + i, sizeof step);
        for (size_t j = 0; j < functions; j++) {
            const vector mixed = (x ^ x >> 32) * UINT64_C(0xD6E8FEB86659FD93);
            const vector at = cell + (((mixed >> 32) * spans + ((mixed & 0xFFFFFFFF) * spans >> 32)) >> 32);
            memcpy(planes[j] + i, &at, sizeof at);
            cell += stride;
            x += step;
        }
        memcpy(keys->x + i, &x, sizeof x);
    }
}

#undef MIX1
#undef MIX2
#undef FINAL
#undef HASH
#undef SPREAD
#undef LANES
#undef TARGET
