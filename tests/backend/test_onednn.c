/* oneDNN rows: calls they accept and decline, random calls against the reference, packed weights,
 * threads that share primitives, out of memory. */
#include "aril/aril.h"
#include "core/cpu.h"
#include "core/derived.h"
#include "core/error.h"
#include "core/memory.h"
#include "ops/table/apply.h"
#include "ops/linalg/matmul.h"
#include "ops/table/plans.h"
#include "ops/norm/norm.h"
#include "ops/vision/pool.h"
#include "ops/sequence/rnn_seq.h"
#include "ops/table/rows.h"
#include "ops/norm/softmax.h"
#include "ops/shape/copy.h"
#include "ops/vision/slide.h"
#include "support/compare.h"
#include "support/test.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#if ARIL_HAVE_ONEDNN

#include "backend/onednn/rows.h"

/* ---- calls ---- */

/* One call of an op, with results, as a kernel sees it. */
typedef struct call {
    aril__run run;
    aril_tensor *in[8], *out[ARIL__MAX_OUT];
    char attrs[256];
} call;

static uint32_t state = 1;

/* 0 .. n - 1 */
static int64_t any(int64_t n)
{
    state = state * 1664525u + 1013904223u;
    return (int64_t)((state >> 8) % (uint32_t)n);
}

static aril_tensor *of_shape(int ndim, const int64_t *dim, aril_dtype dtype)
{
    aril_shape s = { .ndim = ndim };
    memcpy(s.dim, dim, (size_t)ndim * sizeof *dim);
    return aril_cast(aril_randn(s, ARIL_F32, aril_cpu()), dtype);
}

static aril_tensor *shaped(aril_shape s, aril_dtype dtype)
{
    return of_shape(s.ndim, s.dim, dtype);
}

/* Applies the op, to get results of the right shape. False with a test failure. */
static bool fill(call *c, const aril__op *op, int n_in, const void *attrs)
{
    if (attrs) memcpy(c->attrs, attrs, op->attr_size);
    if (aril__apply(op, n_in, c->in, attrs ? c->attrs : NULL, c->out) < 0) {
        test_fail(__FILE__, __LINE__, "%s: %s", op->name, aril_error());
        aril_clear_error();
        return false;
    }
    c->run = (aril__run){ .op = op,
                          .attrs = attrs ? c->attrs : NULL,
                          .n_in = n_in,
                          .n_out = op->n_out,
                          .in = c->in,
                          .out = c->out,
                          .type = (aril_dtype)c->in[0]->dtype,
                          .device = aril__cpu_device };
    return true;
}

/* The op's oneDNN row for a dtype; NULL: none. */
static const aril__row *row_of(const aril__op *op, aril_dtype type)
{
    const aril__row *rows[16];
    int n = aril__rows_of(ARIL__CPU, op, 16, rows, NULL);
    for (int i = 0; i < n && i < 16; i++)
        if (strncmp(rows[i]->name, "onednn_", 7) == 0 && rows[i]->dtypes >> type & 1)
            return rows[i];
    return NULL;
}

/* The forced row index of the oneDNN row: the number of rows before it that accept the call. */
static int position_of(const call *c, const aril__row *row)
{
    const aril__row *rows[16];
    int n = aril__rows_of(ARIL__CPU, c->run.op, 16, rows, NULL), position = 0;
    for (int i = 0; i < n && rows[i] != row; i++) {
        aril__plan plan = { 0 };
        if (!(rows[i]->dtypes >> c->run.type & 1)) continue;
        if (rows[i]->prepare && rows[i]->prepare(&c->run, &plan)) continue;
        if (rows[i]->destroy && plan.prepared) rows[i]->destroy(plan.prepared);
        position++;
    }
    return position;
}

/* Why the row declines; NULL: it accepts the call. */
static const char *why_not(const call *c, const aril__row *row)
{
    aril__plan plan = { 0 };
    int forced = aril__force_row;
    aril__force_row = 0; /* also accept calls that other rows run faster */
    const char *why = row->prepare(&c->run, &plan);
    aril__force_row = forced;
    if (!why && row->destroy) row->destroy(plan.prepared);
    return why;
}

static double tolerance(aril_dtype t)
{
    return t == ARIL_BF16 ? 0.02 : t == ARIL_F16 ? 4e-3 : 3e-5;
}

/* Compares the row with the reference; false when it declined. */
static bool agrees(call *c, const aril__row *row)
{
    aril_tensor *got[ARIL__MAX_OUT], *want[ARIL__MAX_OUT];
    const char *why = why_not(c, row);
    if (why) return false;
    aril__force_row = 0;
    int position = position_of(c, row);
    aril__force_row = position;
    aril_status s = aril__apply(c->run.op, c->run.n_in, c->in, c->run.attrs, got);
    aril__force_row = ARIL__FORCE_REFERENCE;
    if (s == ARIL_OK) s = aril__apply(c->run.op, c->run.n_in, c->in, c->run.attrs, want);
    aril__force_row = -1;
    if (s < 0) {
        test_fail(__FILE__, __LINE__, "%s: %s", c->run.op->name, aril_error());
        aril_clear_error();
        return true;
    }
    for (int i = 0; i < c->run.n_out; i++) {
        if (ARIL__IS_WRITE(c->run.op->out[i]) || !got[i] || got[i]->numel == 0) continue;
        double tol = tolerance(c->run.type), size = 1;
        if (got[i]->dtype == ARIL_I64)
            tol = 0;
        else
            size = aril_item(aril_cast(aril_amax(aril_abs(want[i]), ARIL_ALL), ARIL_F64));
        char *bad =
            test_difference(got[i], want[i], tol, tol * (isfinite(size) && size > 1 ? size : 1));
        if (bad) {
            char a[ARIL__SHAPE_TEXT], b[ARIL__SHAPE_TEXT] = "-";
            if (c->run.n_in > 1 && c->in[1]) aril__text(b, c->in[1]);
            test_fail(__FILE__, __LINE__, "%s (%s, %s, %s), result %d: %s", row->name,
                      aril__dtypes[c->run.type].name, aril__text(a, c->in[0]), b, i, bad);
        }
    }
    return true;
}

