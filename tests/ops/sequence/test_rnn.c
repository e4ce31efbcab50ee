/* Recurrent networks: gradients worked out by hand, state carried through a loop, sequences against
 * cells. */
#include "aril/aril.h"
#include "core/cpu.h"
#include "core/tensor.h"
#include "ops/table/apply.h"
#include "ops/sequence/rnn_seq.h"
#include "ops/table/rows.h"
#include "support/device.h"
#include "support/test.h"

#include <math.h>
#include <string.h>

static aril_tensor *f64(aril_shape shape, const double *values)
{
    return aril_from(values, shape, ARIL_F64, test_device());
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
    aril_tensor *wx = aril_parameter(aril_full(ARIL_SHAPE(20, 10), 0.1, ARIL_F32, test_device()));
    aril_tensor *wh = aril_parameter(aril_full(ARIL_SHAPE(20, 20), 0.02, ARIL_F32, test_device()));
    aril_tensor *b = aril_parameter(aril_zeros(ARIL_SHAPE(20), ARIL_F32, test_device()));
    aril_tensor *x = aril_ones(ARIL_SHAPE(1, 10), ARIL_F32, test_device());
    aril_tensor *h = aril_keep(aril_zeros(ARIL_SHAPE(1, 20), ARIL_F32, test_device()));
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
    aril_tensor *made[4] = { aril_empty(ARIL_SHAPE(gates * h, i), ARIL_F64, test_device()),
                             aril_empty(ARIL_SHAPE(gates * h, h), ARIL_F64, test_device()),
                             aril_empty(ARIL_SHAPE(gates * h), ARIL_F64, test_device()),
                             aril_empty(ARIL_SHAPE(gates * h), ARIL_F64, test_device()) };
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
    aril_tensor *x = aril_empty(ARIL_SHAPE(T, N, I), ARIL_F64, test_device());
    double *d = aril_data_strided(x);
    for (int e = 0; e < T * N * I; e++) d[e] = cos(0.9 * e);
    for (int kind = 0; kind < 3; kind++) {
        aril_tensor *w[4], *hn, *cn, *y;
        fill(w, kind == 0 ? 1 : kind == 1 ? 4 : 3, I, H);
        aril_list l = { 4, w };
        y = kind == 0   ? aril_rnn(x, NULL, l, (aril_rnn_opts){ 0 }, &hn)
            : kind == 1 ? aril_lstm(x, NULL, NULL, l, (aril_rnn_opts){ 0 }, &hn, &cn)
                        : aril_gru(x, NULL, l, (aril_rnn_opts){ 0 }, &hn);
        aril_tensor *h = aril_zeros(ARIL_SHAPE(N, H), ARIL_F64, test_device()), *c = h;
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
    aril_tensor *x = aril_ones(ARIL_SHAPE(3, 2, 4), ARIL_F64, test_device());
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
    aril_tensor *x = aril_ones(ARIL_SHAPE(3, 2, 4), ARIL_F64, test_device());
    int64_t too_long[2] = { 4, 1 }, none[2] = { 0, 1 };
    y = aril_rnn(x, NULL, l,
                 (aril_rnn_opts){ .lengths =
                                      aril_from(too_long, ARIL_SHAPE(2), ARIL_I64, test_device()) },
                 &hn);
    CHECK_INT(aril_tensor_status(y), ARIL_ERR_INDEX);
    CHECK_INT(aril_tensor_status(hn), ARIL_ERR_INDEX);
    CHECK(strstr(aril_error(), "length 4 of sequence 0 is not between 1 and 3") != NULL);
    aril_clear_error();
    y = aril_rnn(x, NULL, l,
                 (aril_rnn_opts){ .lengths =
                                      aril_from(none, ARIL_SHAPE(2), ARIL_I64, test_device()) },
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
    int64_t steps, batch, inputs, h;
    bool reverse, ended, bias, states; /* ended: sequences of different lengths */
} layout;

enum { MAX_OUT = RNN_RESULTS + GRAD_RESULTS };

/* What the gradient gets as a reserve. */
typedef enum reserve { KEPT, ABSENT, OTHER_FORMAT, OTHER_SIZE } reserve;

static const aril__op *const ops[] = { &aril__op_rnn_seq, &aril__op_lstm_seq, &aril__op_gru_seq };
static const aril__op *const grads[] = { &aril__op_rnn_seq_grad, &aril__op_lstm_seq_grad,
                                         &aril__op_gru_seq_grad };

static aril_tensor *noise(aril_shape shape, aril_dtype type)
{
    return aril_cast(aril_mul_scalar(aril_randn(shape, ARIL_F64, test_device()), 0.4), type);
}

static aril_tensor *noise_if(bool present, aril_shape shape, aril_dtype type)
{
    aril_tensor *t = noise(shape, type); /* the later ones get the same numbers either way */
    return present ? t : NULL;
}

/* A reserve full of NaNs that no row may read. */
static aril_tensor *foreign(aril_tensor *kept, reserve how)
{
    int64_t size = aril_numel(kept) + (how == OTHER_FORMAT ? 1 : 64);
    return how == ABSENT ? NULL : aril_full(ARIL_SHAPE(size), 255, ARIL_U8, aril_cpu());
}

static void seq_inputs(int kind, const layout *l, aril_dtype type, aril_tensor **in)
{
    int64_t rows = l->h * (kind == 0 ? 1 : kind == 1 ? 4 : 3), n = l->batch, len[64];
    for (int64_t i = 0; i < n; i++) len[i] = 1 + (i * 7 + 3) % l->steps;
    in[RNN_X] = noise(ARIL_SHAPE(l->steps, n, l->inputs), type);
    in[RNN_H0] = noise_if(l->states, ARIL_SHAPE(1, n, l->h), type);
    in[RNN_C0] = noise_if(l->states && kind == 1, ARIL_SHAPE(1, n, l->h), type);
    in[RNN_LEN] = l->ended ? aril_from(len, ARIL_SHAPE(n), ARIL_I64, aril_cpu()) : NULL;
    in[RNN_W_IH] = noise(ARIL_SHAPE(rows, l->inputs), type);
    in[RNN_W_HH] = aril_mul_scalar(noise(ARIL_SHAPE(rows, l->h), type), 1 / sqrt((double)l->h));
    in[RNN_B_IH] = noise_if(l->bias, ARIL_SHAPE(rows), type);
    in[RNN_B_HH] = noise_if(l->bias || kind == 2, ARIL_SHAPE(rows), type);
}

/* The results of a sequence op and of its gradient, by row `row`, as f64; returns how many. */
static int run_seq(int kind, const layout *l, aril_dtype type, int row, reserve how,
                   aril_tensor **out)
{
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    aril_seed(5);
    struct rnn_seq_attrs at = { { l->reverse }, { kind == 0 && l->bias }, { 1 } };
    struct rnn_grad_attrs back = { .reverse = { l->reverse }, .relu = { kind == 0 && l->bias } };
    aril_tensor *in[RNN_INPUTS], *y[RNN_RESULTS], *dx[GRAD_RESULTS];
    seq_inputs(kind, l, type, in);
    aril__force_row = row;
    aril__apply(ops[kind], RNN_INPUTS, in, &at, y);
    aril__force_row = -1;
    aril_shape states = ARIL_SHAPE(1, l->batch, l->h);
    aril_tensor *from[GRAD_INPUTS] = {
        [GRAD_Y] = y[RNN_Y],
        [GRAD_RESERVE] = how == KEPT ? y[RNN_RESERVE] : foreign(y[RNN_RESERVE], how),
        [GRAD_GY] = noise(ARIL_SHAPE(l->steps, l->batch, l->h), type),
        [GRAD_GH] = noise(states, type),
        [GRAD_GC] = noise_if(kind == 1, states, type)
    };
    memcpy(from + GRAD_X, in + RNN_X, 4 * sizeof *in);       /* x, states, lengths */
    memcpy(from + GRAD_W_IH, in + RNN_W_IH, 4 * sizeof *in); /* weights and biases */
    aril__force_row = row;
    aril__apply(grads[kind], GRAD_INPUTS, from, &back, dx);
    aril__force_row = -1;
    int count = 0;
    for (int i = 0; i < ops[kind]->n_out; i++)
        if (i != RNN_RESERVE) out[count++] = y[i];
    for (int i = 0; i < grads[kind]->n_out; i++) out[count++] = dx[i];
    for (int i = 0; i < count; i++) out[i] = aril_escape(aril_cast(out[i], ARIL_F64));
    return count;
}

static const layout layouts[] = {
    { 5, 3, 4, 7, false, false, true, true },     { 4, 1, 9, 20, false, false, true, false },
    { 6, 5, 40, 33, true, true, true, true },     { 3, 17, 16, 64, true, false, false, true },
    { 4, 40, 100, 100, false, true, true, true }, { 1, 2, 3, 4, false, false, false, false },
    { 7, 30, 1, 130, true, true, false, false },
};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

static void compare(int kind, int i, aril_dtype type, double tolerance, reserve how,
                    aril_tensor *const *want)
{
    ARIL_SCOPE;
    aril_tensor *got[MAX_OUT];
    int n = run_seq(kind, &layouts[i], type, 0, how, got);
    for (int j = 0; j < n; j++) {
        double max = aril_item(aril_amax(aril_abs(want[j]), ARIL_ALL)), e = worst(got[j], want[j]);
        CHECK_MSG(e <= tolerance * (1 + max),
                  "kind %d, layout %d, type %d, reserve %d, result %d: %g of %g", kind, i,
                  (int)type, (int)how, j, e, max);
    }
}

/* ... with their own reserve, and with none or one that they cannot read. */
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
                aril_tensor *want[MAX_OUT];
                run_seq(kind, &layouts[i], types[k].type, ARIL__FORCE_REFERENCE, KEPT, want);
                for (int level = 0; level <= top; level++) {
                    aril__cpu_set(level);
                    compare(kind, i, types[k].type, types[k].tolerance, KEPT, want);
                }
                for (reserve how = ABSENT; how <= OTHER_SIZE; how++)
                    compare(kind, i, types[k].type, types[k].tolerance, how, want);
            }
    aril__cpu_set(top);
    CHECK(aril_ok());
}

