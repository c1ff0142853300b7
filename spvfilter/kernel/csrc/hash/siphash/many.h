/* SipHash-2-4 of many messages of one length under one key, side by side: eight with AVX-512, four with AVX2, else one after the other. */
#ifndef SPV_HASH_SIPHASH_MANY_H
#define SPV_HASH_SIPHASH_MANY_H

#include "spv.h"

enum { SPV_SIP_LANES = 8 }; /* messages of a block */

/* The hashes of `blocks` blocks, SPV_SIP_LANES of each, in the fastest way of this machine. A message is `count` words, the last one as
   spv_sip_last makes it; word i of a block's message l is words[i * SPV_SIP_LANES + l], and the blocks follow each other. */
void spv_siphash24_many(const uint64_t *words, size_t blocks, size_t count, uint64_t k0, uint64_t k1, uint64_t *hashes);

#endif
