/* Fourier transforms and frames of signals: attributes. */
#ifndef ARIL_OPS_FFT_H
#define ARIL_OPS_FFT_H

#include "ops/table/op.h"

/* Ops that other files name. */
extern const aril__op aril__op_resize_axis;

/* `inverse`: the sign of the exponent. `norm`: divides the result by 1 (0), by the square root of
 * the length (1) or by the length (2). `twice`: in transforms with a real side, entries that stand
 * for two conjugate entries of the full spectrum count twice. `n`: length of a real result; 0: that
 * of the second input, or else 2 * (bins - 1). */
#define FFT_ATTRS(A)                 \
    A(fft, I64, 1, inverse, 0, NULL) \
    A(fft, I64, 1, norm, 0, NULL) A(fft, I64, 1, twice, 0, NULL) A(fft, I64, 1, n, 0, NULL)
ATTRS(fft, FFT_ATTRS)

/* `axis` counts from the end, 1 is the last. `n`: its new size; -1: that of the second input. */
#define RESIZE_AXIS_ATTRS(A) \
    A(resize_axis, I64, 1, axis, 1, NULL) A(resize_axis, I64, 1, n, -1, NULL)
ATTRS(resize_axis, RESIZE_AXIS_ATTRS)

/* Frame f of size `size` starts at f * hop - pad. Positions outside of the signal are 0, or
 * mirrored at its ends (reflect). `length`: of overlap_add's result; -1: that of the second input;
 * 0: up to the end of the last frame minus the padding. */
#define FRAMES_ATTRS(A)              \
    A(frames, I64, 1, size, 1, NULL) \
    A(frames, I64, 1, hop, 1, NULL)  \
    A(frames, I64, 1, pad, 0, NULL)  \
    A(frames, I64, 1, reflect, 0, NULL) A(frames, I64, 1, length, -1, NULL)
ATTRS(frames, FRAMES_ATTRS)

#ifndef __cplusplus /* the attributes alone are for plug-ins too */

/* `count` frames of `size` elements, of a signal of `length`. */
typedef struct aril__frames {
    int64_t size, hop, pad, count, length;
    bool reflect;
} aril__frames;

static inline aril__frames aril__frames_of(const struct frames_attrs *a, const aril_tensor *frames,
                                           const aril_tensor *signal)
{
    return (aril__frames){ .size = a->size[0],
                           .hop = a->hop[0],
                           .pad = a->pad[0],
                           .reflect = a->reflect[0],
                           .count = frames->dim[frames->ndim - 2],
                           .length = signal->dim[signal->ndim - 1] };
}

/* The position in the signal of element i of a frame; -1: outside. */
static inline int64_t aril__frames_at(const aril__frames *f, int64_t frame, int64_t i)
{
    int64_t at = frame * f->hop - f->pad + i;
    if (f->reflect) {
        if (at < 0) at = -at;
        if (at >= f->length) at = 2 * (f->length - 1) - at;
    }
    return at >= 0 && at < f->length ? at : -1;
}

#endif

#endif