/* ---- declined calls, with the reason ---- */

static void declines(call *c, const char *reason)
{
    const aril__row *row = row_of(c->run.op, c->run.type);
    CHECK_MSG(row, "no row by oneDNN for %s", c->run.op->name);
    const char *why = why_not(c, row);
    CHECK_MSG(why ? reason && strstr(why, reason) : !reason, "%s: %s, expected %s", row->name,
              why ? why : "taken", reason ? reason : "that it is taken");
    if (!why) agrees(c, row);
}

static bool has_bf16(void)
{
    return aril__cpu() >= ARIL__CPU_AVX512;
}

TEST(products_run_on_onednn)
{
    aril_dtype types[2] = { ARIL_F32, ARIL_BF16 };
    for (int t = 0; t < 1 + has_bf16(); t++) {
        ARIL_SCOPE;
        aril_dtype d = types[t];
        call c = { .in = { shaped(ARIL_SHAPE(40, 30), d), shaped(ARIL_SHAPE(30, 20), d) } };
        if (fill(&c, &aril__op_matmul, 2, NULL)) declines(&c, NULL);
        c.in[0] = aril_transpose(shaped(ARIL_SHAPE(30, 40), d), 0, 1);
        c.in[1] = aril_transpose(shaped(ARIL_SHAPE(20, 30), d), 0, 1);
        if (fill(&c, &aril__op_matmul, 2, NULL)) declines(&c, NULL);
        c.in[0] = aril_transpose(shaped(ARIL_SHAPE(3, 33, 4, 16), d), 1, 2);
        c.in[1] = shaped(ARIL_SHAPE(3, 4, 16, 17), d);
        if (fill(&c, &aril__op_matmul, 2, NULL)) declines(&c, NULL);
        c.in[0] = aril_slice(shaped(ARIL_SHAPE(40, 60), d), 1, 0, 60, 2);
        c.in[1] = shaped(ARIL_SHAPE(30, 20), d);
        if (fill(&c, &aril__op_matmul, 2, NULL)) declines(&c, "neither rows nor columns");
        struct linear_attrs a = { { ARIL_RELU } };
        c.in[0] = shaped(ARIL_SHAPE(7, 5, 24), d);
        c.in[1] = shaped(ARIL_SHAPE(48, 24), d);
        c.in[2] = shaped(ARIL_SHAPE(48), d);
        if (fill(&c, &aril__op_linear, 3, &a)) declines(&c, NULL);
        c.in[2] = aril_slice(shaped(ARIL_SHAPE(96), d), 0, 0, 96, 2);
        if (fill(&c, &aril__op_linear, 3, &a)) declines(&c, "a bias with gaps");
        c.in[0] = shaped(ARIL_SHAPE(7, 5, 24), d);
        c.in[1] = shaped(ARIL_SHAPE(7, 5, 16), d);
        if (fill(&c, &aril__op_outer_sum, 2, NULL)) declines(&c, NULL);
    }
}

/* NaN and infinities through the activations of a layer. */
TEST(activations_of_nan_and_infinity)
{
    static const float odd[8] = { NAN, INFINITY, -INFINITY, 7, -3, 0.5f, -0.5f, 0 };
    aril_dtype types[2] = { ARIL_F32, ARIL_BF16 };
    for (int t = 0; t < 1 + has_bf16(); t++)
        for (int act = 0; act <= ARIL_TANH && !test_failed(); act++) {
            ARIL_SCOPE;
            struct linear_attrs a = { { act } };
            call c = { .in = { aril_cast(aril_from(odd, ARIL_SHAPE(8, 1), ARIL_F32, aril_cpu()),
                                         types[t]),
                               aril_full(ARIL_SHAPE(20, 1), 1, types[t], aril_cpu()) } };
            if (fill(&c, &aril__op_linear, 3, &a)) declines(&c, NULL);
        }
}

static struct pool_attrs windows(int64_t kernel, int64_t stride, int64_t pad)
{
    return (struct pool_attrs){ .kernel = { kernel, kernel, kernel },
                                .stride = { stride, stride, stride },
                                .pad = { pad, pad, pad, pad, pad, pad },
                                .dilation = { 1, 1, 1 },
                                .include_pad = { 1 } };
}

TEST(pooling_runs_on_onednn)
{
    for (int last = 0; last < 2; last++) {
        ARIL_SCOPE;
        aril_tensor *x = shaped(ARIL_SHAPE(3, 16, 14, 14), ARIL_F32);
        if (last) x = aril_channels_last(x);
        call c = { .in = { x } };
        struct pool_attrs a = windows(3, 2, 1);
        if (fill(&c, &aril__op_max_pool, 1, &a)) declines(&c, NULL);
        if (fill(&c, &aril__op_avg_pool, 1, &a)) declines(&c, NULL);
        call g = { .in = { c.out[0], x } };
        if (fill(&g, &aril__op_avg_pool_grad, 2, &a)) declines(&g, NULL);
        a.include_pad[0] = 0;
        if (fill(&c, &aril__op_avg_pool, 1, &a)) declines(&c, NULL);
        a.divisor[0] = 7;
        if (fill(&c, &aril__op_avg_pool, 1, &a)) declines(&c, "a custom divisor");
        a = windows(2, 3, 0);
        a.ceil[0] = 1;
        if (fill(&c, &aril__op_avg_pool, 1, &a)) declines(&c, NULL);
        a = windows(3, 2, 0);
        a.ceil[0] = 1;
        if (fill(&c, &aril__op_avg_pool, 1, &a)) declines(&c, "extends past");
        if (fill(&c, &aril__op_max_pool, 1, &a)) declines(&c, NULL);
        a = windows(2, 2, 0);
        a.dilation[0] = 2;
        if (fill(&c, &aril__op_max_pool, 1, &a)) declines(&c, "dilation");
        a.size[0] = a.size[1] = 7;
        if (fill(&c, &aril__op_adaptive_avg_pool, 1, &a)) declines(&c, NULL);
        a.size[1] = 5;
        if (fill(&c, &aril__op_adaptive_avg_pool, 1, &a)) declines(&c, "different sizes");
    }
}

