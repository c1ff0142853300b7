/* Walking serialized transactions and blocks within their bounds. The twin is pure/blocks.py: walk_tx, parse_tx,
   walk_block, block_txs and check_amounts. */
#ifndef SPV_BLOCK_WALK_H
#define SPV_BLOCK_WALK_H

#include "spv.h"

enum {
    SPV_HEADER_SIZE = 80,
    SPV_MIN_INPUT_SIZE = 41,  /* bytes: outpoint 36, script length 1, sequence 4 */
    SPV_MIN_OUTPUT_SIZE = 9,  /* bytes: value 8, script length 1 */
    SPV_MIN_TX_SIZE = 10,     /* bytes: version 4, two empty counts, lock time 4 */
    SPV_MAX_COMPACT_SIZE = 0x02000000 /* Core serialize.h MAX_SIZE */
};

/* The parts of a transaction, as absolute offsets. With them the transaction can be walked again without checks. */
typedef struct {
    size_t start, end;
    size_t inputs_at;  /* offset of the first input's outpoint */
    size_t outputs_at; /* offset of the first output's value */
    size_t witness;    /* offset of the witness stacks; 0 in a transaction without witness */
    uint32_t inputs, outputs;
} spv_tx;

#define SPV_MAX_MONEY UINT64_C(2100000000000000) /* satoshi, protocol.MAX_MONEY */

typedef void spv_on_input(void *context, const uint8_t *raw, size_t outpoint_at, size_t script, size_t script_end);
typedef void spv_on_output(void *context, const uint8_t *raw, size_t value_at, size_t script, size_t script_end);

/* The slow path of a CompactSize: all forms of more than one byte, and every error. */
spv_status spv_compact_size_slow(const uint8_t *raw, size_t size, size_t *at, uint64_t *value, const char *field, spv_error *error);
SPV_COLD spv_status spv_refuse_count(size_t size, size_t at, size_t behind, uint64_t count, size_t least, const char *field, spv_error *error);
SPV_COLD spv_status spv_refuse_bytes(size_t size, size_t at, size_t wanted, const char *field, spv_error *error);
SPV_COLD spv_status spv_refuse_script(size_t size, size_t at, uint64_t length, const char *field, const char *tail, size_t tail_length, spv_error *error);

/* primitives.read_compact_size: reads the value at *at and moves *at past it. */
SPV_INLINE spv_status spv_compact_size(const uint8_t *raw, size_t size, size_t *at, uint64_t *value, const char *field, spv_error *error) {
    if (SPV_LIKELY(*at < size && raw[*at] < 0xFD)) {
        *value = raw[(*at)++];
        return SPV_OK;
    }
    return spv_compact_size_slow(raw, size, at, value, field, error);
}

/* pure.blocks._read_count: reads a count of items of at least `least` bytes each. Fails if the rest cannot hold
   them. */
SPV_INLINE spv_status spv_count(const uint8_t *raw, size_t size, size_t *at, uint64_t *count, size_t least, const char *field, spv_error *error) {
    size_t start = *at;
    spv_status status = spv_compact_size(raw, size, at, count, field, error);
    if (SPV_UNLIKELY(status))
        return status;
    if (SPV_UNLIKELY(*count * least > size - *at)) /* both below 2^32: no overflow */
        return spv_refuse_count(size, start, *at, *count, least, field, error);
    return SPV_OK;
}

SPV_INLINE spv_status spv_walk_inputs_with(const uint8_t *raw, size_t size, size_t *at, spv_tx *tx, spv_on_input *on_input, void *context, spv_error *error) {
    uint64_t count, length;
    spv_status status = spv_count(raw, size, at, &count, SPV_MIN_INPUT_SIZE, "input count", error);
    if (SPV_UNLIKELY(status))
        return status;
    size_t cursor = *at;
    tx->inputs = (uint32_t)count;
    tx->inputs_at = cursor;
    for (uint64_t i = 0; i < count; i++) {
        size_t outpoint = cursor;
        if (SPV_UNLIKELY(size - outpoint < 36))
            return spv_refuse_bytes(size, outpoint, 36, "outpoint", error);
        cursor += 36;
        status = spv_compact_size(raw, size, &cursor, &length, "scriptSig length", error);
        if (SPV_UNLIKELY(status))
            return status;
        if (SPV_UNLIKELY(length + 4 > size - cursor))
            return spv_refuse_script(size, cursor, length, "scriptSig", "sequence", 4, error);
        if (on_input)
            on_input(context, raw, outpoint, cursor, cursor + (size_t)length);
        cursor += (size_t)length + 4;
    }
    *at = cursor;
    return SPV_OK;
}

SPV_INLINE spv_status spv_walk_outputs_with(const uint8_t *raw, size_t size, size_t *at, spv_tx *tx, spv_on_output *on_output, void *context, spv_error *error) {
    uint64_t count, length;
    spv_status status = spv_count(raw, size, at, &count, SPV_MIN_OUTPUT_SIZE, "output count", error);
    if (SPV_UNLIKELY(status))
        return status;
    size_t cursor = *at;
    tx->outputs = (uint32_t)count;
    tx->outputs_at = cursor;
    for (uint64_t i = 0; i < count; i++) {
        size_t value = cursor;
        if (SPV_UNLIKELY(size - value < 8))
            return spv_refuse_bytes(size, value, 8, "value", error);
        cursor += 8;
        status = spv_compact_size(raw, size, &cursor, &length, "scriptPubKey length", error);
        if (SPV_UNLIKELY(status))
            return status;
        if (SPV_UNLIKELY(length > size - cursor))
            return spv_refuse_script(size, cursor, length, "scriptPubKey", "", 0, error);
        if (on_output)
            on_output(context, raw, value, cursor, cursor + (size_t)length);
        cursor += (size_t)length;
    }
    *at = cursor;
    return SPV_OK;
}

