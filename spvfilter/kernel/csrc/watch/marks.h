/* Marks: the outputs and inputs of a block that match a watch table in its current state. They are the first half of
   the exact scan, in one walk. */
#ifndef SPV_WATCH_MARKS_H
#define SPV_WATCH_MARKS_H

#include "block/undo.h"
#include "watch/table.h"

/* The reason of a mark. The comments say what its number stands for. */
enum {
    SPV_PAID,    /* an output: its entry */
    SPV_KNOWN,   /* an input: a coin of the table */
    SPV_EARLIER, /* an input: a coin of `found` */
    SPV_SPENT,   /* an input: the entry that matches the script that it spends, by the undo record */
    SPV_PUSHED,  /* an input: the data entry that its scriptSig pushes */
    SPV_REASONS
};

typedef struct {
    const uint8_t *at; /* the scriptPubKey of an output, or the outpoint of an input */
    uint32_t tx;       /* number of the transaction in the block */
    uint32_t number;
    uint32_t coin;     /* of an input: offset of its coin in the undo, plus 1; 0 without an undo record */
    unsigned reason;
} spv_mark;

/* Marks in the order of the block, inputs before outputs. The marks of one input are in the order of their reasons. */
typedef struct {
    spv_mark *marks;
    size_t count, room;
    size_t *starts; /* offsets of the transactions */
    size_t *spent;  /* for each transaction: offset of its coins in the undo, after their number; NULL without an undo record */
    spv_bytes undo;
    uint32_t transactions;
} spv_marks;

/* Makes the marks of a block. `found` is NULL if there is none or it has no coins. `record` is NULL if the block has
   none; otherwise it has been checked. A sound block with the record of another block fails with SPV_UNDO. The
   caller frees the marks even after a failure. */
spv_status spv_mark_block(const spv_table *table, const spv_table *found, const uint8_t *raw, size_t size, const spv_record *record, spv_marks *marks,
                          spv_error *error);
spv_status spv_mark_tx(const spv_table *table, const uint8_t *raw, size_t size, spv_marks *marks, spv_error *error);
void spv_marks_free(spv_marks *marks);

#endif
