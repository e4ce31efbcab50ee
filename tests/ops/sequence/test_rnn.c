/* Recurrent networks: gradients worked out by hand, state carried through a loop, sequences against
 * cells. */
#include "aril/aril.h"
#include "core/cpu.h"
#include "core/tensor.h"
#include "ops/table/apply.h"
#include "ops/sequence/rnn_seq.h"
#include "ops/table/rows.h"
#include "support/test.h"

#include <math.h>
#include <string.h>

static aril_tensor *f64(aril_shape shape, const double *values)
{
    return aril_from(values, shape, ARIL_F64, aril_cpu());
}

static bool near_all(aril_tensor *t, const double *want, double tolerance)
{
    const double *got = aril_data(t);
    bool good = got != NULL;
    for (int64_t i = 0; good && i < aril_numel(t); i++) good = fabs(got[i] - want[i]) <= tolerance;
    return good;
}

static double worst(aril_tensor *a, aril_tensor *b)
{
    const double *d = aril_data(aril_cast(aril_abs(aril_sub(a, b)), ARIL_F64));
    double max = d ? 0 : INFINITY;
    for (int64_t i = 0; d && i < aril_numel(a); i++) max = d[i] > max ? d[i] : max;
    return max;
}

/* With x = [1 2], h = [0 1], W_x = [1 0; 0 -1; 2 -1] and W_h = [1 0; 3 2; 1 0]:
 *     W_x x^T = [1 -2 0]^T,  W_h h^T = [0 2 0]^T,  their sum a = [1 0 0]^T
 *     next = tanh(a) = [tanh 1, 0, 0]^T
 * Backward from ones: d a = 1 - tanh(a)^2 = [s 1 1]^T with s = 1 - tanh(1)^2. Then
 *     d W_x = da x = [s 2s; 1 2; 1 2]           d W_h = da h = [0 s; 0 1; 0 1]
 *     d x   = (W_x^T da)^T = [s + 2, -1 - 1] = [s + 2, -2]
 *     d h   = (W_h^T da)^T = [s + 3 + 1, 2] = [s + 4, 2] */
TEST(one_step_by_hand)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_parameter(f64(ARIL_SHAPE(1, 2), (double[]){ 1, 2 }));
    aril_tensor *h = aril_parameter(f64(ARIL_SHAPE(1, 2), (double[]){ 0, 1 }));
    aril_tensor *w_x = aril_parameter(f64(ARIL_SHAPE(3, 2), (double[]){ 1, 0, 0, -1, 2, -1 }));
    aril_tensor *w_h = aril_parameter(f64(ARIL_SHAPE(3, 2), (double[]){ 1, 0, 3, 2, 1, 0 }));
    aril_tensor *i2h = aril_matmul(w_x, aril_t(x)), *h2h = aril_matmul(w_h, aril_t(h));
    aril_tensor *next = aril_tanh(aril_add(i2h, h2h)); /* [3,1] */
    aril_backward_with(next, aril_ones_like(next), (aril_grad_opts){ 0 });
    double t = tanh(1), s = 1 - t * t;
    CHECK(near_all(next, (double[]){ t, 0, 0 }, 1e-15));
    CHECK(near_all(aril_grad(w_x), (double[]){ s, 2 * s, 1, 2, 1, 2 }, 1e-15));
    CHECK(near_all(aril_grad(w_h), (double[]){ 0, s, 0, 1, 0, 1 }, 1e-15));
    CHECK(near_all(aril_grad(x), (double[]){ s + 2, -2 }, 1e-15));
    CHECK(near_all(aril_grad(h), (double[]){ s + 4, 2 }, 1e-15));
    CHECK(aril_ok());
    aril_release(x);
    aril_release(h);
    aril_release(w_x);
    aril_release(w_h);
}

/* relu(w x_t + u h) with w = 2, u = 3, x = 1, -1, 2 and h_0 = 1 gives
 *     h_1 = 2 + 3 = 5,  h_2 = -2 + 15 = 13,  h_3 = 4 + 39 = 43
 * Backward from d h_3 = 1: d h_2 = 3, d h_1 = 9, d h_0 = 27, so
 *     d w = 1 * 2 + 3 * -1 + 9 * 1 = 8
 *     d u = 1 * 13 + 3 * 5 + 9 * 1 = 37
 *     d b = 1 + 3 + 9 = 13 */
