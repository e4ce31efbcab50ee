/* Every op of the table on every sample: eager = compiled = fused with others = define-and-run,
 * values and gradients, with and without passes, and a trace made with one batch size runs with
 * another. ARIL_TEST_OP=name selects one op. Then ops with an index: indices of every dtype, in and
 * out of range. */
#include "aril/aril.h"
#include "graph/executor.h"
#include "ops/table/apply.h"
#include "support/compare.h"
#include "support/device.h"
#include "support/run_op.h"
#include "support/test.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_OUT = 2 * TEST_RESULTS + TEST_INPUTS };

/* A sample as a function of its inputs that are there. */
typedef struct call {
    const test_sample *s;
    bool present[TEST_INPUTS];
    bool grads;
    bool between; /* elementwise ops come before and after it, with which it may fuse */
} call;

static struct {
    int values, grads, batches;
} count;

static bool is_wanted(const call *c, int i, const aril_tensor *x)
{
    return c->grads && test_sample_wants(c->s, i) && aril_dtype_is_float(aril_dtype_of(x));
}

/* The negative of floats, so that two of them are the value itself. */
static aril_tensor *negative(aril_tensor *x)
{
    return aril_dtype_is_float(aril_dtype_of(x)) ? aril_neg(x) : x;
}

/* The results of the op, and gradients of the sum of those that have one. */
static void run_sample(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    const call *c = ctx;
    const aril__op *op = c->s->op;
    aril_tensor *x[TEST_INPUTS], *y[TEST_RESULTS], *wanted[TEST_INPUTS], *of[TEST_RESULTS];
    int n = 0, n_wanted = 0, n_of = 0, k = 0;
    for (int i = 0; i < c->s->n_in; i++) {
        x[i] = c->present[i] ? in[k++] : NULL;
        if (!x[i] || !is_wanted(c, i, x[i])) continue;
        x[i] = wanted[n_wanted++] = aril_detach(x[i]);
        aril_set_requires_grad(x[i], true);
    }
    for (int i = 0; i < c->s->n_in && c->between; i++)
        if (x[i]) x[i] = negative(x[i]);
    aril__apply(op, c->s->n_in, x, c->s->attrs, y);
    for (int i = 0; i < op->n_out; i++) {
        if (i + 1 == op->reserve_out) continue; /* of a size that only its row knows */
        bool real = aril_dtype_is_float(aril_dtype_of(y[i]));
        if (c->between && real && aril_tensor_status(y[i]) == ARIL_OK)
            y[i] = aril_tanh(aril_mul_scalar(aril_neg(y[i]), 0.5));
        out[n++] = y[i];
        bool first = !(c->s->flags & SAMPLE_FIRST) || i == 0;
        if (n_wanted && first && aril_requires_grad(y[i]) && !ARIL__IS_WRITE(op->out[i]))
            of[n_of++] = y[i];
    }
    if (!n_of) return;
    aril_grad_opts opts = { .allow_unused = true };
    aril_gradients_n((aril_list){ n_of, of }, (aril_list){ n_wanted, wanted }, out + n, opts);
}

/* The inputs that are there, copied. */
static int take_inputs(call *c, aril_tensor *const *in, aril_tensor **to)
{
    aril_tensor *copy[TEST_INPUTS];
    int n = 0;
    test_copies(c->s, in, copy);
    for (int i = 0; i < c->s->n_in; i++) {
        c->present[i] = copy[i] != NULL;
        if (copy[i]) to[n++] = c->between ? negative(copy[i]) : copy[i];
    }
    return n;
}

static void compare(const call *c, const char *what, int n, aril_tensor *const *got,
                    aril_tensor *const *want)
{
    for (int i = 0; i < n; i++) {
        char *why = test_difference_in_value(got[i], want[i], 1e-12, 1e-13);
        CHECK_MSG(!why, "%s, %s%s, %d: %s", c->s->name, what, c->grads ? " with gradients" : "", i,
                  why);
    }
}

static int results(aril_tensor *const *out)
{
    int n = 0;
    while (out[n]) n++;
    return n;
}

