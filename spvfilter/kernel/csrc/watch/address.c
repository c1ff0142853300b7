#include "watch/address.h"

#include "hash/sha256.h"

enum { HASH_SIZE = 20, PAYLOAD_SIZE = 1 + HASH_SIZE + 4 /* base58check: version, hash, checksum */, CHECKSUM_CHARS = 6 };
enum { BECH32 = 1, BECH32M = 0x2BC830A3 /* residues of valid strings: BIP-173, BIP-350 */ };

/* base58check. */

static const int8_t BASE58[128] = { /* value of a digit, plus 1; 0 for other characters */
    ['1'] = 1, 2, 3, 4, 5, 6, 7, 8, 9,
    ['A'] = 10, 11, 12, 13, 14, 15, 16, 17, ['J'] = 18, 19, 20, 21, 22, ['P'] = 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33,
    ['a'] = 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, ['m'] = 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58,
};

enum { WORDS = PAYLOAD_SIZE / 4 + 1, DIGITS_AT_ONCE = 5, MOST_DIGITS = 35 /* 58^35 < 2^(32 WORDS) */ };

/* number = number * factor + addend, in little-endian words. */
static void multiply_add(uint32_t number[WORDS], uint32_t factor, uint32_t addend) {
    uint64_t carry = addend;
    for (int i = 0; i < WORDS; i++) {
        carry += (uint64_t)number[i] * factor;
        number[i] = (uint32_t)carry;
        carry >>= 32;
    }
}

static bool base58_payload(const uint8_t *text, size_t size, uint8_t payload[PAYLOAD_SIZE]) {
    size_t zeros = 0;
    while (zeros < size && text[zeros] == '1')
        zeros++;
    if (zeros == size || size - zeros > MOST_DIGITS)
        return false;
    uint32_t number[WORDS] = {0};
    for (size_t at = zeros; at < size;) {
        uint32_t factor = 1, addend = 0;
        for (int i = 0; i < DIGITS_AT_ONCE && at < size; i++, at++) {
            int digit = text[at] < 128 ? BASE58[text[at]] : 0;
            if (!digit)
                return false;
            factor *= 58;
            addend = addend * 58 + (uint32_t)digit - 1;
        }
        multiply_add(number, factor, addend);
    }
    uint8_t bytes[4 * WORDS];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(number[WORDS - 1 - i / 4] >> (24 - 8 * (i % 4)));
    size_t first = 0; /* a byte is not zero, because the first digit after the ones is not zero */
    while (!bytes[first])
        first++;
    if (zeros + sizeof bytes - first != PAYLOAD_SIZE)
        return false;
    memset(payload, 0, zeros);
    memcpy(payload + zeros, bytes + first, sizeof bytes - first);
    return true;
}

static bool base58_script(const spv_address_network *network, const uint8_t *text, size_t size, spv_script *script) {
    uint8_t payload[PAYLOAD_SIZE], digest[32];
    if (!base58_payload(text, size, payload))
        return false;
    spv_sha256d(payload, 1 + HASH_SIZE, digest);
    if (memcmp(digest, payload + 1 + HASH_SIZE, 4))
        return false;
    if (payload[0] == network->p2pkh_version) {
        memcpy(script->bytes, "\x76\xa9\x14", 3);
        memcpy(script->bytes + 3, payload + 1, HASH_SIZE);
        memcpy(script->bytes + 3 + HASH_SIZE, "\x88\xac", 2);
        script->size = 3 + HASH_SIZE + 2;
        return true;
    }
    if (payload[0] == network->p2sh_version) {
        memcpy(script->bytes, "\xa9\x14", 2);
        memcpy(script->bytes + 2, payload + 1, HASH_SIZE);
        script->bytes[2 + HASH_SIZE] = 0x87;
        script->size = 2 + HASH_SIZE + 1;
        return true;
    }
    return false;
}

/* bech32 and bech32m. */

