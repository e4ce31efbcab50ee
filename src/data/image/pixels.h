/* Loops over image elements, compiled for each instruction set. */
#ifndef ARIL_DATA_PIXELS_H
#define ARIL_DATA_PIXELS_H

#include <stddef.h>
#include <stdint.h>

/* dst[i] = src[i] / 255, rounded once. */
void aril__u8_to_unit(float *dst, const uint8_t *src, int64_t n);

/* dst[i] = src[i] * scale + shift; dst may be src. */
void aril__scale_shift(float *dst, const float *src, int64_t n, float scale, float shift);

/* dst[i] = (src[i] / 255) * scale + shift, bit-identical to the two calls above in sequence. */
void aril__u8_scale_shift(float *dst, const uint8_t *src, int64_t n, float scale, float shift);

/* dst[i] = src[n - 1 - i]. */
void aril__reverse_u8(uint8_t *dst, const uint8_t *src, int64_t n);
void aril__reverse_f32(float *dst, const float *src, int64_t n);

#endif
