#include "check.h"

void *zeroed(size_t count, size_t size) {
    void *items = calloc(count ? count : 1, size);
    CHECK(items);
    return items;
}

uint8_t *exact_copy(const uint8_t *data, size_t size) {
    uint8_t *copy = malloc(size ? size : 1);
    CHECK(copy);
    if (size)
        memcpy(copy, data, size);
    return copy;
}

bool same(const void *one, const void *other, size_t size) {
    return !size || !memcmp(one, other, size);
}

void check_refusal(spv_status status, const spv_error *error, size_t size) {
    CHECK(status == SPV_FORMAT);
    CHECK(error->offset <= size);
    CHECK(error->field && *error->field);
    CHECK(*error->message && memchr(error->message, 0, sizeof error->message));
}

void check_same_refusal(const spv_error *one, const spv_error *other) {
    CHECK(one->offset == other->offset);
    CHECK(!strcmp(one->field, other->field));
    CHECK(!strcmp(one->message, other->message));
}

spv_tx *walk_whole_block(const uint8_t *raw, size_t size, uint32_t *count, spv_error *error) {
    size_t at;
    spv_status status = spv_block_start(raw, size, &at, count, error);
    if (status) {
        check_refusal(status, error, size);
        return NULL;
    }
    spv_tx *txs = zeroed(*count, sizeof *txs);
    for (uint32_t i = 0; !status && i < *count; i++) {
        status = spv_walk_tx(raw, size, at, txs + i, error);
        at = txs[i].end;
    }
    if (!status)
        status = spv_block_end(size, at, error);
    if (!status)
        return txs;
    check_refusal(status, error, size);
    free(txs);
    return NULL;
}

uint8_t *read_file(const char *path, size_t *size) {
    FILE *file = fopen(path, "rb");
    if (!file) {
        perror(path);
        exit(2);
    }
    CHECK(!fseek(file, 0, SEEK_END));
    long end = ftell(file);
    CHECK(end >= 0 && !fseek(file, 0, SEEK_SET));
    *size = (size_t)end;
    uint8_t *bytes = zeroed(*size, 1);
    CHECK(fread(bytes, 1, *size, file) == *size);
    fclose(file);
    return bytes;
}
