#include "oracle_cells.h"

#include "oracle.h"

static uint64_t onto(uint64_t x, uint64_t span) {
    __extension__ typedef unsigned __int128 wide;
    return (uint64_t)((wide)((x ^ x >> 32) * 0xD6E8FEB86659FD93) * span >> 64);
}

/* Cell number i of other programs' filters, within the span. */
static uint64_t foreign(const plain_filter *filter, const uint8_t *data, size_t size, uint32_t i, uint64_t span) {
    static const uint32_t salt[8] = {
        0x47B6137Bu, 0x44974D91u, 0x8824AD5Bu, 0xA2B7289Du, 0x705495C7u, 0x2DF1424Bu, 0x9EFC4947u, 0x5C6BFB31u,
    };
    if (filter->family == SPV_FAMILY_SPLIT_BLOCK) {
        const uint64_t hash = oracle_xxhash64(data, size), block = (hash >> 32) * (span / 256) >> 32;
        return block * 256 + i * 32 + ((uint32_t)((uint32_t)hash * salt[i]) >> 27);
    }
    if (filter->family == SPV_FAMILY_REDISBLOOM) {
        const uint64_t first = oracle_murmur64a(data, size, 0xC6A4A7935BD1E995);
        return (first + i * oracle_murmur64a(data, size, first)) % span;
    }
    const uint32_t first = oracle_spark_murmur(data, size, spv_le32(filter->key)), step = oracle_spark_murmur(data, size, first);
    if (filter->family == SPV_FAMILY_SPARK_V1) {
        const int32_t sum = (int32_t)(first + (i + 1) * step);
        return (uint64_t)(sum < 0 ? ~sum : sum) % span;
    }
    const int64_t sum = (int64_t)((uint64_t)(int32_t)first * 0x7FFFFFFF + (i + 1) * (uint64_t)(int32_t)step);
    return (uint64_t)(sum < 0 ? ~sum : sum) % span;
}

size_t plain_positions(const plain_filter *filter, const uint8_t *data, size_t size, uint64_t *positions) {
    uint64_t hash[2] = {0, 0}, span = filter->cell_count;
    if (filter->partitioned && filter->hash_funcs)
        span /= filter->hash_funcs;
    if (!span)
        return 0;
    if (filter->family == SPV_FAMILY_FAST) {
        oracle_murmur3_x64(data, size, spv_le32(filter->key), hash);
    } else if (filter->family == SPV_FAMILY_SIPHASH) {
        hash[0] = oracle_siphash24(data, size, filter->key);
        hash[1] = hash[0] * 0xD6E8FEB86659FD93;
    }
    for (uint32_t i = 0; i < filter->hash_funcs; i++) {
        positions[i] = onto(hash[0] + i * (hash[1] | 1), span);
        if (filter->family == SPV_FAMILY_BIP37)
            positions[i] = oracle_murmur3(data, size, i * 0xFBA4C795 + spv_le32(filter->key)) % span;
        if (filter->family > SPV_FAMILY_SIPHASH)
            positions[i] = foreign(filter, data, size, i, span);
        if (filter->partitioned)
            positions[i] += i * span;
    }
    return filter->hash_funcs;
}

unsigned plain_least(const plain_filter *filter, const uint64_t *positions, size_t count) {
    unsigned least = (1u << filter->width) - 1;
    for (size_t i = 0; i < count; i++)
        if (filter->cells[positions[i]] < least)
            least = filter->cells[positions[i]];
    return least;
}

bool plain_bits_add(plain_filter *filter, const uint64_t *positions, size_t count) {
    bool fresh = false;
    for (size_t i = 0; i < count; i++) {
        fresh |= !filter->cells[positions[i]];
        filter->cells[positions[i]] = 1;
    }
    return fresh;
}

/* If two functions of a key lead to one cell, the cell is changed once. */
static void move(plain_filter *filter, const uint64_t *positions, size_t count, int step) {
    const unsigned limit = (1u << filter->width) - 1;
    for (size_t i = 0; i < count; i++) {
        bool again = false;
        for (size_t j = 0; j < i; j++)
            again |= positions[j] == positions[i];
        uint16_t *cell = filter->cells + positions[i];
        if (!again && *cell < limit)
            *cell = (uint16_t)(*cell + step);
    }
}

bool plain_counters_add(plain_filter *filter, const uint64_t *positions, size_t count) {
    bool fresh = count && !plain_least(filter, positions, count);
    move(filter, positions, count, 1);
    return fresh;
}

bool plain_counters_remove(plain_filter *filter, const uint64_t *positions, size_t count) {
    if (!plain_least(filter, positions, count))
        return false;
    move(filter, positions, count, -1);
    return true;
}

uint64_t plain_used(const plain_filter *filter, uint64_t first, uint64_t end) {
    uint64_t used = 0;
    for (uint64_t at = first; at < end; at++)
        used += filter->cells[at] > 0;
    return used;
}

/* The value of a packed cell. */
static unsigned cell_at(const uint8_t *packed, unsigned width, uint64_t at) {
    if (width == 16)
        return spv_le16(packed + 2 * at);
    const uint64_t bit = at * width;
    return (unsigned)packed[bit / 8] >> bit % 8 & ((1u << width) - 1);
}

void check_same_cells(const uint8_t *packed, const plain_filter *filter) {
    const unsigned width = filter->width;
    uint64_t at = 0;
    for (; at < filter->cell_count; at++)
        CHECK(cell_at(packed, width, at) == filter->cells[at]);
    for (; at * width % 8; at++)
        CHECK(!cell_at(packed, width, at));
}

void check_counted_bits(const uint8_t *bits, const plain_filter *filter) {
    const uint64_t count = filter->cell_count;
    for (uint64_t at = 0, byte = 0; at < count; byte++) {
        unsigned expected = 0;
        for (unsigned shift = 0; shift < 8 && at < count; shift++)
            expected |= (filter->cells[at++] ? 1u : 0u) << shift;
        CHECK(bits[byte] == expected);
    }
}

void check_or(const uint8_t *mixed, const uint8_t *one, const uint8_t *other, size_t size) {
    unsigned wrong = 0;
    for (size_t i = 0; i < size; i++)
        wrong |= mixed[i] ^ (unsigned)(one[i] | other[i]);
    CHECK(!wrong);
}

void check_and(const uint8_t *mixed, const uint8_t *one, const uint8_t *other, size_t size) {
    unsigned wrong = 0;
    for (size_t i = 0; i < size; i++)
        wrong |= mixed[i] ^ (unsigned)(one[i] & other[i]);
    CHECK(!wrong);
}

void check_sum(const uint8_t *mixed, const uint8_t *one, const uint8_t *other, unsigned width, size_t size) {
    const unsigned limit = (1u << width) - 1;
    for (uint64_t at = 0; at < size * 8 / width; at++) {
        const unsigned sum = cell_at(one, width, at) + cell_at(other, width, at);
        CHECK(cell_at(mixed, width, at) == (sum < limit ? sum : limit));
    }
}

uint64_t plain_either(const uint8_t *one, const uint8_t *other, size_t size, bool *subset) {
    uint64_t either = 0;
    unsigned beyond = 0;
    for (size_t i = 0; i < size; i++) {
        either += (uint64_t)__builtin_popcount((unsigned)(one[i] | other[i]));
        beyond |= one[i] & (unsigned)~other[i];
    }
    *subset = !beyond;
    return either;
}
