/* Marks: the outputs and inputs of a block that concern a watch table in its present state. The first half of the exact scan, in one
   walk. */
#ifndef SPV_WATCH_MARKS_H
#define SPV_WATCH_MARKS_H

#include "block/undo.h"
#include "watch/table.h"

/* The reason of a mark, and what its number stands for. */
enum {
    SPV_PAID,    /* an output: its entry */
    SPV_KNOWN,   /* an input: a coin of the table */
    SPV_EARLIER, /* an input: a coin of `found` */
    SPV_SPENT,   /* an input: the entry that the script it spends matches, by the undo record */
    SPV_PUSHED,  /* an input: the data entry that its scriptSig pushes */
    SPV_REASONS
};

typedef struct {
    const uint8_t *at; /* the scriptPubKey, or the outpoint */
    uint32_t tx;       /* its place in the block */
    uint32_t number;
    uint32_t coin;     /* of an input: where in the undo its coin is, plus 1; 0 without an undo record */
    unsigned reason;
} spv_mark;

/* In the order of the block, inputs before outputs; those of one input by reason. */
typedef struct {
    spv_mark *marks;
    size_t count, room;
    size_t *starts; /* of the transactions */
    size_t *spent;  /* of the transactions: where their coins are in the undo, behind their number; NULL without an undo record */
    spv_bytes undo;
    uint32_t transactions;
} spv_marks;

/* `found` is NULL if there is none or it has no coins, and `record` if the block has none, else it is checked. A sound block with another
   block's record is refused with SPV_UNDO. The marks are to be freed even on failure. */
spv_status spv_mark_block(const spv_table *table, const spv_table *found, const uint8_t *raw, size_t size, const spv_record *record, spv_marks *marks,
                          spv_error *error);
spv_status spv_mark_tx(const spv_table *table, const uint8_t *raw, size_t size, spv_marks *marks, spv_error *error);
void spv_marks_free(spv_marks *marks);

#endif
