/* A hash index: maps hashes to numbers, by open addressing in groups of 15 tags. The caller compares the bytes that
   the numbers stand for. */
#ifndef SPV_WATCH_INDEX_H
#define SPV_WATCH_INDEX_H

#include "spv.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#elif defined(__aarch64__) && defined(__ARM_NEON)
#include <arm_neon.h>
#endif

enum { SPV_GROUP = 16, SPV_PASSED = 15 }; /* words of a group; position of its last word */
#define SPV_NONE UINT32_MAX /* in place of a number: there is none */

/* The group of a hash is probed first, then the groups after it. A tag is 15 bits of the hash, and a bit that is 1;
   a free slot is 0. The slots of a group are used in order and never freed.

   A number that finds its group full is put into a later group. It sets a bit in the last word of the full group:
   one of sixteen, chosen by its hash. Most hashes that are not in the index therefore end at a full group too. Tags
   are stored apart from numbers, so that 32 bytes are enough to rule a hash out. */
typedef struct {
    uint16_t *tags;
    uint32_t *numbers;
    size_t mask;           /* number of groups (a power of two) minus 1 */
    size_t reach;          /* number of groups after which a lookup ends */
    uint32_t count, limit; /* number of numbers; the index grows at `limit` */
    bool mapped;           /* the arrays belong to an image: they are read only, and may be wrong */
} spv_index;

enum { SPV_REACH = 256 }; /* `reach` of an index in an image (our choice): an attacker's image could otherwise make lookups run forever */

/* Returns the hash of a number; false if the index does not contain the number. */
typedef bool spv_hash_of(const void *context, uint32_t number, uint64_t *hash);
/* True if a number stands for the bytes that are looked up. */
typedef bool spv_same(const void *context, uint32_t number);

void spv_index_init(spv_index *index);
void spv_index_free(spv_index *index);
size_t spv_index_size(const spv_index *index); /* bytes allocated */
/* Reserves memory for one more number. To grow, it calls `hash_of` for all numbers below `numbers`. A mapped index
   becomes an index in memory. */
spv_status spv_index_reserve(spv_index *index, uint32_t numbers, spv_hash_of *hash_of, const void *context);
void spv_index_add(spv_index *index, uint64_t hash, uint32_t number); /* room must be reserved */
spv_status spv_index_copy(const spv_index *index, spv_index *copy);
/* The number of groups of an index with `count` numbers and room for one more, and the bytes of its arrays. */
size_t spv_index_groups(uint32_t count);
SPV_INLINE uint64_t spv_index_bytes(uint64_t groups) {
    return groups * SPV_GROUP * (sizeof(uint16_t) + sizeof(uint32_t));
}
/* An index over memory with that many groups, which is aligned for its arrays. */
spv_index spv_index_over(uint8_t *memory, size_t groups, uint32_t count);

SPV_INLINE size_t spv_index_group(const spv_index *index, uint64_t hash) {
    return (size_t)(hash >> 16) & index->mask;
}

SPV_INLINE uint16_t spv_index_tag(uint64_t hash) {
    return (uint16_t)(hash | 1);
}

/* Prefetches and returns the tags of a hash's group. */
SPV_INLINE const uint16_t *spv_index_fetch(const spv_index *index, uint64_t hash) {
    const uint16_t *tags = index->tags + spv_index_group(index, hash) * SPV_GROUP;
    __builtin_prefetch(tags);
    return tags;
}

/* Finds a tag in a group: for each word that equals it, a bit at SPV_SLOT_BITS times its position is set. There may
   be more set bits after these. */
#if defined(__SSE2__)
enum { SPV_SLOT_BITS = 1 };
#define SPV_SLOTS UINT64_C(0x7FFF)
SPV_INLINE uint64_t spv_group_words(const uint16_t *tags, uint16_t tag) {
    __m128i wanted = _mm_set1_epi16((short)tag);
    __m128i low = _mm_cmpeq_epi16(_mm_loadu_si128((const __m128i *)(const void *)tags), wanted);
    __m128i high = _mm_cmpeq_epi16(_mm_loadu_si128((const __m128i *)(const void *)(tags + 8)), wanted);
    return (uint32_t)_mm_movemask_epi8(_mm_packs_epi16(low, high));
}
#elif defined(__aarch64__) && defined(__ARM_NEON)
enum { SPV_SLOT_BITS = 4 };
#define SPV_SLOTS UINT64_C(0x0111111111111111)
SPV_INLINE uint64_t spv_group_words(const uint16_t *tags, uint16_t tag) {
    uint16x8_t wanted = vdupq_n_u16(tag);
    uint8x8_t low = vmovn_u16(vceqq_u16(vld1q_u16(tags), wanted)), high = vmovn_u16(vceqq_u16(vld1q_u16(tags + 8), wanted));
    uint8x8_t nibbles = vshrn_n_u16(vreinterpretq_u16_u8(vcombine_u8(low, high)), 4);
    return vget_lane_u64(vreinterpret_u64_u8(nibbles), 0);
}
#else
enum { SPV_SLOT_BITS = 1 };
#define SPV_SLOTS UINT64_C(0x7FFF)
SPV_INLINE uint64_t spv_group_words(const uint16_t *tags, uint16_t tag) {
    uint64_t slots = 0;
    for (unsigned slot = 0; slot < SPV_GROUP; slot++)
        slots |= (uint64_t)(tags[slot] == tag) << slot;
    return slots;
}
#endif

/* The slots of a group that contain a tag. */
SPV_INLINE uint64_t spv_group_slots(const uint16_t *tags, uint16_t tag) {
    return spv_group_words(tags, tag) & SPV_SLOTS;
}

/* The bit that a hash sets in full groups, and whether a hash with this bit has passed the group. */
SPV_INLINE uint16_t spv_passed_bit(uint64_t hash) {
    return (uint16_t)(1u << (hash >> 60));
}

SPV_INLINE bool spv_has_passed(const uint16_t *tags, uint64_t hash) {
    return tags[SPV_PASSED] & spv_passed_bit(hash);
}

/* True if the tags of a hash's group rule the hash out, which is the usual case; without a branch. */
SPV_INLINE bool spv_tags_lack(const uint16_t *tags, uint64_t hash) {
    return !(spv_group_slots(tags, spv_index_tag(hash)) | (tags[SPV_PASSED] & spv_passed_bit(hash)));
}

/* The number with this hash that `same` accepts, or SPV_NONE. The compiler inlines constant functions. */
SPV_INLINE uint32_t spv_index_find(const spv_index *index, uint64_t hash, spv_same *same, const void *context) {
    uint16_t tag = spv_index_tag(hash);
    size_t left = index->reach;
    for (size_t group = spv_index_group(index, hash);; group = (group + 1) & index->mask) {
        const uint16_t *tags = index->tags + group * SPV_GROUP;
        for (uint64_t slots = spv_group_slots(tags, tag); slots; slots &= slots - 1) {
            uint32_t number = index->numbers[group * SPV_GROUP + (size_t)__builtin_ctzll(slots) / SPV_SLOT_BITS];
            if (same(context, number))
                return number;
        }
        if (!spv_has_passed(tags, hash) || !--left)
            return SPV_NONE;
    }
}

#endif
