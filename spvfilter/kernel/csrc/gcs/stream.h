/* A Golomb-coded set on its way through the decoder; for gcs*.c alone. */
#ifndef SPV_GCS_STREAM_H
#define SPV_GCS_STREAM_H

#include "spv.h"

typedef struct {
    const uint8_t *data;
    size_t size, bit;
    uint64_t n, i, value; /* elements; those behind us; the last one */
} spv_gcs_stream;

/* Reads N; refuses one that the bytes cannot hold. */
spv_status spv_gcs_begin(spv_gcs_stream *of, const uint8_t *data, size_t size, unsigned p, spv_error *error);

/* The next element, whatever it is. False, and nothing moves, where the bits end within it. */
bool spv_gcs_next(spv_gcs_stream *of, unsigned p);

/* Why there is no next element, or what stands behind the last. */
spv_status spv_gcs_end(const spv_gcs_stream *of, spv_error *error);

/* The 8 bytes at `at` as one number, most significant first. */
SPV_INLINE uint64_t spv_gcs_be64(const uint8_t *at) {
    uint64_t value;
    memcpy(&value, at, sizeof value);
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    value = __builtin_bswap64(value);
#endif
    return value;
}

enum { SPV_GCS_WINDOW = 57 }; /* bits that a load of 8 bytes holds at least, from whatever bit on */

/* How often spv_gcs_two may be called at least; 0 towards the end. */
SPV_INLINE uint64_t spv_gcs_rounds(const spv_gcs_stream *of) {
    uint64_t pairs = (of->n - of->i) / 2, bits = 8 * (uint64_t)of->size - of->bit, loads = bits < 64 ? 0 : (bits - 64) / SPV_GCS_WINDOW;
    return pairs < loads ? pairs : loads;
}

/* Two elements out of one load, which halves the wait for loads. `i` is
   left to the caller. False, and nothing moves, where it does not hold them: 1 pair in 7,000. */
SPV_INLINE bool spv_gcs_two(spv_gcs_stream *of, unsigned p, uint64_t *first) {
    uint64_t bits = ~spv_gcs_be64(of->data + (of->bit >> 3)) << (of->bit & 7);
    uint64_t top = 63 ^ (uint64_t)__builtin_clzll(bits | 1); /* the unary part's end */
    uint64_t rest = bits << (-top & 63), next = bits << ((p - top) & 63); /* from the remainder on; from the next element on */
    uint64_t second_top = 63 ^ (uint64_t)__builtin_clzll(next | 1), used = 2 * (p + 64) - top - second_top;
    if (SPV_UNLIKELY(used > SPV_GCS_WINDOW))
        return false;
    uint64_t second_rest = next << (-second_top & 63), most = ((uint64_t)64 << p) - 1;
    *first = of->value + most - (top << p | rest >> (64 - p));
    of->value = *first + most - (second_top << p | second_rest >> (64 - p));
    of->bit += used;
    return true;
}

/* Decoders shift by numbers that are not constants, which x86 does well only with BMI2: each loop is compiled for both. */
#if defined(__x86_64__)
#define SPV_GCS_BMI2 __attribute__((target("bmi2")))
#define SPV_GCS_HAS_BMI2 __builtin_cpu_supports("bmi2")
#else
#define SPV_GCS_BMI2
#define SPV_GCS_HAS_BMI2 false
#endif

#endif
