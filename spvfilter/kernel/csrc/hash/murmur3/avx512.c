/* MurmurHash3 of sixteen keys at once with AVX-512. */
#if defined(__x86_64__)
#include "hash/murmur3.h"
#include "hash/lanes/avx512.h"

#define NAME spv_murmur3_avx512
#include "hash/murmur3/lanes.h"
#endif
