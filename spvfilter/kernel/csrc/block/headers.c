#include "block/headers.h"

enum { VERSION = 0, TIME = 68, BITS = 72 }; /* offsets in a header, in bytes */

static spv_message header_at(const void *headers, size_t number) {
    return (spv_message){.body = {(const uint8_t *)headers + number * SPV_HEADER_SIZE, SPV_HEADER_SIZE}};
}

spv_status spv_check_headers(size_t size, spv_error *error) {
    const size_t left = size % SPV_HEADER_SIZE;
    if (left)
        return spv_refuse(error, size - left, "header", "truncated: expected %d bytes, %zu left", SPV_HEADER_SIZE, left);
    return SPV_OK;
}

spv_status spv_header_hashes(const uint8_t *headers, size_t size, spv_hash *out, spv_error *error) {
    const spv_status status = spv_check_headers(size, error);
    if (!status)
        spv_sha256d_many(header_at, headers, size / SPV_HEADER_SIZE, out);
    return status;
}

size_t spv_linked_headers(const uint8_t *headers, const spv_hash *hashes, size_t count) {
    for (size_t i = 1; i < count; i++)
        if (memcmp(spv_previous(headers, i), hashes[i - 1], sizeof(spv_hash)))
            return i;
    return count;
}

size_t spv_same_bits(const uint8_t *headers, size_t count, uint32_t *bits) {
    size_t same = 1;
    *bits = spv_le32(headers + BITS);
    while (same < count && spv_le32(headers + same * SPV_HEADER_SIZE + BITS) == *bits)
        same++;
    return same;
}

/* The times of the last headers, once in the order in which they came, and once in ascending order. */
typedef struct {
    uint32_t times[SPV_MEDIAN_SPAN], ordered[SPV_MEDIAN_SPAN];
    size_t count, next; /* number of times; place of the oldest time if there are eleven */
} time_window;

static void insert(time_window *window, size_t count, uint32_t time) {
    size_t at = count;
    for (; at && window->ordered[at - 1] > time; at--)
        window->ordered[at] = window->ordered[at - 1];
    window->ordered[at] = time;
}

static void take(time_window *window, uint32_t time) {
    if (window->count < SPV_MEDIAN_SPAN) {
        window->times[window->count] = time;
        insert(window, window->count++, time);
        return;
    }
    size_t at = 0;
    while (window->ordered[at] != window->times[window->next])
        at++;
    for (; at + 1 < SPV_MEDIAN_SPAN; at++)
        window->ordered[at] = window->ordered[at + 1];
    insert(window, SPV_MEDIAN_SPAN - 1, time);
    window->times[window->next] = time;
    window->next = (window->next + 1) % SPV_MEDIAN_SPAN;
}

/* True if a hash, as a little-endian number, is above a target. */
static bool is_above(const spv_hash hash, const uint8_t *target) {
    for (size_t i = 4; i--;) {
        const uint64_t ours = spv_le64(hash + 8 * i), most = spv_le64(target + 8 * i);
        if (ours != most)
            return ours > most;
    }
    return false;
}

size_t spv_judge_headers(const uint8_t *headers, const spv_hash *hashes, size_t count, const spv_header_rules *rules, size_t *late) {
    time_window window = {.count = 0};
    uint64_t last = rules->times[rules->known - 1];
    *late = 0;
    for (size_t i = 0; i < rules->known; i++)
        take(&window, rules->times[i]);
    for (size_t i = 0; i < count; i++) {
        const uint8_t *header = headers + i * SPV_HEADER_SIZE;
        const uint32_t time = spv_le32(header + TIME);
        const bool is_late = time > last + rules->late_by;
        const uint8_t *wanted = is_late ? rules->late : rules->usual;
        if (spv_le32(header + BITS) != spv_le32(wanted) || is_above(hashes[i], wanted + 4) || time <= window.ordered[window.count / 2]
            || time > rules->latest || (int32_t)spv_le32(header + VERSION) < rules->least_version)
            return i;
        *late += is_late;
        last = time;
        take(&window, time);
    }
    return count;
}

void spv_chain_filter_headers(const spv_hash *hashes, size_t count, const spv_hash previous, spv_hash *out) {
    uint8_t pair[2 * sizeof(spv_hash)];
    memcpy(pair + sizeof(spv_hash), previous, sizeof(spv_hash));
    for (size_t i = 0; i < count; i++) {
        memcpy(pair, hashes[i], sizeof(spv_hash));
        spv_sha256d(pair, sizeof pair, out[i]);
        memcpy(pair + sizeof(spv_hash), out[i], sizeof(spv_hash));
    }
}

void spv_filter_hashes(const spv_bytes *filters, size_t count, spv_hash *out) {
    for (size_t i = 0; i < count; i++)
        spv_sha256d(filters[i].data, filters[i].size, out[i]);
}
