#include "oracle.h"

static uint64_t turned(uint64_t value, unsigned by) {
    return value << by | value >> (64 - by);
}

/* `size` bytes, little endian. */
static uint64_t word(const uint8_t *data, size_t size) {
    uint64_t value = 0;
    for (size_t i = size; i--;)
        value = value << 8 | data[i];
    return value;
}

static const uint64_t primes[5] = {
    11400714785074694791u, 14029467366897019727u, 1609587929392839161u, 9650029242287828579u, 2870177450012600261u,
};

static uint64_t rounded(uint64_t accumulator, uint64_t input) {
    return turned(accumulator + input * primes[1], 31) * primes[0];
}

uint64_t oracle_xxhash64(const uint8_t *data, size_t size) {
    uint64_t lane[4] = {primes[0] + primes[1], primes[1], 0, (uint64_t)0 - primes[0]}, hash = primes[4];
    static const unsigned turns[4] = {1, 7, 12, 18};
    size_t at = 0;
    for (; size - at >= 32; at += 32)
        for (unsigned i = 0; i < 4; i++)
            lane[i] = rounded(lane[i], word(data + at + i * 8, 8));
    if (size >= 32) {
        hash = 0;
        for (unsigned i = 0; i < 4; i++)
            hash += turned(lane[i], turns[i]);
        for (unsigned i = 0; i < 4; i++)
            hash = (hash ^ rounded(0, lane[i])) * primes[0] + primes[3];
    }
    hash += size;
    while (at < size) {
        if (size - at >= 8) {
            hash = turned(hash ^ rounded(0, word(data + at, 8)), 27) * primes[0] + primes[3];
            at += 8;
        } else if (size - at >= 4) {
            hash = turned(hash ^ word(data + at, 4) * primes[0], 23) * primes[1] + primes[2];
            at += 4;
        } else {
            hash = turned(hash ^ data[at++] * primes[4], 11) * primes[0];
        }
    }
    hash = (hash ^ hash >> 33) * primes[1];
    hash = (hash ^ hash >> 29) * primes[2];
    return hash ^ hash >> 32;
}

uint64_t oracle_murmur64a(const uint8_t *data, size_t size, uint64_t seed) {
    const uint64_t m = 0xC6A4A7935BD1E995;
    uint64_t hash = seed ^ size * m;
    for (; size >= 8; data += 8, size -= 8) {
        uint64_t k = word(data, 8) * m;
        k ^= k >> 47;
        hash = (hash ^ k * m) * m;
    }
    if (size)
        hash = (hash ^ word(data, size)) * m;
    hash = (hash ^ hash >> 47) * m;
    return hash ^ hash >> 47;
}

uint32_t oracle_spark_murmur(const uint8_t *data, size_t size, uint32_t seed) {
    uint32_t hash = seed;
    for (size_t at = 0, step; at < size; at += step) {
        step = size - at >= 4 ? 4 : 1;
        uint32_t k = step == 4 ? (uint32_t)word(data + at, 4) : data[at] < 128 ? data[at] : data[at] | 0xFFFFFF00u;
        k *= 0xCC9E2D51u;
        k = (k << 15 | k >> 17) * 0x1B873593u;
        hash = ((hash ^ k) << 13 | (hash ^ k) >> 19) * 5 + 0xE6546B64u;
    }
    hash ^= (uint32_t)size;
    hash = (hash ^ hash >> 16) * 0x85EBCA6Bu;
    hash = (hash ^ hash >> 13) * 0xC2B2AE35u;
    return hash ^ hash >> 16;
}
