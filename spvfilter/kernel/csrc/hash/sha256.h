/* Double SHA-256, as in Bitcoin: of one message, of many messages at once, or of pairs of hashes, in the fastest way
   of this machine. */
#ifndef SPV_HASH_SHA256_H
#define SPV_HASH_SHA256_H

#include "spv.h"

typedef uint8_t spv_hash[32]; /* wire order */

/* A message in one piece, or in three: four bytes at `head`, `body`, and four at `tail`. */
typedef struct {
    spv_bytes body;
    const uint8_t *head, *tail; /* both NULL for one piece */
} spv_message;

/* Returns message `number` of many. `context` describes the messages. It is called several times for each message. */
typedef spv_message spv_message_at(const void *context, size_t number);

/* One SHA-256 of `size` bytes. */
void spv_sha256(const uint8_t *data, size_t size, uint8_t digest[32]);
/* sha256d of `size` bytes. */
void spv_sha256d(const uint8_t *data, size_t size, uint8_t digest[32]);
/* sha256d of a message. */
void spv_sha256d_message(const spv_message *message, uint8_t digest[32]);

/* sha256d of `count` messages at once, which takes a fraction of the time. out[i] belongs to message i. */
void spv_sha256d_many(spv_message_at *message_at, const void *context, size_t count, spv_hash *out);
/* sha256d of each of `count` pairs of hashes, 64 bytes; `out` may be `pairs`. */
void spv_sha256d_pairs(const spv_hash *pairs, size_t count, spv_hash *out);

#endif
