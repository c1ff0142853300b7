/* MurmurHash3 x86_32, one key at a time or many of one length at once. */
#ifndef SPV_MURMUR3_H
#define SPV_MURMUR3_H

#include "spv.h"

/* hashes.murmur3. */
uint32_t spv_murmur3_32(const uint8_t *data, size_t size, uint32_t seed);

#endif