/* No bit depends on the number of threads. */
TEST(results_do_not_depend_on_threads)
{
    layout l = { 4, 40, 60, 130, true, true, true, true };
    for (int kind = 0; kind < 3; kind++)
        for (reserve how = KEPT; how <= ABSENT; how++) {
            ARIL_SCOPE;
            aril_tensor *one[MAX_OUT], *three[MAX_OUT];
            aril_set_threads(1);
            int n = run_seq(kind, &l, ARIL_F32, 0, how, one);
            aril_set_threads(3);
            run_seq(kind, &l, ARIL_F32, 0, how, three);
            aril_set_threads(0);
            for (int j = 0; j < n; j++) CHECK_NEAR(worst(one[j], three[j]), 0, 0);
        }
    CHECK(aril_ok());
}

/* ---- reserves ---- */

TEST(a_row_gives_the_size_of_its_reserve)
{
    ARIL_SCOPE;
    const layout *l = &layouts[0];
    for (int kind = 0; kind < 3; kind++) {
        aril_tensor *in[RNN_INPUTS], *y[RNN_RESULTS];
        int64_t values = l->steps * l->batch * l->h * (kind == 1 ? 5 : 4);
        seq_inputs(kind, l, ARIL_F32, in);
        aril__apply(ops[kind], RNN_INPUTS, in, &(struct rnn_seq_attrs){ .keep = { 1 } }, y);
        CHECK_INT(aril_dtype_of(y[RNN_RESERVE]), ARIL_U8);
        CHECK_INT(aril_numel(y[RNN_RESERVE]),
                  kind == 0 ? 0 : aril__reserve_size("cpu_rnn", (size_t)values * sizeof(float)));
        CHECK(aril__reserve_is(y[RNN_RESERVE], "cpu_rnn") == (kind > 0));
        CHECK(!aril__reserve_is(y[RNN_RESERVE], "no such format"));
        aril__apply(ops[kind], RNN_INPUTS, in, &(struct rnn_seq_attrs){ .keep = { 0 } }, y);
        CHECK_INT(aril_numel(y[RNN_RESERVE]), 0);
    }
    CHECK(aril_ok());
}

