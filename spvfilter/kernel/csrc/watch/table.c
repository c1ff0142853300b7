#include "watch/table.h"

#include <errno.h>
#include <stdlib.h>

#include "block/script.h"
#include "block/scripttype.h"

#define OWN ((uint32_t)1 << 31) /* in a coin's `script`: the number refers to `scripts` */

spv_table *spv_table_new(void) {
    spv_table *table = calloc(1, sizeof *table);
    if (!table)
        return NULL;
    table->entries.record = table->scripts.record = sizeof(uint8_t *);
    table->coins.record = sizeof(spv_coin_record);
    spv_index_init(&table->index);
    spv_index_init(&table->coin_index);
    spv_index_init(&table->full_keys);
    if (spv_table_key_draw(&table->key)) {
        table->coin_key = table->key;
        table->changed = true;
        if (spv_lock_init(&table->lock))
            return table;
        errno = ENOMEM;
    }
    free(table);
    return NULL;
}

void spv_table_free(spv_table *table) {
    spv_arena_free(&table->arena);
    spv_pile_free(&table->entries);
    spv_index_free(&table->index);
    spv_pile_free(&table->coins);
    spv_index_free(&table->coin_index);
    spv_index_free(&table->full_keys);
    spv_pile_free(&table->scripts);
    spv_lock_free(&table->lock);
    free(table);
}

size_t spv_table_size(const spv_table *table) {
    return sizeof *table + table->arena.total + spv_pile_size(&table->entries) + spv_pile_size(&table->coins)
        + spv_pile_size(&table->scripts) + spv_index_size(&table->index) + spv_index_size(&table->coin_index)
        + spv_index_size(&table->full_keys);
}

/* Entries. */

uint8_t *spv_put_record(uint8_t *record, unsigned kind, spv_bytes value) {
    const bool high = kind >= 4, extended = high || value.size >= SPV_HIGH_KIND;
    record[0] = (uint8_t)((high ? SPV_HIGH_KIND : extended ? SPV_LONG : value.size) << 2 | (kind & 3));
    if (extended)
        spv_put_le32(record + 1, (uint32_t)value.size);
    record += extended ? 5 : 1;
    if (value.size)
        memcpy(record, value.data, value.size);
    return record + value.size;
}

static const uint8_t *store(spv_arena *arena, unsigned kind, spv_bytes value) {
    uint8_t *record = spv_arena_take(arena, spv_record_size(kind, value.size));
    if (record)
        spv_put_record(record, kind, value);
    return record;
}

bool spv_is_sound(spv_entry entry) {
    switch (entry.kind) {
    case SPV_OUTPOINT:
        return entry.value.size == SPV_OUTPOINT_SIZE;
    case SPV_DATA_PREFIX:
        return entry.value.size && entry.value.size <= SPV_MAX_PREFIX;
    case SPV_SCRIPT_TYPE:
        return entry.value.size == 1 && entry.value.data[0] < SPV_SCRIPT_TYPES;
    default:
        return entry.kind < SPV_KINDS;
    }
}

/* The offset of a record, read once because another process may change the file. The offset after the last record is
   the size of all records. */
static uint64_t frozen_offset(const spv_frozen *frozen, uint32_t number) {
    uint64_t at = frozen->size;
    if (number < frozen->count)
        memcpy(&at, frozen->offsets + 8 * (size_t)number, sizeof at);
    return at;
}

spv_entry spv_frozen_entry(const spv_frozen *frozen, uint32_t number) {
    const spv_entry damaged = {{frozen->records, 0}, SPV_OUTPOINT};
    const uint64_t at = frozen_offset(frozen, number), end = frozen_offset(frozen, number + 1);
    if (at >= end || end > frozen->size)
        return damaged;
    const uint8_t *record = frozen->records + at;
    const uint8_t head = *record++;
    size_t left = (size_t)(end - at) - 1, size = head >> 2;
    unsigned kind = head & 3;
    if (size >= SPV_HIGH_KIND) {
        if (left < 4)
            return damaged;
        kind += size == SPV_HIGH_KIND ? 4 : 0;
        size = spv_le32(record);
        record += 4, left -= 4;
    }
    const spv_entry entry = {{record, size}, kind};
    return size == left && spv_is_sound(entry) ? entry : damaged;
}

