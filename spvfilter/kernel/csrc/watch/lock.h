/* A fair readers-writer lock: readers that wait for a writer get in before the next writer.

   A child of fork finds every lock free: of the parent's threads only the one that forked is there, which held none. And since a fork waits
   for writers, what the lock guards is never half-written there. */
#ifndef SPV_WATCH_LOCK_H
#define SPV_WATCH_LOCK_H

#include "fork.h"

#include <pthread.h>

/* Not recursive. Whoever locks two takes the one at the lower address first; whoever writes locks no other. */
typedef struct {
    pthread_mutex_t mutex;
    pthread_cond_t reading, writing;
    unsigned readers;         /* inside */
    unsigned waiting_readers, waiting_writers;
    unsigned long turn;       /* counts the writers that let waiting readers in */
    bool written;             /* a writer is inside */
    atomic_uint generation;   /* of the process to which all of the above belongs */
} spv_lock;

bool spv_lock_init(spv_lock *lock);
void spv_lock_free(spv_lock *lock);
bool spv_try_read(spv_lock *lock); /* false where it would have to wait */
bool spv_try_write(spv_lock *lock);
void spv_read(spv_lock *lock);
void spv_write(spv_lock *lock);
void spv_end_read(spv_lock *lock);
void spv_end_write(spv_lock *lock);

#endif
