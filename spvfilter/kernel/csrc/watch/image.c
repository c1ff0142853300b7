#include "watch/image.h"

static const uint8_t MAGIC[8] = {'S', 'P', 'V', 'T', 'A', 'B', 'L', 'E'};
enum { ORDER = 0x01020304, VERSION = 1, HEADER = 192, ALIGNED = 64, COIN = SPV_OUTPOINT_SIZE + 16, AHEAD = 16 };
#define MOST_GROUPS ((uint64_t)1 << 32)
#define CHANGED "the image was changed while it was read"

/* The header in the byte order of the machine. */
typedef struct {
    uint8_t magic[8];
    uint32_t order, version;
    uint64_t size, records_size, coins_size, groups, full_groups;
    uint32_t entries, coins, full_keys, odd_scripts;
    uint64_t prefix_sizes;
    uint32_t of_kind[SPV_KINDS];
    uint8_t zeros[24];
    spv_table_key key;
} header;

_Static_assert(sizeof(header) == HEADER, "the header has no gaps");

/* Offsets of the sections. */
typedef struct {
    size_t index, full_keys, offsets, records, coins, end;
} layout;

/* pure.image._layout: false if the sections do not fit into memory. */
static bool lay_out(const header *h, layout *of) {
    const uint64_t sizes[] = {spv_index_bytes(h->groups), spv_index_bytes(h->full_groups), 8 * (uint64_t)h->entries, h->records_size, h->coins_size};
    size_t *places[] = {&of->index, &of->full_keys, &of->offsets, &of->records, &of->coins};
    uint64_t at = HEADER;
    if (h->groups > MOST_GROUPS || h->full_groups > MOST_GROUPS || h->records_size > SIZE_MAX / 8 || h->coins_size > SIZE_MAX / 8)
        return false;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        *places[i] = (size_t)at;
        at += (sizes[i] + ALIGNED - 1) & ~(uint64_t)(ALIGNED - 1);
    }
    of->end = (size_t)at;
    return at <= SIZE_MAX / 2;
}

/* Reading. */

static bool is_power(uint64_t groups) {
    return !(groups & (groups - 1));
}

static spv_status check_header(const header *h, spv_bytes image, layout *of, spv_error *error) {
    if (memcmp(h->magic, MAGIC, sizeof MAGIC))
        return spv_refuse(error, 0, "magic", "not the image of a watch table");
    if (h->order != ORDER)
        return spv_refuse(error, offsetof(header, order), "byte order", "the image was made on a machine with a different byte order");
    if (h->version != VERSION)
        return spv_refuse(error, offsetof(header, version), "version", "unsupported version %u (only version %d is supported)", (unsigned)h->version, VERSION);
    if (h->size != image.size)
        return spv_refuse(error, offsetof(header, size), "size", "must be %zu, the number of bytes in the image, not %llu", image.size, (unsigned long long)h->size);
    if (h->entries > (uint32_t)SPV_MAX_ENTRY + 1)
        return spv_refuse(error, offsetof(header, entries), "entries", "must be at most %u, not %u", (unsigned)SPV_MAX_ENTRY + 1, (unsigned)h->entries);
    if (h->full_keys > h->entries)
        return spv_refuse(error, offsetof(header, full_keys), "full keys", "must be at most %u, the number of entries, not %u", (unsigned)h->entries, (unsigned)h->full_keys);
    if (!is_power(h->groups))
        return spv_refuse(error, offsetof(header, groups), "groups", "must be a power of two, not %llu", (unsigned long long)h->groups);
    if (!is_power(h->full_groups))
        return spv_refuse(error, offsetof(header, full_groups), "groups", "must be a power of two, not %llu", (unsigned long long)h->full_groups);
    if (!lay_out(h, of) || of->end != image.size)
        return spv_refuse(error, offsetof(header, size), "size", "the sections do not fill the image");
    return SPV_OK;
}

