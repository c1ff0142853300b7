/* Dates and times of day, in UTC. */
#ifndef SPV_WATCH_UTC_H
#define SPV_WATCH_UTC_H

#include "spv.h"

enum { SPV_UTC_SIZE = 20 /* bytes of such a text */ };

SPV_INLINE uint8_t *spv_put_padded(uint8_t *to, uint32_t number, unsigned digits, char after) {
    for (unsigned i = digits; i--; number /= 10)
        to[i] = (uint8_t)('0' + number % 10);
    to[digits] = (uint8_t)after;
    return to + digits + 1;
}

/* Writes a Unix time as text, such as 2024-01-31T00:00:00Z, and returns its end. Years start in March here, so that a
   leap day is the last day of its year. */
SPV_INLINE uint8_t *spv_put_utc(uint8_t *to, uint32_t time) {
    enum { DAY = 86400, TO_1970 = 719468 /* days since 1 March of the year 0 */, CENTURIES = 146097 /* days of 400 years */ };
    const uint32_t days = time / DAY + TO_1970, seconds = time % DAY;
    const uint32_t day = days % CENTURIES, year = (day - day / 1460 + day / 36524 - day / 146096) / 365;
    const uint32_t of_year = day - (365 * year + year / 4 - year / 100), month = (5 * of_year + 2) / 153;
    const uint32_t next = month >= 10; /* January and February belong to the next calendar year */
    to = spv_put_padded(to, days / CENTURIES * 400 + year + next, 4, '-');
    to = spv_put_padded(to, next ? month - 9 : month + 3, 2, '-');
    to = spv_put_padded(to, of_year - (153 * month + 2) / 5 + 1, 2, 'T');
    to = spv_put_padded(to, seconds / 3600, 2, ':');
    to = spv_put_padded(to, seconds / 60 % 60, 2, ':');
    return spv_put_padded(to, seconds % 60, 2, 'Z');
}

#endif
