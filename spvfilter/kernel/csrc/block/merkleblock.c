#include "block/merkleblock.h"

#include "block/walk.h"

#include <stdlib.h>

enum { LEVELS = 15 + 1, NODE_SIZE = 64 }; /* levels: SPV_MAX_BLOCK_TRANSACTIONS < 2^15; bytes of an inner node's two children */

/* The payload. */

static spv_status bounded_count(
    const uint8_t *raw, size_t size, size_t *at, uint64_t *count, uint64_t most, size_t least, const char *field, spv_error *error
) {
    const size_t start = *at;
    const spv_status status = spv_compact_size(raw, size, at, count, field, error);
    if (status)
        return status;
    if (*count > most)
        return spv_refuse(error, start, field, "must be at most %llu, not %llu", (unsigned long long)most, (unsigned long long)*count);
    if (*count * least > size - *at)
        return spv_refuse_count(size, start, *at, *count, least, field, error);
    return SPV_OK;
}

spv_status spv_parse_merkleblock(const uint8_t *raw, size_t size, spv_partial_tree *tree, spv_error *error) {
    size_t at = SPV_HEADER_SIZE;
    uint64_t count;
    if (size < at)
        return spv_refuse_bytes(size, 0, SPV_HEADER_SIZE, "header", error);
    if (size - at < 4)
        return spv_refuse_bytes(size, at, 4, "transaction count", error);
    tree->total = spv_le32(raw + at);
    at += 4;
    spv_status status = bounded_count(raw, size, &at, &count, SPV_MAX_BLOCK_TRANSACTIONS, sizeof(spv_hash), "hash count", error);
    if (status)
        return status;
    tree->hashes = (const spv_hash *)(raw + at);
    tree->count = (size_t)count;
    at += tree->count * sizeof(spv_hash);
    status = bounded_count(raw, size, &at, &count, SPV_MAX_FLAG_BYTES, 0, "flag bytes length", error);
    if (status)
        return status;
    if (count > size - at)
        return spv_refuse_bytes(size, at, (size_t)count, "flag bytes", error);
    tree->flags = (spv_bytes){raw + at, (size_t)count};
    at += (size_t)count;
    return at == size ? SPV_OK : spv_refuse(error, at, "merkleblock", "%zu trailing byte%s", size - at, size - at == 1 ? "" : "s");
}

/* The tree.

   A walk, depth first, distributes the nodes over their levels. The nodes of a level are in the order of their
   positions, and the parent of each node was visited. Each pair of nodes of a level therefore consists of the
   children of the next inner node of the level above. If the number of nodes is odd, the last node, at the right
   edge, is paired with itself. The levels are then hashed from the lowest to the highest, each level at once. */

typedef struct {
    uint32_t place, position; /* number among the visited nodes of its level, and among all nodes of the level */
} inner_node;

typedef struct {
    spv_hash *hashes;  /* hashes of the visited nodes, with room for one more; inner nodes come last */
    inner_node *inner;
    uint32_t width;    /* number of nodes of the block's tree at this level */
    uint32_t visited, inners;
    uint32_t complete; /* number of the inner nodes whose descendants were all visited; they come first among the inner nodes */
} level;

typedef struct {
    level levels[LEVELS];
    unsigned top;
    size_t bits, hashes; /* flag bits and hashes that were used */
    enum { WHOLE, NO_BITS, NO_HASHES } end; /* how the walk ended */
    struct {
        uint64_t last; /* number of leaves up to the last leaf below the node; UINT64_MAX if there are no twins */
        unsigned height;
        uint32_t position;
    } twins; /* the first node, depth first, with two equal children */
} work;

/* Allocates memory for all nodes that the walk can visit, in one piece. A level has at most `width` nodes, and no
   more nodes than there are bits are visited. */
static void *make_room(work *w, const spv_partial_tree *tree) {
    const size_t bits = 8 * tree->flags.size;
    size_t nodes = 0, room[LEVELS];
    for (unsigned height = 0; height <= w->top; height++) {
        level *at = w->levels + height;
        *at = (level){.width = (tree->total + (1u << height) - 1) >> height};
        room[height] = (at->width < bits ? at->width : bits) + 1;
        nodes += room[height];
    }
    spv_hash *hashes = malloc(nodes * (sizeof(spv_hash) + sizeof(inner_node)));
    inner_node *inner = hashes ? (inner_node *)(void *)(hashes + nodes) : NULL;
    for (unsigned height = 0, at = 0; hashes && height <= w->top; at += (unsigned)room[height++]) {
        w->levels[height].hashes = hashes + at;
        w->levels[height].inner = inner + at;
    }
    return hashes;
}

