#include "hash/blake2b.h"
#include "hash/words.h"

enum { ROUNDS = 12, HASH_SIZE = 8 };

static const uint64_t initial[8] = {
    0x6a09e667f3bcc908, 0xbb67ae8584caa73b, 0x3c6ef372fe94f82b, 0xa54ff53a5f1d36f1,
    0x510e527fade682d1, 0x9b05688c2b3e6c1f, 0x1f83d9abfb41bd6b, 0x5be0cd19137e2179,
};

static const uint8_t schedule[10][16] = { /* the last two rounds repeat the first two */
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
    {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4}, {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
    {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13}, {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
    {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11}, {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
    {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5}, {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0},
};

SPV_INLINE void mix(uint64_t *v, int a, int b, int c, int d, uint64_t x, uint64_t y) {
    v[a] += v[b] + x;
    v[d] = spv_rotl64(v[d] ^ v[a], 32);
    v[c] += v[d];
    v[b] = spv_rotl64(v[b] ^ v[c], 40);
    v[a] += v[b] + y;
    v[d] = spv_rotl64(v[d] ^ v[a], 48);
    v[c] += v[d];
    v[b] = spv_rotl64(v[b] ^ v[c], 1);
}

static void compress(spv_blake2b *of, const uint8_t *block, bool is_last) {
    uint64_t v[16], words[16];
    for (size_t i = 0; i < 8; i++) {
        v[i] = of->hash[i];
        v[i + 8] = initial[i];
    }
    v[12] ^= of->hashed;
    v[14] ^= is_last ? UINT64_MAX : 0;
    for (size_t i = 0; i < 16; i++)
        words[i] = spv_le64(block + 8 * i);
    for (size_t round = 0; round < ROUNDS; round++) {
        const uint8_t *at = schedule[round % 10];
        mix(v, 0, 4, 8, 12, words[at[0]], words[at[1]]);
        mix(v, 1, 5, 9, 13, words[at[2]], words[at[3]]);
        mix(v, 2, 6, 10, 14, words[at[4]], words[at[5]]);
        mix(v, 3, 7, 11, 15, words[at[6]], words[at[7]]);
        mix(v, 0, 5, 10, 15, words[at[8]], words[at[9]]);
        mix(v, 1, 6, 11, 12, words[at[10]], words[at[11]]);
        mix(v, 2, 7, 8, 13, words[at[12]], words[at[13]]);
        mix(v, 3, 4, 9, 14, words[at[14]], words[at[15]]);
    }
    for (size_t i = 0; i < 8; i++)
        of->hash[i] ^= v[i] ^ v[i + 8];
}

void spv_blake2b_start(spv_blake2b *of) {
    memcpy(of->hash, initial, sizeof initial);
    of->hash[0] ^= 0x01010000 ^ HASH_SIZE; /* one leaf, no key */
    of->hashed = 0;
    of->filled = 0;
}

void spv_blake2b_add(spv_blake2b *of, const uint8_t *data, size_t size) {
    while (size) {
        if (of->filled == SPV_BLAKE2B_BLOCK) { /* more follows, so this block is not the last one */
            of->hashed += SPV_BLAKE2B_BLOCK;
            compress(of, of->block, false);
            of->filled = 0;
        }
        const size_t room = SPV_BLAKE2B_BLOCK - of->filled, part = size < room ? size : room;
        memcpy(of->block + of->filled, data, part);
        of->filled += part;
        data += part;
        size -= part;
    }
}

uint64_t spv_blake2b_end(spv_blake2b *of) {
    memset(of->block + of->filled, 0, SPV_BLAKE2B_BLOCK - of->filled);
    of->hashed += of->filled;
    compress(of, of->block, true);
    return of->hash[0];
}
