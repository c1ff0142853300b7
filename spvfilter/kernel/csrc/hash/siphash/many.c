#include "hash/siphash/many.h"
#include "hash/cpu.h"
#include "hash/siphash.h"

#define NAME one_by_one
#define LANES 1
#define TARGET
#include "hash/siphash/lanes.h"

#if defined(__x86_64__)
#define NAME with_avx2
#define LANES 4
#define TARGET __attribute__((target("avx2")))
#include "hash/siphash/lanes.h"

#define NAME with_avx512
#define LANES 8
#define TARGET __attribute__((target("avx512f")))
#include "hash/siphash/lanes.h"
#endif

void spv_siphash24_many(const uint64_t *words, size_t blocks, size_t count, uint64_t k0, uint64_t k1, uint64_t *hashes) {
#if defined(__x86_64__)
    const unsigned cpu = spv_cpu();
    if (cpu & SPV_CPU_AVX512) {
        with_avx512(words, blocks, count, k0, k1, hashes);
        return;
    }
    if (cpu & SPV_CPU_AVX2) {
        with_avx2(words, blocks, count, k0, k1, hashes);
        return;
    }
#endif
    one_by_one(words, blocks, count, k0, k1, hashes);
}