/* Below AVX-512, oneDNN pools contiguous images one element at a time. */
TEST(contiguous_pooling_without_avx512_is_left_to_aril)
{
    ARIL_SCOPE;
    struct pool_attrs a = windows(3, 2, 1);
    const aril__op *op[] = { &aril__op_max_pool, &aril__op_avg_pool };
    for (int i = 0; i < 2; i++)
        for (int last = 0; last < 2; last++) {
            aril_tensor *x = shaped(ARIL_SHAPE(3, 8, 14, 14), ARIL_F32);
            call c = { .in = { last ? aril_channels_last(x) : x } };
            if (!fill(&c, op[i], 1, &a)) return;
            aril__plan plan = { 0 };
            const aril__row *row = row_of(op[i], ARIL_F32);
            const char *why = row->prepare(&c.run, &plan);
            CHECK_MSG(!why == (last || has_bf16()), "%s: %s", row->name, why ? why : "taken");
            if (!why) row->destroy(plan.prepared);
        }
}

/* oneDNN skips NaN, and starts at the lowest finite number. */
TEST(max_pool_of_nan_and_infinity)
{
    for (int last = 0; last < 2; last++) {
        ARIL_SCOPE;
        aril_tensor *x = shaped(ARIL_SHAPE(2, 16, 6, 6), ARIL_F32);
        float v[2 * 16 * 36];
        aril_read(x, v);
        for (int i = 0; i < 36; i++) v[i] = -INFINITY;
        for (int i = 36; i < 2 * 16 * 36; i += 7) v[i] = NAN;
        call c = { .in = { aril_from(v, ARIL_SHAPE(2, 16, 6, 6), ARIL_F32, aril_cpu()) } };
        if (last) c.in[0] = aril_channels_last(c.in[0]);
        struct pool_attrs a = windows(2, 2, 0);
        if (fill(&c, &aril__op_max_pool, 1, &a)) declines(&c, NULL);
    }
}

TEST(norms_and_softmax_run_on_onednn)
{
    ARIL_SCOPE;
    struct softmax_attrs axis = { { 1 } };
    call c = { .in = { shaped(ARIL_SHAPE(20, 33), ARIL_F32) } };
    if (fill(&c, &aril__op_softmax, 1, &axis)) declines(&c, NULL);
    if (fill(&c, &aril__op_log_softmax, 1, &axis)) declines(&c, NULL);
    call g = { .in = { shaped(ARIL_SHAPE(20, 33), ARIL_F32), c.out[0] } };
    bool wide = has_bf16(); /* oneDNN's gradients of softmax need AVX-512 */
    if (wide && fill(&g, &aril__op_log_softmax_grad, 2, &axis)) declines(&g, NULL);
    if (fill(&c, &aril__op_softmax, 1, &axis)) g.in[1] = c.out[0];
    if (wide && fill(&g, &aril__op_softmax_grad, 2, &axis)) declines(&g, NULL);

    struct layer_norm_attrs l = { { 1 }, { 1e-5 } };
    call n = { .in = { c.in[0], shaped(ARIL_SHAPE(33), ARIL_F32),
                       shaped(ARIL_SHAPE(33), ARIL_F32) } };
    if (fill(&n, &aril__op_layer_norm, 3, &l)) declines(&n, NULL);
    call b = { .in = { g.in[0], n.in[0], n.in[1], n.out[1], n.out[2] } };
    if (fill(&b, &aril__op_layer_norm_grad, 5, &l)) declines(&b, NULL);
    call low = { .in = { aril_cast(n.in[0], ARIL_BF16), aril_cast(n.in[1], ARIL_BF16),
                         aril_cast(n.in[2], ARIL_BF16) } };
    if (has_bf16() && fill(&low, &aril__op_layer_norm, 3, &l)) declines(&low, NULL);

    aril_tensor *x = shaped(ARIL_SHAPE(4, 16, 5, 5), ARIL_F32),
                *w = shaped(ARIL_SHAPE(16), ARIL_F32);
    for (int last = 0; last < 2; last++) {
        aril_tensor *z = last ? aril_channels_last(x) : x;
        struct batch_norm_eval_attrs e = { { 1e-5 }, { 0 } };
        call v = { .in = { z, w, w, w, aril_square(w), NULL } };
        if (fill(&v, &aril__op_batch_norm_eval, 6, &e)) declines(&v, NULL);
        v.in[5] = z;
        if (fill(&v, &aril__op_batch_norm_eval, 6, &e)) declines(&v, "a residual");
        v.in[5] = NULL;
        e.activation[0] = ARIL_TANH;
        if (fill(&v, &aril__op_batch_norm_eval, 6, &e)) declines(&v, "an activation");
        struct batch_norm_attrs a = { { 0.1 }, { 1e-5 }, { 0 }, { 0 } };
        call t = { .in = { z, w, w } };
        if (fill(&t, &aril__op_batch_norm, 7, &a)) declines(&t, NULL);
        struct batch_norm_grad_attrs ga = { { 0 }, { 0 } };
        call k = { .in = { z, z, w, t.out[1], t.out[2] } };
        if (fill(&k, &aril__op_batch_norm_grad, 7, &ga)) declines(&k, NULL);
    }
}

