#include "block/curve.h"

/* An element of the field of p = 2^256 - 2^32 - 977, smaller than p, in 32-bit limbs, the least significant first.
   The functions are not constant-time: nothing here is secret. */
enum { LIMBS = 8, FOLD = 977 }; /* 2^256 is 2^32 + FOLD modulo p */
typedef struct {
    uint32_t limb[LIMBS];
} element;

static const element P = {{0xFFFFFC2F, 0xFFFFFFFE, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF}};
static const element ROOT = {{0xBFFFFF0C, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0x3FFFFFFF}}; /* (p + 1) / 4 */

static bool is_below(const element *a, const element *b) {
    for (int i = LIMBS - 1; i >= 0; i--)
        if (a->limb[i] != b->limb[i])
            return a->limb[i] < b->limb[i];
    return false;
}

static element difference(const element *a, const element *b) { /* modulo 2^256 */
    element made;
    uint64_t borrow = 0;
    for (int i = 0; i < LIMBS; i++) {
        const uint64_t limb = (uint64_t)a->limb[i] - b->limb[i] - borrow;
        made.limb[i] = (uint32_t)limb;
        borrow = limb >> 63;
    }
    return made;
}

/* `high` × 2^256 + `a`, modulo p. `high` is below 2^34. */
static element folded(element a, uint64_t high) {
    while (high) {
        uint64_t carry = high * FOLD, shifted = high; /* `carry` is below 2^44 */
        for (int i = 0; i < LIMBS; i++) {
            carry += a.limb[i];
            if (i) {
                carry += (uint32_t)shifted;
                shifted >>= 32;
            }
            a.limb[i] = (uint32_t)carry;
            carry >>= 32;
        }
        high = carry;
    }
    return is_below(&a, &P) ? a : difference(&a, &P);
}

static element product(const element *a, const element *b) {
    uint32_t wide[2 * LIMBS] = {0};
    for (int i = 0; i < LIMBS; i++) {
        uint64_t carry = 0;
        for (int j = 0; j < LIMBS; j++) {
            carry += (uint64_t)a->limb[i] * b->limb[j] + wide[i + j];
            wide[i + j] = (uint32_t)carry;
            carry >>= 32;
        }
        wide[i + LIMBS] = (uint32_t)carry;
    }
    element low; /* the lower half, and the upper half times 2^32 + FOLD */
    uint64_t carry = 0;
    for (int i = 0; i < LIMBS; i++) {
        carry += (uint64_t)wide[i + LIMBS] * FOLD + wide[i] + (i ? wide[i + LIMBS - 1] : 0u);
        low.limb[i] = (uint32_t)carry;
        carry >>= 32;
    }
    return folded(low, carry + wide[2 * LIMBS - 1]);
}

/* `a` to the power of ROOT. It is a square root of `a` if there is one, because p is 3 modulo 4. */
static element root_of(const element *a) {
    element powers[16] = {{{1}}}, made = {{1}};
    for (int i = 1; i < 16; i++)
        powers[i] = product(&powers[i - 1], a);
    for (int at = 32 * LIMBS - 4; at >= 0; at -= 4) {
        for (int i = 0; i < 4; i++)
            made = product(&made, &made);
        made = product(&made, &powers[ROOT.limb[at / 32] >> at % 32 & 15]);
    }
    return made;
}

/* Reads an element. False if it is not below p. */
static bool read(const uint8_t bytes[32], element *a) {
    for (int i = 0; i < LIMBS; i++) {
        const uint8_t *at = bytes + 28 - 4 * i;
        a->limb[i] = (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
    }
    return is_below(a, &P);
}

static void put(const element *a, uint8_t bytes[32]) {
    for (int i = 0; i < LIMBS; i++)
        for (int j = 0; j < 4; j++)
            bytes[31 - 4 * i - j] = (uint8_t)(a->limb[i] >> 8 * j);
}

static bool is_same(const element *a, const element *b) {
    return !memcmp(a->limb, b->limb, sizeof a->limb);
}

/* x³ + 7. */
static element square_of(const element *x) {
    static const element seven = {{7}};
    element square = product(x, x);
    square = product(&square, x);
    uint64_t carry = 0;
    for (int i = 0; i < LIMBS; i++) {
        carry += (uint64_t)square.limb[i] + seven.limb[i];
        square.limb[i] = (uint32_t)carry;
        carry >>= 32;
    }
    return folded(square, carry);
}

bool spv_full_key(const uint8_t key[SPV_SHORT_KEY], uint8_t full[SPV_FULL_KEY]) {
    element x;
    if (!read(key + 1, &x))
        return false;
    const element square = square_of(&x);
    element y = root_of(&square);
    const element again = product(&y, &y);
    if (!is_same(&again, &square))
        return false;
    if ((y.limb[0] ^ key[0]) & 1)
        y = difference(&P, &y); /* y is not 0: -7 has no cube root */
    full[0] = 4;
    memcpy(full + 1, key + 1, 32);
    put(&y, full + 33);
    return true;
}

bool spv_short_key(const uint8_t full[SPV_FULL_KEY], uint8_t key[SPV_SHORT_KEY]) {
    element x, y;
    if (!read(full + 1, &x) || !read(full + 33, &y))
        return false;
    const element square = square_of(&x), other = product(&y, &y);
    key[0] = 2 + (full[64] & 1);
    memcpy(key + 1, full + 1, 32);
    return is_same(&square, &other);
}
