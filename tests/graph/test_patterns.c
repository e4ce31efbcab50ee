/* Passes that replace nodes by others: golden texts before and after, and the same results. */
#include "aril/aril.h"
#include "ops/table/rows.h"
#include "ops/vision/conv.h"
#include "support/compare.h"
#include "support/device.h"
#include "support/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { INPUTS = 6 };

typedef struct pattern {
    aril_fn *fn;
    int n_in;
    aril_shape in[INPUTS];
    double tolerance; /* 0: the same bits */
    const char *before, *after;
} pattern;

#define FN(name) static void name(void *ctx, aril_tensor *const *in, aril_tensor **out)

/* The nodes of a program, without source locations. */
static void print_nodes(const aril_program *p, char *text, size_t size)
{
    char line[512];
    FILE *f = tmpfile();
    aril_program_print(p, f);
    rewind(f);
    text[0] = '\0';
    while (fgets(line, sizeof line, f)) {
        char *comment = strstr(line, "  #");
        if (comment) memcpy(comment, "\n", 2);
        if (line[0] == ' ') strncat(text, line + 2, size - strlen(text) - 1);
    }
    fclose(f);
}

static void run(const pattern *p, const char *passes, aril_tensor *const *in, aril_tensor **out,
                char *text, size_t size)
{
    if (passes) setenv("ARIL_PASSES", passes, 1);
    aril_program *program = aril_jit(p->fn, NULL, (aril_jit_opts){ 0 });
    aril_program_run(program, (aril_list){ p->n_in, in }, out);
    unsetenv("ARIL_PASSES");
    print_nodes(program, text, size);
    aril_program_free(program);
}

static void check_in(const pattern *p, const char *passes, aril_dtype dtype)
{
    ARIL_SCOPE;
    char before[3000], after[3000];
    aril_tensor *in[INPUTS], *want[1], *got[1];
    for (int i = 0; i < p->n_in; i++)
        in[i] = test_there(
            aril_cast(aril_add_scalar(aril_rand(p->in[i], ARIL_F32, aril_cpu()), -0.25), dtype));
    run(p, "none", in, want, before, sizeof before);
    run(p, passes, in, got, after, sizeof after);
    CHECK_MSG(aril_ok(), "%s", aril_error());
    if (dtype == ARIL_F32) CHECK_STR(before, p->before);
    if (dtype == ARIL_F32) CHECK_STR(after, p->after);
    double tolerance = dtype == ARIL_BF16 ? 0.03 : p->tolerance;
    char *why = p->tolerance > 0 ? test_difference(got[0], want[0], tolerance, tolerance)
                                 : test_difference_in_bits(got[0], want[0]);
    CHECK_MSG(!why, "%s: %s", aril_dtype_name(dtype), why);
}

static void check(const pattern *p, const char *passes)
{
    aril_seed(7);
    check_in(p, passes, ARIL_F32);
    if (!test_failed()) check_in(p, passes, ARIL_BF16);
}

/* ---- algebra ---- */

FN(twice_turned)
{
    (void)ctx;
    aril_tensor *y = aril_transpose(aril_neg(aril_neg(in[0])), 0, 1);
    out[0] = aril_exp(aril_transpose(aril_mul_scalar(y, 1), 0, 1));
}

TEST(what_undoes_itself_is_left_out)
{
    static const pattern p = { twice_turned,
                               1,
                               { { 2, { 2, 3 } } },
                               0,
                               "%2: f32[2,3] = neg(%1)\n"
                               "%3: f32[2,3] = neg(%2)\n"
                               "%4: f32[3,2] = permute(%3, axes=[1,0])\n"
                               "%6: f32[3,2] = mul(%4, 1)\n"
                               "%7: f32[2,3] = permute(%6, axes=[1,0])\n"
                               "%8: f32[2,3] = exp(%7)\n"
                               "return %8\n",
                               "%8: f32[2,3] = exp(%1)\n"
                               "return %8\n" };
    check(&p, NULL);
}

FN(masked)
{
    (void)ctx;
    aril_tensor *mask = aril_full(ARIL_SHAPE(4, 4), -INFINITY, ARIL_F32, test_device());
    aril_tensor *turned = aril_sub(aril_eye(4, 4, ARIL_F32, test_device()), aril_scalar(1));
    out[0] = aril_add(aril_mul(in[0], turned), aril_triu(mask, 1));
}