static void push_record(spv_pile *pile, const uint8_t *record) {
    *(const uint8_t **)spv_pile_at(pile, pile->count++, sizeof record) = record;
}

static uint64_t entry_key(const spv_table *table, unsigned kind, spv_bytes value) {
    return spv_keyed_hash(&table->key, kind & 3, value.data, value.size);
}

static bool entry_hash(const void *context, uint32_t number, uint64_t *hash) {
    const spv_table *table = context;
    const spv_entry entry = spv_table_entry(table, number);
    *hash = entry_key(table, entry.kind, entry.value);
    return entry.kind != SPV_OUTPOINT;
}

const uint8_t *spv_full_key_of(spv_entry entry) {
    const spv_bytes value = entry.value;
    if (entry.kind == SPV_SCRIPT && value.size == 2 + SPV_FULL_KEY && value.data[0] == SPV_FULL_KEY && value.data[1 + SPV_FULL_KEY] == 0xAC)
        return value.data[1] == 4 ? value.data + 1 : NULL;
    return entry.kind == SPV_DATA && value.size == SPV_FULL_KEY && value.data[0] == 4 ? value.data : NULL;
}

static bool full_key_hash(const void *context, uint32_t number, uint64_t *hash) {
    const spv_table *table = context;
    const uint8_t *full = spv_full_key_of(spv_table_entry(table, number));
    uint8_t key[SPV_SHORT_KEY];
    if (!full || !spv_short_key(full, key))
        return false;
    *hash = spv_full_key_hash(&table->key, key);
    return true;
}

static bool has_full_key(const void *context, uint32_t number) {
    const spv_wanted *wanted = context;
    const uint8_t *full = spv_full_key_of(spv_table_entry(wanted->table, number));
    return full && (full[64] & 1) == (wanted->value.data[0] & 1) && !memcmp(full + 1, wanted->value.data + 1, 32);
}

const uint8_t *spv_table_find_full_key(const spv_table *table, const uint8_t *key) {
    const spv_wanted wanted = {table, {key, SPV_SHORT_KEY}, SPV_MULTISIG_KEY};
    const uint32_t number = spv_index_find(&table->full_keys, spv_full_key_hash(&table->key, key), has_full_key, &wanted);
    return number == SPV_NONE ? NULL : spv_full_key_of(spv_table_entry(table, number));
}

static bool coin_hash(const void *context, uint32_t number, uint64_t *hash) {
    const spv_table *table = context;
    *hash = spv_outpoint_hash(&table->coin_key, spv_table_coin_record(table, number)->outpoint);
    return true;
}

static uint32_t find_hashed(const spv_table *table, unsigned kind, spv_bytes value, uint64_t hash) {
    return spv_index_find(&table->index, hash, spv_is_entry, &(spv_wanted){table, value, kind});
}

uint32_t spv_table_find(const spv_table *table, unsigned kind, spv_bytes value) {
    if (kind != SPV_OUTPOINT)
        return find_hashed(table, kind, value, entry_key(table, kind, value));
    uint32_t coin = value.size == SPV_OUTPOINT_SIZE ? spv_table_find_coin(table, value.data) : SPV_NONE;
    if (coin == SPV_NONE)
        return SPV_NONE;
    uint32_t entry = spv_table_coin_record(table, coin)->entry;
    return spv_is_entry(&(spv_wanted){table, value, kind}, entry) ? entry : SPV_NONE;
}

static spv_status add_outpoint(spv_table *table, spv_bytes value, uint32_t number) {
    uint32_t coin = spv_table_find_coin(table, value.data);
    if (coin == SPV_NONE)
        return spv_table_set_coin(table, &(spv_coin){value.data, {NULL, 0}, SPV_NO_VALUE, number}, false);
    ((spv_coin_record *)spv_pile_at(&table->coins, coin, sizeof(spv_coin_record)))->entry = number;
    return SPV_OK;
}

