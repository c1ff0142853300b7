/* Template: MurmurHash3 x86_32 of LANES keys, one in each lane of a vector. It needs NAME and the operations of
   hash/lanes/. The words of the keys are mixed once for both seeds. */

TARGET SPV_INLINE VECTOR mix(VECTOR word) {
    return MULTIPLY(ROTATE_LEFT(MULTIPLY(word, SET(0xcc9e2d51)), 15), SET(0x1b873593));
}

TARGET SPV_INLINE VECTOR step(VECTOR hash, VECTOR mixed) {
    VECTOR turned = ROTATE_LEFT(XOR(hash, mixed), 13);
    return ADD(LEFT(turned, 2), ADD(turned, SET(0xe6546b64)));
}

TARGET SPV_INLINE VECTOR finish(VECTOR hash, size_t size, spv_modulus m) {
    hash = XOR(hash, SET(size));
    hash = MULTIPLY(XOR(hash, RIGHT(hash, 16)), SET(0x85ebca6b));
    hash = MULTIPLY(XOR(hash, RIGHT(hash, 13)), SET(0xc2b2ae35));
    hash = XOR(hash, RIGHT(hash, 16));
    VECTOR rest = SUBTRACT(hash, MULTIPLY(high_product(hash, SET(m.inverse)), SET(m.bits))); /* as spv_modulo */
    return LEAST(rest, SUBTRACT(rest, SET(m.bits)));
}

TARGET void NAME(
    const uint8_t *const *keys, size_t count, size_t size, const uint32_t seeds[2], spv_modulus m, uint32_t *first, uint32_t *second
) {
    const size_t words = size / 4, odd = size & 3;
    for (size_t i = 0; i < count; i += LANES) {
        VECTOR a = SET(seeds[0]), b = SET(seeds[1]), w[4], mixed;
        size_t done = 0;
        for (; done + 4 <= words; done += 4) {
            four_words(w, keys + i, 4 * done);
            for (size_t k = 0; k < 4; k++) {
                mixed = mix(w[k]);
                a = step(a, mixed);
                b = step(b, mixed);
            }
        }
        if (size & 15) {
            four_words(w, keys + i, 4 * done); /* reads up to SPV_MURMUR3_BEYOND bytes after the keys */
            if (words & 2) {
                for (size_t k = 0; k < 2; k++) {
                    mixed = mix(w[k]);
                    a = step(a, mixed);
                    b = step(b, mixed);
                }
                w[0] = w[2], w[1] = w[3];
            }
            if (words & 1) {
                mixed = mix(w[0]);
                a = step(a, mixed);
                b = step(b, mixed);
                w[0] = w[1];
            }
            if (odd) {
                mixed = mix(AND(w[0], SET((1u << 8 * odd) - 1)));
                a = XOR(a, mixed);
                b = XOR(b, mixed);
            }
        }
        STORE(first + i, a);
        STORE(second + i, b);
    }
    for (size_t i = 0; i < count; i += LANES) {
        STORE(first + i, finish(LOAD(first + i), size, m));
        STORE(second + i, finish(LOAD(second + i), size, m));
    }
}
