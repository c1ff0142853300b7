/* Public keys as points of secp256k1: the compressed form of an uncompressed key, and back, and the children of an
   extended key. The twin of pure.undo's compressed_key and full_key, and of pure.childkeys. */
#ifndef SPV_BLOCK_CURVE_H
#define SPV_BLOCK_CURVE_H

#include "spv.h"

enum { SPV_SHORT_KEY = 33, SPV_FULL_KEY = 65, SPV_TWEAK = 32 }; /* bytes of a compressed and of an uncompressed key, of a tweak */

/* Decompresses a key (02 or 03 first) to an uncompressed key (04 first). False if it is not on the curve. It takes
   about 5 µs. */
bool spv_full_key(const uint8_t key[SPV_SHORT_KEY], uint8_t full[SPV_FULL_KEY]);

/* Compresses an uncompressed key. False if it is not on the curve. */
bool spv_short_key(const uint8_t full[SPV_FULL_KEY], uint8_t key[SPV_SHORT_KEY]);

/* Writes the sum of an uncompressed key on the curve and each tweak times the generator, as compressed keys. A tweak
   above the largest private key gives zeros, like a sum that is the point at infinity. It takes about 5 µs a
   key, and 3 ms more. SPV_NOMEM if there is no memory. */
spv_status spv_child_keys(const uint8_t parent[SPV_FULL_KEY], const uint8_t *tweaks, size_t count, uint8_t *keys);

#endif
