/* Matching a query.

   If the query is small compared with a set, the set is streamed. The query's items have values in the set, and a
   sieve is made of these values. Each element is tested against the sieve while it is decoded. Two sets are searched
   side by side, because decoding waits for its own loads.

   If the query is not small, the set is decoded, a sieve is made of its values, and the query's values are tested
   against that sieve. */
#include "gcs/match.h"
#include "gcs/decode.h"
#include "gcs/sieve.h"
#include "gcs/stream.h"

#include <stdlib.h>

/* The query and its parameters, which do not change. */
typedef struct {
    const spv_gcs_query *query;
    unsigned p;
    uint64_t m;
} question;

/* The results. Sets end in any order. If several sets are malformed, the first of them in the caller's order is
   reported. */
typedef struct {
    uint8_t *mask;
    size_t failed; /* number of the first set that failed so far, or the count of sets */
    spv_status status;
    spv_error *error;
} verdicts;

static void settle(verdicts *to, size_t number, spv_status status, bool match, const spv_error *error) {
    if (!status) {
        to->mask[number] = match;
    } else if (number < to->failed) {
        to->failed = number;
        to->status = status;
        if (status == SPV_FORMAT)
            *to->error = *error;
    }
}

/* The hashes of the query's items under the key of a set, or the values that they have in the set. They are not sorted.
   The memory is reused. */
typedef struct {
    uint64_t *values;
    size_t count;
} wanted_values;

SPV_INLINE uint64_t map_to(uint64_t hash, uint64_t span) { /* BIP-158 § Hashing data objects */
    return (uint64_t)((unsigned __int128)hash * span >> 64);
}

static spv_status hash_wanted(wanted_values *wanted, const question *asked, const uint8_t key[16]) {
    const size_t count = asked->query->room;
    if (!wanted->values && !(wanted->values = malloc(count * sizeof *wanted->values)))
        return SPV_NOMEM;
    wanted->count = count;
    spv_gcs_hash(asked->query, key, wanted->values);
    return SPV_OK;
}

/* A small query: sets are streamed. */

/* A set that is being decoded. */
typedef struct {
    spv_gcs_stream stream;
    spv_sieve sieve; /* sieve of the wanted values */
    wanted_values wanted;
    size_t number; /* number of the set */
    bool match;
} search;

/* Looks up a value that passed the high map. It is called rarely, because the first wanted value decides the result. */
static void look(search *s, uint64_t value) {
    if (!s->match && spv_sieve_low(&s->sieve, value))
        for (size_t i = 0; i < s->wanted.count; i++)
            s->match |= s->wanted.values[i] == value;
}

/* Tests the next two elements of `stream`. The arguments are copies of s->stream and s->sieve in registers. False if
   spv_gcs_two cannot decode the elements. */
SPV_INLINE bool try_two(search *s, spv_gcs_stream *stream, const spv_sieve *sieve, unsigned p) {
    uint64_t first;
    if (!spv_gcs_two(stream, p, &first))
        return false;
    if (SPV_UNLIKELY((spv_sieve_high(sieve, first) | spv_sieve_high(sieve, stream->value)) & 1)) {
        look(s, first);
        look(s, stream->value);
    }
    return true;
}

/* Continues one set in pairs of elements, or two sets in turns, until a set has no pair that spv_gcs_two can decode. */
SPV_INLINE void run(search *s, search *t, unsigned p) {
    spv_gcs_stream a = s->stream, b = t ? t->stream : a;
    const spv_sieve in_a = s->sieve, in_b = t ? t->sieve : in_a;
    const uint64_t of_a = spv_gcs_rounds(&a), of_b = spv_gcs_rounds(&b);
    for (uint64_t left = of_a < of_b ? of_a : of_b; left; left--)
        if (!try_two(s, &a, &in_a, p) || (t && !try_two(t, &b, &in_b, p)))
            break;
    s->stream = a;
    if (t)
        t->stream = b;
}

SPV_GCS_BMI2 static void run_bmi2(search *s, search *t, unsigned p) {
    if (t)
        run(s, t, p);
    else
        run(s, NULL, p);
}

static void run_plain(search *s, search *t, unsigned p) {
    if (t)
        run(s, t, p);
    else
        run(s, NULL, p);
}

/* Tests at most `most` elements of any length, one by one. False at the end of the set or of its bits. */
static bool walk(search *s, unsigned p, uint64_t most) {
    spv_gcs_stream *of = &s->stream;
    for (; most; most--) {
        if (of->i == of->n || !spv_gcs_next(of, p))
            return false;
        if (spv_sieve_high(&s->sieve, of->value) & 1)
            look(s, of->value);
    }
    return of->i < of->n;
}

/* Decodes the elements that `run` could not decode. False at the end of the set. */
static bool go_on(search *s, unsigned p) {
    enum { ALONE = 16 }; /* elements to decode singly after an element that spv_gcs_two cannot decode */
    if (!spv_gcs_rounds(&s->stream))
        return walk(s, p, UINT64_MAX);
    return try_two(s, &s->stream, &s->sieve, p) || walk(s, p, ALONE);
}

enum { SIDE_BY_SIDE = 2 };

/* The first `count` searches are running. The others keep their memory for the next sets. */
typedef struct {
    search each[SIDE_BY_SIDE];
    size_t count;
} searches;

