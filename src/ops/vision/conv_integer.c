/* Convolution of 8-bit integers: see ops/linalg/integer.h. */
#include "aril/create.h"
#include "aril/math.h"
#include "aril/view.h"
#include "ops/linalg/integer.h"
#include "ops/table/apply.h"
#include "ops/table/element.h"
#include "ops/table/flops.h"
#include "ops/table/sample.h"
#include "ops/vision/conv.h"

#include <string.h>

ATTR_LIST(conv, CONV_ATTRS)

static aril_status conv_integer_infer(aril__call *c)
{
    int64_t dim[ARIL_MAX_DIMS];
    aril_status s = aril__conv_shape(c, c->in[0], c->in[1], dim);
    if (s < 0) return s;
    c->out[0].ndim = c->in[0]->ndim;
    memcpy(c->out[0].dim, dim, (size_t)c->in[0]->ndim * sizeof *dim);
    return aril__integer_check(c, c->in[1]->dim[0]);
}

/* Logical index from positions along five dimensions, of which [2 .. 2 + lead) are missing. */
static int64_t index_of(const aril_tensor *t, const int64_t *at)
{
    int lead = 5 - t->ndim;
    int64_t index = 0;
    for (int i = 0; i < 5; i++)
        if (i < 2 || i >= 2 + lead) index = index * t->dim[i < 2 ? i : i - lead] + at[i];
    return index;
}

/* The sum for filter k at position p of sample n. */
static int64_t sum_at(const aril__conv *d, const aril__run *r, const aril__rescale *s, int64_t n,
                      int64_t k, const int64_t *p)
{
    int64_t sum = 0, first = k / d->k * d->c, b_zero = aril__integer_of(s->b_zero, k);
    int64_t taps = d->kernel[0] * d->kernel[1] * d->kernel[2];
    for (int64_t q = 0; q < taps; q++) {
        int64_t at[3] = { q / d->kernel[2] / d->kernel[1], q / d->kernel[2] % d->kernel[1],
                          q % d->kernel[2] },
                from[3];
        bool inside = true;
        for (int i = 0; i < 3; i++) inside &= aril__conv_reads(d, false, i, p[i], at[i], &from[i]);
        for (int64_t c = 0; c < d->c && inside; c++) {
            int64_t x[5] = { n, first + c, from[0], from[1], from[2] },
                    w[5] = { k, c, at[0], at[1], at[2] };
            sum += (aril__get_i64(r->in[0], index_of(r->in[0], x)) - s->a_zero) *
                   (aril__get_i64(r->in[1], index_of(r->in[1], w)) - b_zero);
        }
    }
    return sum;
}

static aril_status conv_integer_ref(aril__run *r)
{
    aril__conv d;
    if (r->out[0]->numel == 0) return ARIL_OK;
    aril__conv_describe(r, &d);
    aril__rescale s = aril__rescale_of(r);
    int64_t filters = d.k * d.groups, i = 0, p[3];
    for (int64_t n = 0; n < d.batch; n++)
        for (int64_t k = 0; k < filters; k++)
            for (p[0] = 0; p[0] < d.out[0]; p[0]++)
                for (p[1] = 0; p[1] < d.out[1]; p[1]++)
                    for (p[2] = 0; p[2] < d.out[2]; p[2]++, i++)
                        aril__integer_put(&s, r->out[0], i, k, sum_at(&d, r, &s, n, k, p));
    return ARIL_OK;
}

static void conv_integer_decompose(aril__call *c, aril_tensor **out)
{
    aril_tensor *x = aril_cast(c->in[0], ARIL_F64), *w = aril_cast(c->in[1], ARIL_F64);
    aril_tensor *x0 = aril__integer_in(c->n_in, c->in, ARIL__INTEGER_A_ZERO),
                *w0 = aril__integer_in(c->n_in, c->in, ARIL__INTEGER_B_ZERO);
    if (x0) x = aril_sub(x, aril_reshape(aril_cast(x0, ARIL_F64), ARIL_SHAPE()));
    if (w0) w = aril_sub(w, aril__integer_spread(w0, 0, w->ndim));
    aril_tensor *y = aril__op_with(c->attrs, &aril__op_conv, x, w);
    out[0] = aril__integer_finish(c, aril_round(y), 1);
}

#define NUMBERS(...) \
    {                \
        __VA_ARGS__  \
    }
#define SAMPLE_ATTRS(stride_, pad_, dilation_, groups_, same_)  \
    (&(const struct conv_attrs){ .stride = NUMBERS stride_,     \
                                 .pad = NUMBERS pad_,           \
                                 .dilation = NUMBERS dilation_, \
                                 .groups = { groups_ },         \
                                 .same = { same_ } })
#define PLAIN   SAMPLE_ATTRS((1, 1, 1), (0), (1, 1, 1), 1, 0)
#define PADDED  SAMPLE_ATTRS((2, 1, 1), (1, 0, 2, 1, 0, 1), (1, 2, 1), 1, 0)
#define GROUPS2 SAMPLE_ATTRS((1, 1, 1), (1, 1, 1, 1, 0, 0), (1, 1, 1), 2, 0)
#define DEPTH   SAMPLE_ATTRS((1, 2, 1), (1, 1, 1, 1, 0, 0), (1, 1, 1), 6, 0)
#define SAME    SAMPLE_ATTRS((2, 2, 2), (0), (1, 1, 1), 1, ARIL__SAME_UPPER)

static const aril__sample conv_integer_samples[] = {
    { .in = { "[2,3,5,4]", "[3,3,3,2]" }, .attrs = PLAIN },
    { .in = { "[1,2,6,5]", "[5,2,3,3]", "[1]", "[5]" }, .attrs = PADDED },
    { .in = { "[1,4,5,3]", "[6,2,3,3]", "[1]", "-" }, .attrs = GROUPS2 },
    { .in = { "[2,6,5,4]", "[6,1,3,3]", "[1]", "[1]" }, .attrs = DEPTH },
    { .in = { "[2,2,7]", "[3,2,3]", "[1]" }, .attrs = SAME },
    { .in = { "[1,2,3,4,3]", "[2,2,2,2,2]", "-", "[2]" }, .attrs = SAME },
    { .in = { "[2,70,4,4]", "[3,70,1,1]", "[1]", "-" }, .attrs = PLAIN },
    { .in = { "[0,3,4,4]", "[2,3,3,3]" }, .attrs = PLAIN },
    SAMPLE_END
};

static double conv_integer_flops(const aril__run *r)
{
    return 2 * aril__numel_of(r->out[0]) * aril__numel_of(r->in[1]) / aril__first_size(r->in[1]);
}

OP(conv_integer, .doc = "a convolution of 8-bit integers less zero points, in i32 or rescaled",
   .onnx = "ConvInteger", .min_in = 2, .max_in = ARIL__INTEGER_INPUTS, .n_out = 1,
   .optional = ARIL__INTEGER_OPTIONAL, .flags = NONDIFF | STRIDED | KEEPS_CHANNELS,
   .types = DT(ARIL_U8) | DT(ARIL_I8), .infer = conv_integer_infer, .ref = conv_integer_ref,
   .decompose = conv_integer_decompose, .flops = conv_integer_flops,
   .samples = conv_integer_samples, WITH_ATTRS(conv));