static void walk(work *w, const spv_partial_tree *tree, spv_proof *proof) {
    const size_t bits = 8 * tree->flags.size;
    uint32_t position = 0;
    for (unsigned height = w->top;; position++) { /* from a node to its right neighbor, which has the same parent */
        for (;; height--, position *= 2) {        /* and down to the first node whose hash was sent */
            level *at = w->levels + height;
            if (w->bits == bits) {
                w->end = NO_BITS;
                return;
            }
            const bool mark = tree->flags.data[w->bits >> 3] >> (w->bits & 7) & 1;
            w->bits++;
            if (mark && height) {
                at->inner[at->inners++] = (inner_node){at->visited++, position};
                continue;
            }
            if (w->hashes == tree->count) {
                w->end = NO_HASHES;
                return;
            }
            if (mark)
                proof->matched[proof->count++] = (spv_proved_tx){position, (uint32_t)w->hashes};
            memcpy(at->hashes[at->visited++], tree->hashes[w->hashes++], sizeof(spv_hash));
            break;
        }
        for (; height < w->top && (position & 1 || position + 1 == w->levels[height].width); position >>= 1)
            w->levels[++height].complete++; /* up from a last child */
        if (height == w->top)
            return;
    }
}

/* pure._can_be_tx */
static bool can_be_tx(const uint8_t node[NODE_SIZE]) {
    spv_tx tx;
    spv_error error;
    return node[4] == 1 && !spv_parse_tx(node, NODE_SIZE, &tx, &error) && !tx.witness;
}

/* Hashes the inner nodes that are complete. */
static void hash_level(work *w, unsigned height, bool *ambiguous) {
    level *at = w->levels + height, *below = at - 1;
    if (!at->complete)
        return;
    const bool odd = below->visited < 2 * at->complete;
    if (odd)
        memcpy(below->hashes[below->visited], below->hashes[below->visited - 1], sizeof(spv_hash));
    for (uint32_t i = 0; i < at->complete; i++) {
        const spv_hash *children = (const spv_hash *)below->hashes + 2 * i;
        const uint64_t last = ((uint64_t)at->inner[i].position + 1) << height;
        *ambiguous |= can_be_tx(children[0]);
        if (!memcmp(children[0], children[1], sizeof(spv_hash)) && !(odd && i == at->complete - 1) && last < w->twins.last) {
            w->twins.last = last; /* if two pairs of twins end at the same leaf, the lower pair comes first */
            w->twins.height = height;
            w->twins.position = at->inner[i].position;
        }
    }
    spv_sha256d_pairs((const spv_hash *)below->hashes, at->complete, below->hashes);
    for (uint32_t i = 0; i < at->complete; i++)
        memcpy(at->hashes[at->inner[i].place], below->hashes[i], sizeof(spv_hash));
}

#define REFUSE(error, flaw, ...) (spv_refuse(error, 0, flaw, __VA_ARGS__), SPV_FLAW)

static spv_status judge(work *w, const spv_partial_tree *tree, const uint8_t root[32], spv_proof *proof, spv_error *error) {
    const size_t bits = 8 * tree->flags.size;
    walk(w, tree, proof);
    for (unsigned height = 1; height <= w->top; height++)
        hash_level(w, height, &proof->ambiguous);
    if (w->twins.last != UINT64_MAX)
        return REFUSE(
            error, "equal siblings", "two equal hashes below the node at height %u, position %u (CVE-2012-2459)", w->twins.height, w->twins.position
        );
    if (w->end == NO_BITS)
        return REFUSE(error, "flag bits exhausted", "the tree needs more than %zu flag bits", bits);
    if (w->end == NO_HASHES)
        return REFUSE(error, "hashes exhausted", "the tree needs more than %zu hashes", tree->count);
    if ((w->bits + 7) / 8 != tree->flags.size)
        return REFUSE(error, "unused flag bits", "the tree uses only %zu of %zu flag bits", w->bits, bits);
    if (w->hashes != tree->count)
        return REFUSE(error, "unused hashes", "the tree uses only %zu of %zu hashes", w->hashes, tree->count);
    if (memcmp(w->levels[w->top].hashes[0], root, sizeof(spv_hash)))
        return REFUSE(error, "wrong merkle root", "the root of the tree is not the header's merkle root");
    return SPV_OK;
}

spv_status spv_extract_matches(const spv_partial_tree *tree, const uint8_t root[32], spv_proof *proof, spv_error *error) {
    const uint32_t total = tree->total;
    const size_t bits = 8 * tree->flags.size;
    proof->count = 0;
    proof->ambiguous = false;
    if (!total)
        return REFUSE(error, "no transactions", "a block must have at least one transaction");
    if (total > SPV_MAX_BLOCK_TRANSACTIONS)
        return REFUSE(
            error, "too many transactions for a block", "a block can have at most %d transactions, not %u", SPV_MAX_BLOCK_TRANSACTIONS, total
        );
    if (tree->count > total)
        return REFUSE(error, "more hashes than transactions", "the number of hashes (%zu) exceeds the number of transactions (%u)", tree->count, total);
    if (bits < tree->count)
        return REFUSE(error, "fewer flag bits than hashes", "the number of flag bits (%zu) is less than the number of hashes (%zu)", bits, tree->count);
    work w = {.twins.last = UINT64_MAX};
    while (1u << w.top < total)
        w.top++;
    void *room = make_room(&w, tree);
    if (!room)
        return SPV_NOMEM;
    const spv_status status = judge(&w, tree, root, proof, error);
    free(room);
    return status;
}
