/* Every op of the table on every sample, in every dtype that it supports: kernels against each
 * other and against f64, layouts, unknown sizes, in-place forms, numbers of threads. Set
 * ARIL_TEST_OP=name in the environment to run a single op. */
#include "aril/aril.h"
#include "ops/table/apply.h"
#include "ops/table/rows.h"
#include "ops/shape/copy.h"
#include "support/device.h"
#include "support/run_op.h"
#include "support/test.h"

#include <string.h>

enum { ROWS = 3 }; /* the maximum of kernel rows that accept a call; past them the reference runs */

static struct {
    int samples, combinations, rows, layouts, symbolic, in_place, threads;
} count;

static const aril_dtype dtypes[] = { ARIL_F64, ARIL_F32, ARIL_F16, ARIL_BF16, ARIL_I64,
                                     ARIL_I32, ARIL_I16, ARIL_I8,  ARIL_U64,  ARIL_U32,
                                     ARIL_U16, ARIL_U8,  ARIL_BOOL };

#define FAIL(s, ...) fail_at(__LINE__, s, __VA_ARGS__)

static void fail_at(int line, const test_sample *s, const char *what, aril_dtype dtype,
                    const char *why)
{
    test_fail(__FILE__, line, "%s, %s: %s: %s", s->name, aril_dtype_name(dtype), what, why);
}

/* ---- values, in each dtype, by each kernel ---- */

/* Wraps an integer result to its dtype. */
static void wrap(const aril__op *op, aril_tensor *const *got, aril_tensor **want)
{
    for (int k = 0; k < op->n_out; k++)
        if (!aril_dtype_is_float(aril_dtype_of(want[k])))
            want[k] = aril_cast(want[k], aril_dtype_of(got[k]));
}

/* The dtype whose results are the ground truth for `dtype`; `dtype` itself when there is none.
 * Random numbers in f64 use other bits than those in f32. */
static aril_dtype truth(const test_sample *s, aril_dtype dtype)
{
    if (test_untyped(s)) return dtype;
    if (!aril_dtype_is_float(dtype)) return ARIL_I64;
    if (s->op->flags & RANDOM) return dtype == ARIL_F64 ? ARIL_F64 : ARIL_F32;
    return ARIL_F64;
}

static void check_dtype(const test_sample *s, aril_dtype dtype)
{
    ARIL_SCOPE;
    aril_tensor *in[TEST_INPUTS], *out[TEST_RESULTS], *want[TEST_RESULTS];
    if (!test_sample_inputs(s, dtype, 0, in)) return;
    aril_status status = test_run(s, in, out);
    if (test_refused(status)) return;
    if (status < 0) {
        FAIL(s, "apply", dtype, test_op_error());
        return;
    }
    count.combinations++;
    aril_dtype to = truth(s, dtype);
    if (to != dtype) {
        aril_tensor *wide[TEST_INPUTS];
        bool real = aril_dtype_is_float(dtype);
        test_cast_inputs(s, in, to, wide);
        status = test_run(s, wide, want);
        if (status == ARIL_OK) {
            if (!real) wrap(s->op, out, want);
            char *why =
                test_op_difference(s->op, out, want, real ? test_tolerance(dtype) : 2e-5, false);
            if (why) FAIL(s, real ? "against f64" : "against i64", dtype, why);
        } else if (!test_refused(status)) {
            FAIL(s, "apply in the wide type", dtype, test_op_error());
        }
    }
    /* A test device has one row for each op. */
    for (int row = 0; row <= ROWS && !ARIL__IS_VIEW(s->op->out[0]) && test_on_cpu(); row++) {
        aril_tensor *other[TEST_RESULTS];
        if (row == ROWS && !s->op->ref) break;
        status = test_run_row(s, in, row, other);
        if (status == ARIL_ERR_UNSUPPORTED && !s->op->ref) break;
        count.rows++;
        char *why = status < 0
                        ? (char *)test_op_error()
                        : test_op_difference(s->op, other, out, test_tolerance(dtype), false);
        if (why) FAIL(s, row == ROWS ? "the reference" : "a row", dtype, why);
    }
}