/* ---- operands in different memory orders ---- */

/* Contiguous, channels-last, samples-last, and a slice of an image with more columns. */
enum { ORDERS = 4 };

static aril_tensor *in_order(aril_tensor *x, int order)
{
    switch (order) {
    case 0: return aril_contiguous(x);
    case 1: return aril_channels_last(x);
    case 2:
        return aril_permute(aril_contiguous(
                                aril_permute(x, (aril_axes){ .n = 4, .axis = { 2, 3, 1, 0 } })),
                            (aril_axes){ .n = 4, .axis = { 3, 2, 0, 1 } });
    default: return aril_slice(aril_cat(ARIL_LIST(x, x), 3), 3, 0, x->dim[3], 1);
    }
}

/* Writes the result of the forced row into a destination that has memory already. */
static void writes_to(call *c, aril_tensor *dest)
{
    const aril__row *row = row_of(c->run.op, c->run.type);
    aril_tensor *want = aril_copy(c->out[0]);
    c->out[0] = dest;
    const char *why = row ? why_not(c, row) : "no row";
    CHECK_MSG(!why, "%s: %s", c->run.op->name, why);
    aril__force_row = 0;
    aril__force_row = position_of(c, row);
    aril__apply_to(dest, c->run.op, c->run.n_in, c->in, c->run.attrs);
    aril__force_row = -1;
    char *bad = test_difference(dest, want, tolerance(c->run.type), tolerance(c->run.type));
    CHECK_MSG(!bad, "%s: %s", c->run.op->name, bad);
}

static void mixed_forward(aril_tensor *x, int to)
{
    struct pool_attrs a = windows(3, 2, 1);
    struct {
        int64_t mode, align, smooth, size[3];
        double scale[3];
    } twice = { .mode = ARIL_NEAREST, .size = { 20, 24 } };
    struct local_response_norm_attrs l = { { 5 }, { 1e-4 }, { 0.75 }, { 1 } };
    a.size[0] = a.size[1] = 2;
    const aril__op *op[] = { &aril__op_max_pool, &aril__op_avg_pool, &aril__op_adaptive_avg_pool,
                             &aril__op_interpolate, &aril__op_local_response_norm };
    const void *attrs[] = { &a, &a, &a, &twice, &l };
    for (int i = 0; i < 5; i++) {
        call c = { .in = { x } };
        if (!fill(&c, op[i], 1, attrs[i])) continue;
        declines(&c, NULL);
        if (c.run.n_out == 1) writes_to(&c, in_order(aril_zeros_like(c.out[0]), to));
        call g = { .in = { in_order(c.out[0], to), x } };
        if (i == 1 && fill(&g, &aril__op_avg_pool_grad, 2, &a)) declines(&g, NULL);
        if (i == 2 && fill(&g, &aril__op_adaptive_avg_pool_grad, 2, &a)) declines(&g, NULL);
        if (i == 3 && fill(&g, &aril__op_interpolate_grad, 2, &twice)) declines(&g, NULL);
    }
}

static aril_tensor *with_gaps(aril_tensor *v)
{
    return aril_slice(aril_repeat_interleave(v, 2, 0), 0, 0, 2 * v->dim[0], 2);
}

/* Images in two orders, parameters and running statistics with gaps. */
static void mixed_batch_norm(aril_tensor *x, int to)
{
    aril_tensor *w = with_gaps(shaped(ARIL_SHAPE(x->dim[1]), ARIL_F32));
    struct batch_norm_eval_attrs e = { { 1e-5 }, { 0 } };
    call v = { .in = { x, w, w, w, aril_square(w), NULL } };
    if (fill(&v, &aril__op_batch_norm_eval, 6, &e)) {
        declines(&v, NULL);
        writes_to(&v, in_order(aril_zeros_like(x), to));
    }
    struct batch_norm_attrs a = { { 0.1 }, { 1e-5 }, { 0 }, { 0 } };
    call t = { .in = { x, w, w, with_gaps(aril_zeros(ARIL_SHAPE(x->dim[1]), ARIL_F32, aril_cpu())),
                       NULL, NULL, NULL } };
    if (!fill(&t, &aril__op_batch_norm, 7, &a)) return;
    aril_tensor *once = aril_copy(t.in[3]); /* the running mean after one batch */
    aril_zero_(t.in[3]);
    writes_to(&t, in_order(aril_zeros_like(x), to));
    char *bad = test_difference(t.in[3], once, 1e-5, 1e-6);
    CHECK_MSG(!bad, "running mean: %s", bad);
    struct batch_norm_grad_attrs ga = { { 0 }, { 0 } };
    call k = { .in = { x, in_order(aril_add(x, aril_full_like(x, 0.5)), to), w, with_gaps(t.out[1]),
                       with_gaps(t.out[2]) } };
    if (fill(&k, &aril__op_batch_norm_grad, 7, &ga)) declines(&k, NULL);
}

TEST(operands_of_any_order_run_on_onednn)
{
    for (int from = 0; from < ORDERS; from++)
        for (int to = 0; to < ORDERS && !test_failed(); to++) {
            ARIL_SCOPE;
            aril_tensor *x = in_order(shaped(ARIL_SHAPE(3, 16, 10, 12), ARIL_F32), from);
            mixed_forward(x, to);
            mixed_batch_norm(x, to);
            CHECK_MSG(aril_ok(), "orders %d and %d: %s", from, to, aril_error());
        }
}

