/* Fuzz target: undo records, against a reading without the kernel's code, and scans with them. The input:

   u8   Bit 0: a block precedes the undo. Otherwise the rest is the undo.
   u24  Length of the block, and the block.
   The rest is the undo, without its check. */
#include "check.h"

#include "block/curve.h"
#include "watch/scan.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST_COINS = 400, WATCHED = 16 };

/* A coin of the plain reading. */
typedef struct {
    uint64_t value;
    uint32_t code, kind, tx;
    size_t at, size; /* position of the script's body in the undo; 0 bytes at 0 for Core's replacement */
    bool stand_in;
} plain_coin;

typedef struct {
    const uint8_t *undo;
    size_t size, at;
    bool bad;
    plain_coin coins[MOST_COINS];
    uint32_t inputs[MOST_COINS]; /* of each transaction */
    size_t coin_count, tx_count;
    bool too_many;               /* for this target, not for the kernel */
} plain_undo;

static unsigned next_byte(plain_undo *p) {
    if (p->at < p->size)
        return p->undo[p->at++];
    p->bad = true;
    return 0;
}

/* CompactSize, as in the protocol's documentation. */
static uint64_t plain_count(plain_undo *p) {
    const unsigned first = next_byte(p);
    const unsigned width = first < 0xFD ? 0 : 1u << (first - 0xFC);
    uint64_t value = width ? 0 : first;
    for (unsigned i = 0; i < width; i++)
        value |= (uint64_t)next_byte(p) << 8 * i;
    if ((width == 2 && value < 0xFD) || (width == 4 && value < 0x10000) || width == 8)
        p->bad = true; /* values above 2^32 are refused */
    if (value > 0x02000000)
        p->bad = true;
    return value;
}

/* VARINT by its meaning: groups are the digits of a number to base 128. All digits except the last are increased by
   one. */
static uint64_t plain_varint(plain_undo *p, uint64_t most) {
    uint64_t digits[32], value = 0;
    unsigned count = 0, byte;
    do {
        byte = next_byte(p);
        digits[count++] = (byte & 0x7F) + (byte >> 7);
    } while (byte >> 7 && count < 32 && !p->bad);
    if (byte >> 7)
        p->bad = true;
    for (unsigned i = 0; i < count && !p->bad; i++) {
        if (value > (most - digits[i]) / 128)
            p->bad = true;
        value = value * 128 + digits[i];
    }
    return value;
}

/* CompressAmount undone by searching the exponent: the kernel divides. */
static uint64_t plain_amount(plain_undo *p) {
    uint64_t packed = plain_varint(p, UINT64_MAX), amount;
    if (p->bad || !packed)
        return 0;
    const unsigned zeros = (unsigned)(--packed % 10);
    packed /= 10;
    if (zeros < 9) {
        const uint64_t last = packed % 9 + 1;
        amount = packed / 9;
        if (amount > 2100000000000000)
            p->bad = true;
        amount = amount * 10 + last;
    } else {
        amount = packed + 1;
    }
    for (unsigned i = 0; i < zeros && !p->bad; i++) {
        amount *= 10;
        if (amount > 2100000000000000 * 10)
            p->bad = true;
    }
    if (amount > 2100000000000000)
        p->bad = true;
    return amount;
}

static void plain_read_coin(plain_undo *p, plain_coin *coin) {
    static const size_t sizes[] = {20, 20, 32, 32, 32, 32};
    coin->code = (uint32_t)plain_varint(p, 0xFFFFFFFF);
    if (!p->bad && coin->code >= 2)
        plain_varint(p, 0xFFFFFFFF);
    coin->value = p->bad ? 0 : plain_amount(p);
    const uint64_t kind = p->bad ? 0 : plain_varint(p, 0xFFFFFFFF);
    coin->kind = (uint32_t)(kind < 6 ? kind : 6);
    coin->size = kind < 6 ? sizes[kind] : (size_t)kind - 6;
    coin->at = p->at;
    if (p->bad || coin->size > p->size - p->at)
        p->bad = true;
    else
        p->at += coin->size;
    coin->stand_in = coin->size > 10000;
}

static void plain_read(plain_undo *p) {
    const uint64_t txs = plain_count(p);
    p->too_many = txs > MOST_COINS;
    for (uint64_t i = 0; i < txs && !p->bad && !p->too_many; i++) {
        const uint64_t count = plain_count(p);
        p->too_many = p->coin_count + count > MOST_COINS && !p->bad;
        for (uint64_t j = 0; j < count && !p->bad && !p->too_many; j++) {
            p->coins[p->coin_count].tx = (uint32_t)i + 1;
            plain_read_coin(p, &p->coins[p->coin_count++]);
        }
        p->inputs[p->tx_count++] = (uint32_t)count;
    }
    if (p->at != p->size)
        p->bad = true;
}