static aril_status nothing(aril_run *r)
{
    (void)r;
    return ARIL_OK;
}

/* Without prepare, dispatch could neither allocate a reserve nor tell whose it is. */
TEST(rows_of_ops_with_a_reserve_need_prepare)
{
    static const aril__row rows[] = {
        { .op = "lstm_seq", .name = "hasty", .dtypes = DT(ARIL_F32), .run = nothing },
        { .op = "lstm_seq_grad", .name = "hasty", .dtypes = DT(ARIL_F32), .run = nothing },
    };
    for (int i = 0; i < 2; i++) {
        CHECK_INT(aril__rows_register(aril_cpu().kind, &rows[i], 1), ARIL_ERR_ARG);
        CHECK(strstr(aril_error(), "need `prepare`") != NULL);
        aril_clear_error();
    }
}

/* Rows that keep 100 bytes for a gradient that checks them, and one whose reserve is nameless. */
enum { SPIED = 100 };
static int spied;

static const char *spy_prepare(const aril_run *r, aril_plan *plan)
{
    plan->reserve = r->op == &aril__op_gru_seq ? SPIED : 0;
    return NULL;
}

static aril_status spy(aril_run *r)
{
    for (int i = 0; i < r->n_out; i++)
        memset(aril__ptr(r->out[i]), i == RNN_RESERVE ? 7 : 0,
               aril__dtype_bytes((aril_dtype)r->out[i]->dtype, r->out[i]->numel));
    return ARIL_OK;
}

static aril_status spy_grad(aril_run *r)
{
    const unsigned char *kept = aril__ptr(r->in[GRAD_RESERVE]);
    for (int i = 0; i < SPIED; i++) spied += kept[i] == 7;
    for (int i = 0; i < r->n_out; i++)
        memset(aril__ptr(r->out[i]), 0,
               aril__dtype_bytes((aril_dtype)r->out[i]->dtype, r->out[i]->numel));
    return ARIL_OK;
}