/* Copies preserve all bits, whatever their meaning. */
TEST(copies_keep_every_bit)
{
    ARIL_SCOPE;
    static uint16_t bits[65536];
    for (int i = 0; i < 65536; i++) bits[i] = (uint16_t)i;
    /* As f32 the same in pairs: [256,128]. */
    aril_dtype types[2] = { ARIL_BF16, ARIL_F32 };
    for (int t = 0; t < 2; t++) {
        int64_t columns = t ? 128 : 256;
        aril_tensor *x = aril_from(bits, ARIL_SHAPE(256, columns), types[t], aril_cpu());
        call c = { .in = { aril_transpose(x, 0, 1),
                           aril_empty(ARIL_SHAPE(columns, 256), types[t], aril_cpu()) } };
        if (!fill(&c, &aril__op_copy, 2, NULL)) return;
        const aril__row *row = row_of(&aril__op_copy, types[t]);
        CHECK(row);
        if (why_not(&c, row)) continue;
        aril__force_row = 0;
        int position = position_of(&c, row);
        aril__force_row = position;
        aril_copy_(c.in[1], c.in[0]);
        aril__force_row = -1;
        const uint16_t *got = aril__ptr(c.in[1]);
        for (int i = 0; i < 65536; i++) {
            int64_t at = t ? i / 2 : i, from = at % 256 * columns + at / 256;
            CHECK_INT(got[i], bits[t ? 2 * from + i % 2 : from]);
        }
    }
    if (!aril__cpu_has(ARIL__CPU_BF16)) return;
    call c = { .in = { aril_from(bits, ARIL_SHAPE(65536), ARIL_BF16, aril_cpu()) } };
    int64_t to[1] = { ARIL_F32 };
    if (!fill(&c, &aril__op_cast, 1, to)) return;
    const aril__row *row = row_of(&aril__op_cast, ARIL_BF16);
    CHECK(row && !why_not(&c, row));
    aril__force_row = 0;
    int position = position_of(&c, row);
    aril__force_row = position;
    aril_tensor *wide = aril_cast(c.in[0], ARIL_F32);
    aril__force_row = -1;
    const uint32_t *got = aril__ptr(wide);
    for (int i = 0; i < 65536; i++) CHECK_INT(got[i], (uint32_t)i << 16);
}

TEST(sequences_run_on_onednn)
{
    ARIL_SCOPE;
    struct rnn_seq_attrs a = { .keep = { 0 } };
    call c = { .in = { [RNN_X] = shaped(ARIL_SHAPE(5, 3, 7), ARIL_F32),
                       [RNN_H0] = shaped(ARIL_SHAPE(1, 3, 16), ARIL_F32),
                       [RNN_W_IH] = shaped(ARIL_SHAPE(64, 7), ARIL_F32),
                       [RNN_W_HH] = shaped(ARIL_SHAPE(64, 16), ARIL_F32),
                       [RNN_B_HH] = shaped(ARIL_SHAPE(64), ARIL_F32) } };
    if (fill(&c, &aril__op_lstm_seq, RNN_INPUTS, &a)) declines(&c, NULL);
    a.keep[0] = 1;
    if (fill(&c, &aril__op_lstm_seq, RNN_INPUTS, &a)) declines(&c, "gates");
    a.keep[0] = 0;
    int64_t lengths[3] = { 5, 3, 1 };
    c.in[RNN_LEN] = aril_from(lengths, ARIL_SHAPE(3), ARIL_I64, aril_cpu());
    if (fill(&c, &aril__op_lstm_seq, RNN_INPUTS, &a)) declines(&c, "different lengths");
}

/* ---- documentation ---- */

/* docs/cpu.md lists exactly the ops that have a oneDNN row. */
TEST(documentation_lists_the_rows)
{
    char path[1024];
    const char *here = strstr(__FILE__, "tests/backend/test_onednn.c");
    CHECK(here && sizeof path > strlen(__FILE__));
    int lead = (int)(here - __FILE__);
    snprintf(path, sizeof path, "%.*sdocs/cpu.md", lead, __FILE__);
    FILE *f = fopen(path, "r");
    if (!f) {
        test_skip("%s is not there", path);
        return;
    }
    static char text[64 * 1024];
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
    char *section = strstr(text, "## oneDNN"),
         *end = section ? strstr(section, "\n\"Behind\"") : NULL;
    CHECK(section && end);
    *end = 0;
    for (int i = 0; i < aril__n_ops; i++) {
        const aril__op *op = aril__ops[i];
        char name[80];
        snprintf(name, sizeof name, "`%s`", op->name);
        bool row = row_of(op, ARIL_F32) || row_of(op, ARIL_BF16);
        CHECK_MSG(row == (strstr(section, name) != NULL), "docs/cpu.md %s %s, which has %s row",
                  row ? "lacks" : "lists", op->name, row ? "a" : "no");
    }
}

/* ---- random calls ---- */

static aril_tensor *in_some_order(aril_tensor *x)
{
    switch (any(4)) {
    case 0: return aril_channels_last(x);
    case 1: return aril_transpose(aril_contiguous(aril_transpose(x, 0, 1)), 0, 1);
    default: return x;
    }
}