/* Numbers modulo p, as 32 bytes, big endian, by doubling and adding: for y² = x³ + 7. */
typedef struct {
    uint8_t b[32];
} number;

static const number FIELD = {{
    0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF,
    0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFE, 0xFF, 0xFF, 0xFC, 0x2F,
}};

static number plain_sum(number one, number other) {
    unsigned carry = 0;
    for (int i = 31; i >= 0; i--) {
        carry += one.b[i] + (unsigned)other.b[i];
        one.b[i] = (uint8_t)carry;
        carry >>= 8;
    }
    if (carry || memcmp(one.b, FIELD.b, 32) >= 0) {
        int borrow = 0;
        for (int i = 31; i >= 0; i--) {
            const int left = one.b[i] - FIELD.b[i] - borrow;
            one.b[i] = (uint8_t)left;
            borrow = left < 0;
        }
    }
    return one;
}

static number plain_product(number one, number other) {
    number made = {{0}};
    for (int bit = 0; bit < 256; bit++) {
        made = plain_sum(made, made);
        if (other.b[bit / 8] >> (7 - bit % 8) & 1)
            made = plain_sum(made, one);
    }
    return made;
}

static bool is_point(const uint8_t *x, const uint8_t *y) {
    number a, b, seven = {{0}};
    memcpy(a.b, x, 32);
    memcpy(b.b, y, 32);
    seven.b[31] = 7;
    if (memcmp(x, FIELD.b, 32) >= 0 || memcmp(y, FIELD.b, 32) >= 0)
        return false;
    const number right = plain_sum(plain_product(plain_product(a, a), a), seven), left = plain_product(b, b);
    return !memcmp(left.b, right.b, 32);
}

/* Checks a script that the kernel gives for a coin. */
static void check_script(const plain_undo *p, const plain_coin *coin, spv_bytes script) {
    const uint8_t *body = p->undo + coin->at, *s = script.data;
    switch (coin->kind) {
    case 0:
        CHECK(script.size == 25 && !memcmp(s, "\x76\xA9\x14", 3) && !memcmp(s + 3, body, 20) && s[23] == 0x88 && s[24] == 0xAC);
        break;
    case 1:
        CHECK(script.size == 23 && s[0] == 0xA9 && s[1] == 20 && !memcmp(s + 2, body, 20) && s[22] == 0x87);
        break;
    case 2:
    case 3:
        CHECK(script.size == 35 && s[0] == 33 && s[1] == coin->kind && !memcmp(s + 2, body, 32) && s[34] == 0xAC);
        break;
    case 4:
    case 5:
        CHECK(script.size == 67 && s[0] == 65 && s[1] == 4 && !memcmp(s + 2, body, 32) && s[66] == 0xAC);
        CHECK((s[65] & 1) == (coin->kind & 1) && is_point(s + 2, s + 34));
        break;
    default:
        if (coin->stand_in)
            CHECK(script.size == 1 && *s == 0x6A);
        else
            CHECK(script.size == coin->size && same(s, body, coin->size));
    }
}

/* The kernel's reading of the complete undo. Keys that are not on the curve are left out of `keys`. */
static spv_status kernel_read(const plain_undo *p, spv_error *error) {
    size_t at = 0, coin_number = 0;
    uint64_t txs, count;
    spv_status status = spv_undo_count(p->undo, p->size, &at, 1, &txs, "undo transaction count", error);
    for (uint64_t i = 0; !status && i < txs; i++) {
        status = spv_undo_count(p->undo, p->size, &at, SPV_MIN_COIN_SIZE, &count, "undo input count", error);
        for (uint64_t j = 0; !status && j < count; j++, coin_number++) {
            spv_packed_coin coin;
            const size_t start = at;
            if ((status = spv_read_coin(p->undo, p->size, &at, &coin, error)) || p->bad || p->too_many)
                continue;
            const plain_coin *plain = &p->coins[coin_number];
            CHECK(coin_number < p->coin_count && coin.value == plain->value && coin.code == plain->code && coin.kind == plain->kind);
            uint8_t room[SPV_SHORT_SCRIPT];
            spv_bytes script;
            if (!spv_script_of_coin(&coin, start, room, &script, error))
                check_script(p, plain, script);
            else
                CHECK(coin.kind == 4 || coin.kind == 5);
        }
    }
    return status ? status : spv_undo_end(p->size, at, error);
}

