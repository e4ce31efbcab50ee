/* Special functions that CUDA lacks, in double: those of ops/elementwise/special.c, operation for
 * operation, so that both agree to the last bits. */
#ifndef ARIL_CUDA_SPECIAL_CUH
#define ARIL_CUDA_SPECIAL_CUH

#include <cuda_runtime.h>
#include <float.h>
#include <math.h>

static __device__ double aril_cuda_digamma_near_root(double x)
{
    double t = x - 1;
    double p = -0.0020713321167745952;
    p = p * t + -0.045251321448739056;
    p = p * t + -0.28919126444774784;
    p = p * t + -0.65031853770896507;
    p = p * t + -0.32555031186804491;
    p = p * t + 0.25479851061131551;
    double q = -0.55789841321675513e-6;
    q = q * t + 0.0021284987017821144;
    q = q * t + 0.054151797245674225;
    q = q * t + 0.43593529692665969;
    q = q * t + 1.4606242909763515;
    q = q * t + 2.0767117023730469;
    q = q * t + 1.0;
    double from_root = x - 1569415565.0 / 0x1p30;
    from_root -= 381566830.0 / 0x1p60;
    from_root -= 0.9016312093258695918615325266959189453125e-19;
    return from_root * 0.99558162689208984375 + from_root * (p / q);
}

static __device__ double aril_cuda_digamma_series(double x)
{
    double t = 1 / x, s = t * t;
    double p = 1.0 / 12;
    p = p * s + -691.0 / 32760;
    p = p * s + 1.0 / 132;
    p = p * s + -1.0 / 240;
    p = p * s + 1.0 / 252;
    p = p * s + -1.0 / 120;
    p = p * s + 1.0 / 12;
    return log(x) - (0.5 * t + s * p);
}

/* The derivative of lgamma. */
static __device__ __noinline__ double aril_cuda_digamma(double x)
{
    const double pi = 3.14159265358979323846;
    double more = 0;
    if (x == 0) return -copysign((double)INFINITY, x);
    if (x < 0) {
        double part = x - rint(x);
        if (part == 0 || isinf(x)) return nan("");
        more = -pi / tan(pi * part);
        x = 1 - x;
    }
    if (x < 1) {
        more -= 1 / x;
        x += 1;
    }
    for (; x > 2 && x < 10; x -= 1) more += 1 / (x - 1);
    return more + (x <= 2 ? aril_cuda_digamma_near_root(x) : aril_cuda_digamma_series(x));
}

static __device__ __noinline__ double aril_cuda_zeta_positive(double s, double q)
{
    const double factor[] = { 12.0,
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
                              -7.1661652561756670113e18 };
    double sum = 0, term = pow(q, -s);
    for (; q <= 9; term = pow(q, -s)) {
        sum += term;
        if (term < DBL_EPSILON / 4 * sum) return sum;
        q += 1;
    }
    sum += term * q / (s - 1) + 0.5 * term;
    double product = s;
    term /= q;
#pragma unroll 1
    for (int i = 0; i < 12; i++) {
        double next = product * term / factor[i];
        sum += next;
        if (fabs(next) < DBL_EPSILON / 4 * sum) break;
        product *= (s + 2 * i + 1) * (s + 2 * i + 2);
        term /= q * q;
    }
    return sum;
}

/* The Hurwitz zeta function, the sum of (q + k)^-s. */
static __device__ __noinline__ double aril_cuda_zeta(double s, double q)
{
    if (s != s || q != q) return s + q;
    if (s == 1) return (double)INFINITY;
    if (s < 1) return nan("");
    if (q > 0) return isinf(q) ? 0 : aril_cuda_zeta_positive(s, q);
    if (q == floor(q)) return (double)INFINITY;
    if (s != floor(s)) return nan("");
    double n = -floor(q), above = q + n, below = -(q + (n - 1));
    double sign = fmod(s, 2.0) != 0 ? -1 : 1;
    double mirrored = aril_cuda_zeta_positive(s, below) - aril_cuda_zeta_positive(s, n + below);
    return aril_cuda_zeta_positive(s, above) + sign * mirrored;
}

/* The derivative of digamma: that of core/vector/vecmath_special.inc. */
static __device__ __noinline__ double aril_cuda_trigamma(double x)
{
    double w = fabs(x);
    double z = w < 6 ? w + 6 : w, t = 1 / z, s = t * t;
    double b = -0x1.b4dbe9c0f80cbp1;
    b = fma(b, s, 0x1.075847be21d16p0);
    b = fma(b, s, -0x1.0026b9f48af74p-2);
    b = fma(b, s, 0x1.36270c139ae6p-4);
    b = fma(b, s, -0x1.111089a6957eap-5);
    b = fma(b, s, 0x1.8618609986ecp-6);
    b = fma(b, s, -0x1.11111110e95ecp-5);
    b = fma(b, s, 0x1.555555555554dp-3);
    double y = t + fma(b * t, s, 0.5 * s), sum = 0;
    for (int k = 5; k > 0; k--) sum += 1 / ((w + k) * (w + k));
    double first = 1 / (w * w), near = y + sum; /* of w + 1 */
    double rest = w < 6 ? near : y - first;
    y = w < 6 ? near + first : y;
    double sine = sinpi(w - rint(w));
    double mirrored = 0x1.3bd3cc9be45dep3 / (sine * sine) - rest;
    return x < 0 ? mirrored : y;
}

/* log|gamma(x)|. CUDA's is inaccurate beside the zeros on the negative axis, so there it comes from
 * the positive side: gamma(-w) gamma(w) = -pi / (w sin(pi w)). */
static __device__ __noinline__ double aril_cuda_lgamma(double x)
{
    if (!(x < 0) || isinf(x)) return lgamma(x);
    double w = -x, sine = fabs(sinpi(w - rint(w)));
    return sine == 0 ? (double)INFINITY
                     : log(3.14159265358979323846 / (w * sine)) - lgamma(w);
}

#endif