static void check_values(const test_sample *s)
{
    int before = count.combinations;
    bool failed = test_failed(), without_lapack = false;
    count.samples++;
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        bool low = dtypes[i] == ARIL_F16 || dtypes[i] == ARIL_BF16;
        if ((low && s->flags & SAMPLE_NO_LOW) || (test_untyped(s) && i > 0)) continue;
        test_working_on(aril_dtype_name(dtypes[i]), s);
        check_dtype(s, dtypes[i]);
        without_lapack |= strstr(test_op_error(), "without LAPACK") != NULL;
    }
    if (count.combinations == before && !failed && !test_failed() && !without_lapack)
        test_fail(__FILE__, __LINE__, "%s: no dtype is taken: %s", s->name, test_op_error());
}

TEST(values_of_every_op)
{
    test_each_sample(check_values);
}

/* ---- layouts ---- */

enum { TRANSPOSED, STEPPED, REVERSED, EXPANDED, LAYOUTS };
static const char *const layout_name[] = { "transposed", "sliced with a step", "reversed",
                                           "expanded" };

/* The values of t (for EXPANDED: of its first row) in another layout. */
static aril_tensor *laid_out(aril_tensor *t, int layout)
{
    int ndim = aril_ndim(t);
    if (ndim == 0) return t;
    aril_shape shape = aril_shape_of(t);
    switch (layout) {
    case TRANSPOSED: {
        aril_axes axes = { .n = ndim };
        for (int i = 0; i < ndim; i++) axes.axis[i] = ndim - 1 - i;
        return aril_permute(aril_contiguous(aril_permute(t, axes)), axes);
    }
    case STEPPED: {
        aril_shape wide = shape;
        wide.dim[ndim - 1] = 2 * shape.dim[ndim - 1] + 1;
        aril_tensor *part =
            aril_slice(aril_zeros(wide, aril_dtype_of(t), aril_device_of(t)), -1, 1, ARIL_END, 2);
        return aril_copy_(part, t);
    }
    case REVERSED:
        return aril_slice(aril_copy(aril_slice(t, 0, -1, ARIL_END, -1)), 0, -1, ARIL_END, -1);
    default: return aril_expand(aril_slice(t, 0, 0, 1, 1), shape);
    }
}

static bool writes_to(const aril__op *op, int i)
{
    if (aril__changes(op, i)) return true;
    for (int k = 0; k < op->n_out; k++)
        if (op->out[k] == WRITES(i)) return true;
    return false;
}

static void check_layout(const test_sample *s, aril_tensor *const *in, aril_dtype dtype, int layout)
{
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    aril_tensor *dense[TEST_INPUTS], *other[TEST_INPUTS];
    aril_tensor *want[TEST_RESULTS], *got[TEST_RESULTS];
    for (int i = 0; i < s->n_in; i++) {
        dense[i] = in[i];
        other[i] = in[i];
        bool key = in[i] && strcmp(s->word[i], "key") == 0;
        if (!in[i] || key || (layout == EXPANDED && (writes_to(s->op, i) || s->word[i][0] == 's')))
            continue;
        other[i] = laid_out(in[i], layout);
        dense[i] = aril_contiguous(other[i]);
    }
    if (test_run(s, dense, want) < 0) {
        FAIL(s, "dense", dtype, test_op_error());
        return;
    }
    for (int i = 0; i < s->n_in; i++) /* copy what the op writes to: other runs use it */
        if (writes_to(s->op, i) && other[i])
            other[i] = layout == EXPANDED ? aril_copy(dense[i]) : laid_out(dense[i], layout);
    aril_status status = aril__apply(s->op, s->n_in, other, s->attrs, got);
    test_results(s, other, got);
    if (status < 0 && ARIL__IS_VIEW(s->op->out[0])) { /* not every layout can be viewed like this */
        aril_clear_error();
        return;
    }
    count.layouts++;
    char *why = status < 0 ? (char *)aril_error()
                           : test_op_difference(s->op, got, want, test_tolerance(dtype), false);
    if (why) FAIL(s, layout_name[layout], dtype, why);
    aril_clear_error();
}