TEST(what_needs_no_input_is_computed_once)
{
    static const pattern p = { masked,
                               1,
                               { { 2, { 4, 4 } } },
                               0,
                               "%2: f32[4,4] = full(ndim=2, dim=[4,4], dtype=f32, value=[-inf])\n"
                               "%3: f32[4,4] = eye(ndim=2, dim=[4,4], dtype=f32)\n"
                               "%5: f32[4,4] = sub(%3, 1)\n"
                               "%6: f32[4,4] = triu(%2, diagonal=1)\n"
                               "%7: f32[4,4] = mul(%1, %5)\n"
                               "%8: f32[4,4] = add(%7, %6)\n"
                               "return %8\n",
                               "%5: f32[4,4] = constant\n"
                               "%6: f32[4,4] = constant\n"
                               "%7: f32[4,4] = mul(%1, %5)\n"
                               "%8: f32[4,4] = add(%7, %6)\n"
                               "return %8\n" };
    if (!aril_device_equal(test_device(), aril_cpu())) SKIP("the text would name the device");
    check(&p, "-fuse");
}

FN(turned_around)
{
    (void)ctx;
    aril_tensor *y = aril_permute(aril_permute(in[0], ARIL_AXES(1, 2, 0)), ARIL_AXES(1, 2, 0));
    out[0] = aril_reshape(aril_flatten(aril_relu(aril_relu(y)), 0, 1), ARIL_SHAPE(2, 12));
}

TEST(permutations_and_reshapes_are_one)
{
    static const pattern p = { turned_around,
                               1,
                               { { 3, { 2, 3, 4 } } },
                               0,
                               "%2: f32[3,4,2] = permute(%1, axes=[1,2,0])\n"
                               "%3: f32[4,2,3] = permute(%2, axes=[1,2,0])\n"
                               "%4: f32[4,2,3] = relu(%3)\n"
                               "%5: f32[4,2,3] = relu(%4)\n"
                               "%6: f32[4,2,3] = contiguous(%5)\n"
                               "%7: f32[8,3] = flatten(%6, end=1)\n"
                               "%8: f32[2,12] = reshape(%7, ndim=2, dim=[2,12])\n"
                               "return %8\n",
                               "%3: f32[4,2,3] = permute(%1, axes=[2,0,1])\n"
                               "%4: f32[4,2,3] = relu(%3)\n"

                               "%8: f32[2,12] = reshape(%4, ndim=2, dim=[2,12])\n"
                               "return %8\n" };
    check(&p, NULL);
}

/* -0 + 0 is 0: only x - 0 and x + -0 are x. */
FN(zeros)
{
    (void)ctx;
    aril_tensor *y = aril_sub_scalar(aril_add_scalar(in[0], -0.0), 0.0);
    out[0] = aril_add_scalar(aril_mul(y, aril_full_like(y, -0.0)), 0.0);
}

TEST(zero_is_added_where_that_matters)
{
    static const pattern p = { zeros,
                               1,
                               { { 1, { 4 } } },
                               0,
                               "%3: f32[4] = add(%1, -0)\n"
                               "%5: f32[4] = sub(%3, 0)\n"
                               "%6: f32[4] = full_like(%5)\n"
                               "%7: f32[4] = mul(%5, %6)\n"
                               "%9: f32[4] = add(%7, 0)\n"
                               "return %9\n",
                               "%6: f32[4] = full_like(%1)\n"
                               "%7: f32[4] = mul(%1, %6)\n"
                               "%9: f32[4] = add(%7, 0)\n"
                               "return %9\n" };
    check(&p, "-fuse,-fold");
}

FN(casts)
{
    (void)ctx;
    aril_tensor *y = aril_cast(aril_cast(aril_mul(in[0], in[0]), ARIL_F64), ARIL_F16);
    out[0] = aril_cast(aril_cast(aril_cast(y, ARIL_I32), ARIL_I64), ARIL_F32);
}

TEST(casts_that_lose_nothing_are_left_out)
{
    static const pattern p = { casts,
                               1,
                               { { 1, { 4 } } },
                               0,
                               "%2: f32[4] = mul(%1, %1)\n"
                               "%3: f64[4] = cast(%2, dtype=f64)\n"
                               "%4: f16[4] = cast(%3, dtype=f16)\n"
                               "%5: i32[4] = cast(%4, dtype=i32)\n"
                               "%6: i64[4] = cast(%5, dtype=i64)\n"
                               "%7: f32[4] = cast(%6, dtype=f32)\n"
                               "return %7\n",
                               "%2: f32[4] = mul(%1, %1)\n"
                               "%4: f16[4] = cast(%2, dtype=f16)\n"
                               "%5: i32[4] = cast(%4, dtype=i32)\n"
                               "%7: f32[4] = cast(%5, dtype=f32)\n"
                               "return %7\n" };
    check(&p, "-fuse");
}

/* Overlapping windows: an element may be the maximum of four. */
FN(pooled)
{
    (void)ctx;
    aril_tensor *x = aril_copy(in[0]);
    aril_set_requires_grad(x, true);
    aril_pool_opts windows = { .kernel = { 3, 3 }, .stride = { 2, 2 }, .padding = { 1, 1 } };
    aril_tensor *z = aril_max_pool2d(aril_relu(x), windows, NULL);
    aril_gradients(aril_sum(aril_mul(z, in[1]), ARIL_ALL), ARIL_LIST(x), out,
                   (aril_grad_opts){ 0 });
}

