/* MurmurHash3 of sixteen keys at once with AVX-512. */
#if defined(__x86_64__)
#include "murmur3.h"
#include "lanes_avx512.h"

#define NAME spv_murmur3_avx512
#include "murmur3_lanes.h"
#endif
