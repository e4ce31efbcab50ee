/* Small runs that a device records together: on the test device, or on that of ARIL_TEST_DEVICE. */
#include "aril/aril.h"
#include "ops/table/rows.h"
#include "plugin/strict.h"
#include "support/compare.h"
#include "support/device.h"
#include "support/test.h"

#include <stdlib.h>

enum { OUTPUTS = 40, RUNS = 4 };

/* The device, with recording switched on for all programs. */
static aril_device recorder(void)
{
    static bool started;
    setenv("ARIL_CUDA_GRAPHS", "1", 1);
    if (!test_on_cpu()) return test_device();
    if (!started && aril__plugin_add("strict", strict_open) < 0) abort();
    started = true;
    return aril_device_named("strict:0");
}

static aril_tensor *numbers(aril_shape shape, uint64_t seed)
{
    aril_generator *g = aril_generator_new(seed);
    aril_tensor *t = aril_randn_from(g, shape, ARIL_F32, recorder());
    aril_generator_free(g);
    return t;
}

/* Runs a function of tensors of these shapes compiled and as it is, several times with other
 * numbers, and compares all results; a tolerance of 0 asks for the same bits. */
static void check(aril_fn *fn, int n_in, const aril_shape *shapes, int n_out, double tolerance,
                  const char *passes)
{
    if (passes) setenv("ARIL_PASSES", passes, 1);
    aril_program *p = aril_jit(fn, NULL, (aril_jit_opts){ .name = "small" });
    int64_t before = strict_count().small;
    for (int r = 0; r < RUNS && !test_failed(); r++) {
        ARIL_SCOPE;
        aril_tensor *in[8], *got[OUTPUTS] = { NULL }, *want[OUTPUTS] = { NULL };
        for (int i = 0; i < n_in; i++) in[i] = numbers(shapes[i], (uint64_t)(10 * r + i));
        CHECK_INT(aril_program_run(p, (aril_list){ n_in, in }, got), ARIL_OK);
        fn(NULL, in, want);
        CHECK_MSG(aril_ok(), "%s", aril_error());
        for (int i = 0; i < n_out; i++) {
            char *why = tolerance > 0 ? test_difference(got[i], want[i], tolerance, tolerance)
                                      : test_difference_in_bits(got[i], want[i]);
            CHECK_MSG(!why, "run %d, result %d: %s", r, i, why);
        }
    }
    unsetenv("ARIL_PASSES");
    aril_program_free(p);
    if (test_on_cpu()) CHECK_MSG(strict_count().small > before, "no run was small");
}

#define FN(name) static void name(void *ctx, aril_tensor *const *in, aril_tensor **out)

/* ---- elementwise ops: the bits of single ones ---- */

FN(functions)
{
    (void)ctx;
    aril_tensor *x = in[0], *y = in[1], *p = aril_abs(x);
    int n = 0;
    aril_tensor *const all[] = {
        aril_tanh(x),   aril_sigmoid(x),    aril_exp(x),      aril_log(p),     aril_sqrt(p),
        aril_relu(x),   aril_gelu(x),       aril_silu(x),     aril_erf(x),     aril_sin(x),
        aril_cos(x),    aril_selu(x),       aril_floor(x),    aril_log1p(p),   aril_expm1(x),
        aril_square(x), aril_add(x, y),     aril_sub(x, y),   aril_mul(x, y),  aril_div(x, y),
        aril_pow(p, y), aril_maximum(x, y), aril_atan2(x, y), aril_lgamma(p),  aril_neg(x),
        aril_rsqrt(p),  aril_mish(x),       aril_elu(x, 1),   aril_hypot(x, y)
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) out[n++] = all[i];
}

TEST(formulas_give_the_bits_of_single_operations)
{
    const aril_shape same[] = { ARIL_SHAPE(7, 33), ARIL_SHAPE(7, 33) };
    check(functions, 2, same, 29, 0, "small");
    const aril_shape broadcast[] = { ARIL_SHAPE(3, 1, 5), ARIL_SHAPE(4, 1) };
    check(functions, 2, broadcast, 29, 0, "small");
}

