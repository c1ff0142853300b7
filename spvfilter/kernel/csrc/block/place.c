#define _DEFAULT_SOURCE
#define _FILE_OFFSET_BITS 64
#include "block/place.h"

#include "block/walk.h"
#include "hash/sha256.h"

#include <sys/types.h>
#include <unistd.h>

enum { STEP = 1 << 18 }; /* bytes for one call of pread: they are still in the cache when they are XORed */

void spv_xor(uint8_t *data, size_t size, const uint8_t key[SPV_FILE_KEY_SIZE], uint64_t offset) {
    uint8_t turned[SPV_FILE_KEY_SIZE];
    for (size_t i = 0; i < SPV_FILE_KEY_SIZE; i++)
        turned[i] = key[(offset + i) % SPV_FILE_KEY_SIZE];
    uint64_t mask, word;
    memcpy(&mask, turned, sizeof mask);
    size_t at = 0;
    for (; size - at >= sizeof word; at += sizeof word) { /* compilers vectorize this loop */
        memcpy(&word, data + at, sizeof word);
        word ^= mask;
        memcpy(data + at, &word, sizeof word);
    }
    for (size_t i = 0; at + i < size; i++)
        data[at + i] ^= turned[i];
}

static bool has_key(const spv_place *place) {
    static const uint8_t none[SPV_FILE_KEY_SIZE] = {0};
    return memcmp(place->key, none, sizeof none) != 0;
}

bool spv_read_place(const spv_place *place, uint8_t *data, size_t *size) {
    const bool xored = has_key(place);
    size_t at = 0;
    while (at < place->size) {
        const size_t left = place->size - at, step = left < STEP ? left : STEP;
        const ssize_t got = pread(place->descriptor, data + at, step, (off_t)(place->offset + at));
        if (got < 0)
            return false;
        if (!got)
            break;
        if (xored)
            spv_xor(data + at, (size_t)got, place->key, place->offset + at);
        at += (size_t)got;
    }
    *size = at;
    return true;
}

bool spv_is_block_of(const spv_place *place, const uint8_t *data, size_t size) {
    uint8_t hash[32];
    if (size != place->size || size < SPV_HEADER_SIZE)
        return false;
    spv_sha256d(data, SPV_HEADER_SIZE, hash);
    return !memcmp(hash, place->hash, sizeof hash);
}
