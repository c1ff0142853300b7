/* Undo records: the coins that a block spent, as Bitcoin Core keeps them in rev*.dat; the twin of pure/undo.py, which has the format. */
#ifndef SPV_BLOCK_UNDO_H
#define SPV_BLOCK_UNDO_H

#include "block/walk.h"
#include "hash/sha256.h"

enum {
    SPV_MIN_COIN_SIZE = 3,         /* bytes: code, amount and script type, 1 each */
    SPV_CHECK_SIZE = 32,           /* bytes of the check after an undo */
    SPV_MAX_UNDO_SIZE = 250000000, /* bytes, protocol.MAX_UNDO_SIZE */
    SPV_MAX_SCRIPT_SIZE = 10000,   /* bytes, protocol.MAX_SCRIPT_SIZE */
    SPV_SHORT_SCRIPT = 67          /* bytes of the longest script that is compressed: P2PK with the uncompressed key */
};

/* pure.undo.PackedCoin. */
enum { SPV_PACKED_P2PKH, SPV_PACKED_P2SH, SPV_PACKED_KEY, SPV_PACKED_FULL_KEY = 4, SPV_PACKED_NONE = 6 };
typedef struct {
    uint64_t value;     /* satoshi */
    spv_bytes body;     /* hash, x of the key, or the script itself */
    uint32_t code;      /* height × 2 + coinbase */
    uint32_t kind;      /* SPV_PACKED_KEY and SPV_PACKED_FULL_KEY each stand for two kinds, which differ in the parity of y */
} spv_packed_coin;

/* The slow path of a VARINT: numbers near the end of the record, numbers of more than 8 bytes, and every error. */
spv_status spv_varint_slow(const uint8_t *undo, size_t size, size_t *at, uint64_t most, uint64_t *value, const char *field, spv_error *error);
/* pure.undo.expanded_amount. False above SPV_MAX_MONEY. */
SPV_INLINE bool spv_expand_amount(uint64_t packed, uint64_t *value) {
    static const uint64_t powers[] = {1, 10, 100, 1000, 10000, 100000, 1000000, 10000000, 100000000, 1000000000};
    static const uint64_t most[] = { /* largest digits, by the number of zeros after them */
        SPV_MAX_MONEY, SPV_MAX_MONEY / 10, SPV_MAX_MONEY / 100, SPV_MAX_MONEY / 1000, SPV_MAX_MONEY / 10000, SPV_MAX_MONEY / 100000,
        SPV_MAX_MONEY / 1000000, SPV_MAX_MONEY / 10000000, SPV_MAX_MONEY / 100000000, SPV_MAX_MONEY / 1000000000,
    };
    *value = 0;
    if (!packed)
        return true;
    const uint64_t rest = (packed - 1) / 10, zeros = packed - 1 - 10 * rest;
    const uint64_t digits = zeros < 9 ? rest + rest / 9 + 1 : rest + 1; /* rest / 9 × 10 + rest % 9 + 1, below 2^64 */
    if (SPV_UNLIKELY(digits > most[zeros]))
        return false;
    *value = digits * powers[zeros];
    return true;
}
SPV_COLD spv_status spv_refuse_undo(spv_status status); /* Turns SPV_FORMAT into SPV_UNDO. */

/* The number of a VARINT of `length` ≤ 8 bytes, which are the lower bytes of `bytes`, the first byte lowest. The
   groups are joined without a branch: lengths vary, so a branch would often be mispredicted. */
SPV_INLINE uint64_t spv_joined_groups(uint64_t bytes, unsigned length) {
    static const uint64_t added[9] = {0, 0, 0x80, 0x4080, 0x204080, 0x10204080, 0x810204080, 0x40810204080, 0x2040810204080}; /* by length: sums of 128^k */
    uint64_t groups = __builtin_bswap64(bytes) >> (64 - 8 * length) & UINT64_C(0x7F7F7F7F7F7F7F7F);
    groups = (groups & UINT64_C(0x007F007F007F007F)) | (groups & UINT64_C(0x7F007F007F007F00)) >> 1;
    groups = (groups & UINT64_C(0x00003FFF00003FFF)) | (groups & UINT64_C(0x3FFF00003FFF0000)) >> 2;
    groups = (groups & UINT64_C(0x000000000FFFFFFF)) | (groups & UINT64_C(0x0FFFFFFF00000000)) >> 4;
    return groups + added[length];
}

