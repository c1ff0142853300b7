/* What the self-test and the fuzz targets share: claims that must hold, and the plainest way to compute what the kernel computes fast. */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>

#include "bip37.h"

/* Stops the program, also one built with NDEBUG: libFuzzer keeps the input, a debugger the place. */
#define CHECK(claim) \
    do { \
        if (!(claim)) { \
            fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #claim); \
            abort(); \
        } \
    } while (0)

/* A copy with nothing before it and nothing after it, so that sanitizers see every byte read beyond; to be freed. */
uint8_t *exact_copy(const uint8_t *data, size_t size);
/* `count` zeroed items, to be freed. */
void *zeroed(size_t count, size_t size);

/* That a refusal names a place within `size` bytes, a field and a reason. */
void check_refusal(spv_status status, const spv_error *error, size_t size);
void check_same_refusal(const spv_error *one, const spv_error *other);

/* Every transaction of a block, to be freed, or NULL and the error of a malformed one. */
spv_tx *walk_whole_block(const uint8_t *raw, size_t size, uint32_t *count, spv_error *error);

/* SHA-256 padded by copying; the portable compression, which the self-test holds against published digests. */
void oracle_sha256(const uint8_t *data, size_t size, uint8_t digest[32]);
void oracle_sha256d(const uint8_t *data, size_t size, uint8_t digest[32]);
void oracle_txid(const uint8_t *raw, const spv_tx *tx, uint8_t digest[32]);
void oracle_wtxid(const uint8_t *raw, const spv_tx *tx, uint8_t digest[32]);
void oracle_merkle_root(const spv_hash *leaves, size_t count, uint8_t root[32], bool *mutated);

/* BIP-37 as Core has it, one element and one function after the other. */
uint32_t oracle_murmur3(const uint8_t *data, size_t size, uint32_t seed);
bool oracle_bloom_contains(const spv_bip37 *filter, const uint8_t *data, size_t size);
void oracle_bloom_insert(const spv_bip37 *filter, const uint8_t *data, size_t size);
bool oracle_is_relevant(const uint8_t *raw, const spv_tx *tx, const spv_bip37 *filter);

#endif
