#include "gcs_query.h"
#include "walk.h"

#include <stdlib.h>

SPV_INLINE uint64_t be64(const uint8_t *at) {
    uint64_t value;
    memcpy(&value, at, sizeof value);
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    value = __builtin_bswap64(value);
#endif
    return value;
}

/* The 64 bits from `bit` on, most significant first; zeros behind the end. At least 57 of them are the data's. */
SPV_INLINE uint64_t window(const uint8_t *data, size_t size, size_t bit) {
    size_t at = bit >> 3;
    if (SPV_LIKELY(at + 8 <= size))
        return be64(data + at) << (bit & 7);
    uint8_t tail[8] = {0};
    if (at < size)
        memcpy(tail, data + at, size - at);
    return be64(tail) << (bit & 7);
}

static bool grow(uint64_t **array, size_t *room, size_t wanted) {
    if (wanted <= *room)
        return true;
    uint64_t *larger = realloc(*array, wanted * sizeof **array);
    if (!larger)
        return false;
    *array = larger;
    *room = wanted;
    return true;
}

static bool grow_maps(spv_gcs_scratch *scratch, size_t wanted) {
    size_t room = scratch->map_room;
    if (!grow(&scratch->first, &room, wanted))
        return false;
    room = scratch->map_room;
    if (!grow(&scratch->second, &room, wanted))
        return false;
    if (wanted > scratch->map_room)
        scratch->map_room = wanted;
    return true;
}

void spv_gcs_scratch_free(spv_gcs_scratch *scratch) {
    free(scratch->values);
    free(scratch->more);
    free(scratch->hashes);
    free(scratch->first);
    free(scratch->second);
    *scratch = (spv_gcs_scratch){0};
}

/* A quotient that does not end within a window: rare, and any length. Moves *bit behind its zero; false where the bits end. */
SPV_COLD static bool long_quotient(const uint8_t *data, size_t size, size_t *bit, uint64_t *quotient) {
    size_t end = 8 * size, at = *bit;
    while (at < end && data[at >> 3] >> (7 - (at & 7)) & 1)
        at++;
    if (at >= end)
        return false;
    *quotient = at - *bit;
    *bit = at + 1;
    return true;
}

/* A set on its way through the decoder. */
typedef struct {
    const uint8_t *data;
    size_t size, bit;
    size_t safe; /* bit from which a load of 8 bytes might reach behind the end */
    uint64_t n, i, value, *values;
} stream;

static spv_status begin(stream *of, const uint8_t *data, size_t size, unsigned p, uint64_t **values, size_t *room, spv_error *error) {
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
    if (!grow(values, room, n ? (size_t)n : 1))
        return SPV_NOMEM;
    *of = (stream){.data = data, .size = size, .bit = 8 * at, .safe = size >= 16 ? 8 * (size - 16) : 0, .n = n, .values = *values};
    return SPV_OK;
}

SPV_INLINE bool is_safe(const stream *of) {
    return of->i + 1 < of->n && of->bit < of->safe;
}

/* What one load holds, 57 bits at least: as a rule two whole elements, which halves the wait for loads. False for none. */
SPV_INLINE bool step(stream *of, unsigned p) {
    uint64_t bits = be64(of->data + (of->bit >> 3)) << (of->bit & 7);
    unsigned ones = (unsigned)__builtin_clzll(~bits | 1), used = ones + p + 1;
    if (SPV_UNLIKELY(used > 57))
        return false;
    of->value += (uint64_t)ones << p | bits << (ones + 1) >> (64 - p);
    of->values[of->i++] = of->value;
    of->bit += used;
    bits <<= used;
    ones = (unsigned)__builtin_clzll(~bits | 1);
    if (SPV_UNLIKELY(used + ones + p + 1 > 57))
        return true;
    of->value += (uint64_t)ones << p | bits << (ones + 1) >> (64 - p);
    of->values[of->i++] = of->value;
    of->bit += ones + p + 1;
    return true;
}

/* The rest of a set, whatever it is, and its end. */
static spv_status finish(stream *of, unsigned p, spv_error *error) {
    size_t end = 8 * of->size;
    while (is_safe(of) && step(of, p))
        ;
    for (; of->i < of->n; of->i++) {
        uint64_t bits = window(of->data, of->size, of->bit), quotient = (uint64_t)__builtin_clzll(~bits | 1);
        if (SPV_LIKELY(quotient <= 56))
            of->bit += (size_t)quotient + 1;
        else if (!long_quotient(of->data, of->size, &of->bit, &quotient))
            of->bit = end;
        if (SPV_UNLIKELY(of->bit + p > end))
            return spv_refuse(
                error, of->size, "element", "truncated: the bits end within element %llu of %llu", (unsigned long long)of->i,
                (unsigned long long)of->n
            );
        of->value += quotient << p | window(of->data, of->size, of->bit) >> (64 - p);
        of->values[of->i] = of->value;
        of->bit += p;
    }
    size_t used = (of->bit + 7) >> 3;
    if (used != of->size)
        return spv_refuse(error, used, "filter", "%zu trailing bytes", of->size - used);
    return SPV_OK;
}

spv_status spv_gcs_decode(const uint8_t *data, size_t size, unsigned p, spv_gcs_scratch *scratch, size_t *count, spv_error *error) {
    stream of;
    spv_status status = begin(&of, data, size, p, &scratch->values, &scratch->value_room, error);
    if (!status)
        status = finish(&of, p, error);
    *count = status ? 0 : (size_t)of.n;
    return status;
}

