#include "block/frames.h"

#include "hash/sha256.h"

/* pure.frames._command: the length of the command, 0 for one that no message has. */
static size_t command_size(const uint8_t *name) {
    size_t size = SPV_COMMAND_SIZE;
    while (size && !name[size - 1])
        size--;
    for (size_t i = 0; i < size; i++)
        if (name[i] < 0x20 || name[i] >= 0x7F)
            return 0;
    return size;
}

bool spv_sound_frame(const uint8_t *stream, size_t size, const uint8_t magic[4], spv_frame *frame) {
    if (size < SPV_ENVELOPE_SIZE || memcmp(stream, magic, 4))
        return false;
    const size_t length = spv_le32(stream + 16);
    if (length > SPV_MAX_PAYLOAD_SIZE || length > size - SPV_ENVELOPE_SIZE)
        return false;
    frame->command = (spv_bytes){stream + 4, command_size(stream + 4)};
    if (!frame->command.size)
        return false;
    frame->payload = (spv_bytes){stream + SPV_ENVELOPE_SIZE, length};
    spv_hash digest;
    spv_sha256d(frame->payload.data, length, digest);
    return !memcmp(digest, stream + 20, 4);
}
