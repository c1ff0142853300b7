/* Fuzz target: the BIP-37 scan against the plain one. The input is a filter, its elements, and a block or a
   transaction:

   u8   Kind. Bit 0: a single transaction. Bits 1-2: the update flags. Bit 3: the filter starts with all bytes
   `fill`.
   u8   Hash functions.
   u16  Size of the filter in bytes.
   u32  Tweak.
   u8   Fill.
   u8   Number of elements. Each has u24 offset and u8 length of its bytes in the block.
   The rest is the block or transaction. */
#include "oracle.h"
#include "oracle_bip37.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { HEAD = 10, MAX_FILTER = 36000 };

static void same_matches(const spv_tx_matches *matches, const spv_tx *txs, uint32_t count, const uint8_t *raw, const spv_bip37 *filter) {
    size_t at = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (!oracle_is_relevant(raw, txs + i, filter))
            continue;
        uint8_t txid[32];
        oracle_txid(raw, txs + i, txid);
        CHECK(at < matches->count);
        const spv_tx_match *match = matches->items + at++;
        CHECK(match->position == i && match->start == txs[i].start && match->end == txs[i].end);
        CHECK(!memcmp(match->txid, txid, 32));
    }
    CHECK(at == matches->count);
}

static void scan_block(const uint8_t *raw, size_t size, spv_bip37 *filter, const spv_bip37 *plain) {
    spv_tx_matches matches = {0};
    spv_error error, wanted;
    uint32_t count;
    spv_tx *txs = walk_whole_block(raw, size, &count, &wanted);
    spv_status status = spv_bip37_scan_block(raw, size, filter, &matches, &error);
    if (txs) {
        CHECK(!status);
        same_matches(&matches, txs, count, raw, plain);
        CHECK(!memcmp(filter->bits, plain->bits, filter->size));
    } else {
        check_refusal(status, &error, size);
        check_same_refusal(&error, &wanted);
    }
    spv_tx_matches_free(&matches);
    release(txs);
}

static void scan_tx(const uint8_t *raw, size_t size, spv_bip37 *filter, const spv_bip37 *plain) {
    spv_tx tx;
    spv_error error, wanted;
    bool relevant;
    spv_status parsed = spv_parse_tx(raw, size, &tx, &wanted);
    spv_status status = spv_bip37_scan_tx(raw, size, filter, &relevant, &error);
    CHECK(status == parsed);
    if (status) {
        check_same_refusal(&error, &wanted);
        return;
    }
    CHECK(relevant == oracle_is_relevant(raw, &tx, plain));
    CHECK(!memcmp(filter->bits, plain->bits, filter->size));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < HEAD)
        return 0;
    spv_bip37 filter = {.size = spv_le16(data + 2), .hash_funcs = data[1], .tweak = spv_le32(data + 4), .flags = data[0] >> 1 & 3};
    filter.size = filter.size > MAX_FILTER ? MAX_FILTER : filter.size;
    size_t picks = data[9], body = HEAD + 4 * picks;
    if (size < body)
        return 0;
    const uint8_t *raw = data + body;
    size_t raw_size = size - body;
    filter.bits = zeroed(filter.size, 1);
    if (data[0] & 8)
        memset(filter.bits, data[8], filter.size);
    for (const uint8_t *pick = data + HEAD; pick < raw; pick += 4) {
        size_t at = spv_le32(pick) & 0xFFFFFF, length = pick[3];
        if (at <= raw_size && length <= raw_size - at)
            oracle_bloom_insert(&filter, raw + at, length);
    }
    spv_bip37 plain = filter;
    plain.bits = exact_copy(filter.bits, filter.size);
    (data[0] & 1 ? scan_tx : scan_block)(raw, raw_size, &filter, &plain);
    release(filter.bits);
    release(plain.bits);
    return 0;
}
