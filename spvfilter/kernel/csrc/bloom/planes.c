#include "bloom/planes.h"

#include "bloom/bits.h"

typedef uint64_t planes[SPV_PLANES][SPV_AHEAD]; /* the bit of key i for function j is [j][i] */

static void lay_out(const spv_shape *shape, const spv_keys *keys, size_t from, size_t count, planes at) {
    spv_window hashed;
    spv_hash_window(shape, keys, from, count, &hashed);
    spv_spread_planes(shape, &hashed, count, 0, shape->functions, at);
}

static void fetch(const uint8_t *bits, planes at, size_t functions, size_t count) {
    for (size_t j = 0; j < functions; j++)
        for (size_t i = 0; i < count; i++)
            __builtin_prefetch(bits + (at[j][i] >> 3), 0);
}

SPV_INLINE size_t set_window(const spv_batch *batch, planes at, size_t count, bool shared) {
    uint8_t *bits = batch->cells; /* a local copy, so that it is not read again after every write */
    const size_t functions = batch->shape->functions;
    size_t fresh = 0;
    for (size_t i = 0; i < count; i++) {
        unsigned new = 0;
        for (size_t j = 0; j < functions; j++)
            new |= spv_bit_set(bits, at[j][i], shared);
        fresh += new != 0;
    }
    return fresh;
}

/* True if the bits of key number `i` for functions `from` to before `end` are all set. It has no early exit, because
   half of all keys would mispredict its branch. */
SPV_INLINE bool all_of(const uint8_t *bits, planes at, size_t i, size_t from, size_t end) {
    unsigned missing = 0;
    for (size_t j = from; j < end; j++)
        missing |= spv_bit_missing(bits, at[j][i]);
    return !missing;
}

/* The number of keys at the start of a window that are contained. Adding them needs no room. */
static size_t contained(const spv_batch *batch, planes at, size_t count) {
    const size_t functions = batch->shape->functions;
    size_t known = 0;
    while (known < count && all_of(batch->cells, at, known, 0, functions))
        known++;
    return known;
}

size_t spv_planes_add(spv_batch *batch, const spv_keys *keys, size_t from, size_t count) {
    _Alignas(64) planes at;
    size_t fresh = 0, now;
    batch->done = count;
    for (size_t next = 0; next < count; next += now) {
        const size_t wanted = count - next < SPV_AHEAD ? count - next : SPV_AHEAD;
        batch->shared = spv_gate_again(batch->gate, batch->shared);
        const size_t fits = spv_room_reserve(batch->room, wanted, batch->shared);
        lay_out(batch->shape, keys, from + next, fits ? fits : wanted, at);
        if (batch->far)
            fetch(batch->cells, at, batch->shape->functions, fits ? fits : wanted);
        now = fits ? fits : contained(batch, at, wanted);
        const size_t new = batch->shared ? set_window(batch, at, now, true) : set_window(batch, at, now, false);
        fresh += new;
        spv_room_give_back(batch->room, fits > new ? fits - new : 0, batch->shared);
        if (!fits && now < wanted) {
            batch->done = next + now;
            break;
        }
    }
    return fresh;
}

static void has_near(const spv_batch *batch, const spv_keys *keys, size_t from, size_t count, uint8_t *mask) {
    _Alignas(64) planes at;
    for (size_t next = 0, now; next < count; next += now) {
        now = count - next < SPV_AHEAD ? count - next : SPV_AHEAD;
        lay_out(batch->shape, keys, from + next, now, at);
        for (size_t i = 0; i < now; i++)
            mask[next + i] = all_of(batch->cells, at, i, 0, batch->shape->functions);
    }
}

enum { FIRST = 3 }; /* functions whose bits are fetched for every key: they rule out seven of eight keys that are not contained */

/* A window of keys. Their first bits show which of them may be contained. */
typedef struct {
    _Alignas(64) planes at;
    size_t from, count, left;
    uint8_t numbers[SPV_AHEAD + 1];
} sieve;

static void sift(const spv_batch *batch, sieve *window, size_t first, uint8_t *mask) {
    const size_t functions = batch->shape->functions;
    size_t left = 0;
    for (size_t i = 0; i < window->count; i++) {
        window->numbers[left] = (uint8_t)i;
        left += all_of(batch->cells, window->at, i, 0, first);
    }
    for (size_t j = first; j < functions; j++)
        for (size_t c = 0; c < left; c++)
            __builtin_prefetch(batch->cells + (window->at[j][window->numbers[c]] >> 3), 0);
    window->left = left;
    memset(mask + window->from, 0, window->count);
}

static void decide(const spv_batch *batch, sieve *window, size_t first, uint8_t *mask) {
    for (size_t c = 0; c < window->left; c++) {
        const size_t i = window->numbers[c];
        mask[window->from + i] = all_of(batch->cells, window->at, i, first, batch->shape->functions);
    }
}

/* While the first bits of a window are fetched, the previous window is decided. While its other bits are fetched,
   the next window is hashed. */
static void has_far(const spv_batch *batch, const spv_keys *keys, size_t from, size_t count, uint8_t *mask) {
    const size_t functions = batch->shape->functions, first = functions < FIRST ? functions : FIRST;
    sieve two[2];
    two[1].left = 0; /* there is no window before the first one */
    unsigned this = 0;
    for (size_t next = 0; next < count; next += SPV_AHEAD, this ^= 1) {
        sieve *window = two + this;
        window->from = next;
        window->count = count - next < SPV_AHEAD ? count - next : SPV_AHEAD;
        lay_out(batch->shape, keys, from + next, window->count, window->at);
        fetch(batch->cells, window->at, first, window->count);
        decide(batch, two + !this, first, mask);
        sift(batch, window, first, mask);
    }
    decide(batch, two + !this, first, mask);
}

void spv_planes_has(const spv_batch *batch, const spv_keys *keys, size_t from, size_t count, uint8_t *mask) {
    (batch->far ? has_far : has_near)(batch, keys, from, count, mask);
}
