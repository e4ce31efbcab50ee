/* Normalization, attention and recurrent layers beyond the golden values: errors, threads,
 * memory. */
#include "aril/aril.h"
#include "core/cpu.h"
#include "core/tensor.h"
#include "ops/table/apply.h"
#include "ops/sequence/attention.h"
#include "ops/table/rows.h"
#include "support/device.h"
#include "support/test.h"

#include <math.h>
#include <string.h>

static aril_tensor *make(aril_shape shape, aril_dtype dtype, double phase)
{
    aril_tensor *t = aril_empty(shape, ARIL_F64, test_device());
    double *d = aril_data_strided(t);
    for (int64_t i = 0; d && i < aril_numel(t); i++)
        d[i] = sin(0.7 * (double)i + phase) + 0.1 * cos(13.0 * (double)i);
    return aril_cast(t, dtype);
}

static aril_tensor *f32(aril_shape shape, double phase)
{
    return make(shape, ARIL_F32, phase);
}

static bool same(aril_tensor *a, aril_tensor *b)
{
    return aril_item(aril_sum(aril_ne(a, b), ARIL_ALL)) == 0;
}

static double worst(aril_tensor *a, aril_tensor *b)
{
    aril_tensor *d = aril_sub(aril_cast(a, ARIL_F64), aril_cast(b, ARIL_F64));
    return aril_item(aril_amax(aril_abs(d), ARIL_ALL));
}

#define CHECK_FAILS(call, code, text)                                                  \
    do {                                                                               \
        CHECK_INT(aril_tensor_status(call), code);                                     \
        CHECK_MSG(strstr(aril_error(), text) != NULL, "\"%s\" is not in \"%s\"", text, \
                  aril_error());                                                       \
        aril_clear_error();                                                            \
    } while (0)

/* ---- errors ---- */

TEST(invalid_norm_arguments)
{
    ARIL_SCOPE;
    const aril_batch_norm_opts bn = { 0 };
    const aril_norm_opts no = { 0 };
    aril_tensor *x = f32(ARIL_SHAPE(2, 3, 4), 0), *c4 = f32(ARIL_SHAPE(4), 1);
    aril_tensor *c3 = f32(ARIL_SHAPE(3), 1), *wide = make(ARIL_SHAPE(3), ARIL_F64, 1);
    CHECK_FAILS(
        aril_batch_norm(x, c4, NULL, NULL, NULL, bn), ARIL_ERR_SHAPE,
        "batch_norm: weight is [4], expected one value for each of the 3 channels of [2,3,4]");
    CHECK_FAILS(aril_batch_norm(x, wide, NULL, NULL, NULL, bn), ARIL_ERR_DTYPE, "weight is f64");
    CHECK_FAILS(aril_batch_norm(c3, NULL, NULL, NULL, NULL, bn), ARIL_ERR_SHAPE, "[N,C,...]");
    CHECK_FAILS(aril_batch_norm(f32(ARIL_SHAPE(1, 3), 0), NULL, NULL, NULL, NULL, bn),
                ARIL_ERR_SHAPE, "one value per channel");
    CHECK_FAILS(aril_batch_norm(NULL, NULL, NULL, NULL, NULL, bn), ARIL_ERR_ARG, "NULL");
    CHECK_FAILS(aril_batch_norm(x, NULL, NULL, NULL, NULL, (aril_batch_norm_opts){ .eval = true }),
                ARIL_ERR_ARG, "NULL");
    CHECK_FAILS(aril_batch_norm(x, NULL, NULL, c3, NULL,
                                (aril_batch_norm_opts){ .cumulative = true }),
                ARIL_ERR_ARG, "num_batches");
    CHECK_FAILS(aril_batch_norm(x, NULL, NULL, NULL, NULL,
                                (aril_batch_norm_opts){ .eps = ARIL_ZERO }),
                ARIL_ERR_ARG, "eps must be above 0");
    CHECK_FAILS(aril_batch_norm(aril_cast(x, ARIL_I32), NULL, NULL, NULL, NULL, bn), ARIL_ERR_DTYPE,
                "i32");
    CHECK_FAILS(aril_layer_norm(x, NULL, NULL, ARIL_SHAPE(5), no), ARIL_ERR_SHAPE,
                "expected an input of shape [...,5], got [2,3,4]");
    CHECK_FAILS(aril_layer_norm(x, c3, NULL, ARIL_SHAPE(4), no), ARIL_ERR_SHAPE, "weight is [3]");
    CHECK_FAILS(aril_layer_norm(x, NULL, NULL, ARIL_SHAPE(), no), ARIL_ERR_SHAPE, "layer_norm");
    CHECK_FAILS(aril_rms_norm(x, c3, ARIL_SHAPE(4), no), ARIL_ERR_SHAPE, "weight is [3]");
    CHECK_FAILS(aril_rms_norm(NULL, c3, ARIL_SHAPE(4), no), ARIL_ERR_ARG, "rms_norm");
    CHECK_FAILS(aril_group_norm(x, NULL, NULL, 2, no), ARIL_ERR_SHAPE, "into 2 groups");
    CHECK_FAILS(aril_group_norm(x, NULL, NULL, 0, no), ARIL_ERR_ARG,
                "number of groups must be at least 1, got 0");
    CHECK_FAILS(aril_instance_norm(f32(ARIL_SHAPE(2, 3, 1), 0), NULL, NULL, NULL, NULL,
                                   (aril_instance_norm_opts){ 0 }),
                ARIL_ERR_SHAPE, "expected more than one value");
    aril_tensor *bad = aril_layer_norm(x, NULL, NULL, ARIL_SHAPE(5), no);
    CHECK_INT(aril_tensor_status(
                  aril_instance_norm(bad, NULL, NULL, NULL, NULL, (aril_instance_norm_opts){ 0 })),
              ARIL_ERR_SHAPE);
    aril_clear_error();
}

