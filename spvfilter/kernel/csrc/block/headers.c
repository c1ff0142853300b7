#include "block/headers.h"

enum { AT_ONCE = 64 };

spv_status spv_header_hashes(const uint8_t *headers, size_t size, spv_hash *out, spv_error *error) {
    size_t left = size % SPV_HEADER_SIZE, count = size / SPV_HEADER_SIZE;
    if (left)
        return spv_refuse(error, size - left, "header", "truncated: %d bytes wanted, %zu left", SPV_HEADER_SIZE, left);
    for (size_t done = 0; done < count; done += AT_ONCE) {
        size_t now = count - done < AT_ONCE ? count - done : AT_ONCE;
        spv_tx spans[AT_ONCE]; /* hashed whole, as a transaction with its witness is */
        for (size_t i = 0; i < now; i++)
            spans[i] = (spv_tx){.start = (done + i) * SPV_HEADER_SIZE, .end = (done + i + 1) * SPV_HEADER_SIZE};
        spv_wtxids(headers, spans, now, out + done);
    }
    return SPV_OK;
}