TEST(relu_before_pooling_has_the_gradient_of_the_maxima)
{
    static const pattern p = { pooled,
                               2,
                               { { 4, { 2, 3, 5, 7 } }, { 4, { 2, 3, 3, 4 } } },
                               0,
                               "%3: f32[2,3,5,7] = copy(%1)\n"
                               "%4: f32[2,3,5,7] = relu(%3)\n"
                               "%5: f32[2,3,3,4], %6: i64[2,3,3,4] = max_pool(%4, "
                               "kernel=[3,3], stride=[2,2], pad=[1,1,1,1])\n"
                               "%7: f32[2,3,3,4] = mul(%5, %2)\n"
                               "%8: f32[] = sum(%7, axes=[0,1,2,3])\n"
                               "%9: f32[] = full_like(%8, value=1, integer=[1,1])\n"
                               "%10: f32[1,1,1,1] = unsqueeze(%9, axes=[0,1,2,3])\n"
                               "%11: f32[2,3,3,4] = expand_like(%10, %7)\n"
                               "%12: f32[2,3,3,4] = mul(%11, %2)\n"
                               "%13: f32[2,3,5,7] = max_pool_grad(%12, %6, %4, "
                               "kernel=[3,3], stride=[2,2], begin=[1,1])\n"
                               "%14: f32[2,3,5,7] = relu_grad(%13, -, %4)\n"
                               "return %14\n",
                               "%11: f32[2,3,3,4] = constant\n"
                               "%4: f32[2,3,5,7] = relu(%1)\n"
                               "%5: f32[2,3,3,4], %6: i64[2,3,3,4] = max_pool(%4, "
                               "kernel=[3,3], stride=[2,2], pad=[1,1,1,1])\n"
                               "%12: f32[2,3,3,4] = mul(%11, %2)\n"
                               "%13: f32[2,3,3,4] = relu_grad(%12, -, %5)\n"
                               "%14: f32[2,3,5,7] = max_pool_grad(%13, %6, %4, "
                               "kernel=[3,3], stride=[2,2], begin=[1,1])\n"
                               "return %14\n" };
    check(&p, "-fuse");
}

/* ---- epilogues ---- */

FN(layer)
{
    (void)ctx;
    out[0] = aril_relu(aril_add(aril_matmul(in[0], aril_t(in[1])), in[2]));
}

TEST(a_product_takes_bias_and_activation)
{
    static const pattern p = { layer,
                               3,
                               { { 2, { 5, 8 } }, { 2, { 4, 8 } }, { 1, { 4 } } },
                               1e-5,
                               "%4: f32[8,4] = permute(%2, axes=[1,0])\n"
                               "%5: f32[5,4] = matmul(%1, %4)\n"
                               "%6: f32[5,4] = add(%5, %3)\n"
                               "%7: f32[5,4] = relu(%6)\n"
                               "return %7\n",
                               "%8: f32[5,4] = linear(%1, %2, %3, activation=relu)\n"
                               "return %8\n" };
    check(&p, NULL);
}

FN(plain_layer)
{
    (void)ctx;
    out[0] = aril_tanh(aril_add(in[2], aril_matmul(in[0], in[1])));
}

TEST(a_product_takes_a_weight_that_is_not_transposed)
{
    static const pattern p = { plain_layer,
                               3,
                               { { 3, { 2, 5, 8 } }, { 2, { 8, 4 } }, { 1, { 4 } } },
                               1e-5,
                               "%4: f32[2,5,4] = matmul(%1, %2)\n"
                               "%5: f32[2,5,4] = add(%3, %4)\n"
                               "%6: f32[2,5,4] = tanh(%5)\n"
                               "return %6\n",
                               "%7: f32[4,8] = permute(%2, axes=[1,0])\n"
                               "%8: f32[2,5,4] = linear(%1, %7, %3, activation=tanh)\n"
                               "return %8\n" };
    check(&p, NULL);
}

FN(convolution)
{
    (void)ctx;
    aril_tensor *y = aril_conv2d(in[0], in[1], NULL, (aril_conv_opts){ 0 });
    out[0] = aril_sigmoid(aril_add(y, in[2]));
}

TEST(a_convolution_takes_bias_and_activation)
{
    static const pattern p = { convolution,
                               3,
                               { { 4, { 2, 3, 6, 6 } }, { 4, { 4, 3, 3, 3 } }, { 3, { 4, 1, 1 } } },
                               1e-5,
                               "%4: f32[2,4,4,4] = conv(%1, %2, -)\n"
                               "%5: f32[2,4,4,4] = add(%4, %3)\n"
                               "%6: f32[2,4,4,4] = sigmoid(%5)\n"
                               "return %6\n",
                               "%7: f32[4] = reshape(%3, ndim=1, dim=[4])\n"
                               "%8: f32[2,4,4,4] = conv(%1, %2, %7, activation=sigmoid)\n"
                               "return %8\n" };
    check(&p, NULL);
}

