/* The room of a filter: how many new keys may be added before its owner is asked. The twin of pure.cells.Hashed.room. */
#ifndef SPV_BLOOM_ROOM_H
#define SPV_BLOOM_ROOM_H

#include "fork.h"

typedef _Atomic int64_t spv_room; /* new keys; SPV_UNLIMITED; negative: unknown */

#define SPV_UNLIMITED INT64_MAX

SPV_INLINE int64_t spv_room_left(spv_room *room) {
    return atomic_load_explicit(room, memory_order_relaxed);
}

/* `shared` as in gate.h: whether other threads write meanwhile. */
SPV_INLINE bool spv_room_move(spv_room *room, int64_t *left, int64_t now, bool shared) {
    if (shared)
        return atomic_compare_exchange_weak_explicit(room, left, now, memory_order_relaxed, memory_order_relaxed);
    atomic_store_explicit(room, now, memory_order_relaxed);
    return true;
}

enum { SPV_ROOM_SHARE = 64 }; /* of the room, what one of several threads takes at once, so that little is on its way when it ends */

/* Takes room for up to `wanted` new keys before they are added: how many. 0: there is none, or it is unknown. What is not used is given
   back, before another thread may have to wait for this one. */
SPV_INLINE size_t spv_room_reserve(spv_room *room, size_t wanted, bool shared) {
    int64_t left = spv_room_left(room), most;
    do {
        if (left == SPV_UNLIMITED)
            return wanted;
        if (left <= 0)
            return 0;
        most = shared ? 1 + (left - 1) / SPV_ROOM_SHARE : left;
        most = (uint64_t)most < wanted ? most : (int64_t)wanted;
    } while (!spv_room_move(room, &left, left - most, shared));
    return (size_t)most;
}

SPV_INLINE void spv_room_give_back(spv_room *room, size_t keys, bool shared) {
    int64_t left = spv_room_left(room);
    while (keys && left != SPV_UNLIMITED && left >= 0 && !spv_room_move(room, &left, left + (int64_t)keys, shared))
        continue;
}

/* Many cells have changed at once: how many keys there are is unknown. */
SPV_INLINE void spv_room_forget(spv_room *room) {
    if (spv_room_left(room) != SPV_UNLIMITED)
        atomic_store_explicit(room, -1, memory_order_relaxed);
}

#endif