/* The same steps in one loop, with values that exist only there; a result may replace an input. */
FN(fused)
{
    (void)ctx;
    aril_tensor *gate = aril_sigmoid(aril_add(in[0], in[1]));
    aril_tensor *state = aril_add(aril_mul(gate, in[2]), aril_mul_scalar(aril_tanh(in[0]), 0.5));
    out[0] = state;
    out[1] = aril_mul(gate, aril_tanh(state));
    for (int i = 0; i < 6; i++) {
        aril_tensor *sum = aril_sum(out[1], ARIL_KEEPDIM(1));
        out[1] = aril_tanh(aril_add(aril_mul(out[1], gate), sum));
    }
}

TEST(fused_runs_are_steps)
{
    const aril_shape shapes[] = { ARIL_SHAPE(5, 20), ARIL_SHAPE(20), ARIL_SHAPE(5, 1) };
    check(fused, 3, shapes, 2, 1e-6, NULL);
}

/* ---- products and sums ---- */

FN(products)
{
    (void)ctx;
    aril_tensor *x = in[0], *w = in[1], *b = in[2];
    out[0] = aril_linear(x, w, b); /* [6,9] */
    out[1] = aril_linear_with(x, w, NULL, (aril_linear_opts){ .activation = ARIL_TANH });
    out[2] = aril_matmul(x, aril_transpose(w, 0, 1));
    out[3] = aril_matmul(aril_transpose(out[0], 0, 1), aril_relu(out[2])); /* [9,9] */
    out[4] = aril_linear(aril_reshape(x, ARIL_SHAPE(2, 3, 5)), w, b);
    out[5] = aril_matmul(aril_select(out[4], 0, 1), out[3]); /* [3,9] */
    out[6] = aril_linear(aril_select(x, 0, 2), w, b);        /* [9] */
}

TEST(products_are_steps)
{
    const aril_shape shapes[] = { ARIL_SHAPE(6, 5), ARIL_SHAPE(9, 5), ARIL_SHAPE(9) };
    check(products, 3, shapes, 7, 1e-5, "small");
}

FN(sums)
{
    (void)ctx;
    aril_tensor *x = in[0], *t = aril_transpose(x, 0, 2);
    out[0] = aril_sum(x, ARIL_ALL);
    out[1] = aril_sum(x, ARIL_AXES(0));
    out[2] = aril_sum(x, ARIL_KEEPDIM(1));
    out[3] = aril_sum(x, ARIL_AXES(2));
    out[4] = aril_mean(x, ARIL_AXES(0, 2));
    out[5] = aril_mean(t, ARIL_AXES(0));
    out[6] = aril_sum(t, ARIL_AXES(1, 2));
    out[7] = aril_sum(aril_mul(x, x), ARIL_AXES(0, 1));
    out[8] = aril_mean(out[7], ARIL_ALL);
}

TEST(sums_are_steps)
{
    const aril_shape shapes[] = { ARIL_SHAPE(4, 6, 10) };
    check(sums, 1, shapes, 9, 1e-5, "small");
}

/* ---- loops with gradients ---- */

/* So small that rounding does not grow from step to step. */
static aril_tensor *parameter(aril_tensor *x)
{
    aril_tensor *w = aril_detach(aril_mul_scalar(x, 0.2));
    aril_set_requires_grad(w, true);
    return w;
}

/* x [T,N,I], w [H,I], u [H,H], b [H]. */
FN(recurrent)
{
    (void)ctx;
    aril_tensor *w = parameter(in[1]), *u = parameter(in[2]), *b = parameter(in[3]), *h[32];
    int n = (int)aril_size(in[0], 0);
    for (int t = 0; t < n; t++) {
        aril_tensor *step = aril_linear(aril_select(in[0], 0, t), w, b);
        h[t] = aril_tanh(t ? aril_add(step, aril_linear(h[t - 1], u, NULL)) : step);
    }
    out[0] = aril_stack((aril_list){ n, h }, 0);
    aril_gradients(aril_mean(out[0], ARIL_ALL), ARIL_LIST(w, u, b), out + 1, (aril_grad_opts){ 0 });
}

