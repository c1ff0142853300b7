/* Generic filters: complete arrays of every size and alignment, compared byte by byte or bit by bit; cells of
   filters of any size. */
#include "selftest.h"

#include "bloom/whole.h"
#include "oracle_cells.h"

enum { MOST = 1100 };

/* Bytes that are mostly 0, mostly 0xFF, or neither. */
static void roll_dense(dice *dice, uint8_t *bytes, size_t size) {
    const unsigned density = (unsigned)roll(dice) % 4;
    roll_bytes(dice, bytes, size);
    for (size_t i = 0; density && i < size; i++)
        if (roll(dice) % 8)
            bytes[i] = density == 1 ? 0 : density == 2 ? 0xFF : (uint8_t)(bytes[i] & 0x3F);
}

static uint64_t plain_count(const uint8_t *bits, uint64_t first, uint64_t end) {
    uint64_t count = 0;
    for (uint64_t at = first; at < end; at++)
        count += bits[at / 8] >> at % 8 & 1u;
    return count;
}

static void counts_and_subsets(dice *dice, uint8_t *mine, uint8_t *theirs, uint8_t *wanted, size_t size) {
    for (size_t i = 0; i < size; i++)
        wanted[i] = mine[i] | theirs[i];
    CHECK(spv_bits_count(mine, size) == plain_count(mine, 0, 8 * size));
    CHECK(spv_bits_count_union(mine, theirs, size) == plain_count(wanted, 0, 8 * size));
    CHECK(spv_bits_subset(mine, wanted, size) && spv_bits_subset(theirs, wanted, size) && spv_bits_subset(mine, mine, size));
    CHECK(spv_bits_subset(wanted, mine, size) == same(wanted, mine, size));
    if (!size)
        return;
    const uint64_t one = roll(dice) % (8 * size), other = roll(dice) % (8 * size), first = one < other ? one : other;
    CHECK(spv_bits_count_between(mine, first, one + other - first) == plain_count(mine, first, one + other - first));
    wanted[one / 8] |= (uint8_t)(1 << one % 8);
    mine[one / 8] &= (uint8_t)~(1 << one % 8);
    CHECK(!spv_bits_subset(wanted, mine, size));
}

static void mixes(uint8_t *mine, const uint8_t *theirs, uint8_t *wanted, size_t size, bool shared) {
    for (size_t i = 0; i < size; i++)
        wanted[i] = mine[i] | theirs[i];
    spv_bits_or(mine, theirs, size, shared);
    CHECK(same(mine, wanted, size));
    for (size_t i = 0; i < size; i++)
        mine[i] ^= (uint8_t)(i * 7), wanted[i] = mine[i] & theirs[i];
    spv_bits_and(mine, theirs, size, shared);
    CHECK(same(mine, wanted, size));
}

static unsigned counter_at(const uint8_t *cells, unsigned width, size_t at) {
    return width == 16 ? spv_le16(cells + 2 * at) : width == 8 ? cells[at] : cells[at / 2] >> 4 * (at & 1) & 15u;
}

static void counters(uint8_t *mine, const uint8_t *theirs, unsigned width, size_t size, bool shared) {
    const size_t count = size * 8 / width, bit_size = (count + 7) / 8;
    const unsigned limit = (1u << width) - 1;
    uint8_t *bits = zeroed(bit_size, 1), *plain = zeroed(bit_size, 1), *before = exact_copy(mine, size);
    uint64_t used = 0;
    for (size_t i = 0; i < count; i++) {
        used += counter_at(mine, width, i) > 0;
        plain[i / 8] |= (uint8_t)((counter_at(mine, width, i) > 0) << i % 8);
    }
    CHECK(spv_counters_used(mine, width, size) == used);
    spv_counters_to_bits(mine, width, size, bits);
    CHECK(same(bits, plain, bit_size));
    spv_counters_sum(mine, theirs, width, size, shared);
    for (size_t i = 0; i < count; i++) {
        const unsigned sum = counter_at(before, width, i) + counter_at(theirs, width, i);
        CHECK(counter_at(mine, width, i) == (sum < limit ? sum : limit));
    }
    release(bits);
    release(plain);
    release(before);
}