TEST(invalid_attention_arguments)
{
    ARIL_SCOPE;
    aril_tensor *q = f32(ARIL_SHAPE(3, 4), 0), *k = f32(ARIL_SHAPE(5, 4), 0);
    aril_tensor *v = f32(ARIL_SHAPE(5, 2), 0), *mask = f32(ARIL_SHAPE(3, 4), 0);
    CHECK_FAILS(aril_scaled_dot_product_attention(q, v, k, (aril_attention_opts){ 0 }),
                ARIL_ERR_SHAPE, "got [3,4], [5,2] and [5,4]");
    CHECK_FAILS(aril_scaled_dot_product_attention(q, k, v, (aril_attention_opts){ .mask = mask }),
                ARIL_ERR_SHAPE, "mask [3,4] does not broadcast to [3,5]");
    CHECK_FAILS(aril_scaled_dot_product_attention(
                    q, k, v, (aril_attention_opts){ .mask = mask, .causal = true }),
                ARIL_ERR_ARG, "causal");
    CHECK_FAILS(aril_scaled_dot_product_attention(q, k, v, (aril_attention_opts){ .dropout_p = 2 }),
                ARIL_ERR_ARG, "dropout_p");
    CHECK_FAILS(aril_scaled_dot_product_attention(q, k, aril_cast(v, ARIL_F64),
                                                  (aril_attention_opts){ 0 }),
                ARIL_ERR_DTYPE, "got f32, f32 and f64");
    CHECK_FAILS(aril_scaled_dot_product_attention(
                    q, k, v,
                    (aril_attention_opts){ .mask = aril_cast(f32(ARIL_SHAPE(3, 5), 0), ARIL_I64) }),
                ARIL_ERR_DTYPE, "i64");
    CHECK_FAILS(aril_scaled_dot_product_attention(f32(ARIL_SHAPE(3, 3, 4), 0),
                                                  f32(ARIL_SHAPE(2, 5, 4), 0),
                                                  f32(ARIL_SHAPE(2, 5, 4), 0),
                                                  (aril_attention_opts){ .enable_gqa = true }),
                ARIL_ERR_SHAPE, "must be a multiple");
    CHECK_FAILS(aril_scaled_dot_product_attention(q, NULL, v, (aril_attention_opts){ 0 }),
                ARIL_ERR_ARG, "NULL");
}

/* ---- numbers ---- */

