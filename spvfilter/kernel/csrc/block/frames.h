/* Framing of P2P messages: the envelope of 24 bytes before each payload. The twin is pure/frames.py. */
#ifndef SPV_BLOCK_FRAMES_H
#define SPV_BLOCK_FRAMES_H

#include "spv.h"

enum {
    SPV_ENVELOPE_SIZE = 24,         /* magic 4, command 12, payload length u32 LE, checksum 4 */
    SPV_MAX_PAYLOAD_SIZE = 4000000, /* protocol.MAX_PAYLOAD_SIZE */
    SPV_COMMAND_SIZE = 12
};

/* One message: its command in the envelope, without the NULs, and its payload. */
typedef struct {
    spv_bytes command, payload;
} spv_frame;

/* One step of pure.frames.sound_frames: reads the message at the head of a stream. False if it is incomplete or not
   sound. */
bool spv_sound_frame(const uint8_t *stream, size_t size, const uint8_t magic[4], spv_frame *frame);

/* The block hash (32 bytes) and the filter of a cfilter message. */
typedef struct {
    const uint8_t *block;
    spv_bytes filter;
} spv_block_filter;

/* pure.frames._basic_filter, for a message with any command: true if it is a well-formed cfilter message with a
   basic filter. */
bool spv_basic_filter(const spv_frame *frame, spv_block_filter *found);

#endif
