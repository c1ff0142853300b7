#include "block/scripttype.h"

#include "block/script.h"

enum { OP_RETURN = 0x6A, OP_1 = 0x51, OP_16 = 0x60, OP_CHECKMULTISIG = 0xAE, MOST_KEYS = 20 };

bool spv_next_op(spv_bytes script, size_t *at, spv_op *found) {
    if (*at >= script.size)
        return false;
    const uint8_t opcode = script.data[(*at)++];
    size_t size = opcode;
    *found = (spv_op){opcode, {script.data + *at, 0}};
    if (opcode > 0x4E)
        return true;
    if (opcode > 0x4B) { /* OP_PUSHDATA1, 2, 4 */
        const size_t width = (size_t)1 << (opcode - 0x4C);
        if (script.size - *at < width)
            return false;
        const uint8_t *length = script.data + *at;
        size = width == 1 ? length[0] : width == 2 ? spv_le16(length) : spv_le32(length);
        *at += width;
    }
    if (size > script.size - *at)
        return false;
    found->data = (spv_bytes){script.data + *at, size};
    *at += size;
    return true;
}

/* pure.scripts._is_push_only. */
static bool is_push_only(spv_bytes script) {
    spv_op found;
    for (size_t at = 1; at < script.size;)
        if (!spv_next_op(script, &at, &found) || found.opcode > OP_16)
            return false;
    return true;
}

/* pure.scripts._number. */
static unsigned number(const spv_op *of) {
    enum { LARGEST_OP = OP_16 - OP_1 + 1 };
    if (of->opcode >= OP_1 && of->opcode <= OP_16)
        return of->opcode - OP_1 + 1u;
    return of->opcode == 1 && of->data.data[0] > LARGEST_OP && of->data.data[0] <= MOST_KEYS ? of->data.data[0] : 0;
}

/* pure.scripts._is_multisig. */
static bool is_multisig(spv_bytes script) {
    size_t at = 0;
    unsigned keys = 0;
    spv_op found;
    if (!script.size || script.data[script.size - 1] != OP_CHECKMULTISIG || !spv_next_op(script, &at, &found))
        return false;
    const unsigned required = number(&found);
    if (!required)
        return false;
    for (;;) {
        if (!spv_next_op(script, &at, &found))
            return false;
        if (!spv_is_pubkey(found.data.data, found.data.size))
            break;
        keys++;
    }
    return required <= keys && keys == number(&found) && at + 1 == script.size;
}

static spv_solved witness_type(spv_bytes script) {
    if (!script.data[0])
        return script.size == 22 ? SPV_TYPE_WITNESS_V0_KEYHASH : script.size == 34 ? SPV_TYPE_WITNESS_V0_SCRIPTHASH : SPV_TYPE_NONSTANDARD;
    if (script.data[0] == OP_1 && script.size == 34)
        return SPV_TYPE_WITNESS_V1_TAPROOT;
    return script.size == 4 && !memcmp(script.data, "\x51\x02\x4E\x73", 4) ? SPV_TYPE_ANCHOR : SPV_TYPE_WITNESS_UNKNOWN;
}

spv_solved spv_solve(spv_bytes script) {
    const uint8_t *data = script.data;
    const size_t size = script.size;
    if (size == 25 && !memcmp(data, "\x76\xA9\x14", 3) && data[23] == 0x88 && data[24] == 0xAC) /* no other type has this form */
        return SPV_TYPE_PUBKEYHASH;
    if (size == 23 && data[0] == 0xA9 && data[1] == 20 && data[22] == 0x87)
        return SPV_TYPE_SCRIPTHASH;
    if (size >= 4 && size <= 42 && (!data[0] || (data[0] >= OP_1 && data[0] <= OP_16)) && data[1] == size - 2)
        return witness_type(script);
    if (size && data[0] == OP_RETURN && is_push_only(script))
        return SPV_TYPE_NULLDATA;
    if (spv_is_p2pk(data, size))
        return SPV_TYPE_PUBKEY;
    return is_multisig(script) ? SPV_TYPE_MULTISIG : SPV_TYPE_NONSTANDARD;
}
