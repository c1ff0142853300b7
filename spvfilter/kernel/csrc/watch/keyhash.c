#define _DEFAULT_SOURCE /* for getentropy */
#define _DARWIN_C_SOURCE
#include "watch/keyhash.h"

#include <unistd.h>
#ifdef __APPLE__
#include <sys/random.h>
#endif

bool spv_table_key_draw(spv_table_key *key) {
    return !getentropy(key->word, sizeof key->word);
}

uint64_t spv_keyed_other(const spv_table_key *key, uint64_t seed, const uint8_t *at, size_t size) {
    if (size > 40) {
        for (; size > 40; at += 24, size -= 24)
            seed = spv_mix(spv_le64(at) ^ key->word[1] ^ seed, spv_le64(at + 8) ^ key->word[2])
                + spv_mix(spv_le64(at + 16) ^ key->word[3], seed ^ key->word[4]);
        return spv_keyed_middling(key, seed, at, size);
    }
    uint64_t low = 0, high = 0;
    if (size >= 8) {
        low = spv_le64(at);
        high = spv_le64(at + size - 8);
    } else if (size >= 4) {
        low = spv_le32(at);
        high = spv_le32(at + size - 4);
    } else if (size) {
        low = (uint64_t)at[0] << 16 | (uint64_t)at[size / 2] << 8 | at[size - 1];
    }
    return spv_mix(spv_mix(low ^ key->word[1], high ^ key->word[2]) ^ seed, key->word[5]);
}
