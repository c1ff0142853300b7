#include "block/frames.h"

#include "block/walk.h"
#include "hash/sha256.h"

/* pure.frames._command: the length of the command; 0 if it is not valid. */
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

bool spv_basic_filter(const spv_frame *frame, spv_block_filter *found) {
    static const char name[] = "cfilter";
    enum { BASIC = 0, HEAD = 1 + sizeof(spv_hash) }; /* protocol.BASIC_FILTER_TYPE; bytes before the filter's length */
    const uint8_t *payload = frame->payload.data;
    const size_t size = frame->payload.size;
    if (frame->command.size != sizeof name - 1 || memcmp(frame->command.data, name, sizeof name - 1))
        return false;
    if (size <= HEAD || payload[0] != BASIC)
        return false;
    size_t at = HEAD;
    uint64_t length;
    spv_error error;
    if (spv_compact_size(payload, size, &at, &length, "filter length", &error) || length != size - at)
        return false;
    *found = (spv_block_filter){payload + 1, {payload + at, size - at}};
    return true;
}
