/* The packed table of a watch list: entries, and coins (watched outpoints with the known facts about them). The twin
   is pure.table.WatchTable. */
#ifndef SPV_WATCH_TABLE_H
#define SPV_WATCH_TABLE_H

#include "block/curve.h"
#include "spv.h"
#include "watch/index.h"
#include "watch/keyhash.h"
#include "watch/lock.h"
#include "watch/memory.h"

enum { SPV_SCRIPT, SPV_MULTISIG_KEY, SPV_DATA, SPV_OUTPOINT, SPV_DATA_PREFIX, SPV_SCRIPT_TYPE, SPV_KINDS }; /* values.EntryKind */
enum { SPV_OUTPOINT_SIZE = 36, SPV_MAX_ENTRY = 0x7FFFFFFE, SPV_MAX_PREFIX = 64 };
#define SPV_NO_VALUE ((int64_t)-1)

/* The entries of an image: read-only memory whose contents may be wrong. Every read of it is checked. */
typedef struct {
    const uint8_t *offsets; /* for each entry the offset of its record, u64 */
    const uint8_t *records;
    size_t size;            /* bytes of the records */
    uint32_t count;
} spv_frozen;

typedef struct {
    spv_table_key key;      /* of the entries: that of the image, until the first addition */
    spv_table_key coin_key; /* of coins and txids: never the key of an image, which others may know */
    spv_frozen frozen;      /* the first entries; none if the table was not made from an image */
    bool changed;           /* it has other contents than its image, or none */
    spv_arena arena;
    spv_pile entries;    /* pointers (const uint8_t *) to the other entries, in the arena */
    spv_index index;     /* all entries except outpoints, which are found through their coins */
    spv_index full_keys;  /* compressed public key → an entry that contains it uncompressed: a P2PK script or data */
    uint32_t of_kind[SPV_KINDS];
    /* number of scripts of fewer than 17 bytes or more than 40: no address has such a script, many other outputs do */
    uint32_t odd_scripts;
    uint64_t prefix_sizes; /* bit n: a data prefix has n + 1 bytes */
    spv_pile coins;      /* records of coins, see below */
    spv_index coin_index;
    spv_pile scripts;    /* pointers (const uint8_t *) to scripts of coins that are not entries */
    spv_lock lock;       /* callers of the functions below hold the lock, unless stated otherwise */
} spv_table;

/* A coin's record, 52 bytes. */
typedef struct {
    uint8_t outpoint[SPV_OUTPOINT_SIZE];
    uint8_t value[8];
    uint32_t entry;
    uint32_t script; /* number of an entry, or a number in `scripts` with the top bit set, or SPV_NONE */
} spv_coin_record;

/* The known facts about a coin. `script` and `outpoint` point into the table; they are valid while the lock is held. */
typedef struct {
    const uint8_t *outpoint;
    spv_bytes script;
    int64_t value;
    uint32_t entry;
} spv_coin;

spv_table *spv_table_new(void); /* NULL, with errno set, if there is no memory or no randomness */
void spv_table_free(spv_table *table);
spv_status spv_table_copy(const spv_table *table, spv_table **copy);
/* pure.table.WatchTable.without: a copy that does not watch `count` outpoints, 36 bytes each. Outpoints that are
   entries are still watched. */
spv_status spv_table_without(const spv_table *table, const uint8_t *outpoints, size_t count, spv_table **copy);
size_t spv_table_size(const spv_table *table); /* bytes allocated */

uint32_t spv_table_find(const spv_table *table, unsigned kind, spv_bytes value); /* number of an entry, or SPV_NONE */
spv_status spv_table_add(spv_table *table, unsigned kind, spv_bytes value, uint32_t *number);
uint32_t spv_table_match_script(const spv_table *table, spv_bytes script);
/* The same for a script that is not an entry: by multisig keys, data, data prefix, and type, in this order. */
uint32_t spv_table_match_slow(const spv_table *table, spv_bytes script);
uint32_t spv_table_find_type(const spv_table *table, unsigned type); /* the entry of a script type, or SPV_NONE */
uint32_t spv_table_match_pushes(const spv_table *table, spv_bytes script);

/* The uncompressed public key (65 bytes) in an entry whose compressed form is `key` (33 bytes); or NULL. */
const uint8_t *spv_table_find_full_key(const spv_table *table, const uint8_t *key);

uint32_t spv_table_find_coin(const spv_table *table, const uint8_t *outpoint); /* number of a coin, or SPV_NONE */
spv_coin spv_table_coin(const spv_table *table, uint32_t number);
/* pure.table._joined: an outpoint that is already watched keeps its entry, and a missing value or script is added.
   With `replace`, it is overwritten. */
