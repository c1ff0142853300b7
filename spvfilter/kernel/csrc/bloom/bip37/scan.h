/* The BIP-37 relevance test of blocks and transactions. The twins are bip37_scan_block and bip37_scan_tx in
   pure/blocks.py. */
#ifndef SPV_BLOOM_BIP37_SCAN_H
#define SPV_BLOOM_BIP37_SCAN_H

#include "spv.h"

enum { SPV_UPDATE_NONE = 0, SPV_UPDATE_ALL = 1, SPV_UPDATE_P2PUBKEY_ONLY = 2 };

/* A filter as a node has it. A scan updates `bits` as the node would, even if the scan fails later: pass a private
   copy. */
typedef struct {
    uint8_t *bits;
    size_t size; /* bytes; a filter of 0 bytes matches everything */
    uint32_t hash_funcs; /* a filter without functions matches everything */
    uint32_t tweak;
    int flags; /* SPV_UPDATE_…; anything else updates nothing */
} spv_bip37;

/* values.TxMatch. */
typedef struct {
    size_t start, end;
    uint32_t position;
    uint8_t txid[32];
} spv_tx_match;

/* Initialize with {0}. Free with spv_tx_matches_free, even after a failure. */
typedef struct {
    spv_tx_match *items;
    size_t count, room;
} spv_tx_matches;

void spv_tx_matches_free(spv_tx_matches *matches);

/* pure.blocks.bip37_scan_block: appends the matching transactions, in order. Returns SPV_OK, SPV_FORMAT or
   SPV_NOMEM. The matches are valid only with SPV_OK. */
spv_status spv_bip37_scan_block(const uint8_t *raw, size_t size, const spv_bip37 *filter, spv_tx_matches *matches, spv_error *error);

/* pure.bip37_scan_tx. */
spv_status spv_bip37_scan_tx(const uint8_t *raw, size_t size, const spv_bip37 *filter, bool *relevant, spv_error *error);

#endif
