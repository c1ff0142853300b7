/* Hashes against published digests, and every implementation that this machine supports against the plain one. */
#include "selftest.h"

#include "block/txid.h"
#include "hash/blake2b.h"
#include "hash/murmur3.h"
#include "hash/murmur3/x64.h"
#include "hash/sha256/way.h"
#include "hash/siphash.h"
#include "hash/siphash/many.h"

enum { LONGEST = 700 };

static void unhex(const char *hex, uint8_t *bytes, size_t size) {
    for (size_t i = 0; i < size; i++) {
        unsigned byte;
        CHECK(sscanf(hex + 2 * i, "%2x", &byte) == 1);
        bytes[i] = (uint8_t)byte;
    }
}

/* FIPS 180-2 appendix B and NIST's examples. */
static void published_sha256(void) {
    static const struct {
        const char *message;
        size_t times;
        const char *digest;
    } cases[] = {
        {"", 1, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {"abc", 1, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 1,
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
        {"abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu", 1,
            "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1"},
        {"a", 1000000, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t length = strlen(cases[i].message), size = length * cases[i].times;
        uint8_t *message = zeroed(size, 1), digest[32], wanted[32], again[32];
        for (size_t at = 0; at < size; at++)
            message[at] = (uint8_t)cases[i].message[at % length];
        unhex(cases[i].digest, wanted, 32);
        oracle_sha256(message, size, digest);
        CHECK(!memcmp(digest, wanted, 32));
        oracle_sha256(digest, 32, again);
        spv_sha256d(message, size, digest);
        CHECK(!memcmp(digest, again, 32));
        release(message);
    }
}

/* Transactions of every length, complete and without witness, by every implementation. Some numbers of them fill the
   lanes exactly, and some do not. */
static void sha256_ways(void) {
    dice dice = {180};
    uint8_t *raw = zeroed(LONGEST * 40, 1);
    spv_tx txs[64];
    spv_hash plain[2][64], got[64];
    roll_bytes(&dice, raw, LONGEST * 40);
    for (size_t first = 0; first + 40 < LONGEST; first++) {
        size_t count = 1 + first % 40;
        for (size_t i = 0; i < count; i++) {
            size_t start = LONGEST * i, size = SPV_MIN_TX_SIZE + first + (first % 3 ? i : (size_t)roll(&dice) % 30), room = size - 10;
            txs[i] = (spv_tx){.start = start, .end = start + size};
            txs[i].witness = roll(&dice) % 2 ? start + 6 + (size_t)roll(&dice) % (room + 1) : 0;
            oracle_txid(raw, txs + i, plain[0][i]);
            oracle_wtxid(raw, txs + i, plain[1][i]);
            spv_txid(raw, txs + i, got[0]);
            spv_wtxid(raw, txs + i, got[1]);
            CHECK(!memcmp(got[0], plain[0][i], 32) && !memcmp(got[1], plain[1][i], 32));
        }
        for (size_t number = 0; spv_sha256_usable(number); number++) {
            spv_hash_many(spv_sha256_usable(number), spv_stripped_tx, &(spv_txs){raw, txs}, count, got);
            CHECK(!memcmp(got, plain[0], count * 32));
            spv_hash_many(spv_sha256_usable(number), spv_whole_tx, &(spv_txs){raw, txs}, count, got);
            CHECK(!memcmp(got, plain[1], count * 32));
        }
    }
    for (size_t count = 0; count <= 64; count++) {
        const spv_hash *pairs = (const spv_hash *)(const void *)raw;
        for (size_t i = 0; i < count; i++)
            oracle_sha256d(pairs[2 * i], 64, plain[0][i]);
        for (size_t number = 0; spv_sha256_usable(number); number++) {
            spv_hash_pairs(spv_sha256_usable(number), pairs, count, got);
            CHECK(!memcmp(got, plain[0], count * 32));
            CHECK(spv_sha256_agrees(spv_sha256_usable(number)));
        }
    }
    CHECK(spv_sha256_usable(0));
    release(raw);
}

/* Core src/test/hash_tests.cpp and mmh3's tests. */
static void published_murmur3(void) {
    static const struct {
        uint32_t seed;
        const char *data;
        uint32_t hash;
    } cases[] = {
        {0, "", 0}, {0xFBA4C795, "", 0x6A396F08}, {0xFFFFFFFF, "", 0x81F16F39}, {0, "00", 0x514E28B7}, {0xFBA4C795, "00", 0xEA3F0B17},
        {0, "ff", 0xFD6CF10D}, {0, "0011", 0x16C6B7AB}, {0, "001122", 0x8EB51C3D}, {0, "00112233", 0xB4471BF8},
        {0, "0011223344", 0xE2301FA8}, {0, "001122334455", 0xFC2E4A15}, {0, "00112233445566", 0xB074502C},
        {0, "0011223344556677", 0x8034D2A0}, {0, "001122334455667788", 0xB4698DEF},
        {0x9747B28C, "48656c6c6f2c20776f726c6421", 612912314}, {0x9747B28C, "cf80cf80cf80cf80cf80cf80cf80cf80", 3581961153},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t size = strlen(cases[i].data) / 2;
        uint8_t *data = zeroed(size, 1);
        unhex(cases[i].data, data, size);
        CHECK(spv_murmur3_32(data, size, cases[i].seed) == cases[i].hash);
        CHECK(oracle_murmur3(data, size, cases[i].seed) == cases[i].hash);
        release(data);
    }
}

/* The table of Aumasson's and Bernstein's siphash24.c: the message of n bytes is 0, 1, … n - 1, the key 0, 1, … 15. */
static void published_siphash(void) {
    static const struct {
        size_t size;
        uint64_t hash;
    } cases[] = {
        {0, 0x726FDB47DD0E0E31}, {1, 0x74F839C593DC67FD}, {2, 0x0D6C8009D9A94F5A}, {3, 0x85676696D7FB7E2D}, {4, 0xCF2794E0277187B7},
        {6, 0xCBC9466E58FEE3CE}, {7, 0xAB0200F58B01D137}, {9, 0x9E0082DF0BA9E4B0}, {15, 0xA129CA6149BE45E5}, {16, 0x3F2ACC7F57C29BDB},
        {21, 0xD0F2CBB02E3B67C7}, {22, 0x93536795E3A33E88}, {24, 0xB8AD50C6F649AF94}, {36, 0x314DFFBE0815A3B4}, {63, 0x958A324CEB064572},
    };
    uint8_t key[16], message[64];
    for (uint8_t i = 0; i < 64; i++)
        message[i] = i;
    memcpy(key, message, 16);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint8_t *exact = exact_copy(message, cases[i].size);
        CHECK(spv_siphash24(exact, cases[i].size, spv_le64(key), spv_le64(key + 8)) == cases[i].hash);
        CHECK(oracle_siphash24(exact, cases[i].size, key) == cases[i].hash);
        release(exact);
    }
}

/* From mmh3's tests. */
static void published_murmur3_x64(void) {
    static const struct {
        uint32_t seed;
        const char *data;
        uint64_t hash[2];
    } cases[] = {
        {0, "", {0, 0}},
        {0, "666f6f", {0xE271865701F54561, 0x7EAF87E42BBA7D87}},
        {0x9747B28C, "48656c6c6f2c20776f726c6421", {0xEDC485D662A8392E, 0xF85E7E7631D576BA}},
        {0, "54686520717569636b2062726f776e20666f78206a756d7073206f76657220746865206c617a7920646f67", {0xE34BBC7BBC071B6C, 0x7A433CA9C49A9347}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t size = strlen(cases[i].data) / 2;
        uint8_t *data = zeroed(size, 1);
        uint64_t plain[2];
        unhex(cases[i].data, data, size);
        spv_hash128 hash = spv_murmur3_x64_128(data, size, cases[i].seed);
        oracle_murmur3_x64(data, size, cases[i].seed, plain);
        CHECK(hash.h1 == cases[i].hash[0] && hash.h2 == cases[i].hash[1]);
        CHECK(plain[0] == cases[i].hash[0] && plain[1] == cases[i].hash[1]);
        release(data);
    }
}

static void of_every_length(void) {
    dice dice = {32};
    for (size_t size = 0; size < LONGEST; size++) {
        uint8_t *data = zeroed(size, 1), key[16];
        uint64_t wide[2];
        roll_bytes(&dice, data, size);
        roll_bytes(&dice, key, 16);
        uint32_t seed = spv_le32(key);
        CHECK(spv_murmur3_32(data, size, seed) == oracle_murmur3(data, size, seed));
        CHECK(spv_siphash24(data, size, spv_le64(key), spv_le64(key + 8)) == oracle_siphash24(data, size, key));
        oracle_murmur3_x64(data, size, seed, wide);
        spv_hash128 hash = spv_murmur3_x64_128(data, size, seed);
        CHECK(hash.h1 == wide[0] && hash.h2 == wide[1]);
        release(data);
    }
}

/* Remainders by numbers of every size, and keys of every length in every implementation of MurmurHash3. */
static void murmur3_ways(void) {
    static const uint64_t edges[] = {2, 3, 5, 8, 24, 288000, UINT32_MAX / 2, UINT64_C(1) << 31, UINT32_MAX, UINT64_C(1) << 32, UINT64_C(1) << 40};
    enum { EDGES = sizeof edges / sizeof *edges, LONGEST_KEY = 130, KEYS = 4 * SPV_MURMUR3_LANES };
    dice dice = {64};
    uint8_t *data = zeroed(KEYS * LONGEST_KEY + SPV_MURMUR3_BEYOND, 1);
    const uint8_t *keys[KEYS];
    roll_bytes(&dice, data, KEYS * LONGEST_KEY);
    for (size_t i = 0; i < KEYS; i++)
        keys[i] = data + i * LONGEST_KEY;
    for (size_t round = 0; round < 20 * EDGES; round++) {
        const uint64_t bits = round < EDGES ? edges[round] : 2 + roll(&dice) % (UINT64_C(1) << (2 + round % 31));
        const spv_modulus m = spv_modulus_of(bits);
        for (uint64_t multiple = 0; multiple < 100; multiple++) {
            const uint64_t near = multiple % 2 ? roll(&dice) % (UINT64_C(1) << 32) / bits * bits : roll(&dice);
            const uint32_t hash = (uint32_t)(near - multiple % 3);
            CHECK(spv_modulo(hash, m) == hash % bits);
        }
    }
    for (size_t size = 0; size <= LONGEST_KEY; size++)
        for (size_t number = 0; spv_murmur3_usable(number); number++) {
            const spv_murmur3_way *way = spv_murmur3_usable(number);
            const uint32_t seeds[2] = {(uint32_t)roll(&dice), (uint32_t)roll(&dice)};
            const uint64_t bits = edges[size % EDGES];
            const size_t count = (1 + size % 4) * way->lanes;
            _Alignas(64) uint32_t first[KEYS], second[KEYS];
            way->hash(keys, count, size, seeds, spv_modulus_of(bits), first, second);
            for (size_t i = 0; i < count; i++) {
                CHECK(first[i] == oracle_murmur3(keys[i], size, seeds[0]) % bits);
                CHECK(second[i] == oracle_murmur3(keys[i], size, seeds[1]) % bits);
            }
        }
    CHECK(spv_murmur3_usable(0));
    release(data);
}

/* SipHash of many messages of one length, laid out word by word across the lanes. */
void test_many_siphashes(void) {
    enum { MOST_WORDS = 6, BLOCKS = 3, MESSAGES = BLOCKS * SPV_SIP_LANES };
    dice dice = {24};
    uint8_t key[16], messages[MESSAGES][8 * MOST_WORDS];
    roll_bytes(&dice, key, sizeof key);
    roll_bytes(&dice, messages[0], sizeof messages);
    for (size_t size = 0; size < 8 * MOST_WORDS; size++) {
        const size_t words = size / 8 + 1;
        uint64_t *laid_out = zeroed(MESSAGES * words, 8), *hashes = zeroed(MESSAGES, 8);
        for (size_t i = 0; i < MESSAGES; i++) {
            uint64_t *to = laid_out + i / SPV_SIP_LANES * words * SPV_SIP_LANES + i % SPV_SIP_LANES;
            for (size_t word = 0; word + 1 < words; word++)
                to[word * SPV_SIP_LANES] = spv_le64(messages[i] + 8 * word);
            to[(words - 1) * SPV_SIP_LANES] = spv_sip_last(messages[i], size);
        }
        spv_siphash24_many(laid_out, BLOCKS, words, spv_le64(key), spv_le64(key + 8), hashes);
        for (size_t i = 0; i < MESSAGES; i++)
            CHECK(hashes[i] == oracle_siphash24(messages[i], size, key));
        release(laid_out);
        release(hashes);
    }
}

/* Digests of Python's hashlib.blake2b(message, digest_size=8), in little endian. The message comes in two parts. */
static void blake2b_in_parts(void) {
    static const struct {
        size_t size;
        uint64_t hash;
    } cases[] = {
        {0, 0xb4b2797457a0a6e4},
        {1, 0x4882ead1cdd9f694},
        {3, 0x36a4a06801c279e8},
        {127, 0x1ec401c351560068},
        {128, 0x827e61b6f13dd1c2},
        {129, 0xa650536d7ae467f6},
        {255, 0xa2354ba109babe94},
        {256, 0x3c7a9d538d771a51},
        {257, 0xb69306672d53bc87},
        {1000, 0x7f5738a836a89c66},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const size_t size = cases[i].size;
        uint8_t *message = zeroed(size, 1);
        for (size_t at = 0; at < size; at++)
            message[at] = (uint8_t)(at % 251);
        for (size_t first = 0; first <= size; first++) {
            spv_blake2b hash;
            spv_blake2b_start(&hash);
            spv_blake2b_add(&hash, message, first);
            spv_blake2b_add(&hash, message + first, size - first);
            CHECK(spv_blake2b_end(&hash) == cases[i].hash);
        }
        release(message);
    }
}

void test_hashes(void) {
    blake2b_in_parts();
    published_sha256();
    sha256_ways();
    published_murmur3();
    published_murmur3_x64();
    published_siphash();
    of_every_length();
    murmur3_ways();
}
