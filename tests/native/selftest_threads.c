/* The watch table's lock and the filters' gate: which threads enter together, alone or after waiting, also in a
   forked child. */
#define _DEFAULT_SOURCE /* fork, alarm, usleep */
#include "selftest.h"

#include <pthread.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bloom/bits.h"
#include "bloom/gate.h"
#include "watch/lock.h"
#include "watch/table.h"

enum { THREADS = 4, ROUNDS = 3000 };

static void who_gets_in(void) {
    spv_lock lock;
    CHECK(spv_lock_init(&lock));
    CHECK(spv_try_read(&lock) && spv_try_read(&lock) && !spv_try_write(&lock));
    spv_end_read(&lock);
    CHECK(!spv_try_write(&lock));
    spv_end_read(&lock);
    CHECK(spv_try_write(&lock) && !spv_try_read(&lock) && !spv_try_write(&lock));
    spv_end_write(&lock);
    spv_write(&lock);
    CHECK(!spv_try_read(&lock) && !spv_try_write(&lock));
    spv_end_write(&lock);
    spv_read(&lock);
    spv_read(&lock);
    CHECK(!spv_try_write(&lock));
    spv_end_read(&lock);
    spv_end_read(&lock);
    CHECK(spv_try_write(&lock));
    spv_end_write(&lock);
    spv_lock_free(&lock);
}

typedef struct {
    spv_lock lock;
    pthread_t thread;
    _Atomic unsigned inside; /* writers that have entered */
} guarded;

static void *write_once(void *of) {
    guarded *g = of;
    spv_write(&g->lock);
    g->inside++;
    spv_end_write(&g->lock);
    return NULL;
}

static void *read_once(void *of) {
    guarded *g = of;
    spv_read(&g->lock);
    g->inside++;
    spv_end_read(&g->lock);
    return NULL;
}

static unsigned waiting(guarded *g, bool writers) {
    pthread_mutex_lock(&g->lock.mutex);
    const unsigned count = writers ? g->lock.waiting_writers : g->lock.waiting_readers;
    pthread_mutex_unlock(&g->lock.mutex);
    return count;
}

/* A waiting writer keeps new readers out; waiting readers enter before the next writer. */
static void who_waits_for_whom(void) {
    guarded g = {.inside = 0};
    pthread_t writer, reader;
    CHECK(spv_lock_init(&g.lock));
    spv_read(&g.lock);
    CHECK(!pthread_create(&writer, NULL, write_once, &g));
    while (!waiting(&g, true))
        sched_yield();
    CHECK(!spv_try_read(&g.lock) && !spv_try_write(&g.lock) && !g.inside);
    CHECK(!pthread_create(&reader, NULL, read_once, &g));
    while (!waiting(&g, false))
        sched_yield();
    CHECK(!g.inside);
    spv_end_read(&g.lock);
    CHECK(!pthread_join(writer, NULL) && !pthread_join(reader, NULL) && g.inside == 2);

    spv_write(&g.lock);
    CHECK(!pthread_create(&writer, NULL, write_once, &g));
    while (!waiting(&g, true))
        sched_yield();
    CHECK(!pthread_create(&reader, NULL, read_once, &g));
    while (!waiting(&g, false))
        sched_yield();
    spv_end_write(&g.lock);
    CHECK(!pthread_join(reader, NULL) && !pthread_join(writer, NULL) && g.inside == 4);
    CHECK(spv_try_write(&g.lock)); /* threads that left are not counted */
    spv_end_write(&g.lock);
    CHECK(spv_try_read(&g.lock));
    spv_end_read(&g.lock);
    spv_lock_free(&g.lock);
}

typedef struct {
    spv_lock lock;
    unsigned long first, second; /* equal outside of a write */
} pair;

static void *read_and_write(void *of) {
    pair *p = of;
    for (int i = 0; i < ROUNDS; i++) {
        spv_read(&p->lock);
        CHECK(p->first == p->second);
        spv_end_read(&p->lock);
        spv_write(&p->lock);
        p->first++;
        p->second++;
        spv_end_write(&p->lock);
    }
    return NULL;
}

static void readers_and_writers(void) {
    pair p = {.first = 0};
    pthread_t threads[THREADS];
    CHECK(spv_lock_init(&p.lock));
    for (int i = 0; i < THREADS; i++)
        CHECK(!pthread_create(threads + i, NULL, read_and_write, &p));
    for (int i = 0; i < THREADS; i++)
        CHECK(!pthread_join(threads[i], NULL));
    CHECK(p.first == (unsigned long)THREADS * ROUNDS && p.second == p.first);
    spv_lock_free(&p.lock);
}

