/* A generic filter with a number for every cell, for comparison with the kernel's bits and counters. After pure/cells.py and pure/bits.py. */
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
    unsigned width;  /* bits of a cell */
    uint16_t *cells; /* a value for each cell */
} plain_filter;

/* Computes the key's cells, one for each function. Returns their number: hash_funcs, or 0 for a filter without
   cells. */
size_t plain_positions(const plain_filter *filter, const uint8_t *data, size_t size, uint64_t *positions);

bool plain_bits_add(plain_filter *filter, const uint64_t *positions, size_t count);
bool plain_counters_add(plain_filter *filter, const uint64_t *positions, size_t count);
bool plain_counters_remove(plain_filter *filter, const uint64_t *positions, size_t count);
unsigned plain_least(const plain_filter *filter, const uint64_t *positions, size_t count);

/* The number of cells from `first` to before `end` that are not 0. */
uint64_t plain_used(const plain_filter *filter, uint64_t first, uint64_t end);

/* Checks that packed cells equal the plain ones, with zeros after the last one. */
void check_same_cells(const uint8_t *packed, const plain_filter *filter);

/* The same for one bit for each cell, which is set if the value is not 0. */
void check_counted_bits(const uint8_t *bits, const plain_filter *filter);

/* Checks that `mixed` is the union, the intersection, or the sum of counters that stop at their limit. */
void check_or(const uint8_t *mixed, const uint8_t *one, const uint8_t *other, size_t size);
void check_and(const uint8_t *mixed, const uint8_t *one, const uint8_t *other, size_t size);
void check_sum(const uint8_t *mixed, const uint8_t *one, const uint8_t *other, unsigned width, size_t size);

/* The number of bits that are set in either. `subset`: true if each bit of `one` is set in `other`. */
uint64_t plain_either(const uint8_t *one, const uint8_t *other, size_t size, bool *subset);

#endif
