/* Fuzz target: Golomb-coded sets, decoded bit by bit and searched from end to end for comparison. The input is parameters, items, a set:

   u8   P, modulo 32, plus 1
   u32  M
   16   bytes of the SipHash key
   u8   items, each u8 size and bytes
   the rest is a set, as a peer might send it */
#include "gcs/gcs.h"
#include "oracle.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { HEAD = 22, SETS = 4 };

typedef struct {
    uint64_t *values;
    size_t count;
} plain_set;

/* pure_gcs.gcs_values, or false for a set that is not sound. */
static bool decode(const uint8_t *data, size_t size, unsigned p, plain_set *set) {
    spv_error error;
    uint64_t count, value = 0;
    size_t at = 0, end = 8 * size;
    *set = (plain_set){0};
    if (spv_compact_size(data, size, &at, &count, "element count", &error) || count * (p + 1) > 8 * (size - at))
        return false;
    set->values = zeroed((size_t)count, sizeof *set->values);
    at *= 8;
    for (; set->count < count; set->count++) {
        uint64_t quotient = 0, rest = 0;
        for (; at < end && data[at / 8] >> (7 - at % 8) & 1; at++)
            quotient++;
        if (at++ + p >= end)
            return false;
        for (size_t last = at + p; at < last; at++)
            rest = rest << 1 | (data[at / 8] >> (7 - at % 8) & 1);
        value += quotient << p | rest;
        set->values[set->count] = value;
    }
    return (at + 7) / 8 == size;
}

static uint64_t value_of(const spv_item_bytes *item, const uint8_t *key, uint64_t count, uint64_t m) {
    __extension__ typedef unsigned __int128 wide;
    return (uint64_t)((wide)oracle_siphash24(item->data, item->size, key) * (count * m) >> 64);
}

static bool contains(const plain_set *set, uint64_t value) {
    for (size_t i = 0; i < set->count; i++)
        if (set->values[i] == value)
            return true;
    return false;
}

/* The set decodes as it should, or is refused; the query finds what it should, beside other sets as alone. */
static void check_set(
    const uint8_t *data, size_t size, const uint8_t *key, unsigned p, uint64_t m, const spv_item_bytes *items, size_t item_count, plain_set *plain
) {
    spv_gcs_values values = {0};
    spv_error error, again;
    size_t failed;
    uint8_t mask[SETS];
    bool sound = decode(data, size, p, plain), found = false;
    spv_status status = spv_gcs_decode(data, size, p, &values, &error);
    CHECK(!status == sound);
    spv_gcs_query *query = spv_gcs_query_new(items, item_count);
    CHECK(query && spv_gcs_query_count(query) == item_count);
    if (sound) {
        CHECK(values.count == plain->count && same(values.values, plain->values, plain->count * sizeof *plain->values));
        for (size_t i = 0; i < item_count && plain->count; i++)
            found |= contains(plain, value_of(items + i, key, plain->count, m));
    } else {
        check_refusal(status, &error, size);
    }
    const uint8_t empty = 0;
    for (size_t odd = 0; odd < SETS; odd++) { /* the one that is empty */
        spv_gcs_set sets[SETS];
        for (size_t i = 0; i < SETS; i++)
            sets[i] = i == odd ? (spv_gcs_set){key, &empty, 1} : (spv_gcs_set){key, data, size};
        memset(mask, 9, sizeof mask);
        CHECK(spv_gcs_match_many(query, sets, SETS, p, m, mask, &failed, &again) == status);
        for (size_t i = 0; sound && i < SETS; i++)
            CHECK(mask[i] == (i != odd && found));
        if (!sound) {
            check_same_refusal(&error, &again);
            CHECK(failed == (odd == 0));
        }
    }
    spv_gcs_query_free(query);
    free(values.values);
}

/* A set made of the items holds just their values. */
static void check_built(const spv_item_bytes *items, size_t item_count, const uint8_t *key, unsigned p, uint64_t m) {
    uint8_t *built;
    size_t size, distinct = 0;
    plain_set plain;
    for (size_t i = 0; i < item_count; i++) {
        bool repeated = false;
        for (size_t k = 0; k < i && !repeated; k++)
            repeated = items[i].size == items[k].size && same(items[i].data, items[k].data, items[i].size);
        distinct += !repeated;
    }
    uint64_t longest = distinct * m >> p; /* ones in a row: M far above 2^P makes sets of any size */
    if (longest > 1 << 16)
        return;
    CHECK(!spv_gcs_build(items, item_count, key, p, m, &built, &size));
    uint8_t *exact = exact_copy(built, size);
    free(built);
    check_set(exact, size, key, p, m, items, item_count, &plain);
    CHECK(plain.count == distinct);
    for (size_t i = 0; i < item_count; i++)
        CHECK(contains(&plain, value_of(items + i, key, distinct, m)));
    for (size_t i = 0; i < plain.count; i++) {
        bool known = false;
        for (size_t k = 0; k < item_count && !known; k++)
            known = value_of(items + k, key, distinct, m) == plain.values[i];
        CHECK(known);
    }
    free(plain.values);
    free(exact);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < HEAD)
        return 0;
    const unsigned p = data[0] % 32 + 1;
    const uint64_t m = spv_le32(data + 1) ? spv_le32(data + 1) : 1;
    const uint8_t *key = data + 5;
    spv_item_bytes items[255];
    size_t count = 0, at = HEAD;
    while (count < data[21] && at < size && size - at - 1 >= data[at]) {
        items[count++] = (spv_item_bytes){data + at + 1, data[at]};
        at += 1u + data[at];
    }
    uint8_t *set = exact_copy(data + at, size - at);
    plain_set plain;
    check_set(set, size - at, key, p, m, items, count, &plain);
    check_built(items, count, key, p, m);
    free(plain.values);
    free(set);
    return 0;
}
