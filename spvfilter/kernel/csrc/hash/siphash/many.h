/* SipHash-2-4 of many messages under one key. Messages of one length are hashed side by side: eight with AVX-512,
   four with AVX2, otherwise one after the other. */
#ifndef SPV_HASH_SIPHASH_MANY_H
#define SPV_HASH_SIPHASH_MANY_H

#include "hash/siphash.h"

enum { SPV_SIP_LANES = 8 }; /* messages of a block */

/* Computes the hashes of `blocks` blocks, SPV_SIP_LANES hashes each, in the fastest way of this machine. A message
   has `count` words; spv_sip_last makes the last word. Word i of message l of a block is words[i * SPV_SIP_LANES +
   l]. The blocks follow each other. */
void spv_siphash24_many(const uint64_t *words, size_t blocks, size_t count, uint64_t k0, uint64_t k1, uint64_t *hashes);

/* Computes the hashes of `count` messages of any lengths. hashes[i] belongs to messages[i]. */
void spv_siphash24_each(const spv_bytes *messages, size_t count, uint64_t k0, uint64_t k1, uint64_t *hashes);

/* Writes a message of `words` = size / 8 + 1 words, one word into each row of a block. */
SPV_INLINE void spv_sip_lay_out(const spv_bytes *message, size_t words, uint64_t *to) {
    for (size_t i = 0; i + 1 < words; i++)
        to[i * SPV_SIP_LANES] = spv_le64(message->data + 8 * i);
    to[(words - 1) * SPV_SIP_LANES] = spv_sip_last(message->data, message->size);
}

#endif
