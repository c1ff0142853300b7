/* A fair readers-writer lock: readers that wait for a writer get the lock before the next writer.

   A forked child finds every lock free. Its only thread is the thread that forked, which held no lock. A fork waits
   for writers, so that the data that the lock guards is never half-written in the child. */
#ifndef SPV_WATCH_LOCK_H
#define SPV_WATCH_LOCK_H

#include "fork.h"

#include <pthread.h>

/* Not recursive. A thread that locks two locks takes the lock at the lower address first. A writer locks no other
   lock. */
typedef struct {
    pthread_mutex_t mutex;
    pthread_cond_t reading, writing;
    unsigned readers;         /* number of readers that hold the lock */
    unsigned waiting_readers, waiting_writers;
    unsigned long turn;       /* number of times that a writer has handed the lock to waiting readers */
    bool written;             /* a writer holds the lock */
    atomic_uint generation;   /* generation of the process that the state above belongs to */
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
