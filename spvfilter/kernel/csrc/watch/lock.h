/* A fair readers-writer lock: readers that wait for a writer get in before the next writer.

   A child of fork finds every lock free: its only thread is the one that forked, which held none. Since a fork waits for writers, the
   data that the lock guards is never half-written in the child. */
#ifndef SPV_WATCH_LOCK_H
#define SPV_WATCH_LOCK_H

#include "fork.h"

#include <pthread.h>

/* Not recursive. A thread that locks two takes the one at the lower address first; a writer locks no other. */
typedef struct {
    pthread_mutex_t mutex;
    pthread_cond_t reading, writing;
    unsigned readers;         /* inside */
    unsigned waiting_readers, waiting_writers;
    unsigned long turn;       /* counts the writers that let waiting readers in */
    bool written;             /* a writer is inside */
    atomic_uint generation;   /* of the process that the state above belongs to */
} spv_lock;

bool spv_lock_init(spv_lock *lock);
void spv_lock_free(spv_lock *lock);
bool spv_try_read(spv_lock *lock); /* false if it would have to wait */
bool spv_try_write(spv_lock *lock);
void spv_read(spv_lock *lock);
void spv_write(spv_lock *lock);
void spv_end_read(spv_lock *lock);
void spv_end_write(spv_lock *lock);

#endif
