#include "block/undo.h"

#include "block/curve.h"

#include <inttypes.h>
#include <stdlib.h>

spv_status spv_refuse_undo(spv_status status) {
    return status == SPV_FORMAT ? SPV_UNDO : status;
}

spv_status spv_varint_slow(const uint8_t *undo, size_t size, size_t *at, uint64_t most, uint64_t *value, const char *field, spv_error *error) {
    uint64_t number = 0;
    for (size_t cursor = *at; cursor < size;) {
        const uint8_t byte = undo[cursor++];
        if (number > most >> 7)
            return spv_refuse_undo(spv_refuse(error, *at, field, "must be at most %" PRIu64, most));
        number = number << 7 | (byte & 0x7F);
        if (!(byte & 0x80)) {
            *value = number;
            *at = cursor;
            return SPV_OK;
        }
        if (number == most)
            return spv_refuse_undo(spv_refuse(error, *at, field, "must be at most %" PRIu64, most));
        number++;
    }
    return spv_refuse_undo(spv_refuse(error, *at, field, "truncated within a number"));
}

spv_bytes spv_full_key_script(const uint8_t *key, uint8_t room[SPV_SHORT_SCRIPT]) {
    room[0] = SPV_FULL_KEY;
    memcpy(room + 1, key, SPV_FULL_KEY);
    room[1 + SPV_FULL_KEY] = 0xAC;
    return (spv_bytes){room, SPV_SHORT_SCRIPT};
}

spv_status spv_script_of_coin(const spv_packed_coin *coin, size_t at, uint8_t room[SPV_SHORT_SCRIPT], spv_bytes *script, spv_error *error) {
    uint8_t key[SPV_SHORT_KEY], full[SPV_FULL_KEY];
    if (!spv_has_full_key(coin)) {
        *script = spv_plain_script(coin, room);
        return SPV_OK;
    }
    spv_packed_key(coin, key);
    if (!spv_full_key(key, full))
        return spv_refuse_undo(spv_refuse(error, at, "undo script", "the key is not on the curve"));
    *script = spv_full_key_script(full, room);
    return SPV_OK;
}

spv_status spv_undo_end(size_t size, size_t at, spv_error *error) {
    if (at == size)
        return SPV_OK;
    return spv_refuse_undo(spv_refuse(error, at, "undo record", "%zu trailing byte%s", size - at, size - at == 1 ? "" : "s"));
}

/* Records. */

spv_record spv_record_of(const uint8_t *memory, size_t size) {
    return size < SPV_CHECK_SIZE ? (spv_record){memory, size, size, SPV_SHORT} : (spv_record){memory, size - SPV_CHECK_SIZE, size, SPV_UNCHECKED};
}

typedef struct {
    const spv_record *records;
    const size_t *numbers; /* numbers of the records to check */
} checking;

static spv_message record_at(const void *context, size_t number) {
    const checking *c = context;
    const spv_record *record = &c->records[c->numbers[number]];
    return (spv_message){.body = {record->memory, 32 + record->size}};
}

spv_status spv_check_records(spv_record *records, size_t count) {
    size_t *numbers = malloc((count + 1) * sizeof *numbers), waiting = 0;
    spv_hash *digests = malloc((count + 1) * sizeof *digests);
    if (numbers && digests) {
        for (size_t i = 0; i < count; i++)
            if (records[i].memory && records[i].state == SPV_UNCHECKED)
                numbers[waiting++] = i;
        spv_sha256d_many(record_at, &(checking){records, numbers}, waiting, digests);
        for (size_t i = 0; i < waiting; i++) {
            spv_record *record = &records[numbers[i]];
            const bool sound = !memcmp(digests[i], record->memory + 32 + record->size, SPV_CHECK_SIZE);
            record->state = sound ? SPV_SOUND : SPV_UNSOUND;
        }
    }
    const bool done = numbers && digests;
    free(numbers);
    free(digests);
    return done ? SPV_OK : SPV_NOMEM;
}

spv_status spv_refuse_record(const spv_record *record, spv_error *error) {
    if (record->state == SPV_GONE)
        return spv_refuse_undo(spv_refuse(error, 0, "undo record", "expected %zu bytes, got %zu", record->size, record->got));
    if (record->state == SPV_SHORT)
        return spv_refuse_undo(spv_refuse_bytes(record->size, 0, SPV_CHECK_SIZE, "undo check", error));
    return spv_refuse_undo(spv_refuse(error, record->size, "undo check", "does not match the record and the previous block"));
}