spv_status spv_table_set_coin(spv_table *table, const spv_coin *coin, bool replace);
/* The old coin. A missing value or script is taken from the new coin. */
spv_coin spv_coin_joined(spv_coin old, spv_coin new);

/* An entry. Its bytes are valid while the table exists. */
typedef struct {
    spv_bytes value;
    unsigned kind;
} spv_entry;

/* True if a table may have an entry of this kind with these bytes. */
bool spv_is_sound(spv_entry entry);

/* An entry of an image. Its record ends where the next one starts: otherwise a small file could have many large
   entries. An entry whose record is damaged is an outpoint without bytes, which no lookup finds. */
spv_entry spv_frozen_entry(const spv_frozen *frozen, uint32_t number);

/* The number of entries. */
SPV_INLINE uint32_t spv_table_count(const spv_table *table) {
    return table->frozen.count + table->entries.count;
}

/* The record of an entry in the arena or in an image. The low two bits of the first byte are its kind, and the others
   its size. Size 63 means that four bytes with the size follow. Size 62 means the same, and that the kind is 4 higher. */
enum { SPV_HIGH_KIND = 62, SPV_LONG = 63 };

SPV_INLINE unsigned spv_record_kind(const uint8_t *record) {
    return (record[0] & 3u) + (record[0] >> 2 == SPV_HIGH_KIND ? 4 : 0);
}

SPV_INLINE spv_bytes spv_entry_bytes(const uint8_t *record) {
    size_t size = record[0] >> 2;
    if (SPV_LIKELY(size < SPV_HIGH_KIND))
        return (spv_bytes){record + 1, size};
    return (spv_bytes){record + 5, spv_le32(record + 1)};
}

/* The bytes of the record of an entry, and the function that writes it and returns its end. */
SPV_INLINE size_t spv_record_size(unsigned kind, size_t size) {
    return 1 + (kind >= 4 || size >= SPV_HIGH_KIND ? 4u : 0u) + size;
}

uint8_t *spv_put_record(uint8_t *record, unsigned kind, spv_bytes value);

/* The entry with that number. A number that is too large, from the index of an image, gives an outpoint without bytes. */
SPV_INLINE spv_entry spv_table_entry(const spv_table *table, uint32_t number) {
    if (SPV_UNLIKELY(number < table->frozen.count))
        return spv_frozen_entry(&table->frozen, number);
    number -= table->frozen.count;
    if (SPV_UNLIKELY(number >= table->entries.count))
        return (spv_entry){{(const uint8_t *)"", 0}, SPV_OUTPOINT};
    const uint8_t *record = *(const uint8_t **)spv_pile_at(&table->entries, number, sizeof record);
    return (spv_entry){spv_entry_bytes(record), spv_record_kind(record)};
}

/* The uncompressed key of an entry: of a P2PK script, or of data. NULL if it has none. */
const uint8_t *spv_full_key_of(spv_entry entry);

/* True if an entry is a data prefix or a script type. No coin is learned for them: they would be too many. */
SPV_INLINE bool spv_is_pattern(const spv_table *table, uint32_t entry) {
    return SPV_UNLIKELY(table->of_kind[SPV_DATA_PREFIX] + table->of_kind[SPV_SCRIPT_TYPE]) && entry < spv_table_count(table)
        && spv_table_entry(table, entry).kind >= SPV_DATA_PREFIX;
}

SPV_INLINE const spv_coin_record *spv_table_coin_record(const spv_table *table, uint32_t number) {
    return spv_pile_at(&table->coins, number, sizeof(spv_coin_record));
}

SPV_INLINE uint64_t spv_outpoint_hash(const spv_table_key *key, const uint8_t *outpoint) {
    return spv_keyed_hash(key, SPV_OUTPOINT, outpoint, SPV_OUTPOINT_SIZE);
}

SPV_INLINE uint64_t spv_full_key_hash(const spv_table_key *key, const uint8_t *compressed) {
    return spv_keyed_hash(key, SPV_MULTISIG_KEY, compressed, SPV_SHORT_KEY);
}

/* The arguments of a lookup in the index. */
typedef struct {
    const spv_table *table;
    spv_bytes value;
    unsigned kind;
} spv_wanted;

SPV_INLINE bool spv_is_entry(const void *context, uint32_t number) {
    const spv_wanted *wanted = context;
    const spv_entry entry = spv_table_entry(wanted->table, number);
    return entry.kind == wanted->kind && spv_equal(entry.value, wanted->value);
}

SPV_INLINE bool spv_is_coin(const void *context, uint32_t number) {
    const spv_wanted *wanted = context;
    return !memcmp(spv_table_coin_record(wanted->table, number)->outpoint, wanted->value.data, SPV_OUTPOINT_SIZE);
}

#endif
