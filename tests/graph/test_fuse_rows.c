/* Fusion of ops along rows: which nodes become one, and that results are those of single ops. */
#include "aril/aril.h"
#include "graph/fuse.h"
#include "graph/passes.h"
#include "support/compare.h"
#include "support/device.h"
#include "support/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- programs ---- */

#define FORMULA(name) static void name(void *ctx, aril_tensor *const *in, aril_tensor **out)

/* x [..., n], r like x, w and b [n] */

FORMULA(softmax_norm_dropout_add)
{
    (void)ctx;
    aril_tensor *y = aril_softmax(in[0], -1);
    y = aril_layer_norm(y, in[2], in[3], ARIL_SHAPE(-1), (aril_norm_opts){ 0 });
    out[0] = aril_add(aril_dropout(y, 0.25, (aril_dropout_opts){ 0 }), in[1]);
}

FORMULA(log_softmax_of_sum)
{
    (void)ctx;
    aril_tensor *y = aril_log_softmax(aril_add(in[0], in[1]), -1);
    out[0] = aril_mul(y, in[1]);
    out[1] = aril_sum(out[0], ARIL_AXES(-1));
    out[2] = aril_mean(aril_exp(y), ARIL_KEEPDIM(-1));
}

/* Values by rows between steps of elements. */
FORMULA(standardized)
{
    (void)ctx;
    aril_tensor *mean = aril_mean(in[0], ARIL_KEEPDIM(-1)), *d = aril_sub(in[0], mean);
    aril_tensor *var = aril_mean(aril_square(d), ARIL_KEEPDIM(-1));
    aril_tensor *s = aril_sqrt(aril_add_scalar(var, 0.5));
    out[0] = aril_div(d, s);
    out[1] = s;
    out[2] = aril_amax(aril_mul(in[0], in[1]), ARIL_AXES(-1));
}

static void leaves(aril_tensor *const *in, aril_tensor **leaf)
{
    for (int i = 0; i < 4; i++) {
        leaf[i] = aril_detach(in[i]);
        aril_set_requires_grad(leaf[i], true);
    }
}

/* Residual and layer norm, forward and backward, with the gradients of weight and bias. */
FORMULA(residual_norm)
{
    (void)ctx;
    aril_tensor *v[4];
    leaves(in, v);
    aril_tensor *x = aril_add(v[0], v[1]);
    aril_tensor *y = aril_layer_norm(x, v[2], v[3], ARIL_SHAPE(-1), (aril_norm_opts){ 0 });
    aril_tensor *loss = aril_sum(aril_add(aril_mul(aril_tanh(y), x), y), ARIL_ALL);
    out[0] = y;
    aril_gradients(loss, ARIL_LIST(v[0], v[2], v[3]), out + 1, (aril_grad_opts){ 0 });
}

FORMULA(rms_norm_gradients)
{
    (void)ctx;
    aril_tensor *v[4];
    leaves(in, v);
    aril_tensor *y =
        aril_rms_norm(aril_mul(v[0], v[1]), v[2], ARIL_SHAPE(-1), (aril_norm_opts){ 0 });
    out[0] = aril_gelu(y);
    aril_gradients(aril_sum(aril_square(out[0]), ARIL_ALL), ARIL_LIST(v[0], v[2]), out + 1,
                   (aril_grad_opts){ 0 });
}

FORMULA(softmax_gradients)
{
    (void)ctx;
    aril_tensor *v[4];
    leaves(in, v);
    aril_tensor *y = aril_softmax(aril_mul(v[0], v[2]), -1);
    aril_tensor *z = aril_log_softmax(aril_add(v[1], v[3]), -1);
    out[0] = aril_mul(y, z);
    aril_gradients(aril_sum(aril_square(out[0]), ARIL_ALL), ARIL_LIST(v[0], v[1]), out + 1,
                   (aril_grad_opts){ 0 });
}

/* Sums over rows of an elementwise gradient: of a bias, and of everything. */
FORMULA(bias_gelu)
{
    (void)ctx;
    aril_tensor *v[4];
    leaves(in, v);
    aril_tensor *y = aril_gelu(aril_add(aril_mul(v[0], v[2]), v[3]));
    aril_tensor *loss = aril_mean(aril_mul(y, v[1]), ARIL_ALL);
    out[0] = loss;
    aril_gradients(loss, ARIL_LIST(v[0], v[3], v[2]), out + 1, (aril_grad_opts){ 0 });
}

FORMULA(dropped_twice)
{
    (void)ctx;
    aril_tensor *x = aril_dropout(aril_mul(in[0], in[2]), 0.5, (aril_dropout_opts){ 0 });
    out[0] = aril_add(x, in[1]);
    out[1] = aril_sub(aril_dropout(out[0], 0.1, (aril_dropout_opts){ 0 }), in[3]);
}

