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

typedef struct aril_fftn_opts {
    aril_axes axes;           /* of the complex or real tensor, not counting the pairs; none: all */
    int64_t n[ARIL_MAX_DIMS]; /* the length along each of them, as in aril_fft_opts; 0: unchanged */
    aril_fft_norm norm;
} aril_fftn_opts;

/* Transforms over several axes: complex, real to complex (only the last of the axes is halved) and
 * complex to real, where the last length is that of the result. */
ARIL_API aril_tensor *aril_fftn(aril_tensor *x, aril_fftn_opts opts);
ARIL_API aril_tensor *aril_ifftn(aril_tensor *x, aril_fftn_opts opts);
ARIL_API aril_tensor *aril_rfftn(aril_tensor *x, aril_fftn_opts opts);
ARIL_API aril_tensor *aril_irfftn(aril_tensor *x, aril_fftn_opts opts);

/* Over the last two axes: [...,h,w] -> [...,h,w/2+1,2], and back to an even width. */
ARIL_API aril_tensor *aril_rfft2(aril_tensor *x, aril_fft_norm norm);
ARIL_API aril_tensor *aril_irfft2(aril_tensor *x, aril_fft_norm norm);

/* Moves frequency 0 to the middle of each axis, and back. The axes are those of x as it is: for a
 * complex tensor name them, as the last dimension holds pairs; ARIL_ALL shifts every dimension. */
ARIL_API aril_tensor *aril_fftshift(aril_tensor *x, aril_axes axes);
ARIL_API aril_tensor *aril_ifftshift(aril_tensor *x, aril_axes axes);

/* Windows of n samples, f32 on the CPU, for aril_stft. Periodic ones (the usual choice there)
 * continue without a jump when repeated; symmetric ones end as they begin. */
ARIL_API aril_tensor *aril_hann_window(int64_t n, bool symmetric);
ARIL_API aril_tensor *aril_hamming_window(int64_t n, bool symmetric);
ARIL_API aril_tensor *aril_blackman_window(int64_t n, bool symmetric);
/* beta, at least 0 (PyTorch's default is 12): a larger one makes a narrower window. */
ARIL_API aril_tensor *aril_kaiser_window(int64_t n, bool symmetric, double beta);

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
