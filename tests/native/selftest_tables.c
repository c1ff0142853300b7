/* The watch table alone: its keyed hash, its lock after a scan, labels of lines. */
#include "selftest.h"

#include "watch/image.h"
#include "watch/lines.h"
#include "watch/scan.h"

enum { LONGEST = 100 };

/* Every bit of the value changes the hash. The kind and every key word for a value of this size change it, too. */
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
        if (size) /* bytes of another length with an equal beginning */
            CHECK(hash != spv_keyed_hash(&key, 1, value, size - 1));
        release(value);
    }
}

/* A full pile reports at least the size of its records and a place for each segment, and not much more. */
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

/* However a scan ends, no thread remains registered in the tables. */
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

/* Labels in UTF-8, by the table of Unicode § 3.9, without control characters and line ends. */
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

/* An index in memory never uses the key of an image, whose maker can choose entries that collide under it. */
static void key_of_an_image(void) {
    static const spv_table_key key = {{0, 0, 0, 0, 0, 42, 0, 0}};
    spv_table *table = spv_table_new(), *over, *copy;
    spv_error error;
    uint32_t number, added;
    size_t size;
    uint8_t script[22] = {0}, full[67] = {SPV_FULL_KEY, 4};
    static const uint8_t point[64] = { /* the generator of secp256k1 */
        0x79, 0xbe, 0x66, 0x7e, 0xf9, 0xdc, 0xbb, 0xac, 0x55, 0xa0, 0x62, 0x95, 0xce, 0x87, 0x0b, 0x07, 0x02, 0x9b, 0xfc, 0xdb, 0x2d, 0xce,
        0x28, 0xd9, 0x59, 0xf2, 0x81, 0x5b, 0x16, 0xf8, 0x17, 0x98, 0x48, 0x3a, 0xda, 0x77, 0x26, 0xa3, 0xc4, 0x65, 0x5d, 0xa4, 0xfb, 0xfc,
        0x0e, 0x11, 0x08, 0xa8, 0xfd, 0x17, 0xb4, 0x48, 0xa6, 0x85, 0x54, 0x19, 0x9c, 0x47, 0xd0, 0x8f, 0xfb, 0x10, 0xd4, 0xb8,
    };
    memcpy(full + 2, point, sizeof point);
    full[66] = 0xAC;
    CHECK(table);
    for (unsigned i = 0; i < 100; i++) {
        script[0] = (uint8_t)i;
        CHECK(!spv_table_add(table, SPV_SCRIPT, (spv_bytes){script, sizeof script}, &number) && number == i);
    }
    CHECK(!spv_table_add(table, SPV_SCRIPT, (spv_bytes){full, sizeof full}, &number) && !spv_image_size(table, &size));
    uint8_t *image = zeroed(size, 1);
    CHECK(!spv_image_write(table, &key, image, size, &error));
    for (unsigned i = 0; i < 2; i++) { /* the first addition is a script or an outpoint */
        CHECK(!spv_table_open((spv_bytes){image, size}, &over, &error) && same((const uint8_t *)&over->key, &key, sizeof key));
        CHECK(!spv_table_copy(over, &copy));
        CHECK(!spv_table_add(copy, i ? SPV_OUTPOINT : SPV_DATA, (spv_bytes){point, i ? SPV_OUTPOINT_SIZE : 64}, &added) && added == 101);
        CHECK(!same((const uint8_t *)&copy->key, &key, sizeof key) && same((const uint8_t *)&copy->key, &copy->coin_key, sizeof key));
        CHECK(spv_table_find(copy, SPV_SCRIPT, (spv_bytes){script, sizeof script}) == 99);
        uint8_t short_key[SPV_SHORT_KEY];
        CHECK(spv_short_key(full + 1, short_key) && spv_table_find_full_key(copy, short_key));
        CHECK(spv_table_find(over, SPV_SCRIPT, (spv_bytes){script, sizeof script}) == 99 && spv_table_find_full_key(over, short_key));
        spv_table_free(copy);
        spv_table_free(over);
    }
    spv_table_free(table);
    release(image);
}

void test_tables(void) {
    keyed_hash();
    key_of_an_image();
    size_of_a_pile();
    locks_after_scans();
    labels();
}
