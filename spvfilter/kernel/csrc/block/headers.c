#include "block/headers.h"

static spv_message header_at(const void *headers, size_t number) {
    return (spv_message){.body = {(const uint8_t *)headers + number * SPV_HEADER_SIZE, SPV_HEADER_SIZE}};
}

spv_status spv_header_hashes(const uint8_t *headers, size_t size, spv_hash *out, spv_error *error) {
    const size_t left = size % SPV_HEADER_SIZE;
    if (left)
        return spv_refuse(error, size - left, "header", "truncated: %d bytes wanted, %zu left", SPV_HEADER_SIZE, left);
    spv_sha256d_many(header_at, headers, size / SPV_HEADER_SIZE, out);
    return SPV_OK;
}
