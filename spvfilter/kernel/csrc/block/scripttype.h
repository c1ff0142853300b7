/* The type of a script, as Bitcoin Core's Solver finds it. The twin is pure/scripts.py. */
#ifndef SPV_BLOCK_SCRIPTTYPE_H
#define SPV_BLOCK_SCRIPTTYPE_H

#include "spv.h"

/* values.ScriptType, and the indexes of blocktables.SCRIPT_TYPES. */
typedef enum {
    SPV_TYPE_NONSTANDARD,
    SPV_TYPE_PUBKEY,
    SPV_TYPE_PUBKEYHASH,
    SPV_TYPE_SCRIPTHASH,
    SPV_TYPE_MULTISIG,
    SPV_TYPE_WITNESS_V0_KEYHASH,
    SPV_TYPE_WITNESS_V0_SCRIPTHASH,
    SPV_TYPE_WITNESS_V1_TAPROOT,
    SPV_TYPE_ANCHOR,
    SPV_TYPE_NULLDATA,
    SPV_TYPE_WITNESS_UNKNOWN
} spv_solved;

enum { SPV_SCRIPT_TYPES = SPV_TYPE_WITNESS_UNKNOWN + 1 };

typedef struct {
    uint8_t opcode;
    spv_bytes data; /* the data that the opcode pushes */
} spv_op;

/* pure.scripts.next_op: the opcode at *at, and its data. Moves *at past it. False if there is none or if it is
   truncated. */
bool spv_next_op(spv_bytes script, size_t *at, spv_op *found);
/* pure.scripts.solve. */
spv_solved spv_solve(spv_bytes script);

#endif