SPV_INLINE uint64_t map_to(uint64_t hash, uint64_t span) {
    return (uint64_t)((unsigned __int128)hash * span >> 64);
}

/* Two bitmaps of a set of values, by their high and by their low bits: what is in neither is not in the set. */
typedef struct {
    uint64_t *first, *second;
    unsigned shift;
    uint64_t mask;
} sieve;

static bool make_sieve(sieve *made, spv_gcs_scratch *scratch, const uint64_t *values, size_t count, uint64_t span) {
    unsigned bits = 12;
    while (bits < 22 && ((uint64_t)1 << bits) < 48 * (uint64_t)count)
        bits++;
    if (!grow_maps(scratch, ((size_t)1 << bits) / 64))
        return false;
    unsigned width = span > 1 ? 64 - (unsigned)__builtin_clzll(span - 1) : 1; /* of a value */
    made->first = scratch->first;
    made->second = scratch->second;
    made->shift = width > bits ? width - bits : 0;
    made->mask = ((uint64_t)1 << bits) - 1;
    memset(made->first, 0, ((size_t)1 << bits) / 8);
    memset(made->second, 0, ((size_t)1 << bits) / 8);
    for (size_t i = 0; i < count; i++) {
        uint64_t high = values[i] >> made->shift & made->mask, low = values[i] & made->mask;
        made->first[high >> 6] |= (uint64_t)1 << (high & 63);
        made->second[low >> 6] |= (uint64_t)1 << (low & 63);
    }
    return true;
}

SPV_INLINE bool passes(const sieve *of, uint64_t value) {
    uint64_t high = value >> of->shift & of->mask, low = value & of->mask;
    return (of->first[high >> 6] >> (high & 63) & 1) && (of->second[low >> 6] >> (low & 63) & 1);
}

static bool among(const uint64_t *values, size_t count, uint64_t value) {
    for (size_t i = 0; i < count; i++)
        if (values[i] == value)
            return true;
    return false;
}

static bool among_sorted(const uint64_t *values, size_t count, uint64_t value) {
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (values[middle] < value)
            low = middle + 1;
        else
            high = middle;
    }
    return low < count && values[low] == value;
}

enum { SMALL_QUERY = 1 << 14 }; /* up to here its values may be searched one by one for what passes the sieve */

/* Whether any value is in a set that a sieve was made of; the first map is asked without branches, few survive it. `value`s are lost. */
static bool any_passes(const sieve *of, uint64_t *values, size_t count, const uint64_t *set, size_t members, bool sorted) {
    size_t left = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t value = values[i], high = value >> of->shift & of->mask;
        values[left] = value;
        left += of->first[high >> 6] >> (high & 63) & 1;
    }
    for (size_t i = 0; i < left; i++)
        if (passes(of, values[i]) && (sorted ? among_sorted(set, members, values[i]) : among(set, members, values[i])))
            return true;
    return false;
}

/* Whether a decoded set, `n` > 0 ascending values, holds any item of the query. The values may be lost. */
static spv_status query_values(
    const spv_gcs_query *query, uint64_t *values, size_t n, const uint8_t key[16], uint64_t m, spv_gcs_scratch *scratch, bool *match
) {
    size_t room = query->room;
    if (!grow(&scratch->hashes, &scratch->hash_room, room))
        return SPV_NOMEM;
    uint64_t *wanted = scratch->hashes, span = n * m;
    spv_gcs_hash(query, key, wanted);
    for (size_t i = 0; i < room; i++)
        wanted[i] = map_to(wanted[i], span);
    bool small = room <= n && room <= SMALL_QUERY;
    sieve of;
    if (!make_sieve(&of, scratch, small ? wanted : values, small ? room : n, span))
        return SPV_NOMEM;
    *match = small ? any_passes(&of, values, n, wanted, room, false) : any_passes(&of, wanted, room, values, n, true);
    return SPV_OK;
}

spv_status spv_gcs_match_many(
    const spv_gcs_query *query, const spv_gcs_set *sets, size_t count, unsigned p, uint64_t m, uint8_t *mask, size_t *failed,
    spv_error *error
) {
    spv_gcs_scratch scratch = {0};
    spv_status status = SPV_OK;
    for (size_t i = 0; !status && i < count; i += 2) { /* two at a time: each waits for its own loads */
        stream of[2];
        size_t pair = count - i < 2 ? 1 : 2;
        spv_error later;
        *failed = i;
        memset(mask + i, 0, pair);
        status = begin(of, sets[i].data, sets[i].size, p, &scratch.values, &scratch.value_room, error);
        spv_status second = pair < 2 ? SPV_OK : begin(of + 1, sets[i + 1].data, sets[i + 1].size, p, &scratch.more, &scratch.more_room, &later);
        if (!status && !second && pair == 2) {
            stream a = of[0], b = of[1];
            while (is_safe(&a) && is_safe(&b))
                if (!step(&a, p) || !step(&b, p))
                    break;
            of[0] = a, of[1] = b;
        }
        for (size_t j = 0; !status && j < pair; j++) {
            *failed = i + j;
            if (j && second) {
                status = second;
                *error = later;
                break;
            }
            status = finish(of + j, p, error);
            bool match = false;
            if (!status && of[j].n && query->count)
                status = query_values(query, of[j].values, (size_t)of[j].n, sets[i + j].key, m, &scratch, &match);
            mask[i + j] = match;
        }
    }
    spv_gcs_scratch_free(&scratch);
    return status;
}
