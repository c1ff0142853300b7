/* SHA-256 with ARMv8's SHA-2 instructions: one message, or two messages whose rounds interleave, because each round
   waits for the round before it. */
#include "hash/sha256/way.h"

#if defined(SPV_SHA256_ARM)
#include <arm_neon.h>

#if defined(__clang__)
#define TARGET __attribute__((target("sha2")))
#else
#define TARGET __attribute__((target("+crypto")))
#endif

typedef struct {
    uint32x4_t abcd, efgh;
} registers;

TARGET SPV_INLINE uint32x4_t words(const uint8_t *data) {
    return vreinterpretq_u32_u8(vrev32q_u8(vld1q_u8(data)));
}

TARGET SPV_INLINE void four_rounds(registers *s, uint32x4_t w, int i) {
    uint32x4_t wk = vaddq_u32(w, vld1q_u32(spv_sha256_k + i)), abcd = s->abcd;
    s->abcd = vsha256hq_u32(abcd, s->efgh, wk);
    s->efgh = vsha256h2q_u32(s->efgh, abcd, wk);
}

/* Replaces w[i] by the next four words of the schedule, which are computed from the last sixteen. */
TARGET SPV_INLINE void next_words(uint32x4_t w[4], int i) {
    w[i] = vsha256su1q_u32(vsha256su0q_u32(w[i], w[(i + 1) & 3]), w[(i + 2) & 3], w[(i + 3) & 3]);
}

TARGET SPV_INLINE void add(registers *s, registers start) {
    s->abcd = vaddq_u32(s->abcd, start.abcd);
    s->efgh = vaddq_u32(s->efgh, start.efgh);
}

TARGET void spv_sha256_arm(uint32_t state[8], const uint8_t *data, size_t blocks) {
    registers s = {vld1q_u32(state), vld1q_u32(state + 4)};
    for (; blocks; blocks--, data += 64) {
        registers start = s;
        uint32x4_t w[4];
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++) {
            if (i < 4)
                w[i] = words(data + 16 * i);
            else
                next_words(w, i & 3);
            four_rounds(&s, w[i & 3], 4 * i);
        }
        add(&s, start);
    }
    vst1q_u32(state, s.abcd);
    vst1q_u32(state + 4, s.efgh);
}

TARGET void spv_sha256_arm_2(uint32_t *state, const uint8_t *const *data, size_t blocks) {
    uint32x4x2_t abcd = vld2q_u32(state), efgh = vld2q_u32(state + 8);
    registers s = {abcd.val[0], efgh.val[0]}, t = {abcd.val[1], efgh.val[1]};
    const uint8_t *one = data[0], *two = data[1];
    for (; blocks; blocks--, one += 64, two += 64) {
        registers s_start = s, t_start = t;
        uint32x4_t v[4], w[4];
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++) {
            if (i < 4) {
                v[i] = words(one + 16 * i);
                w[i] = words(two + 16 * i);
            } else {
                next_words(v, i & 3);
                next_words(w, i & 3);
            }
            four_rounds(&s, v[i & 3], 4 * i);
            four_rounds(&t, w[i & 3], 4 * i);
        }
        add(&s, s_start);
        add(&t, t_start);
    }
    vst2q_u32(state, ((uint32x4x2_t){{s.abcd, t.abcd}}));
    vst2q_u32(state + 8, ((uint32x4x2_t){{s.efgh, t.efgh}}));
}
#endif