FN(limited_to_6)
{
    (void)ctx;
    aril_tensor *y = aril_conv2d(in[0], in[1], NULL, (aril_conv_opts){ 0 });
    out[0] = aril_clamp(aril_mul_scalar(y, 20), 0, 6);
    out[0] = aril_clamp(aril_conv2d(out[0], in[2], NULL, (aril_conv_opts){ 0 }), 0, 6);
}

TEST(a_range_from_0_to_6_is_an_activation)
{
    static const pattern p = {
        limited_to_6,
        3,
        { { 4, { 1, 2, 4, 4 } }, { 4, { 3, 2, 2, 2 } }, { 4, { 2, 3, 1, 1 } } },
        1e-5,
        "%4: f32[1,3,3,3] = conv(%1, %2, -)\n"
        "%6: f32[1,3,3,3] = mul(%4, 20)\n"
        "%7: f32[1,3,3,3] = hardtanh(%6, p=[0,6])\n"
        "%8: f32[1,2,3,3] = conv(%7, %3, -)\n"
        "%9: f32[1,2,3,3] = hardtanh(%8, p=[0,6])\n"
        "return %9\n",
        "%4: f32[1,3,3,3] = conv(%1, %2, -)\n"
        "%6: f32[1,3,3,3] = mul(%4, 20)\n"
        "%7: f32[1,3,3,3] = hardtanh(%6, p=[0,6])\n"
        "%8: f32[1,2,3,3] = conv(%7, %3, -, activation=relu6)\n"
        "return %8\n"
    };
    check(&p, "epilogue,dead");
}

/* ONNX has bounds as tensors: they are known where nobody changes them. */
FN(limited_by_tensors)
{
    aril_tensor *y = aril_conv2d(in[0], in[1], NULL, (aril_conv_opts){ 0 });
    aril_tensor *const *bound = ctx;
    out[0] = aril_clamp_tensor(y, bound[0], bound[1]);
}

TEST(bounds_that_stay_are_known)
{
    for (int frozen = 0; frozen < 2; frozen++) {
        ARIL_SCOPE;
        char text[3000];
        aril_tensor *bound[] = { aril_zeros(ARIL_SHAPE(), ARIL_F32, aril_cpu()),
                                 aril_full(ARIL_SHAPE(), 6, ARIL_F32, aril_cpu()) };
        aril_tensor *in[] = { aril_randn(ARIL_SHAPE(1, 3, 8, 8), ARIL_F32, aril_cpu()),
                              aril_randn(ARIL_SHAPE(4, 3, 3, 3), ARIL_F32, aril_cpu()) };
        aril_tensor *want[1], *got[1];
        limited_by_tensors(bound, in, want);
        aril_program *p = aril_jit(limited_by_tensors, bound, (aril_jit_opts){ .freeze = frozen });
        aril_program_run(p, (aril_list){ 2, in }, got);
        CHECK_MSG(aril_ok(), "%s", aril_error());
        print_nodes(p, text, sizeof text);
        aril_program_free(p);
        char *why = test_difference(got[0], want[0], 1e-6, 1e-6);
        CHECK_MSG(!why, "%s", why);
        CHECK_MSG((strstr(text, "clamp") == NULL) == frozen, "%s", text);
        CHECK_MSG((strstr(text, "relu6") != NULL) == frozen, "%s", text);
    }
}

/* A value that something else needs stays what it is. */
FN(used_twice)
{
    (void)ctx;
    aril_tensor *y = aril_linear(in[0], in[1], in[2]);
    out[0] = aril_matmul(aril_relu(y), aril_t(y));
}

TEST(an_activation_stays_alone_where_its_input_is_needed)
{
    static const pattern p = { used_twice,
                               3,
                               { { 2, { 5, 8 } }, { 2, { 4, 8 } }, { 1, { 4 } } },
                               1e-5,
                               "%4: f32[5,4] = linear(%1, %2, %3)\n"
                               "%5: f32[4,5] = permute(%4, axes=[1,0])\n"
                               "%6: f32[5,4] = relu(%4)\n"
                               "%7: f32[5,5] = matmul(%6, %5)\n"
                               "return %7\n",
                               "%4: f32[5,4] = linear(%1, %2, %3)\n"
                               "%5: f32[4,5] = permute(%4, axes=[1,0])\n"
                               "%6: f32[5,4] = relu(%4)\n"
                               "%7: f32[5,5] = matmul(%6, %5)\n"
                               "return %7\n" };
    check(&p, NULL);
}

