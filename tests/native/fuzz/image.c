/* Fuzz target: a table over a damaged image. Lookups, scans and changes must read only the image, and must end.

   The input is a table, damage and a block:
   u8   number of entries. Each has u8 kind, u24 offset and u8 length of its bytes in the block.
   u8   number of edits. Each has u24 offset in the image and u8 value.
   The rest is the block. */
#include "oracle_watch.h"

#include "block/scripttype.h"
#include "watch/image.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const spv_table_key KEY = {{1, 2, 3, 5, 8, 13, 21, 34}};

typedef struct {
    const uint8_t *entries, *edits, *block; /* of the input */
    size_t entry_count, edit_count, size;  /* `size`: bytes of the block */
} input;

static bool read_input(const uint8_t *data, size_t size, input *in) {
    if (size < 2 || size < 2 + 5 * (size_t)data[0])
        return false;
    in->entry_count = data[0];
    in->entries = data + 1;
    const uint8_t *edits = in->entries + 5 * in->entry_count;
    in->edit_count = edits[0];
    in->edits = edits + 1;
    in->block = in->edits + 4 * in->edit_count;
    if ((size_t)(in->block - data) > size)
        return false;
    in->size = size - (size_t)(in->block - data);
    return true;
}

static size_t le24(const uint8_t *at) {
    return (size_t)at[0] | (size_t)at[1] << 8 | (size_t)at[2] << 16;
}

/* The entry with that number. False if the block has no bytes for it, or if a table refuses it. */
static bool entry_of(const input *in, size_t number, unsigned *kind, spv_bytes *value) {
    const uint8_t *entry = in->entries + 5 * number;
    const size_t at = le24(entry + 1), length = entry[4];
    if (at > in->size || length > in->size - at)
        return false;
    *kind = entry[0] % SPV_KINDS;
    *value = (spv_bytes){in->block + at, length};
    switch (*kind) {
    case SPV_OUTPOINT:
        return length == SPV_OUTPOINT_SIZE;
    case SPV_DATA_PREFIX:
        return length && length <= SPV_MAX_PREFIX;
    case SPV_SCRIPT_TYPE:
        return length == 1 && value->data[0] < SPV_SCRIPT_TYPES;
    default:
        return true;
    }
}

static spv_table *table_of(const input *in) {
    spv_table *table = spv_table_new();
    CHECK(table);
    for (size_t i = 0; i < in->entry_count; i++) {
        unsigned kind;
        spv_bytes value;
        uint32_t number;
        if (entry_of(in, i, &kind, &value))
            CHECK(!spv_table_add(table, kind, value, &number));
    }
    return table;
}

static uint8_t *image_of(const spv_table *table, size_t *size) {
    spv_error error;
    CHECK(!spv_image_size(table, size));
    uint8_t *image = malloc(*size);
    CHECK(image && !spv_image_write(table, &KEY, image, *size, &error));
    return image;
}

/* Looks up all entries of the input, and scans the block. */
static void use(const input *in, spv_table *table, const spv_table *genuine) {
    spv_hits hits;
    spv_error error;
    for (size_t i = 0; i < in->entry_count; i++) {
        unsigned kind;
        spv_bytes value;
        if (!entry_of(in, i, &kind, &value))
            continue;
        const uint32_t number = spv_table_find(table, kind, value);
        CHECK(!genuine || number == spv_table_find(genuine, kind, value));
        CHECK(number == SPV_NONE || number < spv_table_count(table));
    }
    for (uint32_t number = 0; number < spv_table_count(table); number++)
        CHECK(spv_table_entry(table, number).kind < SPV_KINDS);
    spv_watch_block(table, NULL, in->block, in->size, NULL, &hits, &error);
    spv_hits_free(&hits);
}

static void change(const input *in, spv_table *table) {
    uint32_t number, again;
    spv_error error;
    size_t size;
    const spv_bytes value = {(const uint8_t *)"a script of the fuzzer", 22};
    CHECK(!spv_table_add(table, SPV_SCRIPT, value, &number));
    CHECK(!table->frozen.count || memcmp(&table->key, &KEY, sizeof KEY));
    CHECK(!spv_table_add(table, SPV_SCRIPT, value, &again) && number == again);
    use(in, table, NULL);
    CHECK(!spv_image_size(table, &size));
    uint8_t *image = malloc(size);
    CHECK(image);
    spv_image_write(table, &KEY, image, size, &error);
    free(image);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    input in;
    spv_error error;
    spv_table *opened, *copy;
    if (!read_input(data, size, &in))
        return 0;
    spv_table *table = table_of(&in);
    size_t image_size;
    uint8_t *image = image_of(table, &image_size);
    CHECK(!spv_table_open((spv_bytes){image, image_size}, &opened, &error));
    use(&in, opened, table);
    spv_table_free(opened);
    for (size_t i = 0; i < in.edit_count; i++) {
        const uint8_t *edit = in.edits + 4 * i;
        image[le24(edit) % image_size] = edit[3];
    }
    if (!spv_table_open((spv_bytes){image, image_size}, &opened, &error)) {
        use(&in, opened, NULL);
        CHECK(!spv_table_copy(opened, &copy));
        change(&in, copy);
        spv_table_free(copy);
        const size_t packed = spv_pack_entries(opened, 0, spv_table_count(opened), NULL, 0);
        CHECK(packed <= (size_t)5 * spv_table_count(opened) + opened->frozen.size);
        spv_table_free(opened);
    }
    free(image);
    spv_table_free(table);
    return 0;
}
