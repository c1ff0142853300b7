#include "watch/render.h"

#include "watch/decimal.h"
#include "watch/hex.h"
#include "watch/hitgroup.h"
#include "watch/utc.h"

#include <stdlib.h>

enum { LINE_ROOM = 1024 /* bytes for a line without its script and label, which has less than 700 bytes */ };

/* These functions write text and return its end. */

/* Writes a literal. The compiler knows its size. */
#define PUT(to, literal) ((uint8_t *)memcpy(to, literal, sizeof(literal) - 1) + sizeof(literal) - 1)

static uint8_t *put_text(uint8_t *to, spv_bytes text) {
    if (text.size)
        memcpy(to, text.data, text.size);
    return to + text.size;
}

/* A hit, and the other values in its line. */
typedef struct {
    const spv_packed_hit *hit;
    const uint8_t *block_hash; /* as block explorers show it */
    const uint8_t *utc; /* the block's time as text */
    const uint8_t *digest; /* sha256d of the hit's base58 payload */
    spv_bytes label;       /* empty if there is none */
    uint32_t outpoint_index;
} row;

/* Writes the line of a hit and returns its end. NULL if the human-readable part does not fit: *unfit is then the
   result of spv_encode_address. */
typedef uint8_t *put_line(uint8_t *to, const spv_block_lines *of, const row *row, size_t *unfit);

static uint8_t *put_csv(uint8_t *to, const spv_block_lines *of, const row *row, size_t *unfit) {
    const spv_packed_hit *hit = row->hit;
    to = hit->spend ? PUT(to, "input,") : PUT(to, "output,");
    to = (uint8_t *)memcpy(to, row->block_hash, SPV_HASH_DIGITS) + SPV_HASH_DIGITS;
    *to++ = ',';
    if (of->block.has_height)
        to = spv_put_number(to, of->block.height);
    *to++ = ',';
    to = spv_put_number(to, of->block.time);
    *to++ = ',';
    to = (uint8_t *)memcpy(to, row->utc, SPV_UTC_SIZE) + SPV_UTC_SIZE;
    *to++ = ',';
    const uint8_t *txid = to;
    to = spv_put_shown_hash(to, hit->txid);
    *to++ = ',';
    to = spv_put_number(to, hit->n);
    *to++ = ',';
    if (hit->spend)
        to = spv_put_shown_hash(to, hit->outpoint);
    else
        to = (uint8_t *)memcpy(to, txid, SPV_HASH_DIGITS) + SPV_HASH_DIGITS;
    *to++ = ',';
    to = spv_put_number(to, row->outpoint_index);
    *to++ = ',';
    if (hit->value != SPV_NO_VALUE)
        to = spv_put_number(to, (uint64_t)hit->value);
    *to++ = ',';
    to = spv_put_hex(to, hit->script);
    *to++ = ',';
    const size_t address = spv_encode_address(&of->network, hit->script, row->digest, to);
    if (SPV_UNLIKELY(address > SPV_MAX_ADDRESS)) {
        *unfit = address;
        return NULL;
    }
    to += address;
    *to++ = ',';
    to = put_text(to, row->label);
    to = hit->position ? PUT(to, ",false,") : PUT(to, ",true,");
    if (hit->fee != SPV_NO_VALUE)
        to = spv_put_number(to, (uint64_t)hit->fee);
    *to++ = '\n';
    return to;
}

static uint8_t *put_json(uint8_t *to, const spv_block_lines *of, const row *row, size_t *unfit) {
    const spv_packed_hit *hit = row->hit;
    to = hit->spend ? PUT(to, "{\"kind\":\"input\",\"block_hash\":\"") : PUT(to, "{\"kind\":\"output\",\"block_hash\":\"");
    to = (uint8_t *)memcpy(to, row->block_hash, SPV_HASH_DIGITS) + SPV_HASH_DIGITS;
    to = PUT(to, "\",\"height\":");
    to = of->block.has_height ? spv_put_number(to, of->block.height) : PUT(to, "null");
    to = PUT(to, ",\"time\":");
    to = spv_put_number(to, of->block.time);
    to = PUT(to, ",\"txid\":\"");
    const uint8_t *txid = to;
    to = spv_put_shown_hash(to, hit->txid);
    to = PUT(to, "\",\"index\":");
    to = spv_put_number(to, hit->n);
    to = PUT(to, ",\"outpoint_txid\":\"");
    if (hit->spend)
        to = spv_put_shown_hash(to, hit->outpoint);
    else
        to = (uint8_t *)memcpy(to, txid, SPV_HASH_DIGITS) + SPV_HASH_DIGITS;
    to = PUT(to, "\",\"outpoint_index\":");
    to = spv_put_number(to, row->outpoint_index);
    to = PUT(to, ",\"value\":");
    to = hit->value == SPV_NO_VALUE ? PUT(to, "null") : spv_put_number(to, (uint64_t)hit->value);
    if (hit->script.data) {
        to = PUT(to, ",\"script_pubkey\":\"");
        to = spv_put_hex(to, hit->script);
        *to++ = '"';
    } else {
        to = PUT(to, ",\"script_pubkey\":null");
    }
    to = PUT(to, ",\"address\":\"");
    const size_t address = spv_encode_address(&of->network, hit->script, row->digest, to);
    if (SPV_UNLIKELY(address > SPV_MAX_ADDRESS)) {
        *unfit = address;
        return NULL;
    }
    to = address ? PUT(to + address, "\"") : PUT(to - 1, "null");
    to = PUT(to, ",\"label\":");
    to = row->label.size ? put_text(to, row->label) : PUT(to, "null");
    to = hit->position ? PUT(to, ",\"coinbase\":false,\"fee\":") : PUT(to, ",\"coinbase\":true,\"fee\":");
    to = hit->fee == SPV_NO_VALUE ? PUT(to, "null") : spv_put_number(to, (uint64_t)hit->fee);
    return PUT(to, "}\n");
}

