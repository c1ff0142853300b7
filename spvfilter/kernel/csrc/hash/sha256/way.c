/* Chooses the way of SHA-256 for this machine. */
#include "hash/sha256/way.h"
#include "hash/cpu.h"

#include <stdatomic.h>

/* Sixteen lanes take as long as nine blocks with SHA-NI, one after the other. Two interleaved messages gain little
   with SHA-NI of Intel, but nearly a factor of two with AMD (github.com/openwall/john issue 5437,
   github.com/firedancer-io/firedancer pull 778). */
static const spv_sha256_way ways[] = {
#if defined(__x86_64__)
    {"AVX-512 and SHA-NI", SPV_CPU_AVX512 | SPV_CPU_SHA, 16, 8, spv_sha256_ni, spv_sha256_avx512_16},
    {"SHA-NI", SPV_CPU_SHA, 2, 2, spv_sha256_ni, spv_sha256_ni_2},
    {"AVX-512", SPV_CPU_AVX512, 16, 2, spv_sha256_portable, spv_sha256_avx512_16},
    {"AVX2", SPV_CPU_AVX2, 8, 2, spv_sha256_portable, spv_sha256_avx2_8},
#elif defined(SPV_SHA256_ARM)
    {"ARMv8", SPV_CPU_SHA, 2, 2, spv_sha256_arm, spv_sha256_arm_2},
#endif
    {"portable", 0, 1, 1, spv_sha256_portable, spv_sha256_portable_lane},
};

const spv_sha256_way *spv_sha256_usable(size_t number) {
    unsigned cpu = spv_cpu();
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        if ((ways[i].needs & ~cpu) == 0 && !number--)
            return ways + i;
    return NULL;
}

/* Compares two blocks in each lane, and then one message by itself, with the portable compression. */
bool spv_sha256_agrees(const spv_sha256_way *way) {
    uint8_t messages[SPV_MAX_LANES][128];
    const uint8_t *data[SPV_MAX_LANES];
    _Alignas(64) uint32_t together[8 * SPV_MAX_LANES];
    uint32_t alone[8], expected[8], random = 1;
    bool same = true;
    for (size_t i = 0; i < way->lanes; i++) {
        for (size_t k = 0; k < sizeof messages[i]; k++) {
            random = random * 1664525 + 1013904223;
            messages[i][k] = (uint8_t)(random >> 24);
        }
        data[i] = messages[i];
        for (size_t k = 0; k < 8; k++)
            together[k * way->lanes + i] = spv_sha256_initial[k];
    }
    way->many(together, data, 2);
    for (size_t i = 0; i < way->lanes; i++) {
        memcpy(alone, spv_sha256_initial, sizeof alone);
        memcpy(expected, spv_sha256_initial, sizeof expected);
        way->one(alone, messages[i], 2);
        spv_sha256_portable(expected, messages[i], 2);
        for (size_t k = 0; k < 8; k++)
            same &= together[k * way->lanes + i] == expected[k];
        same &= !memcmp(alone, expected, sizeof expected);
    }
    return same;
}

const spv_sha256_way *spv_sha256_chosen(void) {
    static _Atomic(const spv_sha256_way *) remembered; /* every thread writes the same value */
    const spv_sha256_way *way = atomic_load_explicit(&remembered, memory_order_relaxed);
    for (size_t i = 0; !way; i++) {
        const spv_sha256_way *next = spv_sha256_usable(i);
        if (!next->needs || spv_sha256_agrees(next))
            way = next;
    }
    atomic_store_explicit(&remembered, way, memory_order_relaxed);
    return way;
}
