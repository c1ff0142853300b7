/* The watch table by itself: its keyed hash, its lock after a scan, labels of lines. */
#include "selftest.h"

#include "watch/lines.h"
#include "watch/scan.h"

enum { LONGEST = 100 };

/* Every bit that the caller, or somebody else, chooses makes a difference, and so does every word of the key that a value of this size
   is mixed with. */
static void keyed_hash(void) {
    dice dice = {61};
    spv_table_key key;
    for (size_t size = 0; size <= LONGEST; size++) {
        static const unsigned few[] = {0, 1, 2, 5}, all[] = {0, 1, 2, 3, 4, 5};
        const unsigned *words = size < 17 ? few : all;
        const size_t word_count = size < 17 ? 4 : 6;
        uint8_t *value = zeroed(size, 1);
        roll_bytes(&dice, value, size);
        roll_bytes(&dice, (uint8_t *)key.word, sizeof key.word);
        const uint64_t hash = spv_keyed_hash(&key, 1, value, size);
        CHECK(hash == spv_keyed_hash(&key, 1, value, size));
        CHECK(hash != spv_keyed_hash(&key, 0, value, size) && hash != spv_keyed_hash(&key, 3, value, size));
        for (size_t bit = 0; bit < 8 * size; bit++) {
            value[bit / 8] ^= (uint8_t)(1u << bit % 8);
            CHECK(hash != spv_keyed_hash(&key, 1, value, size));
            value[bit / 8] ^= (uint8_t)(1u << bit % 8);
        }
        for (size_t i = 0; i < word_count; i++) {
            key.word[words[i]] ^= 1;
            CHECK(hash != spv_keyed_hash(&key, 1, value, size));
            key.word[words[i]] ^= 1;
        }
        if (size) /* bytes of another length, equal as far as they go */
            CHECK(hash != spv_keyed_hash(&key, 1, value, size - 1));
        release(value);
    }
}

/* A full pile says that it takes at least its records and a place for each segment, and not much more. */
static void size_of_a_pile(void) {
    enum { RECORD = 24 };
    spv_pile pile = {.record = RECORD};
    CHECK(!spv_pile_size(&pile));
    for (uint32_t count = 1; count <= 40 * SPV_SEGMENT; count++) {
        CHECK(!spv_pile_reserve(&pile) && pile.room >= count);
        memset(spv_pile_at(&pile, pile.count++, RECORD), (int)(count % 251), RECORD);
        const size_t least = pile.room * (size_t)RECORD + (pile.room + SPV_SEGMENT - 1) / SPV_SEGMENT * sizeof(void *);
        CHECK(spv_pile_size(&pile) >= least && spv_pile_size(&pile) <= 2 * least);
    }
    for (uint32_t number = 0; number < pile.count; number++) {
        const uint8_t *record = spv_pile_at(&pile, number, RECORD);
        CHECK(record[0] == (number + 1) % 251 && record[RECORD - 1] == record[0]);
    }
    spv_pile_free(&pile);
}

static void check_unlocked(spv_table *table) {
    CHECK(spv_try_write(&table->lock));
    spv_end_write(&table->lock);
}

