/* Keys on the curve: children of extended keys, in either order and for any number of them, and both forms of a key. */
#include "block/curve.h"

#include "selftest.h"

enum { MOST = 513 };

static const uint8_t GENERATOR[SPV_SHORT_KEY] = {
    0x02, 0x79, 0xBE, 0x66, 0x7E, 0xF9, 0xDC, 0xBB, 0xAC, 0x55, 0xA0, 0x62, 0x95, 0xCE, 0x87, 0x0B, 0x07,
    0x02, 0x9B, 0xFC, 0xDB, 0x2D, 0xCE, 0x28, 0xD9, 0x59, 0xF2, 0x81, 0x5B, 0x16, 0xF8, 0x17, 0x98,
};

/* The children of a compressed key. The caller releases them. */
static uint8_t *children(const uint8_t *parent, const uint8_t *tweaks, size_t count) {
    uint8_t full[SPV_FULL_KEY], again[SPV_SHORT_KEY], *given = exact_copy(tweaks, count * SPV_TWEAK), *keys = zeroed(count, SPV_SHORT_KEY);
    CHECK(spv_full_key(parent, full));
    CHECK(spv_short_key(full, again) && !memcmp(parent, again, sizeof again));
    CHECK(spv_child_keys(full, given, count, keys) == SPV_OK);
    release(given);
    return keys;
}

static void test_order(const uint8_t *tweaks, size_t count) {
    uint8_t *all = children(GENERATOR, tweaks, count);
    for (size_t i = 0; i < count; i += 257) { /* the sum of two tweaks, added in either order, or both at a time */
        uint8_t *one = children(all + i * SPV_SHORT_KEY, tweaks, count);
        uint8_t *other = children(all, tweaks + i * SPV_TWEAK, 1);
        CHECK(!memcmp(one, other, SPV_SHORT_KEY));
        release(one);
        release(other);
    }
    release(all);
}

void test_curve(void) {
    static const size_t counts[] = {1, 2, MOST - 1, MOST};
    dice source = {7};
    uint8_t tweaks[MOST * SPV_TWEAK], small[3 * SPV_TWEAK] = {0};
    for (size_t i = 0; i < sizeof tweaks; i++)
        tweaks[i] = (uint8_t)(i % SPV_TWEAK ? roll(&source) : roll(&source) % 255);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        test_order(tweaks, counts[i]);
    small[SPV_TWEAK - 1] = 1; /* doubles the generator */
    memset(small + SPV_TWEAK, 0xFF, SPV_TWEAK); /* no private key */
    uint8_t *keys = children(GENERATOR, small, 3);
    static const uint8_t nothing[SPV_SHORT_KEY] = {0};
    CHECK(keys[0] == 2 && keys[1] == 0xC6 && keys[SPV_SHORT_KEY - 1] == 0xE5);
    CHECK(!memcmp(keys + SPV_SHORT_KEY, nothing, sizeof nothing));
    CHECK(!memcmp(keys + 2 * SPV_SHORT_KEY, GENERATOR, sizeof GENERATOR));
    release(keys);
}
