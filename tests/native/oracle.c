#include "oracle.h"

#include "hash/sha256/way.h"

void oracle_sha256(const uint8_t *data, size_t size, uint8_t digest[32]) {
    uint8_t last[128] = {0}; /* the incomplete block, a one bit, zeros, the size in bits */
    const size_t whole = size / 64, rest = size % 64, end = rest < 56 ? 64 : 128;
    uint32_t state[8];
    if (rest)
        memcpy(last, data + 64 * whole, rest);
    last[rest] = 0x80;
    for (size_t i = 0; i < 8; i++)
        last[end - 1 - i] = (uint8_t)((uint64_t)size * 8 >> 8 * i);
    memcpy(state, spv_sha256_initial, sizeof state);
    spv_sha256_portable(state, data, whole);
    spv_sha256_portable(state, last, end / 64);
    for (size_t i = 0; i < 32; i++)
        digest[i] = (uint8_t)(state[i / 4] >> (24 - 8 * (i % 4)));
}

void oracle_sha256d(const uint8_t *data, size_t size, uint8_t digest[32]) {
    uint8_t once[32];
    oracle_sha256(data, size, once);
    oracle_sha256(once, 32, digest);
}

void oracle_txid(const uint8_t *raw, const spv_tx *tx, uint8_t digest[32]) {
    uint8_t *stripped = exact_copy(raw + tx->start, tx->end - tx->start);
    size_t size = tx->end - tx->start;
    if (tx->witness) {
        size_t body = tx->witness - tx->start - 6;
        memmove(stripped + 4, stripped + 6, body);
        memcpy(stripped + 4 + body, raw + tx->end - 4, 4);
        size = body + 8;
    }
    oracle_sha256d(stripped, size, digest);
    release(stripped);
}

void oracle_wtxid(const uint8_t *raw, const spv_tx *tx, uint8_t digest[32]) {
    oracle_sha256d(raw + tx->start, tx->end - tx->start, digest);
}

void oracle_merkle_root(uint8_t (*leaves)[32], size_t count, uint8_t root[32], bool *mutated) {
    uint8_t(*level)[32] = zeroed(count + 1, sizeof *level);
    memcpy(level, leaves, count * sizeof *level);
    *mutated = false;
    for (; count > 1; count = (count + 1) / 2) {
        for (size_t i = 0; i + 1 < count; i += 2)
            *mutated |= !memcmp(level[i], level[i + 1], 32);
        if (count & 1)
            memcpy(level[count], level[count - 1], 32);
        for (size_t i = 0; i < count; i += 2) {
            uint8_t parent[32];
            oracle_sha256d(level[i], 64, parent);
            memcpy(level[i / 2], parent, 32);
        }
    }
    memcpy(root, level[0], 32);
    release(level);
}

uint32_t oracle_murmur3(const uint8_t *data, size_t size, uint32_t seed) {
    uint32_t hash = seed;
    for (size_t at = 0; at < size; at += 4) {
        uint32_t word = 0;
        for (size_t i = 0; i < 4 && at + i < size; i++)
            word |= (uint32_t)data[at + i] << 8 * i;
        word *= 0xCC9E2D51;
        word = word << 15 | word >> 17;
        hash ^= word * 0x1B873593;
        if (size - at >= 4) {
            hash = hash << 13 | hash >> 19;
            hash = hash * 5 + 0xE6546B64;
        }
    }
    hash ^= (uint32_t)size;
    hash = (hash ^ hash >> 16) * 0x85EBCA6B;
    hash = (hash ^ hash >> 13) * 0xC2B2AE35;
    return hash ^ hash >> 16;
}

static uint64_t rotl64(uint64_t x, int by) {
    return x << by | x >> (64 - by);
}

static uint64_t word64(const uint8_t *data, size_t size) { /* up to 8 bytes, little endian */
    uint64_t word = 0;
    for (size_t i = 0; i < 8 && i < size; i++)
        word |= (uint64_t)data[i] << 8 * i;
    return word;
}

static uint64_t final64(uint64_t x) {
    x = (x ^ x >> 33) * 0xFF51AFD7ED558CCD;
    x = (x ^ x >> 33) * 0xC4CEB9FE1A85EC53;
    return x ^ x >> 33;
}

void oracle_murmur3_x64(const uint8_t *data, size_t size, uint32_t seed, uint64_t hash[2]) {
    const uint64_t c1 = 0x87C37B91114253D5, c2 = 0x4CF5AD432745937F;
    uint64_t h1 = seed, h2 = seed;
    for (size_t at = 0; at < size; at += 16) {
        h1 ^= rotl64(word64(data + at, size - at) * c1, 31) * c2;
        if (size - at >= 16)
            h1 = (rotl64(h1, 27) + h2) * 5 + 0x52DCE729;
        if (size - at > 8)
            h2 ^= rotl64(word64(data + at + 8, size - at - 8) * c2, 33) * c1;
        if (size - at >= 16)
            h2 = (rotl64(h2, 31) + h1) * 5 + 0x38495AB5;
    }
    h1 ^= size, h2 ^= size;
    h1 += h2, h2 += h1;
    h1 = final64(h1), h2 = final64(h2);
    hash[0] = h1 + h2;
    hash[1] = h2 + hash[0];
}

static void sip_rounds(uint64_t v[4], int rounds) {
    while (rounds--) {
        v[0] += v[1], v[1] = rotl64(v[1], 13) ^ v[0], v[0] = rotl64(v[0], 32);
        v[2] += v[3], v[3] = rotl64(v[3], 16) ^ v[2];
        v[0] += v[3], v[3] = rotl64(v[3], 21) ^ v[0];
        v[2] += v[1], v[1] = rotl64(v[1], 17) ^ v[2], v[2] = rotl64(v[2], 32);
    }
}

uint64_t oracle_siphash24(const uint8_t *data, size_t size, const uint8_t key[16]) {
    uint64_t k0 = word64(key, 8), k1 = word64(key + 8, 8);
    uint64_t v[4] = {k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D, k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573};
    for (size_t at = 0; at <= size; at += 8) {
        uint64_t word = word64(data + at, size - at);
        if (size - at < 8)
            word |= (uint64_t)size << 56;
        v[3] ^= word;
        sip_rounds(v, 2);
        v[0] ^= word;
    }
    v[2] ^= 0xFF;
    sip_rounds(v, 4);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}
