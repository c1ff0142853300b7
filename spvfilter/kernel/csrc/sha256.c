#include "sha256.h"

typedef struct {
    uint32_t state[8];
    uint8_t buffer[64];
    uint64_t size;
} hasher;

static const uint32_t K[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be,
    0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa,
    0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85,
    0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3,
    0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f,
    0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

SPV_INLINE uint32_t ror(uint32_t x, int n) {
    return x >> n | x << (32 - n);
}

static void compress(uint32_t state[8], const uint8_t *block) {
    uint32_t w[64], s[8];
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 | (uint32_t)block[4 * i + 2] << 8 | block[4 * i + 3];
    for (int i = 16; i < 64; i++)
        w[i] = w[i - 16] + (ror(w[i - 15], 7) ^ ror(w[i - 15], 18) ^ w[i - 15] >> 3) + w[i - 7]
            + (ror(w[i - 2], 17) ^ ror(w[i - 2], 19) ^ w[i - 2] >> 10);
    memcpy(s, state, sizeof s);
    for (int i = 0; i < 64; i++) {
        uint32_t t1 = s[7] + (ror(s[4], 6) ^ ror(s[4], 11) ^ ror(s[4], 25)) + ((s[4] & s[5]) ^ (~s[4] & s[6])) + K[i] + w[i];
        uint32_t t2 = (ror(s[0], 2) ^ ror(s[0], 13) ^ ror(s[0], 22)) + ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));
        memmove(s + 1, s, 7 * sizeof s[0]);
        s[4] += t1;
        s[0] = t1 + t2;
    }
    for (int i = 0; i < 8; i++)
        state[i] += s[i];
}

static void start(hasher *h) {
    static const uint32_t initial[8] = {
        0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19,
    };
    memcpy(h->state, initial, sizeof initial);
    h->size = 0;
}

static void feed(hasher *h, const uint8_t *data, size_t size) {
    size_t have = (size_t)(h->size & 63);
    h->size += size;
    if (have) {
        size_t wanted = 64 - have, taken = size < wanted ? size : wanted;
        memcpy(h->buffer + have, data, taken);
        data += taken, size -= taken;
        if (taken < wanted)
            return;
        compress(h->state, h->buffer);
    }
    for (; size >= 64; data += 64, size -= 64)
        compress(h->state, data);
    memcpy(h->buffer, data, size);
}

static void finish(hasher *h, uint8_t digest[32]) {
    static const uint8_t padding[64] = {0x80};
    uint64_t bits = h->size * 8;
    uint8_t length[8];
    feed(h, padding, 1 + (size_t)((119 - h->size) & 63));
    for (int i = 0; i < 8; i++)
        length[i] = (uint8_t)(bits >> (56 - 8 * i));
    feed(h, length, 8);
    for (int i = 0; i < 8; i++) {
        digest[4 * i] = (uint8_t)(h->state[i] >> 24);
        digest[4 * i + 1] = (uint8_t)(h->state[i] >> 16);
        digest[4 * i + 2] = (uint8_t)(h->state[i] >> 8);
        digest[4 * i + 3] = (uint8_t)h->state[i];
    }
}

static void finish_twice(hasher *h, uint8_t digest[32]) {
    finish(h, digest);
    start(h);
    feed(h, digest, 32);
    finish(h, digest);
}

void spv_sha256d(const uint8_t *data, size_t size, uint8_t digest[32]) {
    hasher h;
    start(&h);
    feed(&h, data, size);
    finish_twice(&h, digest);
}

void spv_txid(const uint8_t *raw, const spv_tx *tx, uint8_t digest[32]) {
    hasher h;
    start(&h);
    if (tx->witness) {
        feed(&h, raw + tx->start, 4);
        feed(&h, raw + tx->start + 6, tx->witness - tx->start - 6);
        feed(&h, raw + tx->end - 4, 4);
    } else {
        feed(&h, raw + tx->start, tx->end - tx->start);
    }
    finish_twice(&h, digest);
}

void spv_wtxid(const uint8_t *raw, const spv_tx *tx, uint8_t digest[32]) {
    spv_sha256d(raw + tx->start, tx->end - tx->start, digest);
}
