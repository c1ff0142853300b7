/* Fuzz target: packed hits, read, summed and rendered as lines and columns, against a plain reading, sums in 128
   bits and lines of printf. The input:

   u8   Bit 0: JSON, otherwise CSV. Bit 1: labels. Bit 2: a network without segwit. Bit 3: no height. The rest: how
   to cut the bytes.
   The rest is the packed hits. */
#include "oracle_address.h"
#include "watch/hitcolumns.h"
#include "watch/render.h"

#include <inttypes.h>
#include <stdarg.h>
#include <time.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST_HITS = 300 };

typedef struct {
    uint64_t position, n, entry, script_size, outpoint_n;
    int64_t value, fee;
    const uint8_t *txid, *outpoint, *script; /* the last one is NULL if there is none */
    size_t start;
    bool spend;
} plain_hit;

static uint64_t number(const uint8_t *at, size_t width) {
    uint64_t value = 0;
    for (size_t i = 0; i < width; i++)
        value += (uint64_t)at[i] << 8 * i;
    return value;
}

/* Reads the hits before the first malformed one and returns its field. Returns NULL if all are well formed. */
static const char *plain_read(const uint8_t *data, size_t size, plain_hit *hits, size_t *count, size_t *bad) {
    size_t at = 0;
    for (*count = 0; at < size; (*count)++) {
        plain_hit *hit = hits + *count;
        *bad = at;
        if (size - at < 65)
            return "hit";
        hit->start = at;
        hit->position = number(data + at, 4);
        hit->n = number(data + at + 4, 4);
        hit->entry = number(data + at + 8, 4);
        hit->script_size = number(data + at + 12, 4);
        hit->value = (int64_t)number(data + at + 16, 8);
        hit->fee = (int64_t)number(data + at + 24, 8);
        if (*bad = at + 8, hit->entry > INT32_MAX - 1)
            return "entry";
        if (*bad = at + 16, hit->value < -1)
            return "value";
        if (*bad = at + 24, hit->fee < -1)
            return "fee";
        if (*bad = at + 32, data[at + 32] > 1)
            return "spend";
        hit->spend = data[at + 32];
        hit->txid = hit->outpoint = data + at + 33;
        hit->outpoint_n = hit->n;
        *bad = at += 65;
        if (hit->spend) {
            if (size - at < 36)
                return "outpoint";
            hit->outpoint = data + at;
            hit->outpoint_n = number(data + at + 32, 4);
            *bad = at += 36;
        }
        hit->script = NULL;
        if (hit->script_size != UINT32_MAX) {
            if (size - at < hit->script_size)
                return "script";
            hit->script = data + at;
            at += hit->script_size;
        }
    }
    return NULL;
}

static void check_read(spv_bytes packed, const plain_hit *hits, size_t count, const char *field, size_t bad) {
    size_t at = 0;
    spv_packed_hit hit;
    spv_error error;
    for (size_t i = 0; i < count; i++) {
        CHECK(at == hits[i].start && !spv_next_hit(packed, &at, &hit, &error));
        CHECK(hit.position == hits[i].position && hit.n == hits[i].n && hit.entry == hits[i].entry && hit.value == hits[i].value);
        CHECK(hit.fee == hits[i].fee && hit.spend == hits[i].spend && hit.txid == hits[i].txid && hit.script.data == hits[i].script);
        CHECK(hit.spend ? hit.outpoint == hits[i].outpoint : !hit.outpoint);
        CHECK(!hit.script.data || hit.script.size == hits[i].script_size);
        const size_t size = spv_packed_size(&hit);
        uint8_t *again = zeroed(size, 1);
        CHECK(spv_put_hit(again, &hit) == again + size && at == hits[i].start + size && same(again, packed.data + hits[i].start, size));
        release(again);
    }
    if (!field) {
        CHECK(at == packed.size);
        return;
    }
    const spv_status status = spv_next_hit(packed, &at, &hit, &error);
    check_refusal(status, &error, packed.size);
    CHECK(error.offset == bad && !strcmp(error.field, field));
}

