/* Forks of the process. Of its threads a fork copies only the one that forks, but of its memory all: counts of threads that are inside
   something, held locks, a table half-way through a change.

   What counts threads or locks is stamped with the generation of the process, and in a child, where that differs, is known to be of
   threads that are not there. What must never be seen half-way is changed between spv_begin_change and spv_end_change: a fork waits for
   those. */
#ifndef SPV_FORK_H
#define SPV_FORK_H

#include <stdatomic.h>

#include "spv.h"

extern atomic_uint spv_generation_now;

/* 1 in the first process; one more in a child than in its parent. */
SPV_INLINE unsigned spv_generation(void) {
    return atomic_load_explicit(&spv_generation_now, memory_order_relaxed);
}

/* From here on forks are counted and wait; does nothing when called again. False: no memory. */
bool spv_watch_forks(void);

/* Around a change. Between the two no lock is waited for, and nothing of Python's. */
void spv_begin_change(void);
void spv_end_change(void);

/* Serialises what is set right in a child, once for each lock. */
void spv_begin_repair(void);
void spv_end_repair(void);

/* How many threads are inside something; threads of the parent do not count in a child. All zero: none. */
typedef struct {
    _Atomic uint64_t inside; /* the generation, then 32 bits of count */
} spv_visitors;

SPV_INLINE void spv_visit(spv_visitors *visitors) {
    const uint64_t none = (uint64_t)spv_generation() << 32;
    uint64_t before = atomic_load_explicit(&visitors->inside, memory_order_relaxed), from;
    do
        from = before >> 32 == none >> 32 ? before : none;
    while (!atomic_compare_exchange_weak(&visitors->inside, &before, from + 1));
}

SPV_INLINE void spv_leave(spv_visitors *visitors) {
    atomic_fetch_sub(&visitors->inside, 1);
}

/* Returns when nobody is inside. */
void spv_wait_for(const spv_visitors *visitors);

#endif
