/* Scripts: their pushes, and the shapes that the relevance test and the watch table look for. No script is executed. */
#ifndef SPV_BLOCK_SCRIPT_H
#define SPV_BLOCK_SCRIPT_H

#include "spv.h"

/* primitives.script_pushes: the next non-empty push of the script from *at. False if there is none, or if it is
   malformed. */
SPV_INLINE bool spv_next_push(const uint8_t *script, size_t size, size_t *at, spv_bytes *push) {
    size_t cursor = *at;
    while (cursor < size) {
        uint8_t opcode = script[cursor++];
        size_t length = opcode;
        if (opcode > 0x4E || opcode == 0)
            continue;
        if (opcode > 0x4B) { /* OP_PUSHDATA1, 2, 4 */
            size_t width = (size_t)1 << (opcode - 0x4C);
            if (size - cursor < width)
                break;
            length = width == 1 ? script[cursor] : width == 2 ? spv_le16(script + cursor) : spv_le32(script + cursor);
            cursor += width;
        }
        if (length > size - cursor)
            break;
        push->data = script + cursor;
        push->size = length;
        cursor += length;
        if (length) {
            *at = cursor;
            return true;
        }
    }
    *at = size;
    return false;
}

enum { SPV_MAX_MULTISIG_KEYS = 16 };
bool spv_is_pubkey(const uint8_t *data, size_t size);   /* pure.is_pubkey */
bool spv_is_p2pk(const uint8_t *script, size_t size);   /* pure.is_p2pk */
/* pure.blocks.multisig_keys: the number of keys, 1 to 16; or 0 for any other script. `keys` may be NULL. */
size_t spv_multisig_keys(const uint8_t *script, size_t size, spv_bytes keys[SPV_MAX_MULTISIG_KEYS]);
/* pure.blocks._pushed_number: true for OP_1NEGATE and OP_1 to OP_16; `number` is then the byte that they push. */
bool spv_pushed_number(uint8_t opcode, uint8_t *number);
/* pure.blocks.null_data: the first push of an OP_RETURN output, of no bytes for any other script. `number` is the
   byte that OP_1 to OP_16 push. */
spv_bytes spv_null_data(spv_bytes script, uint8_t *number);

#endif
