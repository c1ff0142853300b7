/* Memory that runs out, at each allocation in turn. A failing function reports it, leaks nothing, and works when
   repeated.

   Linked with -Wl,--wrap=NAME for each NAME that is wrapped below. */
#define _DEFAULT_SOURCE /* mmap's MAP_ANONYMOUS */
#include "selftest.h"

#include <sys/mman.h>

#include "block/merkle.h"
#include "block/merkleblock.h"
#include "bloom/bip37/scan.h"
#include "bloom/fuse.h"
#include "gcs/build.h"
#include "gcs/decode.h"
#include "gcs/match.h"
#include "oracle_gcs.h"
#include "oracle_watch.h"
#include "watch/hitcolumns.h"
#include "watch/image.h"
#include "watch/lines.h"
#include "watch/render.h"

static size_t until_failure; /* number of the failing allocation; 0 for none */
static size_t mapped;        /* mapped bytes, whose leaks sanitizers do not detect */

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *memory, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
void *__real_mmap(void *at, size_t size, int protection, int flags, int file, off_t offset);
int __real_munmap(void *at, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *memory, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);
void *__wrap_mmap(void *at, size_t size, int protection, int flags, int file, off_t offset);
int __wrap_munmap(void *at, size_t size);

static bool fails(void) {
    return until_failure && !--until_failure;
}

void *__wrap_malloc(size_t size) {
    return fails() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size) {
    return fails() ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *memory, size_t size) {
    return fails() ? NULL : __real_realloc(memory, size);
}

void *__wrap_aligned_alloc(size_t alignment, size_t size) {
    return fails() ? NULL : __real_aligned_alloc(alignment, size);
}

void *__wrap_mmap(void *at, size_t size, int protection, int flags, int file, off_t offset) {
    if (fails())
        return MAP_FAILED;
    mapped += size;
    return __real_mmap(at, size, protection, flags, file, offset);
}

int __wrap_munmap(void *at, size_t size) {
    mapped -= size;
    return __real_munmap(at, size);
}

/* Tries with the first allocation failing, then the second, and so on until no allocation fails. Calls `undo` after
   each failure. */
#define EVENTUALLY(attempt, undo) \
    for (size_t nth_ = 1;; nth_++) { \
        until_failure = nth_; \
        const spv_status status_ = (attempt); \
        const bool failed_ = !until_failure; \
        until_failure = 0; \
        CHECK(status_ == (failed_ ? SPV_NOMEM : SPV_OK)); \
        if (!failed_) \
            break; \
        undo; \
    }

enum { STRANGERS = 1200, MOST_TRANSACTIONS = 300, LABELS = 150, ITEMS = 600 };

static void fill(spv_table *table, plain_table *plain, const uint8_t *strangers, const real_block *block) {
    uint32_t number;
    for (size_t i = 0; i < STRANGERS; i++) {
        const unsigned kind = (unsigned)(i % SPV_DATA_PREFIX);
        const spv_bytes value = {strangers + 80 * i, kind == SPV_OUTPOINT ? 36 : i % 80};
        EVENTUALLY(spv_table_add(table, kind, value, &number), CHECK(spv_table_find(table, kind, value) == SPV_NONE));
        CHECK(number == plain_add(plain, kind, value));
    }
    for (uint32_t i = 0; i < block->transactions; i++) {
        size_t at = block->txs[i].outputs_at;
        const spv_item output = spv_next_output(block->raw, &at);
        const spv_bytes script = {block->raw + output.script, output.script_end - output.script};
        EVENTUALLY(spv_table_add(table, SPV_SCRIPT, script, &number), );
        CHECK(number == plain_add(plain, SPV_SCRIPT, script));
        at = block->txs[i].inputs_at;
        plain_coin coin = {.entry = number, .value = i, .script = {strangers + i, 30}};
        memcpy(coin.outpoint, block->raw + spv_next_input(block->raw, &at).at, sizeof coin.outpoint);
        EVENTUALLY(spv_table_set_coin(table, &(spv_coin){coin.outpoint, coin.script, coin.value, coin.entry}, false), );
        plain_set_coin(plain, &coin, false);
    }
    check_same_table(table, plain);
}

