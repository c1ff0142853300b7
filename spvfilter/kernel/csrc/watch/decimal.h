/* Decimal digits. */
#ifndef SPV_WATCH_DECIMAL_H
#define SPV_WATCH_DECIMAL_H

#include "spv.h"

enum { SPV_MOST_DIGITS = 20 };

/* Writes a number and returns its end. There must be room for SPV_MOST_DIGITS bytes: all of them may be changed. */
SPV_INLINE uint8_t *spv_put_number(uint8_t *to, uint64_t number) {
    uint8_t digits[2 * SPV_MOST_DIGITS] = {0}, *first = digits + SPV_MOST_DIGITS;
    do
        *--first = (uint8_t)('0' + number % 10);
    while (number /= 10);
    memcpy(to, first, SPV_MOST_DIGITS); /* copies more than necessary: a constant number of bytes is copied without a call */
    return to + (digits + SPV_MOST_DIGITS - first);
}

#endif