static void check_refused(spv_status status, const spv_error *error, size_t size) {
    CHECK(status == SPV_UNDO && error->offset <= size && *error->field && *error->message);
}

/* Watches the scripts of some coins, and checks that their spends are found, with values and fees. */
static void check_scan(const plain_undo *p, const uint8_t *raw, size_t size) {
    uint32_t count = 0, watched = 0;
    spv_error error, wanted;
    spv_tx *txs = walk_whole_block(raw, size, &count, &wanted);
    spv_table *table = spv_table_new();
    CHECK(table);
    uint8_t room[SPV_SHORT_SCRIPT];
    for (size_t i = 0; i < p->coin_count && watched < WATCHED && !p->bad; i += 1 + i / 3, watched++) {
        size_t at = p->coins[i].at;
        spv_packed_coin coin = {p->coins[i].value, {p->undo + at, p->coins[i].size}, p->coins[i].code, p->coins[i].kind};
        spv_bytes script;
        uint32_t number;
        if (!p->coins[i].stand_in && p->coins[i].size && !spv_script_of_coin(&coin, at, room, &script, &error))
            CHECK(!spv_table_add(table, SPV_SCRIPT, script, &number));
    }
    uint8_t *memory = zeroed(32 + p->size + 32, 1);
    memcpy(memory + 32, p->undo, p->size);
    const spv_record record = {memory, p->size, p->size, SPV_SOUND};
    spv_hits hits;
    const spv_status status = spv_watch_block(table, NULL, raw, size, &record, &hits, &error);
    bool fits = txs && !p->bad && !p->too_many && p->tx_count == count - 1;
    for (uint32_t i = 1; fits && i < count; i++)
        fits = p->inputs[i - 1] == txs[i].inputs;
    if (!txs)
        check_same_refusal(&error, &wanted);
    else if (status == SPV_UNDO)
        check_refused(status, &error, p->size);
    else if (status != SPV_FORMAT) /* duplicated transactions */
        CHECK(!status && (fits || p->too_many));
    for (size_t i = 0, h = 0; !status && fits && i < p->coin_count; i++) {
        size_t first = i;
        while (first && p->coins[first - 1].tx == p->coins[i].tx)
            first--;
        const spv_packed_coin coin = {p->coins[i].value, {p->undo + p->coins[i].at, p->coins[i].size}, p->coins[i].code, p->coins[i].kind};
        spv_bytes script;
        if (p->coins[i].stand_in || spv_script_of_coin(&coin, 0, room, &script, &error) || spv_table_match_script(table, script) == SPV_NONE)
            continue;
        while (h < hits.count && (!hits.hits[h].spend || hits.hits[h].position != p->coins[i].tx || hits.hits[h].n != i - first))
            h++;
        CHECK(h < hits.count && hits.hits[h].value == (int64_t)p->coins[i].value && spv_equal(hits.hits[h].script, script));
        CHECK(hits.hits[h].entry == spv_table_match_script(table, script));
        int64_t fee = 0;
        for (size_t k = first; k < p->coin_count && p->coins[k].tx == p->coins[i].tx; k++)
            fee += (int64_t)p->coins[k].value;
        size_t at = txs[p->coins[i].tx].outputs_at;
        for (uint32_t n = 0; n < txs[p->coins[i].tx].outputs; n++)
            fee -= (int64_t)spv_le64(raw + spv_next_output(raw, &at).at);
        CHECK(hits.hits[h].fee == fee && fee >= 0);
    }
    spv_hits_free(&hits);
    spv_table_free(table);
    release(memory);
    release(txs);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static plain_undo p; /* large; one thread */
    size_t block = 0;
    if (size < 4)
        return 0;
    if (data[0] & 1)
        block = (size_t)data[1] | (size_t)data[2] << 8 | (size_t)data[3] << 16;
    data += 4, size -= 4;
    block = block < size ? block : size;
    uint8_t *raw = exact_copy(data, block), *undo = exact_copy(data + block, size - block);
    memset(&p, 0, sizeof p);
    p.undo = undo;
    p.size = size - block;
    plain_read(&p);
    spv_error error;
    const spv_status status = kernel_read(&p, &error);
    if (status)
        check_refused(status, &error, p.size);
    CHECK(p.too_many || p.bad == (status != SPV_OK));
    if (block)
        check_scan(&p, raw, block);
    release(raw);
    release(undo);
    return 0;
}
