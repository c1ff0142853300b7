/* Binding of watch/batch.h: WatchTable's scans of several blocks in one call. */
#ifndef SPV_BINDING_WATCHTABLE_BATCH_H
#define SPV_BINDING_WATCHTABLE_BATCH_H

#include "binding/watchtable/object.h"

#include "watch/batch.h"

/* The undo records of a batch. */
typedef struct {
    PyObject *given;     /* a list of snapshots, or of places, with None for blocks without a record; NULL if no block has one */
    spv_place *places;   /* places of the records in files */
    spv_record *records; /* a checked record for each block; NULL if no block has one */
    uint8_t *memory;     /* memory of the records that were given as bytes */
} spv_beside;

/* Copies the records that were given as bytes, each after the hash of its block's previous block. The caller releases
   `of` even after a failure. False with an exception set. */
bool spv_take_records(const spv_state *state, PyObject *undo, const spv_bytes *blocks, size_t count, spv_beside *of);
/* Reads the records in files, if any, to `memory`, and checks all records. False with an exception set. */
bool spv_load_records(const spv_state *state, spv_beside *of, size_t count, uint8_t *memory);
void spv_records_let_go(spv_beside *of);

PyObject *spv_wt_scan_blocks(PyObject *self, PyObject *arguments, PyObject *names);
PyObject *spv_wt_scan_files(PyObject *self, PyObject *arguments, PyObject *names);

#endif
