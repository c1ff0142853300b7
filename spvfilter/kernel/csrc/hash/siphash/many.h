/* SipHash-2-4 of many messages under one key, those of one length side by side: eight with AVX-512, four with AVX2, else one after the other. */
#ifndef SPV_HASH_SIPHASH_MANY_H
#define SPV_HASH_SIPHASH_MANY_H

#include "hash/siphash.h"

enum { SPV_SIP_LANES = 8 }; /* messages of a block */

/* The hashes of `blocks` blocks, SPV_SIP_LANES of each, in the fastest way of this machine. A message is `count` words, the last one as
   spv_sip_last makes it; word i of a block's message l is words[i * SPV_SIP_LANES + l], and the blocks follow each other. */
void spv_siphash24_many(const uint64_t *words, size_t blocks, size_t count, uint64_t k0, uint64_t k1, uint64_t *hashes);

/* The same of `count` messages of any lengths; hashes[i] belongs to messages[i]. */
void spv_siphash24_each(const spv_bytes *messages, size_t count, uint64_t k0, uint64_t k1, uint64_t *hashes);

/* A message of `words` = size / 8 + 1 words, one in each row of a block. */
SPV_INLINE void spv_sip_lay_out(const spv_bytes *message, size_t words, uint64_t *to) {
    for (size_t i = 0; i + 1 < words; i++)
        to[i * SPV_SIP_LANES] = spv_le64(message->data + 8 * i);
    to[(words - 1) * SPV_SIP_LANES] = spv_sip_last(message->data, message->size);
}

#endif
