/* The scans of a WatchTable, which release the GIL, and its methods `learn` and `learn_packed`. */
#ifndef SPV_BINDING_WATCHTABLE_SCAN_H
#define SPV_BINDING_WATCHTABLE_SCAN_H

#include "binding/watchtable/object.h"

#include "watch/packed.h"

/* A values.Hit with that txid. NULL with an exception set. */
PyObject *spv_hit_value(const spv_state *state, const spv_packed_hit *hit, PyObject *txid);

/* The hits as a list of values.Hit. */
PyObject *spv_hit_values(const spv_state *state, const spv_hits *found);

/* pure.table._check_found: the table, or NULL for None. False with TypeError. */
bool spv_take_found(const spv_state *state, PyObject *found, spv_table **table);

PyObject *spv_wt_scan_block(PyObject *self, PyObject *arguments, PyObject *names);
PyObject *spv_wt_scan_tx(PyObject *self, PyObject *raw);
PyObject *spv_wt_learn(PyObject *self, PyObject *hits);
PyObject *spv_wt_learn_packed(PyObject *self, PyObject *given);

#endif
