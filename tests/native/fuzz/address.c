/* Fuzz target: addresses and lines of addresses are decoded and encoded. Both directions must agree.

   The input is u8 network, then a text, lines, a payload and a script. The four share the rest of the input. */
#include "oracle_address.h"
#include "watch/addresscolumn.h"
#include "watch/lines.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST_SCRIPTS = 9 };

static void check_text(const spv_address_network *network, const char *hrp, const uint8_t *from, size_t size) {
    uint8_t *text = exact_copy(from, size);
    spv_script script;
    if (spv_decode_address(network, text, size, &script)) {
        char again[LONGEST_TEXT];
        CHECK(plain_address(network->p2pkh_version, network->p2sh_version, hrp, script.bytes, script.size, again) == size);
        bool upper = text[0] >= 'A' && text[0] <= 'Z' && (text[0] | 0x20) == hrp[0];
        for (size_t i = 0; i < size; i++)
            CHECK(text[i] == (uint8_t)(upper && again[i] >= 'a' ? again[i] - 0x20 : again[i]));
    }
    release(text);
}

/* Any bytes as a script. */
static void check_encoding(const spv_address_network *network, const char *hrp, const uint8_t *from, size_t size) {
    uint8_t *script = exact_copy(from, size), *text = zeroed(SPV_MAX_ADDRESS, 1), payload[SPV_BASE58_PAYLOAD], digest[32];
    char plain[LONGEST_TEXT];
    spv_address_form form;
    spv_address_form_init(&form, network->p2pkh_version, network->p2sh_version, (spv_bytes){(const uint8_t *)hrp, strlen(hrp)});
    const size_t length = plain_address(network->p2pkh_version, network->p2sh_version, hrp, script, size, plain);
    CHECK(spv_encode_address(&form, (spv_bytes){script, size}, NULL, text) == length && same(text, plain, length));
    if (spv_base58_payload(&form, (spv_bytes){script, size}, payload)) {
        oracle_sha256d(payload, sizeof payload, digest);
        memset(text, 0, SPV_MAX_ADDRESS);
        CHECK(spv_encode_address(&form, (spv_bytes){script, size}, digest, text) == length && same(text, plain, length));
    }
    release(text);
    release(script);
}

/* The bytes as a column of scripts, whose addresses are made in two steps. */
static void check_column(const spv_address_network *network, const char *hrp, const uint8_t *from, size_t size) {
    const size_t count = size ? 1 + from[0] % MOST_SCRIPTS : 0;
    uint8_t *scripts = exact_copy(from, size), *offsets = zeroed(count + 1, 4);
    for (size_t i = 0; i < count; i++)
        spv_put_le32(offsets + 4 * i + 4, (uint32_t)(size * (i + 1) / count));
    spv_address_form form;
    spv_address_form_init(&form, network->p2pkh_version, network->p2sh_version, (spv_bytes){(const uint8_t *)hrp, strlen(hrp)});
    spv_column column = {.layout = SPV_TEXT};
    size_t at = 0, unfit = 0, nulls = 0, end = 0;
    CHECK(!spv_add_addresses_of(&form, offsets, scripts, &at, count / 2, &column, &unfit) && at == count / 2);
    CHECK(!spv_add_addresses_of(&form, offsets, scripts, &at, count, &column, &unfit) && at == count && !unfit);
    CHECK(column.rows == count);
    for (size_t i = 0; i < count; i++) {
        char text[LONGEST_TEXT];
        const size_t start = spv_le32(offsets + 4 * i);
        const size_t length =
            plain_address(network->p2pkh_version, network->p2sh_version, hrp, scripts + start, spv_le32(offsets + 4 * i + 4) - start, text);
        nulls += !length;
        CHECK((column.validity[i / 8] >> i % 8 & 1) == (length > 0));
        CHECK(spv_le32(column.offsets + 4 * i) == end && spv_le32(column.offsets + 4 * i + 4) == end + length);
        CHECK(!length || same(column.data + end, text, length)); /* without any text, there is no data */
        end += length;
    }
    CHECK(column.nulls == nulls && column.size == end);
    spv_column_free(&column);
    release(offsets);
    release(scripts);
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
    size_t length = plain_address(network->p2pkh_version, network->p2sh_version, hrp, script.bytes, script.size, text);
    CHECK(length);
    check_encoding(network, hrp, script.bytes, script.size);
    uint8_t *exact = exact_copy((const uint8_t *)text, length);
    if (spv_decode_address(network, exact, length, &decoded))
        CHECK(decoded.size == script.size && same(decoded.bytes, script.bytes, script.size));
    else /* text that looks like a key is left to address.py */
        CHECK(length == 51 || length == 52 || !memcmp(text + 1, "pub", 3) || !memcmp(text + 1, "prv", 3));
    exact[payload[size - 1] % length] ^= 1; /* bech32 always detects one wrong letter; base58 misses one in 2^32 */
    CHECK(!spv_decode_address(network, exact, length, &decoded));
    release(exact);
}

static void check_lines(const spv_address_network *network, const uint8_t *from, size_t size) {
    uint8_t *chunk = exact_copy(from, size);
    spv_table *table = spv_table_new();
    spv_address_lines taken = {0};
    CHECK(table);
    CHECK(!spv_add_address_lines(table, network, (spv_bytes){chunk, size}, 1 + (unsigned)(size % 3), &taken));
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
    check_encoding(&network, hrp, data + 1, size - 1);
    check_column(&network, hrp, data + 1, size - 1);
    return 0;
}
