/* Forks of the process. A fork copies all of its memory, but only the thread that forks. So a child may find counts of threads that do not
   exist there, locks that they hold, and a table half-way through a change.

   Locks and counts of threads are stamped with the generation of their process; a child, whose generation differs, knows by that that
   they are the parent's. Data that must never be seen half-changed is changed between spv_begin_change and spv_end_change: a fork waits
   for the end of such changes. */
#ifndef SPV_FORK_H
#define SPV_FORK_H

#include <stdatomic.h>

#include "spv.h"

extern atomic_uint spv_generation_now;

/* 1 in the first process; one more in a child than in its parent. */
SPV_INLINE unsigned spv_generation(void) {
    return atomic_load_explicit(&spv_generation_now, memory_order_relaxed);
}

/* Makes all later forks wait for changes and be counted; does nothing when called again. False: no memory. */
bool spv_watch_forks(void);

/* The start and end of a change. Between them, the thread must wait neither for a lock nor for Python. */
void spv_begin_change(void);
void spv_end_change(void);

/* Serialise the repairs in a child, one for each lock. */
void spv_begin_repair(void);
void spv_end_repair(void);

/* The number of threads inside a section; in a child, the parent's do not count. All zero: none. */
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

/* Waits until no thread is inside. */
void spv_wait_for(const spv_visitors *visitors);

#endif