/* pure.image.Image._check_order: refuses records that are not one after the other. */
static spv_status check_order(spv_bytes image, size_t offsets, uint32_t count, uint64_t end, spv_error *error) {
    const uint64_t *at = (const uint64_t *)(const void *)(image.data + offsets);
    bool is_ordered = true;
    for (uint32_t number = 1; number < count && is_ordered; number++)
        is_ordered = at[number - 1] < at[number];
    if (is_ordered && (!count || at[count - 1] < end))
        return SPV_OK;
    return spv_refuse(error, offsets, "offset", "the records of the entries are not in order");
}

/* pure.image._coins_of: adds the coins of the image. */
static spv_status read_coins(spv_table *table, spv_bytes coins, size_t start, uint32_t count, spv_error *error) {
    size_t at = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (coins.size - at < COIN)
            return spv_refuse(error, start + at, "coin", "truncated: expected %d bytes, %zu left", COIN, coins.size - at);
        const uint8_t *record = coins.data + at;
        const uint32_t entry = spv_le32(record + SPV_OUTPOINT_SIZE), size = spv_le32(record + COIN - 4);
        const int64_t value = (int64_t)spv_le64(record + SPV_OUTPOINT_SIZE + 4);
        if (entry >= table->frozen.count || value < SPV_NO_VALUE)
            return spv_refuse(error, start + at, "coin", "the entry or the value of the coin is out of range");
        at += COIN;
        spv_coin coin = {record, {NULL, 0}, value, entry};
        if (size != UINT32_MAX) {
            if (size > coins.size - at)
                return spv_refuse(error, start + at, "script", "truncated: expected %u bytes, %zu left", (unsigned)size, coins.size - at);
            coin.script = (spv_bytes){coins.data + at, size};
            at += size;
        }
        const spv_status status = spv_table_set_coin(table, &coin, false);
        if (status)
            return status;
    }
    if (at != coins.size)
        return spv_refuse(error, start + at, "coin", "must be the last, but %zu bytes follow", coins.size - at);
    return SPV_OK;
}

/* The index of a section. Its count may be too high: it only decides how large an index in memory becomes. */
static spv_index index_over(spv_bytes image, size_t at, uint64_t groups, uint32_t count) {
    spv_index index;
    spv_index_init(&index);
    if (groups) {
        index = spv_index_over((uint8_t *)(uintptr_t)image.data + at, (size_t)groups, count);
        index.reach = SPV_REACH;
        index.mapped = true;
    }
    return index;
}

spv_status spv_table_open(spv_bytes image, spv_table **opened, spv_error *error) {
    header h;
    layout of;
    *opened = NULL;
    if (image.size < HEADER)
        return spv_refuse(error, 0, "image", "truncated: expected %d bytes, %zu left", HEADER, image.size);
    memcpy(&h, image.data, sizeof h);
    spv_status status = check_header(&h, image, &of, error);
    if (!status)
        status = check_order(image, of.offsets, h.entries, h.records_size, error);
    if (status)
        return status;
    spv_table *table = spv_table_new();
    if (!table)
        return SPV_NOMEM;
    table->key = h.key;
    table->frozen = (spv_frozen){image.data + of.offsets, image.data + of.records, (size_t)h.records_size, h.entries};
    table->index = index_over(image, of.index, h.groups, h.entries);
    table->full_keys = index_over(image, of.full_keys, h.full_groups, h.full_keys);
    memcpy(table->of_kind, h.of_kind, sizeof h.of_kind);
    table->odd_scripts = h.odd_scripts;
    table->prefix_sizes = h.prefix_sizes;
    status = read_coins(table, (spv_bytes){image.data + of.coins, (size_t)h.coins_size}, of.coins, h.coins, error);
    table->changed = false;
    if (status)
        spv_table_free(table);
    else
        *opened = table;
    return status;
}

/* Writing. */

