/* Fuzz target: runs of headers are judged, linked and indexed, against plain loops. The input:

   u8   Bits 0-1, modulo 3: see the enumeration. Bits 2-5: earlier known times, at most eleven.
        Bit 6: hashes with few different keys. Bit 7: a limit on the time.
   u8   Seconds after which a header is late.
   For each header: u8 kind of flaw, i8 seconds since the previous header, u8 of its hash.
   If foreign indexes are joined and searched, the rest is their bytes. */
#include "oracle_headers.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { INDEX = 1, FOREIGN = 2 }; /* otherwise the rules */
enum { HEAD = 2, UNIT = 3, MOST = 120, USUAL = 7, LATE = 9, START = 1000 };
enum { ODD_VERSION = 1, OTHER_BITS = 2, LOW_HASH = 4, HIGH_HASH = 8, UNLINKED = 16, FAR = 32 };

/* A run of headers with hashes from the input, which are not their real hashes. */
typedef struct {
    uint8_t *headers;
    spv_hash *hashes;
    size_t count, linked;
} run;

static run make_run(const uint8_t *data, size_t size, bool few_keys, uint8_t late_by) {
    run made = {.count = size / UNIT < MOST ? size / UNIT : MOST};
    made.headers = zeroed(made.count, SPV_HEADER_SIZE);
    made.hashes = zeroed(made.count, sizeof *made.hashes);
    made.linked = made.count;
    uint32_t time = START;
    for (size_t i = 0; i < made.count; i++, data += UNIT) {
        uint8_t *header = made.headers + SPV_HEADER_SIZE * i;
        const uint32_t step = (uint32_t)(int8_t)data[1] + (data[0] & FAR ? late_by : 0);
        time += step;
        spv_put_le32(header, data[0] & ODD_VERSION ? (uint32_t)data[1] << 24 : 2);
        spv_put_le32(header + 68, time);
        const bool is_late = (int32_t)step > (int32_t)late_by;
        spv_put_le32(header + 72, is_late != (bool)(data[0] & OTHER_BITS) ? LATE : USUAL);
        made.hashes[i][0] = few_keys ? data[2] & 3 : data[2];
        made.hashes[i][1] = few_keys ? 0 : (uint8_t)(data[2] * 7 + i);
        made.hashes[i][24] = data[0] & LOW_HASH ? 4 : 5;
        made.hashes[i][31] = data[0] & HIGH_HASH ? 2 : 0;
        if (i)
            memcpy(header + 4, made.hashes[i - 1], sizeof *made.hashes);
        if (i && data[0] & UNLINKED) {
            header[4 + data[2] % 32] ^= 1;
            made.linked = made.linked < i ? made.linked : i;
        }
    }
    return made;
}

static void check_rules(const run *run, uint8_t how, uint8_t late_by, const uint8_t *data) {
    uint8_t usual[36] = {USUAL}, late_ones[36] = {LATE};
    const uint8_t known = (how >> 2 & 15) % SPV_MEDIAN_SPAN;
    spv_header_rules rules = {usual, late_ones, late_by, 2, how & 128 ? START + 300 : UINT32_MAX, {0}, known + 1u};
    usual[4 + 24] = 4;
    usual[4] = 200;
    late_ones[4 + 31] = 1;
    for (size_t i = 0; i <= known; i++)
        rules.times[i] = START - data[i % HEAD] % 64;
    size_t late, plain_late, alike;
    const size_t good = spv_judge_headers(run->headers, (const spv_hash *)run->hashes, run->count, &rules, &late);
    CHECK(good == plain_judge(run->headers, (const spv_hash *)run->hashes, run->count, &rules, &plain_late) && late == plain_late);
    if (run->count)
        CHECK(spv_linked_headers(run->headers, (const spv_hash *)run->hashes, run->count) == run->linked);
    for (size_t at = 0; at < run->count; at += alike) {
        uint32_t bits;
        alike = spv_same_bits(run->headers + SPV_HEADER_SIZE * at, run->count - at, &bits);
        CHECK(alike && at + alike <= run->count);
        for (size_t i = at; i <= at + alike && i < run->count; i++)
            CHECK((spv_le32(run->headers + SPV_HEADER_SIZE * i + 72) == bits) == (i < at + alike));
    }
}

