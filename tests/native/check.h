/* Helpers of the self-test and the fuzz targets: checks, memory that detects every access beyond its end, walks of
   blocks. */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>

#include "block/walk.h"

/* Stops the program, even if built with NDEBUG: libFuzzer keeps the input, and a debugger shows the place. */
#define CHECK(claim) \
    do { \
        if (!(claim)) { \
            fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #claim); \
            abort(); \
        } \
    } while (0)

/* A copy with no accessible memory after it, so that sanitizers detect an access beyond its end. With GUARDED, the
   processor detects it: the bytes end before an inaccessible page. They come from a pool, which is faster than
   malloc. */
uint8_t *exact_copy(const uint8_t *data, size_t size);
/* `count` zeroed items, without accessible memory after them. */
void *zeroed(size_t count, size_t size);
/* Frees memory that the functions of this file returned. NULL is allowed. */
void release(void *memory);
/* A complete file. Ends the program if it cannot be read. */
uint8_t *read_file(const char *path, size_t *size);
/* True if `size` bytes are equal. If `size` is 0, the pointers may be NULL. */
bool same(const void *one, const void *other, size_t size);

/* Checks that an error has an offset within `size` bytes, a field and a message. */
void check_refusal(spv_status status, const spv_error *error, size_t size);
void check_same_refusal(const spv_error *one, const spv_error *other);

/* Every transaction of a block, which the caller releases; or NULL and the error of a malformed one. */
spv_tx *walk_whole_block(const uint8_t *raw, size_t size, uint32_t *count, spv_error *error);

#endif
