/* Packed hits: the hits of a block as bytes. The twin of pure/packed.py, whose docstring has the format. */
#ifndef SPV_WATCH_PACKED_H
#define SPV_WATCH_PACKED_H

#include "watch/index.h"
#include "watch/keyhash.h"
#include "watch/scan.h"

enum { SPV_PACKED_HEAD = 65 /* bytes of a hit before the outpoint, which only a spend has, and the script */ };
#define SPV_NO_SCRIPT UINT32_MAX /* in place of a script's size */

/* One packed hit; it points into the packed bytes. */
typedef struct {
    const uint8_t *txid, *outpoint; /* `outpoint` is NULL for an output, whose own it is */
    spv_bytes script;               /* no data if it is unknown */
    int64_t value, fee;
    uint32_t position, n, entry;
    bool spend;
} spv_packed_hit;

/* The bytes of a hit. */
SPV_INLINE size_t spv_packed_size(const spv_packed_hit *hit) {
    return SPV_PACKED_HEAD + (hit->spend ? SPV_OUTPOINT_SIZE : 0) + hit->script.size;
}

/* Writes a hit, whose script has less than 4 GiB, and returns the end. */
uint8_t *spv_put_hit(uint8_t *to, const spv_packed_hit *hit);

/* A hit of a scan, as it is packed. */
spv_packed_hit spv_hit_at(const spv_hits *hits, size_t number);

/* The hits of a scan, `*packed` to be freed. SPV_RANGE for a script of 4 GiB. */
spv_status spv_pack_hits(const spv_hits *hits, uint8_t **packed, size_t *size);

/* Reads the hit at *at, which is not the end, and moves past it. */
spv_status spv_next_hit(spv_bytes packed, size_t *at, spv_packed_hit *hit, spv_error *error);

/* The entries that occur in packed hits, each once, in the order of their first hits. All zero but for what spv_entries_init sets. */
typedef struct {
    uint32_t *entries;
    size_t room;
    uint32_t count;
    spv_index index;
    spv_table_key key;
} spv_entries;

/* False, with errno set, if the system provides no randomness. To be freed even then. */
bool spv_entries_init(spv_entries *of);
void spv_entries_free(spv_entries *of);
/* The number of an entry among them, or SPV_NONE. */
uint32_t spv_entries_find(const spv_entries *of, uint32_t entry);
/* The same; one that is not there is added, as the last. */
spv_status spv_entries_take(spv_entries *of, uint32_t entry, uint32_t *number);

/* Takes the entries of the hits from *at on, up to the first at `until` or behind. */
spv_status spv_entries_of_hits(spv_entries *of, spv_bytes packed, size_t *at, size_t until, spv_error *error);

typedef struct {
    uint64_t matches, received, spent, unknown;
    uint32_t entry;
} spv_sum;

/* pure.packed.hit_sums, before they are sorted. */
typedef struct {
    spv_entries entries;
    spv_sum *sums; /* one for each of the entries */
    size_t room;
} spv_sums;

/* Adds the hits from *at on, up to the first at `until` or behind. */
spv_status spv_add_hits(spv_sums *sums, spv_bytes packed, size_t *at, size_t until, spv_error *error);
void spv_sort_sums(spv_sums *sums); /* by entry; after this no hits are added */
void spv_sums_free(spv_sums *sums);

#endif