/* value of a lower-case character, plus 1; the characters are "qpzry9x8gf2tvdw0s3jn54khce6mua7l" */
static const int8_t BECH32_VALUE[128] = {
    ['q'] = 1, ['p'] = 2, ['z'] = 3, ['r'] = 4, ['y'] = 5, ['9'] = 6, ['x'] = 7, ['8'] = 8, ['g'] = 9, ['f'] = 10, ['2'] = 11,
    ['t'] = 12, ['v'] = 13, ['d'] = 14, ['w'] = 15, ['0'] = 16, ['s'] = 17, ['3'] = 18, ['j'] = 19, ['n'] = 20, ['5'] = 21, ['4'] = 22,
    ['k'] = 23, ['h'] = 24, ['c'] = 25, ['e'] = 26, ['6'] = 27, ['m'] = 28, ['u'] = 29, ['a'] = 30, ['7'] = 31, ['l'] = 32,
};

static const uint32_t GENERATOR_SUMS[32] = { /* the sums of all subsets of the five terms of BIP-173 § Checksum */
    0x00000000, 0x3b6a57b2, 0x26508e6d, 0x1d3ad9df, 0x1ea119fa, 0x25cb4e48, 0x38f19797, 0x039bc025, 0x3d4233dd, 0x0628646f, 0x1b12bdb0,
    0x2078ea02, 0x23e32a27, 0x18897d95, 0x05b3a44a, 0x3ed9f3f8, 0x2a1462b3, 0x117e3501, 0x0c44ecde, 0x372ebb6c, 0x34b57b49, 0x0fdf2cfb,
    0x12e5f524, 0x298fa296, 0x1756516e, 0x2c3c06dc, 0x3106df03, 0x0a6c88b1, 0x09f74894, 0x329d1f26, 0x2fa7c6f9, 0x14cd914b,
};

SPV_INLINE uint32_t residue_step(uint32_t residue, unsigned value) {
    return ((residue & 0x1FFFFFF) << 5 ^ value) ^ GENERATOR_SUMS[residue >> 25];
}

bool spv_address_network_init(spv_address_network *network, uint8_t p2pkh_version, uint8_t p2sh_version, spv_bytes hrp) {
    *network = (spv_address_network){.p2pkh_version = p2pkh_version, .p2sh_version = p2sh_version, .hrp_size = hrp.size, .residue = 1};
    if (hrp.size > SPV_MAX_HRP)
        return false;
    for (size_t i = 0; i < hrp.size; i++) {
        if (hrp.data[i] < 'a' || hrp.data[i] > 'z')
            return false;
        network->hrp[i] = hrp.data[i];
        network->residue = residue_step(network->residue, hrp.data[i] >> 5);
    }
    network->residue = residue_step(network->residue, 0);
    for (size_t i = 0; i < hrp.size; i++)
        network->residue = residue_step(network->residue, hrp.data[i] & 31);
    return true;
}

/* True if the text begins with the human-readable part, in one case, and '1'. XOR with `flip` makes its letters
   lower-case. */
static bool has_hrp(const spv_address_network *network, const uint8_t *text, size_t size, uint8_t *flip) {
    if (!network->hrp_size || size <= network->hrp_size || text[network->hrp_size] != '1')
        return false;
    *flip = (text[0] ^ network->hrp[0]) & 0x20;
    for (size_t i = 0; i < network->hrp_size; i++)
        if ((text[i] ^ *flip) != network->hrp[i])
            return false;
    return true;
}

static bool segwit_script(const spv_address_network *network, const uint8_t *text, size_t size, uint8_t flip, spv_script *script) {
    const uint8_t *data = text + network->hrp_size + 1, *end = text + size;
    if (end - data < 1 + CHECKSUM_CHARS)
        return false;
    uint32_t residue = network->residue, bits = 0;
    uint8_t values[SPV_MAX_ADDRESS];
    size_t count = 0;
    for (; data != end; data++) {
        uint8_t letter = *data >= 'A' ? *data ^ flip : *data; /* a letter of the other case does not become lower-case, and has no value */
        int value = letter < 128 ? BECH32_VALUE[letter] : 0;
        if (!value)
            return false;
        values[count] = (uint8_t)(value - 1);
        residue = residue_step(residue, values[count++]);
    }
    unsigned version = values[0];
    if (version > 16 || residue != (version ? (uint32_t)BECH32M : (uint32_t)BECH32))
        return false;
    size_t quintets = count - 1 - CHECKSUM_CHARS, program = quintets * 5 / 8, left = quintets * 5 % 8;
    if (left > 4 || program < 2 || program > 40 || (!version && program != 20 && program != 32))
        return false;
    script->bytes[0] = (uint8_t)(version ? 0x50 + version : 0);
    script->bytes[1] = (uint8_t)program;
    script->size = 2;
    unsigned held = 0;
    for (size_t i = 1; i <= quintets; i++) {
        bits = bits << 5 | values[i];
        held += 5;
        if (held >= 8) {
            held -= 8;
            script->bytes[script->size++] = (uint8_t)(bits >> held);
        }
    }
    return !(bits & ((1u << held) - 1)); /* the padding must be zero */
}

