/* The ground of the kernel's C: status, error, bytes, little-endian loads, compiler hints.

   The folders are floors. A file includes files of its own folder and of lower floors only. Folders of the same
   floor do not include each other. The floors, from the top:

   - binding: Python's types and functions
   - watch, bloom, gcs: the exact scan; Bloom filters, generic and BIP-37; Golomb-coded sets
   - block: transactions and blocks (walking, txids, merkle roots, scripts, headers)
   - hash: SHA-256, MurmurHash3, SipHash
   - spv.h, array.h, fork.h

   Below binding/, nothing depends on Python, and there are no mutable globals. The exceptions are the processor's
   features, which are detected once, and the count of forks. tests/repository/test_house.py checks the floors. */
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
    SPV_FLAW,     /* a proof is invalid: the field of spv_error says why; the binding raises ProofError */
    SPV_FORMAT,   /* malformed bytes: spv_error says where; the binding raises FormatError */
    SPV_UNDO,     /* an undo record is malformed, damaged or of a different block: spv_error says where; the binding raises UndoError */
    SPV_NOMEM,    /* no memory: the binding raises MemoryError */
    SPV_RANGE     /* a number exceeds 32 bits: the binding raises OverflowError */
} spv_status;

/* The contents of a FormatError. Offset, field and message are the same as in the pure twin. */
typedef struct {
    size_t offset; /* absolute, in bytes */
    const char *field; /* a string literal */
    char message[160];
} spv_error;

/* Fills `error` (`format` as for printf) and returns SPV_FORMAT. */
SPV_COLD spv_status spv_refuse(spv_error *error, size_t offset, const char *field, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* A view of bytes that it does not own. `data` is NULL if the value is missing. */
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