/* ---- batch normalization ---- */

FN(normalized)
{
    (void)ctx;
    aril_tensor *y = aril_conv2d(in[0], in[1], NULL, (aril_conv_opts){ 0 });
    aril_tensor *var = aril_add_scalar(aril_square(in[5]), 0.5);
    out[0] = aril_relu(
        aril_batch_norm(y, in[2], in[3], in[4], var, (aril_batch_norm_opts){ .eval = true }));
}

TEST(batch_normalization_is_folded_into_a_convolution)
{
    static const pattern p = { normalized,
                               6,
                               { { 4, { 2, 3, 20, 20 } },
                                 { 4, { 4, 3, 3, 3 } },
                                 { 1, { 4 } },
                                 { 1, { 4 } },
                                 { 1, { 4 } },
                                 { 1, { 4 } } },
                               1e-4,
                               "%7: f32[2,4,18,18] = conv(%1, %2, -)\n"
                               "%8: f32[4] = square(%6)\n"
                               "%10: f32[4] = add(%8, 0.5)\n"
                               "%11: f32[2,4,18,18] = batch_norm_eval(%7, %3, %4, %5, %10, -)\n"
                               "%12: f32[2,4,18,18] = relu(%11)\n"
                               "return %12\n",
                               "%8: f32[4] = square(%6)\n"
                               "%10: f32[4] = add(%8, 0.5)\n"
                               "%14: f32[4] = add(%10, 1e-05)\n"
                               "%15: f32[4] = rsqrt(%14)\n"
                               "%16: f32[4] = mul(%15, %3)\n"
                               "%17: f32[4] = neg(%5)\n"
                               "%18: f32[4] = mul(%17, %16)\n"
                               "%19: f32[4] = add(%18, %4)\n"
                               "%20: f32[4,1,1,1] = unsqueeze(%16, axes=[1,2,3])\n"
                               "%21: f32[4,3,3,3] = mul(%2, %20)\n"
                               "%22: f32[2,4,18,18] = conv(%1, %21, %19, activation=relu)\n"
                               "return %22\n" };
    check(&p, "-fuse");
}

/* Few elements, many weights: scaling those in each run would take longer. */
FN(normalized_small)
{
    (void)ctx;
    aril_tensor *y = aril_conv2d(in[0], in[1], NULL, (aril_conv_opts){ 0 });
    aril_tensor *var = aril_add_scalar(aril_square(in[4]), 0.5);
    y = aril_batch_norm(y, in[2], in[3], in[4], var, (aril_batch_norm_opts){ .eval = true });
    out[0] = aril_relu(aril_add(in[5], y));
}

TEST(batch_normalization_takes_a_residual)
{
    static const pattern p = {
        normalized_small,
        6,
        { { 4, { 2, 3, 4, 4 } },
          { 4, { 4, 3, 3, 3 } },
          { 1, { 4 } },
          { 1, { 4 } },
          { 1, { 4 } },
          { 4, { 2, 4, 2, 2 } } },
        1e-4,
        "%7: f32[2,4,2,2] = conv(%1, %2, -)\n"
        "%8: f32[4] = square(%5)\n"
        "%10: f32[4] = add(%8, 0.5)\n"
        "%11: f32[2,4,2,2] = batch_norm_eval(%7, %3, %4, %5, %10, -)\n"
        "%12: f32[2,4,2,2] = add(%6, %11)\n"
        "%13: f32[2,4,2,2] = relu(%12)\n"
        "return %13\n",
        "%7: f32[2,4,2,2] = conv(%1, %2, -)\n"
        "%8: f32[4] = square(%5)\n"
        "%10: f32[4] = add(%8, 0.5)\n"
        "%14: f32[2,4,2,2] = batch_norm_eval(%7, %3, %4, %5, %10, %6, activation=relu)\n"
        "return %14\n"
    };
    check(&p, "-fuse");
}

/* On devices whose convolutions add residuals. */
static bool has_conv_add(void)
{
    int n = 0;
    aril__rows_of(test_device().kind, &aril__op_conv_add, 0, NULL, &n);
    return n > 0;
}

FN(convolution_with_residual)
{
    (void)ctx;
    aril_tensor *y = aril_conv2d(in[0], in[1], in[2], (aril_conv_opts){ 0 });
    out[0] = aril_relu(aril_add(in[3], y));
}

TEST(a_convolution_takes_a_residual)
{
    static const pattern p = {
        convolution_with_residual,
        4,
        { { 4, { 2, 3, 6, 6 } }, { 4, { 4, 3, 3, 3 } }, { 1, { 4 } }, { 4, { 2, 4, 4, 4 } } },
        1e-5,
        "%5: f32[2,4,4,4] = conv(%1, %2, %3)\n"
        "%6: f32[2,4,4,4] = add(%4, %5)\n"
        "%7: f32[2,4,4,4] = relu(%6)\n"
        "return %7\n",
        "%8: f32[2,4,4,4] = conv_add(%1, %2, %3, %4, activation=relu)\n"
        "return %8\n"
    };
    if (!has_conv_add()) SKIP("no kernel for convolutions with a residual");
    check(&p, NULL);
}

