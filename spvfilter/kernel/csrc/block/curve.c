#include "block/curve.h"

#include <stdlib.h>

/* An element of the field of p = 2^256 - 2^32 - 977, smaller than p, in 64-bit limbs, the least significant first.
   The functions are not constant-time: nothing here is secret. */
enum { LIMBS = 4 };
typedef struct {
    uint64_t limb[LIMBS];
} element;

static const element P = {{0xFFFFFFFEFFFFFC2F, 0xFFFFFFFFFFFFFFFF, 0xFFFFFFFFFFFFFFFF, 0xFFFFFFFFFFFFFFFF}};
static const uint64_t FOLD = 0x1000003D1; /* 2^256 modulo p */
static const element ROOT = {{0xFFFFFFFFBFFFFF0C, 0xFFFFFFFFFFFFFFFF, 0xFFFFFFFFFFFFFFFF, 0x3FFFFFFFFFFFFFFF}}; /* (p + 1) / 4 */
static const element INVERSE = {{0xFFFFFFFEFFFFFC2D, 0xFFFFFFFFFFFFFFFF, 0xFFFFFFFFFFFFFFFF, 0xFFFFFFFFFFFFFFFF}}; /* p - 2 */
static const element ORDER = {{0xBFD25E8CD0364141, 0xBAAEDCE6AF48A03B, 0xFFFFFFFFFFFFFFFE, 0xFFFFFFFFFFFFFFFF}}; /* of the generator */

/* The low half of a × b + c + *carry. The high half becomes the carry. */
SPV_INLINE uint64_t multiplied(uint64_t a, uint64_t b, uint64_t c, uint64_t *carry) {
#ifdef __SIZEOF_INT128__
    __extension__ typedef unsigned __int128 wide;
    const wide sum = (wide)a * b + c + *carry;
    *carry = (uint64_t)(sum >> 64);
    return (uint64_t)sum;
#else
    const uint64_t a_low = (uint32_t)a, a_high = a >> 32, b_low = (uint32_t)b, b_high = b >> 32;
    const uint64_t low = a_low * b_low + (uint32_t)c + (uint32_t)*carry;
    const uint64_t cross = a_high * b_low + (low >> 32) + (c >> 32), other = a_low * b_high + (uint32_t)cross + (*carry >> 32);
    *carry = a_high * b_high + (cross >> 32) + (other >> 32);
    return other << 32 | (uint32_t)low;
#endif
}

static bool is_below(const element *a, const element *b) {
    for (int i = LIMBS - 1; i >= 0; i--)
        if (a->limb[i] != b->limb[i])
            return a->limb[i] < b->limb[i];
    return false;
}

static bool is_same(const element *a, const element *b) {
    return !memcmp(a->limb, b->limb, sizeof a->limb);
}

/* Subtracts modulo 2^256, and returns the borrow. */
SPV_INLINE uint64_t subtract(const element *a, const element *b, element *made) {
    uint64_t borrow = 0;
    for (int i = 0; i < LIMBS; i++) {
        const uint64_t limb = a->limb[i] - b->limb[i], less = a->limb[i] < b->limb[i];
        made->limb[i] = limb - borrow;
        borrow = less | (limb < borrow);
    }
    return borrow;
}

SPV_INLINE element difference(const element *a, const element *b) {
    element made;
    subtract(a, b, &made);
    return made;
}

/* a - b modulo p. */
SPV_INLINE element minus(const element *a, const element *b) {
    element made;
    const element fold = {{subtract(a, b, &made) * FOLD}}; /* a branch would be mispredicted half of the time */
    subtract(&made, &fold, &made);
    return made;
}

/* `high` × 2^256 + `a`, modulo p. `high` is below 2^34. */
SPV_INLINE element folded(element a, uint64_t high) {
    do {
        uint64_t carry = 0;
        a.limb[0] = multiplied(high, FOLD, a.limb[0], &carry);
        for (int i = 1; i < LIMBS; i++) {
            a.limb[i] += carry;
            carry = a.limb[i] < carry;
        }
        high = carry;
    } while (SPV_UNLIKELY(high));
    return is_below(&a, &P) ? a : difference(&a, &P);
}

