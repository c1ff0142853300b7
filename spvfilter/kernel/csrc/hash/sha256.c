/* SHA-256 of one message at a time, and the padding of messages. */
#include "hash/sha256.h"
#include "hash/sha256/way.h"

enum { SHORT = sizeof(((spv_padded *)0)->buffer) - 9 }; /* bytes */

SPV_INLINE void append(spv_padded *padded, const uint8_t *at, size_t blocks) {
    if (blocks) {
        padded->stretch[padded->stretches].at = at;
        padded->stretch[padded->stretches++].blocks = blocks;
    }
}

/* Appends the padding of a message of `total` bytes whose last `size` bytes will be at `at`. */
SPV_INLINE void append_end(spv_padded *padded, uint8_t *at, size_t size, uint64_t total) {
    static const uint8_t zeros[64]; /* gcc copies this in a few moves, but makes a slow instruction of memset */
    size_t blocks = (size + 9 + 63) / 64;
    uint8_t *end = at + 64 * blocks;
    memcpy(end - 64, zeros, 64);
    if (blocks > 1)
        memcpy(end - 128, zeros, 64);
    at[size] = 0x80;
    spv_put_be32(end - 8, (uint32_t)(total >> 29));
    spv_put_be32(end - 4, (uint32_t)(total << 3));
    append(padded, at, blocks);
}

static void pad_whole(spv_padded *padded, const uint8_t *data, size_t size) {
    size_t rest = size <= SHORT ? size : size & 63;
    padded->stretches = 0;
    append(padded, data, (size - rest) / 64);
    append_end(padded, padded->buffer, rest, size);
    memmove(padded->buffer, data + size - rest, rest); /* gcc makes a slow instruction of such a memcpy */
}

/* A message in three pieces. */
static void pad_pieces(spv_padded *padded, const uint8_t *head, const uint8_t *body, size_t size, const uint8_t *tail) {
    uint8_t *end = padded->buffer + 4;
    size_t rest = size;
    padded->stretches = 0;
    if (SPV_LIKELY(size + 8 <= SHORT)) {
        append_end(padded, padded->buffer, size + 8, size + 8);
    } else {
        rest = (size - 60) & 63;
        end = padded->buffer + 64;
        memcpy(padded->buffer + 4, body, 60);
        append(padded, padded->buffer, 1);
        append(padded, body + 60, (size - 60) / 64);
        append_end(padded, end, rest + 4, (uint64_t)size + 8);
    }
    memcpy(padded->buffer, head, 4);
    memmove(end, body + size - rest, rest);
    memcpy(end + rest, tail, 4);
}

void spv_pad(spv_padded *padded, const spv_message *message) {
    if (message->head)
        pad_pieces(padded, message->head, message->body.data, message->body.size, message->tail);
    else
        pad_whole(padded, message->body.data, message->body.size);
}

void spv_hash_padded(const spv_sha256_way *way, const spv_padded *padded, uint8_t digest[32]) {
    uint32_t state[8];
    memcpy(state, spv_sha256_initial, sizeof state);
    for (size_t i = 0; i < padded->stretches; i++)
        way->one(state, padded->stretch[i].at, padded->stretch[i].blocks);
    for (int i = 0; i < 8; i++)
        spv_put_be32(digest + 4 * i, state[i]);
}

static void twice(spv_padded *padded, uint8_t digest[32]) {
    const spv_sha256_way *way = spv_sha256_chosen();
    spv_hash_padded(way, padded, digest);
    pad_whole(padded, digest, 32);
    spv_hash_padded(way, padded, digest);
}

void spv_sha256(const uint8_t *data, size_t size, uint8_t digest[32]) {
    spv_padded padded;
    pad_whole(&padded, data, size);
    spv_hash_padded(spv_sha256_chosen(), &padded, digest);
}

void spv_sha256d(const uint8_t *data, size_t size, uint8_t digest[32]) {
    spv_padded padded;
    pad_whole(&padded, data, size);
    twice(&padded, digest);
}

void spv_sha256d_message(const spv_message *message, uint8_t digest[32]) {
    spv_padded padded;
    spv_pad(&padded, message);
    twice(&padded, digest);
}
