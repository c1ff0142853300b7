#include "gcs/stream.h"
#include "block/walk.h"

spv_status spv_gcs_begin(spv_gcs_stream *of, const uint8_t *data, size_t size, unsigned p, spv_error *error) {
    size_t at = 0;
    uint64_t n;
    spv_status status = spv_compact_size(data, size, &at, &n, "element count", error);
    if (status)
        return status;
    if (n * (p + 1) > 8 * (uint64_t)(size - at))
        return spv_refuse(
            error, 0, "element count", "truncated: %llu elements of at least %u bits claimed, %zu bytes left", (unsigned long long)n, p + 1,
            size - at
        );
    *of = (spv_gcs_stream){.data = data, .size = size, .bit = 8 * at, .n = n};
    return SPV_OK;
}

/* The 64 bits from `bit` on, most significant first; zeros after the end of the data. Only the first SPV_GCS_WINDOW
   bits are always valid. */
SPV_INLINE uint64_t window(const uint8_t *data, size_t size, size_t bit) {
    size_t at = bit >> 3;
    if (SPV_LIKELY(at + 8 <= size))
        return spv_gcs_be64(data + at) << (bit & 7);
    uint8_t tail[8] = {0};
    if (at < size)
        memcpy(tail, data + at, size - at);
    return spv_gcs_be64(tail) << (bit & 7);
}

/* Reads a quotient of any length that does not end within a window, which is rare. False if the bits end. */
SPV_COLD static bool long_quotient(const uint8_t *data, size_t size, size_t bit, uint64_t *quotient) {
    size_t end = 8 * size, at = bit;
    while (at < end && data[at >> 3] >> (7 - (at & 7)) & 1)
        at++;
    *quotient = at - bit;
    return at < end;
}

bool spv_gcs_next(spv_gcs_stream *of, unsigned p) {
    uint64_t quotient = (uint64_t)__builtin_clzll(~window(of->data, of->size, of->bit) | 1);
    if (SPV_UNLIKELY(quotient >= SPV_GCS_WINDOW) && !long_quotient(of->data, of->size, of->bit, &quotient))
        return false;
    size_t at = of->bit + (size_t)quotient + 1;
    if (SPV_UNLIKELY(at + p > 8 * of->size))
        return false;
    of->value += (quotient << p) + (window(of->data, of->size, at) >> (64 - p));
    of->bit = at + p;
    of->i++;
    return true;
}

spv_status spv_gcs_end(const spv_gcs_stream *of, spv_error *error) {
    if (of->i < of->n)
        return spv_refuse(
            error, of->size, "element", "truncated: the bits end within element %llu of %llu", (unsigned long long)of->i,
            (unsigned long long)of->n
        );
    size_t used = (of->bit + 7) >> 3;
    if (used != of->size)
        return spv_refuse(error, used, "filter", "%zu trailing byte%s", of->size - used, of->size - used == 1 ? "" : "s");
    return SPV_OK;
}
