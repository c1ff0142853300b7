#include "binding/cores/run.h"

#include "binding/cores/fuse.h"
#include "binding/cores/single.h"

#include "bloom/bits.h"
#include "bloom/counters.h"

enum { ALONE_FROM = 1 << 13 }; /* releasing the GIL pays for this effort or more */

bool spv_run_make_room(spv_run *run, size_t count) {
    if (!run->asks || run->room - run->answers >= count)
        return true;
    const size_t wanted = run->answers + count, room = wanted > 2 * run->room ? wanted : 2 * run->room;
    uint8_t *mask = room <= PY_SSIZE_T_MAX / run->width ? PyMem_Realloc(run->mask, room * run->width) : NULL;
    if (!mask) {
        PyErr_NoMemory();
        return false;
    }
    run->mask = mask;
    run->room = room;
    return true;
}

/* The operation itself, without Python. */
static void work(spv_run *run, const spv_keys *keys, size_t from, size_t count) {
    if (run->core->width == SPV_FINGERPRINTS) {
        const spv_core *core = run->core;
        if (run->width > 1)
            spv_fuse_hash_many(&core->shape, keys, from, count, run->mask + run->answers * run->width);
        else
            spv_fuse_has_many(&((const spv_fuse_core *)core)->fuse, &core->shape, run->batch.cells, keys, from, count, run->mask + run->answers);
        run->batch.done = count;
        return;
    }
    const bool bits = run->core->width == SPV_BITS;
    if (run->asks && bits)
        spv_bits_has_many(&run->batch, keys, from, count, run->mask + run->answers);
    else if (run->asks)
        spv_counters_has_many(&run->batch, keys, from, count, run->mask + run->answers);
    if (run->asks)
        run->batch.done = count;
    else
        run->fresh += bits ? spv_bits_add_many(&run->batch, keys, from, count) : spv_counters_add_many(&run->batch, keys, from, count);
}

/* Performs the operation without the GIL. The memory is held, because another thread may replace it; that thread
   waits for the writers. */
static bool work_alone(spv_run *run, const spv_keys *keys, size_t from, size_t count) {
    spv_core *core = run->core;
    spv_memory *memory = spv_hold_memory(core, !run->asks);
    if (!memory)
        return false;
    run->batch.cells = memory->cells;
    if (!run->asks)
        run->batch.shared = spv_gate_enter_unlocked(&core->gate);
    PyThreadState *thread = PyEval_SaveThread();
    work(run, keys, from, count);
    if (!run->asks) {
        spv_gate_leave(&core->gate, run->batch.shared);
        spv_leave(&memory->writers);
    }
    PyEval_RestoreThread(thread);
    spv_let_memory_go(memory);
    return !PyErr_CheckSignals();
}

static bool work_locked(spv_run *run, const spv_keys *keys, size_t from, size_t count) {
    spv_core *core = run->core;
    bool done = true;
    SPV_LOCK(core)
    if (!run->asks)
        done = spv_check_writable(core);
    if (done) {
        run->batch.cells = core->memory->cells;
        run->batch.shared = !run->asks && spv_gate_enter(&core->gate);
        work(run, keys, from, count);
    }
    SPV_UNLOCK()
    return done;
}

static bool work_on_series(spv_run *run, const spv_keys *keys, size_t from, size_t count, bool alone) {
    spv_series_work work = {.keys = keys, .from = from, .count = count, .mask = run->asks ? run->mask + run->answers : NULL, .alone = alone};
    const bool done = spv_series_perform(run->series, &work);
    run->fresh += work.fresh;
    run->batch.done = work.done;
    return done;
}

static bool make_room_for_keys(spv_run *run, size_t *tries) {
    return run->series ? spv_series_make_room(run->series, tries) : spv_core_make_room(run->core, tries);
}

bool spv_run_many(spv_run *run, const spv_keys *keys, size_t from, size_t count, size_t effort) {
    if (!count)
        return true;
    if (!spv_run_make_room(run, count))
        return false;
    for (size_t tries = 0;;) {
        run->batch.done = 0;
        const bool alone = effort >= ALONE_FROM;
        if (!(run->series ? work_on_series(run, keys, from, count, alone) : (alone ? work_alone : work_locked)(run, keys, from, count)))
            return false;
        run->answers += run->asks ? count : 0;
        from += run->batch.done;
        count -= run->batch.done;
        if (!count)
            return true;
        if (run->batch.done)
            tries = 0;
        if (!make_room_for_keys(run, &tries)) /* there was no room for a new key */
            return false;
    }
}

static bool note(spv_run *run, int answer) {
    if (answer < 0 || !spv_run_make_room(run, 1))
        return false;
    if (run->asks)
        run->mask[run->answers++] = (uint8_t)answer;
    else
        run->fresh += (size_t)answer;
    return true;
}

/* The operation on one key of a FuseCore. */
static bool note_fused(spv_run *run, const spv_held *held) {
    if (run->width == 1)
        return note(run, spv_fuse_contains_held((spv_fuse_core *)run->core, held));
    uint64_t hash;
    if (!spv_fuse_hash_held(run->core, held, &hash) || !spv_run_make_room(run, 1))
        return false;
    uint8_t *at = run->mask + run->answers++ * run->width;
    spv_put_le32(at, (uint32_t)hash);
    spv_put_le32(at + 4, (uint32_t)(hash >> 32));
    return true;
}

bool spv_run_one(spv_run *run, PyObject *key) {
    if (run->core->width == SPV_FINGERPRINTS) {
        spv_held held;
        if (!spv_hold(run->core, key, &held))
            return false;
        const bool done = note_fused(run, &held);
        spv_let_go(&held);
        return done;
    }
    if (run->series)
        return note(run, run->asks ? spv_series_contains_key(run->series, key) : spv_series_add_key(run->series, key));
    return note(run, run->asks ? spv_core_contains((PyObject *)run->core, key) : spv_core_add(run->core, key));
}

bool spv_run_held(spv_run *run, const spv_held *held) {
    if (run->core->width == SPV_FINGERPRINTS)
        return note_fused(run, held);
    if (run->series)
        return note(run, run->asks ? spv_series_contains_held(run->series, held) : spv_series_add_held(run->series, held));
    return note(run, run->asks ? spv_core_contains_held(run->core, held) : spv_core_add_held(run->core, held));
}

bool spv_run_skip(spv_run *run) {
    return !run->asks || run->width > 1 || note(run, 0);
}
