/* Processor features detected at run time, beyond those that the compiler may assume. */
#ifndef SPV_HASH_CPU_H
#define SPV_HASH_CPU_H

enum {
    SPV_CPU_SHA = 1,    /* SHA-NI with SSSE3 and SSE4.1, or ARMv8's SHA-2 instructions */
    SPV_CPU_AVX2 = 2,   /* and the system saves ymm registers */
    SPV_CPU_AVX512 = 4  /* F, BW and DQ, and the system saves zmm registers */
};

/* The sum of the features present; detected once, then remembered. */
unsigned spv_cpu(void);

#endif