static void check_layouts(const test_sample *s)
{
    aril_tensor *in[TEST_INPUTS];
    aril_dtype dtype;
    test_working_on("layouts", s);
    if (s->n_in == 0 || !test_best_inputs(s, in, &dtype)) return;
    for (int layout = 0; layout < LAYOUTS; layout++) {
        bool empty = false;
        for (int i = 0; i < s->n_in; i++) empty = empty || (in[i] && aril_numel(in[i]) == 0);
        if (!empty || layout == TRANSPOSED) check_layout(s, in, dtype, layout);
    }
}

TEST(input_layouts)
{
    test_each_sample(check_layouts);
}

/* ---- unknown sizes: a tracer that only tracks shapes ---- */

static aril_status shapes_only(aril__tracer *self, const aril__call *c, aril_tensor *dest,
                               aril_tensor **out)
{
    (void)self;
    for (int i = 0; i < c->op->n_out; i++) {
        if (i == 0 && dest)
            out[i] = aril__tensor_keep(dest);
        else if (ARIL__IS_WRITE(c->op->out[i]))
            out[i] =
                c->in[c->op->out[i] - 32] ? aril__tensor_keep(c->in[c->op->out[i] - 32]) : NULL;
        else
            out[i] = aril__symbolic_out(aril__self(), c, i, NULL);
    }
    return ARIL_OK;
}
static aril__tracer tracer = { .apply = shapes_only };

static aril_tensor *symbol(aril_dtype dtype, aril_shape shape)
{
    aril__thread *th = aril__self();
    return aril__give(th, aril__symbolic_new(th, dtype, shape.ndim, shape.dim, NULL));
}

/* Symbolic inputs with the batch size replaced. */
static void symbols(const test_sample *s, aril_tensor *const *in, aril_tensor *const *larger,
                    int64_t batch, aril_tensor **sym)
{
    for (int i = 0; i < s->n_in; i++) {
        sym[i] = NULL;
        if (!in[i]) continue;
        aril_shape shape = aril_shape_of(in[i]);
        for (int d = 0; d < shape.ndim; d++)
            if (shape.dim[d] != aril_size(larger[i], d)) shape.dim[d] = batch;
        sym[i] = symbol(aril_dtype_of(in[i]), shape);
    }
}

static void compare_unknown(const test_sample *s, int k, aril_tensor *small, aril_tensor *large,
                            aril_tensor *sym)
{
    char text[200];
    if (aril_ndim(sym) != aril_ndim(small) || aril_dtype_of(sym) != aril_dtype_of(small)) {
        snprintf(text, sizeof text, "result %d: %d dimensions of %s, but %d of %s when known", k,
                 aril_ndim(sym), aril_dtype_name(aril_dtype_of(sym)), aril_ndim(small),
                 aril_dtype_name(aril_dtype_of(small)));
        FAIL(s, "unknown batch", ARIL_F32, text);
        return;
    }
    for (int d = 0; d < aril_ndim(sym); d++) {
        int64_t a = aril_size(small, d), b = aril_size(large, d), got = aril_size(sym, d);
        if (a == b ? got == a : aril__size_is_named(got)) continue;
        snprintf(text, sizeof text, "result %d, axis %d: size %lld, expected %lld or unknown", k, d,
                 (long long)got, (long long)a);
        FAIL(s, "unknown batch", ARIL_F32, text);
    }
}

