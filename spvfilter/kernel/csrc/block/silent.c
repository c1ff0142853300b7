#include "block/silent.h"

enum { KEY = 33, CONTROL_BLOCK = 33, MOST_CONTROL_BLOCK = 33 + 32 * 128, NODE = 32, TAPSCRIPT = 0xC0, ANNEX = 0x50 };

static const uint8_t nums_key[32] = {
    0x50, 0x92, 0x9B, 0x74, 0xC1, 0xA0, 0x49, 0x54, 0xB7, 0x8B, 0x4B, 0x60, 0x35, 0xE9, 0x7A, 0x5E,
    0x07, 0x8A, 0x5A, 0x0F, 0x28, 0xEC, 0x96, 0xD5, 0x47, 0xBF, 0xEE, 0x9A, 0xCE, 0x80, 0x3A, 0xC0,
};

/* The number of items of a witness stack, and the last three of them, the last one first. */
typedef struct {
    size_t count;
    spv_bytes last[3];
} stack;

static stack read_stack(const uint8_t *raw, size_t *at) {
    stack read = {0};
    if (!*at)
        return read;
    read.count = spv_checked_length(raw, at);
    for (size_t i = 0; i < read.count; i++) {
        const size_t length = spv_checked_length(raw, at);
        read.last[2] = read.last[1];
        read.last[1] = read.last[0];
        read.last[0] = (spv_bytes){raw + *at, length};
        *at += length;
    }
    return read;
}

/* pure.silent._without_annex. */
static stack without_annex(stack read) {
    if (read.count > 1 && read.last[0].size && read.last[0].data[0] == ANNEX) {
        read.count--;
        read.last[0] = read.last[1];
        read.last[1] = read.last[2];
    }
    return read;
}

/* pure.silent._is_key. */
static bool is_key(spv_bytes item) {
    return item.size == KEY && (item.data[0] & ~1) == 2;
}

/* pure.silent._wraps_key_hash. */
static bool wraps_key_hash(spv_bytes script_sig) {
    return script_sig.size == 23 && !memcmp(script_sig.data, "\x16\0\x14", 3);
}

static bool is_nums(spv_bytes control_block) {
    return control_block.size >= CONTROL_BLOCK && !memcmp(control_block.data + 1, nums_key, sizeof nums_key);
}

static spv_silent_input found(spv_silent_kind kind, spv_bytes key) {
    return (spv_silent_input){.kind = kind, .key = key};
}

static spv_silent_input nothing(spv_silent_kind kind) {
    return found(kind, (spv_bytes){NULL, 0});
}

static spv_silent_input witness_key(const stack *read) {
    return read->count && is_key(read->last[0]) ? found(SPV_SILENT_KEY, read->last[0]) : nothing(SPV_SILENT_NONE);
}

static bool is_above_version_1(spv_bytes spent) {
    return spent.size >= 4 && spent.size <= 42 && spent.data[0] >= 0x52 && spent.data[0] <= 0x60 && spent.data[1] == spent.size - 2;
}

static spv_silent_input read_known(spv_bytes script_sig, stack read, spv_bytes spent) {
    if (spv_is_taproot(spent.data, spent.size)) {
        const stack rest = without_annex(read);
        const bool eligible = rest.count == 1 || (rest.count && !is_nums(rest.last[0]));
        return eligible ? found(SPV_SILENT_TAPROOT, (spv_bytes){spent.data + 2, 32}) : nothing(SPV_SILENT_NONE);
    }
    if (spent.size == 22 && !memcmp(spent.data, "\0\x14", 2))
        return witness_key(&read);
    if (spent.size == 23 && !memcmp(spent.data, "\xA9\x14", 2) && spent.data[22] == 0x87)
        return wraps_key_hash(script_sig) ? witness_key(&read) : nothing(SPV_SILENT_NONE);
    if (spent.size == 25 && !memcmp(spent.data, "\x76\xA9\x14", 3) && !memcmp(spent.data + 23, "\x88\xAC", 2)) {
        spv_silent_input hashed = found(SPV_SILENT_HASHED, script_sig);
        hashed.with = (spv_bytes){spent.data + 3, 20};
        return hashed;
    }
    return nothing(is_above_version_1(spent) ? SPV_SILENT_REFUSED : SPV_SILENT_NONE);
}

/* pure.silent._pushed_key, as the key of an input. */
static spv_silent_input pushed_key(spv_bytes script_sig) {
    const size_t signature = script_sig.data[0], key_at = signature + 2;
    if (signature >= 9 && signature <= 73 && script_sig.size == key_at + KEY && script_sig.data[key_at - 1] == KEY) {
        const spv_bytes key = {script_sig.data + key_at, KEY};
        if (is_key(key))
            return found(SPV_SILENT_KEY, key);
    }
    return nothing(SPV_SILENT_UNKNOWN);
}

static spv_silent_input guess_taproot(stack read) {
    const spv_bytes last = read.last[0];
    if (read.count == 1)
        return nothing(last.size == 64 || last.size == 65 ? SPV_SILENT_UNKNOWN : SPV_SILENT_NONE);
    const bool control = last.size >= CONTROL_BLOCK && last.size <= MOST_CONTROL_BLOCK && (last.size - CONTROL_BLOCK) % NODE == 0;
    if (!control || (last.data[0] & 0xFE) != TAPSCRIPT || is_nums(last))
        return nothing(SPV_SILENT_NONE);
    spv_silent_input path = found(SPV_SILENT_PATH, last);
    path.with = read.last[1];
    return path;
}

static spv_silent_input guess(spv_bytes script_sig, stack read) {
    if (script_sig.size) {
        if (!read.count)
            return pushed_key(script_sig);
        return wraps_key_hash(script_sig) ? witness_key(&read) : nothing(SPV_SILENT_NONE);
    }
    if (read.count == 2 && is_key(read.last[0]))
        return found(SPV_SILENT_KEY, read.last[0]);
    return read.count ? guess_taproot(without_annex(read)) : nothing(SPV_SILENT_NONE);
}

spv_silent_input spv_read_silent_input(const uint8_t *raw, const spv_item *input, size_t *witness, spv_bytes spent) {
    const spv_bytes script_sig = {raw + input->script, input->script_end - input->script};
    const stack read = read_stack(raw, witness);
    return spent.data ? read_known(script_sig, read, spent) : guess(script_sig, read);
}
