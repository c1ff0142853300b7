/* The iterators of WatchTable's entries() and coins(). Each step is one lookup by number, under the lock. */
#ifndef SPV_BINDING_WATCHTABLE_ITERATORS_H
#define SPV_BINDING_WATCHTABLE_ITERATORS_H

#include "binding/watchtable/object.h"

PyObject *spv_wt_entries(PyObject *self, PyObject *none);
PyObject *spv_wt_coins(PyObject *self, PyObject *none);

/* Their type; false with an exception set. */
bool spv_make_table_iterator(PyObject *module, spv_state *state);

#endif
