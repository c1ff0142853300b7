/* SeriesCore: slices that form one set. The twin is pure/series.py. */
#ifndef SPV_BINDING_CORES_SERIES_H
#define SPV_BINDING_CORES_SERIES_H

#include "binding/cores/keys.h"

#include "bloom/series.h"

typedef struct {
    PyObject_HEAD
    PyObject *slices; /* a tuple of cores, which is replaced as a whole; NULL before __init__ has succeeded */
    spv_core *cores[SPV_MAX_SLICES]; /* the same cores, for use with the GIL */
    size_t count;
} spv_series;

/* The state of the module, even for an object of a derived class. NULL with an exception set if the module is gone. */
const spv_state *spv_series_state(spv_series *series);

/* A new reference to the slices; NULL with an exception set. */
PyObject *spv_slices_of(spv_series *series);

/* SeriesCore.add and `in`, for a key and for a held key. -1 with an exception set. */
int spv_series_add_key(spv_series *series, PyObject *key);
int spv_series_contains_key(spv_series *series, PyObject *key);
int spv_series_add_held(spv_series *series, const spv_held *held);
int spv_series_contains_held(spv_series *series, const spv_held *held);

/* The work of a batch on keys whose bytes are held. It looks the keys up and stores the answers in `mask`. If `mask`
   is NULL, it adds the keys. */
typedef struct {
    const spv_keys *keys;
    size_t from, count;
    uint8_t *mask;
    size_t fresh, done; /* number of keys that were new; number of keys processed, fewer than `count` if there was no room for a new key */
    bool alone;         /* true to work without the GIL */
} spv_series_work;

/* False with an exception set. */
bool spv_series_perform(spv_series *series, spv_series_work *work);

/* Like spv_core_make_room. */
bool spv_series_make_room(spv_series *series, size_t *tries);

int spv_add_series(PyObject *module, spv_state *state);

#endif
