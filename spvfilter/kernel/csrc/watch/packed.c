#include "watch/packed.h"

#include "array.h"

#include <inttypes.h>

enum { N = 4, ENTRY = 8, SCRIPT_SIZE = 12, VALUE = 16, FEE = 24, SPEND = 32, TXID = 33 }; /* offsets of the fields of a packed hit */

static void put_le64(uint8_t *at, uint64_t value) {
    spv_put_le32(at, (uint32_t)value);
    spv_put_le32(at + 4, (uint32_t)(value >> 32));
}

uint8_t *spv_put_hit(uint8_t *to, const spv_packed_hit *hit) {
    spv_put_le32(to, hit->position);
    spv_put_le32(to + N, hit->n);
    spv_put_le32(to + ENTRY, hit->entry);
    spv_put_le32(to + SCRIPT_SIZE, hit->script.data ? (uint32_t)hit->script.size : SPV_NO_SCRIPT);
    put_le64(to + VALUE, (uint64_t)hit->value);
    put_le64(to + FEE, (uint64_t)hit->fee);
    to[SPEND] = hit->spend;
    memcpy(to + TXID, hit->txid, sizeof(spv_hash));
    to += SPV_PACKED_HEAD;
    if (hit->spend) {
        memcpy(to, hit->outpoint, SPV_OUTPOINT_SIZE);
        to += SPV_OUTPOINT_SIZE;
    }
    if (hit->script.size)
        memcpy(to, hit->script.data, hit->script.size);
    return to + hit->script.size;
}

spv_packed_hit spv_hit_at(const spv_hits *hits, size_t number) {
    const spv_hit *hit = &hits->hits[number];
    return (spv_packed_hit){
        .txid = hits->txids[hit->txid], .outpoint = hit->outpoint, .script = hit->script, .value = hit->value, .fee = hit->fee,
        .position = hit->position, .n = hit->n, .entry = hit->entry, .spend = hit->spend,
    };
}

spv_status spv_pack_hits(const spv_hits *hits, uint8_t **packed, size_t *size) {
    *packed = NULL;
    *size = 0;
    for (size_t i = 0; i < hits->count; i++) {
        const spv_packed_hit hit = spv_hit_at(hits, i);
        const size_t more = spv_packed_size(&hit);
        if (hit.script.size >= SPV_NO_SCRIPT)
            return SPV_RANGE;
        if (more > SIZE_MAX - *size)
            return SPV_NOMEM;
        *size += more;
    }
    uint8_t *to = *packed = malloc(*size + 1);
    if (!to)
        return SPV_NOMEM;
    for (size_t i = 0; i < hits->count; i++) {
        const spv_packed_hit hit = spv_hit_at(hits, i);
        to = spv_put_hit(to, &hit);
    }
    return SPV_OK;
}

/* pure.packed._check_left. */
static spv_status check_left(size_t at, size_t wanted, size_t end, const char *field, spv_error *error) {
    if (SPV_LIKELY(wanted <= end - at))
        return SPV_OK;
    return spv_refuse(error, at, field, "truncated: expected %zu bytes, %zu left", wanted, end - at);
}

static SPV_COLD spv_status refuse_head(const spv_packed_hit *hit, unsigned spend, size_t at, spv_error *error) {
    if (hit->entry > SPV_MAX_ENTRY)
        return spv_refuse(error, at + ENTRY, "entry", "must be at most 2^31 - 2, not %" PRIu32, hit->entry);
    if (hit->value < SPV_NO_VALUE)
        return spv_refuse(error, at + VALUE, "value", "must be at least 0 satoshi, or -1 if it is not known, not %" PRId64, hit->value);
    if (hit->fee < SPV_NO_VALUE)
        return spv_refuse(error, at + FEE, "fee", "must be at least 0 satoshi, or -1 if it is not known, not %" PRId64, hit->fee);
    return spv_refuse(error, at + SPEND, "spend", "must be 0 or 1, not %u", spend);
}