static element plus(const element *a, const element *b) {
    element made;
    uint64_t carry = 0;
    for (int i = 0; i < LIMBS; i++)
        made.limb[i] = multiplied(a->limb[i], 1, b->limb[i], &carry);
    return folded(made, carry);
}

SPV_INLINE element product(const element *a, const element *b) {
    uint64_t wide[2 * LIMBS] = {0};
    element low;
    uint64_t carry;
    for (int i = 0; i < LIMBS; i++) {
        carry = 0;
        for (int j = 0; j < LIMBS; j++)
            wide[i + j] = multiplied(a->limb[i], b->limb[j], wide[i + j], &carry);
        wide[i + LIMBS] = carry;
    }
    carry = 0;
    for (int i = 0; i < LIMBS; i++)
        low.limb[i] = multiplied(wide[i + LIMBS], FOLD, wide[i], &carry);
    return folded(low, carry);
}

static element power(const element *a, const element *exponent) {
    element powers[16] = {{{1}}}, made = {{1}};
    for (int i = 1; i < 16; i++)
        powers[i] = product(&powers[i - 1], a);
    for (int at = 64 * LIMBS - 4; at >= 0; at -= 4) {
        for (int i = 0; i < 4; i++)
            made = product(&made, &made);
        made = product(&made, &powers[exponent->limb[at / 64] >> at % 64 & 15]);
    }
    return made;
}

/* Reads 256 bits. False if they are not below a limit. */
static bool read(const uint8_t bytes[32], const element *limit, element *a) {
    for (int i = 0; i < LIMBS; i++) {
        a->limb[i] = 0;
        for (int j = 0; j < 8; j++)
            a->limb[i] = a->limb[i] << 8 | bytes[24 - 8 * i + j];
    }
    return is_below(a, limit);
}

static void put(const element *a, uint8_t bytes[32]) {
    for (int i = 0; i < LIMBS; i++)
        for (int j = 0; j < 8; j++)
            bytes[31 - 8 * i - j] = (uint8_t)(a->limb[i] >> 8 * j);
}

/* x³ + 7. */
static element square_of(const element *x) {
    static const element seven = {{7}};
    element square = product(x, x);
    square = product(&square, x);
    return plus(&square, &seven);
}

bool spv_full_key(const uint8_t key[SPV_SHORT_KEY], uint8_t full[SPV_FULL_KEY]) {
    element x;
    if (!read(key + 1, &P, &x))
        return false;
    const element square = square_of(&x);
    element y = power(&square, &ROOT); /* a square root if there is one, because p is 3 modulo 4 */
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
    if (!read(full + 1, &P, &x) || !read(full + 33, &P, &y))
        return false;
    const element square = square_of(&x), other = product(&y, &y);
    key[0] = 2 + (full[64] & 1);
    memcpy(key + 1, full + 1, 32);
    return is_same(&square, &other);
}

/* A point of the curve. The point at infinity has zeros; no point of the curve has y = 0. */
typedef struct {
    element x, y;
} point;

static bool is_infinite(const point *a) {
    static const element zero = {{0}};
    return is_same(&a->y, &zero);
}

/* The denominator of the slope through two points. It is 1 if no slope is needed. */
SPV_INLINE element denominator(const point *a, const point *b) {
    static const element one = {{1}};
    if (is_infinite(a) || is_infinite(b))
        return one;
    if (!is_same(&a->x, &b->x))
        return minus(&b->x, &a->x);
    return is_same(&a->y, &b->y) ? plus(&a->y, &a->y) : one;
}