/* pure.blocks._walk_witness: walks the stacks of `count` inputs. */
spv_status spv_walk_witness(const uint8_t *raw, size_t size, size_t *at, uint32_t count, spv_error *error);

/* pure.blocks.walk_tx, with a call for each input and output, in order. Either function may be NULL. The compiler
   inlines constant functions. If the status is not SPV_OK, ignore the calls. */
SPV_INLINE spv_status spv_walk_tx_with(
    const uint8_t *raw, size_t size, size_t at, spv_tx *tx, spv_on_input *on_input, spv_on_output *on_output, void *context, spv_error *error
) {
    spv_status status;
    if (SPV_UNLIKELY(size - at < 4)) /* at ≤ size */
        return spv_refuse_bytes(size, at, 4, "version", error);
    size_t cursor = at + 4;
    uint8_t flag = 0;
    tx->start = at;
    tx->outputs = 0;
    status = spv_walk_inputs_with(raw, size, &cursor, tx, on_input, context, error);
    if (SPV_UNLIKELY(status))
        return status;
    if (!tx->inputs) {
        if (SPV_UNLIKELY(cursor >= size))
            return spv_refuse(error, cursor, "segwit flag", "truncated: no byte left");
        flag = raw[cursor];
        if (SPV_UNLIKELY(flag & ~1))
            return spv_refuse(error, cursor, "segwit flag", "unknown segwit flag 0x%02x", flag);
        cursor++;
        if (SPV_LIKELY(flag)) {
            status = spv_walk_inputs_with(raw, size, &cursor, tx, on_input, context, error);
            if (SPV_UNLIKELY(status))
                return status;
        }
    }
    tx->outputs_at = cursor;
    /* Without inputs and with flag 0, that byte was the empty output count. Core parses such a transaction, although
       consensus rejects it. */
    if (SPV_LIKELY(tx->inputs || flag)) {
        status = spv_walk_outputs_with(raw, size, &cursor, tx, on_output, context, error);
        if (SPV_UNLIKELY(status))
            return status;
    }
    tx->witness = 0;
    if (flag) {
        tx->witness = cursor;
        status = spv_walk_witness(raw, size, &cursor, tx->inputs, error);
        if (SPV_UNLIKELY(status))
            return status;
    }
    if (SPV_UNLIKELY(size - cursor < 4))
        return spv_refuse_bytes(size, cursor, 4, "lock time", error);
    tx->end = cursor + 4;
    return SPV_OK;
}

/* pure.blocks.walk_tx: the transaction that starts at byte `at` ≤ size. */
spv_status spv_walk_tx(const uint8_t *raw, size_t size, size_t at, spv_tx *tx, spv_error *error);
/* pure.blocks.parse_tx: the transaction that fills the bytes. */
spv_status spv_parse_tx(const uint8_t *raw, size_t size, spv_tx *tx, spv_error *error);
/* The start of pure.blocks.walk_block: the number of transactions, at least 1, and the offset of the first one. */
spv_status spv_block_start(const uint8_t *raw, size_t size, size_t *at, uint32_t *transactions, spv_error *error);
/* The end of pure.blocks.walk_block: fails if bytes follow the last transaction. */
spv_status spv_block_end(size_t size, size_t at, spv_error *error);
/* pure.blocks.block_txs: the offsets of all transactions, and the offset after the last one. The caller frees them, also
   after a failure. */
spv_status spv_block_places(const uint8_t *raw, size_t size, size_t **places, uint32_t *transactions, spv_error *error);
/* pure.blocks.check_amounts. */
spv_status spv_check_amounts(const uint8_t *raw, size_t size, spv_error *error);
/* The end of pure.blocks.parse_tx, for callers of spv_walk_tx_with. */
spv_status spv_tx_end(size_t size, const spv_tx *tx, spv_error *error);

/* The inputs and outputs of a transaction that was walked before, one at a time and without checks. *at moves to the
   next item. */
typedef struct {
    size_t at;             /* offset of the outpoint or of the value */
    size_t script, script_end;
} spv_item;

SPV_INLINE size_t spv_checked_length(const uint8_t *raw, size_t *at) {
    uint8_t first = raw[*at];
    size_t length = first;
    *at += 1;
    if (SPV_UNLIKELY(first >= 0xFD)) { /* forms of 9 bytes are above SPV_MAX_COMPACT_SIZE and never get here */
        length = first == 0xFD ? spv_le16(raw + *at) : spv_le32(raw + *at);
        *at += first == 0xFD ? 2 : 4;
    }
    return length;
}

SPV_INLINE spv_item spv_next_input(const uint8_t *raw, size_t *at) {
    spv_item item = {.at = *at};
    *at += 36;
    size_t length = spv_checked_length(raw, at);
    item.script = *at;
    item.script_end = *at + length;
    *at = item.script_end + 4;
    return item;
}

SPV_INLINE spv_item spv_next_output(const uint8_t *raw, size_t *at) {
    spv_item item = {.at = *at};
    *at += 8;
    size_t length = spv_checked_length(raw, at);
    item.script = *at;
    item.script_end = *at + length;
    *at = item.script_end;
    return item;
}

#endif