spv_status spv_next_hit(spv_bytes packed, size_t *at, spv_packed_hit *hit, spv_error *error) {
    spv_status status = check_left(*at, SPV_PACKED_HEAD, packed.size, "hit", error);
    if (status)
        return status;
    const uint8_t *head = packed.data + *at;
    const uint32_t size = spv_le32(head + SCRIPT_SIZE);
    const unsigned spend = head[SPEND];
    *hit = (spv_packed_hit){
        .txid = head + TXID, .script = {NULL, 0}, .value = (int64_t)spv_le64(head + VALUE), .fee = (int64_t)spv_le64(head + FEE),
        .position = spv_le32(head), .n = spv_le32(head + N), .entry = spv_le32(head + ENTRY), .spend = spend,
    };
    if (SPV_UNLIKELY(hit->entry > SPV_MAX_ENTRY || hit->value < SPV_NO_VALUE || hit->fee < SPV_NO_VALUE || spend > 1))
        return refuse_head(hit, spend, *at, error);
    *at += SPV_PACKED_HEAD;
    if (spend) {
        if ((status = check_left(*at, SPV_OUTPOINT_SIZE, packed.size, "outpoint", error)))
            return status;
        hit->outpoint = packed.data + *at;
        *at += SPV_OUTPOINT_SIZE;
    }
    if (size == SPV_NO_SCRIPT)
        return SPV_OK;
    if ((status = check_left(*at, size, packed.size, "script", error)))
        return status;
    hit->script = (spv_bytes){packed.data + *at, size};
    *at += size;
    return SPV_OK;
}

spv_status spv_read_hits(spv_hits_read *read, spv_bytes packed, size_t *at, size_t until, spv_error *error) {
    while (*at < packed.size && *at < until) {
        spv_packed_hit hit;
        const spv_status status = spv_next_hit(packed, at, &hit, error);
        if (status)
            return status;
        read->count++;
        if (hit.entry > read->most)
            read->most = hit.entry;
    }
    return SPV_OK;
}

/* Adds to a number in native order, of any alignment. Returns true if it wraps around. */
static bool add_to(uint8_t *number, uint64_t more) {
    uint64_t sum;
    memcpy(&sum, number, sizeof sum);
    sum += more;
    memcpy(number, &sum, sizeof sum);
    return sum < more;
}

bool spv_add_numbers(uint8_t *numbers, spv_bytes packed, size_t *at, size_t *wrapped) {
    enum { MATCHES, RECEIVED, SPENT, UNKNOWN, NUMBERS };
    while (*at < packed.size) {
        spv_packed_hit hit;
        spv_error error;
        if (spv_next_hit(packed, at, &hit, &error))
            return false;
        uint8_t *of = numbers + NUMBERS * sizeof(uint64_t) * hit.entry;
        const unsigned field = hit.value == SPV_NO_VALUE ? UNKNOWN : hit.spend ? SPENT : RECEIVED;
        add_to(of + MATCHES * sizeof(uint64_t), 1);
        if (add_to(of + field * sizeof(uint64_t), field == UNKNOWN ? 1 : (uint64_t)hit.value) && field != UNKNOWN) {
            *wrapped = (size_t)NUMBERS * hit.entry + field;
            return true;
        }
    }
    return false;
}

/* Entries. */

void spv_entries_init(spv_entries *of) {
    memset(of->few_slots, 0, sizeof of->few_slots);
    of->entries = of->few_entries;
    of->slots = of->few_slots;
    of->count = 0;
    of->room = SPV_FEW_ENTRIES;
    of->key[0] = 0x9E3779B97F4A7C15; /* a constant is good enough for a few entries, even if they collide */
    of->key[1] = 0xD1B54A32D192ED03;
}

void spv_entries_free(spv_entries *of) {
    if (of->entries != of->few_entries) {
        free(of->entries);
        free(of->slots);
    }
}

/* The slot of an entry, or the free slot for it. */
static uint32_t *slot_of(const spv_entries *of, uint32_t entry) {
    const size_t mask = 2 * of->room - 1;
    size_t at = (size_t)spv_mix(of->key[0] ^ entry, of->key[1]) & mask;
    while (of->slots[at] && of->entries[of->slots[at] - 1] != entry)
        at = (at + 1) & mask;
    return &of->slots[at];
}

