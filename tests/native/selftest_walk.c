/* CompactSizes in every form, and scripts with lengths of each form. */
#include "selftest.h"

static size_t put_size(uint8_t *to, unsigned width, uint64_t value) {
    if (width == 1) {
        to[0] = (uint8_t)value;
        return 1;
    }
    to[0] = width == 2 ? 0xFD : width == 4 ? 0xFE : 0xFF;
    for (unsigned i = 0; i < width; i++)
        to[1 + i] = (uint8_t)(value >> 8 * i);
    return 1 + width;
}

static unsigned shortest(uint64_t value) {
    return value < 0xFD ? 1 : value <= 0xFFFF ? 2 : value <= UINT32_MAX ? 4 : 8;
}

/* Only the shortest form is accepted, up to the limit, and only if it is complete. */
static void forms(void) {
    static const uint64_t values[] = {
        0, 1, 0xFC, 0xFD, 0xFE, 0xFF, 0x100, 0xFFFE, 0xFFFF, 0x10000, 0x10001, SPV_MAX_COMPACT_SIZE - 1, SPV_MAX_COMPACT_SIZE,
        SPV_MAX_COMPACT_SIZE + 1, UINT32_MAX, UINT64_C(1) << 32, UINT64_MAX,
    };
    static const unsigned widths[] = {1, 2, 4, 8};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        for (size_t w = 0; w < 4; w++) {
            const uint64_t value = values[i];
            const unsigned width = widths[w];
            if (width < shortest(value))
                continue;
            uint8_t bytes[16] = {0};
            const size_t size = 3 + put_size(bytes + 3, width, value);
            for (size_t left = 3; left <= size; left++) {
                uint8_t *exact = exact_copy(bytes, left);
                size_t at = 3;
                uint64_t read;
                spv_error error;
                const spv_status status = spv_compact_size(exact, left, &at, &read, "length", &error);
                if (left == size && width == shortest(value) && value <= SPV_MAX_COMPACT_SIZE) {
                    CHECK(!status && read == value && at == size);
                } else {
                    check_refusal(status, &error, left);
                    CHECK(error.offset == 3 && !strcmp(error.field, "length"));
                    CHECK(strstr(error.message, left == 3 ? "no byte" : left < size ? "more bytes" : width > shortest(value) ? "non-canonical" : "limit"));
                }
                release(exact);
            }
        }
}

/* A transaction with one input and two outputs, whose scripts have `size` bytes, is walked within bounds and again
   without checks. */
static void scripts_of(size_t size) {
    uint8_t *raw = zeroed(3 * size + 200, 1), form[9];
    const size_t width = put_size(form, shortest(size), size);
    size_t end = 5, at, script[3], item[3];
    raw[4] = 1;
    item[0] = end;
    memcpy(raw + end + 36, form, width);
    script[0] = end + 36 + width;
    end = script[0] + size + 4;
    raw[end++] = 2;
    for (size_t n = 1; n < 3; n++) {
        item[n] = end;
        memcpy(raw + end + 8, form, width);
        script[n] = end + 8 + width;
        end = script[n] + size;
    }
    end += 4;
    uint8_t *exact = exact_copy(raw, end);
    spv_tx tx;
    spv_error error;
    CHECK(!spv_parse_tx(exact, end, &tx, &error));
    CHECK(tx.inputs == 1 && tx.outputs == 2 && tx.inputs_at == item[0] && tx.outputs_at == item[1] && tx.end == end && !tx.witness);
    at = tx.inputs_at;
    spv_item read = spv_next_input(exact, &at);
    CHECK(read.at == item[0] && read.script == script[0] && read.script_end == script[0] + size && at == read.script_end + 4);
    at = tx.outputs_at;
    for (size_t n = 1; n < 3; n++) {
        read = spv_next_output(exact, &at);
        CHECK(read.at == item[n] && read.script == script[n] && read.script_end == script[n] + size && at == read.script_end);
    }
    check_refusal(spv_parse_tx(exact, end - 5, &tx, &error), &error, end - 5);
    release(exact);
    release(raw);
}

void test_walk(void) {
    static const size_t sizes[] = {0, 1, 0xFC, 0xFD, 0xFE, 0x100, 0xFFFF, 0x10000, 0x10001, 0x12345};
    forms();
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        scripts_of(sizes[i]);
}
