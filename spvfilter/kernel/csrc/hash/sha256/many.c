/* SHA-256 of many messages at once: when the message of a lane ends, the lane takes the next message. */
#include "hash/sha256/way.h"

enum {
    BATCH = 8192,  /* messages that are sorted together */
    LENGTHS = 256  /* lengths that the sorting distinguishes; longer messages come first, in any order */
};

/* The caller's messages from `first` to before `first` + BATCH. */
typedef struct {
    spv_message_at *message_at;
    const void *context;
    size_t first;
    spv_hash *out; /* result of message `first` */
} job;

/* Lane i reads stretch[i] of message[i]. left[i] more blocks of it are at data[i]. In a lane without a message,
   left[i] starts at NEVER and is decremented too. */
typedef struct {
    _Alignas(64) uint32_t state[8 * SPV_MAX_LANES];
    const uint8_t *data[SPV_MAX_LANES];
    size_t left[SPV_MAX_LANES];
    size_t stretch[SPV_MAX_LANES], message[SPV_MAX_LANES];
    spv_padded padded[SPV_MAX_LANES];
} lanes_at_work;

#define NEVER SIZE_MAX
SPV_INLINE bool idle(size_t left) {
    return left > NEVER / 2;
}

SPV_INLINE spv_message message_of(const job *j, size_t number) {
    return j->message_at(j->context, j->first + number);
}

/* Whole blocks of a message, at most LENGTHS - 1. */
SPV_INLINE uint8_t blocks_of(const job *j, size_t number) {
    const spv_message message = message_of(j, number);
    const size_t size = message.body.size + (message.head ? 8 : 0);
    return (uint8_t)(size < 64 * (LENGTHS - 1) ? (size + 8) / 64 : LENGTHS - 1);
}

SPV_INLINE void put_digest(const uint32_t *state, size_t step, uint8_t digest[32]) {
    for (size_t i = 0; i < 8; i++)
        spv_put_be32(digest + 4 * i, state[i * step]);
}

SPV_INLINE void reset(uint32_t *state, size_t step) {
    for (size_t i = 0; i < 8; i++)
        state[i * step] = spv_sha256_initial[i];
}

SPV_INLINE void take_stretch(lanes_at_work *w, size_t i) {
    w->data[i] = w->padded[i].stretch[w->stretch[i]].at;
    w->left[i] = w->padded[i].stretch[w->stretch[i]].blocks;
}

static void take_message(lanes_at_work *w, size_t i, const job *j, size_t number) {
    const spv_message message = message_of(j, number);
    spv_pad(w->padded + i, &message);
    w->message[i] = number;
    w->stretch[i] = 0;
    take_stretch(w, i);
}

/* Moves the lane to the next stretch of its message. False after the last stretch. */
SPV_INLINE bool next_stretch(lanes_at_work *w, size_t i) {
    if (++w->stretch[i] == w->padded[i].stretches)
        return false;
    take_stretch(w, i);
    return true;
}

/* Hashes the rest of a message without other lanes. */
static void finish_alone(const spv_sha256_way *way, lanes_at_work *w, size_t i, uint8_t digest[32]) {
    uint32_t state[8];
    for (size_t k = 0; k < 8; k++)
        state[k] = w->state[k * way->lanes + i];
    do
        way->one(state, w->data[i], w->left[i]);
    while (next_stretch(w, i));
    put_digest(state, 1, digest);
}

/* Hashes the messages of `order` once. */
static void hash_batch(const spv_sha256_way *way, const job *j, const uint16_t *order, size_t count) {
    const size_t lanes = way->lanes;
    lanes_at_work w;
    size_t next = 0, live = 0;
    for (size_t i = 0; i < lanes; i++) {
        reset(w.state + i, lanes);
        w.left[i] = NEVER;
        if (next < count) {
            take_message(&w, i, j, order[next++]);
            live++;
        }
    }
    while (live >= way->worth) { /* all lanes have messages until the messages run out */
        size_t least = 0;
        for (size_t i = 1; i < lanes; i++)
            least = w.left[i] < w.left[least] ? i : least;
        size_t blocks = w.left[least];
        for (size_t i = 0; live < lanes && i < lanes; i++)
            if (idle(w.left[i]))
                w.data[i] = w.data[least]; /* the lane's result is not used */
        way->many(w.state, w.data, blocks);
        for (size_t i = 0; i < lanes; i++) {
            w.data[i] += 64 * blocks;
            w.left[i] -= blocks;
        }
        for (size_t i = 0; i < lanes; i++) {
            if (w.left[i] || next_stretch(&w, i))
                continue;
            put_digest(w.state + i, lanes, j->out[w.message[i]]);
            if (next < count) {
                take_message(&w, i, j, order[next++]);
                reset(w.state + i, lanes);
            } else {
                w.left[i] = NEVER;
                live--;
            }
        }
    }
    for (size_t i = 0; i < lanes; i++)
        if (!idle(w.left[i]))
            finish_alone(way, &w, i, j->out[w.message[i]]);
}