/* pure.undo.read_varint of a number whose length varies. Reads the number at *at and moves *at past it. */
SPV_INLINE spv_status spv_varint_of_any_length(const uint8_t *undo, size_t size, size_t *at, uint64_t most, uint64_t *value, const char *field, spv_error *error) {
    if (SPV_LIKELY(size - *at >= 8)) { /* *at ≤ size */
        const uint64_t bytes = spv_le64(undo + *at), last = ~bytes & UINT64_C(0x8080808080808080);
        if (SPV_LIKELY(last)) {
            const unsigned length = (unsigned)__builtin_ctzll(last) / 8 + 1;
            *value = spv_joined_groups(bytes, length);
            if (SPV_LIKELY(*value <= most)) {
                *at += length;
                return SPV_OK;
            }
        }
    }
    return spv_varint_slow(undo, size, at, most, value, field, error);
}

/* The same for a number that has mostly one byte, or mostly three: a predicted branch does not wait for the length. */
SPV_INLINE spv_status spv_varint(const uint8_t *undo, size_t size, size_t *at, uint64_t most, uint64_t *value, const char *field, spv_error *error) {
    const uint8_t *bytes = undo + *at;
    if (SPV_LIKELY(*at < size && bytes[0] < 0x80)) {
        *value = bytes[0];
        *at += 1;
        return SPV_OK;
    }
    if (SPV_LIKELY(size - *at >= 3 && bytes[1] >= 0x80 && bytes[2] < 0x80)) {
        *value = ((((bytes[0] & 0x7Fu) + 1) << 7 | (bytes[1] & 0x7Fu)) + 1) << 7 | bytes[2]; /* below 2^22: within every limit */
        *at += 3;
        return SPV_OK;
    }
    return spv_varint_of_any_length(undo, size, at, most, value, field, error);
}

/* pure.undo.read_count. */
SPV_INLINE spv_status spv_undo_count(const uint8_t *undo, size_t size, size_t *at, size_t least, uint64_t *count, const char *field, spv_error *error) {
    spv_status status = spv_count(undo, size, at, count, least, field, error);
    return SPV_LIKELY(!status) ? SPV_OK : spv_refuse_undo(status);
}

/* pure.undo.read_coin: reads the coin at *at and moves *at past it. */
SPV_INLINE spv_status spv_read_coin(const uint8_t *undo, size_t size, size_t *at, spv_packed_coin *coin, spv_error *error) {
    static const uint8_t special[8] = {20, 20, 32, 32, 32, 32}; /* bytes */
    static const uint8_t too_long[1] = {0x6A}; /* Core replaces a script that is too long, which nothing can spend, with OP_RETURN */
    uint64_t code, packed, kind;
    spv_status status = spv_varint(undo, size, at, UINT32_MAX, &code, "undo code", error);
    if (!status && code >> 1)
        status = spv_varint(undo, size, at, UINT32_MAX, &packed, "undo version", error);
    if (SPV_UNLIKELY(status))
        return status;
    const size_t amount_at = *at;
    if (SPV_UNLIKELY(status = spv_varint_of_any_length(undo, size, at, UINT64_MAX, &packed, "undo amount", error)))
        return status;
    if (SPV_UNLIKELY(!spv_expand_amount(packed, &coin->value)))
        return spv_refuse_undo(spv_refuse(error, amount_at, "undo amount", "must be at most 21 million coins"));
    if (SPV_UNLIKELY(status = spv_varint(undo, size, at, UINT32_MAX, &kind, "undo script type", error)))
        return status;
    const bool other = kind >= SPV_PACKED_NONE;
    const size_t length = special[other ? SPV_PACKED_NONE : kind] + (other ? (size_t)kind - SPV_PACKED_NONE : 0);
    if (SPV_UNLIKELY(length > size - *at))
        return spv_refuse_undo(spv_refuse_bytes(size, *at, length, "undo script", error));
    coin->code = (uint32_t)code;
    coin->kind = other ? SPV_PACKED_NONE : (uint32_t)kind;
    coin->body = (spv_bytes){undo + *at, length};
    *at += length;
    if (SPV_UNLIKELY(length > SPV_MAX_SCRIPT_SIZE))
        coin->body = (spv_bytes){too_long, 1};
    return SPV_OK;
}

