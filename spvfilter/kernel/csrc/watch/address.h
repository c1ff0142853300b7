/* Addresses to scriptPubKeys and back: base58check, bech32 and bech32m. To decode, false means refused, for any reason; address.py then
   raises the error. */
#ifndef SPV_WATCH_ADDRESS_H
#define SPV_WATCH_ADDRESS_H

#include "spv.h"

enum { SPV_MAX_ADDRESS = 90 /* characters, BIP-173 */, SPV_MAX_HRP = 16, SPV_MAX_ADDRESS_SCRIPT = 42 };

/* The parameters of network.Network that addresses depend on. */
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

/* False unless the human-readable part has 0 to SPV_MAX_HRP lower-case letters. */
bool spv_address_network_init(spv_address_network *network, uint8_t p2pkh_version, uint8_t p2sh_version, spv_bytes hrp);
/* The script of a valid address. False if it is not valid, or of a kind that only address.py handles. */
bool spv_decode_address(const spv_address_network *network, const uint8_t *text, size_t size, spv_script *script);

/* The same parameters to encode with, which takes any human-readable part that bech32 allows. */
typedef struct {
    uint8_t p2pkh_version, p2sh_version;
    bool fits;                     /* the human-readable part is lower-case printable ASCII */
    uint8_t hrp[SPV_MAX_ADDRESS];  /* as much of it as fits */
    size_t hrp_size;               /* 0: no segwit addresses */
    uint32_t residue;              /* of an hrp that fits */
} spv_address_form;

#define SPV_HRP_UNFIT SIZE_MAX
enum { SPV_BASE58_PAYLOAD = 21 /* version byte and hash */ };

void spv_address_form_init(spv_address_form *form, uint8_t p2pkh_version, uint8_t p2sh_version, spv_bytes hrp);
/* The payload of a script whose address is in base58, whose checksum begins with its sha256d; false for any other script. */
bool spv_base58_payload(const spv_address_form *form, spv_bytes script, uint8_t payload[SPV_BASE58_PAYLOAD]);
/* pure.address.address_of: writes the address of a script and returns its characters, 0 if it has none. With SPV_HRP_UNFIT, or more than
   SPV_MAX_ADDRESS, it is a witness program that has no address with this human-readable part. `digest` is the payload's sha256d, or NULL. */
size_t spv_encode_address(const spv_address_form *form, spv_bytes script, const uint8_t *digest, uint8_t text[SPV_MAX_ADDRESS]);

#endif