/* True if address.py takes the text for a secret or an extended key because of its shape. */
static bool looks_secret(const uint8_t *text, size_t size) {
    return size == 51 || size == 52 || (size > 3 && (!memcmp(text + 1, "pub", 3) || !memcmp(text + 1, "prv", 3)));
}

bool spv_decode_address(const spv_address_network *network, const uint8_t *text, size_t size, spv_script *script) {
    uint8_t flip;
    if (!size || size > SPV_MAX_ADDRESS || looks_secret(text, size))
        return false;
    if (has_hrp(network, text, size, &flip))
        return segwit_script(network, text, size, flip, script);
    uint8_t first = text[0] | 0x20; /* a segwit address of another network may begin with such a letter; no base58 address does */
    if (first == 'b' || first == 't')
        return false;
    return base58_script(network, text, size, script);
}

/* Encoding. */

void spv_address_form_init(spv_address_form *form, uint8_t p2pkh_version, uint8_t p2sh_version, spv_bytes hrp) {
    *form = (spv_address_form){
        .p2pkh_version = p2pkh_version, .p2sh_version = p2sh_version, .fits = true, .hrp_size = hrp.size, .residue = 1,
    };
    for (size_t i = 0; i < hrp.size; i++) {
        const uint8_t letter = hrp.data[i];
        form->fits = form->fits && letter >= 33 && letter <= 126 && !(letter >= 'A' && letter <= 'Z');
        if (i < SPV_MAX_ADDRESS)
            form->hrp[i] = letter;
        form->residue = residue_step(form->residue, letter >> 5);
    }
    form->residue = residue_step(form->residue, 0);
    for (size_t i = 0; i < hrp.size; i++)
        form->residue = residue_step(form->residue, hrp.data[i] & 31);
}

enum { PARTS = MOST_DIGITS / DIGITS_AT_ONCE, FIFTH_POWER = 58 * 58 * 58 * 58 * 58 };

/* Powers of 2^32 in base 58^5, the lowest part first. */
static const uint32_t POWERS[WORDS][PARTS] = {
    {1, 0, 0, 0, 0, 0, 0},
    {356826688, 6, 0, 0, 0, 0, 0},
    {410450016, 537767569, 42, 0, 0, 0, 0},
    {357132832, 389432875, 127692781, 280, 0, 0, 0},
    {21339008, 551597588, 385795061, 324463681, 1833, 0, 0},
    {289024608, 247894721, 294005210, 3737691, 486083817, 11997, 0},
    {153715680, 413102373, 209184527, 91512303, 118408823, 646269101, 78508},
};

bool spv_base58_payload(const spv_address_form *form, spv_bytes script, uint8_t payload[SPV_BASE58_PAYLOAD]) {
    const uint8_t *at = script.data;
    if (script.size == 25 && !memcmp(at, "\x76\xa9\x14", 3) && !memcmp(at + 23, "\x88\xac", 2)) {
        payload[0] = form->p2pkh_version;
        memcpy(payload + 1, at + 3, HASH_SIZE);
        return true;
    }
    if (script.size == 23 && !memcmp(at, "\xa9\x14", 2) && at[22] == 0x87) {
        payload[0] = form->p2sh_version;
        memcpy(payload + 1, at + 2, HASH_SIZE);
        return true;
    }
    return false;
}

