/* AVX-512 F and BW vectors of sixteen lanes: the operations of lanes/avx2.h. */
#ifndef SPV_HASH_LANES_AVX512_H
#define SPV_HASH_LANES_AVX512_H

#include "spv.h"

#include <immintrin.h>

#define LANES 16
#define TARGET __attribute__((target("avx512f,avx512bw")))
#define VECTOR __m512i
#define LOAD(at) _mm512_load_si512((const void *)(at))
#define STORE(at, x) _mm512_store_si512((void *)(at), (x))
#define SET(word) _mm512_set1_epi32((int)(word))
#define ADD(x, y) _mm512_add_epi32(x, y)
#define SUBTRACT(x, y) _mm512_sub_epi32(x, y)
#define MULTIPLY(x, y) _mm512_mullo_epi32(x, y)
#define XOR(x, y) _mm512_xor_si512(x, y)
#define AND(x, y) _mm512_and_si512(x, y)
#define LEAST(x, y) _mm512_min_epu32(x, y)
#define LEFT(x, n) _mm512_slli_epi32(x, n)
#define RIGHT(x, n) _mm512_srli_epi32(x, n)
#define ROTATE_LEFT(x, n) _mm512_rol_epi32(x, n)
#define ROTATE_RIGHT(x, n) _mm512_ror_epi32(x, n)
#define XOR3(x, y, z) _mm512_ternarylogic_epi32(x, y, z, 0x96)
#define CHOOSE(e, f, g) _mm512_ternarylogic_epi32(e, f, g, 0xCA)
#define MAJORITY(a, b, c) _mm512_ternarylogic_epi32(a, b, c, 0xE8)

TARGET SPV_INLINE VECTOR swap_bytes(VECTOR words) {
    return _mm512_shuffle_epi8(words, _mm512_broadcast_i32x4(_mm_set_epi8(12, 13, 14, 15, 8, 9, 10, 11, 4, 5, 6, 7, 0, 1, 2, 3)));
}

TARGET SPV_INLINE VECTOR high_product(VECTOR x, VECTOR y) {
    VECTOR even = _mm512_srli_epi64(_mm512_mul_epu32(x, y), 32), odd = _mm512_mul_epu32(_mm512_srli_epi64(x, 32), y);
    return _mm512_mask_blend_epi32(0xAAAA, even, odd);
}

#define ROW(number) _mm_loadu_si128((const __m128i *)(const void *)(rows[number] + at))
#define WITH(vector, number, place) _mm512_inserti32x4(vector, ROW(number), place)
#define ROWS(first) WITH(WITH(WITH(_mm512_castsi128_si512(ROW(first)), (first) + 4, 1), (first) + 8, 2), (first) + 12, 3)

TARGET SPV_INLINE void four_words(VECTOR words[4], const uint8_t *const *rows, size_t at) {
    VECTOR row0 = ROWS(0), row1 = ROWS(1), row2 = ROWS(2), row3 = ROWS(3);
    VECTOR low01 = _mm512_unpacklo_epi32(row0, row1), low23 = _mm512_unpacklo_epi32(row2, row3);
    VECTOR high01 = _mm512_unpackhi_epi32(row0, row1), high23 = _mm512_unpackhi_epi32(row2, row3);
    words[0] = _mm512_unpacklo_epi64(low01, low23);
    words[1] = _mm512_unpackhi_epi64(low01, low23);
    words[2] = _mm512_unpacklo_epi64(high01, high23);
    words[3] = _mm512_unpackhi_epi64(high01, high23);
}

#endif
