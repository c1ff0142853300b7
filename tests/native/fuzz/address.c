/* Fuzz target: decoding addresses and lines of them. What is decoded encodes to the same text; what is encoded here is decoded. The input
   is u8 network, then a text, lines, and a payload to encode: all of what follows, three times. */
#include "oracle.h"
#include "watch/lines.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { LONGEST_TEXT = 120 };

static const char BASE58[] = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";
static const char BECH32[] = "qpzry9x8gf2tvdw0s3jn54khce6mua7l";

/* Base58 by long division, one digit after the other. */
static size_t base58(const uint8_t *bytes, size_t size, char *text) {
    uint8_t number[64];
    char reversed[LONGEST_TEXT];
    size_t digits = 0, zeros = 0;
    memcpy(number, bytes, size);
    while (zeros < size && !bytes[zeros])
        zeros++;
    for (bool left = zeros < size; left; digits++) {
        unsigned rest = 0;
        left = false;
        for (size_t i = 0; i < size; i++) {
            unsigned value = rest << 8 | number[i];
            number[i] = (uint8_t)(value / 58);
            rest = value % 58;
            left |= number[i] > 0;
        }
        reversed[digits] = BASE58[rest];
    }
    memset(text, '1', zeros);
    for (size_t i = 0; i < digits; i++)
        text[zeros + i] = reversed[digits - 1 - i];
    return zeros + digits;
}

static size_t base58check(uint8_t version, const uint8_t *hash, char *text) {
    uint8_t payload[25] = {version}, digest[32];
    memcpy(payload + 1, hash, 20);
    oracle_sha256d(payload, 21, digest);
    memcpy(payload + 21, digest, 4);
    return base58(payload, 25, text);
}

static uint32_t polymod(const uint8_t *values, size_t count) { /* BIP-173's reference */
    static const uint32_t generator[] = {0x3B6A57B2, 0x26508E6D, 0x1EA119FA, 0x3D4233DD, 0x2A1462B3};
    uint32_t check = 1;
    for (size_t i = 0; i < count; i++) {
        uint32_t top = check >> 25;
        check = (check & 0x1FFFFFF) << 5 ^ values[i];
        for (size_t bit = 0; bit < 5; bit++)
            check ^= top >> bit & 1 ? generator[bit] : 0;
    }
    return check;
}

static size_t segwit(const char *hrp, unsigned version, const uint8_t *program, size_t size, char *text) {
    uint8_t values[200] = {0};
    const size_t length = strlen(hrp);
    size_t count = 0, at = 0;
    CHECK(length <= SPV_MAX_HRP && size <= 40);
    for (size_t i = 0; i < length; i++)
        values[count++] = (uint8_t)(hrp[i] >> 5);
    values[count++] = 0;
    for (size_t i = 0; i < length; i++)
        values[count++] = hrp[i] & 31;
    size_t first = count;
    values[count++] = (uint8_t)version;
    for (size_t bit = 0; bit < 8 * size; bit += 5) {
        unsigned value = 0;
        for (size_t i = bit; i < bit + 5; i++)
            value = value << 1 | (i < 8 * size ? program[i / 8] >> (7 - i % 8) & 1u : 0u);
        values[count++] = (uint8_t)value;
    }
    uint32_t check = polymod(values, count + 6) ^ (version ? 0x2BC830A3 : 1);
    for (size_t i = 0; i < 6; i++)
        values[count++] = check >> (25 - 5 * i) & 31;
    memcpy(text, hrp, length);
    at = length;
    text[at++] = '1';
    for (size_t i = first; i < count; i++)
        text[at++] = BECH32[values[i]];
    return at;
}

static size_t encode(const spv_address_network *network, const char *hrp, const spv_script *script, char *text) {
    const uint8_t *bytes = script->bytes;
    if (script->size == 25 && !memcmp(bytes, "\x76\xA9\x14", 3) && !memcmp(bytes + 23, "\x88\xAC", 2))
        return base58check(network->p2pkh_version, bytes + 3, text);
    if (script->size == 23 && !memcmp(bytes, "\xA9\x14", 2) && bytes[22] == 0x87)
        return base58check(network->p2sh_version, bytes + 2, text);
    CHECK(script->size >= 4 && script->size <= 42 && bytes[1] == script->size - 2);
    CHECK(bytes[0] ? bytes[0] > 0x50 && bytes[0] <= 0x60 : bytes[1] == 20 || bytes[1] == 32);
    return segwit(hrp, bytes[0] ? bytes[0] - 0x50u : 0, bytes + 2, bytes[1], text);
}