typedef struct {
    spv_gate gate;
    _Atomic bool begun, left;
    bool had_to_share;
} gated;

static void *write_plainly(void *of) {
    gated *g = of;
    bool shared = spv_gate_enter_unlocked(&g->gate);
    CHECK(!shared);
    g->begun = true;
    while (!(shared = spv_gate_again(&g->gate, shared)))
        sched_yield();
    g->had_to_share = true;
    spv_gate_leave(&g->gate, shared);
    return NULL;
}

/* The first writer without the lock writes plainly until a second one comes. The second one waits until the first
   has noticed it. */
static void gates(void) {
    gated g = {.begun = false};
    pthread_t first;
    CHECK(!spv_gate_enter(&g.gate) && !spv_gate_again(&g.gate, false));
    CHECK(!spv_gate_enter_unlocked(&g.gate) && g.gate.alone == spv_generation());
    spv_gate_leave(&g.gate, false);
    CHECK(!g.gate.alone && !spv_gate_enter(&g.gate));
    CHECK(!pthread_create(&first, NULL, write_plainly, &g));
    while (!g.begun)
        sched_yield();
    CHECK(spv_gate_enter_unlocked(&g.gate) && !g.gate.alone);
    spv_gate_leave(&g.gate, true);
    CHECK(!pthread_join(first, NULL) && g.had_to_share);
    CHECK(spv_gate_enter(&g.gate) && spv_gate_enter_unlocked(&g.gate) && spv_gate_again(&g.gate, true) && !g.gate.alone);
    spv_gate_share(&g.gate);
    CHECK(g.gate.shared && !g.gate.alone);
}

/* Checks that `work`, which waits for no thread of the parent, succeeds in a child. */
static void in_a_child(bool (*work)(void *), void *of) {
    CHECK(spv_watch_forks());
    const pid_t child = fork();
    CHECK(child >= 0);
    if (!child) {
        alarm(20);
        _exit(work(of) ? 0 : 1);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && !WEXITSTATUS(status));
}

static bool enter_gate(void *of) {
    spv_gate *gate = of;
    return spv_gate_enter(gate) && !gate->alone;
}

static bool take_lock(void *of) {
    spv_lock *lock = of;
    if (!spv_try_write(lock) || spv_try_read(lock))
        return false;
    spv_end_write(lock);
    spv_write(lock);
    spv_end_write(lock);
    spv_lock_free(lock);
    return true;
}

static bool wait_for_visitors(void *of) {
    spv_visitors *visitors = of;
    spv_wait_for(visitors);
    spv_visit(visitors);
    const bool alone = (uint32_t)visitors->inside == 1;
    spv_leave(visitors);
    spv_wait_for(visitors);
    return alone && spv_generation() > 1;
}

static bool repair(void *unused) {
    (void)unused;
    spv_begin_repair();
    spv_end_repair();
    return true;
}

static bool repair_and_fork(void *unused) {
    in_a_child(repair, unused);
    return repair(unused);
}

/* Locks held by threads of the parent are free in a child, and unchanged in the parent. */
static void forks(void) {
    spv_gate gate = {false, 0};
    CHECK(!spv_gate_enter_unlocked(&gate));
    in_a_child(enter_gate, &gate);
    CHECK(!gate.shared && gate.alone);
    spv_gate_leave(&gate, false);

    spv_lock lock;
    CHECK(spv_lock_init(&lock));
    spv_read(&lock);
    in_a_child(take_lock, &lock);
    CHECK(!spv_try_write(&lock) && spv_try_read(&lock));
    spv_end_read(&lock);
    spv_end_read(&lock);
    CHECK(spv_try_write(&lock));
    spv_end_write(&lock);
    lock.written = true; /* the state if a fork comes between a writer's entry and the start of its change */
    in_a_child(take_lock, &lock);
    lock.written = false;
    spv_lock_free(&lock);

    spv_begin_repair();
    in_a_child(repair_and_fork, NULL);
    spv_end_repair();

    spv_visitors visitors = {0};
    spv_visit(&visitors);
    spv_visit(&visitors);
    in_a_child(wait_for_visitors, &visitors);
    CHECK((uint32_t)visitors.inside == 2);
    spv_leave(&visitors);
    spv_leave(&visitors);
    spv_wait_for(&visitors);
    CHECK(spv_generation() == 1);
}

/* Threads that add to one filter, as batches without the interpreter's lock do: no key is lost, and no write is
   torn. */
enum { KEYS = 2000, WIDTH = 20, CELLS = 40009, FUNCTIONS = 5 };

