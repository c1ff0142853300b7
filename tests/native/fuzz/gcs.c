/* Fuzz target: Golomb-coded sets, decoded bit by bit and searched for comparison. The input is parameters, items, a
   set:

   u8   Bits 0-4: P less 1. Bits 5-6: number of the empty set among four sets of a query.
   u32  M.
   16   SipHash key.
   u8   Number of items. Each has u8 size and its bytes.
   The rest is a set as a peer might send it. */
#include "gcs/build.h"
#include "gcs/decode.h"
#include "gcs/match.h"
#include "oracle_gcs.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { HEAD = 22, SETS = 4, MAX_ELEMENTS = 1 << 12, MAX_QUOTIENTS = 1 << 12 };

typedef struct {
    unsigned p;
    uint64_t m;
    const uint8_t *key;
    size_t odd; /* the empty set */
    const spv_bytes *items;
    size_t count;
    spv_gcs_query *query; /* of the items */
} question;

/* The set decodes to the right values, or is refused. The query finds the same alone and beside an empty set. */
static void check_set(const question *ask, const uint8_t *data, size_t size, plain_set *plain) {
    spv_gcs_values values = {0};
    spv_error error, again;
    size_t failed;
    uint8_t mask[SETS];
    const uint8_t empty = 0;
    bool sound = plain_decode(data, size, ask->p, plain), found = false;
    spv_status status = spv_gcs_decode(data, size, ask->p, &values, &error);
    CHECK(!status == sound);
    if (sound) {
        CHECK(values.count == plain->count && same(values.values, plain->values, plain->count * sizeof *plain->values));
        for (size_t i = 0; i < ask->count && plain->count; i++)
            found |= plain_contains(plain, plain_value(ask->items + i, ask->key, plain->count, ask->m));
    } else {
        check_refusal(status, &error, size);
    }
    spv_gcs_set sets[SETS];
    for (size_t i = 0; i < SETS; i++)
        sets[i] = i == ask->odd ? (spv_gcs_set){ask->key, {&empty, 1}} : (spv_gcs_set){ask->key, {data, size}};
    memset(mask, 9, sizeof mask);
    CHECK(spv_gcs_match_many(ask->query, sets, SETS, ask->p, ask->m, mask, &failed, &again) == status);
    for (size_t i = 0; sound && i < SETS; i++)
        CHECK(mask[i] == (i != ask->odd && found));
    if (!sound) {
        check_same_refusal(&error, &again);
        CHECK(failed == (ask->odd == 0));
    }
    free(values.values);
}

/* A set built from the items contains exactly their values. */
static void check_built(const question *ask) {
    uint8_t *built;
    size_t size, distinct = plain_distinct(ask->items, ask->count);
    plain_set plain;
    /* limit of a run of ones: with M far above 2^P, sets could have any size */
    if (distinct * ask->m >> ask->p > MAX_QUOTIENTS)
        return;
    void *room = zeroed(spv_gcs_room(ask->count), 1);
    CHECK(!spv_gcs_build(ask->items, ask->count, room, ask->key, ask->p, ask->m, &built, &size));
    uint8_t *exact = exact_copy(built, size);
    release(room);
    free(built);
    check_set(ask, exact, size, &plain);
    CHECK(plain.count == distinct);
    check_holds_just(&plain, ask->items, ask->count, ask->key, ask->m);
    release(plain.values);
    release(exact);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < HEAD)
        return 0;
    spv_bytes items[255];
    question ask = {.p = data[0] % 32 + 1, .odd = data[0] >> 5 & 3, .m = spv_le32(data + 1), .key = data + 5, .items = items};
    ask.m += !ask.m;
    size_t at = HEAD;
    while (ask.count < data[21] && at < size && size - at - 1 >= data[at]) {
        items[ask.count++] = (spv_bytes){data + at + 1, data[at]};
        at += 1u + data[at];
    }
    ask.query = spv_gcs_query_new(items, ask.count);
    CHECK(ask.query && spv_gcs_query_count(ask.query) == ask.count);
    if (8 * (size - at) / (ask.p + 1) <= MAX_ELEMENTS) {
        uint8_t *set = exact_copy(data + at, size - at);
        plain_set plain;
        check_set(&ask, set, size - at, &plain);
        release(plain.values);
        release(set);
    }
    check_built(&ask);
    spv_gcs_query_free(ask.query);
    return 0;
}