static void check_sums(spv_bytes packed, const plain_hit *hits, size_t count, const char *field, size_t bad, size_t step) {
    __extension__ typedef unsigned __int128 wide;
    size_t good = 0, entries = 0;
    for (; good < count; good++) { /* up to the first sum that is too large */
        wide sum = 0;
        for (size_t i = 0; i <= good; i++)
            if (hits[i].entry == hits[good].entry && hits[i].spend == hits[good].spend && hits[i].value >= 0)
                sum = sum + (uint64_t)hits[i].value;
        if (hits[good].value >= 0 && sum > UINT64_MAX)
            break;
    }
    spv_sums sums;
    spv_error error;
    spv_status status = SPV_OK;
    spv_sums_init(&sums);
    for (size_t at = 0; at < packed.size && !status;)
        status = spv_add_hits(&sums, packed, &at, at + step, &error);
    if (good < count || field) {
        check_refusal(status, &error, packed.size);
        CHECK(error.offset == (good < count ? hits[good].start + 16 : bad) && !strcmp(error.field, good < count ? "value" : field));
        spv_sums_free(&sums);
        return;
    }
    CHECK(!status);
    spv_sort_sums(&sums);
    for (size_t i = 0; i < count; i++) {
        bool first = true;
        uint64_t matches = 0, received = 0, spent = 0, unknown = 0, below = 0;
        for (size_t j = 0; j < count; j++) {
            bool again = false;
            for (size_t k = 0; k < j; k++)
                again |= hits[k].entry == hits[j].entry;
            below += !again && hits[j].entry < hits[i].entry;
            if (hits[j].entry != hits[i].entry)
                continue;
            first &= j >= i;
            matches++;
            if (hits[j].value < 0)
                unknown++;
            else
                *(hits[j].spend ? &spent : &received) += (uint64_t)hits[j].value;
        }
        if (!first)
            continue;
        entries++;
        CHECK(below < sums.entries.count);
        const spv_sum *sum = &sums.sums[below];
        CHECK(sum->entry == hits[i].entry && sum->matches == matches && sum->received == received && sum->spent == spent && sum->unknown == unknown);
    }
    CHECK(entries == sums.entries.count);
    spv_sums_free(&sums);
}

/* lines */

typedef struct {
    char *text;
    size_t size, room;
} page;

__attribute__((format(printf, 2, 3))) static void print(page *to, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    const int size = vsnprintf(to->text + to->size, to->room - to->size, format, arguments);
    va_end(arguments);
    CHECK(size >= 0 && (size_t)size < to->room - to->size);
    to->size += (size_t)size;
}

static void print_hash(page *to, const uint8_t *hash) {
    for (size_t i = 32; i--;)
        print(to, "%02x", hash[i]);
}

static void print_satoshi(page *to, int64_t value, const char *unknown) {
    if (value < 0)
        print(to, "%s", unknown);
    else
        print(to, "%" PRId64, value);
}

/* The label of every third entry, of as many letters. */
enum { LABELLED = 256, MOST_LABEL = 50 };

static size_t label_size(uint64_t entry) {
    return entry % 3 || entry >= LABELLED ? 0 : entry % MOST_LABEL;
}

