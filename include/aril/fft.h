/* Fast Fourier transforms of any length, in O(n log n).
 *
 * Aril has no complex dtype: a complex tensor is a real one whose last dimension, of size 2, holds
 * real and imaginary parts. All of these are differentiable any number of times. */
#ifndef ARIL_FFT_H
#define ARIL_FFT_H

#include "aril/tensor.h"

ARIL_C_BEGIN

/* Normalization: scales the inverse by 1/n (BACKWARD, the default), both by 1/sqrt(n) (ORTHO), or
 * the forward transform by 1/n (FORWARD). */
typedef enum aril_fft_norm {
    ARIL_FFT_BACKWARD,
    ARIL_FFT_ORTHO,
    ARIL_FFT_FORWARD,
} aril_fft_norm;

typedef struct aril_fft_opts {
    int64_t n; /* length: the signal is truncated or zero-padded to it; 0: unchanged */
    aril_fft_norm norm;
} aril_fft_opts;

/* y[k] = sum over t of x[t] exp(-2 pi i k t / n); the inverse has +. [...,n,2] -> [...,n,2] */
ARIL_API aril_tensor *aril_fft(aril_tensor *x, aril_fft_opts opts);
ARIL_API aril_tensor *aril_ifft(aril_tensor *x, aril_fft_opts opts);

/* The same over two dimensions. [...,h,w,2] -> [...,h,w,2] */
ARIL_API aril_tensor *aril_fft2(aril_tensor *x, aril_fft_norm norm);
ARIL_API aril_tensor *aril_ifft2(aril_tensor *x, aril_fft_norm norm);

/* The transform of a real signal: the first half of the spectrum; the rest is its conjugate.
 * [...,n] -> [...,n/2+1,2] */
ARIL_API aril_tensor *aril_rfft(aril_tensor *x, aril_fft_opts opts);

/* Its inverse: opts.n is the length of the result, 0 meaning the even one, 2(m-1).
 * [...,m,2] -> [...,n] */
ARIL_API aril_tensor *aril_irfft(aril_tensor *x, aril_fft_opts opts);

/* The sample frequencies of a spectrum of n points with sample spacing d: for fft, [n]; for rfft,
 * [n/2+1]. f32 on the CPU. */
ARIL_API aril_tensor *aril_fftfreq(int64_t n, double d);
ARIL_API aril_tensor *aril_rfftfreq(int64_t n, double d);

typedef struct aril_stft_opts {
    int64_t hop;         /* hop length between frames; 0: n_fft / 4 */
    int64_t win_length;  /* 0: n_fft; a shorter window is centered in the frame */
    aril_tensor *window; /* [win_length]; NULL: ones */
    bool no_center;      /* frame f begins at f * hop; otherwise it is centered there, and the
                            signal is padded by reflection at both ends */
    bool zero_pad;       /* pad with zeros instead of by reflection */
    bool normalized;     /* scaled by 1/sqrt(n_fft) */
    bool two_sided;      /* the full spectrum, not its first half */
    int64_t length;      /* istft: length of the signal; 0: what the frames cover */
} aril_stft_opts;

/* Short-time Fourier transform: the spectrum of overlapping frames, as torch.stft. x [...,length]
 * -> [...,n_fft/2+1,frames,2]. */
ARIL_API aril_tensor *aril_stft(aril_tensor *x, int64_t n_fft, aril_stft_opts opts);

/* Inverse of aril_stft, as torch.istft: frames are multiplied by the window, overlap-added, and
 * divided by the sum of the squared windows, which must be nonzero everywhere (else
 * ARIL_ERR_NUMBER). */
ARIL_API aril_tensor *aril_istft(aril_tensor *x, int64_t n_fft, aril_stft_opts opts);

ARIL_C_END

#endif
