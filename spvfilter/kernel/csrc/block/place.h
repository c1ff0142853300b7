/* Blocks in open files: reading a block at its place, and the XOR of Bitcoin Core's block files. The twin is
   pure/files.py. */
#ifndef SPV_BLOCK_PLACE_H
#define SPV_BLOCK_PLACE_H

#include "spv.h"

enum { SPV_FILE_KEY_SIZE = 8, SPV_MAX_BLOCK_SIZE = 4000000 }; /* bytes */

/* values.Place. */
typedef struct {
    int descriptor;
    uint64_t offset;
    size_t size;
    uint8_t key[SPV_FILE_KEY_SIZE]; /* repeated from the start of the file; zeros if the file is not XORed */
    uint8_t hash[32];
} spv_place;

/* pure.files.read_at: reads up to place->size bytes into `data` and stores their number in `size`. False, with errno
   set, if that fails. */
bool spv_read_place(const spv_place *place, uint8_t *data, size_t *size);

/* True if the bytes are a block with the size and the hash of the place. */
bool spv_is_block_of(const spv_place *place, const uint8_t *data, size_t size);

/* pure.files.xored, in place. */
void spv_xor(uint8_t *data, size_t size, const uint8_t key[SPV_FILE_KEY_SIZE], uint64_t offset);

#endif
