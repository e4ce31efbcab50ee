/* Window functions for short-time transforms. */
#include "aril/fft.h"
#include "core/memory.h"
#include "core/tensor.h"

#include <math.h>
#include <stdlib.h>

/* A sample of a window: x from 0 to 1, both ends included in a symmetric one. */
typedef double window_fn(double x, double beta);

static const double TAU = 6.283185307179586476925;

static double hann(double x, double beta)
{
    (void)beta;
    return 0.5 - 0.5 * cos(TAU * x);
}

static double hamming(double x, double beta)
{
    (void)beta;
    return 0.54 - 0.46 * cos(TAU * x);
}

static double blackman(double x, double beta)
{
    (void)beta;
    return 0.42 - 0.5 * cos(TAU * x) + 0.08 * cos(2 * TAU * x);
}

/* The modified Bessel function of order 0, divided by exp(x) so that it does not overflow: its
 * power series for small x, its asymptotic series for large ones. */
static double bessel_scaled(double x)
{
    double term, sum = 1;
    if (x <= 30) {
        term = 1;
        for (int k = 1; term > 1e-17 * sum; k++) {
            term *= (x / 2 / k) * (x / 2 / k);
            sum += term;
        }
        return sum * exp(-x);
    }
    term = 1;
    for (int k = 1; k <= 20 && fabs(term) > 1e-17; k++) {
        term *= (2.0 * k - 1) * (2.0 * k - 1) / (8.0 * k * x);
        sum += term;
    }
    return sum / sqrt(TAU * x);
}

static double kaiser(double x, double beta)
{
    double from_middle = 2 * x - 1, at = beta * sqrt(fmax(0, 1 - from_middle * from_middle));
    return bessel_scaled(at) / bessel_scaled(beta) * exp(at - beta);
}

static aril_tensor *window(const char *what, int64_t n, bool symmetric, window_fn *fn, double beta)
{
    if (aril__check_shape(what, ARIL_SHAPE(n), false) < 0) return aril__poison();
    float *w = aril__malloc((size_t)(n ? n : 1) * sizeof *w);
    if (!w) {
        aril__fail(ARIL_ERR_MEMORY, "%s: out of memory for %lld samples", what, (long long)n);
        return aril__poison();
    }
    double steps = (double)(symmetric ? n - 1 : n);
    for (int64_t i = 0; i < n; i++) w[i] = n == 1 ? 1 : (float)fn((double)i / steps, beta);
    aril_tensor *t = aril_from(w, ARIL_SHAPE(n), ARIL_F32, aril_cpu());
    free(w);
    return t;
}

aril_tensor *aril_hann_window(int64_t n, bool symmetric)
{
    return window("hann_window", n, symmetric, hann, 0);
}

aril_tensor *aril_hamming_window(int64_t n, bool symmetric)
{
    return window("hamming_window", n, symmetric, hamming, 0);
}

aril_tensor *aril_blackman_window(int64_t n, bool symmetric)
{
    return window("blackman_window", n, symmetric, blackman, 0);
}

aril_tensor *aril_kaiser_window(int64_t n, bool symmetric, double beta)
{
    if (!(beta >= 0 && isfinite(beta))) {
        aril__fail(ARIL_ERR_ARG, "kaiser_window: beta must be at least 0, got %g", beta);
        return aril__poison();
    }
    return window("kaiser_window", n, symmetric, kaiser, beta);
}
