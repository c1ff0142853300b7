#include "watch/protocols.h"

#include <string.h>

enum { SCRIPT, PUSH, RC4 };
enum { KEY = 32, MOST = 9 }; /* bytes of a key, and of the longest mark */

/* kernel.protocols.PROTOCOLS, where each row has its source. */
static const struct {
    const char *name, *mark, *next;
    uint8_t where, length, least;
    bool in_coinbase;
} PROTOCOLS[] = {
    {"witness commitment", "\x24\xaa\x21\xa9\xed", "", SCRIPT, 5, 37, true},
    {"RSK", "RSKBLOCK:", "", PUSH, 9, 41, true},
    {"Runes", "\x5d", "", SCRIPT, 1, 1, false},
    {"Omni", "omni", "", PUSH, 4, 8, false},
    {"Open Assets", "\x4f\x41\x01\x00", "", PUSH, 4, 6, false},
    {"Stacks", "X2", "[^_x$#pv", PUSH, 2, 3, false},
    {"Counterparty", "CNTRPRTY", "", RC4, 8, 8, false},
};

/* pure.tables._rc4 */
static void decrypt(const uint8_t key[KEY], const uint8_t *data, size_t size, uint8_t *made) {
    uint8_t state[256], at = 0;
    for (unsigned i = 0; i < 256; i++)
        state[i] = (uint8_t)i;
    for (unsigned i = 0; i < 256; i++) {
        at = (uint8_t)(at + state[i] + key[i % KEY]);
        const uint8_t held = state[i];
        state[i] = state[at];
        state[at] = held;
    }
    at = 0;
    for (size_t i = 0; i < size; i++) {
        const uint8_t number = (uint8_t)(i + 1);
        at = (uint8_t)(at + state[number]);
        const uint8_t held = state[number];
        state[number] = state[at];
        state[at] = held;
        made[i] = data[i] ^ state[(uint8_t)(state[number] + state[at])];
    }
}

const char *spv_protocol_of(spv_bytes script, const uint8_t *spent, bool in_coinbase) {
    uint8_t number, plain[MOST];
    spv_bytes push = {NULL, 0};
    if (script.size > 1 && !spv_pushed_number(script.data[1], &number))
        push = spv_null_data(script, &number);
    for (size_t i = 0; i < sizeof PROTOCOLS / sizeof PROTOCOLS[0]; i++) {
        const size_t length = PROTOCOLS[i].length, least = PROTOCOLS[i].least;
        spv_bytes place = PROTOCOLS[i].where == SCRIPT ? (spv_bytes){script.data + 1, script.size - 1} : push;
        if ((PROTOCOLS[i].in_coinbase && !in_coinbase) || place.size < least)
            continue;
        if (PROTOCOLS[i].where == RC4) {
            if (!spent)
                continue;
            decrypt(spent, push.data, least, plain);
            place = (spv_bytes){plain, least};
        }
        if (memcmp(place.data, PROTOCOLS[i].mark, length))
            continue;
        const char *next = PROTOCOLS[i].next;
        if (!*next || (place.size > length && place.data[length] && strchr(next, place.data[length])))
            return PROTOCOLS[i].name;
    }
    return NULL;
}