/* Replaces the key and the indexes of an image by a key that nobody knows and indexes in memory. The maker of an image
   chooses its key, and so could let all hashes collide: an image refuses that, but an index in memory would slow down. */
static spv_status use_own_key(spv_table *table) {
    if (!table->frozen.count || !memcmp(&table->key, &table->coin_key, sizeof table->key))
        return SPV_OK;
    const spv_table_key key = table->key;
    spv_index index = table->index, full_keys = table->full_keys;
    table->key = table->coin_key;
    spv_status status = spv_index_reserve(&index, table->frozen.count, entry_hash, table);
    if (!status && full_keys.mapped)
        status = spv_index_reserve(&full_keys, table->frozen.count, full_key_hash, table);
    if (status) {
        spv_index_free(&index);
        table->key = key;
        return status;
    }
    table->index = index;
    table->full_keys = full_keys;
    return SPV_OK;
}

/* The caller has checked that an outpoint has 36 bytes. */
spv_status spv_table_add(spv_table *table, unsigned kind, spv_bytes value, uint32_t *number) {
    uint64_t hash = entry_key(table, kind, value);
    uint32_t known = kind == SPV_OUTPOINT ? spv_table_find(table, kind, value) : find_hashed(table, kind, value, hash);
    if (known != SPV_NONE) {
        *number = known;
        return SPV_OK;
    }
    const uint32_t next = spv_table_count(table);
    table->changed = true;
    if (value.size > UINT32_MAX || next > SPV_MAX_ENTRY)
        return SPV_RANGE;
    spv_status status = use_own_key(table);
    if (!status)
        status = spv_pile_reserve(&table->entries);
    hash = entry_key(table, kind, value);
    if (!status && kind != SPV_OUTPOINT)
        status = spv_index_reserve(&table->index, next, entry_hash, table);
    const uint8_t *full = spv_full_key_of((spv_entry){value, kind});
    uint8_t short_key[SPV_SHORT_KEY];
    if (full && !spv_short_key(full, short_key))
        full = NULL;
    if (!status && full)
        status = spv_index_reserve(&table->full_keys, next, full_key_hash, table);
    if (status)
        return status;
    const uint8_t *record = store(&table->arena, kind, value);
    if (!record)
        return SPV_NOMEM;
    if (kind != SPV_OUTPOINT)
        spv_index_add(&table->index, hash, next);
    else if ((status = add_outpoint(table, value, next)))
        return status;
    if (full)
        spv_index_add(&table->full_keys, spv_full_key_hash(&table->key, short_key), next);
    *number = next;
    push_record(&table->entries, record);
    table->of_kind[kind]++;
    if (kind == SPV_DATA_PREFIX)
        table->prefix_sizes |= (uint64_t)1 << (value.size - 1);
    table->odd_scripts += kind == SPV_SCRIPT && !spv_is_middling(value.size);
    return SPV_OK;
}

/* Scripts. */

uint32_t spv_table_match_pushes(const spv_table *table, spv_bytes script) {
    spv_bytes push;
    for (size_t at = 0; spv_next_push(script.data, script.size, &at, &push);) {
        uint32_t entry = spv_table_find(table, SPV_DATA, (spv_bytes){push.data, push.size});
        if (entry != SPV_NONE)
            return entry;
    }
    return SPV_NONE;
}

/* The longest data prefix of an OP_RETURN output. Each size that some prefix has takes one lookup. */
static uint32_t match_prefix(const spv_table *table, spv_bytes script) {
    uint8_t number;
    const spv_bytes data = spv_null_data(script, &number);
    uint32_t entry = SPV_NONE;
    for (size_t size = data.size < SPV_MAX_PREFIX ? data.size : SPV_MAX_PREFIX; size && entry == SPV_NONE; size--)
        if (table->prefix_sizes >> (size - 1) & 1)
            entry = spv_table_find(table, SPV_DATA_PREFIX, (spv_bytes){data.data, size});
    return entry;
}

uint32_t spv_table_find_type(const spv_table *table, unsigned type) {
    const uint8_t value = (uint8_t)type;
    return spv_table_find(table, SPV_SCRIPT_TYPE, (spv_bytes){&value, 1});
}

