/* Labels of entries as bytes. The twin of pure.packed._label_of; pure.packed.hit_lines has the format. */
#ifndef SPV_WATCH_LABELS_H
#define SPV_WATCH_LABELS_H

#include "spv.h"

typedef struct {
    spv_bytes places, texts;
} spv_labels;

/* A u32 in native order, of any alignment. */
SPV_INLINE uint32_t spv_native32(const uint8_t *at) {
    uint32_t number;
    memcpy(&number, at, sizeof number);
    return number;
}

/* pure.packed.is_ascending. */
SPV_INLINE bool spv_is_ascending(spv_bytes numbers) {
    bool is = true;
    for (size_t at = 4; at < numbers.size && is; at += 4)
        is = spv_native32(numbers.data + at - 4) < spv_native32(numbers.data + at);
    return is;
}

/* The label of an entry: *label is empty if it has none. */
SPV_INLINE spv_status spv_label_of(const spv_labels *of, uint32_t entry, spv_bytes *label, spv_error *error) {
    enum { SIZE = 4 /* bytes of a number */, PLACE = 8 };
    size_t low = 0, high = of->places.size / PLACE;
    *label = (spv_bytes){NULL, 0};
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (spv_native32(of->places.data + PLACE * middle) < entry)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == of->places.size / PLACE || spv_native32(of->places.data + PLACE * low) != entry)
        return SPV_OK;
    const size_t at = spv_native32(of->places.data + PLACE * low + SIZE), end = of->texts.size;
    if (SPV_UNLIKELY(at > end || end - at < SIZE || end - at - SIZE < spv_native32(of->texts.data + at)))
        return spv_refuse(error, PLACE * low, "labels", "the label of entry %u is outside the texts", (unsigned)entry);
    *label = (spv_bytes){of->texts.data + at + SIZE, spv_native32(of->texts.data + at)};
    return SPV_OK;
}

#endif
