#include "block/envelope.h"

#include "block/script.h"
#include "block/scripttype.h"
#include "block/walk.h"

enum { OP_IF = 0x63, OP_ENDIF = 0x68, LAST_PUSH = 0x4E, ANNEX = 0x50 };

spv_bytes spv_leaf_script(spv_bytes witness) {
    spv_bytes last[3] = {{NULL, 0}, {NULL, 0}, {NULL, 0}}; /* the last items, the last one first */
    size_t at = 0;
    if (!witness.size)
        return last[0];
    const size_t count = spv_checked_length(witness.data, &at);
    for (size_t i = 0; i < count; i++) {
        const size_t size = spv_checked_length(witness.data, &at);
        last[2] = last[1];
        last[1] = last[0];
        last[0] = (spv_bytes){witness.data + at, size};
        at += size;
    }
    const bool has_annex = count >= 2 && last[0].size && last[0].data[0] == ANNEX;
    return last[has_annex ? 2 : 1];
}

/* The push of an opcode. */
typedef struct {
    bool is_push;   /* false for an opcode that pushes nothing */
    bool is_number;
    uint8_t number; /* the byte that OP_1NEGATE or OP_1 to OP_16 pushes, if `is_number` */
    spv_bytes data; /* else the data */
} pushed;

static pushed pushed_by(const spv_op *op) {
    pushed made = {.data = op->data};
    made.is_number = spv_pushed_number(op->opcode, &made.number);
    made.is_push = made.is_number || op->opcode <= LAST_PUSH;
    return made;
}

static size_t pushed_size(const pushed *of) {
    return of->is_number ? 1 : of->data.size;
}

static bool is_content_type(const pushed *of) {
    return of->is_number ? of->number == 1 : of->data.size == 1 && of->data.data[0] == 1;
}

/* A push of the first envelope: a tag, a value, or a part of the body. `number` is its place among the pushes. */
typedef struct {
    spv_inscription made;
    size_t number;
    bool is_type; /* the next value is the content type */
} envelope;

static void take_push(envelope *of, const pushed *push, size_t end) {
    spv_inscription *made = &of->made;
    const size_t number = of->number++;
    if (made->has_body) {
        made->body_size += pushed_size(push);
    } else if (number % 2 == 0) {
        made->has_body = !pushed_size(push);
        made->body = end;
        of->is_type = !made->has_type && is_content_type(push);
    } else if (of->is_type) {
        made->has_type = true;
        made->is_number = push->is_number;
        made->number = push->number;
        made->type = push->data;
        of->is_type = false;
    }
}

typedef enum { NONE, WHOLE, CUT } outcome;

/* pure.envelopes._envelope: the envelope after the OP_FALSE that ends at *at. */
static outcome read_envelope(spv_bytes script, size_t *at, envelope *made) {
    enum { BEFORE_IF, BEFORE_MARK, INSIDE } step = BEFORE_IF;
    while (*at < script.size) {
        size_t end = *at;
        spv_op op;
        if (!spv_next_op(script, &end, &op))
            return CUT;
        const pushed push = pushed_by(&op);
        if (step == BEFORE_IF && op.opcode != OP_IF)
            return NONE;
        if (step == BEFORE_MARK && !(op.opcode <= LAST_PUSH && op.data.size == 3 && !memcmp(op.data.data, "ord", 3)))
            return NONE;
        const size_t start = *at;
        *at = end;
        if (step != INSIDE) {
            step++;
        } else if (op.opcode == OP_ENDIF) {
            made->made.end = start;
            return WHOLE;
        } else if (push.is_push) {
            take_push(made, &push, end);
        } else {
            return NONE;
        }
    }
    return NONE;
}

void spv_find_inscription(spv_bytes script, spv_inscription *found) {
    *found = (spv_inscription){0};
    for (size_t at = 0; at < script.size;) {
        spv_op op;
        envelope next = {0};
        if (!spv_next_op(script, &at, &op)) {
            *found = (spv_inscription){0};
            return;
        }
        if (op.opcode > LAST_PUSH || op.data.size)
            continue;
        const outcome outcome = read_envelope(script, &at, &next);
        if (outcome == CUT) {
            *found = (spv_inscription){0};
            return;
        }
        if (outcome == WHOLE) {
            const uint32_t count = found->count;
            if (!count)
                *found = next.made;
            found->count = count + 1;
        }
    }
}

void spv_copy_body(spv_bytes script, const spv_inscription *found, uint8_t *to) {
    spv_op op;
    for (size_t at = found->body; at < found->end && spv_next_op(script, &at, &op);) {
        const pushed push = pushed_by(&op);
        if (push.is_number)
            *to = push.number;
        else if (push.data.size)
            memcpy(to, push.data.data, push.data.size);
        to += pushed_size(&push);
    }
}
