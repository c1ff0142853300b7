/* Partial merkle trees, walked recursively as in Bitcoin Core, for comparison with the kernel, which works level by
   level. */
#ifndef ORACLE_MERKLE_H
#define ORACLE_MERKLE_H

#include "block/merkleblock.h"
#include "oracle.h"

typedef void hash_function(const uint8_t *data, size_t size, uint8_t digest[32]); /* sha256d */

/* The proof of the tree. `matched` is as in spv_proof. */
typedef struct {
    const char *flaw;  /* the first one, depth first; NULL if the proof is valid */
    unsigned height;   /* of the node above equal siblings, */
    uint32_t position; /* and its position */
    bool ambiguous;
    size_t count;
    spv_proved_tx *matched;
} plain_proof;

void plain_extract(const spv_partial_tree *tree, const uint8_t root[32], hash_function *sha256d, plain_proof *proof);

/* Builds the partial tree over `count` leaves that proves the marked ones, as Core does. It fills `hashes` and
   `flags`. They are zeroed, with room for all leaves and two bits for each leaf. The tree refers to them. */
void plain_build(const spv_hash *leaves, const bool *marked, uint32_t count, spv_hash *hashes, uint8_t *flags, spv_partial_tree *tree, uint8_t root[32]);

#endif