TEST(three_steps_by_hand)
{
    ARIL_SCOPE;
    aril_tensor *x = f64(ARIL_SHAPE(3, 1, 1), (double[]){ 1, -1, 2 });
    aril_tensor *h0 = aril_parameter(f64(ARIL_SHAPE(1, 1, 1), (double[]){ 1 }));
    aril_tensor *w = aril_parameter(f64(ARIL_SHAPE(1, 1), (double[]){ 2 }));
    aril_tensor *u = aril_parameter(f64(ARIL_SHAPE(1, 1), (double[]){ 3 }));
    aril_tensor *b = aril_parameter(f64(ARIL_SHAPE(1), (double[]){ 0 }));
    aril_tensor *hn,
        *y = aril_rnn(x, h0, ARIL_LIST(w, u, NULL, b), (aril_rnn_opts){ .relu = true }, &hn);
    CHECK(near_all(y, (double[]){ 5, 13, 43 }, 0));
    CHECK(near_all(hn, (double[]){ 43 }, 0));
    aril_backward(aril_sum(hn, ARIL_ALL));
    CHECK(near_all(aril_grad(w), (double[]){ 8 }, 0));
    CHECK(near_all(aril_grad(u), (double[]){ 37 }, 0));
    CHECK(near_all(aril_grad(b), (double[]){ 13 }, 0));
    CHECK(near_all(aril_grad(h0), (double[]){ 27 }, 0));
    CHECK(aril_ok());
    aril_release(h0);
    aril_release(w);
    aril_release(u);
    aril_release(b);
}

static void loop(int steps, bool backward)
{
    ARIL_SCOPE;
    aril_seed(1);
    aril_tensor *wx = aril_parameter(aril_full(ARIL_SHAPE(20, 10), 0.1, ARIL_F32, aril_cpu()));
    aril_tensor *wh = aril_parameter(aril_full(ARIL_SHAPE(20, 20), 0.02, ARIL_F32, aril_cpu()));
    aril_tensor *b = aril_parameter(aril_zeros(ARIL_SHAPE(20), ARIL_F32, aril_cpu()));
    aril_tensor *x = aril_ones(ARIL_SHAPE(1, 10), ARIL_F32, aril_cpu());
    aril_tensor *h = aril_keep(aril_zeros(ARIL_SHAPE(1, 20), ARIL_F32, aril_cpu()));
    for (int t = 0; t < steps; t++) {
        ARIL_SCOPE;
        aril_set(&h, aril_tanh(aril_add(aril_linear(x, wx, b), aril_matmul(h, wh))));
    }
    if (backward) aril_backward_with(h, NULL, (aril_grad_opts){ 0 });
    CHECK(!backward || (aril_has_grad(wh) && aril_item(aril_sum(aril_grad(wh), ARIL_ALL)) > 0));
    /* All values converge to the fixed point v = tanh(1 + 0.4 v). */
    double v = aril_item(aril_select(aril_select(h, 0, 0), 0, 7));
    CHECK_NEAR(v, tanh(1 + 0.4 * v), 1e-5);
    aril_release(h);
    aril_release(wx);
    aril_release(wh);
    aril_release(b);
}

TEST(state_across_iterations_does_not_leak)
{
    loop(20, true);
    int64_t before = aril__live_blocks();
    loop(1000, true);
    loop(1000, false);
    CHECK_INT(aril__live_blocks(), before);
    CHECK(aril_ok());
}

/* The sequence op against cells applied step by step. */
static void fill(aril_tensor **w, int gates, int64_t i, int64_t h)
{
    aril_tensor *made[4] = { aril_empty(ARIL_SHAPE(gates * h, i), ARIL_F64, aril_cpu()),
                             aril_empty(ARIL_SHAPE(gates * h, h), ARIL_F64, aril_cpu()),
                             aril_empty(ARIL_SHAPE(gates * h), ARIL_F64, aril_cpu()),
                             aril_empty(ARIL_SHAPE(gates * h), ARIL_F64, aril_cpu()) };
    for (int k = 0; k < 4; k++) {
        double *d = aril_data_strided(made[k]);
        for (int64_t e = 0; e < aril_numel(made[k]); e++)
            d[e] = sin(1.7 * (double)(e + 13 * k) + 0.3);
        w[k] = aril_parameter(made[k]);
    }
}

