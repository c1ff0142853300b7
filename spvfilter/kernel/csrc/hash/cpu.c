#include "hash/cpu.h"

#include <stdatomic.h>
#include <stdint.h>

#if defined(__x86_64__)
#include <cpuid.h>

enum { YMM_SAVED = 0x6, ZMM_SAVED = 0xE6 }; /* bits of XCR0 */

static unsigned detect(void) {
    unsigned a, b, c, d, features = 0, saved = 0;
    if (!__get_cpuid(1, &a, &b, &c, &d))
        return 0;
    unsigned needed_by_sha = bit_SSSE3 | bit_SSE4_1, sse = c & needed_by_sha;
    if (c & bit_OSXSAVE)
        __asm__ volatile("xgetbv" : "=a"(saved), "=d"(d) : "c"(0));
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d))
        return 0;
    if (sse == needed_by_sha && b & bit_SHA)
        features |= SPV_CPU_SHA;
    if ((saved & YMM_SAVED) == YMM_SAVED && b & bit_AVX2)
        features |= SPV_CPU_AVX2;
    if ((saved & ZMM_SAVED) == ZMM_SAVED && b & bit_AVX512F && b & bit_AVX512BW && b & bit_AVX512DQ)
        features |= SPV_CPU_AVX512;
    return features;
}
#elif defined(__aarch64__) && defined(__APPLE__)
static unsigned detect(void) {
    return SPV_CPU_SHA; /* every machine of this kind has it */
}
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>

static unsigned detect(void) {
    return getauxval(AT_HWCAP) & 1UL << 6 ? SPV_CPU_SHA : 0; /* HWCAP_SHA2 */
}
#else
static unsigned detect(void) {
    return 0;
}
#endif

unsigned spv_cpu(void) {
    const unsigned known = 1u << 31;
    static _Atomic unsigned remembered; /* every thread writes the same value */
    unsigned features = atomic_load_explicit(&remembered, memory_order_relaxed);
    if (!features) {
        features = detect() | known;
        atomic_store_explicit(&remembered, features, memory_order_relaxed);
    }
    return features & ~known;
}
