/* The BIP-37 relevance test of blocks and transactions; the twin of pure/blocks.py's bip37_scan_block and bip37_scan_tx. */
#ifndef SPV_BLOOM_BIP37_SCAN_H
#define SPV_BLOOM_BIP37_SCAN_H

#include "spv.h"

enum { SPV_UPDATE_NONE = 0, SPV_UPDATE_ALL = 1, SPV_UPDATE_P2PUBKEY_ONLY = 2 };

/* A filter as a node holds it. A scan writes into `bits` as the node would, even if it fails later: give it a private copy. */
typedef struct {
    uint8_t *bits;
    size_t size; /* bytes; 0 matches everything */
    uint32_t hash_funcs; /* 0 matches everything */
    uint32_t tweak;
    int flags; /* SPV_UPDATE_…; anything else updates nothing */
} spv_bip37;

/* values.TxMatch. */
typedef struct {
    size_t start, end;
    uint32_t position;
    uint8_t txid[32];
} spv_tx_match;

/* Start with {0}; free with spv_tx_matches_free, also after a failure. */
typedef struct {
    spv_tx_match *items;
    size_t count, room;
} spv_tx_matches;

void spv_tx_matches_free(spv_tx_matches *matches);

/* pure.bip37_scan_block: appends the matching transactions, in order. SPV_OK, SPV_FORMAT or SPV_NOMEM; only SPV_OK makes them valid. */
spv_status spv_bip37_scan_block(const uint8_t *raw, size_t size, const spv_bip37 *filter, spv_tx_matches *matches, spv_error *error);

/* pure.bip37_scan_tx. */
spv_status spv_bip37_scan_tx(const uint8_t *raw, size_t size, const spv_bip37 *filter, bool *relevant, spv_error *error);

#endif