TEST(sequence_equals_its_cells)
{
    enum { T = 5, N = 3, I = 4, H = 6 };
    ARIL_SCOPE;
    aril_tensor *x = aril_empty(ARIL_SHAPE(T, N, I), ARIL_F64, aril_cpu());
    double *d = aril_data_strided(x);
    for (int e = 0; e < T * N * I; e++) d[e] = cos(0.9 * e);
    for (int kind = 0; kind < 3; kind++) {
        aril_tensor *w[4], *hn, *cn, *y;
        fill(w, kind == 0 ? 1 : kind == 1 ? 4 : 3, I, H);
        aril_list l = { 4, w };
        y = kind == 0   ? aril_rnn(x, NULL, l, (aril_rnn_opts){ 0 }, &hn)
            : kind == 1 ? aril_lstm(x, NULL, NULL, l, (aril_rnn_opts){ 0 }, &hn, &cn)
                        : aril_gru(x, NULL, l, (aril_rnn_opts){ 0 }, &hn);
        aril_tensor *h = aril_zeros(ARIL_SHAPE(N, H), ARIL_F64, aril_cpu()), *c = h;
        for (int t = 0; t < T; t++) {
            aril_tensor *in = aril_select(x, 0, t);
            h = kind == 0 ? aril_rnn_cell(in, h, w[0], w[1], w[2], w[3], (aril_rnn_cell_opts){ 0 })
                : kind == 1 ? aril_lstm_cell(in, h, c, w[0], w[1], w[2], w[3], &c)
                            : aril_gru_cell(in, h, w[0], w[1], w[2], w[3]);
            CHECK(worst(h, aril_select(y, 0, t)) < 1e-14);
        }
        CHECK(worst(h, aril_select(hn, 0, 0)) < 1e-14);
        if (kind == 1) CHECK(worst(c, aril_select(cn, 0, 0)) < 1e-14);
        aril_tensor *a[4], *b[4];
        aril_gradients(aril_sum(hn, ARIL_ALL), l, a, (aril_grad_opts){ 0 });
        aril_gradients(aril_sum(h, ARIL_ALL), l, b, (aril_grad_opts){ 0 });
        for (int k = 0; k < 4; k++) {
            CHECK(worst(a[k], b[k]) < 1e-13);
            aril_release(w[k]);
        }
    }
    CHECK(aril_ok());
}

TEST(dropout_between_layers)
{
    ARIL_SCOPE;
    aril_tensor *w[8];
    fill(w, 1, 4, 4);
    fill(w + 4, 1, 4, 4);
    aril_list l = { 8, w };
    aril_tensor *x = aril_ones(ARIL_SHAPE(3, 2, 4), ARIL_F64, aril_cpu());
    aril_tensor *plain = aril_rnn(x, NULL, l, (aril_rnn_opts){ .layers = 2 }, NULL);
    aril_rnn_opts opts = { .layers = 2, .dropout = 0.5 };
    aril_seed(5);
    aril_tensor *a = aril_rnn(x, NULL, l, opts, NULL);
    aril_seed(5);
    aril_tensor *b = aril_rnn(x, NULL, l, opts, NULL);
    CHECK(worst(a, b) == 0);
    CHECK(worst(a, plain) > 0.01);
    opts.eval = true;
    CHECK(worst(aril_rnn(x, NULL, l, opts, NULL), plain) == 0);
    /* One layer has no dropout between layers. */
    l.n = 4;
    opts = (aril_rnn_opts){ .dropout = 0.9 };
    CHECK(worst(aril_rnn(x, NULL, l, opts, NULL),
                aril_rnn(x, NULL, l, (aril_rnn_opts){ 0 }, NULL)) == 0);
    CHECK(aril_ok());
    for (int k = 0; k < 8; k++) aril_release(w[k]);
}

