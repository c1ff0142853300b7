/* Packed hits: the hits of a block as bytes. The twin of pure/packed.py, whose docstring has the format. */
#ifndef SPV_WATCH_PACKED_H
#define SPV_WATCH_PACKED_H

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
    return SPV_PACKED_HEAD + (hit->spend ? (size_t)SPV_OUTPOINT_SIZE : 0) + hit->script.size;
}

/* Writes a hit, whose script has less than 4 GiB, and returns the end. */
uint8_t *spv_put_hit(uint8_t *to, const spv_packed_hit *hit);

/* A hit of a scan, as it is packed. */
spv_packed_hit spv_hit_at(const spv_hits *hits, size_t number);

/* The hits of a scan, `*packed` to be freed. SPV_RANGE for a script of 4 GiB. */
spv_status spv_pack_hits(const spv_hits *hits, uint8_t **packed, size_t *size);

/* Reads the hit at *at, which is not the end, and moves past it. */
spv_status spv_next_hit(spv_bytes packed, size_t *at, spv_packed_hit *hit, spv_error *error);

enum { SPV_FEW_ENTRIES = 64 /* for which nothing is allocated */ };

/* The entries that occur in packed hits, each once, in the order of their first hits. They point into themselves: not to be moved. */
typedef struct {
    uint32_t *entries;
    uint32_t *slots;  /* an entry's number plus 1, at its hash or behind; 0 is a free slot. At least half of them are free */
    uint32_t count;
    size_t room;      /* entries; there are twice as many slots */
    uint64_t key[2];  /* drawn at random once there are more than a few entries: then collisions cannot be made without it */
    uint32_t few_entries[SPV_FEW_ENTRIES], few_slots[2 * SPV_FEW_ENTRIES];
} spv_entries;

void spv_entries_init(spv_entries *of);
void spv_entries_free(spv_entries *of);
/* The number of an entry among them, or SPV_NONE. */
uint32_t spv_entries_find(const spv_entries *of, uint32_t entry);
/* The same; one that is not there is added, as the last. SPV_NOMEM also if the system provides no randomness. */
spv_status spv_entries_take(spv_entries *of, uint32_t entry, uint32_t *number);

/* Reads the hits from *at on, up to the first at `until` or behind, adds their number to *count, and takes their entries unless `of` is
   NULL. */
spv_status spv_read_hits(spv_entries *of, spv_bytes packed, size_t *at, size_t until, size_t *count, spv_error *error);

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

void spv_sums_init(spv_sums *sums);
/* Adds the hits from *at on, up to the first at `until` or behind. */
spv_status spv_add_hits(spv_sums *sums, spv_bytes packed, size_t *at, size_t until, spv_error *error);
void spv_sort_sums(spv_sums *sums); /* by entry; after this no hits are added */
void spv_sums_free(spv_sums *sums);

#endif
