#define _DEFAULT_SOURCE
#include "watch/lock.h"

bool spv_lock_init(spv_lock *lock) {
    *lock = (spv_lock){0};
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

void spv_lock_free(spv_lock *lock) {
    pthread_cond_destroy(&lock->writing);
    pthread_cond_destroy(&lock->reading);
    pthread_mutex_destroy(&lock->mutex);
}

bool spv_try_read(spv_lock *lock) {
    pthread_mutex_lock(&lock->mutex);
    bool free = !lock->written && !lock->waiting_writers;
    lock->readers += free;
    pthread_mutex_unlock(&lock->mutex);
    return free;
}

bool spv_try_write(spv_lock *lock) {
    pthread_mutex_lock(&lock->mutex);
    bool free = !lock->written && !lock->readers && !lock->waiting_writers;
    if (free)
        lock->written = true;
    pthread_mutex_unlock(&lock->mutex);
    return free;
}

void spv_read(spv_lock *lock) {
    pthread_mutex_lock(&lock->mutex);
    if (lock->written || lock->waiting_writers) {
        unsigned long turn = lock->turn;
        lock->waiting_readers++;
        while (lock->turn == turn) /* the writer that ends it counts us among the readers */
            pthread_cond_wait(&lock->reading, &lock->mutex);
    } else {
        lock->readers++;
    }
    pthread_mutex_unlock(&lock->mutex);
}

void spv_write(spv_lock *lock) {
    pthread_mutex_lock(&lock->mutex);
    lock->waiting_writers++;
    while (lock->written || lock->readers)
        pthread_cond_wait(&lock->writing, &lock->mutex);
    lock->waiting_writers--;
    lock->written = true;
    pthread_mutex_unlock(&lock->mutex);
}

void spv_end_read(spv_lock *lock) {
    pthread_mutex_lock(&lock->mutex);
    if (!--lock->readers && lock->waiting_writers)
        pthread_cond_signal(&lock->writing);
    pthread_mutex_unlock(&lock->mutex);
}

void spv_end_write(spv_lock *lock) {
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
