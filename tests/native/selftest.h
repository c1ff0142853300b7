/* The parts of the self-test. Each stops the program if a check fails. */
#ifndef SELFTEST_H
#define SELFTEST_H

#include "oracle.h"

typedef struct {
    uint8_t *raw; /* a separate copy of exactly `size` bytes */
    size_t size;
    uint32_t transactions;
    spv_tx *txs;
} real_block;

/* Pseudo-random bytes, the same in every run: xorshift64* (Vigna). */
typedef struct {
    uint64_t state;
} dice;
uint64_t roll(dice *dice);
void roll_bytes(dice *dice, uint8_t *bytes, size_t size);

void test_hashes(void);
void test_headers(void);
void test_many_siphashes(void);
/* calls the parts that depend on the processor's features: test_many_siphashes, test_bloom and test_fuse */
void test_processors(void);
void test_walk(void);
void test_curve(void);
void test_silent(void);
void test_real_blocks(const real_block *blocks, size_t count);
void test_damaged_blocks(const real_block *blocks, size_t count);
void test_bip37_scans(const real_block *blocks, size_t count);
void test_watch_scans(const real_block *blocks, size_t count);
void test_tables(void);
void test_threads(void);
void test_bloom(void);
void test_fuse(void);
void test_columns(void);
void test_memory(const real_block *blocks, size_t count);

#endif