static bool random_product(call *c, aril_dtype d)
{
    int64_t m = 1 + any(40), n = 1 + any(40), k = 1 + any(40), b = 1 + any(4);
    int kind = (int)any(4);
    if (any(4) == 0) m += 200, k += 100;
    if (kind == 3) {
        c->in[0] = shaped(ARIL_SHAPE(k, m), d);
        c->in[1] = shaped(ARIL_SHAPE(k, n), d);
        return fill(c, &aril__op_outer_sum, 2, NULL);
    }
    if (kind == 2) {
        struct linear_attrs a = { { any(ARIL_TANH + 1) } };
        c->in[0] = any(2) ? shaped(ARIL_SHAPE(b, m, k), d)
                          : aril_transpose(shaped(ARIL_SHAPE(k, m), d), 0, 1);
        c->in[1] = any(3) ? shaped(ARIL_SHAPE(n, k), d)
                          : aril_transpose(shaped(ARIL_SHAPE(k, n), d), 0, 1);
        c->in[2] = any(2) ? shaped(ARIL_SHAPE(n), d) : NULL;
        return fill(c, &aril__op_linear, 3, &a);
    }
    aril_shape sa = kind ? ARIL_SHAPE(b, m, k) : ARIL_SHAPE(m, k);
    aril_shape sb = kind && any(2) ? ARIL_SHAPE(b, k, n) : ARIL_SHAPE(k, n);
    c->in[0] = shaped(sa, d);
    c->in[1] = shaped(sb, d);
    if (any(2))
        c->in[1] = aril_transpose(aril_contiguous(aril_transpose(c->in[1], -2, -1)), -2, -1);
    if (any(2))
        c->in[0] = aril_transpose(aril_contiguous(aril_transpose(c->in[0], -2, -1)), -2, -1);
    return fill(c, &aril__op_matmul, 2, NULL);
}

static bool random_pool(call *c, aril_dtype d)
{
    int n = 1 + (int)any(3);
    int64_t dim[5] = { 1 + any(4), 1 + any(20), 4 + any(12), 4 + any(12), 4 + any(6) };
    struct pool_attrs a = { .dilation = { 1, 1, 1 },
                            .include_pad = { any(2) },
                            .ceil = { any(2) },
                            .stride = { 1, 1, 1 },
                            .kernel = { 1, 1, 1 } };
    bool even = any(2);
    for (int i = 0; i < n; i++) {
        a.kernel[i] = 1 + any(4);
        a.stride[i] = 1 + any(3);
        a.pad[2 * i] = any(a.kernel[i] / 2 + 1);
        a.pad[2 * i + 1] = any(a.kernel[i] / 2 + 1);
        a.size[i] = even ? 2 : 1 + any(3);
        dim[2 + i] += even && dim[2 + i] % 2;
    }
    c->in[0] = in_some_order(of_shape(2 + n, dim, d));
    const aril__op *op[3] = { &aril__op_max_pool, &aril__op_avg_pool, &aril__op_adaptive_avg_pool };
    int64_t which = any(3);
    if (!fill(c, op[which], 1, &a) || which == 0 || any(2)) return !test_failed();
    c->in[1] = c->in[0];
    c->in[0] = in_some_order(c->out[0]);
    return fill(c, which == 1 ? &aril__op_avg_pool_grad : &aril__op_adaptive_avg_pool_grad, 2, &a);
}

static bool random_softmax(call *c, aril_dtype d)
{
    int64_t dim[3] = { 1 + any(20), 1 + any(70), 1 + any(20) };
    int n = 1 + (int)any(3);
    struct softmax_attrs a = { { any(n) } };
    bool log = any(2);
    c->in[0] = of_shape(n, dim, d);
    if (!fill(c, log ? &aril__op_log_softmax : &aril__op_softmax, 1, &a) || any(2))
        return !test_failed();
    c->in[1] = c->out[0];
    c->in[0] = of_shape(n, dim, d);
    return fill(c, log ? &aril__op_log_softmax_grad : &aril__op_softmax_grad, 2, &a);
}

static bool random_layer_norm(call *c, aril_dtype d)
{
    int64_t dim[3] = { 1 + any(9), 1 + any(20), 2 + any(100) };
    struct layer_norm_attrs a = { { 1 + any(2) }, { 1e-5 } };
    int n = (int)a.axes[0];
    aril_dtype of = any(2) ? d : ARIL_F32;
    aril_tensor *x = of_shape(3, dim, d);
    c->in[0] = x;
    c->in[1] = any(2) ? of_shape(n, dim + 3 - n, of) : NULL;
    c->in[2] = any(2) ? of_shape(n, dim + 3 - n, of) : NULL;
    if (!fill(c, &aril__op_layer_norm, 3, &a) || any(2)) return !test_failed();
    call g = { .in = { of_shape(3, dim, d), x, c->in[1], c->out[1], c->out[2] } };
    *c = g;
    return fill(c, &aril__op_layer_norm_grad, 5, &a);
}

static bool random_batch_norm(call *c, aril_dtype d)
{
    int64_t dim[5] = { 2 + any(4), 1 + any(40), 1 + any(9), 1 + any(9), 1 + any(3) };
    int n = 2 + (int)any(4);
    aril_dtype of = any(2) ? d : ARIL_F32;
    aril_tensor *x = of_shape(n, dim, d), *w = of_shape(1, dim + 1, of);
    if (n > 2) x = in_some_order(x);
    aril_tensor *weight = any(2) ? w : NULL, *bias = any(2) ? of_shape(1, dim + 1, of) : NULL;
    if (any(2)) {
        struct batch_norm_eval_attrs e = { { 1e-5 }, { 0 } };
        call v = { .in = { x, weight, bias, w, aril_square(w), NULL } };
        *c = v;
        return fill(c, &aril__op_batch_norm_eval, 6, &e);
    }
    struct batch_norm_attrs a = { { 0.1 }, { 1e-5 }, { 0 }, { 0 } };
    call t = { .in = { x, weight, bias } };
    *c = t;
    if (!fill(c, &aril__op_batch_norm, 7, &a) || any(2)) return !test_failed();
    struct batch_norm_grad_attrs ga = { { 0 }, { 0 } };
    aril_tensor *g = aril_add(x, aril_full_like(x, 0.5));
    call k = { .in = { x, n > 2 ? in_some_order(g) : g, weight, c->out[1], c->out[2] } };
    *c = k;
    return fill(c, &aril__op_batch_norm_grad, 7, &ga);
}

