#include "bloom/series.h"

#include "bloom/bits.h"

/* cells of a key in each slice that are tested without a branch: they rule out seven of eight keys that are not
   contained */
enum { PROBES = 3 };

SPV_INLINE size_t probes_of(const spv_slice *slice) {
    return slice->shape->functions < PROBES ? slice->shape->functions : PROBES;
}

SPV_INLINE bool all_set(const uint8_t *cells, const uint64_t *positions, size_t count) {
    unsigned all = 1;
    for (size_t i = 0; i < count; i++)
        all &= (unsigned)__atomic_load_n(cells + (positions[i] >> 3), __ATOMIC_RELAXED) >> (positions[i] & 7);
    return all & 1;
}

bool spv_series_has_hashed(const spv_slice *slices, size_t count, spv_hash128 hashes) {
    uint64_t positions[SPV_MAX_SLICES][PROBES];
    for (size_t s = 0; s < count; s++) {
        spv_cursor cursor = spv_cursor_of(slices[s].shape, hashes);
        for (size_t i = 0, probes = probes_of(slices + s); i < probes; i++) {
            positions[s][i] = spv_cursor_next(&cursor, SPV_WALK_SPREAD);
            __builtin_prefetch(slices[s].cells + (positions[s][i] >> 3), 0);
        }
    }
    while (count--) {
        const spv_slice *slice = slices + count;
        if (SPV_UNLIKELY(all_set(slice->cells, positions[count], probes_of(slice))) && spv_bits_has_hashed(slice->shape, slice->cells, hashes))
            return true;
    }
    return false;
}

bool spv_series_has(const spv_slice *slices, size_t count, const uint8_t *data, size_t size) {
    if (!count)
        return false;
    if (spv_walk_of(slices->shape) == SPV_WALK_SPREAD)
        return spv_series_has_hashed(slices, count, spv_two_hashes(slices->shape, data, size));
    while (count--)
        if (spv_bits_has(slices[count].shape, slices[count].cells, data, size))
            return true;
    return false;
}

/* Computes the first cells of hashed keys in one slice, and fetches their bytes. */
static void fetch(const spv_slice *slice, const spv_window *hashed, size_t count, uint64_t *positions) {
    const spv_batch batch = {.cells = (uint8_t *)(uintptr_t)slice->cells, .width = 1};
    spv_window walk = *hashed;
    spv_spread_window(slice->shape, &walk, count, probes_of(slice), positions, &batch);
}

/* Finds the keys that this slice may contain, judged by their first cells, in the order of the window. Returns how
   many. */
static size_t candidates_of(const spv_slice *slice, const uint64_t *positions, const uint8_t *found, size_t count, uint8_t *numbers) {
    const size_t probes = probes_of(slice);
    size_t many = 0;
    for (size_t i = 0; i < count; i++, positions += probes) {
        numbers[many] = (uint8_t)i;
        many += !found[i] & all_set(slice->cells, positions, probes);
    }
    return many;
}

/* Finds which of up to SPV_AHEAD hashed keys are in any slice. */
static void find(const spv_slice *slices, size_t count, const spv_window *hashed, size_t number, uint8_t *found) {
    uint64_t positions[SPV_MAX_SLICES][SPV_AHEAD * PROBES];
    uint8_t candidates[SPV_AHEAD + 1];
    memset(found, 0, number);
    for (size_t s = 0; s < count; s++)
        fetch(slices + s, hashed, number, positions[s]);
    for (size_t s = count; s--;) {
        const size_t many = candidates_of(slices + s, positions[s], found, number, candidates);
        for (size_t c = 0; c < many; c++) {
            const size_t i = candidates[c];
            found[i] = spv_bits_has_hashed(slices[s].shape, slices[s].cells, (spv_hash128){hashed->x[i], hashed->step[i]});
        }
    }
}

void spv_series_has_many(const spv_slice *slices, size_t count, const spv_keys *keys, size_t from, size_t number, uint8_t *mask) {
    spv_window hashed;
    const size_t end = from + number;
    if (spv_walk_of(slices->shape) != SPV_WALK_SPREAD) {
        for (size_t at = from; at < end; at++) {
            const spv_bytes key = spv_key_at(keys, at);
            mask[at - from] = spv_series_has(slices, count, key.data, key.size);
        }
        return;
    }
    for (size_t at = from; at < end; at += SPV_AHEAD) {
        const size_t now = end - at < SPV_AHEAD ? end - at : SPV_AHEAD;
        spv_hash_window(slices->shape, keys, at, now, &hashed);
        find(slices, count, &hashed, now, mask + (at - from));
    }
}

/* Computes all cells of up to SPV_AHEAD keys in the last slice, and finds which keys are in earlier slices. */
static void prepare(const spv_slice *slices, size_t earlier, spv_batch *last, const spv_keys *keys, size_t at, size_t count, uint8_t *found) {
    if (spv_walk_of(last->shape) != SPV_WALK_SPREAD) {
        spv_hash_ahead(last, keys, at, count);
        for (size_t i = 0; i < count; i++) {
            const spv_bytes key = spv_key_at(keys, at + i);
            found[i] = spv_series_has(slices, earlier, key.data, key.size);
        }
        return;
    }
    spv_window hashed, walk;
    spv_hash_window(last->shape, keys, at, count, &hashed);
    walk = hashed;
    spv_spread_window(last->shape, &walk, count, last->shape->functions, last->positions, last->far ? last : NULL);
    find(slices, earlier, &hashed, count, found);
}

size_t spv_series_add_many(const spv_slice *slices, size_t earlier, spv_batch *last, const spv_keys *keys, size_t from, size_t number) {
    const size_t window = spv_keys_ahead(last->shape), functions = last->shape->functions, end = from + number;
    size_t fresh = 0;
    uint8_t found[SPV_AHEAD];
    last->done = number;
    for (size_t at = from; at < end; at += window) {
        const size_t now = end - at < window ? end - at : window;
        size_t room, new = 0, i;
        prepare(slices, earlier, last, keys, at, now, found);
        last->shared = spv_gate_again(last->gate, last->shared);
        room = spv_room_reserve(last->room, now, last->shared);
        for (i = 0; i < now; i++) {
            const uint64_t *positions = last->positions + i * functions;
            if (found[i])
                continue;
            if (new == room && !spv_bits_all(last->cells, positions, functions)) {
                const size_t more = spv_room_reserve(last->room, now - i, last->shared);
                if (!more)
                    break;
                room += more;
            }
            new += spv_bits_set(last->cells, positions, functions, last->shared);
        }
        spv_room_give_back(last->room, room > new ? room - new : 0, last->shared);
        fresh += new;
        if (i < now) {
            last->done = at + i - from;
            break;
        }
    }
    return fresh;
}
