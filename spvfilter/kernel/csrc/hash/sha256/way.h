/* The ways in which this build can compress SHA-256 blocks. The program chooses a way at run time. Internal to hash/ and
   its tests. */
#ifndef SPV_HASH_SHA256_WAY_H
#define SPV_HASH_SHA256_WAY_H

#include "hash/sha256.h"

enum { SPV_MAX_LANES = 16 };

typedef struct {
    const char *name;
    unsigned needs; /* features of spv_cpu */
    size_t lanes;   /* messages that `many` advances at once, ≤ SPV_MAX_LANES */
    size_t worth;   /* `many` is faster than `one` for this many messages or more */
    /* Blocks of 64 bytes of one message. */
    void (*one)(uint32_t state[8], const uint8_t *data, size_t blocks);
    /* The same number of blocks of each of `lanes` messages. Word i of lane l's state is state[i * lanes + l]. The
       state is aligned to 64 bytes. */
    void (*many)(uint32_t *state, const uint8_t *const *data, size_t blocks);
} spv_sha256_way;

extern const uint32_t spv_sha256_initial[8]; /* FIPS 180-4 § 5.3.3 */
extern const uint32_t spv_sha256_k[64];      /* FIPS 180-4 § 4.2.2 */

/* The ways of this build that this machine supports: the fastest first, the portable one last. NULL if `number` is
   not below their count. */
const spv_sha256_way *spv_sha256_usable(size_t number);
/* The first usable way that agrees with the portable one. They are compared once. */
const spv_sha256_way *spv_sha256_chosen(void);
bool spv_sha256_agrees(const spv_sha256_way *way);

/* Like spv_sha256d_many and spv_sha256d_pairs, in a chosen way. */
void spv_hash_many(const spv_sha256_way *way, spv_message_at *message_at, const void *context, size_t count, spv_hash *out);
void spv_hash_pairs(const spv_sha256_way *way, const spv_hash *pairs, size_t count, spv_hash *out);

void spv_sha256_portable(uint32_t state[8], const uint8_t *data, size_t blocks);
void spv_sha256_portable_lane(uint32_t *state, const uint8_t *const *data, size_t blocks);
#if defined(__x86_64__)
void spv_sha256_ni(uint32_t state[8], const uint8_t *data, size_t blocks);
void spv_sha256_ni_2(uint32_t *state, const uint8_t *const *data, size_t blocks);
void spv_sha256_avx2_8(uint32_t *state, const uint8_t *const *data, size_t blocks);
void spv_sha256_avx512_16(uint32_t *state, const uint8_t *const *data, size_t blocks);
#elif defined(__aarch64__) && (defined(__ARM_FEATURE_SHA2) || !defined(__clang__) || __clang_major__ >= 16)
#define SPV_SHA256_ARM /* older versions of clang have the intrinsics only if all target machines have the instructions */
void spv_sha256_arm(uint32_t state[8], const uint8_t *data, size_t blocks);
void spv_sha256_arm_2(uint32_t *state, const uint8_t *const *data, size_t blocks);
#endif

/* The stretches of whole blocks that make up a padded message. A short message is copied as a whole, so that it is
   one stretch. Only the ends of a long message are copied. */
typedef struct {
    struct {
        const uint8_t *at;
        size_t blocks;
    } stretch[3];
    size_t stretches;
    uint8_t buffer[8 * 64];
} spv_padded;

void spv_pad(spv_padded *padded, const spv_message *message);
void spv_hash_padded(const spv_sha256_way *way, const spv_padded *padded, uint8_t digest[32]); /* SHA-256 once, not twice */

SPV_INLINE void spv_put_be32(uint8_t *at, uint32_t value) {
    value = __builtin_bswap32(value);
    memcpy(at, &value, sizeof value);
}

#endif
