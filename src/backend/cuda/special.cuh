/* Special functions that CUDA lacks, in double. */
#ifndef ARIL_CUDA_SPECIAL_CUH
#define ARIL_CUDA_SPECIAL_CUH

#include <cuda_runtime.h>
#include <float.h>
#include <math.h>

#define SPECIAL(name)  aril_cuda_##name
#define SPECIAL_INLINE static __device__
#define SPECIAL_CALLED static __device__ __noinline__
#define SPECIAL_LOOP   _Pragma("unroll 1")
#include "ops/elementwise/special.inc"

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
    return sine == 0 ? (double)INFINITY : log(3.14159265358979323846 / (w * sine)) - lgamma(w);
}

#endif
