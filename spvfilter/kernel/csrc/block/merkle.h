/* Merkle roots and branches, and the check of a block's transactions against its header; the twin of pure/blocks.py's
   merkle_root, merkle_branches, block_txids and check_block. */
#ifndef SPV_BLOCK_MERKLE_H
#define SPV_BLOCK_MERKLE_H

#include "hash/sha256.h"

/* pure.blocks.merkle_root: the root of `count` ≥ 1 hashes, which are overwritten. *mutated becomes true if two equal
   neighbors make the root ambiguous. */
void spv_merkle_root(spv_hash *hashes, size_t count, uint8_t root[32], bool *mutated);

/* Number of levels below the root of a tree with `count` ≥ 1 leaves. */
size_t spv_merkle_depth(size_t count);

/* pure.blocks.merkle_branches: the branches of `wanted` leaves, one after the other, each of spv_merkle_depth(count)
   hashes. The positions are below `count`, and the `count` ≥ 1 leaves are overwritten. */
void spv_merkle_branches(spv_hash *leaves, size_t count, const size_t *positions, size_t wanted, spv_hash *branches);

/* pure.blocks.block_txids. The caller frees the ids, even after a failure. */
spv_status spv_block_txids(const uint8_t *raw, size_t size, spv_hash **txids, uint32_t *count, spv_error *error);

/* pure.blocks.check_block. */
spv_status spv_check_block(const uint8_t *raw, size_t size, spv_error *error);

#endif
