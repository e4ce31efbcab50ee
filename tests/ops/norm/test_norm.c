/* Normalization and softmax: kernels against references, with sizes around those of their blocks.
 */
#include "aril/aril.h"
#include "ops/norm/norm.h"
#include "ops/norm/softmax.h"
#include "support/agree.h"
#include "support/device.h"
#include "support/ops.h"
#include "support/test.h"

#include <math.h>

static aril_tensor *normal(aril_shape shape)
{
    return aril_randn(shape, ARIL_F64, test_device());
}

/* From 0.5 to 1.5. */
static aril_tensor *positive(aril_shape shape)
{
    return aril_add_scalar(aril_rand(shape, ARIL_F64, test_device()), 0.5);
}

/* ---- softmax ---- */

static void check_softmax(aril_shape shape, int axis)
{
    ARIL_SCOPE;
    struct softmax_attrs a = { { axis } };
    aril_tensor *x = normal(shape), *g = normal(shape);
    aril_tensor *in[2] = { g, aril_softmax(x, axis) };
    test_rows_agree(&aril__op_softmax, 1, &x, &a);
    test_rows_agree(&aril__op_log_softmax, 1, &x, &a);
    test_rows_agree(&aril__op_softmax_grad, 2, in, &a);
    in[1] = aril_log_softmax(x, axis);
    test_rows_agree(&aril__op_log_softmax_grad, 2, in, &a);
}

TEST(softmax_rows_agree_with_the_reference)
{
    check_softmax(ARIL_SHAPE(70, 63), 1);     /* short lines together */
    check_softmax(ARIL_SHAPE(9, 65), 1);      /* lines on their own */
    check_softmax(ARIL_SHAPE(2, 4099), 1);    /* longer than a block */
    check_softmax(ARIL_SHAPE(2, 30, 515), 1); /* columns of several blocks */
    check_softmax(ARIL_SHAPE(517, 70), 0);    /* a long axis */
    check_softmax(ARIL_SHAPE(3000, 7), 0);    /* few columns along a long axis */
}

/* ---- batch norm ---- */

/* last: channels-last. */
static void check_batch_norm(aril_shape shape, bool last, int64_t act)
{
    ARIL_SCOPE;
    aril_shape each = ARIL_SHAPE(shape.dim[1]);
    aril_tensor *x = normal(shape), *g = normal(shape), *residual = normal(shape),
                *y = normal(shape);
    if (last) {
        x = aril_channels_last(x);
        residual = aril_channels_last(residual);
    }
    aril_tensor *w = positive(each), *b = normal(each), *mean = normal(each), *var = positive(each);
    struct batch_norm_attrs train = { { 0.1 }, { 1e-5 }, { 0 }, { act } };
    struct batch_norm_eval_attrs eval = { { 1e-5 }, { act } };
    struct batch_norm_grad_attrs back = { { act }, { act != 0 } };
    test_rows_agree(&aril__op_batch_norm, 7,
                    (aril_tensor *[]){ x, w, b, mean, var, NULL, act ? residual : NULL }, &train);
    test_rows_agree(&aril__op_batch_norm_eval, 6,
                    (aril_tensor *[]){ x, w, b, mean, var, act ? residual : NULL }, &eval);
    test_rows_agree(&aril__op_batch_norm_grad, 7,
                    (aril_tensor *[]){ x, g, w, mean, var, act ? y : NULL, NULL }, &back);
}

TEST(batch_norm_rows_agree_with_the_reference)
{
    check_batch_norm(ARIL_SHAPE(701, 40), false, 0);         /* several samples a row */
    check_batch_norm(ARIL_SHAPE(67, 515), false, ARIL_RELU); /* blocks of columns */
    check_batch_norm(ARIL_SHAPE(2, 3, 2051), false, ARIL_TANH);
    check_batch_norm(ARIL_SHAPE(3, 5, 9, 11), false, ARIL_RELU);
    check_batch_norm(ARIL_SHAPE(2, 70, 15, 17), true, ARIL_RELU);
    check_batch_norm(ARIL_SHAPE(2, 3, 31, 33), true, 0);
}

/* An infinite weight gives infinities of the sign of (x - mean) * weight, and none becomes NaN by
 * the corrections of a kernel. */
