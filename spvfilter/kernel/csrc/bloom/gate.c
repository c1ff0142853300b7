#include "bloom/gate.h"

#include <sched.h>

void spv_gate_share(spv_gate *gate) {
    atomic_store_explicit(&gate->shared, true, memory_order_relaxed);
    unsigned writer;
    while ((writer = atomic_load_explicit(&gate->alone, memory_order_acquire)) != 0) {
        if (writer != spv_generation()) { /* the value was copied by a fork: that thread does not exist in this process */
            atomic_store_explicit(&gate->alone, 0, memory_order_relaxed);
            return;
        }
        sched_yield();
    }
}

bool spv_gate_enter_unlocked(spv_gate *gate) {
    const bool shared = spv_gate_enter(gate);
    if (!shared)
        atomic_store_explicit(&gate->alone, spv_generation(), memory_order_relaxed);
    return shared;
}
