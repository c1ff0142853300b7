/* The ground of the kernel's C: status, error, bytes, little-endian loads, compiler hints.

   The folders are floors. A file includes files of its own folder and of lower floors; folders of one floor include nothing of each other.

       binding              Python's types and functions
       watch  bloom  gcs    the exact scan; Bloom filters, generic and BIP-37; Golomb-coded sets
       block                transactions and blocks: walking, txids, Merkle roots, scripts, headers
       hash                 SHA-256, MurmurHash3, SipHash
       spv.h, array.h, fork.h

   Nothing below binding/ knows Python or has mutable globals, except for the processor's features, which are detected once, and the
   count of forks. tests/test_house.py holds the plan. */
#ifndef SPV_H
#define SPV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define SPV_LIKELY(x) __builtin_expect(!!(x), 1)
#define SPV_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define SPV_INLINE static inline __attribute__((always_inline))
#define SPV_COLD __attribute__((cold, noinline))

/* The result of a function that can fail; its outputs are undefined unless it is SPV_OK. */
typedef enum {
    SPV_OK = 0,
    SPV_FLAW,     /* a proof that does not hold: spv_error's field says why; the binding raises ProofError */
    SPV_FORMAT,   /* malformed bytes: spv_error says where; the binding raises FormatError */
    SPV_UNDO,     /* an undo record that is malformed, damaged or of another block: spv_error says where; UndoError */
    SPV_NOMEM,    /* no memory: MemoryError */
    SPV_RANGE     /* more than a 32-bit number can count: OverflowError */
} spv_status;

/* The contents of a FormatError: offset, field and message are those of the pure twin. */
typedef struct {
    size_t offset; /* absolute, bytes */
    const char *field; /* a string literal */
    char message[160];
} spv_error;

/* Fills `error` (printf's rules) and returns SPV_FORMAT. */
SPV_COLD spv_status spv_refuse(spv_error *error, size_t offset, const char *field, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* A view of bytes, which it does not own. `data` is NULL if the value is missing. */
typedef struct {
    const uint8_t *data;
    size_t size;
} spv_bytes;

SPV_INLINE bool spv_equal(spv_bytes one, spv_bytes other) {
    return one.size == other.size && !memcmp(one.data, other.data, one.size);
}

SPV_INLINE uint16_t spv_le16(const uint8_t *at) {
    return (uint16_t)(at[0] | at[1] << 8);
}

SPV_INLINE uint32_t spv_le32(const uint8_t *at) {
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return value;
#else
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
#endif
}

SPV_INLINE uint64_t spv_le64(const uint8_t *at) {
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return value;
#else
    return (uint64_t)spv_le32(at) | (uint64_t)spv_le32(at + 4) << 32;
#endif
}

SPV_INLINE void spv_put_le32(uint8_t *at, uint32_t value) {
    at[0] = (uint8_t)value;
    at[1] = (uint8_t)(value >> 8);
    at[2] = (uint8_t)(value >> 16);
    at[3] = (uint8_t)(value >> 24);
}

#endif