static void check_infinite_weights(aril_dtype type, bool last, bool training)
{
    ARIL_SCOPE;
    aril_seed(7);
    const double weights[3] = { -INFINITY, INFINITY, -INFINITY };
    aril_tensor *x = aril_randn(ARIL_SHAPE(4, 3, 5, 5), type, test_device());
    if (last) x = aril_channels_last(x);
    aril_set_requires_grad(x, true);
    aril_tensor *w = aril_from(weights, ARIL_SHAPE(3), ARIL_F64, test_device());
    aril_tensor *mean = aril_full(ARIL_SHAPE(3), 0.1, ARIL_F64, test_device());
    aril_tensor *var = aril_full(ARIL_SHAPE(3), 2, ARIL_F64, test_device());
    aril_dtype stat = type == ARIL_F64 ? ARIL_F64 : ARIL_F32;
    aril_tensor *y =
        aril_batch_norm(x, aril_cast(w, stat), NULL, aril_cast(mean, stat), aril_cast(var, stat),
                        (aril_batch_norm_opts){ .eval = !training });
    aril_tensor *wide = aril_cast(aril_detach(x), ARIL_F64);
    if (training) mean = aril_mean(wide, ARIL_AXES(0, 2, 3));
    aril_tensor *want = aril_mul(aril_sub(wide, aril_reshape(mean, ARIL_SHAPE(1, 3, 1, 1))),
                                 aril_reshape(w, ARIL_SHAPE(1, 3, 1, 1)));
    CHECK_MSG(aril_equal(aril_cast(aril_detach(y), ARIL_F64), want), "%s%s%s: other infinities",
              aril_dtype_name(type), last ? ", channels-last" : "", training ? ", training" : "");
    aril_tensor *g = aril_randn(ARIL_SHAPE(4, 3, 5, 5), type, test_device());
    aril_backward_with(y, g, (aril_grad_opts){ 0 });
    CHECK_MSG(!aril_item(aril_any(aril_isnan(aril_grad(x)), ARIL_ALL)),
              "%s%s%s: NaN in the gradient", aril_dtype_name(type), last ? ", channels-last" : "",
              training ? ", training" : "");
    CHECK_MSG(aril_ok(), "%s", aril_error());
}

TEST(batch_norm_takes_infinite_weights)
{
    const aril_dtype types[] = { ARIL_F32, ARIL_F64, ARIL_BF16 };
    for (int i = 0; i < 12; i++) check_infinite_weights(types[i / 4], i & 1, i & 2);
}

TEST(local_response_norm_rows_agree_with_the_reference)
{
    static const struct local_response_norm_attrs all[] = { { { 5 }, { 1e-2 }, { 0.75 }, { 1 } },
                                                            { { 2 }, { 0.5 }, { 0.6 }, { 2 } } };
    for (int i = 0; i < 4; i++) {
        ARIL_SCOPE;
        aril_shape shape = i < 2 ? ARIL_SHAPE(2, 33, 17, 31) : ARIL_SHAPE(2, 3, 70, 81);
        aril_tensor *in[2] = { normal(shape), normal(shape) };
        if (i % 2) in[0] = aril_channels_last(in[0]);
        test_rows_agree(&aril__op_local_response_norm, 1, in, &all[i / 2]);
        test_rows_agree(&aril__op_local_response_norm_grad, 2, in, &all[i / 2]);
    }
}

/* ---- layer, RMS and group norm ---- */

static void check_layer_norm(int64_t rows, int64_t n, bool params)
{
    ARIL_SCOPE;
    struct layer_norm_attrs l = { { 1 }, { 1e-5 } };
    struct rms_norm_attrs m = { { 1 }, { -1 } };
    aril_tensor *x = aril_add_scalar(normal(ARIL_SHAPE(rows, n)), 3),
                *g = normal(ARIL_SHAPE(rows, n));
    aril_tensor *w = params ? positive(ARIL_SHAPE(n)) : NULL,
                *b = params ? normal(ARIL_SHAPE(n)) : NULL;
    aril_tensor *mean = normal(ARIL_SHAPE(rows, 1)), *s = positive(ARIL_SHAPE(rows, 1));
    test_rows_agree(&aril__op_layer_norm, 3, (aril_tensor *[]){ x, w, b }, &l);
    test_rows_agree(&aril__op_layer_norm_grad, 5, (aril_tensor *[]){ g, x, w, mean, s }, &l);
    test_rows_agree(&aril__op_rms_norm, 2, (aril_tensor *[]){ x, w }, &m);
    test_rows_agree(&aril__op_rms_norm_grad, 4, (aril_tensor *[]){ g, x, w, s }, &m);
}

static void check_group_norm(aril_shape shape, int64_t groups, bool params)
{
    ARIL_SCOPE;
    struct group_norm_attrs a = { { groups }, { 1e-5 } };
    aril_shape each = ARIL_SHAPE(shape.dim[1]), stats = ARIL_SHAPE(shape.dim[0], groups);
    aril_tensor *x = normal(shape), *g = normal(shape), *mean = normal(stats), *s = positive(stats);
    aril_tensor *w = params ? positive(each) : NULL, *b = params ? normal(each) : NULL;
    test_rows_agree(&aril__op_group_norm, 3, (aril_tensor *[]){ x, w, b }, &a);
    test_rows_agree(&aril__op_group_norm_grad, 5, (aril_tensor *[]){ x, g, w, mean, s }, &a);
}

TEST(layer_norm_rows_agree_with_the_reference)
{
    check_layer_norm(70, 33, true);
    check_layer_norm(3, 4099, true); /* few rows: gradients of the weights in a second pass */
    check_layer_norm(41, 515, false);
    check_group_norm(ARIL_SHAPE(2, 6, 17, 13), 3, true);
    check_group_norm(ARIL_SHAPE(9, 12, 65), 2, true);
    check_group_norm(ARIL_SHAPE(9, 4, 5), 4, false);
}
