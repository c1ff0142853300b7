/* Packed hits: the hits of a block as bytes. The twin of pure/packed.py, whose docstring has the format. */
#ifndef SPV_WATCH_PACKED_H
#define SPV_WATCH_PACKED_H

#include "watch/keyhash.h"
#include "watch/scan.h"

enum { SPV_PACKED_HEAD = 65 /* bytes of a hit before its outpoint (only a spend has one) and its script */ };
#define SPV_NO_SCRIPT UINT32_MAX /* in place of the size of a script: it is not known */

/* A packed hit. It points into the packed bytes. */
typedef struct {
    const uint8_t *txid, *outpoint; /* `outpoint` is NULL for an output: it is the txid and n */
    spv_bytes script;               /* no data if the script is not known */
    int64_t value, fee;
    uint32_t position, n, entry;
    bool spend;
} spv_packed_hit;

/* The block of some hits. */
typedef struct {
    uint8_t hash[32]; /* wire order */
    bool has_height;
    uint32_t height, time;
} spv_hit_block;

/* The number of bytes of a hit. */
SPV_INLINE size_t spv_packed_size(const spv_packed_hit *hit) {
    return SPV_PACKED_HEAD + (hit->spend ? (size_t)SPV_OUTPOINT_SIZE : 0) + hit->script.size;
}

/* Writes a hit, whose script is smaller than 4 GiB, and returns the end. */
uint8_t *spv_put_hit(uint8_t *to, const spv_packed_hit *hit);

/* A hit of a scan in the form for packing. */
spv_packed_hit spv_hit_at(const spv_hits *hits, size_t number);

/* Packs the hits of a scan. The caller frees `*packed`. SPV_RANGE for a script of 4 GiB. */
spv_status spv_pack_hits(const spv_hits *hits, uint8_t **packed, size_t *size);

/* Reads the hit at *at and moves *at past it. *at must not be the end. */
spv_status spv_next_hit(spv_bytes packed, size_t *at, spv_packed_hit *hit, spv_error *error);

/* The hits that were read. Zero before the first hit. */
typedef struct {
    size_t count;
    uint32_t most; /* the largest number of an entry */
} spv_hits_read;

/* Reads the hits at *at, up to the first hit that starts at `until` or later. */
spv_status spv_read_hits(spv_hits_read *read, spv_bytes packed, size_t *at, size_t until, spv_error *error);

/* Adds the hits, starting at *at, to the sums of their entries. `numbers` has the fields of spv_sum for each entry: four u64 in
   native order. spv_read_hits has read the hits before, and `numbers` has room for the largest entry. Stops after a hit
   that makes a sum of satoshi wrap around, and returns true: *wrapped is the index of that number. */
bool spv_add_numbers(uint8_t *numbers, spv_bytes packed, size_t *at, size_t *wrapped);

enum { SPV_FEW_ENTRIES = 64 /* number of entries without an allocation */ };

/* The entries that occur in packed hits, each once, in the order of their first hits. Do not move this struct: it
   contains pointers into itself. */
typedef struct {
    uint32_t *entries;
    uint32_t *slots;  /* number of an entry plus 1, at the slot of its hash or after it; 0 is a free slot; at least half of them are free */
    uint32_t count;
    size_t room;      /* room in entries; there are twice as many slots */
    uint64_t key[2];  /* random if there are more than a few entries, so that nobody can make collisions */
    uint32_t few_entries[SPV_FEW_ENTRIES], few_slots[2 * SPV_FEW_ENTRIES];
} spv_entries;

void spv_entries_init(spv_entries *of);
void spv_entries_free(spv_entries *of);
/* The number of an entry in this set. An entry that is not in the set is added at the end. Fails with SPV_NOMEM, even if
   the system provides no randomness. */
spv_status spv_entries_take(spv_entries *of, uint32_t entry, uint32_t *number);

typedef struct {
    uint64_t matches, received, spent, unknown;
    uint32_t entry;
} spv_sum;

/* The sums of pure.packed.hit_sums, before they are sorted. */
typedef struct {
    spv_entries entries;
    spv_sum *sums; /* one sum for each entry */
    size_t room;
} spv_sums;

void spv_sums_init(spv_sums *sums);
/* Adds the hits at *at, up to the first hit that starts at `until` or later. */
spv_status spv_add_hits(spv_sums *sums, spv_bytes packed, size_t *at, size_t until, spv_error *error);
void spv_sort_sums(spv_sums *sums); /* sorts by entry; do not add hits afterwards */
void spv_sums_free(spv_sums *sums);

#endif
