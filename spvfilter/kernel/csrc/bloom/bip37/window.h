/* A window of elements tested against a BIP-37 filter together, ahead of the order in which matches change it. Internal to this folder.

   The positions of an element's bits do not depend on what the filter contains. So elements are hashed out of order, those of one size
   side by side, and for each it is noted that all its bits were set, or one that was not. Then they are examined in order: while the
   filter is unchanged, only those with all bits set can be in it; once it has changed, an element whose known bit is still unset is not
   in it, and any other is tested in full. That is exact after any number of changes, and each element is hashed twice at most. */
#ifndef SPV_BLOOM_BIP37_WINDOW_H
#define SPV_BLOOM_BIP37_WINDOW_H

#include "bloom/bip37/element.h"

enum {
    SPV_WINDOW = 4096, /* elements */
    SPV_SHORT = 128,   /* bytes; shorter elements are hashed side by side */
    SPV_BUCKET = 128   /* elements of one size that are hashed together */
};

typedef struct {
    const spv_filter *filter;
    const spv_murmur3_way *way;
    const uint8_t *near_end; /* from here on a lane would read beyond the bytes given */
    size_t count;
    bool changed; /* since the window was empty */
    const uint8_t *data[SPV_WINDOW];
    uint32_t size[SPV_WINDOW];
    uint32_t owner[SPV_WINDOW]; /* chosen by the caller */
    uint32_t bit[SPV_WINDOW];   /* one that was unset; for an element that passed, one that was set */
    uint64_t passed[SPV_WINDOW / 64];
    uint16_t waiting[SPV_SHORT]; /* how many of each size are not tested yet */
    uint16_t bucket[SPV_SHORT][SPV_BUCKET];
} spv_window;

/* For elements within the `size` bytes at `raw`, and for others that are followed by SPV_MURMUR3_BEYOND bytes. */
void spv_window_start(spv_window *w, const spv_filter *filter, const spv_murmur3_way *way, const uint8_t *raw, size_t size);
void spv_window_test_short(spv_window *w, size_t size); /* those that wait */
void spv_window_test_long(spv_window *w, size_t element);
void spv_window_test(spv_window *w); /* all that wait */
void spv_window_empty(spv_window *w);

/* Adds an element of ≥ 1 byte; the window must not be full. `safe`: SPV_MURMUR3_BEYOND bytes follow it. */
SPV_INLINE void spv_window_put(spv_window *w, const uint8_t *data, size_t size, uint32_t owner, bool safe) {
    size_t element = w->count++;
    w->data[element] = data;
    w->size[element] = (uint32_t)size;
    w->owner[element] = owner;
    if (SPV_LIKELY(size < SPV_SHORT && (safe || (uintptr_t)data < (uintptr_t)w->near_end))) {
        size_t waiting = w->waiting[size]++;
        w->bucket[size][waiting] = (uint16_t)element;
        if (SPV_UNLIKELY(waiting == SPV_BUCKET - 1))
            spv_window_test_short(w, size);
    } else {
        spv_window_test_long(w, element);
    }
}

/* The first element from `element` on that may be in the filter; w->count if there is none. All were tested before. */
size_t spv_window_next(const spv_window *w, size_t element);
/* Whether an element is in the filter as it is now. */
bool spv_window_contains(const spv_window *w, size_t element);

#endif
