/* Silent payments: the keys that an input shows. Known forms give known keys, and random ones no read beyond the end. */
#include "block/silent.h"

#include "selftest.h"

enum { MOST_ITEMS = 5, MOST_SIZE = 4200 };

typedef struct {
    uint8_t bytes[MOST_SIZE];
    size_t size;
} text;

/* An input: its scriptSig, and the items of its witness stack. Without items there may be no stacks at all. */
typedef struct {
    text script_sig, items[MOST_ITEMS];
    size_t count;
    bool has_stack;
} shown;

static text filled(uint8_t first, size_t size) {
    text made = {.size = size};
    memset(made.bytes, 0x11, size);
    if (size)
        made.bytes[0] = first;
    return made;
}

static size_t put_text(uint8_t *to, const text *from) {
    size_t at = 0;
    if (from->size < 0xFD) {
        to[at++] = (uint8_t)from->size;
    } else {
        to[at++] = 0xFD;
        to[at++] = (uint8_t)from->size;
        to[at++] = (uint8_t)(from->size >> 8);
    }
    memcpy(to + at, from->bytes, from->size);
    return at + from->size;
}

static bool is_within(spv_bytes inner, const uint8_t *outer, size_t size) {
    return inner.data >= outer && inner.data + inner.size <= outer + size;
}

/* Reads an input from exactly its bytes, and checks what holds for any input. */
static spv_silent_kind read_input(const shown *input, const text *spent, text *key) {
    uint8_t *room = zeroed((MOST_ITEMS + 1) * (MOST_SIZE + 3) + 40, 1);
    spv_item item = {.at = 0, .script = 36};
    memcpy(room + item.script, input->script_sig.bytes, input->script_sig.size);
    size_t end = item.script_end = item.script + input->script_sig.size;
    size_t witness = input->has_stack ? end : 0;
    if (input->has_stack) {
        room[end++] = (uint8_t)input->count;
        for (size_t i = 0; i < input->count; i++)
            end += put_text(room + end, input->items + i);
    }
    uint8_t *raw = exact_copy(room, end), *script = spent ? exact_copy(spent->bytes, spent->size) : NULL;
    const spv_bytes known = {script, spent ? spent->size : 0};
    const spv_silent_input read = spv_read_silent_input(raw, &item, &witness, known);
    CHECK(witness == (input->has_stack ? end : 0));
    switch (read.kind) {
    case SPV_SILENT_TAPROOT:
        CHECK(spent && read.key.data == script + 2 && read.key.size == 32);
        break;
    case SPV_SILENT_KEY:
        CHECK(read.key.size == 33 && (read.key.data[0] == 2 || read.key.data[0] == 3) && is_within(read.key, raw, end));
        break;
    case SPV_SILENT_HASHED:
        CHECK(read.key.data == raw + item.script && read.key.size == input->script_sig.size);
        CHECK(read.with.data == script + 3 && read.with.size == 20);
        break;
    case SPV_SILENT_PATH:
        CHECK(!spent && is_within(read.key, raw, end) && is_within(read.with, raw, end));
        CHECK(read.key.size >= 33 && read.key.size % 32 == 1 && (read.key.data[0] & 0xFE) == 0xC0);
        break;
    case SPV_SILENT_UNKNOWN:
        CHECK(!spent);
        break;
    case SPV_SILENT_REFUSED:
        CHECK(spent && spent->size >= 4 && script[0] >= 0x52);
        break;
    case SPV_SILENT_NONE:
        break;
    }
    if (key && read.key.size && read.key.size <= MOST_SIZE) {
        key->size = read.key.size;
        memcpy(key->bytes, read.key.data, read.key.size);
    }
    release(script);
    release(raw);
    release(room);
    return read.kind;
}

static text program(uint8_t version, size_t size) {
    text made = filled(version, size + 2);
    made.bytes[1] = (uint8_t)size;
    return made;
}