FN(normalized_with_residual)
{
    (void)ctx;
    aril_tensor *y = aril_conv2d(in[0], in[1], NULL, (aril_conv_opts){ .padding = { 1 } });
    aril_tensor *var = aril_square(in[4]);
    y = aril_batch_norm(y, in[2], in[3], in[4], var, (aril_batch_norm_opts){ .eval = true });
    out[0] = aril_relu(aril_add(y, in[5]));
}

TEST(a_folded_convolution_takes_the_residual)
{
    static const pattern p = {
        normalized_with_residual,
        6,
        { { 4, { 2, 3, 18, 18 } },
          { 4, { 4, 3, 3, 3 } },
          { 1, { 4 } },
          { 1, { 4 } },
          { 1, { 4 } },
          { 4, { 2, 4, 18, 18 } } },
        1e-3,
        "%7: f32[2,4,18,18] = conv(%1, %2, -, pad=[1,1,1,1])\n"
        "%8: f32[4] = square(%5)\n"
        "%9: f32[2,4,18,18] = batch_norm_eval(%7, %3, %4, %5, %8, -)\n"
        "%10: f32[2,4,18,18] = add(%9, %6)\n"
        "%11: f32[2,4,18,18] = relu(%10)\n"
        "return %11\n",
        "%8: f32[4] = square(%5)\n"
        "%13: f32[4] = add(%8, 1e-05)\n"
        "%14: f32[4] = rsqrt(%13)\n"
        "%15: f32[4] = mul(%14, %3)\n"
        "%16: f32[4] = neg(%5)\n"
        "%17: f32[4] = mul(%16, %15)\n"
        "%18: f32[4] = add(%17, %4)\n"
        "%19: f32[4,1,1,1] = unsqueeze(%15, axes=[1,2,3])\n"
        "%20: f32[4,3,3,3] = mul(%2, %19)\n"
        "%22: f32[2,4,18,18] = conv_add(%1, %20, %18, %6, pad=[1,1,1,1], activation=relu)\n"
        "return %22\n"
    };
    if (!has_conv_add()) SKIP("no kernel for convolutions with a residual");
    check(&p, "-fuse");
}

FN(normalized_in_training)
{
    (void)ctx;
    out[0] =
        aril_relu(aril_batch_norm(in[0], in[1], in[2], NULL, NULL, (aril_batch_norm_opts){ 0 }));
}

TEST(batch_normalization_in_training_takes_an_activation)
{
    static const pattern p = {
        normalized_in_training,
        3,
        { { 4, { 2, 4, 3, 3 } }, { 1, { 4 } }, { 1, { 4 } } },
        1e-4,
        "%4: f32[2,4,3,3], %5: f32[4], %6: f32[4] = batch_norm(%1, %2, %3, -, -, -, -)\n"
        "%10: f32[2,4,3,3] = relu(%4)\n"
        "return %10\n",
        "%4: f32[2,4,3,3], %5: f32[4], %6: f32[4] = batch_norm(%1, %2, %3, -, -, -, -, "
        "activation=relu)\n"
        "return %4\n"
    };
    check(&p, NULL);
}

/* ---- attention ---- */

FN(attends)
{
    (void)ctx;
    aril_tensor *s = aril_matmul(in[0], aril_transpose(in[1], -2, -1));
    s = aril_add(aril_mul_scalar(s, 0.5), in[3]);
    out[0] = aril_matmul(aril_softmax(s, -1), in[2]);
}

TEST(attention_is_found)
{
    static const pattern p = {
        attends,
        4,
        { { 4, { 2, 2, 5, 4 } }, { 4, { 2, 2, 6, 4 } }, { 4, { 2, 2, 6, 3 } }, { 2, { 5, 6 } } },
        1e-5,
        "%5: f32[2,2,4,6] = permute(%2, axes=[0,1,3,2])\n"
        "%6: f32[2,2,5,6] = matmul(%1, %5)\n"
        "%8: f32[2,2,5,6] = mul(%6, 0.5)\n"
        "%9: f32[2,2,5,6] = add(%8, %4)\n"
        "%10: f32[2,2,5,6] = softmax(%9, axis=3)\n"
        "%11: f32[2,2,5,3] = matmul(%10, %3)\n"
        "return %11\n",
        "%12: f32[2,2,5,3], %13: f32[2,2,5] = attention(%1, %2, %3, %4, scale=0.5)\n"
        "return %12\n"
    };
    check(&p, NULL);
}

