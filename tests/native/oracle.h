/* Hashes computed the plainest way, for comparison with the kernel's. */
#ifndef ORACLE_H
#define ORACLE_H

#include "check.h"

/* The portable compression, which the self-test compares with published digests. */
void oracle_sha256(const uint8_t *data, size_t size, uint8_t digest[32]);
void oracle_sha256d(const uint8_t *data, size_t size, uint8_t digest[32]);
void oracle_txid(const uint8_t *raw, const spv_tx *tx, uint8_t digest[32]);
void oracle_wtxid(const uint8_t *raw, const spv_tx *tx, uint8_t digest[32]);
void oracle_merkle_root(uint8_t (*leaves)[32], size_t count, uint8_t root[32], bool *mutated);

/* From Austin Appleby's description, byte by byte. */
uint32_t oracle_murmur3(const uint8_t *data, size_t size, uint32_t seed);
void oracle_murmur3_x64(const uint8_t *data, size_t size, uint32_t seed, uint64_t hash[2]);
/* From Aumasson's and Bernstein's paper, byte by byte. */
uint64_t oracle_siphash24(const uint8_t *data, size_t size, const uint8_t key[16]);
/* From the specification of xxHash (XXH64, seed 0), a word at a time. */
uint64_t oracle_xxhash64(const uint8_t *data, size_t size);
/* From Austin Appleby's MurmurHash64A, byte by byte. */
uint64_t oracle_murmur64a(const uint8_t *data, size_t size, uint64_t seed);
/* Spark's variant: each word or trailing byte is one step. */
uint32_t oracle_spark_murmur(const uint8_t *data, size_t size, uint32_t seed);

#endif
