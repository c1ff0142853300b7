#include "block/script.h"

enum { OP_1NEGATE = 0x4F, OP_1 = 0x51, OP_16 = 0x60, OP_RETURN = 0x6A, OP_CHECKSIG = 0xAC, OP_CHECKMULTISIG = 0xAE };

bool spv_is_pubkey(const uint8_t *data, size_t size) {
    if (size == 33)
        return data[0] == 2 || data[0] == 3;
    return size == 65 && (data[0] == 4 || data[0] == 6 || data[0] == 7);
}

bool spv_is_p2pk(const uint8_t *script, size_t size) {
    return (size == 35 || size == 67) && script[0] == size - 2 && script[size - 1] == OP_CHECKSIG && spv_is_pubkey(script + 1, size - 2);
}

size_t spv_multisig_keys(const uint8_t *script, size_t size, spv_bytes keys[SPV_MAX_MULTISIG_KEYS]) {
    if (size < 3 || script[size - 1] != OP_CHECKMULTISIG)
        return 0;
    if (script[0] < OP_1 || script[0] > OP_16 || script[size - 2] < OP_1 || script[size - 2] > OP_16)
        return 0;
    size_t required = script[0] - OP_1 + 1u, total = script[size - 2] - OP_1 + 1u, count = 0;
    size_t at = 1, end = size - 2;
    while (at < end) {
        uint8_t opcode = script[at];
        size_t width = opcode == 0x4C ? 1 : opcode == 0x4D ? 2 : opcode == 0x4E ? 4 : 0;
        size_t length = opcode, start = at + 1 + width;
        if (!width && opcode > 0x4B)
            return 0;
        if (width) {
            if (start > end) /* here the pure twin reads into OP_n, and the key then does not fit before OP_n */
                return 0;
            length = width == 1 ? script[at + 1] : width == 2 ? spv_le16(script + at + 1) : spv_le32(script + at + 1);
        }
        if (length > end - start || !spv_is_pubkey(script + start, length) || count == total)
            return 0;
        if (keys)
            keys[count] = (spv_bytes){script + start, length};
        count++;
        at = start + length;
    }
    return count == total && required <= total ? count : 0;
}

bool spv_pushed_number(uint8_t opcode, uint8_t *number) {
    if (opcode != OP_1NEGATE && (opcode < OP_1 || opcode > OP_16))
        return false;
    *number = opcode == OP_1NEGATE ? 0x81 : (uint8_t)(opcode - OP_1 + 1);
    return true;
}

spv_bytes spv_null_data(spv_bytes script, uint8_t *number) {
    spv_bytes push = {NULL, 0};
    size_t at = 1;
    if (script.size < 2 || script.data[0] != OP_RETURN)
        return push;
    if (spv_pushed_number(script.data[1], number))
        return (spv_bytes){number, 1};
    if (script.data[1] && script.data[1] <= 0x4E && !spv_next_push(script.data, script.size, &at, &push))
        push.size = 0;
    return push;
}
