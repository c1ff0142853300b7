/* Asking sets for items. A query that is smaller than a set becomes a bitmap of the values it would have there, and each element is looked up
   as it is decoded, several sets side by side; a larger one streams against a bitmap of the set. */
#include "gcs/query.h"
#include "gcs/stream.h"

#include <stdlib.h>

SPV_INLINE uint64_t map_to(uint64_t hash, uint64_t span) {
    return (uint64_t)((unsigned __int128)hash * span >> 64);
}

enum { WIDTH = 2 }; /* sets side by side: each waits for its own loads */

/* Two bitmaps of a set of values, by their high and by their low bits: what is not in both is not in the set. */
typedef struct {
    uint64_t *high, *low;
    size_t room;       /* words of both */
    unsigned shift;    /* from a value to its high bits */
    uint64_t high_words, low_mask; /* less one */
} sieve;

typedef struct {
    spv_gcs_stream stream;
    sieve in; /* of the values looked for */
    uint64_t *wanted; /* these, in no order */
    size_t count, number; /* of them; which set this is */
    bool match;
} lane;

/* Its lowest bit says whether a value's high bits are in the sieve. */
SPV_INLINE uint64_t in_high(const sieve *of, uint64_t value) {
    return of->high[value >> of->shift >> 6 & of->high_words] >> (value >> of->shift & 63);
}

SPV_INLINE bool in_low(const sieve *of, uint64_t value) {
    uint64_t place = value & of->low_mask;
    return of->low[place >> 6] >> (place & 63) & 1;
}

SPV_INLINE bool make_sieve(sieve *made, const uint64_t *values, size_t count, uint64_t span) {
    enum { SPREAD = 96, LEAST = 12, MOST = 22, LOW = 1 }; /* bits per value; bits of an index into the upper map; how many fewer for the lower */
    unsigned bits = LEAST, width = span > 1 ? 64 - (unsigned)__builtin_clzll(span - 1) : 1; /* of a value */
    while (bits < MOST && ((uint64_t)1 << bits) < SPREAD * (uint64_t)count)
        bits++;
    const size_t high_words = (size_t)1 << bits >> 6, low_words = high_words >> LOW, words = high_words + low_words;
    if (words > made->room) {
        uint64_t *larger = realloc(made->high, words * sizeof *larger);
        if (!larger)
            return false;
        made->high = larger;
        made->room = words;
    }
    uint64_t *high = made->high, *low = high + high_words;
    const unsigned shift = width > bits ? width - bits : 0;
    memset(high, 0, words * sizeof *high);
    for (size_t i = 0; i < count; i++) {
        uint64_t value = values[i];
        high[value >> shift >> 6 & (high_words - 1)] |= (uint64_t)1 << (value >> shift & 63);
        low[value >> 6 & (low_words - 1)] |= (uint64_t)1 << (value & 63);
    }
    made->low = low;
    made->shift = shift;
    made->high_words = high_words - 1;
    made->low_mask = 64 * low_words - 1;
    return true;
}

