/* Until bip37.c and merkle.c are there: the module must load. */
#include "bip37.h"
#include "merkle.h"

#define PENDING __attribute__((weak))

PENDING void spv_tx_matches_free(spv_tx_matches *matches) {
    (void)matches;
}
PENDING spv_status spv_bip37_scan_block(const uint8_t *raw, size_t size, const spv_bip37 *filter, spv_tx_matches *matches, spv_error *error) {
    (void)raw, (void)size, (void)filter, (void)matches, (void)error;
    return SPV_NOMEM;
}
PENDING spv_status spv_bip37_scan_tx(const uint8_t *raw, size_t size, const spv_bip37 *filter, bool *relevant, spv_error *error) {
    (void)raw, (void)size, (void)filter, (void)relevant, (void)error;
    return SPV_NOMEM;
}
PENDING void spv_merkle_root(spv_hash *hashes, size_t count, uint8_t root[32], bool *mutated) {
    (void)hashes, (void)count, (void)root, (void)mutated;
}
PENDING spv_status spv_check_block(const uint8_t *raw, size_t size, spv_error *error) {
    (void)raw, (void)size, (void)error;
    return SPV_NOMEM;
}