uint32_t spv_table_match_slow(const spv_table *table, spv_bytes script) {
    if (table->of_kind[SPV_MULTISIG_KEY]) {
        spv_bytes keys[SPV_MAX_MULTISIG_KEYS];
        size_t count = spv_multisig_keys(script.data, script.size, keys);
        for (size_t i = 0; i < count; i++) {
            uint32_t entry = spv_table_find(table, SPV_MULTISIG_KEY, (spv_bytes){keys[i].data, keys[i].size});
            if (entry != SPV_NONE)
                return entry;
        }
    }
    uint32_t entry = table->of_kind[SPV_DATA] ? spv_table_match_pushes(table, script) : SPV_NONE;
    if (entry == SPV_NONE && table->prefix_sizes)
        entry = match_prefix(table, script);
    return entry == SPV_NONE && table->of_kind[SPV_SCRIPT_TYPE] ? spv_table_find_type(table, spv_solve(script)) : entry;
}

uint32_t spv_table_match_script(const spv_table *table, spv_bytes script) {
    uint32_t entry = spv_table_find(table, SPV_SCRIPT, script);
    return entry == SPV_NONE ? spv_table_match_slow(table, script) : entry;
}

/* Coins. */

uint32_t spv_table_find_coin(const spv_table *table, const uint8_t *outpoint) {
    const spv_wanted wanted = {table, {outpoint, SPV_OUTPOINT_SIZE}, SPV_OUTPOINT};
    return spv_index_find(&table->coin_index, spv_outpoint_hash(&table->coin_key, outpoint), spv_is_coin, &wanted);
}

static spv_bytes script_of(const spv_table *table, uint32_t script) {
    if (script == SPV_NONE)
        return (spv_bytes){NULL, 0};
    if (script & OWN)
        return spv_entry_bytes(*(const uint8_t **)spv_pile_at(&table->scripts, script & ~OWN, sizeof(uint8_t *)));
    return spv_table_entry(table, script).value;
}

spv_coin spv_table_coin(const spv_table *table, uint32_t number) {
    const spv_coin_record *record = spv_table_coin_record(table, number);
    return (spv_coin){record->outpoint, script_of(table, record->script), (int64_t)spv_le64(record->value), record->entry};
}

spv_coin spv_coin_joined(spv_coin old, spv_coin new) {
    old.value = old.value == SPV_NO_VALUE ? new.value : old.value;
    old.script = old.script.data ? old.script : new.script;
    return old;
}

/* The number by which a coin refers to a script: an entry, if the script is one; otherwise a copy. Mostly it is the
   coin's `entry`. */
static spv_status refer(spv_table *table, spv_bytes script, uint32_t entry, uint32_t *number) {
    *number = SPV_NONE;
    if (!script.data)
        return SPV_OK;
    *number = entry;
    if (entry < spv_table_count(table) && spv_is_entry(&(spv_wanted){table, script, SPV_SCRIPT}, entry))
        return SPV_OK;
    if ((*number = spv_table_find(table, SPV_SCRIPT, script)) != SPV_NONE)
        return SPV_OK;
    if (script.size > UINT32_MAX || table->scripts.count > SPV_MAX_ENTRY)
        return SPV_RANGE;
    spv_status status = spv_pile_reserve(&table->scripts);
    if (status)
        return status;
    const uint8_t *record = store(&table->arena, SPV_SCRIPT, script);
    if (!record)
        return SPV_NOMEM;
    *number = table->scripts.count | OWN;
    push_record(&table->scripts, record);
    return SPV_OK;
}

