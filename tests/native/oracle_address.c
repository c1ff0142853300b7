#include "oracle_address.h"

static const char BASE58[] = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";
static const char BECH32[] = "qpzry9x8gf2tvdw0s3jn54khce6mua7l";

/* Base58 by long division, digit by digit. */
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
    CHECK(length <= 16 && size <= 40);
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

size_t plain_address(uint8_t p2pkh_version, uint8_t p2sh_version, const char *hrp, const uint8_t *script, size_t size, char text[LONGEST_TEXT]) {
    if (size == 25 && !memcmp(script, "\x76\xA9\x14", 3) && !memcmp(script + 23, "\x88\xAC", 2))
        return base58check(p2pkh_version, script + 3, text);
    if (size == 23 && !memcmp(script, "\xA9\x14", 2) && script[22] == 0x87)
        return base58check(p2sh_version, script + 2, text);
    if (!*hrp || size < 4 || size > 42 || script[1] != size - 2)
        return 0;
    if (script[0] ? script[0] <= 0x50 || script[0] > 0x60 : script[1] != 20 && script[1] != 32)
        return 0;
    return segwit(hrp, script[0] ? script[0] - 0x50u : 0, script + 2, script[1], text);
}
