/* Addresses of scripts, written plainly: base58 by long division, bech32 by BIP-173's reference. */
#ifndef ORACLE_ADDRESS_H
#define ORACLE_ADDRESS_H

#include "oracle.h"

enum { LONGEST_TEXT = 120 };

/* Writes the address of a script and returns its number of characters, or 0 if it has none. `hrp` is short and
   lower-case, or empty. */
size_t plain_address(uint8_t p2pkh_version, uint8_t p2sh_version, const char *hrp, const uint8_t *script, size_t size, char text[LONGEST_TEXT]);

#endif