TEST(norms_are_accurate_with_large_means)
{
    ARIL_SCOPE;
    /* f32 values that are exact in both types: 4096 plus eighths. */
    aril_tensor *x = aril_add_scalar(
        aril_div_scalar(aril_round(aril_mul_scalar(f32(ARIL_SHAPE(50, 3, 7), 0), 8)), 8), 4096);
    aril_tensor *y = aril_cast(x, ARIL_F64);
    CHECK(worst(aril_batch_norm(x, NULL, NULL, NULL, NULL, (aril_batch_norm_opts){ 0 }),
                aril_batch_norm(y, NULL, NULL, NULL, NULL, (aril_batch_norm_opts){ 0 })) < 1e-6);
    CHECK(worst(aril_layer_norm(x, NULL, NULL, ARIL_SHAPE(3, 7), (aril_norm_opts){ 0 }),
                aril_layer_norm(y, NULL, NULL, ARIL_SHAPE(3, 7), (aril_norm_opts){ 0 })) < 1e-6);
    CHECK(worst(aril_group_norm(x, NULL, NULL, 3, (aril_norm_opts){ 0 }),
                aril_group_norm(y, NULL, NULL, 3, (aril_norm_opts){ 0 })) < 1e-6);
    CHECK(aril_ok());
}

static aril_tensor *one_of_each(int which, aril_tensor *const *p)
{
    switch (which) {
    case 0: return aril_batch_norm(p[0], p[1], p[2], NULL, NULL, (aril_batch_norm_opts){ 0 });
    case 1: return aril_layer_norm(p[0], p[3], p[4], ARIL_SHAPE(40), (aril_norm_opts){ 0 });
    case 2: return aril_group_norm(p[0], p[1], p[2], 3, (aril_norm_opts){ 0 });
    case 3: return aril_rms_norm(p[0], p[3], ARIL_SHAPE(40), (aril_norm_opts){ 0 });
    case 4: return aril_instance_norm(p[0], p[1], p[2], NULL, NULL, (aril_instance_norm_opts){ 0 });
    default:
        return aril_scaled_dot_product_attention(p[0], p[0], p[0],
                                                 (aril_attention_opts){ .causal = which == 6 });
    }
}

TEST(results_do_not_depend_on_threads)
{
    ARIL_SCOPE;
    int threads = aril_threads();
    aril_tensor *p[5] = { f32(ARIL_SHAPE(60, 33, 40), 0), f32(ARIL_SHAPE(33), 1),
                          f32(ARIL_SHAPE(33), 2), f32(ARIL_SHAPE(40), 3), f32(ARIL_SHAPE(40), 4) };
    for (int i = 0; i < 5; i++) aril_set_requires_grad(p[i], true);
    for (int which = 0; which < 7; which++) {
        aril_tensor *first[2] = { 0 };
        for (int t = 1; t <= 5; t += 2) {
            aril_set_threads(t);
            aril_tensor *y = one_of_each(which, p), *g[5];
            aril_gradients(aril_sum(aril_mul(aril_square(y), y), ARIL_ALL), (aril_list){ 5, p }, g,
                           (aril_grad_opts){ .allow_unused = true });
            if (first[0]) {
                CHECK_MSG(same(first[0], y), "result %d, %d threads", which, t);
                CHECK_MSG(same(first[1], g[0]), "gradient %d, %d threads", which, t);
            }
            first[0] = y;
            first[1] = g[0];
        }
    }
    aril_set_threads(threads);
    CHECK(aril_ok());
}

