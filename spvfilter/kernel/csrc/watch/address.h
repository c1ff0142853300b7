/* Addresses to scriptPubKeys and back: base58check, bech32 and bech32m. When decoding, false means that the address
   is refused for any reason. address.py then raises the error. */
#ifndef SPV_WATCH_ADDRESS_H
#define SPV_WATCH_ADDRESS_H

#include "spv.h"

enum { SPV_MAX_ADDRESS = 90 /* characters of an address, BIP-173 */, SPV_MAX_HRP = 16, SPV_MAX_ADDRESS_SCRIPT = 42 };

/* The parameters of network.Network that addresses depend on. */
typedef struct {
    uint8_t p2pkh_version, p2sh_version;
    uint8_t hrp[SPV_MAX_HRP]; /* lower case */
    size_t hrp_size;          /* 0 if there are no segwit addresses */
    uint32_t residue;         /* residue of the human-readable part, expanded: BIP-173 § Checksum */
} spv_address_network;

typedef struct {
    uint8_t bytes[SPV_MAX_ADDRESS_SCRIPT];
    size_t size;
} spv_script;

/* False unless the human-readable part has 0 to SPV_MAX_HRP lower-case letters. */
bool spv_address_network_init(spv_address_network *network, uint8_t p2pkh_version, uint8_t p2sh_version, spv_bytes hrp);
/* Decodes a valid address to its script. False if it is not valid, or if only address.py handles its kind. */
bool spv_decode_address(const spv_address_network *network, const uint8_t *text, size_t size, spv_script *script);

/* The same parameters for encoding. Any human-readable part that bech32 allows is possible. */
typedef struct {
    uint8_t p2pkh_version, p2sh_version;
    bool fits;                     /* true if the human-readable part is lower-case printable ASCII */
    uint8_t hrp[SPV_MAX_ADDRESS];  /* the human-readable part, truncated to this size */
    size_t hrp_size;               /* 0 if there are no segwit addresses */
    uint32_t residue;              /* residue of an hrp that fits */
} spv_address_form;

#define SPV_HRP_UNFIT SIZE_MAX
enum { SPV_BASE58_PAYLOAD = 21 /* version byte and hash */ };

void spv_address_form_init(spv_address_form *form, uint8_t p2pkh_version, uint8_t p2sh_version, spv_bytes hrp);
/* Writes the base58 payload of a script. The checksum of the address is the start of the payload's sha256d. False
   for a script whose address is not in base58. */
bool spv_base58_payload(const spv_address_form *form, spv_bytes script, uint8_t payload[SPV_BASE58_PAYLOAD]);
/* pure.address.address_of: writes the address of a script and returns its number of characters, 0 if it has none.

   The result SPV_HRP_UNFIT, or a result above SPV_MAX_ADDRESS, means that a witness program has no address with this
   human-readable part. `digest` is the sha256d of the payload, or NULL. */
size_t spv_encode_address(const spv_address_form *form, spv_bytes script, const uint8_t *digest, uint8_t text[SPV_MAX_ADDRESS]);

#endif
