/* Silent payments (BIP-352): the key that an input of a transaction shows. The twin is pure/silent.py. */
#ifndef SPV_BLOCK_SILENT_H
#define SPV_BLOCK_SILENT_H

#include "block/walk.h"

typedef enum {
    SPV_SILENT_NONE,    /* not eligible, or no key */
    SPV_SILENT_TAPROOT, /* `key`: 32 bytes of the spent output */
    SPV_SILENT_KEY,     /* `key`: 33 bytes */
    SPV_SILENT_HASHED,  /* `key`: the scriptSig; `with`: the hash of the key */
    SPV_SILENT_PATH,    /* `key`: the control block; `with`: the script */
    SPV_SILENT_UNKNOWN, /* it may be eligible */
    SPV_SILENT_REFUSED  /* it makes the whole transaction ineligible */
} spv_silent_kind;

typedef struct {
    spv_silent_kind kind;
    spv_bytes key, with;
} spv_silent_input;

/* pure.silent._Inputs.read and guess: the input whose witness stack starts at *witness, which moves past the stack. If
   *witness is 0, there are no stacks. The spent script is not known if `spent.data` is NULL. The transaction was walked
   before. */
spv_silent_input spv_read_silent_input(const uint8_t *raw, const spv_item *input, size_t *witness, spv_bytes spent);

/* True for a P2TR script. */
SPV_INLINE bool spv_is_taproot(const uint8_t *script, size_t size) {
    return size == 34 && script[0] == 0x51 && script[1] == 0x20;
}

#endif
