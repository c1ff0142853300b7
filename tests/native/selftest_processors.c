/* The implementations for every processor: SipHash, cells and complete arrays, as if this processor lacked some
   features.

   Linked with -Wl,--wrap=spv_cpu. */
#include "selftest.h"

#include "hash/cpu.h"
#include "hash/murmur3.h"
#include "hash/sha256/way.h"

static unsigned lacking; /* features */

unsigned __real_spv_cpu(void);
unsigned __wrap_spv_cpu(void);

unsigned __wrap_spv_cpu(void) {
    return __real_spv_cpu() & ~lacking;
}

static void features(void) {
    const unsigned cpu = __real_spv_cpu();
    CHECK(cpu == __real_spv_cpu());
#if defined(__x86_64__)
    __builtin_cpu_init();
    CHECK(!!(cpu & SPV_CPU_AVX2) == !!__builtin_cpu_supports("avx2"));
    CHECK(!!(cpu & SPV_CPU_AVX512) == (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")));
#endif
}

/* An available feature has its implementations, and the widest comes first. */
static void ways(void) {
    const unsigned cpu = spv_cpu();
    const bool sha = cpu & SPV_CPU_SHA, avx2 = cpu & SPV_CPU_AVX2, avx512 = cpu & SPV_CPU_AVX512;
    size_t murmur3 = 0, sha256 = 0;
    while (spv_murmur3_usable(murmur3))
        murmur3++;
    while (spv_sha256_usable(sha256))
        sha256++;
    CHECK(murmur3 == 1u + avx2 + avx512);
    CHECK(spv_murmur3_usable(0)->lanes == (avx512 ? 16 : avx2 ? 8 : 1));
    CHECK(sha256 == 1u + sha + avx2 + avx512 + (sha && avx512));
    CHECK(spv_sha256_usable(0)->lanes == (avx512 ? 16 : sha ? 2 : avx2 ? 8 : 1));
    CHECK(!spv_sha256_usable(sha256 - 1)->needs);
}

void test_processors(void) {
    static const unsigned lists[] = {0, SPV_CPU_AVX512, SPV_CPU_AVX512 | SPV_CPU_AVX2, SPV_CPU_AVX512 | SPV_CPU_AVX2 | SPV_CPU_SHA};
    features();
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        lacking = lists[i];
        ways();
        test_many_siphashes();
        test_bloom();
        test_fuse();
    }
    lacking = 0;
}
