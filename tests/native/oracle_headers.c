#include "oracle_headers.h"

enum { VERSION = 0, TIME = 68, BITS = 72 }; /* bytes of a header */

static bool above(const uint8_t *one, const uint8_t *other) {
    for (int i = 31; i >= 0; i--)
        if (one[i] != other[i])
            return one[i] > other[i];
    return false;
}

/* The middle one of up to eleven times: half of the times are below it. */
static uint32_t middle(const uint32_t *times, size_t count) {
    for (size_t i = 0; i < count; i++) {
        size_t below = 0, equal = 0;
        for (size_t j = 0; j < count; j++) {
            below += times[j] < times[i];
            equal += times[j] == times[i];
        }
        if (below <= count / 2 && count / 2 < below + equal)
            return times[i];
    }
    CHECK(false);
    return 0;
}

size_t plain_judge(const uint8_t *headers, const spv_hash *hashes, size_t count, const spv_header_rules *rules, size_t *late) {
    uint32_t *times = zeroed(rules->known + count, sizeof *times);
    size_t known = rules->known, good = 0;
    memcpy(times, rules->times, known * sizeof *times);
    *late = 0;
    for (; good < count; good++) {
        const uint8_t *header = headers + SPV_HEADER_SIZE * good;
        const uint32_t time = spv_le32(header + TIME);
        const bool is_late = (uint64_t)time > (uint64_t)times[known - 1] + rules->late_by;
        const uint8_t *wanted = is_late ? rules->late : rules->usual;
        const size_t span = known < SPV_MEDIAN_SPAN ? known : SPV_MEDIAN_SPAN;
        if (memcmp(header + BITS, wanted, 4) || above(hashes[good], wanted + 4) || time <= middle(times + known - span, span)
            || time > rules->latest || (int32_t)spv_le32(header + VERSION) < rules->least_version)
            break;
        *late += is_late;
        times[known++] = time;
    }
    release(times);
    return good;
}

void plain_index(const spv_hash *hashes, size_t count, uint8_t *out) {
    for (size_t i = 0; i < count; i++) {
        size_t place = 0;
        for (size_t j = 0; j < count; j++) {
            const int order = memcmp(hashes[j], hashes[i], SPV_INDEX_KEY);
            place += order < 0 || (!order && j < i);
        }
        memcpy(out + SPV_INDEX_KEY * place, hashes[i], SPV_INDEX_KEY);
        out[SPV_INDEX_KEY * count + 2 * place] = (uint8_t)i;
        out[SPV_INDEX_KEY * count + 2 * place + 1] = (uint8_t)(i >> 8);
    }
}

void check_found(const uint8_t *index, const spv_hash *hashes, size_t count, const spv_hash wanted) {
    const uint8_t *numbers;
    const size_t found = spv_find_header(index, count, wanted, &numbers);
    size_t seen = 0;
    for (size_t n = 0; n < count; n++)
        if (!memcmp(hashes[n], wanted, SPV_INDEX_KEY))
            CHECK(seen < found && spv_le16(numbers + 2 * seen++) == n);
    CHECK(seen == found);
}