static void whole_arrays(dice *dice) {
    for (size_t size = 0; size <= MOST; size++) {
        const size_t misaligned = size % 8, also = (size / 8) % 8;
        uint8_t *mine = zeroed(misaligned + size, 1), *theirs = zeroed(also + size, 1), *wanted = zeroed(size, 1);
        for (int shared = 0; shared < 2; shared++) {
            roll_dense(dice, theirs + also, size);
            for (unsigned width = 4; width <= 16; width *= 2) {
                if (width == 16 && (size | also) & 1) /* the address is odd, or the last counter is half a one */
                    continue;
                roll_dense(dice, mine + misaligned, size);
                counters(mine + misaligned, theirs + also, width, size, shared);
            }
            roll_dense(dice, mine + misaligned, size);
            mixes(mine + misaligned, theirs + also, wanted, size, shared);
            roll_dense(dice, mine + misaligned, size);
            counts_and_subsets(dice, mine + misaligned, theirs + also, wanted, size);
        }
        release(mine);
        release(theirs);
        release(wanted);
    }
}

/* Cells of filters, some of them far larger than memory. */
static void cells(dice *dice) {
    static const uint64_t sizes[] = {
        0, 1, 2, 3, 7, 64, 1000, 12345, UINT64_C(1) << 31, UINT32_MAX, UINT64_C(1) << 32, (UINT64_C(1) << 32) + 1, UINT64_C(1) << 40,
    };
    static const spv_family families[] = {
        SPV_FAMILY_BIP37, SPV_FAMILY_FAST, SPV_FAMILY_SIPHASH, SPV_FAMILY_SPARK_V1, SPV_FAMILY_SPARK_V2, SPV_FAMILY_REDISBLOOM, SPV_FAMILY_SPLIT_BLOCK,
    };
    static const uint32_t functions[] = {0, 1, 2, 7, 33};
    for (size_t i = 0; i < 13 * 7 * 5 * 2; i++) {
        enum { WIDTH = 160, KEYS = 43 }; /* more keys than one hashing step takes, and longer ones */
        const size_t width = i * 7 % WIDTH;
        const uint32_t hash_funcs = families[i / 13 % 7] == SPV_FAMILY_SPLIT_BLOCK ? SPV_BLOCK_FUNCTIONS : functions[i / 91 % 5];
        plain_filter plain = {.family = families[i / 13 % 7], .cell_count = sizes[i % 13], .hash_funcs = hash_funcs, .partitioned = i & 1};
        if (plain.partitioned && hash_funcs)
            plain.cell_count -= plain.cell_count % hash_funcs;
        if (plain.family == SPV_FAMILY_SPLIT_BLOCK) {
            plain.cell_count = (plain.cell_count / SPV_BLOCK_BITS + 1) * SPV_BLOCK_BITS;
            plain.partitioned = false;
        }
        roll_bytes(dice, plain.key, sizeof plain.key);
        uint8_t *rows = zeroed(KEYS, WIDTH);
        roll_bytes(dice, rows, KEYS * WIDTH);
        spv_shape shape;
        spv_shape_make(&shape, plain.family, plain.cell_count, hash_funcs, plain.partitioned, plain.key);
        uint64_t *wanted = zeroed(hash_funcs, sizeof *wanted), *positions = zeroed(KEYS * shape.functions, sizeof *positions);
        spv_bytes apart[KEYS]; /* the rows again, with one truncated row */
        for (size_t key = 0; key < KEYS; key++)
            apart[key] = (spv_bytes){rows + key * width, key == i % KEYS ? width / 2 : width};
        for (int rowwise = 0; rowwise < 2; rowwise++) {
            const spv_keys keys = {.keys = rowwise ? NULL : apart, .rows = rows, .width = width};
            spv_positions(&shape, &keys, 0, KEYS, positions);
            for (size_t key = 0; key < KEYS; key++) {
                const spv_bytes one = spv_key_at(&keys, key);
                const size_t count = plain_positions(&plain, one.data, one.size, wanted);
                CHECK(count == shape.functions && same(positions + key * count, wanted, count * sizeof *wanted));
            }
        }
        release(rows);
        release(wanted);
        release(positions);
    }
}

/* One batch of keys, half of which are in the filter. It is added, with room for some of the new keys, and looked
   up. */
