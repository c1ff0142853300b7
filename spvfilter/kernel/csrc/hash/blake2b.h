/* BLAKE2b without a key, with a hash of 8 bytes (RFC 7693). A message may come in parts. */
#ifndef SPV_HASH_BLAKE2B_H
#define SPV_HASH_BLAKE2B_H

#include "spv.h"

enum { SPV_BLAKE2B_BLOCK = 128 };

typedef struct {
    uint64_t hash[8];
    uint64_t hashed; /* bytes of the message before `block`; memory holds less than 2^64 */
    size_t filled;   /* bytes in `block` */
    uint8_t block[SPV_BLAKE2B_BLOCK];
} spv_blake2b;

void spv_blake2b_start(spv_blake2b *of);
void spv_blake2b_add(spv_blake2b *of, const uint8_t *data, size_t size);

/* The hash, little endian. Nothing may be added afterwards. */
uint64_t spv_blake2b_end(spv_blake2b *of);

#endif
