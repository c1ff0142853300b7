/* AVX2 vectors of eight lanes: the operations that the templates sha256/lanes.h and murmur3/lanes.h use. A file
   includes it once. */
#ifndef SPV_HASH_LANES_AVX2_H
#define SPV_HASH_LANES_AVX2_H

#include "spv.h"

#include <immintrin.h>

#define LANES 8
#define TARGET __attribute__((target("avx2")))
#define VECTOR __m256i
#define LOAD(at) _mm256_load_si256((const __m256i *)(const void *)(at))
#define STORE(at, x) _mm256_store_si256((__m256i *)(void *)(at), (x))
#define SET(word) _mm256_set1_epi32((int)(word))
#define ADD(x, y) _mm256_add_epi32(x, y)
#define SUBTRACT(x, y) _mm256_sub_epi32(x, y)
#define MULTIPLY(x, y) _mm256_mullo_epi32(x, y)
#define XOR(x, y) _mm256_xor_si256(x, y)
#define AND(x, y) _mm256_and_si256(x, y)
#define LEAST(x, y) _mm256_min_epu32(x, y)
#define LEFT(x, n) _mm256_slli_epi32(x, n)
#define RIGHT(x, n) _mm256_srli_epi32(x, n)
#define ROTATE_LEFT(x, n) _mm256_or_si256(LEFT(x, n), RIGHT(x, 32 - (n)))
#define ROTATE_RIGHT(x, n) ROTATE_LEFT(x, 32 - (n))
#define XOR3(x, y, z) XOR(XOR(x, y), z)
#define CHOOSE(e, f, g) XOR(g, AND(e, XOR(f, g)))
#define MAJORITY(a, b, c) _mm256_or_si256(AND(a, b), AND(c, _mm256_or_si256(a, b)))

TARGET SPV_INLINE VECTOR swap_bytes(VECTOR words) {
    return _mm256_shuffle_epi8(words, _mm256_broadcastsi128_si256(_mm_set_epi8(12, 13, 14, 15, 8, 9, 10, 11, 4, 5, 6, 7, 0, 1, 2, 3)));
}

/* The upper halves of the products. y is the same in every lane. */
TARGET SPV_INLINE VECTOR high_product(VECTOR x, VECTOR y) {
    VECTOR even = _mm256_srli_epi64(_mm256_mul_epu32(x, y), 32), odd = _mm256_mul_epu32(_mm256_srli_epi64(x, 32), y);
    return _mm256_blend_epi32(even, odd, 0xAA);
}

#define ROW(number) _mm_loadu_si128((const __m128i *)(const void *)(rows[number] + at))
#define ROWS(first) _mm256_inserti128_si256(_mm256_castsi128_si256(ROW(first)), ROW((first) + 4), 1)

/* The four words at byte `at` of each row: words[k] holds the k-th word of every row. */
TARGET SPV_INLINE void four_words(VECTOR words[4], const uint8_t *const *rows, size_t at) {
    VECTOR row0 = ROWS(0), row1 = ROWS(1), row2 = ROWS(2), row3 = ROWS(3);
    VECTOR low01 = _mm256_unpacklo_epi32(row0, row1), low23 = _mm256_unpacklo_epi32(row2, row3);
    VECTOR high01 = _mm256_unpackhi_epi32(row0, row1), high23 = _mm256_unpackhi_epi32(row2, row3);
    words[0] = _mm256_unpacklo_epi64(low01, low23);
    words[1] = _mm256_unpackhi_epi64(low01, low23);
    words[2] = _mm256_unpacklo_epi64(high01, high23);
    words[3] = _mm256_unpackhi_epi64(high01, high23);
}

#endif
