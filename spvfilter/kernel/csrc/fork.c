#include "fork.h"

#include <pthread.h>
#include <sched.h>

atomic_uint spv_generation_now = 1;

static atomic_uint changes;   /* number of changes in progress */
static atomic_bool forking;   /* true: no change may begin */
static pthread_mutex_t one_fork = PTHREAD_MUTEX_INITIALIZER, one_repair = PTHREAD_MUTEX_INITIALIZER;

void spv_begin_change(void) {
    for (;;) {
        atomic_fetch_add(&changes, 1); /* sequentially consistent, as `forking` is: the fork or the change sees the other one */
        if (SPV_LIKELY(!atomic_load(&forking)))
            return;
        atomic_fetch_sub(&changes, 1);
        while (atomic_load(&forking))
            sched_yield();
    }
}

void spv_end_change(void) {
    atomic_fetch_sub(&changes, 1);
}

void spv_begin_repair(void) {
    pthread_mutex_lock(&one_repair);
}

void spv_end_repair(void) {
    pthread_mutex_unlock(&one_repair);
}

void spv_wait_for(const spv_visitors *visitors) {
    for (;;) {
        const uint64_t inside = atomic_load(&visitors->inside);
        if (!(uint32_t)inside || inside >> 32 != spv_generation())
            return;
        sched_yield();
    }
}

static void before_fork(void) {
    pthread_mutex_lock(&one_fork);
    atomic_store(&forking, true);
    while (atomic_load(&changes))
        sched_yield();
}

static void after_fork_in_parent(void) {
    atomic_store(&forking, false);
    pthread_mutex_unlock(&one_fork);
}

static void after_fork_in_child(void) {
    atomic_fetch_add(&spv_generation_now, 1);
    atomic_store(&changes, 0); /* it counted threads of the parent */
    atomic_store(&forking, false);
    pthread_mutex_init(&one_fork, NULL);
    pthread_mutex_init(&one_repair, NULL);
}

static int watching;

static void watch(void) {
    watching = pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

bool spv_watch_forks(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    return !pthread_once(&once, watch) && !watching;
}
