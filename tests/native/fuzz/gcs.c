/* Fuzz target: Golomb-coded sets. What is decoded is what a reader of single bits decodes, or both refuse; a query finds what hashes into
   the set and nothing else; what is built holds all it was built of. The input is u8 P, u8 number of items, 16 bytes of key, items as
   u8 length and bytes, then the set. */
#include "check.h"
#include "gcs.h"
#include "oracle.h"
#include "siphash.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { KEY = 16, M = 784931 };

/* The values of a sound set, one bit after the other, to be freed; NULL for one that is not. */
static uint64_t *values_of(const uint8_t *data, size_t size, unsigned p, size_t *count) {
    size_t at = 0;
    uint64_t n = 0, value = 0;
    spv_error error;
    if (spv_compact_size(data, size, &at, &n, "", &error) || n > 8 * size)
        return NULL;
    uint64_t *values = zeroed((size_t)n + 1, sizeof *values);
    size_t bit = 8 * at, end = 8 * size;
    for (size_t i = 0; i < n; i++) {
        uint64_t quotient = 0, rest = 0;
        for (; bit < end && data[bit / 8] >> (7 - bit % 8) & 1; bit++)
            quotient++;
        if (end - bit < (size_t)p + 1) {
            free(values);
            return NULL;
        }
        bit++;
        for (unsigned j = 0; j < p; j++, bit++)
            rest = rest << 1 | (data[bit / 8] >> (7 - bit % 8) & 1u);
        value += (quotient << p) + rest;
        values[i] = value;
    }
    if ((bit + 7) / 8 != size) {
        free(values);
        return NULL;
    }
    *count = (size_t)n;
    return values;
}

static bool holds(const uint64_t *values, size_t count, const spv_item_bytes *items, size_t asked, const uint8_t *key) {
    uint64_t span = (uint64_t)count * M;
    for (size_t i = 0; i < asked; i++) {
        uint64_t hash = spv_siphash24(items[i].data, items[i].size, spv_le64(key), spv_le64(key + 8));
        uint64_t value = (uint64_t)((unsigned __int128)hash * span >> 64);
        for (size_t j = 0; j < count; j++)
            if (values[j] == value)
                return true;
    }
    return false;
}

static bool ask(const spv_gcs_query *query, const spv_gcs_set *sets, size_t count, unsigned p, uint8_t *mask, spv_error *error) {
    size_t failed = 0;
    spv_status status = spv_gcs_match_many(query, sets, count, p, M, mask, &failed, error);
    CHECK(status == SPV_OK || status == SPV_FORMAT);
    CHECK(failed < count || !status);
    return !status;
}

static void check_set(const uint8_t *from, size_t size, unsigned p, const uint8_t *key, const spv_item_bytes *items, size_t asked) {
    uint8_t *set = exact_copy(from, size), mask[3] = {9, 9, 9};
    spv_gcs_scratch scratch = {0};
    spv_error error;
    size_t count = 0, expected = 0;
    uint64_t *values = values_of(set, size, p, &expected);
    spv_status status = spv_gcs_decode(set, size, p, &scratch, &count, &error);
    CHECK(!status == (values != NULL));
    spv_gcs_query *query = spv_gcs_query_new(items, asked);
    CHECK(query);
    const spv_gcs_set three[] = {{key, set, size}, {key, set, size}, {key, set, size}};
    for (size_t sets = 1; sets <= 3; sets++)
        CHECK(ask(query, three, sets, p, mask, &error) == !status);
    if (status) {
        check_refusal(status, &error, size);
    } else {
        CHECK(count == expected && same(scratch.values, values, count * sizeof *values));
        bool held = holds(values, count, items, asked, key);
        CHECK(mask[0] == held && mask[1] == held && mask[2] == held);
    }
    spv_gcs_query_free(query);
    spv_gcs_scratch_free(&scratch);
    free(values);
    free(set);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    spv_item_bytes items[256] = {{0}};
    if (size < 2 + KEY)
        return 0;
    unsigned p = 1 + data[0] % 32;
    size_t wanted = data[1], at = 2 + KEY, asked = 0;
    const uint8_t *key = data + 2;
    while (asked < wanted && at < size && data[at] <= size - at - 1) {
        items[asked] = (spv_item_bytes){exact_copy(data + at + 1, data[at]), data[at]};
        at += 1 + items[asked++].size;
    }
    check_set(data + at, size - at, p, key, items, asked);
    if (p >= 14) { /* with smaller P the quotients of such an M are long */
        uint8_t *built = NULL;
        size_t length = 0;
        CHECK(!spv_gcs_build(items, asked, key, p, M, &built, &length));
        check_set(built, length, p, key, items, asked ? 1 : 0);
        for (size_t i = 0; i < asked; i++) {
            size_t count = 0;
            uint64_t *values = values_of(built, length, p, &count);
            CHECK(values && count <= asked && holds(values, count, items + i, 1, key));
            free(values);
        }
        free(built);
    }
    for (size_t i = 0; i < asked; i++)
        free((void *)(uintptr_t)items[i].data);
    return 0;
}