/* The script of a coin without a key or with a compressed key: in `room`, or in the record itself. */
SPV_INLINE spv_bytes spv_plain_script(const spv_packed_coin *coin, uint8_t room[SPV_SHORT_SCRIPT]) {
    switch (coin->kind) {
    case SPV_PACKED_P2PKH:
        memcpy(room, "\x76\xA9\x14", 3);
        memcpy(room + 3, coin->body.data, 20);
        memcpy(room + 23, "\x88\xAC", 2);
        return (spv_bytes){room, 25};
    case SPV_PACKED_P2SH:
        memcpy(room, "\xA9\x14", 2);
        memcpy(room + 2, coin->body.data, 20);
        room[22] = 0x87;
        return (spv_bytes){room, 23};
    case SPV_PACKED_KEY:
    case SPV_PACKED_KEY + 1:
        room[0] = 0x21;
        room[1] = (uint8_t)coin->kind;
        memcpy(room + 2, coin->body.data, 32);
        room[34] = 0xAC;
        return (spv_bytes){room, 35};
    default:
        return coin->body;
    }
}

SPV_INLINE bool spv_has_full_key(const spv_packed_coin *coin) {
    return (coin->kind & ~1u) == SPV_PACKED_FULL_KEY;
}

/* The compressed form of the key of a P2PK coin. */
SPV_INLINE void spv_packed_key(const spv_packed_coin *coin, uint8_t key[33]) {
    key[0] = (uint8_t)(coin->kind - 2);
    memcpy(key + 1, coin->body.data, 32);
}

/* Writes the P2PK script of an uncompressed key (65 bytes) to `room`. */
spv_bytes spv_full_key_script(const uint8_t *key, uint8_t room[SPV_SHORT_SCRIPT]);
/* pure.undo.script_of: the script of the coin at byte `at`, in `room` or in the record itself. */
spv_status spv_script_of_coin(const spv_packed_coin *coin, size_t at, uint8_t room[SPV_SHORT_SCRIPT], spv_bytes *script, spv_error *error);
/* pure.undo.check_end. */
spv_status spv_undo_end(size_t size, size_t at, spv_error *error);

/* An undo record in memory, after the hash of the block's previous block. `size` is the size of the undo: without
   the hash and the check. */
typedef struct {
    const uint8_t *memory; /* hash, undo, check; NULL if there is none */
    size_t size;
    size_t got;            /* bytes read, if the state is SPV_GONE */
    enum {
        SPV_UNCHECKED,
        SPV_SOUND,
        SPV_UNSOUND,
        SPV_SHORT, /* it has fewer bytes than a check */
        SPV_GONE   /* it cannot be read from its place */
    } state;
} spv_record;

SPV_INLINE spv_bytes spv_undo_of(const spv_record *record) {
    return (spv_bytes){record->memory + 32, record->size};
}

/* Makes a record of `size` bytes in `memory`, after 32 bytes for the hash. */
spv_record spv_record_of(const uint8_t *memory, size_t size);
/* Checks all records that are not checked yet, at once, which is faster. */
spv_status spv_check_records(spv_record *records, size_t count);
/* Makes the error of a record that is not sound. */
spv_status spv_refuse_record(const spv_record *record, spv_error *error);

#endif
