/* Template: SHA-256's compression of LANES messages, one in each lane of a vector. It needs NAME and the operations
   of hash/lanes/. */

#define ROUND(a, b, c, d, e, f, g, h, i) \
    do { \
        VECTOR t = ADD(ADD(h, ADD(SET(k[i]), w[i])), ADD(XOR3(ROTATE_RIGHT(e, 6), ROTATE_RIGHT(e, 11), ROTATE_RIGHT(e, 25)), CHOOSE(e, f, g))); \
        d = ADD(d, t); \
        h = ADD(t, ADD(XOR3(ROTATE_RIGHT(a, 2), ROTATE_RIGHT(a, 13), ROTATE_RIGHT(a, 22)), MAJORITY(a, b, c))); \
    } while (0)

#define NEXT_WORD(i) \
    do { \
        VECTOR far = w[((i) + 1) & 15], near = w[((i) + 14) & 15]; \
        VECTOR mixed = ADD(XOR3(ROTATE_RIGHT(far, 7), ROTATE_RIGHT(far, 18), RIGHT(far, 3)), XOR3(ROTATE_RIGHT(near, 17), ROTATE_RIGHT(near, 19), RIGHT(near, 10))); \
        w[i] = ADD(ADD(w[i], w[((i) + 9) & 15]), mixed); \
    } while (0)

#define EIGHT_ROUNDS(i) \
    do { \
        ROUND(a, b, c, d, e, f, g, h, (i)); \
        ROUND(h, a, b, c, d, e, f, g, (i) + 1); \
        ROUND(g, h, a, b, c, d, e, f, (i) + 2); \
        ROUND(f, g, h, a, b, c, d, e, (i) + 3); \
        ROUND(e, f, g, h, a, b, c, d, (i) + 4); \
        ROUND(d, e, f, g, h, a, b, c, (i) + 5); \
        ROUND(c, d, e, f, g, h, a, b, (i) + 6); \
        ROUND(b, c, d, e, f, g, h, a, (i) + 7); \
    } while (0)

TARGET void NAME(uint32_t *state, const uint8_t *const *data, size_t blocks) {
    for (size_t at = 0; at < 64 * blocks; at += 64) {
        VECTOR w[16];
        for (size_t i = 0; i < 16; i += 4)
            four_words(w + i, data, at + 4 * i);
        for (size_t i = 0; i < 16; i++)
            w[i] = swap_bytes(w[i]);
        VECTOR a = LOAD(state), b = LOAD(state + LANES), c = LOAD(state + 2 * LANES), d = LOAD(state + 3 * LANES);
        VECTOR e = LOAD(state + 4 * LANES), f = LOAD(state + 5 * LANES), g = LOAD(state + 6 * LANES), h = LOAD(state + 7 * LANES);
        const uint32_t *k = spv_sha256_k;
        EIGHT_ROUNDS(0);
        EIGHT_ROUNDS(8);
        for (int sixteen = 1; sixteen < 4; sixteen++) {
            k += 16;
            NEXT_WORD(0); NEXT_WORD(1); NEXT_WORD(2); NEXT_WORD(3); NEXT_WORD(4); NEXT_WORD(5); NEXT_WORD(6); NEXT_WORD(7);
            EIGHT_ROUNDS(0);
            NEXT_WORD(8); NEXT_WORD(9); NEXT_WORD(10); NEXT_WORD(11); NEXT_WORD(12); NEXT_WORD(13); NEXT_WORD(14); NEXT_WORD(15);
            EIGHT_ROUNDS(8);
        }
        STORE(state, ADD(LOAD(state), a));
        STORE(state + LANES, ADD(LOAD(state + LANES), b));
        STORE(state + 2 * LANES, ADD(LOAD(state + 2 * LANES), c));
        STORE(state + 3 * LANES, ADD(LOAD(state + 3 * LANES), d));
        STORE(state + 4 * LANES, ADD(LOAD(state + 4 * LANES), e));
        STORE(state + 5 * LANES, ADD(LOAD(state + 5 * LANES), f));
        STORE(state + 6 * LANES, ADD(LOAD(state + 6 * LANES), g));
        STORE(state + 7 * LANES, ADD(LOAD(state + 7 * LANES), h));
    }
}
