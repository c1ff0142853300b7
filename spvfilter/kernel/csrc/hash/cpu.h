/* Processor features that are detected at run time. The compiler may not assume them. */
#ifndef SPV_HASH_CPU_H
#define SPV_HASH_CPU_H

enum {
    SPV_CPU_SHA = 1,    /* SHA-NI with SSSE3 and SSE4.1, or ARMv8's SHA-2 instructions */
    SPV_CPU_AVX2 = 2,   /* AVX2, and the system saves ymm registers */
    SPV_CPU_AVX512 = 4  /* AVX-512 F, BW and DQ, and the system saves zmm registers */
};

/* The sum of the features that the machine has. They are detected once. */
unsigned spv_cpu(void);

#endif
