/* Binary fuse filters: the twin of pure/fuse.py, which describes the table and its build. */
#ifndef SPV_BLOOM_FUSE_H
#define SPV_BLOOM_FUSE_H

#include "bloom/cells.h"

/* pure.fuse._Shape. */
typedef struct {
    uint32_t seed, length, segments;
    unsigned width; /* bytes of a fingerprint: 1, 2 or 4 */
} spv_fuse;

enum { SPV_FUSE_SEGMENT = 1 << 18 }; /* pure.fuse.MAX_SEGMENT */

/* Number of cells; it may exceed 32 bits, which no table may. */
SPV_INLINE uint64_t spv_fuse_cells(const spv_fuse *fuse) {
    return fuse->segments ? ((uint64_t)fuse->segments + 2) * fuse->length : 0;
}

/* The 64-bit hash of a key, in a family with two hashes. */
SPV_INLINE uint64_t spv_fuse_hash(const spv_shape *shape, const uint8_t *data, size_t size) {
    return spv_two_hashes(shape, data, size).h1;
}

/* FuseCore._has. */
bool spv_fuse_has(const spv_fuse *fuse, const uint8_t *table, uint64_t hash);
/* FuseCore.contains_many: sets mask[i] to 1 if key from + i is contained, else to 0. */
void spv_fuse_has_many(
    const spv_fuse *fuse, const spv_shape *shape, const uint8_t *table, const spv_keys *keys, size_t from, size_t count, uint8_t *mask);
/* FuseCore.hash_many: writes 8 bytes for each key. */
void spv_fuse_hash_many(const spv_shape *shape, const spv_keys *keys, size_t from, size_t count, uint8_t *hashes);

/* fuse_merge: writes the distinct hashes among `count` hashes of 8 bytes, and their number. They are in the order in
   which spv_fuse_build with seed 0 finds their cells near each other. `merged` has room for all. */
spv_status spv_fuse_merge(const uint8_t *hashes, size_t count, uint8_t *merged, size_t *distinct);
/* fuse_build: fills the table. SPV_FLAW if the seed fails. */
spv_status spv_fuse_build(const spv_fuse *fuse, const uint8_t *hashes, size_t count, uint8_t *table);

#endif