static void scan(spv_table *table, const plain_table *plain, const real_block *block) {
    spv_table *found;
    plain_table plain_found = {0};
    plain_hits wanted = {0};
    spv_hits hits;
    spv_error error;
    CHECK(found = spv_table_new());
    EVENTUALLY(spv_watch_block(table, found, block->raw, block->size, NULL, &hits, &error), {
        spv_hits_free(&hits);
        spv_table_free(found);
        CHECK(found = spv_table_new());
    });
    CHECK(plain_scan(plain, &plain_found, block->raw, block->txs, block->transactions, &wanted));
    check_same_hits(&hits, &wanted);
    check_same_table(found, &plain_found);
    spv_hits_free(&hits);
    spv_table_free(found);
    plain_free(&plain_found);

    const spv_tx *tx = block->txs + block->transactions / 2;
    wanted.count = 0;
    EVENTUALLY(spv_watch_tx(table, block->raw + tx->start, tx->end - tx->start, &hits, &error), spv_hits_free(&hits));
    spv_tx alone;
    CHECK(!spv_parse_tx(block->raw + tx->start, tx->end - tx->start, &alone, &error));
    CHECK(plain_scan(plain, NULL, block->raw + tx->start, &alone, 1, &wanted));
    check_same_hits(&hits, &wanted);
    spv_hits_free(&hits);
    free(wanted.hits);
}

/* A table over an image, and the indexes in memory that its first addition makes. */
static void over_image(const spv_table *table, plain_table *plain) {
    static const spv_table_key key = {{1, 2, 3, 5, 8, 13, 21, 34}};
    const spv_bytes value = {(const uint8_t *)"a script after the image", 24};
    spv_table *over;
    spv_error error;
    size_t size;
    uint32_t number;
    CHECK(!spv_image_size(table, &size));
    uint8_t *image = zeroed(size, 1);
    CHECK(!spv_image_write(table, &key, image, size, &error));
    EVENTUALLY(spv_table_open((spv_bytes){image, size}, &over, &error), );
    check_same_table(over, plain);
    EVENTUALLY(spv_table_add(over, SPV_SCRIPT, value, &number), {
        CHECK(spv_table_find(over, SPV_SCRIPT, value) == SPV_NONE);
        check_same_table(over, plain);
    });
    CHECK(number == plain_add(plain, SPV_SCRIPT, value));
    check_same_table(over, plain);
    spv_table_free(over);
    release(image);
}

static void watch_tables(const real_block *block, const uint8_t *strangers) {
    spv_table *table, *copy;
    plain_table plain = {0};
    EVENTUALLY((table = spv_table_new()) ? SPV_OK : SPV_NOMEM, );
    fill(table, &plain, strangers, block);
    scan(table, &plain, block);
    EVENTUALLY(spv_table_copy(table, &copy), );
    check_same_table(copy, &plain);
    spv_table_free(table);
    over_image(copy, &plain);
    spv_table_free(copy);
    plain_free(&plain);
}

/* Bytes that stay at their place and unchanged, in little more memory than their size. */
static void arena(dice *dice) {
    enum { TAKEN = 4000 };
    static uint8_t *taken[TAKEN];
    size_t sizes[TAKEN], sum = 0;
    spv_arena arena = {0};
    for (size_t i = 0; i < TAKEN; i++) {
        sizes[i] = (size_t)roll(dice) % (i % 50 ? 60 : 4000);
        sum += sizes[i];
        EVENTUALLY((taken[i] = spv_arena_take(&arena, sizes[i])) ? SPV_OK : SPV_NOMEM, );
        memset(taken[i], (uint8_t)i, sizes[i]);
        CHECK(arena.total <= sum + sum / 6 + 2048);
    }
    for (size_t i = 0; i < TAKEN; i++)
        for (size_t at = 0; at < sizes[i]; at++)
            CHECK(taken[i][at] == (uint8_t)i);
    CHECK(!spv_arena_take(&arena, SIZE_MAX - 100) && arena.total >= sum);
    spv_arena_free(&arena);
}

