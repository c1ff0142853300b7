/* The self-test of the kernel's C half, without Python. `selftest FILE…` takes real blocks: *.raw has one, and *.blk
   many as Bitcoin Core stores them. scripts/dev/selftest builds it in several ways, each of which finds another kind
   of mistake. */
#include "selftest.h"

#include "block/headers.h"
#include "block/merkle.h"
#include "block/txid.h"
#include "hash/cpu.h"
#include "hash/sha256/way.h"
#include "oracle_merkle.h"

enum { MAX_BLOCKS = 4096 };

uint64_t roll(dice *dice) {
    dice->state ^= dice->state >> 12;
    dice->state ^= dice->state << 25;
    dice->state ^= dice->state >> 27;
    return dice->state * UINT64_C(0x2545F4914F6CDD1D);
}

void roll_bytes(dice *dice, uint8_t *bytes, size_t size) {
    for (size_t i = 0; i < size; i++)
        bytes[i] = (uint8_t)(roll(dice) >> 56);
}

static real_block take(const uint8_t *raw, size_t size) {
    spv_error error;
    real_block block = {.raw = exact_copy(raw, size), .size = size};
    block.txs = walk_whole_block(block.raw, size, &block.transactions, &error);
    CHECK(block.txs);
    return block;
}

static size_t load(const char *path, real_block *blocks) {
    size_t size, count = 0, length = strlen(path);
    uint8_t *bytes = read_file(path, &size);
    if (length > 4 && !strcmp(path + length - 4, ".blk")) {
        for (size_t at = 0; at < size; count++) { /* magic, length, block */
            CHECK(size - at >= 8 && spv_le32(bytes + at + 4) <= size - at - 8 && count < MAX_BLOCKS);
            blocks[count] = take(bytes + at + 8, spv_le32(bytes + at + 4));
            at += 8 + blocks[count].size;
        }
    } else {
        blocks[count++] = take(bytes, size);
    }
    release(bytes);
    return count;
}

/* A proof of every third transaction, and the false proofs that differ from it. */
static void test_proof(const real_block *block, const spv_hash *ids) {
    const uint32_t count = block->transactions;
    spv_hash *hashes = zeroed(count, sizeof *hashes), root;
    bool *marked = zeroed(count, sizeof *marked);
    uint8_t *flags = zeroed(count + 2, 1);
    spv_partial_tree tree;
    spv_error error;
    for (uint32_t i = 0; i < count; i++)
        marked[i] = i % 3 == 0;
    plain_build(ids, marked, count, hashes, flags, &tree, root);
    CHECK(!memcmp(root, block->raw + 36, 32));
    spv_proof proof = {.matched = zeroed(tree.count, sizeof *proof.matched)};
    CHECK(!spv_extract_matches(&tree, root, &proof, &error) && !proof.ambiguous && proof.count == (count + 2) / 3);
    for (uint32_t i = 0; i < proof.count; i++)
        CHECK(proof.matched[i].position == 3 * i && !memcmp(tree.hashes[proof.matched[i].hash], ids[3 * i], 32));
    hashes[tree.count - 1][7] ^= 1;
    CHECK(spv_extract_matches(&tree, root, &proof, &error) == SPV_FLAW && !strcmp(error.field, "wrong merkle root"));
    release(proof.matched);
    release(hashes);
    release(marked);
    release(flags);
}

/* Branches of some transactions connect them with the root in the header. */
static void test_branches(const real_block *block, const spv_hash *ids) {
    const size_t count = block->transactions, depth = spv_merkle_depth(count), wanted = (count + 6) / 7;
    spv_hash *leaves = zeroed(count, sizeof *leaves), *branches = zeroed(wanted * depth + 1, sizeof *branches);
    size_t *positions = zeroed(wanted, sizeof *positions);
    memcpy(leaves, ids, count * sizeof *leaves);
    for (size_t i = 0; i < wanted; i++)
        positions[i] = count - 1 - 7 * i;
    spv_merkle_branches(leaves, count, positions, wanted, branches);
    for (size_t i = 0; i < wanted; i++) {
        uint8_t pair[64];
        spv_hash node;
        memcpy(node, ids[positions[i]], sizeof node);
        for (size_t height = 0; height < depth; height++) {
            const size_t is_right = positions[i] >> height & 1;
            memcpy(pair + 32 * is_right, node, 32);
            memcpy(pair + 32 * (1 - is_right), branches[i * depth + height], 32);
            oracle_sha256d(pair, sizeof pair, node);
        }
        CHECK(!memcmp(node, block->raw + 36, 32));
    }
    release(positions);
    release(branches);
    release(leaves);
}

