/* Runs of headers against plain loops: links, bits, the rules between two landmarks, indexes by hash, filter-header
   chains. */
#include "selftest.h"

#include "oracle_headers.h"

enum { MOST = 300, USUAL = 7, LATE = 9, LATE_BY = 100 };

static void put_header(uint8_t *header, int32_t version, uint32_t time, uint32_t bits) {
    spv_put_le32(header, (uint32_t)version);
    spv_put_le32(header + 68, time);
    spv_put_le32(header + 72, bits);
}

static void test_rules(dice *dice) {
    uint8_t *headers = zeroed(MOST, SPV_HEADER_SIZE), usual[36] = {USUAL}, late_ones[36] = {LATE};
    spv_hash *hashes = zeroed(MOST, sizeof *hashes);
    const size_t count = roll(dice) % (MOST + 1);
    spv_header_rules rules = {usual, late_ones, LATE_BY, 2, 1 << 30, {0}, 1 + roll(dice) % SPV_MEDIAN_SPAN};
    uint32_t time = 1000, bits;
    usual[4 + 20] = 5;
    late_ones[4 + 31] = 1;
    for (size_t i = 0; i < rules.known; i++)
        rules.times[i] = time = 1000 + (uint32_t)(roll(dice) % 50);
    for (size_t i = 0; i < count; i++) {
        const uint32_t step = (uint32_t)(roll(dice) % 130);
        const bool odd = roll(dice) % 100 == 0;
        put_header(headers + SPV_HEADER_SIZE * i, odd ? 1 : 2, time + step, step > LATE_BY ? LATE : USUAL);
        hashes[i][20] = (uint8_t)(roll(dice) % 400 ? 4 : 5);
        hashes[i][0] = (uint8_t)(roll(dice) % 100 == 0);
        time += step;
    }
    if (roll(dice) % 4 == 0)
        rules.latest = time - 20;
    size_t late, plain_late;
    const size_t good = spv_judge_headers(headers, hashes, count, &rules, &late);
    CHECK(good == plain_judge(headers, hashes, count, &rules, &plain_late) && late == plain_late);
    for (size_t at = 0; at < count;) {
        const size_t alike = spv_same_bits(headers + SPV_HEADER_SIZE * at, count - at, &bits);
        for (size_t i = at; i < at + alike; i++)
            CHECK(spv_le32(headers + SPV_HEADER_SIZE * i + 72) == bits);
        at += alike;
        CHECK(at == count || spv_le32(headers + SPV_HEADER_SIZE * at + 72) != bits);
    }
    release(headers);
    release(hashes);
}

