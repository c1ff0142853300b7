/* Merkle roots, and the check of a block's transactions against its header; the twin of pure/blocks.py's merkle_root,
   block_txids and check_block. */
#ifndef SPV_BLOCK_MERKLE_H
#define SPV_BLOCK_MERKLE_H

#include "hash/sha256.h"

/* pure.blocks.merkle_root: the root of `count` ≥ 1 hashes, which are overwritten. *mutated becomes true if two equal
   neighbors make the root ambiguous. */
void spv_merkle_root(spv_hash *hashes, size_t count, uint8_t root[32], bool *mutated);

/* pure.blocks.block_txids. The caller frees the ids, also after a failure. */
spv_status spv_block_txids(const uint8_t *raw, size_t size, spv_hash **txids, uint32_t *count, spv_error *error);

/* pure.blocks.check_block. */
spv_status spv_check_block(const uint8_t *raw, size_t size, spv_error *error);

#endif