/* Zeroed, aligned, writable everywhere, and released. */
static void blanks(void) {
    static const size_t sizes[] = {1, 63, 64, 65, 5000, (2 << 20) - 1, 2 << 20, (2 << 20) + 1, 5 << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        uint8_t *blank;
        mapped = 0;
        EVENTUALLY((blank = spv_blank(sizes[i])) ? SPV_OK : SPV_NOMEM, );
        CHECK((uintptr_t)blank % (sizes[i] < 2 << 20 ? 64 : 2 << 20) == 0);
        CHECK(mapped == (sizes[i] < 2 << 20 ? 0 : (sizes[i] + (2 << 20) - 1) >> 21 << 21));
        for (size_t at = 0; at < sizes[i]; at++)
            CHECK(!blank[at]);
        memset(blank, 0xFF, sizes[i]);
        spv_blank_free(blank, sizes[i]);
        CHECK(!mapped);
    }
    CHECK(!spv_blank(SIZE_MAX - 100));
}

static bool number_hash(const void *context, uint32_t number, uint64_t *hash) {
    (void)context;
    *hash = (number + 1) * UINT64_C(0x9E3779B97F4A7C15);
    return true;
}

static bool is_number(const void *context, uint32_t number) {
    return *(const uint32_t *)context == number;
}

/* Far above the size from which an index is mapped in its own pages. */
static void large_index(void) {
    enum { NUMBERS = 500000 };
    spv_index index, copy;
    uint64_t hash;
    mapped = 0; /* the C library may map more */
    spv_index_init(&index);
    for (uint32_t number = 0; number < NUMBERS; number++) {
        EVENTUALLY(spv_index_reserve(&index, number, number_hash, NULL), CHECK(index.count == number));
        number_hash(NULL, number, &hash);
        spv_index_add(&index, hash, number);
    }
    EVENTUALLY(spv_index_copy(&index, &copy), spv_index_free(&copy));
    CHECK(spv_index_size(&index) == spv_index_size(&copy) && spv_index_size(&index) > 2 << 20);
    for (uint32_t number = 0; number < 2 * NUMBERS; number++) {
        number_hash(NULL, number, &hash);
        CHECK(spv_index_find(&index, hash, is_number, &number) == (number < NUMBERS ? number : SPV_NONE));
        CHECK(spv_index_find(&copy, hash, is_number, &number) == (number < NUMBERS ? number : SPV_NONE));
    }
    CHECK(mapped >= 2 * spv_index_size(&index));
    spv_index_free(&index);
    spv_index_free(&copy);
    CHECK(!mapped);
}

static void address_lines(void) {
    static const char address[] = "1BvBMSEYstWetqTFn5Au4m4GFg7xJaNVN2,label\n";
    enum { LENGTH = sizeof address - 1 };
    char *chunk = zeroed(LABELS, LENGTH);
    for (size_t i = 0; i < LABELS; i++)
        memcpy(chunk + i * LENGTH, address, LENGTH);
    spv_address_network network;
    spv_address_lines taken;
    spv_table *table = spv_table_new();
    CHECK(table && spv_address_network_init(&network, 0, 5, (spv_bytes){(const uint8_t *)"bc", 2}));
    EVENTUALLY(
        spv_add_address_lines(table, &network, (spv_bytes){(const uint8_t *)chunk, LABELS * LENGTH}, 1, &taken), spv_address_lines_free(&taken)
    );
    CHECK(taken.lines == LABELS && taken.count == LABELS && taken.consumed == LABELS * LENGTH && table->entries.count == 1);
    spv_address_lines_free(&taken);
    spv_table_free(table);
    release(chunk);
}

static spv_status add_rows(spv_hit_table *table, spv_bytes packed, size_t *at) {
    static const spv_hit_block block = {.height = 5, .has_height = true};
    spv_error error;
    return spv_add_hit_rows(table, &block, packed, at, SIZE_MAX, &error);
}

static void free_columns(spv_hit_table *table) {
    for (unsigned i = 0; i < SPV_HIT_COLUMNS; i++)
        spv_column_free(&table->columns[i]);
    memset(table->columns, 0, sizeof table->columns);
    table->left = SIZE_MAX;
}

