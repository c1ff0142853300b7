/* Merkleblocks: their payload, and the partial merkle tree that proves transactions of a block; the twin of pure/merkleblock.py. */
#ifndef SPV_BLOCK_MERKLEBLOCK_H
#define SPV_BLOCK_MERKLEBLOCK_H

#include "hash/sha256.h"

enum {
    SPV_MAX_BLOCK_TRANSACTIONS = 4000000 / 240, /* Core merkleblock.cpp: MAX_BLOCK_WEIGHT / MIN_TRANSACTION_WEIGHT */
    SPV_MAX_FLAG_BYTES = (33341 + 7) / 8        /* protocol.MAX_FLAG_BYTES */
};

/* A partial merkle tree as it was sent. Nothing is checked except that its parts are complete. */
typedef struct {
    uint32_t total; /* transactions in the block */
    const spv_hash *hashes;
    size_t count; /* number of hashes */
    spv_bytes flags;
} spv_partial_tree;

/* A leaf that the tree matches: its position in the block, and the number of its txid among the hashes of the tree. */
typedef struct {
    uint32_t position, hash;
} spv_proved_tx;

/* The result of a tree. `matched` has room for all hashes of the tree. */
typedef struct {
    spv_proved_tx *matched;
    size_t count;
    bool ambiguous; /* an inner node parses as a transaction without witness (CVE-2017-12842) */
} spv_proof;

/* pure.parse_merkleblock; the hashes and flags lie in `raw`. */
spv_status spv_parse_merkleblock(const uint8_t *raw, size_t size, spv_partial_tree *tree, spv_error *error);

/* pure.merkleblock.extract_matches. SPV_FLAW: the field of the error is the name of the first flaw, depth first. */
spv_status spv_extract_matches(const spv_partial_tree *tree, const uint8_t root[32], spv_proof *proof, spv_error *error);

#endif
