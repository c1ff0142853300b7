/* SHA-256 of sixteen messages at once with AVX-512. */
#if defined(__x86_64__)
#include "hash/sha256/way.h"
#include "hash/lanes/avx512.h"

#define NAME spv_sha256_avx512_16
#include "hash/sha256/lanes.h"
#endif
