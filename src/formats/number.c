#include "formats/number.h"

#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static locale_t plain; /* the "C" locale, whose decimal separator is a point */

static void make_plain(void)
{
    plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

/* Slow path through the C library, for long numbers. The text is known to be a number. */
static bool slowly(const char *text, size_t n, double *value)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    char copy[512];
    if (n >= sizeof copy) return false;
    pthread_once(&once, make_plain);
    memcpy(copy, text, n);
    copy[n] = 0;
    *value = plain ? strtod_l(copy, NULL, plain) : strtod(copy, NULL);
    return true;
}

static bool word(const char *p, const char *end, double sign, double *value)
{
    size_t n = (size_t)(end - p);
    bool infinite =
        (n == 3 && !strncasecmp(p, "inf", 3)) || (n == 8 && !strncasecmp(p, "infinity", 8));
    if (!infinite && !(n == 3 && !strncasecmp(p, "nan", 3))) return false;
    *value = infinite ? sign * (double)INFINITY : (double)NAN;
    return true;
}

bool aril__parse_number(const char *text, size_t n, double *value)
{
    static const double power[] = { 1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                    1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                    1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22 };
    const char *p = text, *end = text + n;
    while (p < end && (*p == ' ' || *p == '\t')) p++;
    while (end > p && (end[-1] == ' ' || end[-1] == '\t' || end[-1] == '\r')) end--;
    const char *begin = p;
    double sign = 1;
    if (p < end && (*p == '-' || *p == '+')) sign = *p++ == '-' ? -1 : 1;
    uint64_t digits = 0;
    int count = 0, significant = 0, exponent = 0;
    for (bool point = false; p < end; p++) {
        if (*p == '.' && !point) {
            point = true;
            continue;
        }
        if (*p < '0' || *p > '9') break;
        count++;
        if (digits > 0 || *p != '0') significant++;
        if (significant < 19) digits = digits * 10 + (uint64_t)(*p - '0');
        if (point) exponent--;
    }
    if (count == 0) return word(p, end, sign, value);
    if (p < end && (*p | 32) == 'e') {
        int e = 0, e_sign = 1, e_count = 0;
        p++;
        if (p < end && (*p == '-' || *p == '+')) e_sign = *p++ == '-' ? -1 : 1;
        for (; p < end && *p >= '0' && *p <= '9'; p++, e_count++)
            if (e < 100000) e = e * 10 + (*p - '0');
        if (e_count == 0) return false;
        exponent += e_sign * e;
    }
    if (p != end) return false;
    /* Both factors are exact: the one operation rounds correctly. */
    if (significant < 19 && digits <= (UINT64_C(1) << 53) && exponent >= -22 && exponent <= 22) {
        double v = (double)digits;
        *value = sign * (exponent < 0 ? v / power[-exponent] : v * power[exponent]);
        return true;
    }
    return slowly(begin, (size_t)(end - begin), value);
}
