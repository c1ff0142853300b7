/* Building a Golomb-coded set; the twin of pure/gcs.py's gcs_build. */
#ifndef SPV_GCS_BUILD_H
#define SPV_GCS_BUILD_H

#include "spv.h"

enum { SPV_GCS_MAX_ITEMS = 0x02000000 }; /* Core serialize.h MAX_SIZE */

/* Bytes of working memory for a build of `count` items. Allocate them together with the items: this takes fewer
   fresh pages than two allocations. */
size_t spv_gcs_room(size_t count);

/* The twin of pure.gcs.gcs_build: *built is allocated by malloc and has *size bytes; `room` is aligned to 8. Returns
   SPV_RANGE for more than SPV_GCS_MAX_ITEMS distinct items. */
spv_status spv_gcs_build(
    const spv_bytes *items, size_t count, void *room, const uint8_t key[16], unsigned p, uint64_t m, uint8_t **built, size_t *size
);

#endif
