/* SeriesCore: slices that are one set. The twin is pure/series.py. */
#ifndef SPV_BINDING_CORES_SERIES_H
#define SPV_BINDING_CORES_SERIES_H

#include "binding/cores/keys.h"

#include "bloom/series.h"

typedef struct {
    PyObject_HEAD
    PyObject *slices; /* a tuple of cores, exchanged whole; NULL before __init__ has succeeded */
    spv_core *cores[SPV_MAX_SLICES]; /* the same, for use under the interpreter's lock */
    size_t count;
} spv_series;

/* The state of the module, also from an object of a derived class; NULL with an exception set if the module is gone. */
const spv_state *spv_series_state(spv_series *series);

/* A new reference to the slices; NULL with an exception set. */
PyObject *spv_slices_of(spv_series *series);

/* SeriesCore.add and `in` of a key, and of a held key; -1 with an exception set. */
int spv_series_add_key(spv_series *series, PyObject *key);
int spv_series_contains_key(spv_series *series, PyObject *key);
int spv_series_add_held(spv_series *series, const spv_held *held);
int spv_series_contains_held(spv_series *series, const spv_held *held);

/* What a batch does with keys whose bytes are held: looks them up, with an answer for each in `mask`, or if that is NULL adds them. */
typedef struct {
    const spv_keys *keys;
    size_t from, count;
    uint8_t *mask;
    size_t fresh, done; /* keys that were new; keys taken, fewer than `count` if a new key found no room */
    bool alone;         /* to be done without the interpreter's lock */
} spv_series_work;

/* False with an exception set. */
bool spv_series_perform(spv_series *series, spv_series_work *work);

/* As spv_core_make_room. */
bool spv_series_make_room(spv_series *series, size_t *tries);

int spv_add_series(PyObject *module, spv_state *state);

#endif