TEST(invalid_arguments_are_errors)
{
    ARIL_SCOPE;
    aril_tensor *w[4], *hn, *y;
    fill(w, 1, 4, 4);
    aril_list l = { 4, w };
    aril_tensor *x = aril_ones(ARIL_SHAPE(3, 2, 4), ARIL_F64, aril_cpu());
    int64_t too_long[2] = { 4, 1 }, none[2] = { 0, 1 };
    y = aril_rnn(x, NULL, l,
                 (aril_rnn_opts){ .lengths =
                                      aril_from(too_long, ARIL_SHAPE(2), ARIL_I64, aril_cpu()) },
                 &hn);
    CHECK_INT(aril_tensor_status(y), ARIL_ERR_INDEX);
    CHECK_INT(aril_tensor_status(hn), ARIL_ERR_INDEX);
    CHECK(strstr(aril_error(), "length 4 of sequence 0 is not between 1 and 3") != NULL);
    aril_clear_error();
    y = aril_rnn(x, NULL, l,
                 (aril_rnn_opts){ .lengths = aril_from(none, ARIL_SHAPE(2), ARIL_I64, aril_cpu()) },
                 NULL);
    CHECK_INT(aril_tensor_status(y), ARIL_ERR_INDEX);
    y = aril_rnn(x, NULL, l, (aril_rnn_opts){ .layers = 2 }, &hn);
    CHECK_INT(aril_tensor_status(y), ARIL_ERR_ARG);
    y = aril_lstm(x, NULL, NULL, l, (aril_rnn_opts){ 0 }, NULL, &hn);
    CHECK_INT(aril_tensor_status(y), ARIL_ERR_SHAPE);
    CHECK_INT(aril_tensor_status(hn), ARIL_ERR_SHAPE);
    y = aril_rnn(aril_slice(x, 0, 0, 0, 1), x, l, (aril_rnn_opts){ 0 }, NULL);
    CHECK_INT(aril_tensor_status(y), ARIL_ERR_SHAPE);
    y = aril_rnn(NULL, NULL, l, (aril_rnn_opts){ 0 }, &hn);
    CHECK_INT(aril_tensor_status(y), ARIL_ERR_ARG);
    CHECK_INT(aril_tensor_status(aril_gru_cell(x, x, w[0], w[1], NULL, NULL)), ARIL_ERR_SHAPE);
    aril_clear_error();
    for (int k = 0; k < 4; k++) aril_release(w[k]);
}

/* ---- rows against the reference ---- */

typedef struct layout {
    int64_t steps, batch, h;
    bool reverse, ended, bias; /* ended: sequences of different lengths */
} layout;

enum { MAX_OUT = 9 };

static aril_tensor *noise(aril_shape shape, aril_dtype type)
{
    return aril_cast(aril_mul_scalar(aril_randn(shape, ARIL_F64, aril_cpu()), 0.4), type);
}

/* The results of a sequence op and of its gradient, by row `row`, as f64; returns how many. The
 * reference ignores saved gates. */
