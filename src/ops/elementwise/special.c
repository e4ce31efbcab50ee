#include "ops/elementwise/special.h"

#include <float.h>
#include <math.h>

static const double pi = 3.14159265358979323846;

static double polynomial(const double *c, int n, double x)
{
    double y = c[n - 1];
    for (int i = n - 2; i >= 0; i--) y = y * x + c[i];
    return y;
}

double aril__lgamma(double x)
{
    int sign;
    return lgamma_r(x, &sign);
}

/* ---- digamma ---- */

/* For 1 <= x <= 2: (x - root) * (1 + a rational function), with the zero split in three parts so
 * that the difference is exact (Boost.Math). */
static double digamma_near_root(double x)
{
    static const double p[] = {
        0.25479851061131551,  -0.32555031186804491,  -0.65031853770896507,
        -0.28919126444774784, -0.045251321448739056, -0.0020713321167745952
    };
    static const double q[] = { 1.0,
                                2.0767117023730469,
                                1.4606242909763515,
                                0.43593529692665969,
                                0.054151797245674225,
                                0.0021284987017821144,
                                -0.55789841321675513e-6 };
    const double scale = 0.99558162689208984375; /* 21 bits */
    double from_root = x - 1569415565.0 / 0x1p30;
    from_root -= 381566830.0 / 0x1p60;
    from_root -= 0.9016312093258695918615325266959189453125e-19;
    double r = polynomial(p, 6, x - 1) / polynomial(q, 7, x - 1);
    return from_root * scale + from_root * r;
}

/* For x >= 10, from the Bernoulli numbers. */
static double digamma_series(double x)
{
    static const double c[] = { 1.0 / 12,  -1.0 / 120,     1.0 / 252, -1.0 / 240,
                                1.0 / 132, -691.0 / 32760, 1.0 / 12 };
    double t = 1 / x, s = t * t;
    return log(x) - (0.5 * t + s * polynomial(c, 7, s));
}

double aril__digamma(double x)
{
    double more = 0;
    if (x == 0) return -copysign(INFINITY, x);
    if (x < 0) { /* digamma(1 - x) - pi / tan(pi x) */
        double part = x - rint(x);
        if (part == 0 || isinf(x)) return NAN;
        more = -pi / tan(pi * part);
        x = 1 - x;
    }
    if (x < 1) {
        more -= 1 / x;
        x += 1;
    }
    for (; x > 2 && x < 10; x -= 1) more += 1 / (x - 1);
    return more + (x <= 2 ? digamma_near_root(x) : digamma_series(x));
}

/* ---- zeta ---- */

/* For q > 0: terms up to q + k = 10 and the Euler-Maclaurin formula for the rest. */
static double zeta_positive(double s, double q)
{
    static const double factor[] = {
        /* (2k)! / the Bernoulli number B(2k) */
        12.0,
        -720.0,
        30240.0,
        -1209600.0,
        47900160.0,
        -1.8924375803183791606e9,
        7.47242496e10,
        -2.950130727918164224e12,
        1.1646782814350067249e14,
        -4.5979787224074726105e15,
        1.8152105401943546773e17,
        -7.1661652561756670113e18,
    };
    double sum = 0, term = pow(q, -s);
    for (; q <= 9; term = pow(q, -s)) {
        sum += term;
        if (term < DBL_EPSILON / 4 * sum) return sum;
        q += 1;
    }
    sum += term * q / (s - 1) + 0.5 * term;
    double product = s;
    term /= q;
    for (int i = 0; i < 12; i++) {
        double next = product * term / factor[i];
        sum += next;
        if (fabs(next) < DBL_EPSILON / 4 * sum) break;
        product *= (s + 2 * i + 1) * (s + 2 * i + 2);
        term /= q * q;
    }
    return sum;
}

double aril__zeta(double s, double q)
{
    if (s != s || q != q) return s + q;
    if (s == 1) return INFINITY;
    if (s < 1) return NAN;
    if (q > 0) return isinf(q) ? 0 : zeta_positive(s, q);
    if (q == floor(q)) return INFINITY;
    if (s != floor(s)) return NAN;
    /* The n terms of negative numbers, mirrored, are the difference of two sums. */
    double n = -floor(q), above = q + n, below = -(q + (n - 1)); /* of 0, without rounding to 0 */
    double sign = fmod(s, 2) != 0 ? -1 : 1;
    double mirrored = zeta_positive(s, below) - zeta_positive(s, n + below);
    return zeta_positive(s, above) + sign * mirrored;
}
