/* Successive packed hits, and the checksums of their base58 addresses. Computing the checksums together is faster. */
#ifndef SPV_WATCH_HITGROUP_H
#define SPV_WATCH_HITGROUP_H

#include "watch/address.h"
#include "watch/packed.h"

enum { SPV_AT_ONCE = 64 };

typedef struct {
    spv_packed_hit hits[SPV_AT_ONCE];
    uint8_t payloads[SPV_AT_ONCE][SPV_BASE58_PAYLOAD];
    spv_hash digests[SPV_AT_ONCE];
    uint32_t digest_of[SPV_AT_ONCE]; /* number of a hit's digest, or SPV_NONE */
    size_t count;
} spv_hit_group;

/* Reads the hits at *at, up to the first hit that starts at `until` or later, or as many as there is room for. */
spv_status spv_take_group(const spv_address_form *form, spv_bytes packed, size_t *at, size_t until, spv_hit_group *taken, spv_error *error);

/* sha256d of the base58 payload of a hit, or NULL. */
SPV_INLINE const uint8_t *spv_digest_at(const spv_hit_group *of, size_t number) {
    return of->digest_of[number] == SPV_NONE ? NULL : of->digests[of->digest_of[number]];
}

#endif