TEST(a_recurrent_loop_is_one_kernel)
{
    const aril_shape one[] = { ARIL_SHAPE(30, 1, 10), ARIL_SHAPE(20, 10), ARIL_SHAPE(20, 20),
                               ARIL_SHAPE(20) };
    check(recurrent, 4, one, 4, 1e-5, NULL);
    const aril_shape batch[] = { ARIL_SHAPE(7, 3, 4), ARIL_SHAPE(6, 4), ARIL_SHAPE(6, 6),
                                 ARIL_SHAPE(6) };
    check(recurrent, 4, batch, 4, 1e-5, NULL);
    check(recurrent, 4, batch, 4, 1e-5, "small");
}

/* Gates by slices of one product, as in an LSTM. */
FN(gated)
{
    (void)ctx;
    aril_tensor *w = parameter(in[1]), *u = parameter(in[2]), *h = in[3], *c = in[3];
    for (int t = 0; t < (int)aril_size(in[0], 0); t++) {
        aril_tensor *gates =
            aril_add(aril_linear(aril_select(in[0], 0, t), w, NULL), aril_linear(h, u, NULL));
        aril_tensor *part[4];
        for (int k = 0; k < 4; k++) part[k] = aril_narrow(gates, 1, 5 * k, 5);
        c = aril_add(aril_mul(aril_sigmoid(part[0]), c),
                     aril_mul(aril_sigmoid(part[1]), aril_tanh(part[2])));
        h = aril_mul(aril_sigmoid(part[3]), aril_tanh(c));
    }
    out[0] = h;
    aril_gradients(aril_sum(h, ARIL_ALL), ARIL_LIST(w, u), out + 1, (aril_grad_opts){ 0 });
}

TEST(a_gated_loop_is_steps)
{
    const aril_shape shapes[] = { ARIL_SHAPE(6, 2, 4), ARIL_SHAPE(20, 4), ARIL_SHAPE(20, 5),
                                  ARIL_SHAPE(2, 5) };
    check(gated, 4, shapes, 3, 1e-5, NULL);
}

/* Whether a program is recorded depends on times, so its bits must not. */
TEST(bits_do_not_depend_on_recording)
{
    ARIL_SCOPE;
    const aril_shape shapes[] = { ARIL_SHAPE(9, 2, 10), ARIL_SHAPE(20, 10), ARIL_SHAPE(20, 20),
                                  ARIL_SHAPE(20) };
    aril_tensor *in[4], *got[2][4];
    for (int i = 0; i < 4; i++) in[i] = numbers(shapes[i], (uint64_t)i);
    for (int way = 0; way < 2; way++) {
        setenv("ARIL_CUDA_GRAPHS", way ? "1" : "0", 1);
        aril_program *p = aril_jit(recurrent, NULL, (aril_jit_opts){ 0 });
        for (int r = 0; r < 3; r++)
            CHECK_INT(aril_program_run(p, (aril_list){ 4, in }, got[way]), ARIL_OK);
        aril_program_free(p);
    }
    for (int i = 0; i < 4; i++) {
        char *why = test_difference_in_bits(got[1][i], got[0][i]);
        CHECK_MSG(!why, "result %d: %s", i, why);
    }
}

/* ---- order ---- */

/* Large runs between small ones, and values that are overwritten when they were read. */
FN(mixed)
{
    (void)ctx;
    aril_tensor *x = aril_copy(in[0]), *large = in[1];
    for (int i = 0; i < 5; i++) {
        aril_tensor *before = aril_tanh(x);
        aril_add_(x, before);
        aril_mul_scalar_(x, 0.5);
        aril_sub_(x, aril_sum(before, ARIL_KEEPDIM(1)));
        large = aril_mul(large, aril_sum(x, ARIL_ALL));
        aril_add_(x, aril_mean(large, ARIL_ALL));
        aril_div_(x, aril_add_scalar(aril_abs(x), 1));
    }
    out[0] = x;
    out[1] = large;
}

TEST(small_and_large_runs_keep_their_order)
{
    const aril_shape shapes[] = { ARIL_SHAPE(4, 9), ARIL_SHAPE(300, 300) };
    check(mixed, 2, shapes, 2, 1e-4, NULL);
    check(mixed, 2, shapes, 2, 1e-4, "small");
}