/* Continues until a search ends, and stores its result. */
static void advance(searches *under_way, unsigned p, verdicts *to) {
    search *each = under_way->each;
    for (bool all = true; all;) {
        (SPV_GCS_HAS_BMI2 ? run_bmi2 : run_plain)(each, under_way->count == SIDE_BY_SIDE ? each + 1 : NULL, p);
        for (size_t i = under_way->count; i-- > 0;) {
            if (go_on(each + i, p))
                continue;
            spv_error refusal;
            settle(to, each[i].number, spv_gcs_end(&each[i].stream, &refusal), each[i].match, &refusal);
            search ended = each[i];
            each[i] = each[--under_way->count];
            each[under_way->count] = ended;
            all = false;
        }
    }
}

static spv_status start(search *s, const question *asked, const spv_gcs_stream *stream, const uint8_t key[16], size_t number) {
    const uint64_t span = stream->n * asked->m;
    const spv_status status = hash_wanted(&s->wanted, asked, key);
    if (status)
        return status;
    for (size_t i = 0; i < s->wanted.count; i++)
        s->wanted.values[i] = map_to(s->wanted.values[i], span);
    if (!spv_sieve_make(&s->sieve, s->wanted.values, s->wanted.count, span))
        return SPV_NOMEM;
    s->stream = *stream;
    s->number = number;
    s->match = false;
    return SPV_OK;
}

/* A query that is not small: sets are decoded. */

typedef struct {
    spv_gcs_values set; /* ascending */
    spv_sieve sieve;    /* sieve of the set */
    wanted_values wanted;
} decoded;

static bool among_sorted(const spv_gcs_values *set, uint64_t value) {
    size_t low = 0, high = set->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (set->values[middle] < value)
            low = middle + 1;
        else
            high = middle;
    }
    return low < set->count && set->values[low] == value;
}

/* Keeps the values of the wanted hashes that pass the high map, and returns their number. Few pass, so there is no
   branch. */
SPV_INLINE size_t sift(wanted_values *wanted, const spv_sieve *by, uint64_t span) {
    const spv_sieve sieve = *by;
    uint64_t *values = wanted->values;
    size_t left = 0;
    for (size_t i = 0; i < wanted->count; i++) {
        const uint64_t value = map_to(values[i], span);
        values[left] = value;
        left += spv_sieve_high(&sieve, value) & 1;
    }
    return left;
}

SPV_GCS_BMI2 static size_t sift_bmi2(wanted_values *wanted, const spv_sieve *by, uint64_t span) {
    return sift(wanted, by, span);
}

static size_t sift_plain(wanted_values *wanted, const spv_sieve *by, uint64_t span) {
    return sift(wanted, by, span);
}

/* True if a wanted hash has its value in the set. */
static bool any_in_set(decoded *d, uint64_t span) {
    const size_t left = (SPV_GCS_HAS_BMI2 ? sift_bmi2 : sift_plain)(&d->wanted, &d->sieve, span);
    for (size_t i = 0; i < left; i++)
        if (spv_sieve_low(&d->sieve, d->wanted.values[i]) && among_sorted(&d->set, d->wanted.values[i]))
            return true;
    return false;
}

static spv_status match_decoded(decoded *d, const question *asked, const spv_gcs_set *set, bool *match, spv_error *error) {
    *match = false;
    spv_status status = spv_gcs_decode(set->data.data, set->data.size, asked->p, &d->set, error);
    if (status || !d->set.count || !asked->query->room)
        return status;
    const uint64_t span = d->set.count * asked->m;
    status = hash_wanted(&d->wanted, asked, set->key);
    if (!status && !spv_sieve_make(&d->sieve, d->set.values, d->set.count, span))
        status = SPV_NOMEM;
    *match = !status && any_in_set(d, span);
    return status;
}

/* Both kinds of queries. */

static bool is_small(const spv_gcs_query *query, uint64_t n) {
    enum { SMALL = 1 << 12 }; /* most values that are searched one by one for a value that passes their sieve */
    return query->room && 2 * query->room <= n && query->room <= SMALL;
}

spv_status spv_gcs_match_many(
    const spv_gcs_query *query, const spv_gcs_set *sets, size_t count, unsigned p, uint64_t m, uint8_t *mask, size_t *failed,
    spv_error *error
) {
    const question asked = {query, p, m};
    verdicts to = {.mask = mask, .failed = count, .error = error};
    searches under_way = {.count = 0};
    decoded large = {.wanted = {0}};
    for (size_t number = 0; number < count && !to.status; number++) {
        const spv_gcs_set *set = sets + number;
        spv_gcs_stream stream;
        spv_error refusal;
        bool match = false;
        spv_status status = spv_gcs_begin(&stream, set->data.data, set->data.size, p, &refusal);
        if (!status && is_small(query, stream.n)) {
            status = start(under_way.each + under_way.count, &asked, &stream, set->key, number);
            if (!status) {
                if (++under_way.count == SIDE_BY_SIDE)
                    advance(&under_way, p, &to);
                continue;
            }
        } else if (!status) {
            status = match_decoded(&large, &asked, set, &match, &refusal);
        }
        settle(&to, number, status, match, &refusal);
    }
    while (under_way.count)
        advance(&under_way, p, &to);
    for (size_t i = 0; i < SIDE_BY_SIDE; i++) {
        free(under_way.each[i].wanted.values);
        spv_sieve_free(&under_way.each[i].sieve);
    }
    free(large.set.values);
    free(large.wanted.values);
    spv_sieve_free(&large.sieve);
    *failed = to.failed;
    return to.status;
}
