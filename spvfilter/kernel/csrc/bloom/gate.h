/* The gate of a filter's cells: it decides whether a write of this process must be atomic.

   Plain writes are twice as fast as atomic writes, but lose concurrent writes to the same byte. A thread with the
   GIL writes plainly while no thread writes without the GIL. A single thread without the GIL writes plainly until a
   second writer comes. From then on, all writes are atomic. If the memory is not private, all writes are atomic from
   the start. */
#ifndef SPV_BLOOM_GATE_H
#define SPV_BLOOM_GATE_H

#include "fork.h"

typedef struct {
    atomic_bool shared; /* all writes are atomic; it never becomes false again */
    atomic_uint alone;  /* generation of the process in which a thread writes plainly and without the GIL; 0 if there is none */
} spv_gate;

/* Makes all writes atomic. Returns when the thread that writes plainly has seen that. */
void spv_gate_share(spv_gate *gate);

/* Called before a write with the GIL. Returns whether the write must be atomic. */
SPV_INLINE bool spv_gate_enter(spv_gate *gate) {
    if (atomic_load_explicit(&gate->shared, memory_order_relaxed))
        return true;
    if (SPV_LIKELY(!atomic_load_explicit(&gate->alone, memory_order_acquire)))
        return false;
    spv_gate_share(gate);
    return true;
}

/* The same before writes without the GIL, while the GIL is still held. spv_gate_leave ends them, before the GIL is
   acquired again. */
bool spv_gate_enter_unlocked(spv_gate *gate);

/* Called often between these writes. Returns whether they must be atomic from now on. */
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
