#include "bloom/bip37/window.h"

void spv_window_start(spv_window *w, const spv_filter *filter, const spv_murmur3_way *way, const uint8_t *raw, size_t size) {
    const size_t reach = SPV_SHORT + SPV_MURMUR3_BEYOND;
    w->filter = filter;
    w->way = way;
    w->near_end = raw + (size > reach ? size - reach : 0);
    memset(w->waiting, 0, sizeof w->waiting);
    spv_window_empty(w);
}

void spv_window_empty(spv_window *w) {
    w->count = 0;
    w->changed = false;
    memset(w->passed, 0, sizeof w->passed);
}

SPV_INLINE void pass(spv_window *w, size_t element) {
    w->passed[element / 64] |= UINT64_C(1) << element % 64;
}

void spv_window_test_long(spv_window *w, size_t element) {
    if (spv_filter_contains(w->filter, w->data[element], w->size[element], w->bit + element))
        pass(w, element);
}

void spv_window_test_short(spv_window *w, size_t size) {
    _Alignas(64) uint32_t first[SPV_BUCKET], second[SPV_BUCKET];
    const uint8_t *keys[SPV_BUCKET];
    uint16_t *elements = w->bucket[size];
    const uint32_t funcs = w->filter->hash_funcs;
    const size_t lanes = w->way->lanes;
    const uint8_t *bits = w->filter->bits;
    size_t left = w->waiting[size];
    for (size_t i = 0; i < left; i++)
        keys[i] = w->data[elements[i]];
    for (uint32_t function = 0; left && function < funcs; function += 2) {
        uint32_t next = function + 1 < funcs ? function + 1 : function;
        uint32_t seeds[2] = {spv_seed(w->filter, function), spv_seed(w->filter, next)};
        size_t whole = (left + lanes - 1) / lanes * lanes, survivors = 0;
        for (size_t i = left; i < whole; i++)
            keys[i] = keys[0];
        w->way->hash(keys, whole, size, seeds, w->filter->modulus, first, second);
        /* without a branch: each function rules out half of the elements, so a branch could not be predicted */
        for (size_t i = 0; i < left; i++) {
            uint32_t a = first[i], b = second[i], set = bits[a >> 3] >> (a & 7) & 1;
            uint16_t element = elements[i];
            w->bit[element] = a ^ ((a ^ b) & (0 - set));
            keys[survivors] = keys[i];
            elements[survivors] = element;
            survivors += set & bits[b >> 3] >> (b & 7);
        }
        left = survivors;
    }
    for (size_t i = 0; i < left; i++)
        pass(w, elements[i]);
    w->waiting[size] = 0;
}

void spv_window_test(spv_window *w) {
    for (size_t size = 1; size < SPV_SHORT; size++)
        if (w->waiting[size])
            spv_window_test_short(w, size);
}

size_t spv_window_next(const spv_window *w, size_t element) {
    if (w->changed) { /* for an element that passed, the known bit is set */
        while (element < w->count && !spv_bit(w->filter, w->bit[element]))
            element++;
        return element;
    }
    for (; element < w->count; element = (element | 63) + 1) {
        uint64_t ahead = w->passed[element / 64] >> element % 64;
        if (ahead)
            return element + (size_t)__builtin_ctzll(ahead);
    }
    return w->count;
}

bool spv_window_contains(const spv_window *w, size_t element) {
    uint32_t bit;
    if (w->passed[element / 64] >> element % 64 & 1)
        return true;
    return spv_filter_contains(w->filter, w->data[element], w->size[element], &bit);
}
