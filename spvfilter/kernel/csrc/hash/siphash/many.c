#include "hash/siphash/many.h"
#include "hash/cpu.h"

#define NAME one_by_one
#define LANES 1
#define TARGET
#include "hash/siphash/lanes.h"

#if defined(__x86_64__)
#define NAME with_avx2
#define LANES 4
#define TARGET __attribute__((target("avx2")))
#include "hash/siphash/lanes.h"

#define NAME with_avx512
#define LANES 8
#define TARGET __attribute__((target("avx512f")))
#include "hash/siphash/lanes.h"
#endif

void spv_siphash24_many(const uint64_t *words, size_t blocks, size_t count, uint64_t k0, uint64_t k1, uint64_t *hashes) {
#if defined(__x86_64__)
    const unsigned cpu = spv_cpu();
    if (cpu & SPV_CPU_AVX512) {
        with_avx512(words, blocks, count, k0, k1, hashes);
        return;
    }
    if (cpu & SPV_CPU_AVX2) {
        with_avx2(words, blocks, count, k0, k1, hashes);
        return;
    }
#endif
    one_by_one(words, blocks, count, k0, k1, hashes);
}

enum { SHORT = 16, TOGETHER = 2, ROOM = TOGETHER * SPV_SIP_LANES }; /* most words of messages that are hashed together; blocks, messages at once */

/* Blocks that are being filled: their words, and the numbers of their messages. */
typedef struct {
    uint64_t words[SHORT * ROOM];
    size_t message[ROOM], count;
} filling;

static void empty_out(filling *block, size_t words, uint64_t k0, uint64_t k1, uint64_t *hashes) {
    uint64_t made[ROOM];
    const size_t blocks = (block->count + SPV_SIP_LANES - 1) / SPV_SIP_LANES;
    spv_siphash24_many(block->words, blocks, words, k0, k1, made);
    for (size_t i = 0; i < block->count; i++)
        hashes[block->message[i]] = made[i];
    block->count = 0;
}

/* The position of word 0 of message `number`. */
SPV_INLINE uint64_t *lane(filling *block, size_t number, size_t words) {
    return block->words + number / SPV_SIP_LANES * words * SPV_SIP_LANES + number % SPV_SIP_LANES;
}

void spv_siphash24_each(const spv_bytes *messages, size_t count, uint64_t k0, uint64_t k1, uint64_t *hashes) {
    filling blocks[SHORT]; /* of messages with 1, 2, … words */
    for (size_t words = 1; words <= SHORT; words++)
        blocks[words - 1].count = 0;
    for (size_t i = 0; i < count; i++) {
        const size_t words = messages[i].size / 8 + 1;
        if (SPV_UNLIKELY(words > SHORT)) {
            hashes[i] = spv_siphash24(messages[i].data, messages[i].size, k0, k1);
            continue;
        }
        filling *block = blocks + words - 1;
        const size_t at = block->count++;
        spv_sip_lay_out(messages + i, words, lane(block, at, words));
        block->message[at] = i;
        if (block->count == ROOM)
            empty_out(block, words, k0, k1, hashes);
    }
    for (size_t words = 1; words <= SHORT; words++) {
        filling *block = blocks + words - 1;
        if (!block->count)
            continue;
        const spv_bytes *last = messages + block->message[block->count - 1];
        for (size_t at = block->count; at % SPV_SIP_LANES; at++) /* unused lanes repeat the last message */
            spv_sip_lay_out(last, words, lane(block, at, words));
        empty_out(block, words, k0, k1, hashes);
    }
}
