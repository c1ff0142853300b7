/* Template: SipHash-2-4 of blocks of messages. It needs NAME, LANES (of a vector) and TARGET, and undefines all
   three. Two vectors are computed side by side, because each round waits for the round before it. */

TARGET static void NAME(const uint64_t *words, size_t blocks, size_t count, uint64_t k0, uint64_t k1, uint64_t *hashes) {
    typedef uint64_t vector __attribute__((vector_size(8 * LANES)));
    enum { IN_BLOCK = SPV_SIP_LANES / LANES };
    const size_t vectors = blocks * IN_BLOCK;
    const vector zero = {0};
    for (size_t number = 0; number < vectors; number += 2) {
        const size_t next = number + 1 < vectors ? number + 1 : number; /* if the number is odd, the last vector is hashed twice */
        const uint64_t *one = words + number / IN_BLOCK * count * SPV_SIP_LANES + number % IN_BLOCK * LANES;
        const uint64_t *two = words + next / IN_BLOCK * count * SPV_SIP_LANES + next % IN_BLOCK * LANES;
        vector v0, v1, v2, v3, w0, w1, w2, w3, v, w;
        SPV_SIP_START(v0, v1, v2, v3, zero + k0, zero + k1);
        SPV_SIP_START(w0, w1, w2, w3, zero + k0, zero + k1);
        for (size_t i = 0; i < count; i++) {
            memcpy(&v, one + i * SPV_SIP_LANES, sizeof v);
            memcpy(&w, two + i * SPV_SIP_LANES, sizeof w);
            SPV_SIP_WORD(v0, v1, v2, v3, v);
            SPV_SIP_WORD(w0, w1, w2, w3, w);
        }
        SPV_SIP_END(v0, v1, v2, v3);
        SPV_SIP_END(w0, w1, w2, w3);
        memcpy(hashes + number * LANES, &v0, sizeof v0);
        memcpy(hashes + next * LANES, &w0, sizeof w0);
    }
}

#undef NAME
#undef LANES
#undef TARGET