/* A value whose high bits are in the sieve: remembers whether it is looked for. The first that is settles the set. */
static void look(lane *lane, uint64_t value) {
    if (!lane->match && in_low(&lane->in, value))
        for (size_t i = 0; i < lane->count; i++)
            lane->match |= lane->wanted[i] == value;
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

/* Whether any value wanted, of which some are lost, is in the set of which the sieve was made; few survive the first map, asked without branches. */
SPV_INLINE bool any_in_set(lane *lane, const spv_gcs_values *set) {
    const sieve in = lane->in;
    uint64_t *wanted = lane->wanted;
    size_t left = 0;
    for (size_t i = 0; i < lane->count; i++) {
        uint64_t value = wanted[i];
        wanted[left] = value;
        left += in_high(&in, value) & 1;
    }
    for (size_t i = 0; i < left; i++)
        if (in_low(&in, wanted[i]) && among_sorted(set->values, set->count, wanted[i]))
            return true;
    return false;
}

/* One lane or two, as far as both go or until one is stuck on a long quotient: 1 or 2, which. */
SPV_INLINE unsigned seek(lane *lanes, int width, unsigned p) {
    spv_gcs_stream a = lanes[0].stream, b = lanes[width - 1].stream;
    const sieve in_a = lanes[0].in, in_b = lanes[width - 1].in;
    uint64_t most = spv_gcs_rounds(&a), other = spv_gcs_rounds(&b), first, done;
    unsigned stuck = 0;
    if (other < most)
        most = other;
    for (done = 0; done < most; done++) {
        if (!spv_gcs_two(&a, p, &first)) {
            stuck = 1;
            break;
        }
        if (SPV_UNLIKELY((in_high(&in_a, first) | in_high(&in_a, a.value)) & 1)) {
            look(lanes, first);
            look(lanes, a.value);
        }
        if (width == 1)
            continue;
        if (!spv_gcs_two(&b, p, &first)) {
            stuck = 2;
            break;
        }
        if (SPV_UNLIKELY((in_high(&in_b, first) | in_high(&in_b, b.value)) & 1)) {
            look(lanes + 1, first);
            look(lanes + 1, b.value);
        }
    }
    b.i += 2 * done;
    a.i += 2 * (done + (stuck == 2));
    if (width == 2)
        lanes[1].stream = b;
    lanes[0].stream = a;
    return stuck;
}

/* At most so many elements of one set, whatever they are. False where its bits end. */
static bool walk(lane *lane, unsigned p, uint64_t most) {
    spv_gcs_stream *of = &lane->stream;
    for (; most && of->i < of->n; most--) {
        if (!spv_gcs_next(of, p))
            return false;
        if (in_high(&lane->in, of->value) & 1)
            look(lane, of->value);
    }
    return true;
}

typedef struct {
    const spv_gcs_query *query;
    const spv_gcs_set *sets;
    size_t count, next, failed; /* sets; the first not begun; the first that failed */
    unsigned p;
    uint64_t m;
    uint8_t *mask;
    spv_status status;
    spv_error *error;
    spv_gcs_values values; /* of a set, for a large query */
    lane lanes[WIDTH];
} work;

/* What became of a set. Sets are begun in order but end in any: of those that fail the first one counts. */
static void settle(work *on, size_t number, spv_status status, bool match, const spv_error *error) {
    if (!status) {
        on->mask[number] = match;
    } else if (number < on->failed) {
        on->failed = number;
        on->status = status;
        if (status == SPV_FORMAT)
            *on->error = *error;
    }
}

SPV_INLINE spv_status want(const work *on, lane *lane, const spv_gcs_set *set, uint64_t span) {
    size_t count = on->query->room;
    if (!lane->wanted && !(lane->wanted = malloc((count ? count : 1) * sizeof *lane->wanted)))
        return SPV_NOMEM;
    lane->count = count;
    spv_gcs_hash(on->query, set->key, lane->wanted);
    for (size_t i = 0; i < count; i++)
        lane->wanted[i] = map_to(lane->wanted[i], span);
    return SPV_OK;
}

enum { SMALL_QUERY = 1 << 12 }; /* up to here its values may be searched one by one for what passes a sieve of them */

/* Begins sets until one is on its way in this lane; where the query is not small beside a set that is settled at once. False: no more. */
SPV_INLINE bool load(work *on, lane *lane) {
    const size_t room = on->query->room;
    while (on->next < on->count && !on->status) {
        size_t number = on->next++;
        const spv_gcs_set *set = on->sets + number;
        spv_error error;
        bool match = false;
        spv_status status = spv_gcs_begin(&lane->stream, set->data, set->size, on->p, &error);
        const uint64_t n = status ? 0 : lane->stream.n, span = n * on->m;
        if (!status && room && 2 * room <= n && room <= SMALL_QUERY) {
            status = want(on, lane, set, span);
            if (!status && !make_sieve(&lane->in, lane->wanted, room, span))
                status = SPV_NOMEM;
            if (!status) {
                lane->number = number;
                lane->match = false;
                return true;
            }
        } else if (!status) {
            status = spv_gcs_decode(set->data, set->size, on->p, &on->values, &error);
            if (!status && n && room) {
                status = want(on, lane, set, span);
                if (!status && !make_sieve(&lane->in, on->values.values, (size_t)n, span))
                    status = SPV_NOMEM;
                match = !status && any_in_set(lane, &on->values);
            }
        }
        settle(on, number, status, match, &error);
    }
    return false;
}

SPV_INLINE void match(work *on) {
    enum { ALONE = 16 }; /* elements that a lane which is stuck goes on by itself */
    const unsigned p = on->p;
    lane *lanes = on->lanes;
    for (size_t busy = 0;;) {
        while (busy < WIDTH && load(on, lanes + busy))
            busy++;
        if (!busy)
            return;
        unsigned stuck = busy == 1 ? seek(lanes, 1, p) : seek(lanes, 2, p);
        for (size_t i = busy; i-- > 0;) {
            bool sound = !(stuck >> i & 1) || walk(lanes + i, p, ALONE);
            if (sound && spv_gcs_rounds(&lanes[i].stream))
                continue;
            spv_error refusal;
            walk(lanes + i, p, UINT64_MAX);
            settle(on, lanes[i].number, spv_gcs_end(&lanes[i].stream, &refusal), lanes[i].match, &refusal);
            lane idle = lanes[i];
            lanes[i] = lanes[--busy];
            lanes[busy] = idle;
        }
    }
}

SPV_GCS_BMI2 static void match_bmi2(work *on) {
    match(on);
}

static void match_plain(work *on) {
    match(on);
}

spv_status spv_gcs_match_many(
    const spv_gcs_query *query, const spv_gcs_set *sets, size_t count, unsigned p, uint64_t m, uint8_t *mask, size_t *failed,
    spv_error *error
) {
    work on = {.query = query, .sets = sets, .count = count, .failed = count, .p = p, .m = m, .mask = mask, .error = error};
    (SPV_GCS_HAS_BMI2 ? match_bmi2 : match_plain)(&on);
    for (int i = 0; i < WIDTH; i++) {
        free(on.lanes[i].wanted);
        free(on.lanes[i].in.high);
    }
    free(on.values.values);
    *failed = on.failed;
    return on.status;
}