/* One run of a program against the function itself; also compares inputs changed in place. */
static void check_run(call *c, aril_program *p, aril_tensor *const *in, const char *what)
{
    ARIL_SCOPE;
    aril_tensor *mine[TEST_INPUTS], *theirs[TEST_INPUTS];
    aril_tensor *got[MAX_OUT] = { NULL }, *want[MAX_OUT] = { NULL };
    int n = take_inputs(c, in, mine);
    take_inputs(c, in, theirs);
    run_sample(c, mine, want);
    CHECK_MSG(aril_ok(), "%s: %s", c->s->name, aril_error());
    aril_program_run(p, (aril_list){ n, theirs }, got);
    CHECK_MSG(aril_ok(), "%s, %s: %s", c->s->name, what, aril_error());
    CHECK_INT(aril_program_results(p), results(want));
    compare(c, what, results(want), got, want);
    compare(c, "its inputs", n, theirs, mine);
}

/* The sample with some sizes unknown: those that differ from `larger`. */
static int unknown_sizes(const test_sample *s, aril_tensor *const *in, aril_tensor *const *larger,
                         aril_shape *to)
{
    int n = 0;
    for (int i = 0; i < s->n_in; i++) {
        if (!in[i]) continue;
        to[n] = aril_shape_of(in[i]);
        for (int d = 0; d < to[n].ndim; d++)
            if (to[n].dim[d] != aril_size(larger[i], d)) to[n].dim[d] = -2;
        n++;
    }
    return n;
}

static void check_compiled(call *c, aril_tensor *const *in, aril_dtype dtype)
{
    aril_tensor *larger[TEST_INPUTS];
    aril_shape sizes[TEST_INPUTS];
    aril_jit_opts opts = { .name = c->s->op->name };
    bool batched = c->s->flags & SAMPLE_BATCH && test_sample_inputs(c->s, dtype, 7, larger);
    if (batched) {
        opts.n_sizes = unknown_sizes(c->s, in, larger, sizes);
        opts.sizes = sizes;
    }
    aril_program *p = aril_jit(run_sample, c, opts);
    check_run(c, p, in, "compiled");
    check_run(c, p, in, "run again");
    if (batched) {
        check_run(c, p, larger, "with another batch size");
        CHECK_MSG(aril_program_traces(p) == 1, "%s: traced again", c->s->name);
        count.batches++;
    }
    aril_program_free(p);
}

static bool changes_inputs(const aril__op *op)
{
    for (int k = 0; k < op->n_out; k++)
        if (ARIL__IS_WRITE(op->out[k])) return true;
    return op->writes != 0;
}

static void check_defined(call *c, aril_tensor *const *in, aril_dtype dtype)
{
    ARIL_SCOPE;
    aril_tensor *value[TEST_INPUTS], *x[TEST_INPUTS];
    aril_tensor *got[MAX_OUT] = { NULL }, *want[MAX_OUT] = { NULL }, *y[MAX_OUT] = { NULL };
    aril_feed feed[TEST_INPUTS];
    int n = take_inputs(c, in, value);
    if (changes_inputs(c->s->op)) return; /* a graph changes variables only, by assignments */
    aril_graph *g = aril_graph_new(c->s->op->name);
    aril_tensor *larger[TEST_INPUTS];
    aril_shape sizes[TEST_INPUTS];
    bool batched = c->s->flags & SAMPLE_BATCH && test_sample_inputs(c->s, dtype, 7, larger);
    if (batched) unknown_sizes(c->s, in, larger, sizes);
    for (int i = 0; i < n; i++) {
        aril_shape shape = batched ? sizes[i] : aril_shape_of(value[i]);
        x[i] = aril_placeholder(g, NULL, shape, aril_dtype_of(value[i]));
        feed[i] = (aril_feed){ x[i], value[i] };
    }
    run_sample(c, x, y);
    CHECK_MSG(aril_ok(), "%s, defined: %s", c->s->name, aril_error());
    aril_session *s = aril_session_new(g, test_device());
    int n_out = results(y), n_symbolic = 0;
    aril_tensor *fetch[MAX_OUT], *fetched[MAX_OUT];
    for (int i = 0; i < n_out; i++) /* an op without inputs runs at once */
        if (y[i]->flags & ARIL__SYMBOLIC) fetch[n_symbolic++] = y[i];
    aril_session_run(s, (aril_feeds){ n, feed }, (aril_list){ n_symbolic, fetch }, fetched);
    CHECK_MSG(aril_ok(), "%s, in a session: %s", c->s->name, aril_error());
    run_sample(c, value, want);
    for (int i = 0, k = 0; i < n_out; i++)
        got[i] = y[i]->flags & ARIL__SYMBOLIC ? fetched[k++] : y[i];
    if (!(c->s->op->flags & RANDOM && n == 0)) compare(c, "define-and-run", n_out, got, want);
    aril_session_free(s);
    aril_graph_free(g);
}

