#include "bloom/blocks.h"

#include "bloom/bits.h"
#include "hash/cpu.h"

/* Keys that were hashed: the hash, and the bytes of the block. */
typedef struct {
    uint64_t hashes[SPV_AHEAD];
    uint8_t *blocks[SPV_AHEAD];
} window;

SPV_INLINE void hash_window(const spv_batch *batch, const spv_keys *keys, size_t from, size_t count, window *hashed) {
    for (size_t i = 0; i < count; i++) {
        const spv_bytes key = spv_key_at(keys, from + i);
        hashed->hashes[i] = spv_xxhash64(key.data, key.size);
        hashed->blocks[i] = batch->cells + (spv_block_of(hashed->hashes[i], batch->shape->span) >> 3);
        if (batch->far)
            __builtin_prefetch(hashed->blocks[i], 1);
    }
}

/* A constant width lets the compiler hash without loops. */
static void hash_ahead(const spv_batch *batch, const spv_keys *keys, size_t from, size_t count, window *hashed) {
    if (keys->keys || keys->width != 8)
        hash_window(batch, keys, from, count, hashed);
    else
        hash_window(batch, &(spv_keys){.rows = keys->rows, .width = 8}, from, count, hashed);
}

/* Not zero if the block was changed. */
SPV_INLINE unsigned set(const window *hashed, size_t i, bool shared) {
    unsigned fresh = 0;
    for (unsigned function = 0; function < SPV_BLOCK_FUNCTIONS; function++)
        fresh |= spv_bit_set(hashed->blocks[i], spv_bit_in_block(hashed->hashes[i], function), shared);
    return fresh;
}

/* Not zero if a bit is missing. Without an early exit, as bits.c does it. */
SPV_INLINE unsigned missing(const window *hashed, size_t i) {
    unsigned found = 0;
    for (unsigned function = 0; function < SPV_BLOCK_FUNCTIONS; function++)
        found |= spv_bit_missing(hashed->blocks[i], spv_bit_in_block(hashed->hashes[i], function));
    return found;
}

#if defined(__x86_64__)
#define AVX2 __attribute__((target("avx2")))
typedef uint32_t words __attribute__((vector_size(32)));
typedef long long quarters __attribute__((vector_size(32)));

/* A key's bits, a word each. A macro, because a function of another target is not inlined. */
#define BITS_OF(hash) \
    (((words){0} + 1) << (((words){0} + (uint32_t)(hash)) * (words){SPV_BLOCK_SALT} >> 27))

AVX2 static void has_avx2(const window *hashed, size_t count, uint8_t *mask) {
    for (size_t i = 0; i < count; i++) {
        words block;
        memcpy(&block, hashed->blocks[i], sizeof block);
        mask[i] = (uint8_t)__builtin_ia32_ptestc256((quarters)block, (quarters)BITS_OF(hashed->hashes[i]));
    }
}

/* Only for memory to which no other thread writes. */
AVX2 static size_t set_avx2(const window *hashed, size_t count) {
    size_t fresh = 0;
    for (size_t i = 0; i < count; i++) {
        const words bits = BITS_OF(hashed->hashes[i]);
        words block;
        memcpy(&block, hashed->blocks[i], sizeof block);
        fresh += !__builtin_ia32_ptestc256((quarters)block, (quarters)bits);
        block |= bits;
        memcpy(hashed->blocks[i], &block, sizeof block);
    }
    return fresh;
}
#endif

SPV_INLINE size_t set_window(const window *hashed, size_t count, bool shared) {
    size_t fresh = 0;
#if defined(__x86_64__)
    if (!shared && spv_cpu() & SPV_CPU_AVX2)
        return set_avx2(hashed, count);
#endif
    for (size_t i = 0; i < count; i++)
        fresh += set(hashed, i, shared) != 0;
    return fresh;
}

/* The number of keys at the start of a window that are contained. Adding them needs no room. */
static size_t contained(const window *hashed, size_t count) {
    size_t known = 0;
    while (known < count && !missing(hashed, known))
        known++;
    return known;
}

size_t spv_blocks_add(spv_batch *batch, const spv_keys *keys, size_t from, size_t count) {
    const size_t end = from + count;
    size_t fresh = 0, now;
    window hashed;
    for (size_t at = from; at < end; at += now) {
        const size_t wanted = end - at < SPV_AHEAD ? end - at : SPV_AHEAD;
        batch->shared = spv_gate_again(batch->gate, batch->shared);
        const size_t fits = spv_room_reserve(batch->room, wanted, batch->shared);
        hash_ahead(batch, keys, at, fits ? fits : wanted, &hashed);
        now = fits ? fits : contained(&hashed, wanted);
        const size_t new = batch->shared ? set_window(&hashed, now, true) : set_window(&hashed, now, false);
        fresh += new;
        spv_room_give_back(batch->room, fits > new ? fits - new : 0, batch->shared);
        if (!fits && now < wanted) {
            batch->done = at + now - from;
            return fresh;
        }
    }
    batch->done = count;
    return fresh;
}

static void has_window(const window *hashed, size_t count, uint8_t *mask) {
#if defined(__x86_64__)
    if (spv_cpu() & SPV_CPU_AVX2) {
        has_avx2(hashed, count, mask);
        return;
    }
#endif
    for (size_t i = 0; i < count; i++)
        mask[i] = !missing(hashed, i);
}

/* Each window is hashed before the previous one is looked up, so that its blocks arrive in the meantime. */
void spv_blocks_has(const spv_batch *batch, const spv_keys *keys, size_t from, size_t count, uint8_t *mask) {
    window windows[2];
    size_t ready = 0, done = 0;
    for (unsigned turn = 0; done < count; turn ^= 1) {
        const size_t left = count - done - ready, now = left < SPV_AHEAD ? left : SPV_AHEAD;
        hash_ahead(batch, keys, from + done + ready, now, windows + turn);
        has_window(windows + (turn ^ 1), ready, mask + done);
        done += ready;
        ready = now;
    }
}
