/* SHA-256 of sixteen messages at once with AVX-512 F and BW. */
#if defined(__x86_64__)
#include "sha256_way.h"

#include <immintrin.h>

#define LANES 16
#define NAME spv_sha256_avx512_16
#define TARGET __attribute__((target("avx512f,avx512bw")))
#define VECTOR __m512i
#define LOAD(at) _mm512_load_si512((const void *)(at))
#define STORE(at, x) _mm512_store_si512((void *)(at), (x))
#define SET(word) _mm512_set1_epi32((int)(word))
#define ADD(x, y) _mm512_add_epi32(x, y)
#define XOR3(x, y, z) _mm512_ternarylogic_epi32(x, y, z, 0x96)
#define SHIFT(x, n) _mm512_srli_epi32(x, n)
#define ROTATE(x, n) _mm512_ror_epi32(x, n)
#define CHOOSE(e, f, g) _mm512_ternarylogic_epi32(e, f, g, 0xCA)
#define MAJORITY(a, b, c) _mm512_ternarylogic_epi32(a, b, c, 0xE8)
#define FOUR_WORDS four_words

#define ROW(number) _mm_loadu_si128((const __m128i *)(const void *)(data[number] + at))
/* Sixteen bytes each of messages `row`, `row` + 4, + 8 and + 12, words in the machine's order. */
#define FOUR_ROWS(row) \
    _mm512_shuffle_epi8( \
        _mm512_inserti32x4( \
            _mm512_inserti32x4(_mm512_inserti32x4(_mm512_castsi128_si512(ROW(row)), ROW((row) + 4), 1), ROW((row) + 8), 2), \
            ROW((row) + 12), 3 \
        ), \
        swap \
    )

TARGET SPV_INLINE void four_words(__m512i words[4], const uint8_t *const *data, size_t at) {
    const __m512i swap = _mm512_broadcast_i32x4(_mm_set_epi8(12, 13, 14, 15, 8, 9, 10, 11, 4, 5, 6, 7, 0, 1, 2, 3));
    __m512i row0 = FOUR_ROWS(0), row1 = FOUR_ROWS(1), row2 = FOUR_ROWS(2), row3 = FOUR_ROWS(3);
    __m512i low01 = _mm512_unpacklo_epi32(row0, row1), low23 = _mm512_unpacklo_epi32(row2, row3);
    __m512i high01 = _mm512_unpackhi_epi32(row0, row1), high23 = _mm512_unpackhi_epi32(row2, row3);
    words[0] = _mm512_unpacklo_epi64(low01, low23);
    words[1] = _mm512_unpackhi_epi64(low01, low23);
    words[2] = _mm512_unpacklo_epi64(high01, high23);
    words[3] = _mm512_unpackhi_epi64(high01, high23);
}

#include "sha256_lanes.h"
#endif
