/* Marks: the outputs and inputs of a block that concern a watch table in its present state. The first half of the exact scan, in one
   walk. */
#ifndef SPV_WATCH_MARKS_H
#define SPV_WATCH_MARKS_H

#include "watch/table.h"

/* The reason of a mark, and what its number stands for. */
enum {
    SPV_PAID,    /* an output: its entry */
    SPV_KNOWN,   /* an input: a coin of the table */
    SPV_EARLIER, /* an input: a coin of `found` */
    SPV_PUSHED,  /* an input: the data entry that its scriptSig pushes */
    SPV_REASONS
};

typedef struct {
    const uint8_t *at; /* the scriptPubKey, or the outpoint */
    uint32_t tx;       /* its place in the block */
    uint32_t number;
    unsigned reason;
} spv_mark;

/* In the order of the block, inputs before outputs; those of one input by reason. */
typedef struct {
    spv_mark *marks;
    size_t count, room;
    size_t *starts; /* of the transactions */
    uint32_t transactions;
} spv_marks;

/* `found` is NULL if there is none or it has no coins. The marks are to be freed even on failure. */
spv_status spv_mark_block(const spv_table *table, const spv_table *found, const uint8_t *raw, size_t size, spv_marks *marks, spv_error *error);
spv_status spv_mark_tx(const spv_table *table, const uint8_t *raw, size_t size, spv_marks *marks, spv_error *error);
void spv_marks_free(spv_marks *marks);

#endif
