#include "block/walk.h"

#include <inttypes.h>
#include <stdlib.h>

spv_status spv_refuse_bytes(size_t size, size_t at, size_t wanted, const char *field, spv_error *error) {
    return spv_refuse(error, at, field, "truncated: expected %zu bytes, %zu left", wanted, size - at);
}

spv_status spv_refuse_count(size_t size, size_t at, size_t behind, uint64_t count, size_t least, const char *field, spv_error *error) {
    return spv_refuse(
        error, at, field, "truncated: %" PRIu64 " items of at least %zu bytes each, but only %zu bytes left", count, least, size - behind
    );
}

spv_status spv_refuse_script(
    size_t size, size_t at, uint64_t length, const char *field, const char *tail, size_t tail_length, spv_error *error
) {
    if (length > size - at)
        return spv_refuse(error, at, field, "truncated: expected %" PRIu64 " bytes, %zu left", length, size - at);
    return spv_refuse_bytes(size, at + (size_t)length, tail_length, tail, error);
}

spv_status spv_compact_size_slow(const uint8_t *raw, size_t size, size_t *at, uint64_t *value, const char *field, spv_error *error) {
    static const uint64_t least[] = {0xFD, 0x10000, 0x100000000};
    if (*at >= size)
        return spv_refuse(error, *at, field, "truncated: no byte left");
    uint8_t first = raw[*at];
    if (first < 0xFD) {
        *value = first;
        *at += 1;
        return SPV_OK;
    }
    size_t width = (size_t)1 << (first - 0xFC); /* fd → 2, fe → 4, ff → 8 */
    if (size - *at - 1 < width)
        return spv_refuse(error, *at, field, "truncated: CompactSize needs %zu more bytes", width);
    const uint8_t *bytes = raw + *at + 1;
    *value = width == 2 ? spv_le16(bytes) : width == 4 ? spv_le32(bytes) : spv_le64(bytes);
    if (*value < least[first - 0xFD])
        return spv_refuse(error, *at, field, "non-canonical CompactSize for %" PRIu64, *value);
    if (*value > SPV_MAX_COMPACT_SIZE)
        return spv_refuse(error, *at, field, "%" PRIu64 " is above the limit %d", *value, SPV_MAX_COMPACT_SIZE);
    *at += 1 + width;
    return SPV_OK;
}

spv_status spv_walk_witness(const uint8_t *raw, size_t size, size_t *at, uint32_t stacks, spv_error *error) {
    size_t cursor = *at;
    uint64_t items = 0, count, length;
    for (uint32_t stack = 0; stack < stacks; stack++) {
        spv_status status = spv_count(raw, size, &cursor, &count, 1, "witness item count", error);
        if (SPV_UNLIKELY(status))
            return status;
        items += count;
        for (uint64_t i = 0; i < count; i++) {
            status = spv_compact_size(raw, size, &cursor, &length, "witness item length", error);
            if (SPV_UNLIKELY(status))
                return status;
            if (SPV_UNLIKELY(length > size - cursor))
                return spv_refuse_script(size, cursor, length, "witness item", "", 0, error);
            cursor += (size_t)length;
        }
    }
    if (SPV_UNLIKELY(!items))
        return spv_refuse(error, *at, "witness", "superfluous witness record: every stack is empty");
    *at = cursor;
    return SPV_OK;
}

spv_status spv_walk_tx(const uint8_t *raw, size_t size, size_t at, spv_tx *tx, spv_error *error) {
    return spv_walk_tx_with(raw, size, at, tx, NULL, NULL, NULL, error);
}

spv_status spv_tx_end(size_t size, const spv_tx *tx, spv_error *error) {
    if (SPV_UNLIKELY(tx->end != size))
        return spv_refuse(error, tx->end, "transaction", "%zu trailing byte%s", size - tx->end, size - tx->end == 1 ? "" : "s");
    return SPV_OK;
}

spv_status spv_parse_tx(const uint8_t *raw, size_t size, spv_tx *tx, spv_error *error) {
    spv_status status = spv_walk_tx(raw, size, 0, tx, error);
    return status ? status : spv_tx_end(size, tx, error);
}

spv_status spv_block_start(const uint8_t *raw, size_t size, size_t *at, uint32_t *transactions, spv_error *error) {
    uint64_t count;
    if (SPV_UNLIKELY(size < SPV_HEADER_SIZE))
        return spv_refuse(error, 0, "header", "truncated: expected %d bytes, %zu left", SPV_HEADER_SIZE, size);
    *at = SPV_HEADER_SIZE;
    spv_status status = spv_count(raw, size, at, &count, SPV_MIN_TX_SIZE, "transaction count", error);
    if (SPV_UNLIKELY(status))
        return status;
    if (SPV_UNLIKELY(!count))
        return spv_refuse(error, SPV_HEADER_SIZE, "transaction count", "a block must contain at least its coinbase");
    *transactions = (uint32_t)count;
    return SPV_OK;
}

spv_status spv_block_end(size_t size, size_t at, spv_error *error) {
    if (SPV_UNLIKELY(at != size))
        return spv_refuse(error, at, "block", "%zu trailing byte%s", size - at, size - at == 1 ? "" : "s");
    return SPV_OK;
}

spv_status spv_block_places(const uint8_t *raw, size_t size, size_t **places, uint32_t *transactions, spv_error *error) {
    size_t at, *found = *places = NULL;
    spv_status status = spv_block_start(raw, size, &at, transactions, error); /* fails if the bytes cannot hold the transactions */
    if (status)
        return status;
    *places = found = malloc(((size_t)*transactions + 1) * sizeof *found);
    if (!found)
        return SPV_NOMEM;
    for (uint32_t i = 0; i < *transactions; i++) {
        spv_tx tx;
        status = spv_walk_tx(raw, size, at, &tx, error);
        if (status)
            return status;
        found[i] = at;
        at = tx.end;
    }
    found[*transactions] = at;
    return spv_block_end(size, at, error);
}

/* True if each output of a walked transaction and their sum are from 0 to SPV_MAX_MONEY. */
static bool are_amounts(const uint8_t *raw, const spv_tx *tx) {
    uint64_t total = 0;
    size_t at = tx->outputs_at;
    for (uint32_t i = 0; i < tx->outputs; i++) {
        const uint64_t value = spv_le64(raw + spv_next_output(raw, &at).at); /* a negative value is above 2^63 */
        if (value > SPV_MAX_MONEY || total + value > SPV_MAX_MONEY)
            return false;
        total += value;
    }
    return true;
}

spv_status spv_check_amounts(const uint8_t *raw, size_t size, spv_error *error) {
    size_t at;
    uint32_t count;
    spv_status status = spv_block_start(raw, size, &at, &count, error);
    if (status)
        return status;
    for (uint32_t i = 0; i < count; i++) {
        spv_tx tx;
        status = spv_walk_tx(raw, size, at, &tx, error);
        if (status)
            return status;
        if (!are_amounts(raw, &tx))
            return spv_refuse(error, at, "output values", "must be from 0 to %" PRIu64 " satoshi", SPV_MAX_MONEY);
        at = tx.end;
    }
    return spv_block_end(size, at, error);
}
