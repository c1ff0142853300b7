/* A Golomb-coded set as a stream of its values, ascending (BIP-158 § Golomb-Coded Sets). It reads one element at a
   time, or two elements with one load. */
#ifndef SPV_GCS_STREAM_H
#define SPV_GCS_STREAM_H

#include "spv.h"

typedef struct {
    const uint8_t *data;
    size_t size, bit;
    uint64_t n, i, value; /* number of elements; number of elements read; the last value */
} spv_gcs_stream;

/* Reads N. Fails if the bytes cannot hold N elements. */
spv_status spv_gcs_begin(spv_gcs_stream *of, const uint8_t *data, size_t size, unsigned p, spv_error *error);

/* Reads the next element, of any length. False, without moving, if the bits end within it. */
bool spv_gcs_next(spv_gcs_stream *of, unsigned p);

/* Fails if the bits of a set end within an element, or if bytes follow the last element. */
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

enum { SPV_GCS_WINDOW = 57 }; /* bits that a load of 8 bytes contains at least, from any bit on */

/* How many times spv_gcs_two can be called without reading beyond the end; 0 near the end. */
SPV_INLINE uint64_t spv_gcs_rounds(const spv_gcs_stream *of) {
    uint64_t pairs = (of->n - of->i) / 2, bits = 8 * (uint64_t)of->size - of->bit, loads = bits < 64 ? 0 : (bits - 64) / SPV_GCS_WINDOW;
    return pairs < loads ? pairs : loads;
}

/* Reads two elements with one load, which halves the wait for loads: the first into *first, the second into
   of->value. False, without moving, if the load does not contain both elements (1 pair in 7,000 at P = 19).
   spv_gcs_rounds returns how many times it may be called.

   An element is the difference d to the value before it, d = q 2^p + r. The quotient q is in unary, q ones and a
   zero. The remainder r has p bits. The bits are complemented after reading. The unary part then consists of zeros,
   and one instruction counts them:

   - bits = 0…0 1 r̄ …: q zeros, a one at place t = 63 - q, then r̄ = 2^p - 1 - r
   - q = 63 - t
   - d = (63 - t) 2^p + 2^p - 1 - r̄ = (2^6 2^p - 1) - (t 2^p + r̄)

   The difference d is therefore a constant minus a number that consists of t and r̄ side by side: one subtraction. A
   shift by 64 - t moves r̄ to the top. A shift by 64 - t + p moves the next element to the top. Modulo 64 these
   shifts are -t and p - t.

   The result is discarded if the number of bits used is above SPV_GCS_WINDOW. This is so if the window ends before a
   one is found, and if a shift is 64 or more. */
SPV_INLINE bool spv_gcs_two(spv_gcs_stream *of, unsigned p, uint64_t *first) {
    const uint64_t most = ((uint64_t)64 << p) - 1;
    const uint64_t bits = ~spv_gcs_be64(of->data + (of->bit >> 3)) << (of->bit & 7);
    const uint64_t t = 63 ^ (uint64_t)__builtin_clzll(bits | 1), remainder = bits << (-t & 63);
    const uint64_t next = bits << ((p - t) & 63);
    const uint64_t next_t = 63 ^ (uint64_t)__builtin_clzll(next | 1), next_remainder = next << (-next_t & 63);
    const uint64_t used = (64 - t + p) + (64 - next_t + p);
    if (SPV_UNLIKELY(used > SPV_GCS_WINDOW))
        return false;
    *first = of->value + most - (t << p | remainder >> (64 - p));
    of->value = *first + most - (next_t << p | next_remainder >> (64 - p));
    of->bit += used;
    of->i += 2;
    return true;
}

/* Decoders shift by variable numbers of bits, which is fast on x86 only with BMI2. Each loop is therefore compiled
   twice, with BMI2 and without. */
#if defined(__x86_64__)
#define SPV_GCS_BMI2 __attribute__((target("bmi2")))
#define SPV_GCS_HAS_BMI2 __builtin_cpu_supports("bmi2")
#else
#define SPV_GCS_BMI2
#define SPV_GCS_HAS_BMI2 false
#endif

#endif