TEST(channels_last_is_kept)
{
    ARIL_SCOPE;
    aril_tensor *last = f32(ARIL_SHAPE(2, 5, 4, 6), 0); /* [N,H,W,C] */
    aril_tensor *x = aril_permute(last, ARIL_AXES(0, 3, 1, 2));
    aril_tensor *w = aril_parameter(f32(ARIL_SHAPE(6), 1)), *g[2][2];
    aril_tensor *leaf = aril_parameter(x), *flat = aril_parameter(aril_contiguous(x));
    for (int k = 0; k < 4; k++) {
        aril_tensor *y[2];
        for (int i = 0; i < 2; i++) {
            aril_tensor *in = i ? flat : leaf, *m = aril_zeros_like(w), *v = aril_ones_like(w);
            y[i] = k == 0 ? aril_batch_norm(in, w, NULL, NULL, NULL, (aril_batch_norm_opts){ 0 })
                   : k == 1
                       ? aril_batch_norm(in, w, NULL, m, v, (aril_batch_norm_opts){ .eval = true })
                   : k == 2
                       ? aril_group_norm(in, w, NULL, 2, (aril_norm_opts){ 0 })
                       : aril_layer_norm(in, NULL, NULL, ARIL_SHAPE(5, 4), (aril_norm_opts){ 0 });
            aril_gradients(aril_sum(aril_mul(aril_square(y[i]), y[i]), ARIL_ALL), ARIL_LIST(in, w),
                           g[i], (aril_grad_opts){ .allow_unused = true });
        }
        CHECK_MSG(worst(y[0], y[1]) < 1e-6 && worst(g[0][0], g[1][0]) < 1e-4 &&
                      worst(g[0][1], g[1][1]) < 1e-4,
                  "norm %d", k);
        if (k < 3) {
            CHECK_INT(aril_stride(y[0], 1), 1);
            CHECK_MSG(aril_stride(g[0][0], 1) == 1, "norm %d", k);
        }
    }
    CHECK(aril_ok());
    aril_release(w);
    aril_release(leaf);
    aril_release(flat);
}

TEST(running_statistics_may_be_views)
{
    ARIL_SCOPE;
    aril_tensor *x = f32(ARIL_SHAPE(4, 3), 0);
    aril_tensor *all = aril_ones(ARIL_SHAPE(3, 2), ARIL_F32, test_device());
    aril_tensor *m = aril_select(all, 1, 0), *v = aril_select(all, 1, 1);
    aril_tensor *m2 = aril_ones(ARIL_SHAPE(3), ARIL_F32, test_device()), *v2 = aril_copy(m2);
    aril_tensor *y = aril_batch_norm(x, NULL, NULL, m, v, (aril_batch_norm_opts){ 0 });
    CHECK(same(y, aril_batch_norm(x, NULL, NULL, m2, v2, (aril_batch_norm_opts){ 0 })));
    CHECK(same(m, m2) && same(v, v2));
    CHECK(!same(m, aril_ones_like(m)));
    CHECK(same(aril_select(all, 1, 0), m2));
    CHECK(aril_ok());
}

/* ---- memory ---- */

TEST(attention_never_stores_all_scores)
{
    ARIL_SCOPE;
    enum { L = 1024, E = 8 };
    aril_tensor *q = aril_parameter(f32(ARIL_SHAPE(L, E), 0));
    aril_tensor *k = aril_parameter(f32(ARIL_SHAPE(L, E), 1));
    aril_tensor *v = aril_parameter(f32(ARIL_SHAPE(L, E), 2));
    aril_memory_reset_peak(test_device());
    int64_t before = aril_memory(test_device()).live;
    aril_tensor *y = aril_scaled_dot_product_attention(q, k, v, (aril_attention_opts){ 0 });
    aril_backward(aril_sum(y, ARIL_ALL));
    int64_t used = aril_memory(test_device()).peak - before;
    CHECK(aril_ok());
    CHECK_MSG(used < L * L * 4 / 4, "%lld bytes", (long long)used);
    aril_release(q);
    aril_release(k);
    aril_release(v);
}

TEST(batch_norm_saves_its_input_and_two_values_per_channel)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_parameter(f32(ARIL_SHAPE(64, 16, 10, 10), 0));
    int64_t before = aril_memory(test_device()).live, bytes = aril_numel(x) * 4;
    aril_tensor *y = aril_batch_norm(x, NULL, NULL, NULL, NULL, (aril_batch_norm_opts){ 0 });
    aril_tensor *z = aril_dropout(y, 0.5, (aril_dropout_opts){ 0 });
    int64_t used = aril_memory(test_device()).live - before;
    CHECK(aril_tensor_status(z) == ARIL_OK);
    CHECK_MSG(used < 3 * bytes, "%lld bytes for two results", (long long)used);
    aril_release(x);
}

/* ---- attention's rows against the reference ---- */

typedef struct sizes {
    int64_t batch, l, s, e, ev;
    int mask; /* none, boolean, float, boolean that hides all keys from some queries, causal */
} sizes;

static aril_tensor *normal(aril_shape shape, aril_dtype type)
{
    return aril_cast(aril_randn(shape, ARIL_F64, test_device()), type);
}

