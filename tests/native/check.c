#ifdef GUARDED
#define _DEFAULT_SOURCE /* mmap's MAP_ANONYMOUS */
#include <sys/mman.h>
#endif

#include "check.h"

#ifdef GUARDED

/* bytes: the size of each slot, and of the inaccessible memory after it */
enum { SLOTS = 256, ROOM = 1 << 16, STRIDE = 2 * ROOM };

static struct {
    uint8_t *memory;
    size_t count, idle[SLOTS]; /* unused slots */
} pool;

static void make_pool(void) {
    void *memory = mmap(NULL, (size_t)SLOTS * STRIDE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(memory != MAP_FAILED);
    pool.memory = memory;
    for (size_t slot = 0; slot < SLOTS; slot++) {
        CHECK(!mprotect(pool.memory + slot * STRIDE, ROOM, PROT_READ | PROT_WRITE));
        pool.idle[pool.count++] = slot;
    }
}

static void *take(size_t size) {
    if (!pool.memory)
        make_pool();
    if (size > ROOM || !pool.count)
        return malloc(size);
    return pool.memory + pool.idle[--pool.count] * STRIDE + ROOM - size;
}

void release(void *memory) {
    size_t at = (size_t)memory - (size_t)pool.memory;
    if (at < (size_t)SLOTS * STRIDE)
        pool.idle[pool.count++] = at / STRIDE;
    else
        free(memory);
}

#else

static void *take(size_t size) {
    return malloc(size ? size : 1);
}

void release(void *memory) {
    free(memory);
}

#endif

void *zeroed(size_t count, size_t size) {
    CHECK(!size || count <= SIZE_MAX / size);
    size *= count;
    void *items = take(size);
    CHECK(items);
    if (size)
        memset(items, 0, size);
    return items;
}

uint8_t *exact_copy(const uint8_t *data, size_t size) {
    uint8_t *copy = take(size);
    CHECK(copy);
    if (size)
        memcpy(copy, data, size);
    return copy;
}

bool same(const void *one, const void *other, size_t size) { /* not memcmp, whose calls libFuzzer traces */
    const uint8_t *left = one, *right = other;
    size_t at = 0;
    for (; size - at >= 8; at += 8)
        if (spv_le64(left + at) != spv_le64(right + at))
            return false;
    for (; at < size; at++)
        if (left[at] != right[at])
            return false;
    return true;
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
    release(txs);
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