static const struct formula {
    const char *name;
    aril_fn *fn;
    int n_out;
    int nodes; /* fused ones, at least */
    bool bits; /* every result has the bits of single ops */
} formulas[] = {
    { "softmax_norm_dropout_add", softmax_norm_dropout_add, 1, 1, false },
    { "log_softmax_of_sum", log_softmax_of_sum, 3, 1, false },
    { "standardized", standardized, 3, 1, false },
    { "residual_norm", residual_norm, 4, 2, false },
    { "rms_norm_gradients", rms_norm_gradients, 3, 1, false },
    { "softmax_gradients", softmax_gradients, 3, 1, false },
    { "bias_gelu", bias_gelu, 4, 1, false },
    { "dropped_twice", dropped_twice, 2, 1, true },
};

/* ---- comparisons ---- */

static void text_of_program(const aril_program *p, char *to, size_t size)
{
    FILE *f = tmpfile();
    aril_program_print(p, f);
    rewind(f);
    to[fread(to, 1, size - 1, f)] = '\0';
    fclose(f);
}

static int count(const char *text, const char *word)
{
    int n = 0;
    for (; (text = strstr(text, word)); text++) n++;
    return n;
}

static aril_tensor *random_of(aril_shape shape, aril_dtype dtype, aril_device dev)
{
    return aril_to(aril_cast(aril_randn(shape, ARIL_F32, aril_cpu()), dtype), dev);
}

/* Inputs: contiguous; rows of a wider tensor; x turned, so that rows are columns in memory. */
enum { PLAIN, PARTS, TURNED, LAYOUTS };

static void make_inputs(int layout, int64_t rows, int64_t n, aril_dtype dtype, aril_tensor **in)
{
    aril_device dev = test_device();
    for (int i = 0; i < 2; i++) switch (layout) {
        case PARTS:
            in[i] = aril_narrow(random_of(ARIL_SHAPE(2, rows, n + 3), dtype, dev), -1, i + 1, n);
            break;
        case TURNED:
            in[i] = aril_transpose(random_of(ARIL_SHAPE(2, n, rows), dtype, dev), 1, 2);
            break;
        default: in[i] = random_of(ARIL_SHAPE(2, rows, n), dtype, dev); break;
        }
    for (int i = 2; i < 4; i++) in[i] = random_of(ARIL_SHAPE(n), dtype, dev);
}

static double tolerance_of(aril_dtype dtype)
{
    return dtype == ARIL_F64 ? 1e-10 : dtype == ARIL_F32 ? 3e-5 : dtype == ARIL_F16 ? 1e-2 : 6e-2;
}

static void check_formula(const struct formula *f, int layout, int64_t rows, int64_t n,
                          aril_dtype dtype)
{
    ARIL_SCOPE;
    static char text[60000];
    aril_tensor *in[4], *got[4], *want[4];
    make_inputs(layout, rows, n, dtype, in);
    aril_program *p = aril_jit(f->fn, NULL, (aril_jit_opts){ .name = f->name });
    for (int run = 0; run < 2; run++) {
        aril_seed((uint64_t)run + 7);
        f->fn(NULL, in, want);
        aril_seed((uint64_t)run + 7);
        CHECK_INT(aril_program_run(p, (aril_list){ 4, in }, got), ARIL_OK);
        for (int k = 0; k < f->n_out; k++) {
            aril_tensor *a = aril_to(got[k], aril_cpu()), *b = aril_to(want[k], aril_cpu());
            /* Sums over rows of rounded terms. */
            double close = tolerance_of(dtype) * (k ? sqrt((double)rows) : 1);
            char *why =
                f->bits ? test_difference_in_bits(a, b) : test_difference(a, b, close, close);
            CHECK_MSG(!why, "%s of %s, layout %d, [2,%d,%d], result %d: %s", f->name,
                      aril_dtype_name(dtype), layout, (int)rows, (int)n, k, why);
        }
    }
    text_of_program(p, text, sizeof text);
    CHECK_MSG(count(text, " = fused") >= f->nodes, "%s", text);
    static const char *const gone[] = { "= softmax(", "= log_softmax(", "= layer_norm(",
                                        "= rms_norm(" };
    for (size_t i = 0; i < sizeof gone / sizeof *gone; i++)
        CHECK_MSG(!strstr(text, gone[i]), "%s", text);
    aril_program_free(p);
}

static void with_small_rows(void)
{
    aril__fuse_rows_from = (aril__row_limits){ .length = 2 };
}

TEST(rows_are_as_those_of_single_ops)
{
    static const aril_dtype dtypes[] = { ARIL_F32, ARIL_BF16, ARIL_F64, ARIL_F16 };
    static const int64_t sizes[][2] = { { 3, 64 }, { 40, 37 }, { 5, 768 }, { 2, 3000 } };
    with_small_rows();
    for (size_t f = 0; f < sizeof formulas / sizeof *formulas; f++)
        for (int layout = 0; layout < LAYOUTS; layout++)
            for (size_t t = 0; t < 4; t++)
                for (size_t s = 0; s < 4 && !test_failed(); s++)
                    if ((t + s + (size_t)layout) % 2 == 0 || layout == PLAIN)
                        check_formula(&formulas[f], layout, sizes[s][0], sizes[s][1], dtypes[t]);
}

