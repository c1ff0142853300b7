#include "block/merkle.h"

#include "block/txid.h"

#include <stdlib.h>

enum { AT_ONCE = 4096 }; /* transactions that are walked and then hashed at once */

/* Replaces the hashes of a level by those of the level above it, and returns their number. */
static size_t level_above(spv_hash *hashes, size_t count) {
    uint8_t repeated[64]; /* a level with an odd number of hashes repeats its last hash */
    memcpy(repeated, hashes[count - 1], 32);
    memcpy(repeated + 32, hashes[count - 1], 32);
    spv_sha256d_pairs((const spv_hash *)hashes, count / 2, hashes);
    if (count & 1)
        spv_sha256d(repeated, 64, hashes[count / 2]);
    return (count + 1) / 2;
}

void spv_merkle_root(spv_hash *hashes, size_t count, uint8_t root[32], bool *mutated) {
    *mutated = false;
    while (count > 1) {
        for (size_t i = 0; i + 1 < count; i += 2)
            *mutated |= !memcmp(hashes[i], hashes[i + 1], 32);
        count = level_above(hashes, count);
    }
    memcpy(root, hashes[0], 32);
}

size_t spv_merkle_depth(size_t count) {
    size_t depth = 0;
    while (count > 1) {
        count = (count + 1) / 2;
        depth++;
    }
    return depth;
}

void spv_merkle_branches(spv_hash *leaves, size_t count, const size_t *positions, size_t wanted, spv_hash *branches) {
    const size_t depth = spv_merkle_depth(count);
    for (size_t height = 0; height < depth; height++) {
        for (size_t i = 0; i < wanted; i++) {
            const size_t sibling = (positions[i] >> height) ^ 1;
            memcpy(branches[i * depth + height], leaves[sibling < count ? sibling : count - 1], 32);
        }
        count = level_above(leaves, count);
    }
}

typedef struct {
    const uint8_t *raw;
    size_t size;
    spv_tx coinbase, *txs; /* room for AT_ONCE transactions, or fewer for a smaller block */
    spv_hash *leaves;
    uint32_t count;
    bool witness; /* true if any transaction has a witness */
} block;

/* Walks the block. The txids or wtxids become the leaves. */
static spv_status hash_transactions(block *b, bool stripped, spv_error *error) {
    size_t at;
    spv_status status = spv_block_start(b->raw, b->size, &at, &b->count, error);
    if (status)
        return status;
    for (size_t done = 0; done < b->count;) {
        size_t some = 0;
        for (; some < AT_ONCE && done + some < b->count; some++) {
            status = spv_walk_tx(b->raw, b->size, at, b->txs + some, error);
            if (status)
                return status;
            at = b->txs[some].end;
            b->witness |= b->txs[some].witness != 0;
        }
        if (!done)
            b->coinbase = b->txs[0];
        (stripped ? spv_txids : spv_wtxids)(b->raw, b->txs, some, b->leaves + done);
        done += some;
    }
    return spv_block_end(b->size, at, error);
}

/* pure._check_witness_commitment */
static spv_status check_commitment(block *b, spv_error *error) {
    static const uint8_t prefix[6] = {0x6a, 0x24, 0xaa, 0x21, 0xa9, 0xed}; /* BIP-141 § Commitment structure */
    const char *field = "witness commitment";
    const uint8_t *commitment = NULL;
    const spv_tx *coinbase = &b->coinbase;
    size_t at = coinbase->outputs_at;
    for (uint32_t i = 0; i < coinbase->outputs; i++) {
        spv_item output = spv_next_output(b->raw, &at);
        if (output.script_end - output.script >= 38 && !memcmp(b->raw + output.script, prefix, sizeof prefix))
            commitment = b->raw + output.script + 6; /* the last commitment is the valid one */
    }
    if (!commitment)
        return spv_refuse(error, coinbase->start, field, "the block has witnesses but no commitment");
    const uint8_t *stack = b->raw + coinbase->witness;
    bool nonce = coinbase->witness && coinbase->end - 4 - coinbase->witness == 34 && stack[0] == 1 && stack[1] == 32;
    if (coinbase->inputs != 1 || !nonce)
        return spv_refuse(error, coinbase->start, field, "the coinbase has no 32-byte witness nonce");
    spv_status status = hash_transactions(b, false, error);
    if (status)
        return status;
    uint8_t pair[64], expected[32];
    bool mutated;
    memset(b->leaves[0], 0, 32);
    spv_merkle_root(b->leaves, b->count, pair, &mutated);
    memcpy(pair + 32, stack + 2, 32);
    spv_sha256d(pair, 64, expected);
    if (memcmp(expected, commitment, 32))
        return spv_refuse(error, coinbase->start, field, "does not match the witnesses");
    return SPV_OK;
}

static spv_status check(block *b, spv_error *error) {
    uint8_t root[32];
    bool mutated;
    spv_status status = hash_transactions(b, true, error);
    if (status)
        return status;
    spv_merkle_root(b->leaves, b->count, root, &mutated);
    if (mutated)
        return spv_refuse(error, 36, "merkle root", "duplicated transactions (CVE-2012-2459)");
    if (memcmp(root, b->raw + 36, 32))
        return spv_refuse(error, 36, "merkle root", "does not match the transactions");
    return b->witness ? check_commitment(b, error) : SPV_OK;
}

/* Allocates memory for the transactions of a block and their leaves. The caller frees both. */
static spv_status reserve(block *b, spv_error *error) {
    size_t at;
    const spv_status status = spv_block_start(b->raw, b->size, &at, &b->count, error); /* fails if the bytes cannot hold the transactions */
    if (status)
        return status;
    b->txs = malloc((b->count < AT_ONCE ? b->count : AT_ONCE) * sizeof *b->txs);
    b->leaves = malloc((size_t)b->count * sizeof *b->leaves);
    return b->txs && b->leaves ? SPV_OK : SPV_NOMEM;
}

spv_status spv_block_txids(const uint8_t *raw, size_t size, spv_hash **txids, uint32_t *count, spv_error *error) {
    block b = {.raw = raw, .size = size};
    spv_status status = reserve(&b, error);
    if (!status)
        status = hash_transactions(&b, true, error);
    free(b.txs);
    *txids = b.leaves;
    *count = b.count;
    return status;
}

spv_status spv_check_block(const uint8_t *raw, size_t size, spv_error *error) {
    block b = {.raw = raw, .size = size};
    spv_status status = reserve(&b, error);
    if (!status)
        status = check(&b, error);
    free(b.txs);
    free(b.leaves);
    return status;
}