/* An index in which some keys are equal: a search finds each header and no other. */
static void test_index(dice *dice) {
    const size_t count = 2 + roll(dice) % (MOST - 1), half = 1 + roll(dice) % (count - 1);
    uint8_t *headers = zeroed(count, SPV_HEADER_SIZE), *whole = zeroed(count, SPV_INDEX_ENTRY), *joined = zeroed(count, SPV_INDEX_ENTRY);
    uint8_t *low = zeroed(half, SPV_INDEX_ENTRY), *high = zeroed(count - half, SPV_INDEX_ENTRY);
    spv_hash *hashes = zeroed(count, sizeof *hashes), stranger;
    spv_error error;
    roll_bytes(dice, headers, count * SPV_HEADER_SIZE);
    for (size_t i = 0; i < count; i++) {
        oracle_sha256d(headers + SPV_HEADER_SIZE * i, SPV_HEADER_SIZE, hashes[i]);
        if (roll(dice) % 3 == 0)
            memcpy(hashes[i], "same", SPV_INDEX_KEY);
        if (i + 1 < count)
            memcpy(headers + SPV_HEADER_SIZE * (i + 1) + 4, hashes[i], sizeof *hashes);
    }
    CHECK(spv_linked_headers(headers, hashes, count) == count);
    headers[SPV_HEADER_SIZE * half + 4 + roll(dice) % 32] ^= 1;
    CHECK(spv_linked_headers(headers, hashes, count) == half);
    memcpy(headers + SPV_HEADER_SIZE * half + 4, hashes[half - 1], sizeof *hashes);
    CHECK(!spv_index_headers(headers, count, hashes[count - 1], whole));
    CHECK(!spv_index_headers(headers, half, hashes[half - 1], low));
    CHECK(!spv_index_headers(headers + SPV_HEADER_SIZE * half, count - half, hashes[count - 1], high));
    spv_bytes parts[] = {{low, half * SPV_INDEX_ENTRY}, {high, (count - half) * SPV_INDEX_ENTRY}};
    CHECK(!spv_join_indexes(parts, 2, joined) && same(joined, whole, count * SPV_INDEX_ENTRY));
    plain_index((const spv_hash *)hashes, count, joined);
    CHECK(same(joined, whole, count * SPV_INDEX_ENTRY));
    for (size_t i = 0; i < count; i++)
        check_found(whole, (const spv_hash *)hashes, count, hashes[i]);
    roll_bytes(dice, stranger, sizeof stranger);
    memcpy(stranger, "\xff\xff\xff", 3);
    const uint8_t *numbers;
    CHECK(spv_find_header(whole, count, stranger, &numbers) == 0 || !memcmp(whole + SPV_INDEX_KEY * (count - 1), stranger, 3));
    uint8_t *none = zeroed(0, 1); /* none of its bytes may be read */
    CHECK(spv_find_header(none, 0, stranger, &numbers) == 0);
    release(none);
    spv_put_le32(stranger, (uint32_t)count);
    memcpy(low + SPV_INDEX_KEY * half, stranger, 2); /* a number without a header */
    CHECK(spv_join_indexes(parts, 2, joined) == SPV_RANGE);
    CHECK(spv_check_headers(SPV_HEADER_SIZE * count, &error) == SPV_OK);
    check_refusal(spv_check_headers(SPV_HEADER_SIZE * count + 79, &error), &error, SPV_HEADER_SIZE * count + 79);
    release(headers);
    release(whole);
    release(joined);
    release(low);
    release(high);
    release(hashes);
}

/* Keys that crowd at one end, as only an attacker with proof of work can make them. A search finds a header even if
   it is far from its expected position. */
static void test_crowded_index(dice *dice, bool above) {
    enum { CROWD = 1500 };
    uint8_t *index = zeroed(CROWD, SPV_INDEX_ENTRY);
    spv_hash *hashes = zeroed(CROWD, sizeof *hashes);
    roll_bytes(dice, (uint8_t *)hashes, CROWD * sizeof *hashes);
    for (size_t i = 0; i < CROWD; i++)
        hashes[i][0] = above ? 0xFF : 0;
    plain_index((const spv_hash *)hashes, CROWD, index);
    for (size_t i = 0; i < CROWD; i++)
        check_found(index, (const spv_hash *)hashes, CROWD, hashes[i]);
    release(index);
    release(hashes);
}

static void test_filter_headers(dice *dice) {
    const size_t count = roll(dice) % 5;
    spv_hash *hashes = zeroed(count + 1, sizeof *hashes), *headers = zeroed(count + 1, sizeof *headers), previous;
    uint8_t pair[64];
    roll_bytes(dice, (uint8_t *)hashes, count * sizeof *hashes);
    roll_bytes(dice, previous, sizeof previous);
    spv_chain_filter_headers(hashes, count, previous, headers);
    for (size_t i = 0; i < count; i++) {
        memcpy(pair, hashes[i], 32);
        memcpy(pair + 32, previous, 32);
        oracle_sha256d(pair, sizeof pair, previous);
        CHECK(same(headers[i], previous, 32));
    }
    release(hashes);
    release(headers);
}

void test_headers(void) {
    dice dice = {20090109};
    for (int i = 0; i < 300; i++) {
        test_rules(&dice);
        test_index(&dice);
        test_filter_headers(&dice);
    }
    test_crowded_index(&dice, false);
    test_crowded_index(&dice, true);
}