static bool random_resampling(call *c, aril_dtype d)
{
    int n = 1 + (int)any(3);
    int64_t dim[5] = { 1 + any(4), 1 + any(20), 1 + any(9), 1 + any(9), 1 + any(5) };
    struct {
        int64_t mode, align, smooth, size[3];
        double scale[3];
    } a = { .mode = any(3) };
    for (int i = 0; i < n; i++) a.size[i] = any(2) ? dim[2 + i] * (1 + any(3)) : 1 + any(12);
    aril_tensor *x = in_some_order(of_shape(2 + n, dim, d));
    c->in[0] = x;
    if (!fill(c, &aril__op_interpolate, 1, &a) || any(2)) return !test_failed();
    c->in[0] = in_some_order(c->out[0]);
    c->in[1] = x;
    return fill(c, &aril__op_interpolate_grad, 2, &a);
}

static bool random_copy(call *c, aril_dtype d)
{
    int64_t dim[4] = { 1 + any(5), 1 + any(40), 1 + any(40), 1 + any(9) };
    c->in[0] = of_shape(4, dim, d);
    if (d != ARIL_F32 && any(2)) {
        int64_t to[1] = { ARIL_F32 };
        c->in[0] = in_some_order(c->in[0]);
        return fill(c, &aril__op_cast, 1, to);
    }
    int axes[4] = { 0, 2, 3, 1 };
    aril_tensor *t = any(2) ? aril_permute(c->in[0], (aril_axes){ .n = 4, .axis = { 0, 2, 3, 1 } })
                            : aril_transpose(c->in[0], (int)any(4), (int)any(4));
    (void)axes;
    c->in[0] = t;
    c->in[1] = aril_empty_like(aril_contiguous(t));
    return fill(c, &aril__op_copy, 2, NULL);
}

static bool random_sequence(call *c, aril_dtype d)
{
    if (d != ARIL_F32) return false;
    const aril__op *op[3] = { &aril__op_rnn_seq, &aril__op_lstm_seq, &aril__op_gru_seq };
    static const int64_t gates[3] = { 1, 4, 3 };
    int64_t k = any(3), t = 1 + any(6), n = 1 + any(9), h = 1 + any(40), g = gates[k];
    int64_t inputs = 1 + any(30);
    struct rnn_seq_attrs a = { .reverse = { any(2) } };
    call s = { .in = { [RNN_X] = shaped(ARIL_SHAPE(t, n, inputs), d),
                       [RNN_H0] = any(2) ? shaped(ARIL_SHAPE(1, n, h), d) : NULL,
                       [RNN_W_IH] = aril_mul_scalar(shaped(ARIL_SHAPE(g * h, inputs), d), 0.2),
                       [RNN_W_HH] = aril_mul_scalar(shaped(ARIL_SHAPE(g * h, h), d), 0.2),
                       [RNN_B_IH] = any(2) ? shaped(ARIL_SHAPE(g * h), d) : NULL,
                       [RNN_B_HH] = any(2) ? shaped(ARIL_SHAPE(g * h), d) : NULL } };
    if (k == 1 && any(2)) s.in[RNN_C0] = shaped(ARIL_SHAPE(1, n, h), d);
    if (any(8) == 0) s.in[0] = aril_div(s.in[0], aril_zeros_like(s.in[0])); /* infinities */
    *c = s;
    return fill(c, op[k], RNN_INPUTS, &a);
}

static bool (*const generators[])(call *c, aril_dtype d) = {
    random_product,    random_pool,       random_softmax, random_layer_norm,
    random_batch_norm, random_resampling, random_copy,    random_sequence,
};

/* Except for recurrent layers, no row uses a kernel that is no faster than plain loops. */
static void refuse_reference(const char *name)
{
    if (strstr(name, "ref")) test_fail(__FILE__, __LINE__, "a row made %s", name);
}

/* ARIL_TEST_SECONDS=60 runs for that long. */
TEST(random_calls_agree_with_the_reference)
{
    const char *text = getenv("ARIL_TEST_SECONDS");
    time_t until = time(NULL) + (text ? atoi(text) : 0);
    enum { N = sizeof generators / sizeof *generators };
    int taken[N][2] = { { 0 } }, calls = 0;
    aril_seed(1);
    for (int round = 0; (round < 60 || time(NULL) < until) && !test_failed(); round++)
        for (int g = 0; g < N && !test_failed(); g++) {
            ARIL_SCOPE;
            aril_dtype d = any(2) ? ARIL_F32 : ARIL_BF16;
            call c = { .in = { NULL } };
            if (!generators[g](&c, d)) continue;
            const aril__row *row = row_of(c.run.op, c.run.type);
            CHECK_MSG(row, "no row by oneDNN for %s", c.run.op->name);
            aril_set_threads((int)any(4) + 1);
            aril__dnn_made = generators[g] == random_sequence ? NULL : refuse_reference;
            taken[g][c.run.type == ARIL_BF16] += agrees(&c, row);
            calls++;
        }
    aril__dnn_made = NULL;
    aril_set_threads(0);
    for (int g = 0; g < N && !test_failed(); g++)
        for (int t = 0; t < 1 + (aril__cpu_has(ARIL__CPU_BF16) && generators[g] != random_sequence);
             t++)
            CHECK_MSG(taken[g][t] * 8 > calls / N / 2,
                      "generator %d, %s: %d of about %d calls taken", g, t ? "bf16" : "f32",
                      taken[g][t], calls / N / 2);
    CHECK(aril_ok());
}

/* ---- packed weights ---- */

/* The index of linear's row among forced rows. */
static int linear_index(aril_tensor *x, aril_tensor *w, aril_tensor *b)
{
    struct linear_attrs a = { { 0 } };
    call c = { .in = { x, w, b } };
    if (!fill(&c, &aril__op_linear, 3, &a)) return -1;
    const aril__row *row = row_of(&aril__op_linear, (aril_dtype)x->dtype);
    if (!row || why_not(&c, row)) return -1;
    aril__force_row = 0;
    int position = position_of(&c, row);
    aril__force_row = -1;
    return position;
}