typedef struct {
    spv_shape shape;
    spv_gate gate;
    spv_room room;
    uint8_t rows[KEYS * WIDTH], cells[(CELLS + 7) / 8];
    _Atomic size_t next; /* key */
} filter;

static void *add_keys(void *of) {
    enum { SOME = 50 };
    filter *f = of;
    uint64_t positions[SPV_AHEAD_CELLS];
    uint8_t mask[SOME];
    const spv_keys keys = {.rows = f->rows, .width = WIDTH};
    spv_batch batch = {
        .shape = &f->shape, .cells = f->cells, .width = 1, .gate = &f->gate, .positions = positions, .far = true,
        .shared = spv_gate_enter_unlocked(&f->gate), .room = &f->room,
    };
    for (size_t from; (from = atomic_fetch_add(&f->next, SOME)) < KEYS;) {
        spv_bits_add_many(&batch, &keys, from, SOME);
        CHECK(batch.done == SOME); /* there is room for exactly all keys */
        spv_bits_has_many(&batch, &keys, from, SOME, mask);
        for (size_t i = 0; i < SOME; i++)
            CHECK(mask[i] == 1);
    }
    spv_gate_leave(&f->gate, batch.shared);
    return NULL;
}

static void filters(void) {
    static filter together, alone;
    dice dice = {5};
    pthread_t threads[THREADS];
    roll_bytes(&dice, alone.rows, sizeof alone.rows);
    memcpy(together.rows, alone.rows, sizeof alone.rows);
    spv_shape_make(&alone.shape, SPV_FAMILY_FAST, CELLS, FUNCTIONS, false, alone.rows);
    together.shape = alone.shape;
    atomic_init(&alone.room, KEYS);
    atomic_init(&together.room, KEYS);
    add_keys(&alone);
    for (int i = 0; i < THREADS; i++)
        CHECK(!pthread_create(threads + i, NULL, add_keys, &together));
    for (int i = 0; i < THREADS; i++)
        CHECK(!pthread_join(threads[i], NULL));
    CHECK(same(together.cells, alone.cells, sizeof alone.cells));
    CHECK(spv_room_left(&alone.room) >= 0 && spv_room_left(&together.room) >= 0);
}

/* Threads that read and change one table, all by the rule of its lock. */
typedef struct {
    spv_lock lock;
    spv_table *table;
    _Atomic uint32_t next;
} shared_table;

static void *use_table(void *of) {
    shared_table *t = of;
    for (uint32_t value; (value = atomic_fetch_add(&t->next, 1)) < ROUNDS;) {
        const spv_bytes data = {(const uint8_t *)&value, sizeof value};
        uint32_t number;
        spv_write(&t->lock);
        CHECK(!spv_table_add(t->table, SPV_DATA, data, &number));
        spv_end_write(&t->lock);
        spv_read(&t->lock);
        CHECK(spv_table_find(t->table, SPV_DATA, data) == number);
        spv_end_read(&t->lock);
    }
    return NULL;
}

static void tables(void) {
    shared_table t = {.table = spv_table_new()};
    pthread_t threads[THREADS];
    CHECK(t.table && spv_lock_init(&t.lock));
    for (int i = 0; i < THREADS; i++)
        CHECK(!pthread_create(threads + i, NULL, use_table, &t));
    for (int i = 0; i < THREADS; i++)
        CHECK(!pthread_join(threads[i], NULL));
    CHECK(t.table->entries.count == ROUNDS);
    spv_lock_free(&t.lock);
    spv_table_free(t.table);
}

typedef struct {
    spv_lock lock;
    _Atomic bool begun, ended;
} change;

static void *write_a_while(void *of) {
    change *c = of;
    spv_write(&c->lock);
    c->begun = true;
    usleep(50000);
    c->ended = true;
    spv_end_write(&c->lock);
    return NULL;
}

static bool is_ended(void *of) {
    return ((change *)of)->ended;
}

/* A fork waits for the end of a change, so that a child never sees half of it. */
static void fork_during_a_change(void) {
    change c = {.begun = false};
    pthread_t writer;
    CHECK(spv_lock_init(&c.lock));
    CHECK(!pthread_create(&writer, NULL, write_a_while, &c));
    while (!c.begun)
        sched_yield();
    in_a_child(is_ended, &c);
    CHECK(!pthread_join(writer, NULL));
    spv_lock_free(&c.lock);
}

void test_threads(void) {
    alarm(120); /* seconds; a thread that waits for ever ends the program */
    who_gets_in();
    who_waits_for_whom();
    readers_and_writers();
    gates();
    filters();
    tables();
    forks();
    fork_during_a_change();
    alarm(0);
}