static const aril__row spies[] = {
    { .op = "gru_seq",
      .name = "nameless",
      .dtypes = DT(ARIL_F32),
      .prepare = spy_prepare,
      .run = spy },
    { .op = "gru_seq",
      .name = "spy",
      .dtypes = DT(ARIL_F32),
      .reserve = "spy",
      .prepare = spy_prepare,
      .run = spy },
    { .op = "gru_seq_grad",
      .name = "spy_grad",
      .dtypes = DT(ARIL_F32),
      .reserve = "spy",
      .prepare = spy_prepare,
      .run = spy_grad },
};

/* The second row that accepts a call is a spy's, if one does: the first are Aril's own, and the
 * nameless one is never asked to run. */
TEST(a_reserve_reaches_only_rows_of_its_format)
{
    ARIL_SCOPE;
    aril_tensor *in[RNN_INPUTS], *y[2][RNN_RESULTS], *dx[GRAD_RESULTS];
    struct rnn_seq_attrs keep = { .keep = { 1 } };
    struct rnn_grad_attrs back = { .no_dx = { 0 } };
    CHECK_INT(aril__rows_register_behind(aril_cpu().kind, spies, 3), ARIL_OK);
    seq_inputs(2, &layouts[0], ARIL_F32, in);
    for (int row = 0; row < 2; row++) {
        aril__force_row = row;
        aril__apply(ops[2], RNN_INPUTS, in, &keep, y[row]);
    }
    CHECK(aril__reserve_is(y[0][RNN_RESERVE], "cpu_rnn"));
    CHECK(aril__reserve_is(y[1][RNN_RESERVE], "spy"));
    CHECK_INT(aril_numel(y[1][RNN_RESERVE]), aril__reserve_size("spy", SPIED));
    for (int of = 0; of < 2; of++) {
        aril_tensor *from[GRAD_INPUTS] = {
            [GRAD_Y] = y[of][RNN_Y], [GRAD_RESERVE] = y[of][RNN_RESERVE], [GRAD_GY] = y[of][RNN_Y]
        };
        memcpy(from + GRAD_X, in + RNN_X, 4 * sizeof *in);
        memcpy(from + GRAD_W_IH, in + RNN_W_IH, 4 * sizeof *in);
        for (int row = 0; row < 4; row++) {
            aril__force_row = row;
            aril__apply(grads[2], GRAD_INPUTS, from, &back, dx);
            CHECK_INT(spied, of == 1 && row >= 1 ? SPIED : 0);
        }
    }
    aril__force_row = -1;
    CHECK(aril_ok());
}

/* A trace does not know the size of a reserve; the gradient takes it as it is. */
static aril_status shapes_only(aril__tracer *self, const aril__call *c, aril_tensor *dest,
                               aril_tensor **out)
{
    (void)self;
    (void)dest;
    for (int i = 0; i < c->op->n_out; i++)
        out[i] =
            aril__symbolic_new(aril__self(), c->out[i].dtype, c->out[i].ndim, c->out[i].dim, NULL);
    return ARIL_OK;
}

TEST(a_reserve_has_an_unknown_size_in_a_trace)
{
    ARIL_SCOPE;
    aril__tracer tracer = { .apply = shapes_only };
    aril_tensor *in[RNN_INPUTS], *y[RNN_RESULTS], *dx[GRAD_RESULTS];
    seq_inputs(1, &layouts[0], ARIL_F32, in);
    aril__trace(&tracer);
    aril__apply(ops[1], RNN_INPUTS, in, &(struct rnn_seq_attrs){ .keep = { 1 } }, y);
    CHECK_INT(aril_ndim(y[RNN_RESERVE]), 1);
    CHECK(aril_size(y[RNN_RESERVE], 0) < 0);
    aril_tensor *from[GRAD_INPUTS] = {
        [GRAD_Y] = y[RNN_Y], [GRAD_RESERVE] = y[RNN_RESERVE], [GRAD_GY] = y[RNN_Y]
    };
    memcpy(from + GRAD_X, in + RNN_X, 4 * sizeof *in);
    memcpy(from + GRAD_W_IH, in + RNN_W_IH, 4 * sizeof *in);
    aril__apply(grads[1], GRAD_INPUTS, from, &(struct rnn_grad_attrs){ .no_dx = { 1 } }, dx);
    aril__trace(NULL);
    aril__sizes_free(&tracer.sizes);
    CHECK_INT(aril_size(dx[GRAD_DX], 0), 0); /* not needed */
    CHECK_INT(aril_size(dx[GRAD_DW_IH], 1), layouts[0].inputs);
    CHECK(aril_ok());
}
