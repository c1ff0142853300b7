/* Forks of the process.

   A fork copies the memory of the process, but only one thread: the thread that forks. The child may therefore find
   counts of threads that do not exist in it, locks that such threads hold, and a table in the middle of a change.

   Locks and counts of threads contain the generation of their process. A child has another generation than its
   parent and recognizes by this which locks and counts belong to the parent. Data that must never be seen in the
   middle of a change is changed between spv_begin_change and spv_end_change. A fork waits for the end of such
   changes. */
#ifndef SPV_FORK_H
#define SPV_FORK_H

#include <stdatomic.h>

#include "spv.h"

extern atomic_uint spv_generation_now;

/* 1 in the first process. A child has one more than its parent. */
SPV_INLINE unsigned spv_generation(void) {
    return atomic_load_explicit(&spv_generation_now, memory_order_relaxed);
}

/* Makes all later forks wait for changes, and counts them. A second call does nothing. False: no memory. */
bool spv_watch_forks(void);

/* The start and end of a change. Between them, the thread must wait neither for a lock nor for Python. */
void spv_begin_change(void);
void spv_end_change(void);

/* Only one thread of a child at a time repairs a lock. */
void spv_begin_repair(void);
void spv_end_repair(void);

/* The number of threads inside a section. Threads of the parent do not count in a child. All zero: none. */
typedef struct {
    _Atomic uint64_t inside; /* the generation in the upper 32 bits, the count in the lower 32 bits */
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