/* pure.image._measured: the header without the key, as far as it follows from the sizes of the contents. */
static spv_status measure(const spv_table *table, header *h, layout *of) {
    const uint32_t count = spv_table_count(table);
    uint32_t indexed = 0, full_keys = 0;
    *h = (header){.order = ORDER, .version = VERSION, .entries = count, .coins = table->coins.count};
    memcpy(h->magic, MAGIC, sizeof MAGIC);
    for (uint32_t number = 0; number < count; number++) {
        const spv_entry entry = spv_table_entry(table, number);
        h->records_size += spv_record_size(entry.kind, entry.value.size);
        indexed += entry.kind != SPV_OUTPOINT;
        full_keys += spv_full_key_of(entry) != NULL;
    }
    for (uint32_t number = 0; number < h->coins; number++)
        h->coins_size += COIN + spv_table_coin(table, number).script.size;
    h->groups = indexed ? spv_index_groups(indexed) : 0;
    h->full_groups = full_keys ? spv_index_groups(full_keys) : 0;
    if (!lay_out(h, of))
        return SPV_RANGE;
    h->size = of->end;
    return SPV_OK;
}

spv_status spv_image_size(const spv_table *table, size_t *size) {
    header h;
    layout of;
    const spv_status status = measure(table, &h, &of);
    *size = (size_t)h.size;
    return status;
}

/* pure.image._add: adds a number to an index. False if lookups would not reach it. */
static bool add_within_reach(spv_index *index, uint64_t hash, uint32_t number) {
    if (!index->limit) /* the entries have changed since they were counted */
        return false;
    size_t group = spv_index_group(index, hash);
    for (unsigned left = SPV_REACH; index->tags[group * SPV_GROUP + SPV_PASSED - 1]; group = (group + 1) & index->mask)
        if (!--left)
            return false;
    spv_index_add(index, hash, number);
    return true;
}

/* An entry of the image whose hash is computed and whose group is being fetched. */
typedef struct {
    spv_entry entry;
    uint64_t hash;
    uint32_t number;
} waiting_entry;

typedef struct {
    header h;
    spv_table written; /* only its frozen entries and indexes are used, for lookups in the image */
    spv_error *error;
} writer;

static spv_status add_full_key(writer *w, const waiting_entry *of) {
    uint8_t key[SPV_SHORT_KEY];
    const uint8_t *full = spv_full_key_of(of->entry);
    if (!full || !spv_short_key(full, key))
        return SPV_OK;
    w->h.full_keys++;
    if (add_within_reach(&w->written.full_keys, spv_full_key_hash(&w->h.key, key), of->number))
        return SPV_OK;
    return spv_refuse(w->error, of->number, "entry", "too many entries have hashes that collide under this key");
}

static spv_status add_entry(writer *w, const waiting_entry *of) {
    const spv_entry entry = of->entry;
    const spv_wanted wanted = {&w->written, entry.value, entry.kind};
    if (spv_index_find(&w->written.index, of->hash, spv_is_entry, &wanted) != SPV_NONE)
        return spv_refuse(w->error, of->number, "entry", "the same entry occurs twice");
    if (!add_within_reach(&w->written.index, of->hash, of->number))
        return spv_refuse(w->error, of->number, "entry", "too many entries have hashes that collide under this key");
    if (entry.kind == SPV_DATA_PREFIX)
        w->h.prefix_sizes |= (uint64_t)1 << (entry.value.size - 1);
    w->h.odd_scripts += entry.kind == SPV_SCRIPT && !spv_is_middling(entry.value.size);
    return add_full_key(w, of);
}

static spv_status write_entries(writer *w, const spv_table *table, uint8_t *offsets, uint8_t *records) {
    waiting_entry waiting[AHEAD];
    unsigned count = 0;
    uint64_t at = 0;
    spv_status status = SPV_OK;
    for (uint32_t number = 0; number < w->h.entries && !status; number++) {
        const spv_entry entry = spv_table_entry(table, number);
        if (!spv_is_sound(entry))
            return spv_refuse(w->error, number, "entry", "a watch list cannot contain this entry");
        if (entry.kind == SPV_OUTPOINT && spv_table_find(table, entry.kind, entry.value) != number)
            return spv_refuse(w->error, number, "entry", "no coin has this outpoint, or another entry has it");
        if (spv_record_size(entry.kind, entry.value.size) > w->h.records_size - at)
            return spv_refuse(w->error, number, "entry", CHANGED);
        spv_put_record(records + at, entry.kind, entry.value);
        at += spv_record_size(entry.kind, entry.value.size);
        if (number + 1 < w->h.entries) /* the first offset is 0 */
            memcpy(offsets + 8 * ((size_t)number + 1), &at, sizeof at);
        const spv_entry copy = spv_frozen_entry(&w->written.frozen, number);
        w->h.of_kind[entry.kind]++;
        if (entry.kind != SPV_OUTPOINT) {
            const uint64_t hash = spv_keyed_hash(&w->h.key, entry.kind & 3, copy.value.data, copy.value.size);
            spv_index_fetch(&w->written.index, hash);
            waiting[count++] = (waiting_entry){copy, hash, number};
        }
        if (count == AHEAD || number == w->h.entries - 1) {
            for (unsigned i = 0; i < count && !status; i++)
                status = add_entry(w, &waiting[i]);
            count = 0;
        }
    }
    if (!status && at != w->h.records_size)
        return spv_refuse(w->error, w->h.entries, "entry", CHANGED);
    return status;
}