/* y, lse, dq, dk and dv by row `row`, as f64. */
static void run_attention(const sizes *z, aril_dtype type, int row, aril_tensor **out)
{
    ARIL_SCOPE;
    aril_seed(3);
    struct attention_attrs at = { { z->mask == 2 ? 0.3 : 0 }, { z->mask == 4 } };
    aril_tensor *in[ATTENTION_INPUTS] = {
        [ATTENTION_Q] = normal(ARIL_SHAPE(z->batch, z->l, z->e), type),
        [ATTENTION_K] = normal(ARIL_SHAPE(z->batch, z->s, z->e), type),
        [ATTENTION_V] = normal(ARIL_SHAPE(z->batch, z->s, z->ev), type),
        [ATTENTION_G] = normal(ARIL_SHAPE(z->batch, z->l, z->ev), type),
    };
    aril_tensor *r = aril_rand(ARIL_SHAPE(z->l, z->s), ARIL_F32, test_device());
    if (z->mask == 1) in[ATTENTION_MASK] = aril_gt_scalar(r, 0.4);
    if (z->mask == 2) in[ATTENTION_MASK] = aril_cast(r, type);
    if (z->mask == 3)
        in[ATTENTION_MASK] =
            aril_gt_scalar(aril_rand(ARIL_SHAPE(z->l, 1), ARIL_F32, test_device()), 0.5);
    if (z->mask == 0)
        in[ATTENTION_G_LSE] =
            normal(ARIL_SHAPE(z->batch, z->l), type == ARIL_F64 ? ARIL_F64 : ARIL_F32);
    aril__force_row = row;
    aril__apply(&aril__op_attention, 4, in, &at, out);
    in[ATTENTION_Y] = out[0];
    in[ATTENTION_LSE] = out[1];
    aril__apply(&aril__op_attention_grad, ATTENTION_INPUTS, in, &at, out + 2);
    aril__force_row = -1;
    for (int i = 0; i < 5; i++) out[i] = aril_escape(aril_cast(out[i], ARIL_F64));
}

TEST(attention_rows_agree_with_the_reference)
{
    static const sizes all[] = { { 2, 3, 5, 4, 2, 0 },      { 1, 100, 300, 20, 33, 0 },
                                 { 3, 50, 257, 64, 64, 1 }, { 2, 130, 70, 16, 8, 2 },
                                 { 2, 60, 33, 8, 8, 3 },    { 2, 300, 300, 32, 32, 4 },
                                 { 1, 70, 400, 8, 16, 4 },  { 1, 400, 70, 8, 16, 4 },
                                 { 2, 1, 40, 64, 64, 0 } };
    static const struct {
        aril_dtype type;
        double tolerance;
    } types[] = { { ARIL_F64, 1e-12 }, { ARIL_F32, 1e-5 }, { ARIL_BF16, 3e-2 } };
    int top = aril__cpu_set(ARIL__CPU_LEVELS);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        for (int k = 0; k < 3; k++) {
            ARIL_SCOPE;
            aril_tensor *got[5], *want[5];
            run_attention(&all[i], types[k].type, 1, want);
            for (int level = 0; level <= top; level++) {
                aril__cpu_set(level);
                run_attention(&all[i], types[k].type, 0, got);
                for (int j = 0; j < 5; j++) {
                    aril_tensor *d = aril_abs(aril_sub(got[j], want[j]));
                    d = aril_where(aril_eq(got[j], want[j]), aril_scalar(0.0), d); /* infinities */
                    double e = aril_item(aril_amax(d, ARIL_ALL));
                    CHECK_MSG(e <= types[k].tolerance * 10,
                              "level %d, sizes %d, type %d, result %d: %g", level, (int)i, k, j, e);
                }
            }
        }
    aril__cpu_set(top);
    CHECK(aril_ok());
}

