#include "data/image/pixels.h"

#include "core/vector/targets.h"

#define TEMPLATE "data/image/pixels.inc"
#include "data/targets.inc"

void aril__u8_to_unit(float *dst, const uint8_t *src, int64_t n)
{
    PICK(u8_to_unit)(dst, src, n);
}

void aril__scale_shift(float *dst, const float *src, int64_t n, float scale, float shift)
{
    PICK(scale_shift)(dst, src, n, scale, shift);
}

void aril__u8_scale_shift(float *dst, const uint8_t *src, int64_t n, float scale, float shift)
{
    PICK(u8_scale_shift)(dst, src, n, scale, shift);
}

void aril__reverse_u8(uint8_t *dst, const uint8_t *src, int64_t n)
{
    PICK(reverse_u8)(dst, src, n);
}

void aril__reverse_f32(float *dst, const float *src, int64_t n)
{
    PICK(reverse_f32)(dst, src, n);
}
