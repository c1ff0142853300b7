/* Helpers of the self-test and the fuzz targets: checks, memory that detects every access beyond its end, walking blocks. */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>

#include "block/walk.h"

/* Stops the program, also one built with NDEBUG: libFuzzer keeps the input, a debugger the place. */
#define CHECK(claim) \
    do { \
        if (!(claim)) { \
            fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #claim); \
            abort(); \
        } \
    } while (0)

/* A copy with nothing after it, so that a read or a write beyond is seen: by sanitizers, or, where GUARDED is defined, by the processor:
   there the bytes end where a page begins that may not be touched, and are taken from a pool, which is faster than malloc. */
uint8_t *exact_copy(const uint8_t *data, size_t size);
/* `count` zeroed items, with nothing after them either. */
void *zeroed(size_t count, size_t size);
/* Frees memory that the functions of this file returned; NULL is allowed. */
void release(void *memory);
/* A whole file, exactly; ends the program if it cannot be read. */
uint8_t *read_file(const char *path, size_t *size);
/* Whether `size` bytes are equal; if `size` is 0, the pointers may be NULL. */
bool same(const void *one, const void *other, size_t size);

/* Checks that an error names a place within `size` bytes, a field and a reason. */
void check_refusal(spv_status status, const spv_error *error, size_t size);
void check_same_refusal(const spv_error *one, const spv_error *other);

/* Every transaction of a block, to be released, or NULL and the error of a malformed one. */
spv_tx *walk_whole_block(const uint8_t *raw, size_t size, uint32_t *count, spv_error *error);

#endif
