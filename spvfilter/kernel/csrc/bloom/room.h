/* The room of a filter: the number of new keys that may be added before its owner is asked. The twin of
   pure.cells.Hashed.room. */
#ifndef SPV_BLOOM_ROOM_H
#define SPV_BLOOM_ROOM_H

#include "fork.h"

typedef _Atomic int64_t spv_room; /* number of new keys, or SPV_UNLIMITED; negative if it is not known */

#define SPV_UNLIMITED INT64_MAX

SPV_INLINE int64_t spv_room_left(spv_room *room) {
    return atomic_load_explicit(room, memory_order_relaxed);
}

/* `shared` as in gate.h: other threads may write at the same time. */
SPV_INLINE bool spv_room_move(spv_room *room, int64_t *left, int64_t now, bool shared) {
    if (shared)
        return atomic_compare_exchange_weak_explicit(room, left, now, memory_order_relaxed, memory_order_relaxed);
    atomic_store_explicit(room, now, memory_order_relaxed);
    return true;
}

/* part of the room that one of several threads reserves at once: small, so that little is reserved when the room
   ends */
enum { SPV_ROOM_SHARE = 64 };

/* Reserves room for up to `wanted` new keys before they are added. Returns for how many; 0 if there is none, or if
   the room is not known. Unused room must be returned before another thread may have to wait for this one. */
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

/* Called when many cells have changed at once, so that the number of keys is not known. */
SPV_INLINE void spv_room_forget(spv_room *room) {
    if (spv_room_left(room) != SPV_UNLIMITED)
        atomic_store_explicit(room, -1, memory_order_relaxed);
}

#endif
