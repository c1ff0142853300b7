/* Fuzz target: bits and counters against a number for every cell. The input is a filter, then operations on it:

   u8   Kind. Bit 0: counters. Bit 1: partitioned. Bit 2: atomic writes. Bit 3: prefetch. Bits 4-5: family. Bits 6-7:
   misalignment.
   u8   Hash functions, modulo 41.
   u16  Cells, modulo 5000.
   16   Key of the family. In its last byte, bit 0 is bit 2 of the family, and bits 1-2 are the size of counters.
   Then operations. Each has u8 operation, u8 size, u8 count and its data: a key of `size` bytes, or a batch of
   `count` rows. */
#include "oracle_cells.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { HEAD = 20, MAX_KEYS = 512, MAX_CELLS = 5000, MAX_FUNCTIONS = 40 };

typedef struct {
    plain_filter plain;
    spv_shape shape;
    spv_gate gate;
    spv_room room;
    spv_batch batch;
    uint8_t *memory, *cells; /* the cells are in this memory, misaligned, and end with it */
    size_t size;             /* bytes of cells */
    uint64_t *scratch;       /* plain positions */
    spv_bytes keys[MAX_KEYS];  /* every key that was added or looked up */
    size_t key_count;
    size_t left;             /* cells that may still be computed: in proportion to the input */
    bool counters, shared;
    unsigned width;          /* bits of a cell */
} filters;

static void add(filters *f, const uint8_t *key, size_t size) {
    size_t count = plain_positions(&f->plain, key, size, f->scratch);
    if (f->counters)
        CHECK(spv_counters_add(f->cells, f->width, f->scratch, count, f->shared) == plain_counters_add(&f->plain, f->scratch, count));
    else
        CHECK(spv_bits_add(&f->shape, f->cells, key, size, f->shared) == plain_bits_add(&f->plain, f->scratch, count));
}

static void ask(filters *f, const uint8_t *key, size_t size) {
    spv_keys one = {.rows = key, .width = size};
    size_t count = plain_positions(&f->plain, key, size, f->scratch);
    CHECK(count == f->shape.functions);
    uint64_t *positions = zeroed(count, sizeof *positions);
    spv_positions(&f->shape, &one, 0, 1, positions);
    CHECK(same(positions, f->scratch, count * sizeof *positions));
    unsigned least = plain_least(&f->plain, positions, count);
    if (f->counters) {
        CHECK(spv_counters_least(f->cells, f->width, positions, count) == least);
    } else {
        CHECK(spv_bits_has(&f->shape, f->cells, key, size) == (least > 0));
        CHECK(spv_bits_all(f->cells, positions, count) == (least > 0));
    }
    release(positions);
}

static void take_away(filters *f, const uint8_t *key, size_t size) {
    size_t count = plain_positions(&f->plain, key, size, f->scratch);
    bool gone;
    if (f->counters)
        CHECK(spv_counters_remove(f->cells, f->width, f->scratch, count, f->shared, &gone) == plain_counters_remove(&f->plain, f->scratch, count));
    else
        CHECK(spv_bits_set(f->cells, f->scratch, count, f->shared) == plain_bits_add(&f->plain, f->scratch, count));
}

static void add_batch(filters *f, const spv_keys *keys, size_t from, size_t count) {
    size_t fresh = 0;
    for (size_t i = from; i < from + count; i++) {
        spv_bytes key = spv_key_at(keys, i);
        size_t functions = plain_positions(&f->plain, key.data, key.size, f->scratch);
        fresh += (f->counters ? plain_counters_add : plain_bits_add)(&f->plain, f->scratch, functions);
    }
    CHECK((f->counters ? spv_counters_add_many : spv_bits_add_many)(&f->batch, keys, from, count) == fresh);
}

static void ask_batch(filters *f, const spv_keys *keys, size_t from, size_t count) {
    uint8_t *mask = zeroed(count, 1);
    (f->counters ? spv_counters_has_many : spv_bits_has_many)(&f->batch, keys, from, count, mask);
    for (size_t i = 0; i < count; i++) {
        spv_bytes key = spv_key_at(keys, from + i);
        size_t functions = plain_positions(&f->plain, key.data, key.size, f->scratch);
        CHECK(mask[i] == (plain_least(&f->plain, f->scratch, functions) > 0));
    }
    release(mask);
}

/* The number of keys, at most `count`, whose cells may still be computed. This uses them up. */
static size_t afford(filters *f, size_t count) {
    const size_t functions = f->plain.hash_funcs + 1, most = f->left / functions;
    count = count < most ? count : most;
    f->left -= count * functions;
    return count;
}

/* Runs one operation. Returns the number of input bytes that it used, or 0 at the end. */
static size_t operate(filters *f, const uint8_t *data, size_t size) {
    if (size < 3)
        return 0;
    const uint8_t *key = data + 3;
    size_t width = data[1], count = data[2], room = size - 3;
    spv_keys rows = {.rows = key, .width = width}, list = {.keys = f->keys};
    if (data[0] % 5 < 3) {
        if (!afford(f, 1))
            return 0;
        width = width < room ? width : room;
        if (f->key_count < MAX_KEYS)
            f->keys[f->key_count++] = (spv_bytes){key, width};
        (data[0] % 5 == 0 ? add : data[0] % 5 == 1 ? ask : take_away)(f, key, width);
        return 3 + width;
    }
    count = width ? (count < room / width ? count : room / width) : count;
    const size_t from = count / 3;
    count = afford(f, count - from);
    (data[0] % 5 == 3 ? add_batch : ask_batch)(f, &rows, from, count);
    size_t again = afford(f, f->key_count < 20 ? f->key_count : 20);
    (data[0] % 5 == 3 ? add_batch : ask_batch)(f, &list, f->key_count - again, again);
    return 3 + (from + count) * width;
}

