#include "oracle_merkle.h"

typedef struct {
    const spv_partial_tree *tree;
    hash_function *sha256d;
    size_t bits, hashes; /* used */
    plain_proof *proof;
} traversal;

static uint32_t width(uint32_t leaves, unsigned height) {
    return (leaves + (1u << height) - 1) >> height;
}

/* A transaction of 64 bytes without witness. It has one input, and either one output and four bytes for both
   scripts, or no output and 13 bytes for its script. No block contains the second form, but it parses. */
static bool is_tx_of_64_bytes(const uint8_t *node) {
    const uint8_t script_sig = node[41];
    if (node[4] != 1 || script_sig > 13)
        return false;
    const uint8_t *outputs = node + 42 + script_sig + 4;
    if (script_sig > 4)
        return script_sig == 13 && outputs[0] == 0;
    return outputs[0] == 1 && outputs[9] == 4 - script_sig;
}

static void visit(traversal *t, unsigned height, uint32_t position, uint8_t node[32]) {
    const spv_partial_tree *tree = t->tree;
    plain_proof *proof = t->proof;
    if (proof->flaw)
        return;
    if (t->bits == 8 * tree->flags.size) {
        proof->flaw = "flag bits exhausted";
        return;
    }
    const bool mark = tree->flags.data[t->bits / 8] >> t->bits % 8 & 1;
    t->bits++;
    if (!mark || !height) {
        if (t->hashes == tree->count) {
            proof->flaw = "hashes exhausted";
            return;
        }
        if (mark)
            proof->matched[proof->count++] = (spv_proved_tx){position, (uint32_t)t->hashes};
        memcpy(node, tree->hashes[t->hashes++], 32);
        return;
    }
    uint8_t children[64];
    visit(t, height - 1, 2 * position, children);
    if (2 * position + 1 < width(tree->total, height - 1)) {
        visit(t, height - 1, 2 * position + 1, children + 32);
        if (!proof->flaw && same(children, children + 32, 32)) {
            proof->flaw = "equal siblings";
            proof->height = height;
            proof->position = position;
        }
    } else {
        memcpy(children + 32, children, 32);
    }
    if (proof->flaw)
        return;
    proof->ambiguous |= is_tx_of_64_bytes(children);
    t->sha256d(children, 64, node);
}

void plain_extract(const spv_partial_tree *tree, const uint8_t root[32], hash_function *sha256d, plain_proof *proof) {
    traversal t = {.tree = tree, .sha256d = sha256d, .proof = proof};
    uint8_t top[32];
    unsigned height = 0;
    proof->flaw = NULL;
    proof->ambiguous = false;
    proof->count = 0;
    if (!tree->total)
        proof->flaw = "no transactions";
    else if (tree->total > SPV_MAX_BLOCK_TRANSACTIONS)
        proof->flaw = "too many transactions for a block";
    else if (tree->count > tree->total)
        proof->flaw = "more hashes than transactions";
    else if (8 * tree->flags.size < tree->count)
        proof->flaw = "fewer flag bits than hashes";
    if (proof->flaw)
        return;
    while (width(tree->total, height) > 1)
        height++;
    visit(&t, height, 0, top);
    if (proof->flaw)
        return;
    if ((t.bits + 7) / 8 != tree->flags.size)
        proof->flaw = "unused flag bits";
    else if (t.hashes != tree->count)
        proof->flaw = "unused hashes";
    else if (!same(top, root, 32))
        proof->flaw = "wrong merkle root";
}

typedef struct {
    const spv_hash *leaves;
    const bool *marked;
    uint32_t count;
    spv_hash *hashes;
    uint8_t *flags;
    size_t bits, used;
} building;

static void calculate(const building *b, unsigned height, uint32_t position, uint8_t node[32]) {
    uint8_t children[64];
    if (!height) {
        memcpy(node, b->leaves[position], 32);
        return;
    }
    calculate(b, height - 1, 2 * position, children);
    if (2 * position + 1 < width(b->count, height - 1))
        calculate(b, height - 1, 2 * position + 1, children + 32);
    else
        memcpy(children + 32, children, 32);
    spv_sha256d(children, 64, node);
}

static void build(building *b, unsigned height, uint32_t position) {
    bool mark = false;
    for (uint32_t i = position << height; i < b->count && i < (position + 1) << height; i++)
        mark |= b->marked[i];
    b->flags[b->bits / 8] |= (uint8_t)(mark << b->bits % 8);
    b->bits++;
    if (!mark || !height) {
        calculate(b, height, position, b->hashes[b->used++]);
        return;
    }
    build(b, height - 1, 2 * position);
    if (2 * position + 1 < width(b->count, height - 1))
        build(b, height - 1, 2 * position + 1);
}

void plain_build(const spv_hash *leaves, const bool *marked, uint32_t count, spv_hash *hashes, uint8_t *flags, spv_partial_tree *tree, uint8_t root[32]) {
    building b = {leaves, marked, count, hashes, flags, 0, 0};
    unsigned height = 0;
    while (width(count, height) > 1)
        height++;
    build(&b, height, 0);
    calculate(&b, height, 0, root);
    *tree = (spv_partial_tree){count, (const spv_hash *)hashes, b.used, {flags, (b.bits + 7) / 8}};
}