/* Attention's weights with dropout: E[y] is y, and the same seed gives the same mask. */
TEST(attention_with_dropout)
{
    ARIL_SCOPE;
    aril_tensor *q = f32(ARIL_SHAPE(4, 3), 0), *k = f32(ARIL_SHAPE(6, 3), 1);
    aril_tensor *v = f32(ARIL_SHAPE(6, 2), 2);
    aril_tensor *plain = aril_scaled_dot_product_attention(q, k, v, (aril_attention_opts){ 0 });
    aril_tensor *sum = aril_zeros_like(plain), *first = NULL;
    enum { TIMES = 3000 };
    for (int i = 0; i < TIMES; i++) {
        ARIL_SCOPE;
        aril_tensor *y =
            aril_scaled_dot_product_attention(q, k, v, (aril_attention_opts){ .dropout_p = 0.4 });
        aril_add_(sum, y);
    }
    CHECK(worst(aril_div_scalar(sum, (double)TIMES), plain) < 0.06);
    for (int i = 0; i < 2; i++) {
        aril_seed(9);
        aril_tensor *y = aril_scaled_dot_product_attention(
            q, k, v, (aril_attention_opts){ .dropout_p = 0.4, .causal = true });
        CHECK(!first || same(first, y));
        first = y;
    }
    CHECK(aril_ok());
}

/* ---- every allocation fails once ---- */

typedef void work(void);

static void work_norms(void)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_parameter(f32(ARIL_SHAPE(3, 4, 5), 0));
    aril_tensor *w = aril_parameter(f32(ARIL_SHAPE(4), 1));
    aril_tensor *y = aril_batch_norm(x, w, w, NULL, NULL, (aril_batch_norm_opts){ 0 });
    y = aril_group_norm(y, w, NULL, 2, (aril_norm_opts){ 0 });
    y = aril_layer_norm(y, NULL, NULL, ARIL_SHAPE(5), (aril_norm_opts){ 0 });
    y = aril_dropout(y, 0.5, (aril_dropout_opts){ 0 });
    aril_backward(aril_sum(aril_square(y), ARIL_ALL));
    aril_release(x);
    aril_release(w);
}

static void work_attention(void)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_parameter(make(ARIL_SHAPE(2, 5, 4), ARIL_BF16, 0)), *g[1], *gg[1];
    aril_tensor *y =
        aril_scaled_dot_product_attention(x, x, x, (aril_attention_opts){ .causal = true });
    aril_gradients(aril_sum(aril_square(y), ARIL_ALL), ARIL_LIST(x), g,
                   (aril_grad_opts){ .create_graph = true });
    if (aril_ok())
        aril_gradients(aril_sum(g[0], ARIL_ALL), ARIL_LIST(x), gg, (aril_grad_opts){ 0 });
    aril_release(x);
}

static void work_lstm(void)
{
    ARIL_SCOPE;
    enum { H = 3, I = 2 };
    aril_tensor *w[8], *x = f32(ARIL_SHAPE(3, 2, I), 0), *hn, *cn, *g[8], *gg[8];
    for (int i = 0; i < 8; i++)
        w[i] = aril_parameter(f32(i % 4 == 0   ? ARIL_SHAPE(4 * H, I)
                                  : i % 4 == 1 ? ARIL_SHAPE(4 * H, H)
                                               : ARIL_SHAPE(4 * H),
                                  i));
    aril_list l = { 8, w };
    int64_t len[2] = { 2, 3 };
    aril_rnn_opts opts = { .bidirectional = true,
                           .lengths = aril_from(len, ARIL_SHAPE(2), ARIL_I64, test_device()) };
    aril_tensor *y = aril_lstm(x, NULL, NULL, l, opts, &hn, &cn);
    y = aril_add(aril_sum(aril_square(y), ARIL_ALL), aril_sum(aril_mul(hn, cn), ARIL_ALL));
    aril_gradients(y, l, g, (aril_grad_opts){ .create_graph = true });
    if (aril_ok())
        aril_gradients(aril_sum(aril_square(g[1]), ARIL_ALL), l, gg, (aril_grad_opts){ 0 });
    for (int i = 0; i < 8; i++) aril_release(w[i]);
}

static void fail_everywhere(work *fn)
{
    fn(); /* fills caches */
    CHECK(aril_ok());
    int64_t before = aril__live_blocks();
    int failures = 0;
    for (int64_t n = 1;; n++) {
        aril_fail_allocation(n);
        fn();
        bool failed = aril_allocation_failed();
        aril_fail_allocation(0);
        if (failed && !aril_ok()) {
            CHECK_INT(aril_error_code(), ARIL_ERR_MEMORY);
            failures++;
        } else if (!failed) {
            CHECK(aril_ok());
            break;
        }
        aril_clear_error();
        CHECK_MSG(aril__live_blocks() == before, "%lld blocks more after allocation %lld failed",
                  (long long)(aril__live_blocks() - before), (long long)n);
    }
    CHECK(failures > 5);
}

