#define _DEFAULT_SOURCE
#include "watch/lock.h"

static bool make(spv_lock *lock) {
    if (pthread_mutex_init(&lock->mutex, NULL))
        return false;
    if (!pthread_cond_init(&lock->reading, NULL)) {
        if (!pthread_cond_init(&lock->writing, NULL))
            return true;
        pthread_cond_destroy(&lock->reading);
    }
    pthread_mutex_destroy(&lock->mutex);
    return false;
}

bool spv_lock_init(spv_lock *lock) {
    *lock = (spv_lock){.generation = spv_generation()};
    return spv_watch_forks() && make(lock);
}

/* Called once in a forked child: makes the lock free. The mutex and the conditions of the parent are abandoned,
   because they cannot be destroyed while they are in use. */
SPV_COLD static void free_of_the_parent(spv_lock *lock) {
    spv_begin_repair();
    if (atomic_load(&lock->generation) != spv_generation()) {
        lock->readers = lock->waiting_readers = lock->waiting_writers = 0;
        lock->written = false;
        make(lock); /* cannot fail: objects of one process need no memory */
        atomic_store(&lock->generation, spv_generation());
    }
    spv_end_repair();
}

SPV_INLINE void repair(spv_lock *lock) {
    if (SPV_UNLIKELY(atomic_load_explicit(&lock->generation, memory_order_acquire) != spv_generation()))
        free_of_the_parent(lock);
}

SPV_INLINE void enter(spv_lock *lock) {
    repair(lock);
    pthread_mutex_lock(&lock->mutex);
}

void spv_lock_free(spv_lock *lock) {
    repair(lock); /* otherwise destroying it would wait for threads of the parent */
    pthread_cond_destroy(&lock->writing);
    pthread_cond_destroy(&lock->reading);
    pthread_mutex_destroy(&lock->mutex);
}

bool spv_try_read(spv_lock *lock) {
    enter(lock);
    bool free = !lock->written && !lock->waiting_writers;
    lock->readers += free;
    pthread_mutex_unlock(&lock->mutex);
    return free;
}

bool spv_try_write(spv_lock *lock) {
    enter(lock);
    bool free = !lock->written && !lock->readers && !lock->waiting_writers;
    if (free)
        lock->written = true;
    pthread_mutex_unlock(&lock->mutex);
    if (free)
        spv_begin_change();
    return free;
}

void spv_read(spv_lock *lock) {
    enter(lock);
    if (lock->written || lock->waiting_writers) {
        unsigned long turn = lock->turn;
        lock->waiting_readers++;
        while (lock->turn == turn) /* the writer that ends this turn counts this thread among the readers */
            pthread_cond_wait(&lock->reading, &lock->mutex);
    } else {
        lock->readers++;
    }
    pthread_mutex_unlock(&lock->mutex);
}

void spv_write(spv_lock *lock) {
    enter(lock);
    lock->waiting_writers++;
    while (lock->written || lock->readers)
        pthread_cond_wait(&lock->writing, &lock->mutex);
    lock->waiting_writers--;
    lock->written = true;
    pthread_mutex_unlock(&lock->mutex);
    spv_begin_change(); /* last, because a fork waits for this thread: after this it must not wait itself */
}

void spv_end_read(spv_lock *lock) {
    pthread_mutex_lock(&lock->mutex);
    if (!--lock->readers && lock->waiting_writers)
        pthread_cond_signal(&lock->writing);
    pthread_mutex_unlock(&lock->mutex);
}

void spv_end_write(spv_lock *lock) {
    spv_end_change();
    pthread_mutex_lock(&lock->mutex);
    lock->written = false;
    if (lock->waiting_readers) {
        lock->readers = lock->waiting_readers;
        lock->waiting_readers = 0;
        lock->turn++;
        pthread_cond_broadcast(&lock->reading);
    } else if (lock->waiting_writers) {
        pthread_cond_signal(&lock->writing);
    }
    pthread_mutex_unlock(&lock->mutex);
}
