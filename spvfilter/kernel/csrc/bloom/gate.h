/* The gate of a filter's cells: which threads of this process write to them, and so whether a write must be atomic.

   Plain writes are twice as fast as atomic ones, but lose concurrent writes to the same byte. A thread that holds the interpreter's lock
   makes them while no thread writes without the lock; a single thread that writes without the lock makes them until a second writer
   comes. From then on, and from the start if the memory is not the filter's alone, all writes are atomic. */
#ifndef SPV_BLOOM_GATE_H
#define SPV_BLOOM_GATE_H

#include "fork.h"

typedef struct {
    atomic_bool shared; /* all writes are atomic; never false again */
    atomic_uint alone;  /* the generation of the process in which a thread writes plainly and without the interpreter's lock; 0: none does */
} spv_gate;

/* Makes all writes atomic and returns when the one thread that writes plainly has seen it. */
void spv_gate_share(spv_gate *gate);

/* Before a write under the interpreter's lock: whether it must be atomic. */
SPV_INLINE bool spv_gate_enter(spv_gate *gate) {
    if (atomic_load_explicit(&gate->shared, memory_order_relaxed))
        return true;
    if (SPV_LIKELY(!atomic_load_explicit(&gate->alone, memory_order_acquire)))
        return false;
    spv_gate_share(gate);
    return true;
}

/* The same before writes without the lock, which is still held; spv_gate_leave ends them, before it is taken again. */
bool spv_gate_enter_unlocked(spv_gate *gate);

/* Between such writes, often: whether they must be atomic from now on. */
SPV_INLINE bool spv_gate_again(spv_gate *gate, bool shared) {
    if (shared)
        return true;
    if (SPV_LIKELY(!atomic_load_explicit(&gate->shared, memory_order_relaxed)))
        return false;
    atomic_store_explicit(&gate->alone, 0, memory_order_release);
    return true;
}

SPV_INLINE void spv_gate_leave(spv_gate *gate, bool shared) {
    if (!shared)
        atomic_store_explicit(&gate->alone, 0, memory_order_release);
}

#endif
