/* BIP-37 as in Bitcoin Core, one element and one function at a time, for comparison with the kernel's scan. */
#ifndef ORACLE_BIP37_H
#define ORACLE_BIP37_H

#include "check.h"
#include "bloom/bip37/scan.h"

bool oracle_bloom_contains(const spv_bip37 *filter, const uint8_t *data, size_t size);
void oracle_bloom_insert(const spv_bip37 *filter, const uint8_t *data, size_t size);
bool oracle_is_relevant(const uint8_t *raw, const spv_tx *tx, const spv_bip37 *filter);

#endif