/* The op between others. */
static void check_between(call *c, aril_tensor *const *in, aril_dtype dtype)
{
    if (changes_inputs(c->s->op) || test_failed()) return; /* it changes tensors from outside */
    c->between = true;
    check_compiled(c, in, dtype);
    c->between = false;
}

static void check_sample(const test_sample *s)
{
    ARIL_SCOPE;
    aril_tensor *in[TEST_INPUTS], *out[TEST_RESULTS];
    aril_dtype dtype;
    test_working_on("graphs", s);
    if (s->op->flags & RANDOM && !test_on_cpu()) return; /* copied keys are not host numbers */
    if (!test_best_inputs(s, in, &dtype) || test_refused(test_run(s, in, out))) return;
    call c = { .s = s };
    check_compiled(&c, in, dtype);
    check_defined(&c, in, dtype);
    setenv("ARIL_PASSES", "none", 1);
    check_compiled(&c, in, dtype);
    unsetenv("ARIL_PASSES");
    check_between(&c, in, dtype);
    count.values++;
    c.grads = !(s->flags & SAMPLE_NO_GRAD) && !(s->op->flags & NONDIFF);
    if (!c.grads || test_failed()) return;
    check_compiled(&c, in, dtype);
    check_defined(&c, in, dtype);
    check_between(&c, in, dtype);
    count.grads++;
}

/* Memory of the plan is filled with NaN before and after the use of each value: no two values that
 * are in use at the same time share it. */
TEST(every_op_eager_compiled_and_defined)
{
    aril__plan_poisons = true;
    test_each_sample(check_sample);
    aril__plan_poisons = false;
    printf("# %d samples, %d with gradients, %d with another batch size\n", count.values,
           count.grads, count.batches);
}

/* ---- indices ---- */

/* in[0]: [4,3], in[1]: an index [2,1], in[2]: [2,1] */
typedef aril_tensor *indexed(aril_tensor *const *in);

static aril_tensor *flat_index(aril_tensor *const *in)
{
    return aril_reshape(in[1], ARIL_SHAPE(-1));
}

static aril_tensor *gather(aril_tensor *const *in)
{
    return aril_gather(in[0], in[1], 0);
}

static aril_tensor *index_select(aril_tensor *const *in)
{
    return aril_index_select(in[0], flat_index(in), 0);
}

static aril_tensor *embedding(aril_tensor *const *in)
{
    return aril_embedding(in[1], in[0], (aril_embedding_opts){ 0 });
}

static aril_tensor *one_hot(aril_tensor *const *in)
{
    return aril_one_hot(in[1], 4);
}

static aril_tensor *scatter(aril_tensor *const *in)
{
    return aril_scatter(in[0], in[1], in[2], 0);
}

static aril_tensor *scatter_add(aril_tensor *const *in)
{
    return aril_scatter_add(in[0], in[1], in[2], 0);
}

static aril_tensor *scatter_in_place(aril_tensor *const *in)
{
    return aril_scatter_(aril_copy(in[0]), in[1], in[2], 0);
}