/* pure.address.base58check. */
static size_t base58_text(const uint8_t start[SPV_BASE58_PAYLOAD], const uint8_t *known, uint8_t text[SPV_MAX_ADDRESS]) {
    static const char DIGITS[] = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";
    uint8_t raw[4 * WORDS] = {0}, digest[32], digits[MOST_DIGITS];
    uint8_t *payload = raw + sizeof raw - PAYLOAD_SIZE;
    if (!known)
        spv_sha256d(start, SPV_BASE58_PAYLOAD, digest);
    memcpy(payload, start, SPV_BASE58_PAYLOAD);
    memcpy(payload + SPV_BASE58_PAYLOAD, known ? known : digest, 4);
    uint64_t parts[PARTS] = {0}, carry = 0; /* sums of six products of 32 and 30 bits and a small product (the first word has one byte) */
    for (size_t word = 0; word < WORDS; word++) {
        const uint8_t *at = raw + 4 * (WORDS - 1 - word);
        const uint32_t value = (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
        for (size_t part = 0; part < PARTS; part++)
            parts[part] += (uint64_t)value * POWERS[word][part];
    }
    size_t count = 0; /* number of digits; the last digit comes first */
    for (size_t part = 0; part < PARTS; part++) {
        carry += parts[part];
        uint32_t five = (uint32_t)(carry % FIFTH_POWER);
        carry /= FIFTH_POWER;
        for (int i = 0; i < DIGITS_AT_ONCE; i++, five /= 58)
            digits[count++] = (uint8_t)(five % 58);
    }
    while (count && !digits[count - 1])
        count--;
    size_t size = 0;
    for (; size < PAYLOAD_SIZE && !payload[size]; size++)
        text[size] = '1';
    while (count)
        text[size++] = (uint8_t)DIGITS[digits[--count]];
    return size;
}

/* pure.address.bech32 of a witness version and program of 2 to 40 bytes. */
static size_t segwit_text(const spv_address_form *form, uint8_t version, const uint8_t *program, size_t count, uint8_t text[SPV_MAX_ADDRESS]) {
    static const char DIGITS[] = "qpzry9x8gf2tvdw0s3jn54khce6mua7l";
    const size_t quintets = (count * 8 + 4) / 5, size = form->hrp_size + 1 + 1 + quintets + CHECKSUM_CHARS;
    if (!form->fits)
        return SPV_HRP_UNFIT;
    if (size > SPV_MAX_ADDRESS)
        return size;
    memcpy(text, form->hrp, form->hrp_size);
    uint8_t *to = text + form->hrp_size;
    *to++ = '1';
    *to++ = (uint8_t)DIGITS[version];
    uint32_t residue = residue_step(form->residue, version), bits = 0;
    unsigned held = 0;
    for (size_t at = 0, i = 0; i < quintets; i++) {
        if (held < 5) {
            bits = bits << 8 | (at < count ? program[at] : 0u);
            at++;
            held += 8;
        }
        held -= 5;
        const unsigned value = bits >> held & 31;
        *to++ = (uint8_t)DIGITS[value];
        residue = residue_step(residue, value);
    }
    for (int i = 0; i < CHECKSUM_CHARS; i++)
        residue = residue_step(residue, 0);
    residue ^= version ? (uint32_t)BECH32M : (uint32_t)BECH32;
    for (int i = CHECKSUM_CHARS; i--;)
        *to++ = (uint8_t)DIGITS[residue >> 5 * i & 31];
    return size;
}

size_t spv_encode_address(const spv_address_form *form, spv_bytes script, const uint8_t *digest, uint8_t text[SPV_MAX_ADDRESS]) {
    uint8_t payload[SPV_BASE58_PAYLOAD];
    const uint8_t *at = script.data;
    const size_t size = script.size;
    if (spv_base58_payload(form, script, payload))
        return base58_text(payload, digest, text);
    if (!form->hrp_size || size < 4 || size > SPV_MAX_ADDRESS_SCRIPT || at[1] != size - 2)
        return 0;
    if (!at[0] && (size == 22 || size == 34))
        return segwit_text(form, 0, at + 2, size - 2, text);
    if (at[0] >= 0x51 && at[0] <= 0x60) /* OP_1…OP_16 */
        return segwit_text(form, (uint8_t)(at[0] - 0x50), at + 2, size - 2, text);
    return 0;
}