static void print_utc(page *to, uint32_t time) {
    const time_t seconds = time;
    char text[sizeof "2024-01-31T00:00:00Z,"];
    CHECK(strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ,", gmtime(&seconds)) == sizeof text - 1);
    print(to, "%s", text);
}

static void print_line(page *to, const spv_block_lines *of, const plain_hit *hit, const char *hrp) {
    const bool json = of->form == SPV_JSON_LINES;
    const char *const unknown = json ? "null" : "", *const quote = json ? "\"" : "";
    char address[LONGEST_TEXT];
    const size_t length = hit->script ? plain_address(111, 196, hrp, hit->script, hit->script_size, address) : 0;
    print(to, json ? "{\"kind\":\"%s\",\"block_hash\":\"" : "%s,", hit->spend ? "input" : "output");
    print_hash(to, of->block.hash);
    print(to, json ? "\",\"height\":" : ",");
    print_satoshi(to, of->block.has_height ? (int64_t)of->block.height : -1, unknown);
    print(to, json ? ",\"time\":%" PRIu32 ",\"txid\":\"" : ",%" PRIu32 ",", of->block.time);
    if (!json)
        print_utc(to, of->block.time);
    print_hash(to, hit->txid);
    print(to, json ? "\",\"index\":%" PRIu64 ",\"outpoint_txid\":\"" : ",%" PRIu64 ",", hit->n);
    print_hash(to, hit->outpoint);
    print(to, json ? "\",\"outpoint_index\":%" PRIu64 ",\"value\":" : ",%" PRIu64 ",", hit->outpoint_n);
    print_satoshi(to, hit->value, unknown);
    print(to, json ? ",\"script_pubkey\":%s" : ",%s", hit->script ? quote : unknown);
    for (size_t i = 0; hit->script && i < hit->script_size; i++)
        print(to, "%02x", hit->script[i]);
    print(to, json ? "%s,\"address\":" : "%s,", hit->script ? quote : "");
    print(to, length ? "%s%.*s%s" : "%s", length ? quote : unknown, (int)length, address, quote);
    print(to, json ? ",\"label\":" : ",");
    const size_t label = of->labels.places.size ? label_size(hit->entry) : 0;
    for (size_t i = 0; i < label; i++)
        print(to, "%c", (char)('a' + hit->entry % 26));
    print(to, "%s", label ? "" : unknown);
    print(to, json ? ",\"coinbase\":%s,\"fee\":" : ",%s,", hit->position ? "false" : "true");
    print_satoshi(to, hit->fee, unknown);
    print(to, json ? "}\n" : "\n");
}

/* columns: printed as lines, they equal the lines of the plain reading */

static bool has_value(const spv_column *column, size_t row) {
    CHECK(row < column->rows);
    return column->validity[row / 8] >> row % 8 & 1;
}

static void print_text(page *to, const spv_column *column, size_t row) {
    const size_t start = number(column->offsets + 4 * row, 4), end = number(column->offsets + 4 * row + 4, 4);
    CHECK(start <= end && end <= column->size && (has_value(column, row) ? start < end : start == end));
    if (start < end)
        print(to, "%.*s", (int)(end - start), (const char *)column->data + start);
    print(to, ",");
}

static void print_number(page *to, const spv_column *column, size_t row, size_t width, const char *end) {
    if (has_value(column, row))
        print(to, "%" PRIu64, number(column->data + width * row, width));
    print(to, "%s", end);
}

static void print_row(page *to, const spv_column *c, size_t row) {
    for (size_t i = 0; i < 2; i++)
        print_text(to, c + i, row);
    print_number(to, c + 2, row, 4, ",");
    CHECK(has_value(c + 3, row) && number(c[3].data + 8 * row, 8) % 1000 == 0);
    print(to, "%" PRIu64 ",", number(c[3].data + 8 * row, 8) / 1000);
    print_utc(to, (uint32_t)(number(c[3].data + 8 * row, 8) / 1000));
    print_text(to, c + 4, row);
    print_number(to, c + 5, row, 8, ",");
    print_text(to, c + 6, row);
    print_number(to, c + 7, row, 8, ",");
    print_number(to, c + 8, row, 8, ",");
    for (size_t i = 9; i < 12; i++)
        print_text(to, c + i, row);
    CHECK(has_value(c + 12, row));
    print(to, "%s,", c[12].data[row / 8] >> row % 8 & 1 ? "true" : "false");
    print_number(to, c + 13, row, 8, "\n");
}

static void check_columns(unsigned how, spv_bytes packed, const spv_block_lines *lines, const plain_hit *hits, size_t count, size_t step) {
    const spv_block_lines plain = {.form = SPV_CSV, .block = lines->block, .labels = lines->labels};
    const size_t skip = how & 32 ? how * 3u % (count + 1) : 0, most = how & 64 ? how % 5u : count;
    const size_t rows = count - skip < most ? count - skip : most;
    spv_hit_table table = {.labels = lines->labels, .form = lines->network, .skip = skip, .left = most};
    spv_error error;
    spv_status status = SPV_OK;
    spv_hit_table_init(&table, false);
    for (size_t at = 0; at < packed.size && !status;)
        status = spv_add_hit_rows(&table, &lines->block, packed, &at, at + step, &error);
    CHECK(!status);
    page expected = {.room = 1 + rows * 1000 + 2 * packed.size}, found = expected;
    expected.text = zeroed(expected.room, 1);
    found.text = zeroed(found.room, 1);
    for (size_t i = 0; i < rows; i++) {
        print_line(&expected, &plain, hits + skip + i, how & 4 ? "" : "tb");
        print_row(&found, table.columns, i);
    }
    CHECK(expected.size == found.size && same(expected.text, found.text, found.size));
    for (size_t i = 0; i < SPV_HIT_COLUMNS; i++) {
        CHECK(table.columns[i].rows == rows);
        spv_column_free(&table.columns[i]);
    }
    release(expected.text);
    release(found.text);
}

static void check_lines(unsigned how, spv_bytes packed, const plain_hit *hits, size_t count, const char *field, size_t step) {
    spv_error error;
    spv_status status = SPV_OK;
    spv_hits_read read = {0};
    size_t unfit = 0;
    for (size_t at = 0; at < packed.size && !status;)
        status = spv_read_hits(&read, packed, &at, at + step, &error);
    CHECK(!status == !field);
    const char *hrp = how & 4 ? "" : "tb";
    spv_block_lines lines = {.form = how & 1 ? SPV_JSON_LINES : SPV_CSV};
    lines.block = (spv_hit_block){.has_height = !(how & 8), .height = 800000 + how, .time = UINT32_MAX - how};
    for (size_t i = 0; i < sizeof lines.block.hash; i++)
        lines.block.hash[i] = (uint8_t)(i * how);
    spv_address_form_init(&lines.network, 111, 196, (spv_bytes){(const uint8_t *)hrp, strlen(hrp)});
    /* one text of each letter; the first LABELLED entries have labels */
    uint8_t *places = zeroed(LABELLED, 8), *texts = zeroed(LABELLED, 4 + MOST_LABEL);
    size_t end = 0;
    for (uint32_t entry = 0; entry < LABELLED; entry++) {
        const uint32_t place = (uint32_t)end, size = (uint32_t)label_size(entry);
        memcpy(places + 8 * entry, &entry, sizeof entry);
        memcpy(places + 8 * entry + 4, &place, sizeof place);
        memcpy(texts + end, &size, sizeof size);
        memset(texts + end + 4, 'a' + (int)(entry % 26), size);
        end += 4 + size;
    }
    uint8_t *exact = exact_copy(texts, end);
    if (how & 2)
        lines.labels = (spv_labels){{places, 8 * LABELLED}, {exact, end}};
    spv_text text = {0};
    status = SPV_OK;
    if (how & 16)
        CHECK(spv_text_reserve(&text, packed, count));
    for (size_t at = 0; at < packed.size && !status && !field;)
        status = spv_render_hits(&lines, packed, &at, at + step, &text, &unfit, &error);
    CHECK(!status && !unfit && text.size <= text.room);
    if (!field) {
        CHECK(read.count == count);
        page page = {.room = 1 + count * 1000 + 2 * packed.size};
        page.text = zeroed(page.room, 1);
        for (size_t i = 0; i < count; i++)
            print_line(&page, &lines, hits + i, hrp);
        CHECK(page.size == text.size && same(page.text, text.data, text.size));
        check_columns(how, packed, &lines, hits, count, step);
        release(page.text);
    }
    release(places);
    release(texts);
    release(exact);
    free(text.data);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!size || size > MOST_HITS * 65)
        return 0;
    uint8_t *exact = exact_copy(data + 1, size - 1);
    const spv_bytes packed = {exact, size - 1};
    plain_hit *hits = zeroed(MOST_HITS + 1, sizeof *hits);
    size_t count, bad = 0;
    const char *field = plain_read(exact, size - 1, hits, &count, &bad);
    const size_t step = data[0] & 0x80 ? 1 + data[0] * 7u % 500 : size;
    check_read(packed, hits, count, field, bad);
    check_sums(packed, hits, count, field, bad, step);
    check_lines(data[0], packed, hits, count, field, step);
    release(hits);
    release(exact);
    return 0;
}
