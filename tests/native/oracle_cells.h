/* A generic filter with a byte for every cell, for comparison with the kernel's bits and counters. After pure/cells.py and pure/bits.py. */
#ifndef ORACLE_CELLS_H
#define ORACLE_CELLS_H

#include "bloom/bits.h"
#include "bloom/counters.h"
#include "bloom/whole.h"
#include "check.h"

typedef struct {
    spv_family family;
    uint64_t cell_count;
    uint32_t hash_funcs;
    bool partitioned;
    uint8_t key[16];
    uint8_t *cells; /* values of 0 and 1, or of 0 to 15 */
} plain_filter;

/* The key's cells, one per function; returns their number: hash_funcs, or 0 for a filter without cells. */
size_t plain_positions(const plain_filter *filter, const uint8_t *data, size_t size, uint64_t *positions);

bool plain_bits_add(plain_filter *filter, const uint64_t *positions, size_t count);
bool plain_counters_add(plain_filter *filter, const uint64_t *positions, size_t count);
bool plain_counters_remove(plain_filter *filter, const uint64_t *positions, size_t count);
unsigned plain_least(const plain_filter *filter, const uint64_t *positions, size_t count);

/* How many cells from `first` to before `end` are not 0. */
uint64_t plain_used(const plain_filter *filter, uint64_t first, uint64_t end);

/* Checks that packed cells, of 1 or 4 bits, equal the plain ones, with zeros after the last. */
void check_same_cells(const uint8_t *packed, const plain_filter *filter, unsigned width);

#endif
