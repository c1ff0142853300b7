/* A comparison for scripts/bench: proofs of merkleblocks as in Core. The payload is read into arrays with separate
   bits, like Core's std::vector<bool>. The tree is walked and hashed as in Core's ExtractMatches. The hash is the
   kernel's fastest SHA-256 of one message. */
#include "block/merkleblock.h"

#include <stdlib.h>

/* True if the payload's proof is valid. The check runs `times` times. */
bool peer_prove(const uint8_t *payload, size_t size, size_t times);

typedef struct {
    uint32_t total;
    spv_hash *hashes;
    bool *bits;
    size_t count, bit_count, bits_used, hashes_used;
    bool bad;
    uint8_t (*matched)[32];
    uint32_t *positions;
    size_t matches, room;
} partial_tree;

static uint32_t width(const partial_tree *tree, unsigned height) {
    return (tree->total + (1u << height) - 1) >> height;
}

static void match(partial_tree *tree, uint32_t position, const uint8_t txid[32]) {
    if (tree->matches == tree->room) {
        tree->room = tree->room ? 2 * tree->room : 1;
        tree->matched = realloc(tree->matched, tree->room * sizeof *tree->matched);
        tree->positions = realloc(tree->positions, tree->room * sizeof *tree->positions);
        if (!tree->matched || !tree->positions)
            abort();
    }
    memcpy(tree->matched[tree->matches], txid, 32);
    tree->positions[tree->matches++] = position;
}

static void extract(partial_tree *tree, unsigned height, uint32_t position, uint8_t node[32]) {
    memset(node, 0, 32);
    if (tree->bits_used >= tree->bit_count) {
        tree->bad = true;
        return;
    }
    const bool mark = tree->bits[tree->bits_used++];
    if (!height || !mark) {
        if (tree->hashes_used >= tree->count) {
            tree->bad = true;
            return;
        }
        memcpy(node, tree->hashes[tree->hashes_used++], 32);
        if (!height && mark)
            match(tree, position, node);
        return;
    }
    uint8_t children[64];
    extract(tree, height - 1, 2 * position, children);
    if (2 * position + 1 < width(tree, height - 1)) {
        extract(tree, height - 1, 2 * position + 1, children + 32);
        tree->bad |= !memcmp(children, children + 32, 32);
    } else {
        memcpy(children + 32, children, 32);
    }
    spv_sha256d(children, 64, node);
}

static bool prove(const uint8_t *payload, size_t size) {
    spv_partial_tree sent;
    spv_error error;
    if (spv_parse_merkleblock(payload, size, &sent, &error))
        return false;
    partial_tree tree = {.total = sent.total, .count = sent.count, .bit_count = 8 * sent.flags.size};
    tree.hashes = malloc(tree.count * sizeof *tree.hashes + 1);
    tree.bits = malloc(tree.bit_count + 1);
    if (!tree.hashes || !tree.bits)
        abort();
    memcpy(tree.hashes, sent.hashes, tree.count * sizeof *tree.hashes);
    for (size_t i = 0; i < tree.bit_count; i++)
        tree.bits[i] = sent.flags.data[i / 8] >> i % 8 & 1;
    unsigned height = 0;
    while (width(&tree, height) > 1)
        height++;
    uint8_t root[32];
    extract(&tree, height, 0, root);
    const bool holds = !tree.bad && (tree.bits_used + 7) / 8 == (tree.bit_count + 7) / 8 && tree.hashes_used == tree.count
        && !memcmp(root, payload + 36, 32);
    free(tree.hashes);
    free(tree.bits);
    free(tree.matched);
    free(tree.positions);
    return holds;
}

bool peer_prove(const uint8_t *payload, size_t size, size_t times) {
    bool holds = true;
    while (times--)
        holds &= prove(payload, size);
    return holds;
}