/* Reserves memory for a line and returns the position of its first byte. NULL: no memory. */
static uint8_t *reserve(spv_text *text, size_t script, size_t label) {
    if (script > SIZE_MAX / 8 || label > SIZE_MAX / 8 || text->size > SIZE_MAX / 4)
        return NULL;
    const size_t wanted = text->size + LINE_ROOM + 2 * script + label;
    if (SPV_UNLIKELY(wanted > text->room)) {
        const size_t room = wanted + wanted / 2;
        uint8_t *grown = realloc(text->data, room);
        if (!grown)
            return NULL;
        text->data = grown;
        text->room = room;
    }
    return text->data + text->size;
}

bool spv_text_reserve(spv_text *text, spv_bytes packed, size_t hits) {
    enum { LIKELY_SIZE = 448 /* expected bytes of a line without its script and label */ };
    /* less than 7 times the size of the packed hits */
    text->room = LINE_ROOM + hits * LIKELY_SIZE + 2 * (packed.size - hits * SPV_PACKED_HEAD);
    text->data = packed.size <= SIZE_MAX / 16 ? malloc(text->room) : NULL;
    return text->data;
}

static spv_status render_group(const spv_block_lines *of, const spv_hit_group *taken, const uint8_t *block_hash, const uint8_t *utc,
                               spv_text *text, size_t *unfit, spv_error *error) {
    put_line *const put = of->form == SPV_CSV ? put_csv : put_json;
    for (size_t i = 0; i < taken->count; i++) {
        const spv_packed_hit *hit = &taken->hits[i];
        row row = {
            .hit = hit, .block_hash = block_hash, .utc = utc, .label = {NULL, 0},
            .digest = spv_digest_at(taken, i),
            .outpoint_index = hit->spend ? spv_le32(hit->outpoint + 32) : hit->n,
        };
        const spv_status status = spv_label_of(&of->labels, hit->entry, &row.label, error);
        if (status)
            return status;
        uint8_t *to = reserve(text, hit->script.size, row.label.size);
        if (!to)
            return SPV_NOMEM;
        to = put(to, of, &row, unfit);
        if (!to)
            return SPV_OK;
        text->size = (size_t)(to - text->data);
    }
    return SPV_OK;
}

spv_status spv_render_hits(const spv_block_lines *of, spv_bytes packed, size_t *at, size_t until, spv_text *text, size_t *unfit,
                           spv_error *error) {
    uint8_t block_hash[SPV_HASH_DIGITS], utc[SPV_UTC_SIZE];
    spv_hit_group taken;
    spv_status status = SPV_OK;
    spv_put_shown_hash(block_hash, of->block.hash);
    spv_put_utc(utc, of->block.time);
    *unfit = 0;
    while (!status && !*unfit && *at < packed.size && *at < until) {
        status = spv_take_group(&of->network, packed, at, until, &taken, error);
        if (!status)
            status = render_group(of, &taken, block_hash, utc, text, unfit, error);
    }
    return status;
}

static uint64_t number_at(const uint8_t *sums, size_t field) {
    uint64_t number;
    memcpy(&number, sums + field * sizeof number, sizeof number);
    return number;
}

spv_status spv_render_totals(const spv_totals *of, spv_text *text, size_t *next, size_t *unfit, spv_error *error) {
    const size_t end = of->first + of->sums.size / SPV_SUMS_SIZE;
    *unfit = 0;
    for (*next = of->first; *next < end; ++*next) {
        const uint8_t *sums = of->sums.data + SPV_SUMS_SIZE * (*next - of->first);
        spv_bytes label;
        if (!number_at(sums, 0))
            continue;
        if (*next >= spv_table_count(of->table))
            break;
        const spv_entry entry = spv_table_entry(of->table, (uint32_t)*next);
        if (entry.kind != SPV_SCRIPT)
            break;
        const spv_bytes script = entry.value;
        const spv_status status = spv_label_of(&of->labels, (uint32_t)*next, &label, error);
        if (status)
            return status;
        uint8_t *to = reserve(text, script.size, label.size);
        if (!to)
            return SPV_NOMEM;
        to = PUT(to, "script:");
        to = spv_put_hex(to, script);
        *to++ = ',';
        const size_t address = spv_encode_address(&of->network, script, NULL, to);
        if (SPV_UNLIKELY(address > SPV_MAX_ADDRESS)) {
            *unfit = address;
            return SPV_OK;
        }
        to += address;
        *to++ = ',';
        to = put_text(to, label);
        static const uint8_t fields[] = {1, 2, 3, 0}; /* received, spent, unknown, matches */
        for (size_t i = 0; i < sizeof fields; i++) {
            *to++ = ',';
            to = spv_put_number(to, number_at(sums, fields[i]));
        }
        *to++ = '\n';
        text->size = (size_t)(to - text->data);
    }
    return SPV_OK;
}