/* The sum of two points, given the inverse of their denominator. */
SPV_INLINE point sum_of(const point *a, const point *b, const element *inverse) {
    if (is_infinite(a) || is_infinite(b))
        return is_infinite(a) ? *b : *a;
    element slope = minus(&b->y, &a->y);
    if (is_same(&a->x, &b->x)) {
        if (!is_same(&a->y, &b->y))
            return (point){0};
        const element square = product(&a->x, &a->x), twice = plus(&square, &square);
        slope = plus(&twice, &square);
    }
    slope = product(&slope, inverse);
    point sum = {.x = product(&slope, &slope)};
    sum.x = minus(&sum.x, &a->x);
    sum.x = minus(&sum.x, &b->x);
    sum.y = minus(&a->x, &sum.x);
    sum.y = product(&slope, &sum.y);
    sum.y = minus(&sum.y, &a->y);
    return sum;
}

/* Adds to each point another one. One inversion serves all: `products` has room for as many elements. */
static void add_each(point *sums, const point *const *others, size_t count, element *products) {
    element all = {{1}};
    for (size_t i = 0; i < count; i++) {
        const element each = denominator(&sums[i], others[i]);
        products[i] = all;
        all = product(&all, &each);
    }
    all = power(&all, &INVERSE);
    for (size_t i = count; i-- > 0;) {
        const element each = denominator(&sums[i], others[i]), inverse = product(&all, &products[i]);
        all = product(&all, &each);
        sums[i] = sum_of(&sums[i], others[i], &inverse);
    }
}

enum { MULTIPLES = 256, MOST = 512 }; /* of each place of a tweak; keys that are computed together */

typedef struct {
    point multiples[SPV_TWEAK][MULTIPLES]; /* (j + 1) × 256^i × generator */
    point sums[MOST];
    const point *others[MOST];
    element products[MOST];
} workplace;

static void fill_table(workplace *of) {
    static const point generator = {{{0x59F2815B16F81798, 0x029BFCDB2DCE28D9, 0x55A06295CE870B07, 0x79BE667EF9DCBBAC}}, {{0x9C47D08FFB10D4B8, 0xFD17B448A6855419, 0x5DA4FBFC0E1108A8, 0x483ADA7726A3C465}}};
    for (size_t place = 0; place < SPV_TWEAK; place++) {
        point *multiples = of->multiples[place];
        multiples[0] = place ? of->multiples[place - 1][MULTIPLES - 1] : generator;
        for (size_t known = 1; known < MULTIPLES; known *= 2) {
            memcpy(multiples + known, multiples, known * sizeof *multiples);
            for (size_t i = 0; i < known; i++)
                of->others[i] = &multiples[known - 1];
            add_each(multiples + known, of->others, known, of->products);
        }
    }
}

spv_status spv_child_keys(const uint8_t parent[SPV_FULL_KEY], const uint8_t *tweaks, size_t count, uint8_t *keys) {
    static const point infinity = {0};
    point start;
    workplace *of = malloc(sizeof *of);
    if (!of)
        return SPV_NOMEM;
    read(parent + 1, &P, &start.x);
    read(parent + 33, &P, &start.y);
    fill_table(of);
    for (size_t first = 0; first < count; first += MOST) {
        const size_t part = count - first < MOST ? count - first : MOST;
        memset(of->sums, 0, part * sizeof *of->sums);
        for (size_t at = 0; at <= SPV_TWEAK; at++) {
            for (size_t i = 0; i < part; i++) {
                const uint8_t digit = at < SPV_TWEAK ? tweaks[(first + i) * SPV_TWEAK + SPV_TWEAK - 1 - at] : 0;
                of->others[i] = at == SPV_TWEAK ? &start : digit ? &of->multiples[at][digit - 1] : &infinity;
            }
            add_each(of->sums, of->others, part, of->products);
        }
        for (size_t i = 0; i < part; i++) {
            uint8_t *key = keys + (first + i) * SPV_SHORT_KEY;
            element tweak;
            memset(key, 0, SPV_SHORT_KEY);
            if (read(tweaks + (first + i) * SPV_TWEAK, &ORDER, &tweak) && !is_infinite(&of->sums[i])) {
                key[0] = 2 + (of->sums[i].y.limb[0] & 1);
                put(&of->sums[i].x, key + 1);
            }
        }
    }
    free(of);
    return SPV_OK;
}
