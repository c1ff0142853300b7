/* SHA-256 of eight messages at once with AVX2. */
#if defined(__x86_64__)
#include "sha256_way.h"

#include <immintrin.h>

#define LANES 8
#define NAME spv_sha256_avx2_8
#define TARGET __attribute__((target("avx2")))
#define VECTOR __m256i
#define LOAD(at) _mm256_load_si256((const __m256i *)(const void *)(at))
#define STORE(at, x) _mm256_store_si256((__m256i *)(void *)(at), (x))
#define SET(word) _mm256_set1_epi32((int)(word))
#define ADD(x, y) _mm256_add_epi32(x, y)
#define XOR(x, y) _mm256_xor_si256(x, y)
#define AND(x, y) _mm256_and_si256(x, y)
#define XOR3(x, y, z) XOR(XOR(x, y), z)
#define SHIFT(x, n) _mm256_srli_epi32(x, n)
#define ROTATE(x, n) _mm256_or_si256(SHIFT(x, n), _mm256_slli_epi32(x, 32 - (n)))
#define CHOOSE(e, f, g) XOR(g, AND(e, XOR(f, g)))
#define MAJORITY(a, b, c) _mm256_or_si256(AND(a, b), AND(c, _mm256_or_si256(a, b)))
#define FOUR_WORDS four_words

/* Sixteen bytes of message `row` in the lower half and of message `row` + 4 in the upper, words in the machine's order. */
#define TWO_ROWS(row) \
    _mm256_shuffle_epi8( \
        _mm256_inserti128_si256( \
            _mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)(data[row] + at))), \
            _mm_loadu_si128((const __m128i *)(const void *)(data[(row) + 4] + at)), 1 \
        ), \
        swap \
    )

TARGET SPV_INLINE void four_words(__m256i words[4], const uint8_t *const *data, size_t at) {
    const __m256i swap = _mm256_broadcastsi128_si256(_mm_set_epi8(12, 13, 14, 15, 8, 9, 10, 11, 4, 5, 6, 7, 0, 1, 2, 3));
    __m256i row0 = TWO_ROWS(0), row1 = TWO_ROWS(1), row2 = TWO_ROWS(2), row3 = TWO_ROWS(3);
    __m256i low01 = _mm256_unpacklo_epi32(row0, row1), low23 = _mm256_unpacklo_epi32(row2, row3);
    __m256i high01 = _mm256_unpackhi_epi32(row0, row1), high23 = _mm256_unpackhi_epi32(row2, row3);
    words[0] = _mm256_unpacklo_epi64(low01, low23);
    words[1] = _mm256_unpackhi_epi64(low01, low23);
    words[2] = _mm256_unpacklo_epi64(high01, high23);
    words[3] = _mm256_unpackhi_epi64(high01, high23);
}

#include "sha256_lanes.h"
#endif