/* The forms that wallets use. */
static void forms(void) {
    shown input = {.has_stack = true, .count = 2};
    text key = {.size = 0}, spent = program(0, 20);
    input.items[0] = filled(0x30, 71);
    input.items[1] = filled(2, 33);
    CHECK(read_input(&input, &spent, &key) == SPV_SILENT_KEY && key.size == 33 && key.bytes[0] == 2);
    CHECK(read_input(&input, NULL, NULL) == SPV_SILENT_KEY);
    input.items[1] = filled(4, 33);
    CHECK(read_input(&input, &spent, NULL) == SPV_SILENT_NONE);
    input.count = 1;
    input.items[0] = filled(9, 64);
    spent = program(0x51, 32);
    CHECK(read_input(&input, &spent, &key) == SPV_SILENT_TAPROOT && key.size == 32);
    CHECK(read_input(&input, NULL, NULL) == SPV_SILENT_UNKNOWN);
    input.count = 2; /* with an annex */
    input.items[1] = filled(0x50, 7);
    CHECK(read_input(&input, &spent, NULL) == SPV_SILENT_TAPROOT);
    input.count = 3;
    input.items[2] = filled(0xC0, 33 + 64);
    CHECK(read_input(&input, NULL, NULL) == SPV_SILENT_PATH);
    input.items[2] = filled(0xC0, 33 + 63);
    CHECK(read_input(&input, NULL, NULL) == SPV_SILENT_NONE);
    spent = program(0x52, 32);
    CHECK(read_input(&input, &spent, NULL) == SPV_SILENT_REFUSED);
    spent = program(0x51, 2); /* P2A */
    CHECK(read_input(&input, &spent, NULL) == SPV_SILENT_NONE);
    input = (shown){.has_stack = false};
    input.script_sig = filled(71, 73 + 33);
    input.script_sig.bytes[72] = 33;
    input.script_sig.bytes[73] = 3;
    CHECK(read_input(&input, NULL, &key) == SPV_SILENT_KEY && key.bytes[0] == 3);
    spent = filled(0x76, 25);
    memcpy(spent.bytes, "\x76\xA9\x14", 3);
    memcpy(spent.bytes + 23, "\x88\xAC", 2);
    CHECK(read_input(&input, &spent, NULL) == SPV_SILENT_HASHED);
    input.script_sig.size = 0;
    CHECK(read_input(&input, NULL, NULL) == SPV_SILENT_NONE);
}

static text thrown(dice *dice, const size_t *sizes, size_t count) {
    static const uint8_t firsts[] = {0, 2, 3, 4, 9, 0x16, 0x21, 0x47, 0x50, 0x51, 0x52, 0x60, 0x61, 0x76, 0xA9, 0xC0, 0xC1};
    text made = filled(firsts[roll(dice) % sizeof firsts], sizes[roll(dice) % count]);
    if (made.size > 1 && roll(dice) % 2)
        made.bytes[1] = (uint8_t)(roll(dice) % 2 ? made.size - 2 : roll(dice));
    return made;
}

static void random_inputs(void) {
    static const size_t sizes[] = {0, 1, 4, 7, 22, 23, 25, 32, 33, 34, 42, 64, 65, 97, 106, 107, 129, 33 + 32 * 128, 33 + 32 * 129};
    dice dice = {2140};
    for (size_t time = 0; time < 20000; time++) {
        shown input = {.has_stack = roll(&dice) % 4 > 0, .count = (size_t)(roll(&dice) % (MOST_ITEMS + 1))};
        input.script_sig = thrown(&dice, sizes, sizeof sizes / sizeof *sizes - 2);
        for (size_t i = 0; i < input.count; i++)
            input.items[i] = thrown(&dice, sizes, sizeof sizes / sizeof *sizes);
        const text spent = thrown(&dice, sizes, sizeof sizes / sizeof *sizes - 2);
        read_input(&input, NULL, NULL);
        if (spent.size)
            read_input(&input, &spent, NULL);
    }
}

void test_silent(void) {
    forms();
    random_inputs();
}
