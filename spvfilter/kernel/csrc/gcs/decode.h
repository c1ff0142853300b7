/* All values of a Golomb-coded set; the twin of pure/gcs.py's gcs_values and gcs_check. */
#ifndef SPV_GCS_DECODE_H
#define SPV_GCS_DECODE_H

#include "spv.h"

/* Values in memory that is reused: initialize with {0}, and free `values` at the end. */
typedef struct {
    uint64_t *values;
    size_t count, room;
} spv_gcs_values;

/* The twin of pure.gcs.gcs_values: the values of a set, ascending. */
spv_status spv_gcs_decode(const uint8_t *data, size_t size, unsigned p, spv_gcs_values *to, spv_error *error);

#endif
