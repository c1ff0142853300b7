#include "oracle_script.h"

enum { OP_PUSHDATA1 = 76, OP_PUSHDATA4 = 78, OP_1 = 81, OP_CHECKSIG = 172, OP_CHECKMULTISIG = 174 };

bool plain_next(spv_bytes script, size_t at, plain_operation *operation) {
    if (at >= script.size)
        return false;
    uint64_t size = 0;
    *operation = (plain_operation){.opcode = script.data[at++]};
    if (operation->opcode < OP_PUSHDATA1)
        size = operation->opcode;
    else if (operation->opcode <= OP_PUSHDATA4)
        for (unsigned i = 0; i < 1u << (operation->opcode - OP_PUSHDATA1); i++) {
            if (at == script.size)
                return false;
            size |= (uint64_t)script.data[at++] << 8 * i;
        }
    if (size > script.size - at)
        return false;
    operation->data = (spv_bytes){script.data + at, (size_t)size};
    operation->end = at + (size_t)size;
    return true;
}

size_t plain_pushes(spv_bytes script, spv_bytes *pushes, size_t room) {
    plain_operation operation;
    size_t count = 0;
    for (size_t at = 0; plain_next(script, at, &operation); at = operation.end)
        if (operation.data.size) {
            if (count < room)
                pushes[count] = operation.data;
            count++;
        }
    return count;
}

static bool is_pubkey(spv_bytes key) { /* CPubKey::GetLen of the first byte */
    static const uint8_t sizes[8] = {[2] = 33, [3] = 33, [4] = 65, [6] = 65, [7] = 65};
    return key.size && key.data[0] < 8 && key.size == sizes[key.data[0]];
}

bool plain_is_p2pk(spv_bytes script) {
    plain_operation key, check;
    return plain_next(script, 0, &key) && key.opcode < OP_PUSHDATA1 && is_pubkey(key.data) && plain_next(script, key.end, &check)
        && check.opcode == OP_CHECKSIG && check.end == script.size;
}

size_t plain_multisig_keys(spv_bytes script, spv_bytes keys[SPV_MAX_MULTISIG_KEYS]) {
    plain_operation operation;
    size_t count = 0, at = 1;
    if (!script.size || script.data[0] < OP_1 || script.data[0] >= OP_1 + SPV_MAX_MULTISIG_KEYS)
        return 0;
    const size_t required = script.data[0] - OP_1 + 1u;
    for (; plain_next(script, at, &operation) && is_pubkey(operation.data); at = operation.end) {
        if (count == SPV_MAX_MULTISIG_KEYS)
            return 0;
        keys[count++] = operation.data;
    }
    if (script.size - at != 2 || script.data[at] != OP_1 - 1 + count || script.data[at + 1] != OP_CHECKMULTISIG)
        return 0;
    return required <= count ? count : 0;
}