/* The index of a run. Some headers are not linked: the index then has the hash that the next header states. */
static void check_index(const run *run, size_t cut) {
    if (!run->count)
        return;
    spv_hash *said = zeroed(run->count, sizeof *said), stranger = {0};
    uint8_t *index = zeroed(run->count, SPV_INDEX_ENTRY), *plain = zeroed(run->count, SPV_INDEX_ENTRY);
    for (size_t i = 0; i < run->count; i++)
        memcpy(said[i], i + 1 < run->count ? spv_previous(run->headers, i + 1) : run->hashes[i], sizeof *said);
    CHECK(!spv_index_headers(run->headers, run->count, run->hashes[run->count - 1], index));
    plain_index((const spv_hash *)said, run->count, plain);
    CHECK(same(index, plain, run->count * SPV_INDEX_ENTRY));
    for (size_t i = 0; i < run->count; i += 1 + run->count / 16)
        check_found(index, (const spv_hash *)said, run->count, said[i]);
    for (unsigned byte = 0; byte < 256; byte += 51) {
        stranger[0] = (uint8_t)byte;
        check_found(index, (const spv_hash *)said, run->count, stranger);
    }
    cut %= run->count;
    if (cut) { /* two joined indexes are the index of both parts */
        uint8_t *low = zeroed(cut, SPV_INDEX_ENTRY), *high = zeroed(run->count - cut, SPV_INDEX_ENTRY);
        plain_index((const spv_hash *)said, cut, low);
        plain_index((const spv_hash *)said + cut, run->count - cut, high);
        const spv_bytes parts[] = {{low, cut * SPV_INDEX_ENTRY}, {high, (run->count - cut) * SPV_INDEX_ENTRY}};
        CHECK(!spv_join_indexes(parts, 2, plain) && same(index, plain, run->count * SPV_INDEX_ENTRY));
        release(low);
        release(high);
    }
    release(said);
    release(index);
    release(plain);
}

/* True if an index has each number once. */
static bool is_whole(const uint8_t *index, size_t count) {
    bool *seen = zeroed(count, sizeof *seen), whole = true;
    for (size_t i = 0; i < count && whole; i++) {
        const size_t number = spv_le16(index + SPV_INDEX_KEY * count + 2 * i);
        whole = number < count && !seen[number];
        if (whole)
            seen[number] = true;
    }
    release(seen);
    return whole;
}

/* Indexes of any bytes, as in a damaged file. Only complete ones are joined. A search stays within its index and
   finds all numbers of the key. */
static void check_foreign(const uint8_t *data, size_t size, size_t cut) {
    const size_t count = size / SPV_INDEX_ENTRY < MOST ? size / SPV_INDEX_ENTRY : MOST;
    if (!count)
        return;
    cut %= count;
    uint8_t *low = exact_copy(data, cut * SPV_INDEX_ENTRY);
    uint8_t *high = exact_copy(data + cut * SPV_INDEX_ENTRY, (count - cut) * SPV_INDEX_ENTRY);
    uint8_t *joined = zeroed(count, SPV_INDEX_ENTRY);
    const spv_bytes parts[] = {{low, cut * SPV_INDEX_ENTRY}, {high, (count - cut) * SPV_INDEX_ENTRY}};
    const spv_status status = spv_join_indexes(parts, 2, joined);
    CHECK(status == (is_whole(low, cut) && is_whole(high, count - cut) ? SPV_OK : SPV_RANGE));
    if (!status)
        CHECK(is_whole(joined, count));
    for (size_t i = 0; i < count; i += 1 + count / 8) {
        spv_hash wanted = {0};
        const uint8_t *numbers;
        memcpy(wanted, data + i * SPV_INDEX_ENTRY, SPV_INDEX_KEY);
        const size_t found = spv_find_header(high, count - cut, wanted, &numbers);
        CHECK(numbers >= high + SPV_INDEX_KEY * (count - cut) && numbers + 2 * found <= high + SPV_INDEX_ENTRY * (count - cut));
    }
    release(low);
    release(high);
    release(joined);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < HEAD)
        return 0;
    const unsigned kind = (data[0] & 3) % 3;
    if (kind == FOREIGN) {
        check_foreign(data + HEAD, size - HEAD, data[1]);
        return 0;
    }
    const run run = make_run(data + HEAD, size - HEAD, data[0] & 64, data[1]);
    if (kind == INDEX)
        check_index(&run, data[1]);
    else
        check_rules(&run, data[0], data[1], data);
    release(run.headers);
    release(run.hashes);
    return 0;
}
