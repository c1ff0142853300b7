/* A batch that is being processed: keys whose bytes are held are added to the filter or looked up, many at once. If
   it pays, the GIL is released. */
#ifndef SPV_BINDING_CORES_RUN_H
#define SPV_BINDING_CORES_RUN_H

#include "binding/cores/keys.h"
#include "binding/cores/series.h"

#include "binding/arguments.h"

enum {
    SPV_EFFORT = 1 << 24, /* effort between two checks for signals: bytes of keys, plus SPV_EFFORT_OF_A_CELL for each cell */
    SPV_EFFORT_OF_A_CELL = 8
};

/* columns.keeps: zeros at the end of byte strings are refused, kept or stripped. */
typedef enum { SPV_PADDING_UNSAID, SPV_PADDING_KEEP, SPV_PADDING_STRIP } spv_padding;

typedef struct {
    spv_core *core;     /* the core that encodes the keys */
    spv_series *series; /* the series that takes the keys, or NULL if the core takes them */
    bool asks;          /* true for contains_many and hash_many, false for update */
    bool skip;          /* nulls are skipped; else they are refused */
    spv_padding padding;
    size_t fresh;       /* number of keys that were new */
    uint8_t *mask;      /* answers */
    size_t width;       /* bytes of an answer: 1, or 8 for the hashes of hash_many */
    size_t answers, room;
    spv_pace pace;
    size_t rows;        /* rows of columns that were processed before the current one */
    spv_batch batch;
    uint64_t near[SPV_AHEAD_CELLS];
} spv_run;

SPV_INLINE size_t spv_effort_of(const spv_core *core, size_t size) {
    return size + (size_t)core->shape.functions * SPV_EFFORT_OF_A_CELL + 1;
}

/* Reserves memory for `count` more answers. False with an exception set if there is no memory. */
bool spv_run_make_room(spv_run *run, size_t count);

/* Performs the operation on keys whose bytes are held. False with an exception set; the keys before it were
   processed. */
bool spv_run_many(spv_run *run, const spv_keys *keys, size_t from, size_t count, size_t effort);

/* The same for one key that is an object, and for one held key. */
bool spv_run_one(spv_run *run, PyObject *key);
bool spv_run_held(spv_run *run, const spv_held *held);

/* Skips a null: it is not contained. */
bool spv_run_skip(spv_run *run);

#endif
