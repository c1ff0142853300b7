/* SHA-256 of eight messages at once with AVX2. */
#if defined(__x86_64__)
#include "sha256_way.h"
#include "lanes_avx2.h"

#define NAME spv_sha256_avx2_8
#include "sha256_lanes.h"
#endif
