#include "gcs/decode.h"
#include "gcs/stream.h"

#include <stdlib.h>

SPV_INLINE void decode(spv_gcs_stream *stream, unsigned p, uint64_t *values) {
    spv_gcs_stream of = *stream;
    for (bool sound = true; sound && of.i < of.n;) {
        for (uint64_t left = spv_gcs_rounds(&of); left && spv_gcs_two(&of, p, values + of.i); left--)
            values[of.i - 1] = of.value;
        if (of.i < of.n && (sound = spv_gcs_next(&of, p))) /* the element did not fit into a load, or it is one of the last */
            values[of.i - 1] = of.value;
    }
    *stream = of;
}

SPV_GCS_BMI2 static void decode_bmi2(spv_gcs_stream *of, unsigned p, uint64_t *values) {
    decode(of, p, values);
}

static void decode_plain(spv_gcs_stream *of, unsigned p, uint64_t *values) {
    decode(of, p, values);
}

spv_status spv_gcs_decode(const uint8_t *data, size_t size, unsigned p, spv_gcs_values *to, spv_error *error) {
    spv_gcs_stream of;
    to->count = 0;
    spv_status status = spv_gcs_begin(&of, data, size, p, error);
    if (status)
        return status;
    if (of.n > to->room || !to->values) {
        uint64_t *larger = realloc(to->values, (of.n ? (size_t)of.n : 1) * sizeof *larger);
        if (!larger)
            return SPV_NOMEM;
        to->values = larger;
        to->room = (size_t)of.n;
    }
    (SPV_GCS_HAS_BMI2 ? decode_bmi2 : decode_plain)(&of, p, to->values);
    status = spv_gcs_end(&of, error);
    to->count = status ? 0 : (size_t)of.n;
    return status;
}
