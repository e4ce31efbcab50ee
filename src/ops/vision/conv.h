/* Convolution over one to three spatial dimensions, and the two products that are its gradients:
 *
 *     conv(x, w, b)          x [N,C,in...], w [K,C/groups,kernel...], b [K] -> y [N,K,out...]
 *     conv_add(x, w, b, r)   conv(x, w, b) + r, then the activation; r like y
 *     conv_dgrad(g, w, x)    g like y -> like x; only the shape of x is read
 *     conv_dgrad_add(g, w, x, h)    the same plus h, another part of the gradient
 *     conv_wgrad(g, x, w)    g like y -> like w; only the shape of w is read
 *
 * All three are linear in each of their first two inputs, and the gradient of each is expressed by
 * the other two, so derivatives of every order exist. conv_transpose is conv_dgrad with an output
 * size that follows from the attributes. */
#ifndef ARIL_OPS_CONV_H
#define ARIL_OPS_CONV_H

#include "ops/vision/slide.h"

/* Ops that other files name. */
extern const aril__op aril__op_conv, aril__op_conv_add, aril__op_conv_dgrad,
    aril__op_conv_dgrad_add, aril__op_conv_transpose, aril__op_conv_wgrad;

/* One number per spatial dimension; padding in pairs: before and after. `same` computes the padding
 * from the input's size instead (ARIL__SAME_...). `activation` applies to a forward op's result;
 * the two gradients have none. */
#define CONV_ATTRS(A)                         \
    A(conv, I64, 3, stride, 1, "strides")     \
    A(conv, I64, 6, pad, 0, "pads")           \
    A(conv, I64, 3, dilation, 1, "dilations") \
    A(conv, I64, 1, groups, 1, "group")       \
    A(conv, I64, 1, same, 0, "auto_pad")      \
    A(conv, I64, 1, activation, 0, NULL)
ATTRS(conv, CONV_ATTRS)

#define CONV_TRANSPOSE_ATTRS(A)                                    \
    A(conv_transpose, I64, 3, stride, 1, "strides")                \
    A(conv_transpose, I64, 6, pad, 0, "pads")                      \
    A(conv_transpose, I64, 3, dilation, 1, "dilations")            \
    A(conv_transpose, I64, 1, groups, 1, "group")                  \
    A(conv_transpose, I64, 3, output_padding, 0, "output_padding") \
    A(conv_transpose, I64, 1, activation, 0, NULL)
ATTRS(conv_transpose, CONV_TRANSPOSE_ATTRS)

/* The sizes of one convolution, padded to three spatial dimensions: missing ones come first, with
 * size and kernel 1. */
typedef struct aril__conv {
    int64_t batch, groups;
    int64_t c, k; /* channels of x and of y per group */
    int64_t in[3], out[3], kernel[3], stride[3], begin[3], dilation[3];
    int64_t x_stride[5], w_stride[5], y_stride[5];
    void *x, *w, *y;
    const void *bias; /* one per output channel, or NULL */
    int64_t bias_stride;
    const void *added; /* to y before the activation, or NULL */
    int64_t added_stride[5];
    int64_t activation; /* of the result */
} aril__conv;

/* The shape of y from those of x and w, after checks. */
aril_status aril__conv_shape(const aril__call *c, const aril_tensor *x, const aril_tensor *w,
                             int64_t *dim);

/* Describes a run of conv, conv_add, conv_integer, conv_dgrad, conv_wgrad or conv_transpose. */
void aril__conv_describe(const aril__run *r, aril__conv *d);

/* Whether y is computed, by conv or conv_add. */
static inline bool aril__conv_is_forward(const aril__op *op)
{
    return op == &aril__op_conv || op == &aril__op_conv_add;
}

/* Along one dimension: position p of the result (of x if `data`, else of y) reads position *at of
 * the other image through kernel position q; returns false if that is out of bounds. */
static inline bool aril__conv_reads(const aril__conv *d, bool data, int i, int64_t p, int64_t q,
                                    int64_t *at)
{
    if (data) {
        int64_t from = p + d->begin[i] - q * d->dilation[i];
        *at = from / d->stride[i];
        return from >= 0 && from % d->stride[i] == 0 && *at < d->out[i];
    }
    *at = p * d->stride[i] - d->begin[i] + q * d->dilation[i];
    return *at >= 0 && *at < d->in[i];
}

#endif
