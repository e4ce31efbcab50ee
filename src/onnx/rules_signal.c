/* Fourier transforms and windows. */
#include "onnx/rules.h"

#include <math.h>

static const double pi = 3.14159265358979323846;

/* Pairs of real and imaginary parts from [...,1] or [...,2]. */
static aril_tensor *complex_of(aril_tensor *x)
{
    return aril_size(x, -1) == 2 ? x : aril_cat(ARIL_LIST(x, aril_zeros_like(x)), -1);
}

static aril_status dft(onnx_call *c)
{
    aril_tensor *x = in(c, 0);
    int64_t length, axis = aril__onnx_attr_int(c, "axis", 1);
    aril_status s = aril__onnx_int_in(c, 1, 0, &length);
    if (s == ARIL_OK && c->version >= 20) s = aril__onnx_int_in(c, 2, -2, &axis);
    if (s != ARIL_OK) return s;
    int at = aril__onnx_axis(c, axis, aril_ndim(x));
    if (at < 0 || aril_ndim(x) < 2 || at == aril_ndim(x) - 1)
        return aril__onnx_fail(c, ARIL_ERR_ARG, "the axis must be one of the signal");
    bool inverse = aril__onnx_attr_int(c, "inverse", 0) != 0,
         half = aril__onnx_attr_int(c, "onesided", 0) != 0;
    aril_fft_opts o = { .n = length };
    aril_tensor *y = aril_transpose(x, at, -2);
    if (inverse && half) {
        y = aril_unsqueeze(aril_irfft(complex_of(y), o), -1);
    } else {
        y = inverse ? aril_ifft(complex_of(y), o) : aril_fft(complex_of(y), o);
        if (half) y = aril_narrow(y, -2, 0, aril_size(y, -2) / 2 + 1);
    }
    return give(c, 0, aril_transpose(y, at, -2));
}

/* signal [N,L,1 or 2] -> [N,frames,bins,2] */
static aril_status stft(onnx_call *c)
{
    aril_tensor *x = in(c, 0), *window = in(c, 2);
    int64_t step, length;
    aril_status s = aril__onnx_int_in(c, 1, 1, &step);
    if (s == ARIL_OK)
        s = aril__onnx_int_in(c, 3, window ? aril_size(window, 0) : aril_size(x, 1), &length);
    if (s != ARIL_OK) return s;
    if (aril_ndim(x) == 2) x = aril_unsqueeze(x, 2); /* as PyTorch writes it */
    if (aril_ndim(x) != 3 || step < 1 || length < 1)
        return aril__onnx_fail(c, ARIL_ERR_ARG, "expected a signal [N,L,1], a step and a length");
    aril_tensor *frames = aril_unfold_view(x, 1, length, step); /* [N,frames,1 or 2,length] */
    frames = aril_transpose(frames, 2, 3);                      /* [N,frames,length,1 or 2] */
    if (window) frames = aril_mul(frames, aril_unsqueeze(window, 1));
    aril_tensor *y = aril_fft(complex_of(frames), (aril_fft_opts){ 0 });
    bool half = aril__onnx_attr_int(c, "onesided", 1) != 0 && aril_size(x, 2) == 1;
    return give(c, 0, half ? aril_narrow(y, 2, 0, length / 2 + 1) : y);
}

/* a - b cos(2 pi n / N) + d cos(4 pi n / N) */
static aril_status window(onnx_call *c, double a, double b, double d)
{
    int64_t size;
    aril_dtype dtype = ARIL_F32;
    aril_status s = aril__onnx_int_in(c, 0, 0, &size);
    if (s != ARIL_OK) return s;
    if (size < 0 || size > INT32_MAX ||
        !aril__onnx_dtype(aril__onnx_attr_int(c, "output_datatype", 1), &dtype))
        return aril__onnx_fail(c, ARIL_ERR_ARG, "size or type of the window");
    double *w = aril__onnx_alloc(&c->run->arena, (size_t)size, sizeof *w);
    if (!w) return ARIL_ERR_MEMORY;
    double n = (double)(aril__onnx_attr_int(c, "periodic", 1) ? size : size - 1);
    for (int64_t i = 0; i < size; i++)
        w[i] = n == 0 ? 1 : a - b * cos(2 * pi * (double)i / n) + d * cos(4 * pi * (double)i / n);
    for (int64_t i = 0; i < size && !aril_dtype_is_float(dtype); i++) w[i] = (float)w[i];
    return give(c, 0, aril__onnx_numbers(c, w, size, dtype));
}