spv_status spv_table_set_coin(spv_table *table, const spv_coin *coin, bool replace) {
    uint32_t number = spv_table_find_coin(table, coin->outpoint);
    spv_coin next = *coin;
    table->changed = true;
    spv_coin_record record = {.script = SPV_NONE};
    if (number != SPV_NONE) {
        spv_coin old = spv_table_coin(table, number);
        record = *spv_table_coin_record(table, number);
        if (!replace)
            next = spv_coin_joined(old, next);
        if (!next.script.data || !old.script.data || !spv_equal(next.script, old.script))
            record.script = SPV_NONE;
    }
    spv_status status = SPV_OK;
    if (record.script == SPV_NONE)
        status = refer(table, next.script, next.entry, &record.script);
    if (!status && number == SPV_NONE) {
        status = spv_pile_reserve(&table->coins);
        if (!status)
            status = spv_index_reserve(&table->coin_index, table->coins.count, coin_hash, table);
    }
    if (status)
        return status;
    if (number == SPV_NONE) {
        number = table->coins.count++;
        memcpy(record.outpoint, coin->outpoint, SPV_OUTPOINT_SIZE);
        spv_index_add(&table->coin_index, spv_outpoint_hash(&table->coin_key, coin->outpoint), number);
    }
    spv_put_le32(record.value, (uint32_t)next.value);
    spv_put_le32(record.value + 4, (uint32_t)((uint64_t)next.value >> 32));
    record.entry = next.entry;
    memcpy(spv_pile_at(&table->coins, number, sizeof record), &record, sizeof record);
    return SPV_OK;
}

/* Copies. */

static spv_status copy_records(const spv_pile *from, spv_pile *to, spv_arena *arena) {
    for (uint32_t number = 0; number < from->count; number++) {
        const uint8_t *record = *(const uint8_t **)spv_pile_at(from, number, sizeof record);
        spv_status status = spv_pile_reserve(to);
        if (status)
            return status;
        if (!(record = store(arena, spv_record_kind(record), spv_entry_bytes(record))))
            return SPV_NOMEM;
        push_record(to, record);
    }
    return SPV_OK;
}

/* Makes a new table with the same entries and no coins. */
static spv_status copy_entries(const spv_table *table, spv_table **copy) {
    spv_table *made = *copy = spv_table_new();
    if (!made)
        return SPV_NOMEM;
    made->key = table->key;
    made->coin_key = table->coin_key;
    made->frozen = table->frozen;
    memcpy(made->of_kind, table->of_kind, sizeof made->of_kind);
    made->odd_scripts = table->odd_scripts;
    made->prefix_sizes = table->prefix_sizes;
    spv_status status = copy_records(&table->entries, &made->entries, &made->arena);
    if (!status)
        status = spv_index_copy(&table->index, &made->index);
    return status ? status : spv_index_copy(&table->full_keys, &made->full_keys);
}

/* Returns the copy. After a failure it frees the unfinished copy and returns NULL. */
static spv_status finish_copy(spv_status status, spv_table **copy) {
    if (status && *copy) {
        spv_table_free(*copy);
        *copy = NULL;
    }
    return status;
}

spv_status spv_table_copy(const spv_table *table, spv_table **copy) {
    spv_status status = copy_entries(table, copy);
    if (!status)
        status = copy_records(&table->scripts, &(*copy)->scripts, &(*copy)->arena);
    if (!status)
        status = spv_pile_copy(&table->coins, &(*copy)->coins);
    if (!status)
        status = spv_index_copy(&table->coin_index, &(*copy)->coin_index);
    if (!status)
        (*copy)->changed = table->changed;
    return finish_copy(status, copy);
}

spv_status spv_table_without(const spv_table *table, const uint8_t *outpoints, size_t count, spv_table **copy) {
    uint8_t *gone = calloc(table->coins.count / 8 + 1, 1); /* a bit for each coin */
    *copy = NULL;
    if (!gone)
        return SPV_NOMEM;
    for (; count; count--, outpoints += SPV_OUTPOINT_SIZE) {
        const uint32_t coin = spv_table_find_coin(table, outpoints);
        if (coin != SPV_NONE && spv_table_find(table, SPV_OUTPOINT, (spv_bytes){outpoints, SPV_OUTPOINT_SIZE}) == SPV_NONE)
            gone[coin / 8] |= (uint8_t)(1 << coin % 8);
    }
    spv_status status = copy_entries(table, copy);
    for (uint32_t number = 0; number < table->coins.count && !status; number++)
        if (!(gone[number / 8] >> number % 8 & 1)) {
            const spv_coin coin = spv_table_coin(table, number);
            status = spv_table_set_coin(*copy, &coin, true);
        }
    free(gone);
    return finish_copy(status, copy);
}