static void hash_one(const spv_sha256_way *way, const uint8_t *pair, uint8_t digest[32]) {
    const spv_message first = {.body = {pair, 64}}, second = {.body = {digest, 32}};
    spv_padded padded;
    if (pair) {
        spv_pad(&padded, &first);
        spv_hash_padded(way, &padded, digest);
    }
    spv_pad(&padded, &second);
    spv_hash_padded(way, &padded, digest);
}

/* Messages of one size: sha256d of pairs of hashes; or, if `pairs` is NULL, SHA-256 of each hash in `out`, in place. */
static void hash_alike(const spv_sha256_way *way, const spv_hash *pairs, size_t count, spv_hash *out) {
    static const uint8_t end_of_pair[64] = {[0] = 0x80, [62] = 2}; /* the padding of a message of 512 bits */
    const size_t lanes = way->lanes;
    if (count < way->worth) {
        for (size_t i = 0; i < count; i++)
            hash_one(way, pairs ? (const uint8_t *)(pairs + 2 * i) : NULL, out[i]);
        return;
    }
    _Alignas(64) uint32_t state[8 * SPV_MAX_LANES];
    const uint8_t *data[SPV_MAX_LANES], *ends[SPV_MAX_LANES];
    uint8_t second[SPV_MAX_LANES][64] = {{0}};
    for (size_t i = 0; i < lanes; i++) {
        second[i][32] = 0x80;
        second[i][62] = 1; /* the length of the message, 256 bits */
        ends[i] = end_of_pair;
    }
    for (size_t done = 0; done < count; done += lanes) {
        size_t some = count - done < lanes ? count - done : lanes;
        if (some < way->worth) {
            for (size_t i = done; i < count; i++)
                hash_one(way, pairs ? (const uint8_t *)(pairs + 2 * i) : NULL, out[i]);
            break;
        }
        if (pairs) {
            for (size_t i = 0; i < lanes; i++)
                data[i] = (const uint8_t *)(pairs + 2 * (done + (i < some ? i : 0)));
            for (size_t i = 0; i < lanes; i++)
                reset(state + i, lanes);
            way->many(state, data, 1);
            way->many(state, ends, 1);
        }
        for (size_t i = 0; i < lanes; i++) {
            if (pairs)
                put_digest(state + i, lanes, second[i]);
            else if (i < some)
                memcpy(second[i], out[done + i], 32);
            data[i] = second[i];
        }
        for (size_t i = 0; i < lanes; i++)
            reset(state + i, lanes);
        way->many(state, data, 1);
        for (size_t i = 0; i < some; i++)
            put_digest(state + i, lanes, out[done + i]);
    }
}

void spv_hash_pairs(const spv_sha256_way *way, const spv_hash *pairs, size_t count, spv_hash *out) {
    hash_alike(way, pairs, count, out);
}

/* Longest first: messages that run side by side then end together, and the last message to end is short. */
static void sort_by_length(const job *j, uint16_t count, uint16_t order[BATCH]) {
    uint16_t starts[LENGTHS] = {0}, sum = 0;
    uint8_t blocks[BATCH];
    for (uint16_t i = 0; i < count; i++) {
        blocks[i] = blocks_of(j, i);
        starts[blocks[i]]++;
    }
    for (size_t i = LENGTHS; i--;) {
        uint16_t here = starts[i];
        starts[i] = sum;
        sum = (uint16_t)(sum + here);
    }
    for (uint16_t i = 0; i < count; i++)
        order[starts[blocks[i]]++] = i;
}

void spv_hash_many(const spv_sha256_way *way, spv_message_at *message_at, const void *context, size_t count, spv_hash *out) {
    uint16_t order[BATCH];
    for (size_t done = 0; done < count; done += BATCH) {
        size_t some = count - done < BATCH ? count - done : BATCH;
        job j = {message_at, context, done, out + done};
        sort_by_length(&j, (uint16_t)some, order);
        hash_batch(way, &j, order, some);
    }
    hash_alike(way, NULL, count, out);
}

void spv_sha256d_many(spv_message_at *message_at, const void *context, size_t count, spv_hash *out) {
    spv_hash_many(spv_sha256_chosen(), message_at, context, count, out);
}

void spv_sha256d_pairs(const spv_hash *pairs, size_t count, spv_hash *out) {
    spv_hash_pairs(spv_sha256_chosen(), pairs, count, out);
}