/* Several tiles and threads; the length that kernels take at most. */
TEST(many_and_long_rows)
{
    with_small_rows();
    for (size_t f = 0; f < sizeof formulas / sizeof *formulas && !test_failed(); f++) {
        check_formula(&formulas[f], PLAIN, 700, 200, ARIL_F32);
        check_formula(&formulas[f], PLAIN, 1, 16384, ARIL_F32);
    }
}

/* Whole rows of minus infinity, and NaN, are as in single ops. */
TEST(special_values_along_rows)
{
    ARIL_SCOPE;
    with_small_rows();
    float x[4][64];
    for (int i = 0; i < 4 * 64; i++) x[i / 64][i % 64] = (float)(i % 13) - 6;
    for (int i = 0; i < 64; i++) x[1][i] = -INFINITY;
    x[2][5] = NAN;
    x[3][7] = INFINITY;
    aril_tensor *in[4], *got[3], *want[3];
    in[0] = aril_to(aril_from(x, ARIL_SHAPE(4, 64), ARIL_F32, aril_cpu()), test_device());
    in[1] = aril_zeros_like(in[0]);
    in[2] = in[3] = aril_ones(ARIL_SHAPE(64), ARIL_F32, test_device());
    aril_program *p = aril_jit(log_softmax_of_sum, NULL, (aril_jit_opts){ 0 });
    CHECK_INT(aril_program_run(p, (aril_list){ 4, in }, got), ARIL_OK);
    log_softmax_of_sum(NULL, in, want);
    for (int k = 0; k < 3; k++) {
        char *why =
            test_difference(aril_to(got[k], aril_cpu()), aril_to(want[k], aril_cpu()), 1e-5, 1e-5);
        CHECK_MSG(!why, "result %d: %s", k, why);
    }
    aril_program_free(p);
}

/* ---- golden texts ---- */

TEST(a_whole_chain_is_one_node)
{
    ARIL_SCOPE;
    static char text[8000];
    with_small_rows();
    aril_tensor *in[4], *out[1];
    make_inputs(PLAIN, 3, 64, ARIL_BF16, in);
    aril_program *p = aril_jit(softmax_norm_dropout_add, NULL, (aril_jit_opts){ .name = "chain" });
    CHECK_INT(aril_program_run(p, (aril_list){ 4, in }, out), ARIL_OK);
    text_of_program(p, text, sizeof text);
    static const char *const steps[] = { "fused(%1, %3, %4, key(0), %2) {",
                                         "t1 = cast(%1, f32)",
                                         "t2 = amax(t1)",
                                         "t3 = sub(t1, t2)",
                                         "t4 = exp(t3)",
                                         "t5 = sum(t4)",
                                         "t6 = reciprocal(t5)",
                                         "t7 = mul(t4, t6)",
                                         "t8 = cast(t7, bf16)",
                                         "t9 = cast(t8, f32)",
                                         "t10 = mean(t9)",
                                         "t11 = sub(t9, t10)",
                                         "t12 = square(t11)",
                                         "t13 = mean(t12)",
                                         "t14 = add(t13, 1e-05)",
                                         "t15 = sqrt(t14)",
                                         "t16 = reciprocal(t15)",
                                         "t17 = mul(t11, t16)",
                                         "t18 = cast(%3, f32)",
                                         "t19 = mul(t17, t18)",
                                         "t20 = cast(%4, f32)",
                                         "t21 = add(t19, t20)",
                                         "t22 = cast(t21, bf16)",
                                         "t23 = dropout(key(0), t22, p=[0.25,1.33333333])",
                                         " = add(t23, %2)" };
    const char *at = text;
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        const char *next = strstr(at, steps[i]);
        CHECK_MSG(next, "\"%s\" is missing in\n%s", steps[i], text);
        if (next) at = next;
    }
    CHECK_INT(count(text, " = fused"), 1);
    aril_program_free(p);
}

/* On the CPU, what fits into a cache stays as it is. */
TEST(small_rows_stay_alone_on_the_cpu)
{
    ARIL_SCOPE;
    static char text[8000];
    aril__fuse_rows_from = (aril__row_limits){ 1 << 20, 1 << 18, 64 };
    aril_tensor *in[4], *out[1];
    make_inputs(PLAIN, 3, 64, ARIL_F32, in);
    for (int i = 0; i < 4; i++) in[i] = aril_to(in[i], aril_cpu());
    aril_program *p = aril_jit(softmax_norm_dropout_add, NULL, (aril_jit_opts){ 0 });
    CHECK_INT(aril_program_run(p, (aril_list){ 4, in }, out), ARIL_OK);
    text_of_program(p, text, sizeof text);
    CHECK_INT(count(text, " = softmax(%1, axis=2)"), 1);
    CHECK_INT(count(text, " = fused"), 0);
    aril_program_free(p);
}