/* The gradient rule on symbolic tensors: each gradient must have its input's shape. */
static void check_symbolic_rule(const test_sample *s, aril_tensor **sym, aril_tensor **y)
{
    aril_tensor *x[TEST_INPUTS] = { NULL }, *seen[TEST_RESULTS] = { NULL },
                *g[TEST_RESULTS] = { NULL };
    aril_tensor *dx[TEST_INPUTS] = { NULL };
    bool wants[TEST_INPUTS] = { false };
    uint32_t mask = 0;
    bool any = false;
    for (int i = 0; i < s->n_in; i++) {
        wants[i] = sym[i] && test_sample_wants(s, i) && aril_dtype_is_float(aril_dtype_of(sym[i]));
        any = any || wants[i];
        if (wants[i]) mask |= aril__op_saves(s->op, s->attrs, i) | (s->op->formula ? LIKE(i) : 0);
    }
    for (int i = 0; i < s->n_in; i++)
        if (mask & (IN(i < 7 ? i : 7) | LIKE(i < 7 ? i : 7))) x[i] = sym[i];
    for (int k = 0; k < s->op->n_out; k++) {
        if (mask & (OUT(k) | LIKE_OUT(k))) seen[k] = y[k];
        if (aril_dtype_is_float(aril_dtype_of(y[k])) && !ARIL__IS_WRITE(s->op->out[k]))
            g[k] = symbol(aril_dtype_of(y[k]), aril_shape_of(y[k]));
    }
    if (!any || !g[0] || !s->op->vjp || s->op->flags & NONDIFF) return;
    aril__grad c = { .op = s->op,
                     .attrs = s->attrs,
                     .n_in = s->n_in,
                     .n_out = s->op->n_out,
                     .x = x,
                     .y = seen,
                     .g = g,
                     .dx = dx,
                     .wants = wants };
    s->op->vjp(&c);
    if (!aril_ok()) {
        FAIL(s, "gradient with an unknown batch", ARIL_F32, aril_error());
        return;
    }
    for (int i = 0; i < s->n_in; i++) {
        if (!dx[i]) continue;
        bool same = aril_ndim(dx[i]) == aril_ndim(sym[i]);
        for (int d = 0; same && d < aril_ndim(sym[i]); d++)
            same = aril_size(dx[i], d) == aril_size(sym[i], d); /* the same unknown, too */
        if (!same || aril_dtype_of(dx[i]) != aril_dtype_of(sym[i])) {
            char text[160];
            snprintf(text, sizeof text, "that of input %d has another shape or dtype", i);
            FAIL(s, "gradient with an unknown batch", ARIL_F32, text);
        }
    }
}

static void check_symbolic(const test_sample *s)
{
    if (!(s->flags & SAMPLE_BATCH)) return;
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    test_working_on("unknown batch", s);
    aril_tensor *in[TEST_INPUTS], *larger[TEST_INPUTS], *sym[TEST_INPUTS];
    aril_tensor *small[TEST_RESULTS], *large[TEST_RESULTS], *out[TEST_RESULTS];
    aril_dtype dtype;
    if (!test_best_inputs(s, in, &dtype) || !test_sample_inputs(s, dtype, 7, larger)) return;
    count.symbolic++;
    aril__trace(&tracer);
    symbols(s, in, larger, 2, sym);
    aril_status status = aril__apply(s->op, s->n_in, sym, s->attrs, small);
    symbols(s, in, larger, 7, sym);
    if (status == ARIL_OK) status = aril__apply(s->op, s->n_in, sym, s->attrs, large);
    symbols(s, in, larger, aril__size_new(&tracer.sizes, "N"), sym);
    if (status == ARIL_OK) status = aril__apply(s->op, s->n_in, sym, s->attrs, out);
    if (status == ARIL_OK) {
        for (int k = 0; k < s->op->n_out; k++) compare_unknown(s, k, small[k], large[k], out[k]);
        check_symbolic_rule(s, sym, out);
    } else {
        FAIL(s, "unknown batch", dtype, aril_error());
    }
    aril__trace(NULL);
    aril__sizes_free(&tracer.sizes);
    aril_clear_error();
}