/* Whatever is scanned, and however it ends, nobody is left in the tables. */
static void locks_after_scans(void) {
    static const uint8_t tx[] = { /* an input and an output, without scripts */
        [0] = 1, [4] = 1, [46] = 1, [59] = 0,
    };
    spv_table *one = spv_table_new(), *other = spv_table_new();
    spv_error error;
    spv_hits hits;
    uint32_t number;
    uint8_t block[SPV_HEADER_SIZE + 1 + sizeof tx] = {0};
    block[SPV_HEADER_SIZE] = 1;
    memcpy(block + SPV_HEADER_SIZE + 1, tx, sizeof tx);
    CHECK(one && other && !spv_table_add(one, SPV_SCRIPT, (spv_bytes){block, 0}, &number));
    spv_table *const pairs[][2] = {{one, NULL}, {one, one}, {one, other}, {other, one}, {other, NULL}};
    for (size_t i = 0; i < 5; i++)
        for (size_t cut = 0; cut < 2; cut++) {
            CHECK(!spv_watch_block(pairs[i][0], pairs[i][1], block, sizeof block - cut, NULL, &hits, &error) == !cut);
            CHECK(hits.count == (!cut && pairs[i][0] == one));
            spv_hits_free(&hits);
            check_unlocked(one);
            check_unlocked(other);
        }
    for (size_t cut = 0; cut < 2; cut++) {
        CHECK(!spv_watch_tx(one, tx, sizeof tx - cut, &hits, &error) == !cut);
        CHECK(hits.count == !cut);
        spv_hits_free(&hits);
        check_unlocked(one);
    }
    spv_table_free(one);
    spv_table_free(other);
}

/* Labels in UTF-8, by the table of Unicode § 3.9, without control characters and line ends of any kind. */
static void labels(void) {
    static const struct {
        const char *text;
        bool taken;
    } cases[] = {
        {"a", true}, {" ~", true}, {"\x1F", false}, {"\x7F", false}, {"\t", false},
        {"\xC2\xA0", true}, {"\xC3\xA9 x", true}, {"\xDF\xBF", true}, {"\xC2\x85", false}, {"\xC2\x9F", false}, {"\xC1\xBF", false}, {"\x80", false},
        {"\xE2\x82\xAC", true}, {"\xE0\xA0\x80", true}, {"\xE0\x9F\xBF", false}, {"\xED\x9F\xBF", true}, {"\xED\xA0\x80", false},
        {"\xE2\x80\xA7", true}, {"\xE2\x80\xA8", false}, {"\xE2\x80\xA9", false}, {"\xE2\x80\xAA", true}, {"\xE2\x81\xA8", true},
        {"\xE3\x80\xA8", true}, {"\xEF\xBF\xBF", true}, {"\xF0\x9F\x98\x80", true}, {"\xF0\x90\x80\x80", true}, {"\xF0\x8F\xBF\xBF", false},
        {"\xF4\x8F\xBF\xBF", true}, {"\xF4\x90\x80\x80", false}, {"\xF5\x80\x80\x80", false}, {"\xFF", false},
        {"\xC3", false}, {"\xC3z", false}, {"\xE2\x82", false}, {"\xE2\x82z", false}, {"\xE2z\xAC", false}, {"\xF0\x9F\x98", false},
        {"\xF0\x9F\x98z", false}, {"\xF0\x9Fz\x80", false}, {"\xC3\xA9\xC3\xA9", true}, {"\xC3\xA9\xC3", false},
    };
    static const char address[] = "1A1zP1eP5QGefi2DMPTfTL5SLmv7DivfNa,"; /* of the genesis block */
    spv_address_network network;
    CHECK(spv_address_network_init(&network, 0, 5, (spv_bytes){(const uint8_t *)"bc", 2}));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char line[80];
        const size_t size = (size_t)snprintf(line, sizeof line, "%s%s%s", address, cases[i].text, i % 2 ? "\r\n" : "\n");
        uint8_t *exact = exact_copy((const uint8_t *)line, size);
        spv_table *table = spv_table_new();
        spv_address_lines taken;
        CHECK(table && !spv_add_address_lines(table, &network, (spv_bytes){exact, size}, 2, &taken));
        CHECK(taken.lines == cases[i].taken && taken.consumed == (cases[i].taken ? size : 0) && taken.count == cases[i].taken);
        if (taken.count) {
            const spv_bytes text = taken.labels[0].text;
            CHECK(text.size == strlen(cases[i].text) && same(text.data, cases[i].text, text.size) && !taken.labels[0].entry);
        }
        spv_address_lines_free(&taken);
        spv_table_free(table);
        release(exact);
    }
}

void test_tables(void) {
    keyed_hash();
    size_of_a_pile();
    locks_after_scans();
    labels();
}