/* Hits of many entries, half of them with labels: packed, summed and rendered. */
static void packed_hits(const uint8_t *random) {
    enum { HITS = 600, ENTRIES = 200 };
    spv_hits hits = {.hits = zeroed(HITS, sizeof(spv_hit)), .txids = zeroed(HITS, sizeof(spv_hash)), .count = HITS};
    for (uint32_t i = 0; i < HITS; i++) {
        memcpy(hits.txids[i], random + 80 * i, sizeof(spv_hash));
        hits.hits[i] = (spv_hit){
            .script = {random + 80 * i, i % 80}, .outpoint = i % 2 ? random + 80 * i : NULL, .value = i, .fee = i, .txid = i, .n = i,
            .entry = 7 * (i % ENTRIES), .spend = i % 2,
        };
    }
    spv_bytes packed;
    uint8_t *bytes;
    EVENTUALLY(spv_pack_hits(&hits, &bytes, &packed.size), CHECK(!bytes));
    packed.data = bytes;
    spv_sums sums;
    spv_error error;
    size_t at;
    EVENTUALLY((at = 0, spv_sums_init(&sums), spv_add_hits(&sums, packed, &at, SIZE_MAX, &error)), spv_sums_free(&sums));
    spv_sort_sums(&sums);
    CHECK(at == packed.size && sums.entries.count == ENTRIES);
    for (uint32_t i = 0; i < ENTRIES; i++)
        CHECK(sums.sums[i].entry == 7 * i && sums.sums[i].matches == HITS / ENTRIES && *(i % 2 ? &sums.sums[i].spent : &sums.sums[i].received) == 3 * i + 600);
    spv_sums_free(&sums);
    spv_hits_read read = {0};
    CHECK(!(at = 0) && !spv_read_hits(&read, packed, &at, SIZE_MAX, &error) && read.count == HITS && read.most == 7 * (ENTRIES - 1));
    uint8_t places[8 * (ENTRIES / 2)] = {0}, texts[4 + 70] = {0};
    const uint32_t length = 70;
    memcpy(texts, &length, sizeof length);
    memcpy(texts + 4, random, length);
    for (uint32_t i = 0; i < ENTRIES / 2; i++) {
        const uint32_t entry = 7 * (2 * i + 1);
        memcpy(places + 8 * i, &entry, sizeof entry);
    }
    spv_block_lines lines = {.labels = {{places, sizeof places}, {texts, sizeof texts}}};
    spv_address_form_init(&lines.network, 0, 5, (spv_bytes){(const uint8_t *)"bc", 2});
    spv_text text = {0}, reserved = {0};
    size_t unfit;
    EVENTUALLY((at = 0, spv_render_hits(&lines, packed, &at, SIZE_MAX, &text, &unfit, &error)), (free(text.data), text = (spv_text){0}));
    EVENTUALLY(spv_text_reserve(&reserved, packed, HITS) ? SPV_OK : SPV_NOMEM, reserved = (spv_text){0});
    CHECK(!(at = 0) && !spv_render_hits(&lines, packed, &at, SIZE_MAX, &reserved, &unfit, &error) && !unfit);
    CHECK(text.size == reserved.size && same(text.data, reserved.data, text.size));
    free(text.data);
    free(reserved.data);
    spv_hit_table table = {.labels = lines.labels, .form = lines.network, .left = SIZE_MAX};
    spv_hit_table_init(&table, false);
    EVENTUALLY((at = 0, add_rows(&table, packed, &at)), (free_columns(&table), spv_hit_table_init(&table, false)));
    for (unsigned i = 0; i < SPV_HIT_COLUMNS; i++)
        CHECK(table.columns[i].rows == HITS);
    free_columns(&table);
    free(bytes);
    release(hits.hits);
    release(hits.txids);
}