static aril_status hann(onnx_call *c)
{
    return window(c, 0.5, 0.5, 0);
}

static aril_status hamming(onnx_call *c)
{
    return window(c, 25.0 / 46, 21.0 / 46, 0);
}

static aril_status blackman(onnx_call *c)
{
    return window(c, 0.42, 0.5, 0.08);
}

static double to_mel(double f)
{
    return 2595 * log10(1 + f / 700);
}

/* Triangles of height 1 between frequencies that are equidistant on the mel scale. */
static aril_status mel_weights(onnx_call *c)
{
    int64_t mels, length, rate;
    double low, high;
    aril_dtype dtype = ARIL_F32;
    aril_status s = aril__onnx_int_in(c, 0, 0, &mels);
    if (s == ARIL_OK) s = aril__onnx_int_in(c, 1, 0, &length);
    if (s == ARIL_OK) s = aril__onnx_int_in(c, 2, 1, &rate);
    if (s == ARIL_OK) s = aril__onnx_float_in(c, 3, 0, &low);
    if (s == ARIL_OK) s = aril__onnx_float_in(c, 4, 0, &high);
    if (s != ARIL_OK) return s;
    int64_t bins = length / 2 + 1;
    if (mels < 1 || mels > 1 << 20 || length < 1 || length > 1 << 24 || rate < 1 ||
        !aril__onnx_dtype(aril__onnx_attr_int(c, "output_datatype", 1), &dtype))
        return aril__onnx_fail(c, ARIL_ERR_ARG, "sizes or type of the matrix");
    double *w = aril__onnx_alloc(&c->run->arena, (size_t)(bins * mels), sizeof *w);
    int64_t *edge = aril__onnx_alloc(&c->run->arena, (size_t)mels + 2, sizeof *edge);
    if (!w || !edge) return ARIL_ERR_MEMORY;
    double from = to_mel(low), step = (to_mel(high) - from) / (double)(mels + 2);
    for (int64_t i = 0; i < mels + 2; i++) {
        double hertz = 700 * (pow(10, (from + (double)i * step) / 2595) - 1);
        edge[i] = (int64_t)floor((double)(length + 1) * hertz / (double)rate);
        if (edge[i] < 0 || edge[i] >= bins)
            return aril__onnx_fail(c, ARIL_ERR_ARG, "a frequency lies outside the spectrum");
    }
    for (int64_t i = 0; i < mels; i++) {
        int64_t a = edge[i], b = edge[i + 1], d = edge[i + 2];
        if (a == b) w[b * mels + i] = 1;
        for (int64_t j = a; j <= b && a != b; j++)
            w[j * mels + i] = (double)(j - a) / (double)(b - a);
        for (int64_t j = b; j < d; j++) w[j * mels + i] = (double)(d - j) / (double)(d - b);
    }
    return give(c, 0,
                aril_reshape(aril__onnx_numbers(c, w, bins * mels, dtype), ARIL_SHAPE(bins, mels)));
}

const onnx_rule aril__onnx_signal_rules[] = {
    RULE("DFT", 17, dft),
    RULE("STFT", 17, stft),
    RULE("HannWindow", 17, hann),
    RULE("HammingWindow", 17, hamming),
    RULE("BlackmanWindow", 17, blackman),
    RULE("MelWeightMatrix", 17, mel_weights),
    { 0 },
};