static void check_text(const spv_address_network *network, const char *hrp, const uint8_t *from, size_t size) {
    uint8_t *text = exact_copy(from, size);
    spv_script script;
    if (spv_decode_address(network, text, size, &script)) {
        char again[LONGEST_TEXT];
        CHECK(encode(network, hrp, &script, again) == size);
        bool upper = text[0] >= 'A' && text[0] <= 'Z' && (text[0] | 0x20) == hrp[0];
        for (size_t i = 0; i < size; i++)
            CHECK(text[i] == (uint8_t)(upper && again[i] >= 'a' ? again[i] - 0x20 : again[i]));
    }
    release(text);
}

static void check_script(const spv_address_network *network, const char *hrp, const uint8_t *payload, size_t size) {
    spv_script script = {.size = 25}, decoded;
    char text[LONGEST_TEXT];
    if (size < 22)
        return;
    if (payload[0] == 17) {
        memcpy(script.bytes, "\x76\xA9\x14", 3);
        memcpy(script.bytes + 3, payload + 1, 20);
        memcpy(script.bytes + 23, "\x88\xAC", 2);
    } else if (payload[0] == 18) {
        memcpy(script.bytes, "\xA9\x14", 2);
        memcpy(script.bytes + 2, payload + 1, 20);
        script.bytes[22] = 0x87;
        script.size = 23;
    } else {
        size_t most = size - 1 < 40 ? size - 1 : 40, program = payload[0] % 17 ? most : size > 32 ? 32 : 20;
        script.bytes[0] = (uint8_t)(payload[0] % 17 ? 0x50 + payload[0] % 17 : 0);
        script.bytes[1] = (uint8_t)program;
        memcpy(script.bytes + 2, payload + 1, program);
        script.size = program + 2;
    }
    size_t length = encode(network, hrp, &script, text);
    uint8_t *exact = exact_copy((const uint8_t *)text, length);
    if (spv_decode_address(network, exact, length, &decoded))
        CHECK(decoded.size == script.size && same(decoded.bytes, script.bytes, script.size));
    else /* text that looks like a key is left to address.py */
        CHECK(length == 51 || length == 52 || !memcmp(text + 1, "pub", 3) || !memcmp(text + 1, "prv", 3));
    exact[payload[size - 1] % length] ^= 1; /* one wrong letter never goes unnoticed in bech32, and once in 2^32 in base58 */
    CHECK(!spv_decode_address(network, exact, length, &decoded));
    release(exact);
}

static void check_lines(const spv_address_network *network, const uint8_t *from, size_t size) {
    uint8_t *chunk = exact_copy(from, size);
    spv_table *table = spv_table_new();
    spv_address_lines taken = {0};
    CHECK(table);
    CHECK(!spv_add_address_lines(table, network, (spv_bytes){chunk, size}, &taken));
    CHECK(taken.consumed <= size);
    size_t at = 0, labels = 0;
    for (size_t line = 0; line < taken.lines; line++) {
        spv_script script;
        const uint8_t *end = memchr(chunk + at, '\n', taken.consumed - at), *comma = NULL;
        CHECK(end);
        size_t length = (size_t)(end - (chunk + at)), text = length;
        if (length && chunk[at + length - 1] == '\r')
            text = --length;
        if (length)
            comma = memchr(chunk + at, ',', length);
        if (comma)
            text = (size_t)(comma - (chunk + at));
        CHECK(spv_decode_address(network, chunk + at, text, &script));
        uint32_t entry = spv_table_find(table, SPV_SCRIPT, (spv_bytes){script.bytes, script.size});
        CHECK(entry != SPV_NONE);
        if (labels < taken.count && comma && taken.labels[labels].text.data > chunk + at && taken.labels[labels].text.data <= end) {
            const spv_label *label = taken.labels + labels++;
            CHECK(label->text.size && label->text.data + label->text.size <= end && label->entry == entry);
        }
        at = (size_t)(end + 1 - chunk);
    }
    CHECK(at == taken.consumed && labels == taken.count && table->entries.count <= taken.lines);
    spv_address_lines_free(&taken);
    spv_table_free(table);
    release(chunk);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const struct {
        uint8_t p2pkh, p2sh;
        const char *hrp;
    } networks[] = {{0, 5, "bc"}, {111, 196, "tb"}, {111, 196, "bcrt"}};
    spv_address_network network;
    if (!size)
        return 0;
    const char *hrp = networks[data[0] % 3].hrp;
    CHECK(spv_address_network_init(&network, networks[data[0] % 3].p2pkh, networks[data[0] % 3].p2sh, (spv_bytes){(const uint8_t *)hrp, strlen(hrp)}));
    check_text(&network, hrp, data + 1, size - 1);
    check_lines(&network, data + 1, size - 1);
    check_script(&network, hrp, data + 1, size - 1);
    return 0;
}