static spv_status write_coins(const writer *w, const spv_table *table, uint8_t *to) {
    size_t left = (size_t)w->h.coins_size;
    for (uint32_t number = 0; number < w->h.coins; number++) {
        const spv_coin coin = spv_table_coin(table, number);
        if (coin.entry >= w->h.entries)
            return spv_refuse(w->error, number, "coin", "it belongs to an entry that the table does not have");
        if (left < COIN || coin.script.size > left - COIN)
            return spv_refuse(w->error, number, "coin", CHANGED);
        left -= COIN + coin.script.size;
        memcpy(to, coin.outpoint, SPV_OUTPOINT_SIZE);
        spv_put_le32(to + SPV_OUTPOINT_SIZE, coin.entry);
        spv_put_le32(to + SPV_OUTPOINT_SIZE + 4, (uint32_t)coin.value);
        spv_put_le32(to + SPV_OUTPOINT_SIZE + 8, (uint32_t)((uint64_t)coin.value >> 32));
        spv_put_le32(to + SPV_OUTPOINT_SIZE + 12, coin.script.data ? (uint32_t)coin.script.size : UINT32_MAX);
        to += COIN;
        if (coin.script.size)
            memcpy(to, coin.script.data, coin.script.size);
        to += coin.script.size;
    }
    return left ? spv_refuse(w->error, w->h.coins, "coin", CHANGED) : SPV_OK;
}

spv_status spv_image_write(const spv_table *table, const spv_table_key *key, uint8_t *image, size_t size, spv_error *error) {
    layout of;
    writer w = {.error = error};
    spv_status status = measure(table, &w.h, &of);
    if (status)
        return status;
    if (w.h.size != size)
        return spv_refuse(error, 0, "image", "the buffer must be %zu bytes long, not %zu", (size_t)w.h.size, size);
    memset(image, 0, size);
    w.h.key = *key;
    w.written.frozen = (spv_frozen){image + of.offsets, image + of.records, (size_t)w.h.records_size, w.h.entries};
    spv_index_init(&w.written.index);
    spv_index_init(&w.written.full_keys);
    if (w.h.groups)
        w.written.index = spv_index_over(image + of.index, (size_t)w.h.groups, 0);
    if (w.h.full_groups)
        w.written.full_keys = spv_index_over(image + of.full_keys, (size_t)w.h.full_groups, 0);
    status = write_entries(&w, table, image + of.offsets, image + of.records);
    if (!status)
        status = write_coins(&w, table, image + of.coins);
    memcpy(image, &w.h, sizeof w.h);
    return status;
}

size_t spv_pack_entries(const spv_table *table, uint32_t first, uint32_t end, uint8_t *to, size_t room) {
    size_t total = 0;
    for (uint32_t number = first; number < end; number++) {
        const spv_entry entry = spv_table_entry(table, number);
        const size_t size = 5 + entry.value.size;
        if (total <= room && size <= room - total) {
            to[total] = (uint8_t)entry.kind;
            spv_put_le32(to + total + 1, (uint32_t)entry.value.size);
            memcpy(to + total + 5, entry.value.data, entry.value.size);
        }
        total += size;
    }
    return total;
}
