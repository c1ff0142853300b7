#include "block/thrift.h"

enum { BOOLEAN = 2, I8, I16, I64 = 6, DOUBLE, BINARY, LIST, SET, MAP, STRUCT };
enum { LEVELS = 17, LONGEST = 10 /* bytes of the longest varint of 64 bits */ };

/* A list, a map or a struct whose end is not reached. */
typedef struct {
    bool is_struct;
    uint64_t left;     /* items of a list, keys and values of a map */
    uint8_t kinds[2];  /* of the next item, and of the one after it */
} level;

typedef struct {
    spv_bytes raw;
    size_t at, depth;
    level levels[LEVELS];
} cursor;

/* Reads a varint. A number above 64 bits becomes UINT64_MAX, which is larger than any size. */
static bool number(cursor *of, uint64_t *value) {
    *value = 0;
    for (unsigned place = 0; place < LONGEST; place++) {
        if (of->at >= of->raw.size)
            return false;
        const uint8_t byte = of->raw.data[of->at++];
        if (place == LONGEST - 1 && (byte & 0x7E))
            *value = UINT64_MAX;
        else
            *value |= (uint64_t)(byte & 0x7F) << 7 * place;
        if (byte < 0x80)
            return true;
    }
    return false;
}

static bool move(cursor *of, uint64_t size) {
    if (size > of->raw.size - of->at)
        return false;
    of->at += (size_t)size;
    return true;
}

static bool push(cursor *of, level next) {
    if (of->depth == LEVELS || (!next.is_struct && next.left > of->raw.size - of->at))
        return false;
    of->levels[of->depth++] = next;
    return true;
}

static bool push_list(cursor *of) {
    if (of->at >= of->raw.size || of->depth == LEVELS)
        return false;
    const uint8_t head = of->raw.data[of->at++], kind = head & 15;
    uint64_t count = head >> 4;
    return (count < 15 || number(of, &count)) && push(of, (level){false, count, {kind, kind}});
}

static bool push_map(cursor *of) {
    uint64_t count;
    if (of->depth == LEVELS || !number(of, &count))
        return false;
    if (!count)
        return true;
    if (count > of->raw.size - of->at || of->at >= of->raw.size)
        return false;
    const uint8_t kinds = of->raw.data[of->at++];
    if (count > of->raw.size - of->at)
        return false;
    of->levels[of->depth++] = (level){false, 2 * count, {kinds >> 4, kinds & 15}};
    return true;
}

/* Moves past a scalar, or into a list, a map or a struct. `within` is as in the reference. */
static bool enter(cursor *of, unsigned kind, bool within) {
    uint64_t value;
    switch (kind) {
    case 1:
    case BOOLEAN:
        return move(of, within);
    case I8:
        return move(of, 1);
    case I16:
    case I16 + 1:
    case I64:
        return number(of, &value);
    case DOUBLE:
        return move(of, 8);
    case BINARY:
        return number(of, &value) && move(of, value);
    case LIST:
    case SET:
        return push_list(of);
    case MAP:
        return push_map(of);
    case STRUCT:
        return push(of, (level){.is_struct = true});
    default:
        return false;
    }
}

/* Moves past the next item of the innermost level, or leaves the level. */
static bool step(cursor *of) {
    level *inner = &of->levels[of->depth - 1];
    uint64_t value;
    if (!inner->is_struct) {
        if (!inner->left) {
            of->depth--;
            return true;
        }
        const uint8_t kind = inner->kinds[0];
        inner->kinds[0] = inner->kinds[1];
        inner->kinds[1] = kind;
        inner->left--;
        return enter(of, kind, true);
    }
    if (of->at >= of->raw.size)
        return false;
    const uint8_t head = of->raw.data[of->at++];
    if (!head) {
        of->depth--;
        return true;
    }
    return (head >> 4 || number(of, &value)) && enter(of, head & 15, false);
}

bool spv_thrift_end(spv_bytes raw, unsigned kind, size_t *at) {
    cursor of = {.raw = raw, .at = *at};
    if (*at > raw.size || !enter(&of, kind, false))
        return false;
    while (of.depth)
        if (!step(&of))
            return false;
    *at = of.at;
    return true;
}
