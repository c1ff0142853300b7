/* Blocks in open files: where one lies, reading it, and the XOR of Bitcoin Core's block files; the twin of pure/files.py. */
#ifndef SPV_BLOCK_PLACE_H
#define SPV_BLOCK_PLACE_H

#include "spv.h"

enum { SPV_FILE_KEY_SIZE = 8, SPV_MAX_BLOCK_SIZE = 4000000 }; /* bytes */

/* values.Place. */
typedef struct {
    int descriptor;
    uint64_t offset;
    size_t size;
    uint8_t key[SPV_FILE_KEY_SIZE]; /* repeated from the start of the file; all zero where it is not XORed */
    uint8_t hash[32];
} spv_place;

/* pure.files.read_at: the bytes that are there, at most the place's size of them, into `data`. False, with errno set: they cannot be read. */
bool spv_read_place(const spv_place *place, uint8_t *data, size_t *size);

/* Whether a block of the place's size and hash was read. */
bool spv_is_block_of(const spv_place *place, const uint8_t *data, size_t size);

/* pure.files.xored, in place. */
void spv_xor(uint8_t *data, size_t size, const uint8_t key[SPV_FILE_KEY_SIZE], uint64_t offset);

#endif
