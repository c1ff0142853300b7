/* Scripts read one operation after the other, for comparison with the kernel. After primitives.py and
   pure/blocks.py. */
#ifndef ORACLE_SCRIPT_H
#define ORACLE_SCRIPT_H

#include "block/script.h"
#include "check.h"

typedef struct {
    unsigned opcode;
    spv_bytes data; /* its data; empty if it pushes none */
    size_t end;     /* position of the next one */
} plain_operation;

/* The operation at `at`; false at the end, or if a push goes beyond it. */
bool plain_next(spv_bytes script, size_t at, plain_operation *operation);

/* The pushes of one byte or more, up to the first operation that does not parse, at most `room`. Returns their
   number. */
size_t plain_pushes(spv_bytes script, spv_bytes *pushes, size_t room);

/* Core Solver: P2PK, and bare multisig with its keys. */
bool plain_is_p2pk(spv_bytes script);
size_t plain_multisig_keys(spv_bytes script, spv_bytes keys[SPV_MAX_MULTISIG_KEYS]);

#endif
