/* Arrays that double their size: {items, count, room}. An empty array is all zero. The caller frees `items`. */
#ifndef SPV_ARRAY_H
#define SPV_ARRAY_H

#include "spv.h"

#include <stdlib.h>

enum { SPV_ARRAY_LEAST = 16 }; /* items of the first allocation */

/* Returns `items` with room for one more item than `count`: the same memory, or moved memory of twice the size.
   NULL: no memory; `items` is unchanged. */
SPV_INLINE void *spv_array_grown(void *items, size_t count, size_t *room, size_t item_size) {
    if (SPV_LIKELY(count < *room))
        return items;
    const size_t more = *room ? 2 * *room : SPV_ARRAY_LEAST;
    void *grown = more <= SIZE_MAX / 2 / item_size ? realloc(items, more * item_size) : NULL;
    if (grown)
        *room = more;
    return grown;
}

#endif
