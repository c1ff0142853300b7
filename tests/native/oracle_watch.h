/* A watch list as lists that are searched from end to end, for comparison with the kernel's table and its scan. After pure_table.py. */
#ifndef ORACLE_WATCH_H
#define ORACLE_WATCH_H

#include "check.h"
#include "watch/scan.h"

typedef struct {
    unsigned kind;
    spv_bytes value; /* not copied */
} plain_entry;

typedef struct {
    uint8_t outpoint[36];
    uint32_t entry;
    int64_t value;
    spv_bytes script; /* not copied; `at` is NULL if it is unknown */
} plain_coin;

typedef struct {
    plain_entry *entries;
    plain_coin *coins;
    size_t entry_count, coin_count, entry_room, coin_room;
} plain_table;

typedef struct {
    plain_coin coin; /* the output itself, or the one spent */
    uint8_t txid[32];
    uint32_t position, n;
    bool spend;
} plain_hit;

typedef struct {
    plain_hit *hits;
    size_t count, room;
} plain_hits;

void plain_free(plain_table *table); /* frees the contents, not the table */
uint32_t plain_find(const plain_table *table, unsigned kind, spv_bytes value);
uint32_t plain_add(plain_table *table, unsigned kind, spv_bytes value);
bool plain_is_pattern(const plain_table *table, uint32_t entry); /* a data prefix or a script type: no coin is learned */
uint32_t plain_match_script(const plain_table *table, spv_bytes script);
plain_coin *plain_find_coin(const plain_table *table, const uint8_t *outpoint);
void plain_set_coin(plain_table *table, const plain_coin *coin, bool replace);

/* Appends the hits of walked transactions. `found` may be NULL or `table`. Returns false for duplicate transactions
   and then leaves `found` unchanged. */
bool plain_scan(const plain_table *table, plain_table *found, const uint8_t *raw, const spv_tx *txs, uint32_t count, plain_hits *hits);

/* Checks that both found the same hits. `hits` refer to `raw`. */
void check_same_hits(const spv_hits *hits, const plain_hits *plain);
/* Checks that both have the same entries and coins. */
void check_same_table(const spv_table *table, const plain_table *plain);

#endif
