#include "watch/lines.h"

#include "array.h"

enum { MOST_LINE = 1000 /* bytes of a line; watch/textfile.py handles longer lines and has its own limit */ };

/* The size in bytes of the UTF-8 character at `at`, by the table of Unicode § 3.9 (no surrogates, no overlong
   forms). It is 0 for malformed bytes and for characters that a label must not contain: control characters, line and
   paragraph separators. */
static size_t label_character(const uint8_t *at, size_t left) {
    uint8_t first = at[0];
    if (first < 0x80)
        return first >= 0x20 && first != 0x7F;
    size_t size = first < 0xC2 ? 0 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : first < 0xF5 ? 4 : 0;
    if (!size || left < size)
        return 0;
    for (size_t i = 1; i < size; i++)
        if ((at[i] & 0xC0) != 0x80)
            return 0;
    bool control = first == 0xC2 && at[1] < 0xA0;
    bool separator = first == 0xE2 && at[1] == 0x80 && (at[2] == 0xA8 || at[2] == 0xA9);
    bool overlong = (first == 0xE0 && at[1] < 0xA0) || (first == 0xF0 && at[1] < 0x90);
    bool beyond = (first == 0xED && at[1] > 0x9F) || (first == 0xF4 && at[1] > 0x8F); /* surrogates; above U+10FFFF */
    return control || separator || overlong || beyond ? 0 : size;
}

static bool is_label(spv_bytes label) {
    for (size_t at = 0, step; at < label.size; at += step)
        if (!(step = label_character(label.data + at, label.size - at)))
            return false;
    return true;
}

static bool keep_label(spv_address_lines *taken, spv_bytes label, uint32_t entry) {
    spv_label *labels = spv_array_grown(taken->labels, taken->count, &taken->room, sizeof *labels);
    if (!labels)
        return false;
    taken->labels = labels;
    labels[taken->count++] = (spv_label){label, entry};
    return true;
}

spv_status spv_add_address_lines(spv_table *table, const spv_address_network *network, spv_bytes chunk, spv_address_lines *taken) {
    const uint8_t *at = chunk.data, *end = chunk.data + chunk.size, *newline;
    *taken = (spv_address_lines){0};
    while ((newline = memchr(at, '\n', (size_t)(end - at)))) {
        size_t size = (size_t)(newline - at);
        if (size > MOST_LINE)
            break;
        size -= size && at[size - 1] == '\r';
        const uint8_t *comma = memchr(at, ',', size);
        spv_bytes label = {at + size, 0};
        if (comma)
            label = (spv_bytes){comma + 1, (size_t)(at + size - comma) - 1};
        spv_script script;
        if (!spv_decode_address(network, at, size - label.size - (comma ? 1 : 0), &script) || !is_label(label))
            break;
        uint32_t entry;
        spv_status status = spv_table_add(table, SPV_SCRIPT, (spv_bytes){script.bytes, script.size}, &entry);
        if (!status && label.size && !keep_label(taken, label, entry))
            status = SPV_NOMEM;
        if (status)
            return status;
        at = newline + 1;
        taken->lines++;
    }
    taken->consumed = (size_t)(at - chunk.data);
    return SPV_OK;
}

void spv_address_lines_free(spv_address_lines *taken) {
    free(taken->labels);
}
