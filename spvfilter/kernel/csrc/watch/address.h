/* Addresses to scriptPubKeys: what address.py accepts without doubt. What is refused here is for it to judge, and to name the error. */
#ifndef SPV_ADDRESS_H
#define SPV_ADDRESS_H

#include "watch/table.h"

enum { SPV_MAX_ADDRESS = 90 /* characters, BIP-173 */, SPV_MAX_HRP = 16, SPV_MAX_ADDRESS_SCRIPT = 42 };

/* The parameters of network.Network that addresses show. */
typedef struct {
    uint8_t p2pkh_version, p2sh_version;
    uint8_t hrp[SPV_MAX_HRP]; /* lower case */
    size_t hrp_size;          /* 0: no segwit addresses */
    uint32_t residue;         /* of the human-readable part, expanded: BIP-173 § Checksum */
} spv_address_network;

typedef struct {
    uint8_t bytes[SPV_MAX_ADDRESS_SCRIPT];
    size_t size;
} spv_script;

/* False for a human-readable part that is not of 0 to SPV_MAX_HRP lower-case letters. */
bool spv_address_network_init(spv_address_network *network, uint8_t p2pkh_version, uint8_t p2sh_version, spv_bytes hrp);
/* The script of a valid address, or false: not decided here. */
bool spv_decode_address(const spv_address_network *network, const uint8_t *text, size_t size, spv_script *script);

/* A label to give to an entry: bytes of UTF-8 without control characters, line ends or surrogates. */
typedef struct {
    const uint8_t *at;
    size_t size;
    uint32_t entry;
} spv_label;

typedef struct {
    spv_label *labels;
    size_t count, room;
    size_t lines;   /* taken, from the first one on */
    size_t consumed; /* bytes of these */
} spv_address_lines;

/* Adds the addresses of whole lines `address` or `address,label`, ended by LF or CRLF, up to the first line that is anything else: it
   and what follows are not touched. To be freed whatever the status; where that is not SPV_OK, the lines before were added. */
spv_status spv_add_address_lines(spv_table *table, const spv_address_network *network, spv_bytes chunk, spv_address_lines *taken);
void spv_address_lines_free(spv_address_lines *taken);

#endif
