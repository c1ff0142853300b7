/* Template: SipHash-2-4 of blocks of messages. It takes NAME, LANES in a vector, and TARGET; it undefines all three. */

TARGET static void NAME(const uint64_t *words, size_t blocks, size_t count, uint64_t k0, uint64_t k1, uint64_t *hashes) {
    typedef uint64_t vector __attribute__((vector_size(8 * LANES)));
    for (size_t block = 0; block < blocks; block++, words += count * SPV_SIP_LANES, hashes += SPV_SIP_LANES) {
        for (size_t lane = 0; lane < SPV_SIP_LANES; lane += LANES) {
            const vector zero = {0};
            vector v0, v1, v2, v3, word;
            SPV_SIP_START(v0, v1, v2, v3, zero + k0, zero + k1);
            for (size_t i = 0; i < count; i++) {
                memcpy(&word, words + i * SPV_SIP_LANES + lane, sizeof word);
                SPV_SIP_WORD(v0, v1, v2, v3, word);
            }
            SPV_SIP_END(v0, v1, v2, v3);
            memcpy(hashes + lane, &v0, sizeof v0);
        }
    }
}

#undef NAME
#undef LANES
#undef TARGET