TEST(out_of_memory_in_norms)
{
    fail_everywhere(work_norms);
}

TEST(out_of_memory_in_attention)
{
    fail_everywhere(work_attention);
}

TEST(out_of_memory_in_lstm)
{
    fail_everywhere(work_lstm);
}

TEST(softmax_propagates_nan)
{
    ARIL_SCOPE;
    static const aril_dtype dtypes[] = { ARIL_F16, ARIL_BF16, ARIL_F32, ARIL_F64 };
    float values[64];
    for (int i = 0; i < 64; i++) values[i] = i == 37 ? NAN : (float)(i % 7);
    aril_tensor *x = aril_from(values, ARIL_SHAPE(2, 32), ARIL_F32, test_device());
    for (int k = 0; k < 4; k++) {
        for (int log = 0; log < 2; log++) {
            aril_tensor *t = aril_cast(x, dtypes[k]);
            aril_tensor *y = aril_cast(log ? aril_log_softmax(t, 1) : aril_softmax(t, 1), ARIL_F64);
            const double *v = aril_data(y);
            CHECK(v);
            for (int i = 0; i < 64; i++)
                CHECK_MSG(!isnan(v[i]) == (i < 32), "%s: element %d is %g",
                          aril_dtype_name(dtypes[k]), i, v[i]);
        }
    }
}

/* ---- gradients of norms over rows ---- */

typedef aril_tensor *norm_fn(aril_tensor *x, aril_tensor *weight, aril_tensor *bias);

static aril_tensor *by_layer(aril_tensor *x, aril_tensor *weight, aril_tensor *bias)
{
    return aril_layer_norm(x, weight, bias, ARIL_SHAPE(-1), (aril_norm_opts){ 0 });
}

static aril_tensor *by_rms(aril_tensor *x, aril_tensor *weight, aril_tensor *bias)
{
    return aril_add(aril_rms_norm(x, weight, ARIL_SHAPE(-1), (aril_norm_opts){ 0 }), bias);
}

static aril_tensor *by_group(aril_tensor *x, aril_tensor *weight, aril_tensor *bias)
{
    return aril_group_norm(x, weight, bias, 2, (aril_norm_opts){ 0 });
}

/* The kernel against its decomposition into ops, which computes recorded gradients. */
static void check_norm_gradient(norm_fn *norm, int64_t rows, int64_t channels, aril_dtype dtype)
{
    ARIL_SCOPE;
    aril_tensor *in[3] = { make(ARIL_SHAPE(rows, channels), dtype, 1),
                           make(ARIL_SHAPE(channels), dtype, 2),
                           make(ARIL_SHAPE(channels), dtype, 3) };
    for (int i = 0; i < 3; i++) aril_set_requires_grad(in[i], true);
    aril_tensor *y = norm(in[0], in[1], in[2]), *got[3], *want[3];
    aril_tensor *loss = aril_sum(aril_mul(y, make(ARIL_SHAPE(rows, channels), dtype, 4)), ARIL_ALL);
    aril_list inputs = { 3, in };
    CHECK_INT(aril_gradients(loss, inputs, want, (aril_grad_opts){ .create_graph = true }), 0);
    CHECK_INT(aril_gradients(loss, inputs, got, (aril_grad_opts){ 0 }), 0);
    for (int i = 0; i < 3; i++)
        CHECK_NEAR(worst(got[i], want[i]), 0, dtype == ARIL_F64 ? 1e-11 : 1e-3);
}

TEST(norm_gradients_of_many_rows)
{
    norm_fn *const norms[] = { by_layer, by_rms, by_group };
    const int64_t rows[] = { 1, 7, 8, 32, 300 }, channels[] = { 2, 16, 130 };
    for (int n = 0; n < 3; n++)
        for (int r = 0; r < 5; r++)
            for (int c = 0; c < 3 && !test_failed(); c++) {
                check_norm_gradient(norms[n], rows[r], channels[c], ARIL_F64);
                check_norm_gradient(norms[n], rows[r], channels[c], ARIL_F32);
            }
    CHECK(aril_ok());
}