FN(attends_plainly)
{
    (void)ctx;
    aril_tensor *s = aril_matmul(in[0], aril_transpose(in[1], -2, -1));
    out[0] = aril_matmul(aril_softmax(aril_div_scalar(s, 2), -1), in[2]);
}

/* As exporters write it: one permutation makes k^T of what a linear layer gives. */
FN(attends_in_heads)
{
    (void)ctx;
    aril_tensor *q = aril_permute(in[0], ARIL_AXES(0, 2, 1, 3)),
                *k = aril_permute(in[1], ARIL_AXES(0, 2, 3, 1)),
                *v = aril_permute(in[2], ARIL_AXES(0, 2, 1, 3));
    aril_tensor *s = aril_div_scalar(aril_matmul(q, k), 2);
    out[0] = aril_matmul(aril_softmax(s, -1), v);
}

TEST(attention_of_permuted_heads_is_found)
{
    static const pattern p = {
        attends_in_heads,
        3,
        { { 4, { 2, 5, 3, 4 } }, { 4, { 2, 6, 3, 4 } }, { 4, { 2, 6, 3, 4 } } },
        1e-5,
        "%4: f32[2,3,5,4] = permute(%1, axes=[0,2,1,3])\n"
        "%5: f32[2,3,4,6] = permute(%2, axes=[0,2,3,1])\n"
        "%6: f32[2,3,6,4] = permute(%3, axes=[0,2,1,3])\n"
        "%7: f32[2,3,5,6] = matmul(%4, %5)\n"
        "%9: f32[2,3,5,6] = div(%7, 2)\n"
        "%10: f32[2,3,5,6] = softmax(%9, axis=3)\n"
        "%11: f32[2,3,5,4] = matmul(%10, %6)\n"
        "return %11\n",
        "%4: f32[2,3,5,4] = permute(%1, axes=[0,2,1,3])\n"
        "%6: f32[2,3,6,4] = permute(%3, axes=[0,2,1,3])\n"
        "%12: f32[2,3,6,4] = permute(%2, axes=[0,2,1,3])\n"
        "%13: f32[2,3,5,4], %14: f32[2,3,5] = attention(%4, %12, %6, -, scale=0.5)\n"
        "return %13\n"
    };
    check(&p, NULL);
}

TEST(attention_without_a_mask_is_found)
{
    static const pattern p = {
        attends_plainly,
        3,
        { { 3, { 2, 5, 4 } }, { 3, { 2, 6, 4 } }, { 3, { 2, 6, 3 } } },
        1e-5,
        "%4: f32[2,4,6] = permute(%2, axes=[0,2,1])\n"
        "%5: f32[2,5,6] = matmul(%1, %4)\n"
        "%7: f32[2,5,6] = div(%5, 2)\n"
        "%8: f32[2,5,6] = softmax(%7, axis=2)\n"
        "%9: f32[2,5,3] = matmul(%8, %3)\n"
        "return %9\n",
        "%10: f32[2,5,3], %11: f32[2,5] = attention(%1, %2, %3, -, scale=0.5)\n"
        "return %10\n"
    };
    check(&p, NULL);
}

/* ---- recomputation ---- */

static void expensive(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    out[0] = aril_exp(aril_sin(in[0]));
}

FN(checkpointed)
{
    aril_tensor *x = aril_detach(in[0]), *y;
    aril_set_requires_grad(x, true);
    aril_checkpoint(expensive, ctx, ARIL_LIST(x), 1, &y);
    aril_gradients(aril_sum(aril_square(y), ARIL_ALL), ARIL_LIST(x), out, (aril_grad_opts){ 0 });
}

static int count_of(const char *text, const char *word)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, word)); at++) n++;
    return n;
}

TEST(what_a_checkpoint_computes_again_is_computed_again)
{
    ARIL_SCOPE;
    static const pattern p = { checkpointed, 1, { { 1, { 5 } } }, 0, "", "" };
    char before[3000], after[3000];
    aril_tensor *x = aril_rand(ARIL_SHAPE(5), ARIL_F32, aril_cpu()), *want, *got;
    run(&p, "none", &x, &want, before, sizeof before);
    run(&p, NULL, &x, &got, after, sizeof after);
    CHECK_MSG(aril_ok(), "%s", aril_error());
    CHECK_INT(count_of(before, "exp("), 2);
    CHECK_INT(count_of(after, "exp("), 2);
    CHECK_INT(count_of(after, "fused"), 2); /* forward with backward, and forward again */
    CHECK(!test_difference_in_bits(got, want));
}

/* ---- known shapes ---- */

FN(slope)
{
    (void)ctx;
    aril_tensor *x = aril_detach(in[0]);
    aril_set_requires_grad(x, true);
    aril_tensor *y = aril_mean(aril_square(x), ARIL_ALL);
    aril_gradients(y, ARIL_LIST(x), out, (aril_grad_opts){ 0 });
}

