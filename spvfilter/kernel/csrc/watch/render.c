#include "watch/render.h"

#include <stdlib.h>

enum { LINE_ROOM = 1024 /* bytes of a line without its script and label: the names of JSON are 212, all values less than 450 */ };

/* Each returns the end of what it wrote. */

static uint8_t *put(uint8_t *to, const char *text) {
    const size_t size = strlen(text);
    memcpy(to, text, size);
    return to + size;
}

static uint8_t *put_number(uint8_t *to, uint64_t number) {
    uint8_t digits[20], *first = digits + sizeof digits;
    do
        *--first = (uint8_t)('0' + number % 10);
    while (number /= 10);
    const size_t size = (size_t)(digits + sizeof digits - first);
    memcpy(to, first, size);
    return to + size;
}

/* The eight hexadecimal digits of a number, the most significant first. */
SPV_INLINE uint8_t *put_hex(uint8_t *to, uint32_t number) {
    uint64_t digits = (uint64_t)(number & 0xFFFF) << 32 | number >> 16; /* to bytes of four bits, the first one lowest */
    digits = (digits & 0x0000FF000000FF00) >> 8 | (digits & 0x000000FF000000FF) << 16;
    digits = (digits & 0x00F000F000F000F0) >> 4 | (digits & 0x000F000F000F000F) << 8;
    const uint64_t letters = (digits + 0x0606060606060606) >> 4 & 0x0101010101010101;
    digits += 0x3030303030303030 + letters * ('a' - '9' - 1);
    spv_put_le32(to, (uint32_t)digits);
    spv_put_le32(to + 4, (uint32_t)(digits >> 32));
    return to + 8;
}

/* A hash in display order. */
static uint8_t *put_hash(uint8_t *to, const uint8_t hash[32]) {
    for (int at = 28; at >= 0; at -= 4)
        to = put_hex(to, spv_le32(hash + at));
    return to;
}

static uint8_t *put_bytes(uint8_t *to, spv_bytes bytes) {
    static const char DIGITS[] = "0123456789abcdef";
    size_t at = 0;
    for (; bytes.size - at >= 4; at += 4)
        to = put_hex(to, (uint32_t)bytes.data[at] << 24 | (uint32_t)bytes.data[at + 1] << 16 | (uint32_t)bytes.data[at + 2] << 8
                             | bytes.data[at + 3]);
    for (; at < bytes.size; at++) {
        *to++ = (uint8_t)DIGITS[bytes.data[at] >> 4];
        *to++ = (uint8_t)DIGITS[bytes.data[at] & 15];
    }
    return to;
}

static uint8_t *put_satoshi(uint8_t *to, int64_t satoshi, const char *unknown) {
    return satoshi == SPV_NO_VALUE ? put(to, unknown) : put_number(to, (uint64_t)satoshi);
}

static uint8_t *put_label(uint8_t *to, spv_bytes label, const char *unknown) {
    if (!label.size)
        return put(to, unknown);
    memcpy(to, label.data, label.size);
    return to + label.size;
}

/* A hit, and what its line says beside. */
typedef struct {
    spv_packed_hit hit;
    spv_bytes address, label; /* empty: none */
    uint32_t outpoint_index;
} row;

static uint8_t *put_csv(uint8_t *to, const spv_block_lines *of, const row *row) {
    const spv_packed_hit *hit = &row->hit;
    to = put(to, hit->spend ? "input," : "output,");
    to = put_hash(to, of->block_hash);
    *to++ = ',';
    if (of->has_height)
        to = put_number(to, of->height);
    *to++ = ',';
    to = put_number(to, of->time);
    *to++ = ',';
    const uint8_t *txid = to;
    to = put_hash(to, hit->txid);
    *to++ = ',';
    to = put_number(to, hit->n);
    *to++ = ',';
    if (hit->spend)
        to = put_hash(to, hit->outpoint);
    else
        to = (uint8_t *)memcpy(to, txid, 64) + 64;
    *to++ = ',';
    to = put_number(to, row->outpoint_index);
    *to++ = ',';
    to = put_satoshi(to, hit->value, "");
    *to++ = ',';
    to = put_bytes(to, hit->script);
    *to++ = ',';
    to = put_label(to, row->address, "");
    *to++ = ',';
    to = put_label(to, row->label, "");
    to = put(to, hit->position ? ",false," : ",true,");
    to = put_satoshi(to, hit->fee, "");
    *to++ = '\n';
    return to;
}

static uint8_t *put_json(uint8_t *to, const spv_block_lines *of, const row *row) {
    const spv_packed_hit *hit = &row->hit;
    to = put(to, hit->spend ? "{\"kind\":\"input\",\"block_hash\":\"" : "{\"kind\":\"output\",\"block_hash\":\"");
    to = put_hash(to, of->block_hash);
    to = put(to, "\",\"height\":");
    to = of->has_height ? put_number(to, of->height) : put(to, "null");
    to = put(to, ",\"time\":");
    to = put_number(to, of->time);
    to = put(to, ",\"txid\":\"");
    const uint8_t *txid = to;
    to = put_hash(to, hit->txid);
    to = put(to, "\",\"index\":");
    to = put_number(to, hit->n);
    to = put(to, ",\"outpoint_txid\":\"");
    if (hit->spend)
        to = put_hash(to, hit->outpoint);
    else
        to = (uint8_t *)memcpy(to, txid, 64) + 64;
    to = put(to, "\",\"outpoint_index\":");
    to = put_number(to, row->outpoint_index);
    to = put(to, ",\"value\":");
    to = put_satoshi(to, hit->value, "null");
    if (hit->script.data) {
        to = put(to, ",\"script_pubkey\":\"");
        to = put_bytes(to, hit->script);
        *to++ = '"';
    } else {
        to = put(to, ",\"script_pubkey\":null");
    }
    if (row->address.size) {
        to = put(to, ",\"address\":\"");
        to = put_label(to, row->address, "");
        *to++ = '"';
    } else {
        to = put(to, ",\"address\":null");
    }
    to = put(to, ",\"label\":");
    to = put_label(to, row->label, "null");
    to = put(to, hit->position ? ",\"coinbase\":false,\"fee\":" : ",\"coinbase\":true,\"fee\":");
    to = put_satoshi(to, hit->fee, "null");
    return put(to, "}\n");
}

/* Where the next `more` bytes go; NULL: no memory. */
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

spv_status spv_render_hits(const spv_block_lines *of, spv_bytes packed, size_t *at, size_t until, spv_text *text, size_t *unfit,
                           spv_error *error) {
    uint8_t address[SPV_MAX_ADDRESS];
    row row;
    *unfit = 0;
    while (*at < packed.size && *at < until) {
        const spv_status status = spv_next_hit(packed, at, &row.hit, error);
        if (status)
            return status;
        const size_t size = spv_encode_address(&of->network, row.hit.script, address);
        if (SPV_UNLIKELY(size > SPV_MAX_ADDRESS)) {
            *unfit = size;
            return SPV_OK;
        }
        row.address = (spv_bytes){address, size};
        row.label = (spv_bytes){NULL, 0};
        if (of->labels)
            row.label = of->labels[spv_entries_find(of->entries, row.hit.entry)];
        row.outpoint_index = row.hit.spend ? spv_le32(row.hit.outpoint + 32) : row.hit.n;
        uint8_t *to = reserve(text, row.hit.script.size, row.label.size);
        if (!to)
            return SPV_NOMEM;
        to = of->form == SPV_CSV ? put_csv(to, of, &row) : put_json(to, of, &row);
        text->size = (size_t)(to - text->data);
    }
    return SPV_OK;
}
