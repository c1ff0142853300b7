/* SHA-256 with SHA-NI: one message, or two messages whose rounds interleave, because each round waits for the round
   before it. */
#if defined(__x86_64__)
#include "hash/sha256/way.h"

#include <immintrin.h>

#define TARGET __attribute__((target("sha,sse4.1,ssse3")))

/* The state as the instructions expect it: words A B E F and C D G H, with the first word in the highest place. */
typedef struct {
    __m128i abef, cdgh;
} registers;

TARGET SPV_INLINE registers enter(__m128i abcd, __m128i efgh) { /* lowest place first */
    __m128i cdab = _mm_shuffle_epi32(abcd, 0xB1), hgfe = _mm_shuffle_epi32(efgh, 0x1B);
    return (registers){_mm_alignr_epi8(cdab, hgfe, 8), _mm_blend_epi16(hgfe, cdab, 0xF0)};
}

TARGET SPV_INLINE void leave(registers s, __m128i *abcd, __m128i *efgh) {
    __m128i feba = _mm_shuffle_epi32(s.abef, 0x1B), dchg = _mm_shuffle_epi32(s.cdgh, 0xB1);
    *abcd = _mm_blend_epi16(feba, dchg, 0xF0);
    *efgh = _mm_alignr_epi8(dchg, feba, 8);
}

TARGET SPV_INLINE __m128i words(const uint8_t *data) {
    const __m128i swap = _mm_set_epi8(12, 13, 14, 15, 8, 9, 10, 11, 4, 5, 6, 7, 0, 1, 2, 3);
    return _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(const void *)data), swap);
}

TARGET SPV_INLINE void four_rounds(registers *s, __m128i w, int i) {
    __m128i wk = _mm_add_epi32(w, _mm_load_si128((const __m128i *)(const void *)(spv_sha256_k + i)));
    s->cdgh = _mm_sha256rnds2_epu32(s->cdgh, s->abef, wk);
    s->abef = _mm_sha256rnds2_epu32(s->abef, s->cdgh, _mm_shuffle_epi32(wk, 0x0E));
}

/* Replaces w[i] by the next four words of the schedule, which are computed from the last sixteen. */
TARGET SPV_INLINE void next_words(__m128i w[4], int i) {
    __m128i last = w[(i + 3) & 3], middle = _mm_alignr_epi8(last, w[(i + 2) & 3], 4);
    w[i] = _mm_sha256msg2_epu32(_mm_add_epi32(_mm_sha256msg1_epu32(w[i], w[(i + 1) & 3]), middle), last);
}

TARGET SPV_INLINE void add(registers *s, registers start) {
    s->abef = _mm_add_epi32(s->abef, start.abef);
    s->cdgh = _mm_add_epi32(s->cdgh, start.cdgh);
}

TARGET void spv_sha256_ni(uint32_t state[8], const uint8_t *data, size_t blocks) {
    __m128i abcd = _mm_loadu_si128((const __m128i *)(const void *)state), efgh = _mm_loadu_si128((const __m128i *)(const void *)(state + 4));
    registers s = enter(abcd, efgh);
    for (; blocks; blocks--, data += 64) {
        registers start = s;
        __m128i w[4];
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
    leave(s, &abcd, &efgh);
    _mm_storeu_si128((__m128i *)(void *)state, abcd);
    _mm_storeu_si128((__m128i *)(void *)(state + 4), efgh);
}

/* Takes the four words of lane 0 or 1 (`odd`) out of eight words that alternate, and back. */
#define LANE(low, high, odd) \
    _mm_castps_si128(_mm_shuffle_ps(_mm_castsi128_ps(low), _mm_castsi128_ps(high), (odd) ? 0xDD : 0x88))

TARGET void spv_sha256_ni_2(uint32_t *state, const uint8_t *const *data, size_t blocks) {
    __m128i *at = (__m128i *)(void *)state;
    __m128i ab = _mm_loadu_si128(at), cd = _mm_loadu_si128(at + 1), ef = _mm_loadu_si128(at + 2), gh = _mm_loadu_si128(at + 3);
    registers s = enter(LANE(ab, cd, 0), LANE(ef, gh, 0)), t = enter(LANE(ab, cd, 1), LANE(ef, gh, 1));
    const uint8_t *one = data[0], *two = data[1];
    for (; blocks; blocks--, one += 64, two += 64) {
        registers s_start = s, t_start = t;
        __m128i v[4], w[4];
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
    __m128i s_abcd, s_efgh, t_abcd, t_efgh;
    leave(s, &s_abcd, &s_efgh);
    leave(t, &t_abcd, &t_efgh);
    _mm_storeu_si128(at, _mm_unpacklo_epi32(s_abcd, t_abcd));
    _mm_storeu_si128(at + 1, _mm_unpackhi_epi32(s_abcd, t_abcd));
    _mm_storeu_si128(at + 2, _mm_unpacklo_epi32(s_efgh, t_efgh));
    _mm_storeu_si128(at + 3, _mm_unpackhi_epi32(s_efgh, t_efgh));
}
#endif