/* Doubles the memory. */
static spv_status grow(spv_entries *of) {
    spv_entries grown = {.count = of->count, .room = 2 * of->room};
    spv_table_key key = {{0}}; /* initialized because MemorySanitizer does not know all functions that fill it */
    if (grown.room > SIZE_MAX / 16 || !spv_table_key_draw(&key))
        return SPV_NOMEM;
    grown.key[0] = key.word[0];
    grown.key[1] = key.word[1] | 1;
    grown.entries = malloc(grown.room * sizeof *grown.entries);
    grown.slots = calloc(2 * grown.room, sizeof *grown.slots);
    if (!grown.entries || !grown.slots) {
        free(grown.entries);
        free(grown.slots);
        return SPV_NOMEM;
    }
    memcpy(grown.entries, of->entries, of->count * sizeof *of->entries);
    for (uint32_t number = 0; number < of->count; number++)
        *slot_of(&grown, of->entries[number]) = number + 1;
    spv_entries_free(of);
    of->entries = grown.entries;
    of->slots = grown.slots;
    of->room = grown.room;
    memcpy(of->key, grown.key, sizeof of->key);
    return SPV_OK;
}

spv_status spv_entries_take(spv_entries *of, uint32_t entry, uint32_t *number) {
    uint32_t *slot = slot_of(of, entry);
    if (!*slot) {
        if (of->count == of->room) {
            const spv_status status = grow(of);
            if (status)
                return status;
            slot = slot_of(of, entry);
        }
        of->entries[of->count] = entry;
        *slot = ++of->count; /* less than 2^31, the number of possible entries */
    }
    *number = *slot - 1;
    return SPV_OK;
}

/* Sums. */

void spv_sums_init(spv_sums *sums) {
    spv_entries_init(&sums->entries);
    sums->sums = NULL;
    sums->room = 0;
}

static spv_status add_hit(spv_sums *sums, const spv_packed_hit *hit, size_t start, spv_error *error) {
    const uint32_t known = sums->entries.count;
    spv_sum *grown = spv_array_grown(sums->sums, known, &sums->room, sizeof *grown);
    if (!grown)
        return SPV_NOMEM;
    sums->sums = grown;
    uint32_t number;
    const spv_status status = spv_entries_take(&sums->entries, hit->entry, &number);
    if (status)
        return status;
    spv_sum *sum = &grown[number];
    if (number == known)
        *sum = (spv_sum){.entry = hit->entry};
    sum->matches++;
    if (hit->value == SPV_NO_VALUE) {
        sum->unknown++;
        return SPV_OK;
    }
    uint64_t *of = hit->spend ? &sum->spent : &sum->received;
    if ((uint64_t)hit->value > UINT64_MAX - *of)
        return spv_refuse(error, start + VALUE, "value", "a sum for entry %" PRIu32 " exceeds 64 bits", hit->entry);
    *of += (uint64_t)hit->value;
    return SPV_OK;
}

spv_status spv_add_hits(spv_sums *sums, spv_bytes packed, size_t *at, size_t until, spv_error *error) {
    spv_status status = SPV_OK;
    while (!status && *at < packed.size && *at < until) {
        const size_t start = *at;
        spv_packed_hit hit;
        status = spv_next_hit(packed, at, &hit, error);
        if (!status)
            status = add_hit(sums, &hit, start, error);
    }
    return status;
}

static int by_entry(const void *one, const void *other) {
    const uint32_t a = ((const spv_sum *)one)->entry, b = ((const spv_sum *)other)->entry;
    return (a > b) - (a < b);
}

void spv_sort_sums(spv_sums *sums) {
    if (sums->entries.count)
        qsort(sums->sums, sums->entries.count, sizeof *sums->sums, by_entry);
}

void spv_sums_free(spv_sums *sums) {
    free(sums->sums);
    spv_entries_free(&sums->entries);
}
