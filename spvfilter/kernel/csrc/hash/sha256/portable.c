/* SHA-256's compression in plain C: the reference for the other ways. */
#include "hash/sha256/way.h"

const uint32_t spv_sha256_initial[8] = {
    0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19,
};

_Alignas(64) const uint32_t spv_sha256_k[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be,
    0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa,
    0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85,
    0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3,
    0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f,
    0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

SPV_INLINE uint32_t ror(uint32_t x, int n) {
    return x >> n | x << (32 - n);
}

SPV_INLINE void turn(
    uint32_t a, uint32_t b, uint32_t c, uint32_t *d, uint32_t e, uint32_t f, uint32_t g, uint32_t *h, uint32_t word
) {
    uint32_t t = *h + (ror(e, 6) ^ ror(e, 11) ^ ror(e, 25)) + (g ^ (e & (f ^ g))) + word;
    *d += t;
    *h = t + (ror(a, 2) ^ ror(a, 13) ^ ror(a, 22)) + ((a & b) | (c & (a | b)));
}

SPV_INLINE uint32_t schedule(const uint32_t w[16], int i) {
    uint32_t near = w[(i + 14) & 15], far = w[(i + 1) & 15];
    return w[i & 15] + (ror(far, 7) ^ ror(far, 18) ^ far >> 3) + w[(i + 9) & 15] + (ror(near, 17) ^ ror(near, 19) ^ near >> 10);
}

void spv_sha256_portable(uint32_t state[8], const uint8_t *data, size_t blocks) {
    for (; blocks; blocks--, data += 64) {
        uint32_t a = state[0], b = state[1], c = state[2], d = state[3], e = state[4], f = state[5], g = state[6], h = state[7];
        uint32_t w[16];
        for (int i = 0; i < 16; i++)
            w[i] = (uint32_t)data[4 * i] << 24 | (uint32_t)data[4 * i + 1] << 16 | (uint32_t)data[4 * i + 2] << 8 | data[4 * i + 3];
        for (int round = 0; round < 64; round += 16) {
            const uint32_t *k = spv_sha256_k + round;
            for (int i = 0; round && i < 16; i++)
                w[i] = schedule(w, i);
            for (int i = 0; i < 16; i += 8) {
                turn(a, b, c, &d, e, f, g, &h, k[i] + w[i]);
                turn(h, a, b, &c, d, e, f, &g, k[i + 1] + w[i + 1]);
                turn(g, h, a, &b, c, d, e, &f, k[i + 2] + w[i + 2]);
                turn(f, g, h, &a, b, c, d, &e, k[i + 3] + w[i + 3]);
                turn(e, f, g, &h, a, b, c, &d, k[i + 4] + w[i + 4]);
                turn(d, e, f, &g, h, a, b, &c, k[i + 5] + w[i + 5]);
                turn(c, d, e, &f, g, h, a, &b, k[i + 6] + w[i + 6]);
                turn(b, c, d, &e, f, g, h, &a, k[i + 7] + w[i + 7]);
            }
        }
        state[0] += a, state[1] += b, state[2] += c, state[3] += d, state[4] += e, state[5] += f, state[6] += g, state[7] += h;
    }
}

void spv_sha256_portable_lane(uint32_t *state, const uint8_t *const *data, size_t blocks) {
    spv_sha256_portable(state, *data, blocks);
}
