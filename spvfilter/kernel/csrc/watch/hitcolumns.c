#include "watch/hitcolumns.h"

#include "watch/hex.h"
#include "watch/hitgroup.h"

/* In the order of the result. */
enum {
    KIND,
    BLOCK_HASH,
    HEIGHT,
    TIME,
    TXID,
    INDEX,
    OUTPOINT_TXID,
    OUTPOINT_INDEX,
    VALUE,
    SCRIPT,
    ADDRESS,
    LABEL,
    COINBASE,
    FEE
};

void spv_hit_table_init(spv_hit_table *of, bool is_binary) {
    static const uint8_t layouts[SPV_HIT_COLUMNS] = {
        [KIND] = SPV_TEXT, [BLOCK_HASH] = SPV_TEXT, [HEIGHT] = SPV_INT32, [TIME] = SPV_INT64, [TXID] = SPV_TEXT,
        [INDEX] = SPV_INT64, [OUTPOINT_TXID] = SPV_TEXT, [OUTPOINT_INDEX] = SPV_INT64, [VALUE] = SPV_INT64, [SCRIPT] = SPV_TEXT,
        [ADDRESS] = SPV_TEXT, [LABEL] = SPV_TEXT, [COINBASE] = SPV_BITS, [FEE] = SPV_INT64,
    };
    for (unsigned i = 0; i < SPV_HIT_COLUMNS; i++)
        of->columns[i].layout = (spv_layout)layouts[i];
    of->is_binary = is_binary;
    if (is_binary)
        of->columns[BLOCK_HASH].layout = of->columns[TXID].layout = of->columns[OUTPOINT_TXID].layout = SPV_HASH;
    of->columns[SCRIPT].is_hex = true;
}

/* A hash as its column has it: 32 bytes in display order, or digits. */
typedef struct {
    uint8_t bytes[SPV_HASH_DIGITS];
} shown_hash;

SPV_INLINE void show(const spv_hit_table *of, const uint8_t *hash, shown_hash *shown) {
    if (of->is_binary)
        spv_reverse(hash, shown->bytes);
    else
        spv_put_shown_hash(shown->bytes, hash);
}

SPV_INLINE spv_status put_shown(spv_column *column, const shown_hash *shown) {
    if (column->layout == SPV_HASH)
        return spv_put_hash(column, shown->bytes);
    return spv_put_bytes(column, (spv_bytes){shown->bytes, SPV_HASH_DIGITS});
}

SPV_INLINE void put_satoshi(spv_column *column, int64_t satoshi) {
    if (satoshi == SPV_NO_VALUE)
        spv_put_null(column);
    else
        spv_put_64(column, (uint64_t)satoshi);
}

/* Text that is not empty; empty text is no value. */
SPV_INLINE spv_status put_text(spv_column *column, spv_bytes text) {
    if (text.size)
        return spv_put_bytes(column, text);
    spv_put_null(column);
    return SPV_OK;
}

static spv_status put_address(spv_hit_table *of, const spv_packed_hit *hit, const uint8_t *digest) {
    uint8_t text[SPV_MAX_ADDRESS];
    const size_t size = spv_encode_address(&of->form, hit->script, digest, text);
    if (SPV_UNLIKELY(size > SPV_MAX_ADDRESS)) {
        of->unfit = size;
        return SPV_RANGE;
    }
    return put_text(&of->columns[ADDRESS], (spv_bytes){text, size});
}

static spv_status put_row(spv_hit_table *of, const spv_hit_block *block, const shown_hash *block_hash, const spv_packed_hit *hit,
                          const uint8_t *digest, spv_error *error) {
    spv_column *const columns = of->columns;
    shown_hash txid, source;
    spv_bytes label;
    spv_status status = spv_label_of(&of->labels, hit->entry, &label, error);
    if (status)
        return status;
    show(of, hit->txid, &txid);
    if (hit->spend)
        show(of, hit->outpoint, &source);
    const spv_bytes kind = hit->spend ? (spv_bytes){(const uint8_t *)"input", 5} : (spv_bytes){(const uint8_t *)"output", 6};
    if ((status = put_address(of, hit, digest)) || (status = spv_put_bytes(&columns[KIND], kind))
        || (status = put_shown(&columns[BLOCK_HASH], block_hash)) || (status = put_shown(&columns[TXID], &txid))
        || (status = put_shown(&columns[OUTPOINT_TXID], hit->spend ? &source : &txid))
        || (status = put_text(&columns[SCRIPT], hit->script)) || (status = put_text(&columns[LABEL], label)))
        return status;
    if (block->has_height)
        spv_put_32(&columns[HEIGHT], block->height);
    else
        spv_put_null(&columns[HEIGHT]);
    spv_put_64(&columns[TIME], 1000 * (uint64_t)block->time);
    spv_put_64(&columns[INDEX], hit->n);
    spv_put_64(&columns[OUTPOINT_INDEX], hit->spend ? spv_le32(hit->outpoint + 32) : hit->n);
    put_satoshi(&columns[VALUE], hit->value);
    spv_put_bit(&columns[COINBASE], !hit->position);
    put_satoshi(&columns[FEE], hit->fee);
    return SPV_OK;
}

spv_status spv_add_hit_rows(spv_hit_table *of, const spv_hit_block *block, spv_bytes packed, size_t *at, size_t until, spv_error *error) {
    shown_hash block_hash;
    show(of, block->hash, &block_hash);
    while (*at < packed.size && *at < until) {
        spv_hit_group taken;
        spv_status status = spv_take_group(&of->form, packed, at, until, &taken, error);
        for (unsigned i = 0; !status && i < SPV_HIT_COLUMNS; i++)
            status = spv_column_reserve(&of->columns[i], taken.count);
        for (size_t i = 0; !status && i < taken.count; i++) {
            if (of->skip)
                of->skip--;
            else if (of->left) {
                of->left--;
                status = put_row(of, block, &block_hash, &taken.hits[i], spv_digest_at(&taken, i), error);
            }
        }
        if (status)
            return status;
    }
    return SPV_OK;
}
