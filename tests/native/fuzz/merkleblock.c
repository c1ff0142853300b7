/* Fuzz target: merkleblocks of a peer against a recursive walk, or a proof made from a block. The input:

   u8   Flags: see the enumeration.
   The rest is a payload without its header, or one bit for each leaf of the block. A set bit means that the leaf is
   proved.
   Bits 5-7 of the first byte are the number of unused bits in the last byte. */
#include "oracle_merkle.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum {
    MADE = 1,       /* a proof made from a block; otherwise a payload */
    RIGHT_ROOT = 2, /* the root fits the tree, if it can be computed */
    FEW_HASHES = 4, /* few different hashes are sent, so that siblings are equal */
    MOST_HASHES = 600,
    MOST_LEAVES = 70
};

/* The kernel's judgement of a tree, which the walk must share. Their matches are in `matched` and in `plain`. */
static spv_status judge(const spv_partial_tree *tree, const uint8_t root[32], spv_proof *proof) {
    plain_proof plain = {.matched = zeroed(tree->count, sizeof *plain.matched)};
    spv_error error;
    plain_extract(tree, root, spv_sha256d, &plain); /* the self-test compares it with published digests */
    const spv_status status = spv_extract_matches(tree, root, proof, &error);
    if (plain.flaw) {
        char where[64];
        CHECK(status == SPV_FLAW && !strcmp(error.field, plain.flaw));
        CHECK(*error.message && memchr(error.message, 0, sizeof error.message));
        snprintf(where, sizeof where, "height %u, position %u ", plain.height, plain.position);
        CHECK(strcmp(plain.flaw, "equal siblings") || strstr(error.message, where));
    } else {
        CHECK(!status && proof->count == plain.count && proof->ambiguous == plain.ambiguous);
        CHECK(same(proof->matched, plain.matched, plain.count * sizeof *plain.matched));
    }
    release(plain.matched);
    return status;
}

/* The root of the tree, if it has one. */
static void find_root(const spv_partial_tree *tree, uint8_t root[32]) {
    spv_hash *level = zeroed(tree->count + 1, sizeof *level);
    bool mutated;
    if (tree->count == tree->total && tree->count) { /* all leaves are sent: the root of a block */
        memcpy(level, tree->hashes, tree->count * sizeof *level);
        oracle_merkle_root(level, tree->count, root, &mutated);
    } else if (tree->count) { /* the hash of the whole, or of two halves */
        memcpy(level, tree->hashes, (tree->count < 2 ? 1 : 2) * sizeof *level);
        if (tree->count == 1)
            memcpy(root, level, 32);
        else
            oracle_sha256d(level[0], 64, root);
    }
    release(level);
}

static void check_payload(const uint8_t *data, size_t size, uint8_t kind) {
    uint8_t *raw = zeroed(size + SPV_HEADER_SIZE, 1);
    if (size)
        memcpy(raw + SPV_HEADER_SIZE, data, size);
    spv_partial_tree tree;
    spv_error error;
    spv_status status = spv_parse_merkleblock(raw, size + SPV_HEADER_SIZE, &tree, &error);
    if (status) {
        check_refusal(status, &error, size + SPV_HEADER_SIZE);
    } else if (tree.count <= MOST_HASHES) {
        CHECK(tree.hashes == (const spv_hash *)(raw + 84 + (tree.count < 0xFD ? 1 : 3)));
        CHECK(tree.flags.data + tree.flags.size == raw + size + SPV_HEADER_SIZE);
        spv_hash *hashes = zeroed(tree.count, sizeof *hashes);
        uint8_t *flags = exact_copy(tree.flags.data, tree.flags.size), root[32] = {0};
        for (size_t i = 0; i < tree.count; i++)
            if (kind & FEW_HASHES)
                hashes[i][0] = tree.hashes[i][0] & 3;
            else
                memcpy(hashes[i], tree.hashes[i], 32);
        tree.hashes = (const spv_hash *)hashes;
        tree.flags.data = flags;
        if (kind & RIGHT_ROOT)
            find_root(&tree, root);
        spv_proof proof = {.matched = zeroed(tree.count, sizeof *proof.matched)};
        judge(&tree, root, &proof);
        release(proof.matched);
        release(hashes);
        release(flags);
    }
    release(raw);
}

/* A proof of some leaves of a block, made as in Core, proves exactly these. */
static void check_made(uint32_t count, const uint8_t *marks) {
    spv_hash *leaves = zeroed(count, sizeof *leaves), *hashes = zeroed(count, sizeof *hashes), root;
    bool *marked = zeroed(count, sizeof *marked);
    uint8_t *flags = zeroed(2 * count, 1); /* fewer than 2 * count + 15 nodes are visited */
    for (uint32_t i = 0; i < count; i++) {
        marked[i] = marks[i / 8] >> i % 8 & 1;
        spv_put_le32(leaves[i], i + 1);
    }
    spv_partial_tree tree;
    plain_build((const spv_hash *)leaves, marked, count, hashes, flags, &tree, root);
    spv_proof proof = {.matched = zeroed(tree.count, sizeof *proof.matched)};
    CHECK(!judge(&tree, root, &proof) && !proof.ambiguous);
    size_t found = 0;
    for (uint32_t i = 0; i < count; i++)
        if (marked[i]) {
            CHECK(found < proof.count && proof.matched[found].position == i);
            CHECK(same(tree.hashes[proof.matched[found++].hash], leaves[i], 32));
        }
    CHECK(found == proof.count);
    root[0] ^= 1;
    CHECK(judge(&tree, root, &proof) == SPV_FLAW);
    release(proof.matched);
    release(leaves);
    release(hashes);
    release(marked);
    release(flags);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!size)
        return 0;
    if (!(data[0] & MADE))
        check_payload(data + 1, size - 1, data[0]);
    else if (size > 1)
        check_made((uint32_t)(8 * (size - 1) < MOST_LEAVES ? 8 * (size - 1) - (data[0] >> 5) : MOST_LEAVES), data + 1);
    return 0;
}
