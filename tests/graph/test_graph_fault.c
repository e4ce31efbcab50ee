/* Out of memory: every allocation of tracing, running and defining fails in turn. Nothing may crash
 * or leak, and the next attempt gives the numbers of an undisturbed one. */
#include "aril/aril.h"
#include "core/tensor.h"
#include "support/test.h"

#include <math.h>

typedef struct inputs {
    aril_tensor *w, *x;
} inputs;

static inputs inputs_new(void)
{
    ARIL_SCOPE;
    aril_seed(5);
    return (inputs){ aril_parameter(aril_randn(ARIL_SHAPE(4, 4), ARIL_F32, aril_cpu())),
                     aril_keep(aril_randn(ARIL_SHAPE(3, 4), ARIL_F32, aril_cpu())) };
}

static void inputs_free(inputs *i)
{
    aril_release(i->w);
    aril_release(i->x);
}

static void trip(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    out[0] = aril_tanh(aril_add(aril_matmul(in[0], ((inputs *)ctx)->w), in[1]));
}

static void big(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    out[0] = aril_mul_scalar(in[0], 0.5);
}

static void small(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    out[0] = aril_add_scalar(in[0], 1);
}

/* A write through a view, a loop, a branch, dropout, gradients. */
static void fn(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    inputs *i = ctx;
    aril_tensor *h = aril_matmul(in[0], i->w), *last, *y;
    aril_mul_scalar_(aril_slice(h, 1, 0, 2, 1), 2);
    h = aril_dropout(h, 0.5, (aril_dropout_opts){ 0 });
    aril_tensor *y0 = aril_zeros(ARIL_SHAPE(4), ARIL_F32, aril_cpu());
    aril_scan(trip, i, ARIL_LIST(y0), ARIL_LIST(h), 0, &last, NULL);
    aril_cond(aril_gt_scalar(aril_sum(last, ARIL_ALL), 0), big, small, NULL, ARIL_LIST(last), 1,
              &y);
    out[0] = aril_sum(aril_square(y), ARIL_ALL);
    aril_gradients(out[0], ARIL_LIST(i->w), out + 1, (aril_grad_opts){ 0 });
}

static double compile_and_run(inputs *i)
{
    ARIL_SCOPE;
    aril_tensor *out[2] = { NULL };
    double sum = NAN;
    aril_seed(1);
    aril_program *p = aril_jit(fn, i, (aril_jit_opts){ 0 });
    if (p && aril_program_run(p, ARIL_LIST(i->x), out) == ARIL_OK &&
        aril_program_run(p, ARIL_LIST(i->x), out) == ARIL_OK)
        sum = aril_item(aril_add(out[0], aril_sum(out[1], ARIL_ALL)));
    aril_program_free(p);
    return sum;
}

static double define_and_run(inputs *i)
{
    ARIL_SCOPE;
    aril_tensor *out[2], *dw;
    double sum = NAN;
    aril_graph *g = aril_graph_new("g");
    if (!g) return sum;
    aril_tensor *x = aril_placeholder(g, "x", ARIL_SHAPE(-1, 4), ARIL_F32);
    aril_tensor *w = aril_variable(g, "w", i->w);
    aril_tensor *loss = aril_mean(aril_square(aril_matmul(x, w)), ARIL_ALL);
    aril_session *s = NULL;
    if (aril_gradients(loss, ARIL_LIST(w), &dw, (aril_grad_opts){ 0 }) == ARIL_OK) {
        aril_tensor *up = aril_assign_sub(w, aril_mul_scalar(dw, 0.1));
        s = aril_session_new(g, aril_cpu());
        if (s && aril_session_run(s, ARIL_FEEDS({ x, i->x }), ARIL_LIST(loss, up), out) == ARIL_OK)
            sum = aril_item(aril_add(out[0], aril_sum(out[1], ARIL_ALL)));
    }
    aril_session_free(s);
    aril_graph_free(g);
    return sum;
}

static void fail_each(const char *what, double (*run)(inputs *i))
{
    inputs i = inputs_new();
    double want = run(&i);
    want = run(&i);
    CHECK_MSG(aril_ok() && want == want, "%s: %s", what, aril_error());
    int failures = 0;
    for (int64_t n = 1;; n++, failures++) {
        int64_t blocks = aril__live_blocks(), bytes = aril_memory(aril_cpu()).live;
        aril_fail_allocation(n);
        double sum = run(&i);
        bool failed = aril_allocation_failed();
        aril_fail_allocation(0);
        CHECK_MSG(failed || aril_ok(), "%s: %s", what, aril_error());
        CHECK_MSG(!aril_ok() || sum == want, "%s: allocation %lld failed without a word", what,
                  (long long)n);
        if (!failed) break;
        aril_clear_error();
        CHECK_MSG(aril__live_blocks() == blocks, "%s: allocation %lld: %lld blocks leaked", what,
                  (long long)n, (long long)(aril__live_blocks() - blocks));
        CHECK_INT(aril_memory(aril_cpu()).live, bytes);
        if (n % 16 == 0) CHECK_NEAR(run(&i), want, 0);
    }
    printf("      %s: %d allocations\n", what, failures);
    CHECK(failures > 50);
    inputs_free(&i);
}

TEST(every_allocation_of_a_compiled_function_fails_in_turn)
{
    fail_each("compiled", compile_and_run);
}

TEST(every_allocation_of_a_defined_graph_fails_in_turn)
{
    fail_each("defined", define_and_run);
}