void test_real_blocks(const real_block *blocks, size_t count) {
    spv_error error;
    for (size_t i = 0; i < count; i++) {
        const real_block *block = blocks + i;
        spv_hash *ids = zeroed(block->transactions, sizeof *ids), root, wanted;
        bool mutated, plainly_mutated;
        spv_txids(block->raw, block->txs, block->transactions, ids);
        for (uint32_t n = 0; n < block->transactions; n++) {
            spv_hash id;
            oracle_txid(block->raw, block->txs + n, id);
            CHECK(!memcmp(id, ids[n], 32));
        }
        test_proof(block, (const spv_hash *)ids);
        test_branches(block, (const spv_hash *)ids);
        oracle_merkle_root(ids, block->transactions, wanted, &plainly_mutated);
        spv_merkle_root(ids, block->transactions, root, &mutated);
        CHECK(!memcmp(root, block->raw + 36, 32) && !memcmp(root, wanted, 32) && !mutated && !plainly_mutated);
        CHECK(!spv_check_block(block->raw, block->size, &error));
        oracle_sha256d(block->raw, SPV_HEADER_SIZE, wanted);
        CHECK(!spv_header_hashes(block->raw, SPV_HEADER_SIZE, &root, &error) && !memcmp(root, wanted, 32));
        check_refusal(spv_header_hashes(block->raw, SPV_HEADER_SIZE + 1, &root, &error), &error, SPV_HEADER_SIZE + 1);
        release(ids);
    }
}

/* Truncated and changed blocks are refused with an offset and a message, or parse differently. No read is beyond the
   end. */
void test_damaged_blocks(const real_block *blocks, size_t count) {
    dice dice = {20090103};
    for (size_t i = 0; i < count; i++) {
        const real_block *block = blocks + i;
        size_t times = 1 + 100000 / block->size;
        for (size_t time = 0; time < times; time++) {
            uint32_t transactions;
            spv_error error;
            size_t size = (size_t)(roll(&dice) % block->size);
            uint8_t *damaged = exact_copy(block->raw, size);
            CHECK(!walk_whole_block(damaged, size, &transactions, &error));
            CHECK(spv_check_block(damaged, size, &error) == SPV_FORMAT);
            release(damaged);
            damaged = exact_copy(block->raw, block->size);
            for (size_t flips = 1 + roll(&dice) % 8; flips; flips--)
                damaged[SPV_HEADER_SIZE + roll(&dice) % (block->size - SPV_HEADER_SIZE)] = (uint8_t)roll(&dice);
            spv_tx *txs = walk_whole_block(damaged, block->size, &transactions, &error);
            CHECK(txs || spv_check_block(damaged, block->size, &error) == SPV_FORMAT);
            release(txs);
            release(damaged);
        }
    }
}

int main(int argc, char **argv) {
    static real_block blocks[MAX_BLOCKS];
    size_t count = 0, transactions = 0;
    test_hashes();
    test_headers();
    test_processors();
    test_columns();
    test_walk();
    test_curve();
    test_silent();
    test_tables();
    test_threads();
    for (int i = 1; i < argc; i++)
        count += load(argv[i], blocks + count);
    for (size_t i = 0; i < count; i++)
        transactions += blocks[i].transactions;
    test_real_blocks(blocks, count);
    test_damaged_blocks(blocks, count);
    test_bip37_scans(blocks, count);
    test_watch_scans(blocks, count);
    test_memory(blocks, count);
    for (size_t i = 0; i < count; i++) {
        release(blocks[i].raw);
        release(blocks[i].txs);
    }
    printf("self-test: %zu blocks, %zu transactions; SHA-256 ways:", count, transactions);
    for (size_t i = 0; spv_sha256_usable(i); i++)
        printf(" %s", spv_sha256_usable(i)->name);
    printf("; processor features %u\n", spv_cpu());
    return 0;
}
