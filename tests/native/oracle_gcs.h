/* Golomb-coded sets read bit by bit, for comparison with the kernel's. After pure/gcs.py. */
#ifndef ORACLE_GCS_H
#define ORACLE_GCS_H

#include "check.h"

typedef struct {
    uint64_t *values; /* ascending; the caller releases them */
    size_t count;
} plain_set;

/* pure.gcs.gcs_values, or false for a malformed set. */
bool plain_decode(const uint8_t *data, size_t size, unsigned p, plain_set *set);

/* The value of an item in a set of `count` elements. */
uint64_t plain_value(const spv_bytes *item, const uint8_t *key, uint64_t count, uint64_t m);
bool plain_contains(const plain_set *set, uint64_t value);

/* The number of distinct items. */
size_t plain_distinct(const spv_bytes *items, size_t count);

/* Checks that the set contains exactly the items' values. */
void check_holds_just(const plain_set *set, const spv_bytes *items, size_t count, const uint8_t *key, uint64_t m);

#endif
