/* Testing one element against a BIP-37 filter. Internal to this folder. */
#ifndef SPV_BLOOM_BIP37_ELEMENT_H
#define SPV_BLOOM_BIP37_ELEMENT_H

#include "block/script.h"
#include "bloom/bip37/scan.h"
#include "hash/murmur3.h"

/* A filter ready to be tested. */
typedef struct {
    uint8_t *bits;
    spv_modulus modulus;
    uint32_t hash_funcs; /* also 0 if there are no bits */
    uint32_t tweak;
    int flags;
} spv_filter;

SPV_INLINE spv_filter spv_filter_of(const spv_bip37 *given) {
    spv_filter filter = {.bits = given->bits, .tweak = given->tweak, .flags = given->flags};
    if (given->size) { /* CVE-2013-5700: never divide by the size */
        filter.modulus = spv_modulus_of(8 * (uint64_t)given->size);
        filter.hash_funcs = given->hash_funcs;
    }
    return filter;
}

SPV_INLINE bool spv_bit(const spv_filter *filter, uint32_t bit) {
    return filter->bits[bit >> 3] >> (bit & 7) & 1;
}

SPV_INLINE uint32_t spv_seed(const spv_filter *filter, uint32_t function) { /* BIP-37 § Bloom filter format */
    return function * UINT32_C(0xFBA4C795) + filter->tweak;
}

/* BitCore.__contains__. *bit becomes one of the element's bits: a bit that is not set if the element is not
   contained, otherwise a set bit. Without functions it does not change. */
SPV_INLINE bool spv_filter_contains(const spv_filter *filter, const uint8_t *data, size_t size, uint32_t *bit) {
    for (uint32_t i = 0; i < filter->hash_funcs; i++) {
        *bit = spv_modulo(spv_murmur3_32(data, size, spv_seed(filter, i)), filter->modulus);
        if (!spv_bit(filter, *bit))
            return false;
    }
    return true;
}

/* Adds the outpoint of a matching output if the filter's flags require it. True if a bit was not set before. */
SPV_INLINE bool spv_filter_update(const spv_filter *filter, const uint8_t *script, size_t size, const uint8_t txid[32], uint32_t index) {
    bool wanted = filter->flags == SPV_UPDATE_ALL
        || (filter->flags == SPV_UPDATE_P2PUBKEY_ONLY && (spv_is_p2pk(script, size) || spv_multisig_keys(script, size, NULL)));
    uint8_t outpoint[36];
    bool news = false;
    memcpy(outpoint, txid, 32);
    spv_put_le32(outpoint + 32, index);
    for (uint32_t i = 0; wanted && i < filter->hash_funcs; i++) {
        uint32_t bit = spv_modulo(spv_murmur3_32(outpoint, sizeof outpoint, spv_seed(filter, i)), filter->modulus);
        news |= !spv_bit(filter, bit);
        filter->bits[bit >> 3] |= (uint8_t)(1 << (bit & 7));
    }
    return news;
}

#endif
