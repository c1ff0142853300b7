/* Binary fuse filters: random hashes and shapes, in memory of exactly the needed size. */
#include "selftest.h"

#include "bloom/fuse.h"

static bool holds(const uint8_t *hashes, size_t count, const uint8_t *hash) {
    for (size_t i = 0; i < count; i++)
        if (same(hashes + 8 * i, hash, 8))
            return true;
    return false;
}

/* A batch gives the results of single keys. */
static void look_up(const spv_fuse *fuse, const uint8_t *table, const uint8_t *rows, size_t count) {
    static const uint8_t key[16] = {7};
    spv_shape shape;
    uint8_t *mask = zeroed(count, 1), *hashes = zeroed(count, 8);
    const spv_keys keys = {.rows = rows, .width = 8};
    spv_shape_make(&shape, SPV_FAMILY_FAST, 1, 1, false, key);
    spv_fuse_has_many(fuse, &shape, table, &keys, 0, count, mask);
    spv_fuse_hash_many(&shape, &keys, 0, count, hashes);
    for (size_t i = 0; i < count; i++) {
        CHECK(spv_le64(hashes + 8 * i) == spv_fuse_hash(&shape, rows + 8 * i, 8));
        CHECK(mask[i] == spv_fuse_has(fuse, table, spv_le64(hashes + 8 * i)));
    }
    release(mask);
    release(hashes);
}

/* True if the seed worked. */
static bool build(dice *dice, size_t count) {
    uint8_t *hashes = zeroed(count, 8), *merged = zeroed(count, 8);
    const bool few = roll(dice) % 4 == 0; /* of a few different hashes */
    size_t distinct = 0;
    for (size_t i = 0; i < count; i++)
        roll_bytes(dice, hashes + 8 * i, few ? 1 : 8);
    CHECK(!spv_fuse_merge(hashes, count, merged, &distinct) && distinct <= count);
    for (size_t i = 0; i < count && count < 300; i++)
        CHECK(holds(merged, distinct, hashes + 8 * i) && (i >= distinct || !holds(merged, i, merged + 8 * i)));
    spv_fuse fuse = {.seed = (uint32_t)roll(dice), .length = 1u << roll(dice) % 9, .width = 1u << roll(dice) % 3};
    fuse.segments = roll(dice) % 2 ? (uint32_t)(distinct * 3 / 2 / fuse.length) + 3 : (uint32_t)(roll(dice) % 100);
    uint8_t *table = zeroed((size_t)spv_fuse_cells(&fuse), fuse.width);
    const spv_status status = spv_fuse_build(&fuse, merged, distinct, table);
    CHECK(status == SPV_OK || status == SPV_FLAW);
    for (size_t i = 0; !status && i < distinct; i++)
        CHECK(spv_fuse_has(&fuse, table, spv_le64(merged + 8 * i)));
    if (!status)
        look_up(&fuse, table, hashes, count);
    release(hashes);
    release(merged);
    release(table);
    return !status;
}

void test_fuse(void) {
    dice dice = {.state = 40};
    size_t built = 0;
    for (size_t i = 0; i < 1000; i++)
        built += build(&dice, roll(&dice) % (i % 100 ? 300 : 20000));
    CHECK(built > 100 && built < 900);
}
