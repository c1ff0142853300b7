/* A window of elements that are tested against a BIP-37 filter together. Internal to this folder.

   The positions of an element's bits do not depend on the filter's contents. Elements of one size are therefore
   hashed side by side, in any order. For each element the window notes that all its bits were set, or notes a bit
   that was not set.

   Later the elements are examined in order, while matches change the filter. While the filter is unchanged, only
   elements with all bits set can be in it. After a change, an element is not in the filter if its known bit is still
   not set. Every other element is tested in full. This is exact after any number of changes, and each element is
   hashed twice at most. */
#ifndef SPV_BLOOM_BIP37_WINDOW_H
#define SPV_BLOOM_BIP37_WINDOW_H

#include "bloom/bip37/element.h"

enum {
    SPV_WINDOW = 4096, /* elements */
    SPV_SHORT = 128,   /* bytes; only shorter elements are hashed side by side */
    SPV_BUCKET = 128   /* elements of one size that are hashed together */
};

typedef struct {
    const spv_filter *filter;
    const spv_murmur3_way *way;
    const uint8_t *near_end; /* from here on a lane would read beyond the buffer */
    size_t count;
    bool changed; /* the filter has changed since the window was empty */
    const uint8_t *data[SPV_WINDOW];
    uint32_t size[SPV_WINDOW];
    uint32_t owner[SPV_WINDOW]; /* chosen by the caller */
    uint32_t bit[SPV_WINDOW];   /* a bit that was not set; for an element that passed, a bit that was set */
    uint64_t passed[SPV_WINDOW / 64];
    uint16_t waiting[SPV_SHORT]; /* number of elements of each size that are not tested yet */
    uint16_t bucket[SPV_SHORT][SPV_BUCKET];
} spv_window;

/* Starts a window for elements within the `size` bytes at `raw`, and for other elements that SPV_MURMUR3_BEYOND
   bytes follow. */
void spv_window_start(spv_window *w, const spv_filter *filter, const spv_murmur3_way *way, const uint8_t *raw, size_t size);
void spv_window_test_short(spv_window *w, size_t size); /* tests the waiting elements of this size */
void spv_window_test_long(spv_window *w, size_t element);
void spv_window_test(spv_window *w); /* tests all waiting elements */
void spv_window_empty(spv_window *w);

/* Adds an element of at least 1 byte. The window must not be full. `safe`: SPV_MURMUR3_BEYOND bytes follow the
   element. */
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

/* The first element, starting with `element`, that may be in the filter; w->count if there is none. All elements must have
   been tested. */
size_t spv_window_next(const spv_window *w, size_t element);
/* True if an element is in the filter in its current state. */
bool spv_window_contains(const spv_window *w, size_t element);

#endif
