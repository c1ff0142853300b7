/* MurmurHash3 of eight keys at once with AVX2. */
#if defined(__x86_64__)
#include "hash/murmur3.h"
#include "hash/lanes/avx2.h"

#define NAME spv_murmur3_avx2
#include "hash/murmur3/lanes.h"
#endif
