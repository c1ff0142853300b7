/* Inscriptions in the witness of an input. The twin is pure/envelopes.py, whose docstring has the format. */
#ifndef SPV_BLOCK_ENVELOPE_H
#define SPV_BLOCK_ENVELOPE_H

#include "spv.h"

/* pure.envelopes.Inscription. */
typedef struct {
    uint32_t count;     /* 0 if there is none */
    bool has_type, has_body;
    uint8_t number;     /* the content type, if an opcode pushes it */
    bool is_number;     /* true if `number` is the content type */
    spv_bytes type;     /* the content type, unless `is_number` */
    size_t body_size;   /* bytes of the body */
    size_t body, end;   /* offsets in the script: of the pushes of the body, and of their end */
} spv_inscription;

/* pure.envelopes.leaf_script: the script in a serialized witness stack that was walked before. No data if there is
   none. */
spv_bytes spv_leaf_script(spv_bytes witness);
/* pure.envelopes.inscription_in. */
void spv_find_inscription(spv_bytes script, spv_inscription *found);
/* Writes the body, which has `body_size` bytes. */
void spv_copy_body(spv_bytes script, const spv_inscription *found, uint8_t *to);

#endif
