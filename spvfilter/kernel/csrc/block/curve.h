/* Public keys as points of secp256k1: the compressed form of an uncompressed key, and back. The twin of pure.undo's compressed_key and
   full_key. */
#ifndef SPV_BLOCK_CURVE_H
#define SPV_BLOCK_CURVE_H

#include "spv.h"

enum { SPV_SHORT_KEY = 33, SPV_FULL_KEY = 65 }; /* bytes of a compressed and of an uncompressed key */

/* Decompresses a key (02 or 03 first) to an uncompressed key (04 first). False if it is not on the curve. It takes
   about 20 µs. */
bool spv_full_key(const uint8_t key[SPV_SHORT_KEY], uint8_t full[SPV_FULL_KEY]);

/* Compresses an uncompressed key. False if it is not on the curve. */
bool spv_short_key(const uint8_t full[SPV_FULL_KEY], uint8_t key[SPV_SHORT_KEY]);

#endif