static int run_seq(int kind, const layout *l, aril_dtype type, int row, aril_tensor **out)
{
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    aril_seed(5);
    static const aril__op *const ops[] = { &aril__op_rnn_seq, &aril__op_lstm_seq,
                                           &aril__op_gru_seq };
    static const aril__op *const grads[] = { &aril__op_rnn_seq_grad, &aril__op_lstm_seq_grad,
                                             &aril__op_gru_seq_grad };
    int64_t gates = kind == 0 ? 1 : kind == 1 ? 4 : 3, t = l->steps, n = l->batch, h = l->h;
    struct rnn_seq_attrs at = { { l->reverse }, { kind == 0 && l->bias }, { 1 } };
    aril_tensor *lengths = NULL;
    if (l->ended) {
        int64_t len[64];
        for (int64_t i = 0; i < n; i++) len[i] = 1 + (i * 7 + 3) % t;
        lengths = aril_from(len, ARIL_SHAPE(n), ARIL_I64, aril_cpu());
    }
    aril_tensor *in[RNN_INPUTS] = { [RNN_XW] = noise(ARIL_SHAPE(t, n, gates * h), type),
                                    [RNN_H0] = noise(ARIL_SHAPE(n, h), type),
                                    [RNN_W] = aril_mul_scalar(noise(ARIL_SHAPE(gates * h, h), type),
                                                              1 / sqrt((double)h)),
                                    [RNN_B] = l->bias ? noise(ARIL_SHAPE(gates * h), type) : NULL,
                                    [RNN_LEN] = lengths,
                                    [RNN_C0] = noise(ARIL_SHAPE(n, h), type) };
    aril_tensor *y[4], *dx[5];
    aril__force_row = row;
    aril__apply(ops[kind], ops[kind]->max_in, in, &at, y);
    aril__force_row = -1;
    aril_tensor *from[GRAD_INPUTS] = { [GRAD_Y] = y[0],
                                       [GRAD_H0] = in[RNN_H0],
                                       [GRAD_W] = in[RNN_W],
                                       [GRAD_LEN] = lengths,
                                       [GRAD_GY] = noise(ARIL_SHAPE(t, n, h), type),
                                       [GRAD_GH] = noise(ARIL_SHAPE(n, h), type) };
    if (kind > 0) {
        from[GRAD_XW] = in[RNN_XW];
        from[GRAD_B] = in[RNN_B];
        from[GRAD_KEPT] = y[ops[kind]->n_out - 1];
    }
    if (kind == 1) {
        from[GRAD_C0] = in[RNN_C0];
        from[GRAD_GC] = noise(ARIL_SHAPE(n, h), type);
    }
    aril__force_row = row;
    aril__apply(grads[kind], grads[kind]->max_in, from, &at, dx);
    aril__force_row = -1;
    int count = 0;
    for (int i = 0; i < ops[kind]->n_out; i++) out[count++] = y[i];
    for (int i = 0; i < grads[kind]->n_out; i++) out[count++] = dx[i];
    for (int i = 0; i < count; i++) out[i] = aril_escape(aril_cast(out[i], ARIL_F64));
    return count;
}

static const layout layouts[] = {
    { 5, 3, 7, false, false, true },   { 4, 1, 20, false, false, true },
    { 6, 5, 33, true, true, true },    { 3, 17, 64, true, false, false },
    { 4, 40, 100, false, true, true }, { 1, 2, 4, false, false, false },
    { 7, 30, 130, true, true, false },
};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

TEST(rows_agree_with_the_reference)
{
    static const struct {
        aril_dtype type;
        double tolerance;
    } types[] = { { ARIL_F64, 1e-12 }, { ARIL_F32, 3e-6 }, { ARIL_BF16, 2e-2 } };
    int top = aril__cpu_set(ARIL__CPU_LEVELS);
    for (int kind = 0; kind < 3; kind++)
        for (int i = 0; i < LAYOUTS; i++)
            for (int k = 0; k < 3; k++) {
                ARIL_SCOPE;
                aril_tensor *got[MAX_OUT], *want[MAX_OUT];
                int n = run_seq(kind, &layouts[i], types[k].type, 1, want);
                for (int level = 0; level <= top; level++) {
                    aril__cpu_set(level);
                    run_seq(kind, &layouts[i], types[k].type, 0, got);
                    for (int j = 0; j < n; j++) {
                        double max = aril_item(aril_amax(aril_abs(want[j]), ARIL_ALL));
                        double e = worst(got[j], want[j]);
                        CHECK_MSG(e <= types[k].tolerance * (1 + max),
                                  "level %d, kind %d, layout %d, type %d, result %d: %g of %g",
                                  level, kind, i, k, j, e, max);
                    }
                }
            }
    aril__cpu_set(top);
    CHECK(aril_ok());
}

/* No bit depends on the number of threads. */
TEST(results_do_not_depend_on_threads)
{
    layout l = { 4, 40, 130, true, true, true };
    for (int kind = 0; kind < 3; kind++) {
        ARIL_SCOPE;
        aril_tensor *one[MAX_OUT], *three[MAX_OUT];
        aril_set_threads(1);
        int n = run_seq(kind, &l, ARIL_F32, 0, one);
        aril_set_threads(3);
        run_seq(kind, &l, ARIL_F32, 0, three);
        aril_set_threads(0);
        for (int j = 0; j < n; j++) CHECK_NEAR(worst(one[j], three[j]), 0, 0);
    }
    CHECK(aril_ok());
}
