#include "watch/addresscolumn.h"

spv_status spv_add_addresses_of(
    const spv_address_form *form, const uint8_t *offsets, const uint8_t *scripts, size_t *at, size_t until, spv_column *column, size_t *unfit
) {
    spv_status status = spv_column_reserve(column, until - *at);
    for (; !status && *at < until; ++*at) {
        const uint32_t start = spv_le32(offsets + 4 * *at), end = spv_le32(offsets + 4 * *at + 4);
        uint8_t text[SPV_MAX_ADDRESS];
        const size_t size = spv_encode_address(form, (spv_bytes){scripts + start, end - start}, NULL, text);
        if (size > SPV_MAX_ADDRESS) {
            *unfit = size;
            return SPV_RANGE;
        }
        if (size)
            status = spv_put_bytes(column, (spv_bytes){text, size});
        else
            spv_put_null(column);
    }
    return status;
}
