#include "oracle_gcs.h"

#include "block/walk.h"
#include "oracle.h"

bool plain_decode(const uint8_t *data, size_t size, unsigned p, plain_set *set) {
    spv_error error;
    uint64_t count, value = 0;
    size_t at = 0, end = 8 * size;
    *set = (plain_set){0};
    if (spv_compact_size(data, size, &at, &count, "element count", &error) || count * (p + 1) > 8 * (size - at))
        return false;
    set->values = zeroed((size_t)count, sizeof *set->values);
    at *= 8;
    for (; set->count < count; set->count++) {
        uint64_t quotient = 0, rest = 0;
        for (; at < end && data[at / 8] >> (7 - at % 8) & 1; at++)
            quotient++;
        if (at++ + p >= end)
            return false;
        for (size_t last = at + p; at < last; at++)
            rest = rest << 1 | (data[at / 8] >> (7 - at % 8) & 1);
        value += quotient << p | rest;
        set->values[set->count] = value;
    }
    return (at + 7) / 8 == size;
}

uint64_t plain_value(const spv_bytes *item, const uint8_t *key, uint64_t count, uint64_t m) {
    __extension__ typedef unsigned __int128 wide;
    return (uint64_t)((wide)oracle_siphash24(item->data, item->size, key) * (count * m) >> 64);
}

bool plain_contains(const plain_set *set, uint64_t value) {
    size_t low = 0, high = set->count;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        *(set->values[middle] > value ? &high : &low) = middle;
    }
    return low < high && set->values[low] == value;
}

size_t plain_distinct(const spv_bytes *items, size_t count) {
    size_t distinct = 0;
    for (size_t i = 0; i < count; i++) {
        bool repeated = false;
        for (size_t k = 0; k < i && !repeated; k++)
            repeated = items[i].size == items[k].size && same(items[i].data, items[k].data, items[i].size);
        distinct += !repeated;
    }
    return distinct;
}

void check_holds_just(const plain_set *set, const spv_bytes *items, size_t count, const uint8_t *key, uint64_t m) {
    bool *known = zeroed(set->count, sizeof *known);
    for (size_t i = 0; i < count; i++) {
        uint64_t value = plain_value(items + i, key, set->count, m);
        CHECK(plain_contains(set, value));
        for (size_t k = 0; k < set->count; k++)
            known[k] |= set->values[k] == value;
    }
    for (size_t k = 0; k < set->count; k++)
        CHECK(known[k]);
    release(known);
}