/* The gradient of the result, and the count that a mean divides by, depend on shapes only; then
 * nothing needs the mean itself. */
TEST(what_depends_on_shapes_is_computed_once)
{
    static const pattern p = { slope,
                               1,
                               { { 1, { 4 } } },
                               0,
                               "%2: f32[4] = square(%1)\n"
                               "%3: f32[] = mean(%2, axes=[0])\n"
                               "%4: f32[] = full_like(%3, value=1, integer=[1,1])\n"
                               "%5: f32[] = count_like(%2, %4)\n"
                               "%6: f32[] = div(%4, %5)\n"
                               "%7: f32[1] = unsqueeze(%6, axes=[0])\n"
                               "%8: f32[4] = expand_like(%7, %2)\n"
                               "%9: f32[4] = square_grad(%8, %1, -)\n"
                               "return %9\n",
                               "%8: f32[4] = constant\n"
                               "%9: f32[4] = square_grad(%8, %1, -)\n"
                               "return %9\n" };
    check(&p, NULL);
}

/* ---- what GPUs add to a product ---- */

/* A block of a residual network in inference: 1 x 1 convolution, normalization, shortcut, ReLU. */
FN(block_in_inference)
{
    (void)ctx;
    aril_tensor *y = aril_conv2d(in[0], in[1], NULL, (aril_conv_opts){ 0 });
    y = aril_batch_norm(y, in[2], in[2], in[2], in[2], (aril_batch_norm_opts){ .eval = true });
    out[0] = aril_relu(aril_add(y, in[3]));
    out[1] = aril_relu(aril_add(aril_conv2d(in[0], in[1], in[2], (aril_conv_opts){ 0 }), in[3]));
}

/* Two paths to the input of a block: the gradients of a 1 x 1 convolution and of the shortcut. */
FN(block_in_training)
{
    (void)ctx;
    aril_tensor *x = aril_detach(in[0]), *w = aril_detach(in[1]);
    aril_set_requires_grad(x, true);
    aril_set_requires_grad(w, true);
    aril_tensor *y = aril_relu(aril_conv2d(x, w, in[2], (aril_conv_opts){ 0 }));
    aril_tensor *loss =
        aril_add(aril_sum(aril_mul(y, in[3]), ARIL_ALL), aril_sum(aril_square(x), ARIL_ALL));
    aril_gradients(loss, ARIL_LIST(x, w), out, (aril_grad_opts){ 0 });
}

static void check_block(aril_fn *fn, aril_dtype dtype, bool last)
{
    ARIL_SCOPE;
    aril_shape shape[4] = { ARIL_SHAPE(4, 16, 9, 8), ARIL_SHAPE(32, 16, 1, 1), ARIL_SHAPE(32),
                            ARIL_SHAPE(4, 32, 9, 8) };
    aril_tensor *in[4], *got[2], *want[2];
    for (int i = 0; i < 4; i++) {
        in[i] = aril_cast(aril_randn(shape[i], ARIL_F32, aril_cpu()), dtype);
        if (i == 2) in[i] = aril_add_scalar(aril_abs(in[i]), 0.5);
        if (last && i != 2) in[i] = aril_channels_last(in[i]);
        in[i] = aril_to(in[i], test_device());
    }
    if (fn == block_in_inference) { /* what is not a number stays so */
        aril_tensor *bad = aril_narrow(aril_narrow(in[0], 0, 1, 1), 2, 3, 1);
        aril_fill_(bad, NAN);
    }
    fn(NULL, in, want);
    aril_program *p = aril_jit(fn, NULL, (aril_jit_opts){ 0 });
    for (int round = 0; round < 2; round++) {
        CHECK_INT(aril_program_run(p, (aril_list){ 4, in }, got), ARIL_OK);
        for (int k = 0; k < 2; k++) {
            double most = aril_dtype_of(in[0]) == ARIL_F32 ? 1e-4 : 5e-2;
            char *why = test_difference(aril_to(got[k], aril_cpu()), aril_to(want[k], aril_cpu()),
                                        most, most * (k ? 8 : 5));
            CHECK_MSG(!why, "%s, %s, result %d: %s", aril_dtype_name(dtype),
                      last ? "channels last" : "contiguous", k, why);
        }
    }
    aril_program_free(p);
}

TEST(blocks_of_residual_networks_are_as_single_ops)
{
    static const aril_dtype dtypes[] = { ARIL_BF16, ARIL_F16, ARIL_F32 };
    aril_seed(5);
    for (int t = 0; t < 3 && !test_failed(); t++)
        for (int last = 0; last < 2; last++) {
            check_block(block_in_inference, dtypes[t], last);
            check_block(block_in_training, dtypes[t], last);
        }
}
