#include "watch/hitgroup.h"

static spv_message payload_at(const void *context, size_t number) {
    const spv_hit_group *of = context;
    return (spv_message){{of->payloads[number], SPV_BASE58_PAYLOAD}, NULL, NULL};
}

spv_status spv_take_group(const spv_address_form *form, spv_bytes packed, size_t *at, size_t until, spv_hit_group *taken, spv_error *error) {
    uint32_t payloads = 0;
    for (taken->count = 0; taken->count < SPV_AT_ONCE && *at < packed.size && *at < until; taken->count++) {
        spv_packed_hit *hit = &taken->hits[taken->count];
        const spv_status status = spv_next_hit(packed, at, hit, error);
        if (status)
            return status;
        const bool in_base58 = spv_base58_payload(form, hit->script, taken->payloads[payloads]);
        taken->digest_of[taken->count] = in_base58 ? payloads++ : SPV_NONE;
    }
    spv_sha256d_many(payload_at, taken, payloads, taken->digests);
    return SPV_OK;
}
