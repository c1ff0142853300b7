/* Protocols that write into OP_RETURN outputs. The twin is kernel/protocols.py, and pure/tables.py. */
#ifndef SPV_WATCH_PROTOCOLS_H
#define SPV_WATCH_PROTOCOLS_H

#include "block/script.h"

/* pure.tables.protocol_of: the protocol of an OP_RETURN script, NULL if it has no known mark. `spent` is the txid that
   the first input spends, 32 bytes in display order, or NULL. */
const char *spv_protocol_of(spv_bytes script, const uint8_t *spent, bool in_coinbase);

#endif