/* Sets of all items and of a few. The query is one item that all sets contain, alone and among many others. */
static void golomb_coded_sets(const uint8_t *random) {
    enum { SETS = 6, P = 19, M = 784931 };
    const uint8_t *key = random;
    spv_bytes items[ITEMS];
    spv_gcs_set sets[SETS];
    uint8_t *built[SETS], mask[SETS];
    spv_error error;
    size_t failed;
    for (size_t i = 0; i < ITEMS; i++)
        items[i] = (spv_bytes){random + 80 * i, 10 + i % 70};
    for (size_t i = 0; i < SETS; i++) {
        const size_t count = i % 3 ? ITEMS - i : 2;
        size_t size;
        void *room = zeroed(spv_gcs_room(count), 1);
        const spv_bytes first = items[0];
        items[0] = items[1]; /* a duplicate, which counts once */
        EVENTUALLY(spv_gcs_build(items, count, room, key, P, M, &built[i], &size), );
        plain_set repeated;
        CHECK(plain_decode(built[i], size, P, &repeated) && repeated.count == count - 1);
        release(repeated.values);
        free(built[i]);
        items[0] = first;
        EVENTUALLY(spv_gcs_build(items, count, room, key, P, M, &built[i], &size), );
        release(room);
        sets[i] = (spv_gcs_set){key, {built[i], size}};
        plain_set plain;
        spv_gcs_values values = {0};
        CHECK(plain_decode(built[i], size, P, &plain) && plain.count == count);
        EVENTUALLY(spv_gcs_decode(built[i], size, P, &values, &error), CHECK(!values.count));
        CHECK(values.count == count && same(values.values, plain.values, count * sizeof *plain.values));
        free(values.values);
        release(plain.values);
    }
    for (size_t asked = 1; asked <= ITEMS; asked += ITEMS - 1) {
        spv_gcs_query *query;
        EVENTUALLY((query = spv_gcs_query_new(items, asked)) ? SPV_OK : SPV_NOMEM, );
        memset(mask, 9, sizeof mask);
        EVENTUALLY(spv_gcs_match_many(query, sets, SETS, P, M, mask, &failed, &error), CHECK(failed < SETS));
        for (size_t i = 0; i < SETS; i++)
            CHECK(mask[i] == 1);
        spv_gcs_query_free(query);
    }
    for (size_t i = 0; i < SETS; i++)
        free(built[i]);
}

static void block_checks(const real_block *block) {
    spv_error error;
    spv_tx_matches matches = {0};
    uint8_t bits = 0xFF;
    spv_bip37 everything = {.bits = &bits, .size = 1, .hash_funcs = 1};
    EVENTUALLY(spv_check_block(block->raw, block->size, &error), );
    size_t *places;
    uint32_t count;
    EVENTUALLY(spv_block_places(block->raw, block->size, &places, &count, &error), CHECK(!places));
    CHECK(count == block->transactions && places[count] == block->size);
    for (uint32_t i = 0; i < count; i++)
        CHECK(places[i] == block->txs[i].start);
    free(places);
    EVENTUALLY(spv_bip37_scan_block(block->raw, block->size, &everything, &matches, &error), {
        spv_tx_matches_free(&matches);
        matches = (spv_tx_matches){0};
    });
    CHECK(matches.count == block->transactions);
    spv_tx_matches_free(&matches);

    const uint8_t whole = 0; /* one clear bit: the tree has only its root */
    spv_proved_tx matched;
    spv_proof proof = {.matched = &matched};
    const spv_partial_tree tree = {block->transactions, (const spv_hash *)(block->raw + 36), 1, {&whole, 1}};
    EVENTUALLY(spv_extract_matches(&tree, block->raw + 36, &proof, &error), );
    CHECK(!proof.count);
}

static void fuse_filters(dice *dice) {
    enum { HASHES = 3000 };
    const spv_fuse fuse = {.length = 256, .segments = 20, .width = 2};
    uint8_t *hashes = zeroed(HASHES, 8), *merged = zeroed(HASHES, 8), *table = zeroed((size_t)spv_fuse_cells(&fuse), fuse.width);
    size_t distinct;
    roll_bytes(dice, hashes, HASHES * 8);
    EVENTUALLY(spv_fuse_merge(hashes, HASHES, merged, &distinct), );
    CHECK(distinct == HASHES);
    EVENTUALLY(spv_fuse_build(&fuse, merged, distinct, table), );
    for (size_t i = 0; i < HASHES; i++)
        CHECK(spv_fuse_has(&fuse, table, spv_le64(hashes + 8 * i)));
    release(hashes);
    release(merged);
    release(table);
}

void test_memory(const real_block *blocks, size_t count) {
    dice dice = {1};
    uint8_t *strangers = zeroed(STRANGERS, 80);
    roll_bytes(&dice, strangers, STRANGERS * 80);
    arena(&dice);
    blanks();
    large_index();
    address_lines();
    golomb_coded_sets(strangers);
    packed_hits(strangers);
    fuse_filters(&dice);
    for (size_t i = 0, taken = 0; i < count && taken < 3; i++) {
        if (blocks[i].transactions < 20 || blocks[i].transactions > MOST_TRANSACTIONS)
            continue;
        watch_tables(blocks + i, strangers);
        block_checks(blocks + i);
        taken++;
    }
    release(strangers);
}