static void batch(dice *dice, plain_filter *plain, const spv_keys *keys, size_t count, int64_t room_left, bool far, bool shared) {
    enum { BEFORE = 2 }; /* keys before those of the batch */
    const size_t size = (size_t)(plain->cell_count + 7) / 8;
    uint8_t *bits = zeroed(size, 1), *mask = zeroed(count, 1), *wanted = zeroed(count, 1);
    uint64_t *at = zeroed(plain->hash_funcs, sizeof *at), positions[SPV_AHEAD_CELLS];
    spv_shape shape;
    spv_gate gate = {0};
    spv_room room;
    atomic_init(&room, room_left);
    atomic_init(&gate.shared, shared);
    spv_shape_make(&shape, plain->family, plain->cell_count, plain->hash_funcs, plain->partitioned, plain->key);
    spv_batch batch = {.shape = &shape, .cells = bits, .width = 1, .gate = &gate, .positions = positions, .far = far, .shared = shared, .room = &room};
    plain->width = 1;
    plain->cells = zeroed((size_t)plain->cell_count, sizeof *plain->cells);
    size_t fresh = 0, done = 0;
    for (size_t i = 0; i < count; i += 2) {
        const spv_bytes key = spv_key_at(keys, BEFORE + i);
        plain_bits_add(plain, at, plain_positions(plain, key.data, key.size, at));
        spv_bits_add(&shape, bits, key.data, key.size, shared);
    }
    for (bool full = false; done < count && !full; done += !full) {
        const spv_bytes key = spv_key_at(keys, BEFORE + done);
        const size_t functions = plain_positions(plain, key.data, key.size, at);
        full = (int64_t)fresh == room_left && functions && !plain_least(plain, at, functions);
        fresh += !full && plain_bits_add(plain, at, functions);
    }
    CHECK(spv_bits_add_many(&batch, keys, BEFORE, count) == fresh && batch.done == done);
    CHECK(atomic_load(&room) == (room_left == SPV_UNLIMITED ? room_left : room_left - (int64_t)fresh));
    check_same_cells(bits, plain);
    for (size_t i = 0; i < count; i++) {
        const spv_bytes key = spv_key_at(keys, BEFORE + i);
        const size_t functions = plain_positions(plain, key.data, key.size, at);
        wanted[i] = !functions || plain_least(plain, at, functions);
    }
    roll_bytes(dice, mask, count);
    spv_bits_has_many(&batch, keys, BEFORE, count, mask);
    CHECK(same(mask, wanted, count));
    release(plain->cells);
    release(bits);
    release(mask);
    release(wanted);
    release(at);
}

/* Batches of every size up to three windows, into filters that are nearly empty, half full or full. */
static void batches(dice *dice) {
    enum { MOST_KEYS = 3 * SPV_AHEAD + 3, LONGEST = 40 };
    static const spv_family families[] = {SPV_FAMILY_BIP37, SPV_FAMILY_FAST, SPV_FAMILY_FAST, SPV_FAMILY_SIPHASH, SPV_FAMILY_SPLIT_BLOCK};
    static const uint32_t functions[] = {0, 1, 2, 3, 4, 7, SPV_PLANES, SPV_PLANES + 1};
    for (size_t i = 0; i < 16 * MOST_KEYS; i++) {
        const size_t count = i % (MOST_KEYS - 2), width = roll(dice) % LONGEST;
        plain_filter plain = {.family = families[roll(dice) % 5], .cell_count = roll(dice) % 4096, .hash_funcs = functions[roll(dice) % 8], .partitioned = roll(dice) & 1};
        if (plain.family == SPV_FAMILY_SPLIT_BLOCK) {
            plain.cell_count = SPV_BLOCK_BITS * (1 + roll(dice) % 8);
            plain.hash_funcs = SPV_BLOCK_FUNCTIONS;
            plain.partitioned = false;
        }
        if (plain.partitioned && plain.hash_funcs)
            plain.cell_count -= plain.cell_count % plain.hash_funcs;
        roll_bytes(dice, plain.key, sizeof plain.key);
        uint8_t *rows = zeroed(MOST_KEYS, LONGEST);
        roll_bytes(dice, rows, MOST_KEYS * LONGEST);
        spv_bytes apart[MOST_KEYS];
        const size_t odd = roll(dice) % (2 * MOST_KEYS); /* the shorter key, if there is one */
        for (size_t key = 0; key < MOST_KEYS; key++)
            apart[key] = (spv_bytes){rows + key * width, key == odd ? width / 2 : width};
        const spv_keys keys = {.keys = roll(dice) & 1 ? apart : NULL, .rows = rows, .width = width};
        const int64_t room = roll(dice) % 3 ? (int64_t)(roll(dice) % MOST_KEYS) : SPV_UNLIMITED;
        batch(dice, &plain, &keys, count, room, roll(dice) & 1, roll(dice) & 1);
        release(rows);
    }
}

void test_bloom(void) {
    dice dice = {512};
    whole_arrays(&dice);
    cells(&dice);
    batches(&dice);
}