static aril_tensor *by_row(int row, aril_tensor *x, aril_tensor *w, aril_tensor *b)
{
    aril__force_row = row;
    aril_tensor *y = aril_linear(x, w, b);
    aril__force_row = -1;
    return y;
}

static void packed_weights(aril_dtype d)
{
    ARIL_SCOPE;
    aril_tensor *x = shaped(ARIL_SHAPE(24, 96), d), *w = shaped(ARIL_SHAPE(80, 96), d);
    aril_tensor *b = shaped(ARIL_SHAPE(80), d);
    int row = linear_index(x, w, b);
    CHECK(row >= 0);
    for (int k = 0; k < 3; k++) {
        aril_tensor *y = by_row(row, x, w, b), *want = by_row(1000, x, w, b);
        char *bad = test_difference(y, want, tolerance(d), 20 * tolerance(d));
        CHECK_MSG(!bad, "round %d: %s", k, bad);
        aril__derived *form = atomic_load(&w->storage->derived);
        CHECK(form);
        by_row(row, x, w, b);
        CHECK(atomic_load(&w->storage->derived) == form); /* packed once */
        aril_mul_(w, aril_scalar(-2));                    /* dropped when the weight changes */
        CHECK(atomic_load(&w->storage->derived) == NULL);
    }
    /* A weight that is being trained is not packed: it changes at each step. */
    aril_tensor *p = aril_parameter(aril_copy(w));
    aril_tensor *y = by_row(row, x, p, b), *want = by_row(1000, x, w, b);
    CHECK(atomic_load(&p->storage->derived) == NULL);
    char *bad = test_difference(aril_detach(y), want, tolerance(d), 40 * tolerance(d));
    CHECK_MSG(!bad, "%s", bad);
    aril_release(p);
    CHECK(aril_ok());
}

TEST(weights_are_packed_until_they_change)
{
    packed_weights(ARIL_F32);
    if (has_bf16()) packed_weights(ARIL_BF16);
}

typedef struct sharer {
    aril_tensor *x, *w, *b, *want;
    int row;
    char *bad;
} sharer;

static void *share(void *ctx)
{
    sharer *s = ctx;
    for (int i = 0; i < 20 && !s->bad; i++) {
        ARIL_SCOPE;
        s->bad =
            test_difference_in_bits(by_row(s->row, s->x, s->w, s->b), s->want) ? "differs" : NULL;
    }
    return NULL;
}

TEST(threads_share_primitives_and_packed_weights)
{
    ARIL_SCOPE;
    enum { N = 4 };
    aril_tensor *x = shaped(ARIL_SHAPE(48, 64), ARIL_F32),
                *w = shaped(ARIL_SHAPE(64, 64), ARIL_F32);
    int row = linear_index(x, w, NULL);
    CHECK(row >= 0);
    aril_tensor *want = by_row(row, x, w, NULL);
    aril_mul_(w, aril_scalar(1)); /* to be packed again, by all threads concurrently */
    sharer s[N];
    pthread_t t[N];
    for (int i = 0; i < N; i++) s[i] = (sharer){ x, w, NULL, want, row, NULL };
    for (int i = 0; i < N; i++) CHECK_INT(pthread_create(&t[i], NULL, share, &s[i]), 0);
    for (int i = 0; i < N; i++) pthread_join(t[i], NULL);
    for (int i = 0; i < N; i++) CHECK_MSG(!s[i].bad, "thread %d: %s", i, s[i].bad);
}

/* ---- memory ---- */

/* Every allocation in the first call of a row may fail: it returns an error, or another row is the
 * fallback, and nothing leaks. */
static void runs_out(const call *c, const aril__row *row)
{
    aril__force_row = 0;
    int position = position_of(c, row);
    aril__force_row = -1;
    aril_tensor *want[ARIL__MAX_OUT], *got[ARIL__MAX_OUT];
    aril__force_row = position;
    CHECK_INT(aril__apply(c->run.op, c->run.n_in, c->in, c->run.attrs, want), 0);
    int n = 1;
    for (; n < 500; n++) {
        ARIL_SCOPE;
        aril__plans_outdate(); /* so that the row prepares again */
        aril_fail_allocation(n);
        aril_status s = aril__apply(c->run.op, c->run.n_in, c->in, c->run.attrs, got);
        bool failed = aril_allocation_failed();
        aril_fail_allocation(0);
        if (s < 0)
            CHECK_MSG(aril_error_code() == ARIL_ERR_MEMORY, "%s, allocation %d: %s", row->name, n,
                      aril_error());
        else
            CHECK_MSG(!test_difference(got[0], want[0], 1e-4, 1e-4), "%s, allocation %d: wrong",
                      row->name, n);
        aril_clear_error();
        if (!failed) break;
    }
    aril__force_row = -1;
    CHECK_MSG(n > 2 && n < 500, "%s: %d allocations", row->name, n);
}

TEST(failed_allocations)
{
    aril_seed(2);
    state = 5;
    enum { N = sizeof generators / sizeof *generators };
    for (int g = 0; g < N && !test_failed(); g++)
        for (int k = 0; k < 6 && !test_failed(); k++) {
            ARIL_SCOPE;
            call c = { .in = { NULL } };
            if (!generators[g](&c, ARIL_F32)) continue;
            const aril__row *row = row_of(c.run.op, ARIL_F32);
            if (row && !why_not(&c, row)) runs_out(&c, row);
            aril__force_row = -1;
        }
}

#else

TEST(there_is_no_onednn)
{
    test_skip("built without oneDNN");
}

#endif
