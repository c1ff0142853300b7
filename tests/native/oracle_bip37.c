#include "oracle_bip37.h"

#include "oracle.h"
#include "oracle_script.h"

static uint32_t position(const spv_bip37 *filter, uint32_t function, const uint8_t *data, size_t size) {
    return oracle_murmur3(data, size, function * 0xFBA4C795 + filter->tweak) % (uint32_t)(filter->size * 8);
}

bool oracle_bloom_contains(const spv_bip37 *filter, const uint8_t *data, size_t size) {
    for (uint32_t i = 0; filter->size && i < filter->hash_funcs; i++) {
        uint32_t at = position(filter, i, data, size);
        if (!(filter->bits[at / 8] >> at % 8 & 1))
            return false;
    }
    return true;
}

void oracle_bloom_insert(const spv_bip37 *filter, const uint8_t *data, size_t size) {
    for (uint32_t i = 0; filter->size && i < filter->hash_funcs; i++) {
        uint32_t at = position(filter, i, data, size);
        filter->bits[at / 8] |= (uint8_t)(1 << at % 8);
    }
}

static bool any_push_in(const spv_bip37 *filter, const uint8_t *script, size_t size) {
    plain_operation operation;
    for (size_t at = 0; plain_next((spv_bytes){script, size}, at, &operation); at = operation.end)
        if (operation.data.size && oracle_bloom_contains(filter, operation.data.data, operation.data.size))
            return true;
    return false;
}

/* Core bloom.cpp CBloomFilter::IsRelevantAndUpdate. */
bool oracle_is_relevant(const uint8_t *raw, const spv_tx *tx, const spv_bip37 *filter) {
    uint8_t outpoint[36];
    if (!filter->size)
        return true;
    oracle_txid(raw, tx, outpoint);
    bool found = oracle_bloom_contains(filter, outpoint, 32);
    size_t at = tx->outputs_at;
    for (uint32_t n = 0; n < tx->outputs; n++) {
        spv_item output = spv_next_output(raw, &at);
        const uint8_t *script = raw + output.script;
        size_t size = output.script_end - output.script;
        if (!any_push_in(filter, script, size))
            continue;
        found = true;
        spv_bytes of[SPV_MAX_MULTISIG_KEYS];
        bool keys = plain_is_p2pk((spv_bytes){script, size}) || plain_multisig_keys((spv_bytes){script, size}, of);
        if (filter->flags == SPV_UPDATE_ALL || (filter->flags == SPV_UPDATE_P2PUBKEY_ONLY && keys)) {
            spv_put_le32(outpoint + 32, n);
            oracle_bloom_insert(filter, outpoint, sizeof outpoint);
        }
    }
    at = tx->inputs_at;
    for (uint32_t n = 0; !found && n < tx->inputs; n++) {
        spv_item input = spv_next_input(raw, &at);
        found = oracle_bloom_contains(filter, raw + input.at, 36) || any_push_in(filter, raw + input.script, input.script_end - input.script);
    }
    return found;
}
