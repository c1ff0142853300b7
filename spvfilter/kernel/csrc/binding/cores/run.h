/* A batch under way: keys whose bytes are held go into the filter, or are looked up, many at once and where it pays without the
   interpreter's lock. */
#ifndef SPV_BINDING_CORES_RUN_H
#define SPV_BINDING_CORES_RUN_H

#include "binding/cores/keys.h"
#include "binding/cores/series.h"

enum {
    SPV_EFFORT = 1 << 24, /* between two checks for signals: bytes of keys, plus SPV_EFFORT_OF_A_CELL for each cell */
    SPV_EFFORT_OF_A_CELL = 8
};

typedef struct {
    spv_core *core;     /* that encodes the keys */
    spv_series *series; /* that takes them, or NULL: the core does */
    bool asks;          /* contains_many; else update */
    bool skip;          /* nulls are left out; else they are refused */
    size_t fresh;       /* keys that were new */
    uint8_t *mask;      /* answers, a byte each */
    size_t answers, room;
    size_t rows;        /* of columns, done before the present one */
    spv_batch batch;
    uint64_t near[SPV_AHEAD_CELLS];
} spv_run;

SPV_INLINE size_t spv_effort_of(const spv_core *core, size_t size) {
    return size + (size_t)core->shape.functions * SPV_EFFORT_OF_A_CELL + 1;
}

/* False with an exception set if there is no memory for so many more answers. */
bool spv_run_make_room(spv_run *run, size_t count);

/* The operation on keys whose bytes are held. False with an exception set, after the keys before. */
bool spv_run_many(spv_run *run, const spv_keys *keys, size_t from, size_t count, size_t effort);

/* The same on one key that is an object, and on one held key. */
bool spv_run_one(spv_run *run, PyObject *key);
bool spv_run_held(spv_run *run, const spv_held *held);

/* A key that is left out: it is not contained. */
bool spv_run_skip(spv_run *run);

#endif
