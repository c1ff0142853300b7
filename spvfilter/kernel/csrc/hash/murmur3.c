#include "hash/murmur3.h"
#include "hash/cpu.h"

SPV_INLINE uint32_t rotate(uint32_t x, int n) {
    return x << n | x >> (32 - n);
}

SPV_INLINE uint32_t mix(uint32_t word) {
    return rotate(word * 0xcc9e2d51, 15) * 0x1b873593;
}

SPV_INLINE uint32_t step(uint32_t hash, uint32_t mixed) {
    return rotate(hash ^ mixed, 13) * 5 + 0xe6546b64;
}

SPV_INLINE uint32_t rest(const uint8_t *data, size_t size) { /* the last one to three bytes, or 0 */
    uint32_t word = 0;
    for (size_t i = size & 3; i--;)
        word = word << 8 | data[(size & ~(size_t)3) + i];
    return word;
}

SPV_INLINE uint32_t finish(uint32_t hash, size_t size) {
    hash ^= (uint32_t)size;
    hash = (hash ^ hash >> 16) * 0x85ebca6b;
    hash = (hash ^ hash >> 13) * 0xc2b2ae35;
    return hash ^ hash >> 16;
}

uint32_t spv_murmur3_32(const uint8_t *data, size_t size, uint32_t seed) {
    uint32_t hash = seed;
    for (size_t at = 0; at < (size & ~(size_t)3); at += 4)
        hash = step(hash, mix(spv_le32(data + at)));
    return finish(hash ^ mix(rest(data, size)), size);
}

static void portable(
    const uint8_t *const *keys, size_t count, size_t size, const uint32_t seeds[2], spv_modulus m, uint32_t *first, uint32_t *second
) {
    for (size_t i = 0; i < count; i++) {
        uint32_t a = seeds[0], b = seeds[1];
        for (size_t at = 0; at < (size & ~(size_t)3); at += 4) {
            uint32_t mixed = mix(spv_le32(keys[i] + at));
            a = step(a, mixed);
            b = step(b, mixed);
        }
        uint32_t mixed = mix(rest(keys[i], size));
        first[i] = spv_modulo(finish(a ^ mixed, size), m);
        second[i] = spv_modulo(finish(b ^ mixed, size), m);
    }
}

#if defined(__x86_64__)
void spv_murmur3_avx2(const uint8_t *const *, size_t, size_t, const uint32_t[2], spv_modulus, uint32_t *, uint32_t *);
void spv_murmur3_avx512(const uint8_t *const *, size_t, size_t, const uint32_t[2], spv_modulus, uint32_t *, uint32_t *);
#endif

static const spv_murmur3_way ways[] = {
#if defined(__x86_64__)
    {"AVX-512", SPV_CPU_AVX512, 16, spv_murmur3_avx512},
    {"AVX2", SPV_CPU_AVX2, 8, spv_murmur3_avx2},
#endif
    {"portable", 0, 1, portable},
};

const spv_murmur3_way *spv_murmur3_usable(size_t number) {
    unsigned cpu = spv_cpu();
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        if ((ways[i].needs & ~cpu) == 0 && !number--)
            return ways + i;
    return NULL;
}
