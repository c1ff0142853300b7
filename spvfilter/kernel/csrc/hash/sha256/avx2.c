/* SHA-256 of eight messages at once with AVX2. */
#if defined(__x86_64__)
#include "hash/sha256/way.h"
#include "hash/lanes/avx2.h"

#define NAME spv_sha256_avx2_8
#include "hash/sha256/lanes.h"
#endif