static aril_tensor *index_add(aril_tensor *const *in)
{
    return aril_index_add(in[0], flat_index(in), aril_expand(in[2], ARIL_SHAPE(2, 3)), 0);
}

static aril_tensor *nll_loss(aril_tensor *const *in)
{
    return aril_nll_loss(aril_slice(in[0], 0, 0, 2, 1), flat_index(in));
}

/* The gradient of gather, whose index is that of another op. */
static aril_tensor *gather_grad(aril_tensor *const *in)
{
    aril_tensor *x = aril_detach(in[0]), *grad[1];
    aril_set_requires_grad(x, true);
    aril_tensor *y = aril_sum(aril_square(aril_gather(x, in[1], 0)), ARIL_ALL);
    aril_gradients(y, ARIL_LIST(x), grad, (aril_grad_opts){ 0 });
    return grad[0];
}

static void run_indexed(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    out[0] = (*(indexed **)ctx)(in);
}

/* The error without its source location; "" if there is none. Clears it. */
static void take_error(char *to, size_t size)
{
    snprintf(to, size, "%s", aril_ok() ? "" : aril_error());
    char *at = strstr(to, " at ");
    if (at) *at = 0;
    aril_clear_error();
}

static void check_indices(indexed *fn, const char *name, aril_dtype dtype, const int64_t *index)
{
    ARIL_SCOPE;
    char want_error[256], error[256];
    aril_tensor *in[3], *want = NULL, *got = NULL;
    in[0] = aril_reshape(aril_arange(0, 12, 1, ARIL_F32, test_device()), ARIL_SHAPE(4, 3));
    in[1] = aril_cast(aril_from(index, ARIL_SHAPE(2, 1), ARIL_I64, aril_cpu()), dtype);
    in[1] = aril_to(in[1], test_device());
    in[2] = aril_full(ARIL_SHAPE(2, 1), 7, ARIL_F32, test_device());
    run_indexed(&fn, in, &want);
    aril_synchronize(test_device());
    take_error(want_error, sizeof want_error);
    aril_program *p = aril_jit(run_indexed, &fn, (aril_jit_opts){ .name = name });
    for (int run = 0; run < 2; run++) {
        aril_program_run(p, ARIL_LIST(in[0], in[1], in[2]), &got);
        aril_synchronize(test_device());
        take_error(error, sizeof error);
        CHECK_MSG(strcmp(error, want_error) == 0, "%s, %s, %lld: '%s', expected '%s'", name,
                  aril_dtype_name(dtype), (long long)index[0], error, want_error);
        if (!*error && !*want_error)
            CHECK_MSG(aril_equal(got, want), "%s, %s, %lld: other values", name,
                      aril_dtype_name(dtype), (long long)index[0]);
    }
    aril_program_free(p);
}

TEST(indices_of_every_dtype_eager_and_compiled)
{
    static const struct {
        const char *name;
        indexed *fn;
    } ops[] = { { "gather", gather },
                { "index_select", index_select },
                { "embedding", embedding },
                { "one_hot", one_hot },
                { "scatter", scatter },
                { "scatter_add", scatter_add },
                { "scatter_", scatter_in_place },
                { "index_add", index_add },
                { "nll_loss", nll_loss },
                { "gather_grad", gather_grad } };
    static const aril_dtype dtypes[] = { ARIL_BOOL, ARIL_U8,  ARIL_I8,  ARIL_U16, ARIL_I16,
                                         ARIL_U32,  ARIL_I32, ARIL_U64, ARIL_I64, ARIL_F32 };
    static const int64_t indices[][2] = {
        { 0, 1 }, { 2, 0 },   { -1, 1 },        { -100, 0 },
        { 4, 0 }, { 200, 1 }, { INT64_MIN, 1 }, { INT64_MAX, 0 }
    };
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        for (size_t t = 0; t < sizeof dtypes / sizeof *dtypes; t++)
            for (size_t k = 0; k < sizeof indices / sizeof *indices; k++)
                check_indices(ops[i].fn, ops[i].name, dtypes[t], indices[k]);
}
