/* The type of a script, as Bitcoin Core's Solver finds it. The twin is pure/scripts.py. */
#ifndef SPV_BLOCK_SCRIPTTYPE_H
#define SPV_BLOCK_SCRIPTTYPE_H

#include "spv.h"

/* The indexes of blocktables.SCRIPT_TYPES. */
typedef enum {
    SPV_NONSTANDARD,
    SPV_PUBKEY,
    SPV_PUBKEYHASH,
    SPV_SCRIPTHASH,
    SPV_MULTISIG,
    SPV_NULLDATA,
    SPV_ANCHOR,
    SPV_WITNESS_V0_KEYHASH,
    SPV_WITNESS_V0_SCRIPTHASH,
    SPV_WITNESS_V1_TAPROOT,
    SPV_WITNESS_UNKNOWN
} spv_script_kind;

/* pure.scripts.script_type. */
spv_script_kind spv_script_type(spv_bytes script);

#endif