/* The complete arrays, also mixed with an earlier state of themselves and with other cells. */
static void check_whole(filters *f, const uint8_t *older, const uint8_t *data, size_t size) {
    const uint64_t cells = f->plain.cell_count, used = plain_used(&f->plain, 0, cells);
    uint8_t *other = exact_copy(older, f->size), *mine = exact_copy(f->cells, f->size), *mixed = exact_copy(f->cells, f->size);
    for (size_t i = 0; i < f->size && i < size; i += 3)
        other[i] ^= data[i];
    if (f->counters) {
        const size_t bit_size = (size_t)(cells + 7) / 8;
        uint8_t *bits = zeroed(bit_size, 1);
        CHECK(spv_counters_used(f->cells, f->width, f->size) == used);
        spv_counters_to_bits(f->cells, f->width, f->size, bits);
        check_counted_bits(bits, &f->plain);
        CHECK(spv_bits_count(bits, bit_size) == used);
        spv_counters_sum(mixed, other, f->width, f->size, f->shared);
        check_sum(mixed, mine, other, f->width, f->size);
        release(bits);
    } else {
        uint64_t first = size ? data[0] * cells / 255 : 0, end = size > 1 ? data[1] * cells / 255 : cells;
        bool subset;
        const uint64_t either = plain_either(mine, other, f->size, &subset);
        CHECK(spv_bits_count(f->cells, f->size) == used);
        if (first <= end)
            CHECK(spv_bits_count_between(f->cells, first, end) == plain_used(&f->plain, first, end));
        CHECK(spv_bits_count_union(mine, other, f->size) == either);
        CHECK(spv_bits_subset(mine, other, f->size) == subset && spv_bits_subset(older, mine, f->size));
        spv_bits_or(mixed, other, f->size, f->shared);
        check_or(mixed, mine, other, f->size);
        CHECK(spv_bits_subset(mine, mixed, f->size) && spv_bits_count(mixed, f->size) == either);
        spv_bits_and(mixed, mine, f->size, f->shared);
        CHECK(same(mixed, mine, f->size));
        spv_bits_and(mixed, other, f->size, f->shared);
        check_and(mixed, mine, other, f->size);
    }
    CHECK(same(mine, f->cells, f->size));
    release(other);
    release(mine);
    release(mixed);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const spv_family families[] = {
        SPV_FAMILY_BIP37,    SPV_FAMILY_FAST,     SPV_FAMILY_SIPHASH,    SPV_FAMILY_FAST,
        SPV_FAMILY_SPARK_V1, SPV_FAMILY_SPARK_V2, SPV_FAMILY_REDISBLOOM, SPV_FAMILY_SPLIT_BLOCK,
    };
    static filters filters, *const f = &filters; /* too large to be cleared each time */
    if (size < HEAD)
        return 0;
    static const uint8_t widths[] = {4, 8, 16, 4};
    f->counters = data[0] & 1;
    f->width = f->counters ? widths[data[19] >> 1 & 3] : 1;
    const size_t misaligned = f->width == 16 ? data[0] >> 6 & ~1u : data[0] >> 6, functions = data[1] % (MAX_FUNCTIONS + 1);
    f->shared = data[0] & 4;
    f->key_count = 0;
    f->left = 500 + 2 * size;
    f->plain = (plain_filter){
        .family = families[(data[0] >> 4 & 3) | (data[19] & 1) << 2], .cell_count = spv_le16(data + 2) % MAX_CELLS, .hash_funcs = (uint32_t)functions,
        .partitioned = data[0] & 2,
        .width = f->width,
    };
    if (f->plain.family == SPV_FAMILY_SPLIT_BLOCK) {
        f->plain.cell_count = (f->plain.cell_count / SPV_BLOCK_BITS + 1) * SPV_BLOCK_BITS;
        f->plain.hash_funcs = SPV_BLOCK_FUNCTIONS;
        f->plain.partitioned = false;
    }
    if (f->plain.partitioned && functions)
        f->plain.cell_count -= f->plain.cell_count % functions;
    memcpy(f->plain.key, data + 4, 16);
    f->plain.cells = zeroed((size_t)f->plain.cell_count, sizeof *f->plain.cells);
    f->size = (size_t)(f->plain.cell_count * f->width + 7) / 8;
    f->memory = zeroed(f->size + misaligned, 1);
    f->cells = f->memory + misaligned;
    f->scratch = zeroed(f->plain.hash_funcs, sizeof *f->scratch);
    spv_shape_make(&f->shape, f->plain.family, f->plain.cell_count, f->plain.hash_funcs, f->plain.partitioned, f->plain.key);
    f->batch = (spv_batch){.shape = &f->shape, .cells = f->cells, .width = f->width, .gate = &f->gate, .far = data[0] & 8, .shared = f->shared, .room = &f->room};
    atomic_init(&f->room, SPV_UNLIMITED);
    f->batch.positions = zeroed(functions > SPV_AHEAD_CELLS ? functions : SPV_AHEAD_CELLS, sizeof *f->batch.positions);
    uint8_t *older = exact_copy(f->cells, f->size);
    for (size_t at = HEAD, taken; at < size && (taken = operate(f, data + at, size - at)); at += taken)
        if (at < size / 2)
            memcpy(older, f->cells, f->size);
    check_same_cells(f->cells, &f->plain);
    check_whole(f, older, data + HEAD, size - HEAD);
    release(older);
    release(f->batch.positions);
    release(f->scratch);
    release(f->memory);
    release(f->plain.cells);
    return 0;
}