TEST(unknown_batch_size)
{
    test_each_sample(check_symbolic);
}

/* ---- in place ---- */

static void check_in_place(const test_sample *s)
{
    const aril__op *op = s->op;
    aril_tensor *in[TEST_INPUTS], *out[TEST_RESULTS], *copy[TEST_INPUTS];
    aril_dtype dtype;
    test_working_on("the in-place form", s);
    if (!op->n_out || op->out[0] != FRESH || op->flags & DYNAMIC ||
        !test_best_inputs(s, in, &dtype))
        return;
    if (test_run(s, in, out) < 0) return;
    count.in_place++;
    ARIL_NO_GRAD;
    /* Into a separate tensor with gaps. */
    test_copies(s, in, copy);
    aril_tensor *to = laid_out(aril_zeros_like(out[0]), STEPPED);
    aril_tensor *got = aril__apply_to(to, op, s->n_in, copy, s->attrs);
    char *why = got != to ? "another tensor came back" : NULL;
    if (aril_ok() && !why)
        why = test_op_difference(&aril__op_copy, &got, out, test_tolerance(dtype), false);
    if (!aril_ok() || why) FAIL(s, "into a destination", dtype, aril_ok() ? why : aril_error());
    aril_clear_error();
    /* Into the first input. */
    if (s->n_in == 0 || !in[0] || aril_dtype_of(in[0]) != aril_dtype_of(out[0]) ||
        !aril__same_dims(in[0]->ndim, in[0]->dim, out[0]->ndim, out[0]->dim) ||
        !aril_device_equal(aril_device_of(in[0]), aril_device_of(out[0])))
        return;
    test_copies(s, in, copy);
    got = aril__apply_to(copy[0], op, s->n_in, copy, s->attrs);
    why = aril_ok() ? test_op_difference(&aril__op_copy, &got, out, test_tolerance(dtype), false)
                    : (char *)aril_error();
    if (why) FAIL(s, "into its first input", dtype, why);
    aril_clear_error();
}

TEST(in_place_equals_out_of_place)
{
    test_each_sample(check_in_place);
}

/* ---- threads ---- */

static void check_threads(const test_sample *s)
{
    ARIL_NO_GRAD;
    aril_tensor *in[TEST_INPUTS], *one[TEST_RESULTS], *three[TEST_RESULTS];
    aril_dtype dtype;
    test_working_on("three threads", s);
    if (!test_best_inputs(s, in, &dtype)) return;
    if (dtype == ARIL_F64) dtype = ARIL_F32;
    int64_t numel = 1;
    for (int i = 0; i < s->n_in; i++)
        if (in[i] && test_sample_batched(s, i) && aril_numel(in[i]) > numel)
            numel = aril_numel(in[i]);
    int64_t batch = s->flags & SAMPLE_BATCH ? 150000 / numel + 3 : 0;
    if (!test_sample_inputs(s, dtype, batch, in)) return;
    count.threads++;
    aril_set_threads(1);
    aril_status a = test_run(s, in, one);
    aril_set_threads(3);
    aril_status b = test_run(s, in, three);
    aril_set_threads(0);
    char *why = NULL;
    if (a < 0 || b < 0)
        why = test_refused(a) ? NULL : (char *)test_op_error();
    else
        why = test_op_difference(s->op, one, three, 0, true);
    if (why) FAIL(s, "one and three threads", dtype, why);
}

TEST(results_do_not_depend_on_threads)
{
    ONLY_ON_CPU("the CPU's threads");
    test_each_sample(check_threads);
}

TEST(summary)
{
    printf("      %d ops, %d samples, %d op x sample x dtype combinations, %d kernel runs, "
           "%d layouts,\n      %d with an unknown batch, %d in place, %d with threads\n",
           aril__n_ops, count.samples, count.combinations, count.rows, count.layouts,
           count.symbolic, count.in_place, count.threads);
}
