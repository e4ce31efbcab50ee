/* Control flow: eager = compiled = define-and-run, values and gradients. */
#include "aril/aril.h"
#include "support/compare.h"
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check_near(aril_tensor *got, aril_tensor *want, const char *what)
{
    char *why = test_difference_in_value(got, want, 1e-6, 1e-6);
    CHECK_MSG(!why, "%s: %s", what, why);
}

static aril_tensor *numbers(aril_shape shape, uint64_t seed)
{
    aril_generator *g = aril_generator_new(seed);
    aril_tensor *t = aril_randn_from(g, shape, ARIL_F32, aril_cpu());
    aril_generator_free(g);
    return t;
}

/* ---- cond: x with w1 or w2, by z ---- */

typedef struct weights {
    aril_tensor *w1, *w2;
} weights;

static void with_w1(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    out[0] = aril_tanh(aril_matmul(in[0], ((weights *)ctx)->w1));
}

static void with_w2(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    out[0] = aril_mul_scalar(aril_matmul(in[0], ((weights *)ctx)->w2), 2);
}

/* in: x, z; out: y, and gradients of x, w1 and w2. */
static void choose(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    weights *w = ctx;
    aril_tensor *x = aril_detach(in[0]), *y;
    aril_set_requires_grad(x, true);
    aril_tensor *pred = aril_gt_scalar(aril_sum(in[1], ARIL_ALL), 0);
    aril_cond(pred, with_w1, with_w2, w, ARIL_LIST(x), 1, &y);
    out[0] = y;
    aril_gradients(aril_sum(aril_square(y), ARIL_ALL), ARIL_LIST(x, w->w1, w->w2), out + 1,
                   (aril_grad_opts){ .allow_unused = true });
}

static void check_program(aril_fn *fn, void *ctx, aril_list in, int n_out, const aril_shape *sizes,
                          aril_program **p)
{
    aril_tensor *got[16], *want[16] = { NULL };
    if (!*p) *p = aril_jit(fn, ctx, (aril_jit_opts){ .sizes = sizes, .n_sizes = sizes ? in.n : 0 });
    CHECK_INT(aril_program_run(*p, in, got), ARIL_OK);
    CHECK_MSG(aril_ok(), "%s", aril_error());
    fn(ctx, in.at, want);
    CHECK_MSG(aril_ok(), "%s", aril_error());
    for (int i = 0; i < n_out; i++) check_near(got[i], want[i], "a result");
}

TEST(a_branch_is_taken_by_the_run)
{
    ARIL_SCOPE;
    weights w = { aril_parameter(numbers(ARIL_SHAPE(3, 2), 1)),
                  aril_parameter(numbers(ARIL_SHAPE(3, 2), 2)) };
    aril_program *p = NULL;
    for (int i = 0; i < 4; i++) {
        aril_tensor *x = numbers(ARIL_SHAPE(4, 3), 3);
        aril_tensor *z = aril_full(ARIL_SHAPE(2), i % 2 ? 1 : -1, ARIL_F32, aril_cpu());
        check_program(choose, &w, ARIL_LIST(x, z), 4, NULL, &p);
    }
    CHECK_INT(aril_program_traces(p), 1);
    aril_program_free(p);
    aril_release(w.w1);
    aril_release(w.w2);
}

TEST(a_branch_in_a_graph_that_is_defined)
{
    ARIL_SCOPE;
    aril_graph *g = aril_graph_new("choice");
    aril_tensor *x = aril_placeholder(g, "x", ARIL_SHAPE(-1, 3), ARIL_F32);
    aril_tensor *z = aril_placeholder(g, "z", ARIL_SHAPE(2), ARIL_F32);
    aril_tensor *a = numbers(ARIL_SHAPE(3, 2), 1), *b = numbers(ARIL_SHAPE(3, 2), 2);
    weights w = { aril_variable(g, "w1", a), aril_variable(g, "w2", b) };
    weights v = { aril_parameter(a), aril_parameter(b) };
    aril_tensor *in[2] = { x, z }, *fetch[4];
    choose(&w, in, fetch);
    CHECK_MSG(aril_ok(), "%s", aril_error());
    aril_session *s = aril_session_new(g, aril_cpu());
    for (int i = 0; i < 4; i++) {
        aril_tensor *xs = numbers(ARIL_SHAPE(2 + i, 3), 3), *got[4], *want[4];
        aril_tensor *zs = aril_full(ARIL_SHAPE(2), i % 2 ? 1 : -1, ARIL_F32, aril_cpu());
        CHECK_INT(aril_session_run(s, ARIL_FEEDS({ x, xs }, { z, zs }), (aril_list){ 4, fetch },
                                   got),
                  ARIL_OK);
        CHECK_MSG(aril_ok(), "%s", aril_error());
        choose(&v, (aril_tensor *[]){ xs, zs }, want);
        for (int k = 0; k < 4; k++) check_near(got[k], want[k], "a fetched value");
    }
    aril_session_free(s);
    aril_graph_free(g);
    aril_release(v.w1);
    aril_release(v.w2);
}

/* ---- scan: y_t = (y_{t-1} + x_t) * w ---- */

static void step(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    out[0] = aril_mul(aril_add(in[0], in[1]), ((weights *)ctx)->w1);
    out[1] = aril_sum(out[0], ARIL_ALL);
}

/* in: y0, x; out: y_T, sums, gradients of y0, x and w. */
static void loop(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    weights *w = ctx;
    aril_tensor *y0 = aril_detach(in[0]), *x = aril_detach(in[1]);
    aril_set_requires_grad(y0, true);
    aril_set_requires_grad(x, true);
    aril_scan(step, w, ARIL_LIST(y0), ARIL_LIST(x), 1, &out[0], &out[1]);
    aril_tensor *loss = aril_add(aril_sum(aril_square(out[0]), ARIL_ALL),
                                 aril_sum(aril_mul(out[1], out[1]), ARIL_ALL));
    aril_gradients(loss, ARIL_LIST(y0, x, w->w1), out + 2, (aril_grad_opts){ 0 });
}

TEST(a_scan_runs_and_is_differentiated_for_any_length)
{
    ARIL_SCOPE;
    weights w = { aril_parameter(numbers(ARIL_SHAPE(3), 1)), NULL };
    const aril_shape sizes[] = { ARIL_SHAPE(3), ARIL_SHAPE(-1, 3) };
    aril_program *p = NULL;
    for (int64_t t = 1; t < 6; t++) {
        aril_tensor *y0 = numbers(ARIL_SHAPE(3), 2), *x = numbers(ARIL_SHAPE(t, 3), 3);
        check_program(loop, &w, ARIL_LIST(y0, x), 5, sizes, &p);
    }
    CHECK_INT(aril_program_traces(p), 1);
    aril_program_free(p);
    aril_release(w.w1);
}

static void curved(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    out[0] = aril_tanh(aril_mul(aril_add(in[0], in[1]), ((weights *)ctx)->w1));
}

/* out: gradients of y0, x and w, and those of the sum of their squares. */
static void loop_twice(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    weights *w = ctx;
    aril_tensor *y0 = aril_detach(in[0]), *x = aril_detach(in[1]), *y, *sum = aril_scalar(0);
    aril_set_requires_grad(y0, true);
    aril_set_requires_grad(x, true);
    aril_scan(curved, w, ARIL_LIST(y0), ARIL_LIST(x), 0, &y, NULL);
    aril_gradients(aril_sum(aril_square(y), ARIL_ALL), ARIL_LIST(y0, x, w->w1), out,
                   (aril_grad_opts){ .create_graph = true });
    for (int i = 0; i < 3; i++) sum = aril_add(sum, aril_sum(aril_square(out[i]), ARIL_ALL));
    aril_gradients(sum, ARIL_LIST(y0, x, w->w1), out + 3, (aril_grad_opts){ 0 });
}

TEST(a_scan_is_differentiated_twice)
{
    ARIL_SCOPE;
    weights w = { aril_parameter(numbers(ARIL_SHAPE(3), 1)), NULL };
    const aril_shape sizes[] = { ARIL_SHAPE(3), ARIL_SHAPE(-1, 3) };
    aril_program *p = NULL;
    for (int64_t t = 1; t < 6; t++) {
        aril_tensor *y0 = numbers(ARIL_SHAPE(3), 2), *x = numbers(ARIL_SHAPE(t, 3), 3);
        check_program(loop_twice, &w, ARIL_LIST(y0, x), 6, sizes, &p);
    }
    CHECK_INT(aril_program_traces(p), 1);
    aril_program_free(p);
    aril_release(w.w1);
}

/* ---- random numbers ---- */

static aril_tensor *half(aril_tensor *x)
{
    return aril_dropout(x, 0.5, (aril_dropout_opts){ 0 });
}

static void drop_step(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    out[0] = aril_add(half(aril_mul(in[0], ((weights *)ctx)->w1)), half(in[1]));
    out[1] = half(aril_tanh(out[0]));
}

/* Numbers before, in and after a loop, and the gradient, which needs those of the loop again. */
static void drop_loop(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    weights *w = ctx;
    aril_tensor *x = aril_detach(in[1]), *first = half(in[0]);
    aril_set_requires_grad(x, true);
    aril_scan(drop_step, w, ARIL_LIST(first), ARIL_LIST(x), 1, &out[0], &out[1]);
    out[2] = half(aril_add_scalar(out[0], 3));
    aril_gradients(aril_add(aril_sum(aril_square(out[2]), ARIL_ALL), aril_sum(out[1], ARIL_ALL)),
                   ARIL_LIST(x, w->w1), out + 3, (aril_grad_opts){ 0 });
}

static void below_sum(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    aril_tensor *noise = aril_rand_like(in[0]);
    out[0] = aril_lt_scalar(aril_sum(aril_add(in[0], noise), ARIL_ALL), 40);
}

static void drop_inside(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    out[0] = half(in[0]);
}

/* A loop in a loop: each row of noise is masked element by element. */
static void grow_by_noise(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    aril_tensor *y;
    aril_map(drop_inside, ctx, ARIL_LIST(aril_rand_like(in[0])), 1, &y);
    out[0] = aril_add(aril_add(in[0], y), half(aril_full_like(in[0], 0.5)));
}

static void drop_while(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    aril_while(below_sum, grow_by_noise, ctx, ARIL_LIST(half(in[0])), (aril_while_opts){ 0 }, out);
    out[1] = half(in[0]);
}

/* As plain C draws them, in each trip, and after the loop; twice, since runs go on. */
static void check_draws(aril_fn *fn, weights *w, aril_list in, int n_out)
{
    aril_program *p = aril_jit(fn, w, (aril_jit_opts){ 0 });
    for (int round = 0; round < 3; round++) {
        aril_tensor *got[8] = { NULL }, *want[8] = { NULL };
        aril_seed(11 + (uint64_t)round);
        CHECK_INT(aril_program_run(p, in, got), ARIL_OK);
        aril_tensor *next = aril_rand(ARIL_SHAPE(4), ARIL_F32, aril_cpu());
        aril_seed(11 + (uint64_t)round);
        fn(w, in.at, want);
        check_near(next, aril_rand(ARIL_SHAPE(4), ARIL_F32, aril_cpu()), "the generator");
        for (int i = 0; i < n_out; i++) check_near(got[i], want[i], "a result");
    }
    aril_program_free(p);
}

TEST(each_trip_draws_other_numbers)
{
    ARIL_SCOPE;
    weights w = { aril_parameter(numbers(ARIL_SHAPE(3), 1)), NULL };
    check_draws(drop_loop, &w, ARIL_LIST(numbers(ARIL_SHAPE(3), 2), numbers(ARIL_SHAPE(5, 3), 3)),
                5);
    check_draws(drop_loop, &w, ARIL_LIST(numbers(ARIL_SHAPE(3), 2), numbers(ARIL_SHAPE(1, 3), 3)),
                5);
    check_draws(drop_while, &w, ARIL_LIST(numbers(ARIL_SHAPE(6), 2)), 2);
    aril_release(w.w1);
}

static void drop_inner(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    out[0] = half(aril_mul(aril_add(in[0], in[1]), ((weights *)ctx)->w1));
}

static void drop_outer(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    aril_scan(drop_inner, ctx, ARIL_LIST(in[0]), ARIL_LIST(in[1]), 0, out, NULL);
}

static void drop_nested(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    weights *w = ctx;
    aril_scan(drop_outer, ctx, ARIL_LIST(in[0]), ARIL_LIST(in[1]), 0, out, NULL);
    aril_gradients(aril_sum(out[0], ARIL_ALL), ARIL_LIST(w->w1), out + 1, (aril_grad_opts){ 0 });
}

/* How many numbers come before a trip of the outer loop depends on the trips of the inner one. */
TEST(gradients_of_loops_in_loops_that_draw_are_refused)
{
    ARIL_SCOPE;
    weights w = { aril_parameter(numbers(ARIL_SHAPE(3), 1)), NULL };
    aril_program *p = aril_jit(drop_nested, &w, (aril_jit_opts){ 0 });
    aril_tensor *out[2];
    CHECK(aril_program_run(p, ARIL_LIST(numbers(ARIL_SHAPE(3), 2), numbers(ARIL_SHAPE(2, 4, 3), 3)),
                           out) < 0);
    CHECK_MSG(strstr(aril_error(), "a loop within it draws"), "%s", aril_error());
    aril_clear_error();
    aril_program_free(p);
    aril_release(w.w1);
}

static void square_of(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    out[0] = half(aril_mul(aril_square(in[0]), ((weights *)ctx)->w1));
}

static void drop_branch(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    out[0] = half(aril_mul(in[0], ((weights *)ctx)->w1));
}

/* The gradient of a branch has its mask. */
static void drop_choice(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    weights *w = ctx;
    aril_cond(in[1], drop_branch, square_of, ctx, ARIL_LIST(in[0]), 1, out);
    aril_gradients(aril_sum(out[0], ARIL_ALL), ARIL_LIST(w->w1), out + 1, (aril_grad_opts){ 0 });
}

TEST(gradients_of_branches_have_their_masks)
{
    ARIL_SCOPE;
    weights w = { aril_parameter(numbers(ARIL_SHAPE(40), 1)), NULL };
    aril_tensor *x = numbers(ARIL_SHAPE(40), 2),
                *yes = aril_full(ARIL_SHAPE(), 1, ARIL_F32, aril_cpu());
    aril_program *p = aril_jit(drop_choice, &w, (aril_jit_opts){ 0 });
    for (int i = 0; i < 3; i++) {
        aril_tensor *out[2];
        CHECK_INT(aril_program_run(p, ARIL_LIST(x, yes), out), ARIL_OK);
        /* y = mask x w, dy/dw = mask x */
        check_near(aril_mul(out[1], w.w1), out[0], "a masked gradient");
    }
    aril_program_free(p);
    aril_release(w.w1);
}

static void square_plus(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    out[0] = aril_add_scalar(aril_square(in[0]), 1);
}

static void map_all(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    aril_tensor *x = aril_detach(in[0]);
    aril_set_requires_grad(x, true);
    aril_map(square_plus, ctx, ARIL_LIST(x), 1, out);
    aril_gradients(aril_sum(out[0], ARIL_ALL), ARIL_LIST(x), out + 1, (aril_grad_opts){ 0 });
}

TEST(a_map_has_no_state)
{
    ARIL_SCOPE;
    aril_program *p = NULL;
    check_program(map_all, NULL, ARIL_LIST(numbers(ARIL_SHAPE(4, 2), 1)), 2, NULL, &p);
    aril_program_free(p);
}

/* ---- while ---- */

static void is_below_ten(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    out[0] = aril_lt_scalar(aril_sum(aril_square(in[0]), ARIL_ALL), 100);
}

static void grow(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    out[0] = aril_mul(in[0], ((weights *)ctx)->w1);
}

static void until_large(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    ARIL_NO_GRAD;
    aril_while(is_below_ten, grow, ctx, ARIL_LIST(in[0]), (aril_while_opts){ 0 }, out);
}

static void bounded(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    weights *w = ctx;
    aril_tensor *x = aril_detach(in[0]);
    aril_set_requires_grad(x, true);
    aril_while(is_below_ten, grow, w, ARIL_LIST(x), (aril_while_opts){ .max_trips = 12 }, out);
    aril_gradients(aril_sum(out[0], ARIL_ALL), ARIL_LIST(x, w->w1), out + 1,
                   (aril_grad_opts){ .allow_unused = true });
}

TEST(a_loop_ends_by_its_condition)
{
    ARIL_SCOPE;
    weights w = { aril_parameter(aril_full(ARIL_SHAPE(3), 1.7, ARIL_F32, aril_cpu())), NULL };
    aril_program *p = NULL, *q = NULL;
    for (int i = 0; i < 5; i++) {
        aril_tensor *x = aril_full(ARIL_SHAPE(3), 0.01 + 3 * i, ARIL_F32, aril_cpu());
        check_program(until_large, &w, ARIL_LIST(x), 1, NULL, &p);
        check_program(bounded, &w, ARIL_LIST(x), 3, NULL, &q);
    }
    CHECK_INT(aril_program_traces(p), 1);
    CHECK_INT(aril_program_traces(q), 1);
    aril_program_free(p);
    aril_program_free(q);
    aril_release(w.w1);
}

static int64_t most_trips;

static void below_limit(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    out[0] = aril_lt(in[1], aril_full(ARIL_SHAPE(), 5, ARIL_F32, aril_cpu()));
}

static void noisy_trip(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    aril_tensor *w = ctx, *x = aril_dropout(in[0], 0.5, (aril_dropout_opts){ 0 });
    out[0] = aril_add(aril_tanh(aril_mul(x, w)), in[0]);
    out[1] = aril_add_scalar(in[1], 1);
}

static void limited(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    aril_tensor *x = aril_detach(in[0]), *end[2];
    aril_set_requires_grad(x, true);
    aril_while(below_limit, noisy_trip, ctx, ARIL_LIST(x, in[1]),
               (aril_while_opts){ .max_trips = most_trips }, end);
    out[0] = end[0];
    out[1] = aril_rand(ARIL_SHAPE(2), ARIL_F32, aril_cpu()); /* goes on after the last trip */
    aril_gradients(aril_sum(end[0], ARIL_ALL), ARIL_LIST(x, (aril_tensor *)ctx), out + 2,
                   (aril_grad_opts){ .allow_unused = true });
}

TEST(a_limit_of_trips_may_be_any_number)
{
    ARIL_SCOPE;
    aril_tensor *w = aril_parameter(aril_full(ARIL_SHAPE(4), 0.7, ARIL_F32, aril_cpu()));
    const int64_t limits[] = { 2, 5, 1000, 1000000000000, INT64_MAX };
    for (int i = 0; i < 5 && !test_failed(); i++) {
        aril_program *p = aril_jit(limited, w, (aril_jit_opts){ 0 });
        most_trips = limits[i];
        for (int first = 0; first < 8; first += 3) { /* 5 trips, 2, none: or at most the limit */
            aril_tensor *x = numbers(ARIL_SHAPE(4), 3), *got[4], *want[4];
            aril_tensor *in[] = { x, aril_full(ARIL_SHAPE(), first, ARIL_F32, aril_cpu()) };
            aril_seed(7);
            CHECK_INT(aril_program_run(p, (aril_list){ 2, in }, got), ARIL_OK);
            aril_seed(7);
            limited(w, in, want);
            CHECK_MSG(aril_ok(), "%s", aril_error());
            for (int k = 0; k < 4; k++) check_near(got[k], want[k], "a result");
        }
        CHECK_INT(aril_program_traces(p), 1);
        aril_program_free(p);
    }
    aril_release(w);
}

static void same_value(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    out[0] = ctx ? ctx : in[0];
}

static void never(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx, (void)in;
    out[0] = aril_zeros(ARIL_SHAPE(), ARIL_BOOL, aril_cpu());
}

static int alias_kind;

static void writes_to_result(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    aril_tensor *y = NULL, *yes = aril_ones(ARIL_SHAPE(), ARIL_BOOL, aril_cpu());
    if (alias_kind == 0)
        aril_while(never, same_value, ctx, ARIL_LIST(in[0]), (aril_while_opts){ 0 }, &y);
    else if (alias_kind == 1)
        aril_cond(yes, same_value, same_value, ctx, ARIL_LIST(in[0]), 1, &y);
    else
        aril_scan(same_value, ctx, ARIL_LIST(in[0]), ARIL_LIST(in[0]), 0, &y, NULL);
    aril_fill_(y, 9);
    out[0] = y;
    out[1] = aril_mul_scalar(in[0], 1);
    if (ctx) out[2] = aril_mul_scalar(ctx, 1);
}

TEST(results_are_no_other_names_of_arguments)
{
    ARIL_SCOPE;
    aril_tensor *outside = aril_full(ARIL_SHAPE(2), 3, ARIL_F32, aril_cpu());
    for (int i = 0; i < 6; i++) {
        alias_kind = i % 3;
        aril_tensor *x = aril_ones(ARIL_SHAPE(2), ARIL_F32, aril_cpu()),
                    *ctx = i < 3 ? NULL : outside;
        aril_program *p = NULL;
        check_program(writes_to_result, ctx, ARIL_LIST(x), ctx ? 3 : 2, NULL, &p);
        CHECK(aril_item(aril_select(x, 0, 0)) == 1);
        CHECK(aril_item(aril_select(outside, 0, 0)) == 3);
        aril_program_free(p);
    }
}

static void shifted(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    out[0] = out[1] = aril_add(in[0], in[1]);
}

TEST(a_long_scan_is_differentiated)
{
    ARIL_SCOPE;
    enum { N = 70000 };
    aril_tensor *x = aril_parameter(aril_ones(ARIL_SHAPE(N), ARIL_F32, aril_cpu())), *y, *ys, *g;
    aril_tensor *zero = aril_zeros(ARIL_SHAPE(), ARIL_F32, aril_cpu());
    aril_scan(shifted, NULL, ARIL_LIST(zero), ARIL_LIST(x), 1, &y, &ys);
    CHECK_MSG(aril_ok(), "%s", aril_error());
    CHECK_INT(aril_size(ys, 0), N);
    CHECK(aril_item(aril_select(ys, 0, -1)) == N && aril_item(aril_select(ys, 0, 32768)) == 32769);
    aril_gradients(aril_sum(ys, ARIL_ALL), ARIL_LIST(x), &g, (aril_grad_opts){ 0 });
    CHECK(aril_item(aril_select(g, 0, 0)) == N && aril_item(aril_select(g, 0, -1)) == 1);
    aril_release(x);
}

static int trips_run;

static void fails_quietly(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    trips_run++;
    aril_add(in[0], aril_ones(ARIL_SHAPE(7), ARIL_F32, aril_cpu())); /* wrong, and not used */
    out[0] = aril_add_scalar(in[0], 1);
}

static void always(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx, (void)in;
    out[0] = aril_ones(ARIL_SHAPE(), ARIL_BOOL, aril_cpu());
}

TEST(a_loop_stops_at_the_first_error)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_ones(ARIL_SHAPE(2), ARIL_F32, aril_cpu()), *y;
    trips_run = 0;
    CHECK(aril_while(always, fails_quietly, NULL, ARIL_LIST(x), (aril_while_opts){ .max_trips = 9 },
                     &y) < 0);
    CHECK_INT(trips_run, 1);
    CHECK(aril_tensor_status(y) < 0);
    aril_clear_error();
}

static void map_nothing(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    aril_map(same_value, ctx, ARIL_LIST(in[0]), 0, NULL);
    out[0] = in[0];
}

TEST(a_map_without_results_is_an_error)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_ones(ARIL_SHAPE(2), ARIL_F32, aril_cpu()), *y;
    aril_program *p = aril_jit(map_nothing, NULL, (aril_jit_opts){ 0 });
    for (int traced = 0; traced < 2; traced++) {
        if (traced)
            aril_program_run(p, ARIL_LIST(x), &y);
        else
            map_nothing(NULL, &x, &y);
        CHECK_MSG(strstr(aril_error(), "map: expected at least one result"), "%s", aril_error());
        aril_clear_error();
    }
    aril_program_free(p);
}

/* ---- nested, and errors ---- */

static void inner(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    aril_tensor *pred = aril_gt_scalar(aril_sum(in[1], ARIL_ALL), 0);
    aril_cond(pred, with_w1, with_w2, ctx, ARIL_LIST(in[0]), 1, out);
}

static void nested(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    weights *w = ctx;
    aril_tensor *x = aril_detach(in[0]), *none[1];
    aril_set_requires_grad(x, true);
    aril_scan(inner, w, ARIL_LIST(x), ARIL_LIST(in[1]), 0, out, none);
    aril_gradients(aril_sum(out[0], ARIL_ALL), ARIL_LIST(x, w->w1, w->w2), out + 1,
                   (aril_grad_opts){ .allow_unused = true });
}

TEST(branches_inside_loops)
{
    ARIL_SCOPE;
    weights w = { aril_parameter(numbers(ARIL_SHAPE(3, 3), 1)),
                  aril_parameter(numbers(ARIL_SHAPE(3, 3), 2)) };
    aril_program *p = NULL;
    for (uint64_t i = 0; i < 3; i++) {
        aril_tensor *x = numbers(ARIL_SHAPE(2, 3), 5), *z = numbers(ARIL_SHAPE(4, 1), 10 + i);
        check_program(nested, &w, ARIL_LIST(x, z), 4, NULL, &p);
    }
    aril_program_free(p);
    aril_release(w.w1);
    aril_release(w.w2);
}

static void row_sum(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    out[0] = aril_sum(in[0], ARIL_AXES(1));
}

static void writes_outside(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    ARIL_NO_GRAD;
    out[0] = aril_add_(((weights *)ctx)->w1, in[0]);
}

static void clashing(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    aril_cond(aril_gt_scalar(aril_sum(in[0], ARIL_ALL), 0), square_plus, row_sum, ctx,
              ARIL_LIST(in[0]), 1, out);
}

static void writing(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    aril_cond(aril_gt_scalar(aril_sum(in[0], ARIL_ALL), 0), writes_outside, square_plus, ctx,
              ARIL_LIST(in[0]), 1, out);
}

enum { MANY = 33 };

static void many(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    for (int i = 0; i < MANY; i++) out[i] = in[0];
}

static void choose_many(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    aril_cond(aril_ones(ARIL_SHAPE(), ARIL_BOOL, aril_cpu()), many, many, ctx, ARIL_LIST(in[0]),
              MANY, out);
}

static void negative(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    aril_while(below_sum, drop_branch, ctx, ARIL_LIST(in[0]), (aril_while_opts){ .max_trips = -1 },
               out);
}

static void grow_state(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    out[0] = aril_cat(ARIL_LIST(in[0], in[0]), 0);
}

static void growing(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    aril_while(below_sum, grow_state, ctx, ARIL_LIST(in[0]), (aril_while_opts){ .max_trips = 3 },
               out);
}

/* ---- text ---- */

TEST(branches_and_bodies_have_names)
{
    ARIL_SCOPE;
    weights w = { numbers(ARIL_SHAPE(3, 2), 1), numbers(ARIL_SHAPE(3, 2), 2) };
    aril_program *p = NULL;
    aril_tensor *x = numbers(ARIL_SHAPE(2, 3), 3);
    check_program(choose, &w, ARIL_LIST(x, x), 2, NULL, &p);
    char *text = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);
    aril_program_print(p, to);
    fclose(to);
    CHECK_MSG(strstr(text, " then(") && strstr(text, " else("), "%s", text);
    free(text);
    aril_program_free(p);
}

/* ---- no trips ---- */

static void add_and_scale(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    out[0] = aril_mul(aril_add(in[0], in[1]), (aril_tensor *)ctx);
    out[1] = aril_cat(ARIL_LIST(out[0], in[1]), 0);
}

/* in: xs [T,D]; out: the final state [D], results [T,2D], and the gradient of the factor. */
static void scan_rows(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    aril_tensor *y0 = aril_zeros_like(aril_sum(in[0], ARIL_AXES(0)));
    aril_scan(add_and_scale, ctx, ARIL_LIST(y0), ARIL_LIST(in[0]), 1, out, out + 1);
    aril_gradients(aril_sum(out[0], ARIL_ALL), ARIL_LIST((aril_tensor *)ctx), out + 2,
                   (aril_grad_opts){ .allow_unused = true });
}

TEST(a_scan_over_an_empty_sequence_with_another_unknown_size)
{
    aril_tensor *w = aril_parameter(aril_full(ARIL_SHAPE(), 2, ARIL_F32, aril_cpu()));
    const aril_shape sizes[] = { ARIL_SHAPE(-1, -1), ARIL_SHAPE(-2, -3), ARIL_SHAPE(-1, 3) };
    for (int k = 0; k < 3; k++) {
        ARIL_SCOPE;
        aril_program *p = NULL;
        for (int64_t t = 2; t >= 0; t--)
            check_program(scan_rows, w, ARIL_LIST(numbers(ARIL_SHAPE(t, 3), 4)), 3, &sizes[k], &p);
        aril_program_free(p);
        aril_graph *g = aril_graph_new("rows");
        aril_tensor *x = aril_placeholder(g, "x", sizes[k], ARIL_F32), *y[3], *got[3];
        scan_rows(w, &x, y);
        aril_session *s = aril_session_new(g, aril_cpu());
        aril_feeds feeds = ARIL_FEEDS({ x, aril_zeros(ARIL_SHAPE(0, 3), ARIL_F32, aril_cpu()) });
        CHECK_INT(aril_session_run(s, feeds, ARIL_LIST(y[0], y[1], y[2]), got), ARIL_OK);
        CHECK_MSG(aril_ok(), "%s", aril_error());
        CHECK_INT(aril_size(got[0], 0), 3);
        CHECK_INT(aril_size(got[1], 0), 0);
        CHECK_INT(aril_size(got[1], 1), 6);
        aril_session_free(s);
        aril_graph_free(g);
    }
    aril_release(w);
}

static void scale_by(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    out[0] = aril_mul(in[0], (aril_tensor *)ctx);
}

static void grow_until(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    aril_while(is_below_ten, scale_by, ctx, ARIL_LIST(in[0]), (aril_while_opts){ .max_trips = 8 },
               out);
    aril_gradients(out[0], ARIL_LIST((aril_tensor *)ctx), out + 1,
                   (aril_grad_opts){ .allow_unused = true });
}

TEST(a_loop_of_no_trips_has_gradients_of_zeros)
{
    ARIL_SCOPE;
    aril_tensor *w = aril_parameter(aril_full(ARIL_SHAPE(), 2, ARIL_F32, aril_cpu()));
    aril_program *p = NULL;
    for (int i = 0; i < 3; i++)
        check_program(grow_until, w,
                      ARIL_LIST(aril_full(ARIL_SHAPE(), 3 + 4 * i, ARIL_F32, aril_cpu())), 2, NULL,
                      &p);
    aril_program_free(p);
    aril_release(w);
}

TEST(wrong_bodies_are_refused)
{
    ARIL_SCOPE;
    weights w = { numbers(ARIL_SHAPE(2, 3), 1), NULL };
    aril_tensor *x = numbers(ARIL_SHAPE(2, 3), 5), *out[MANY];
    const struct {
        aril_fn *fn;
        const char *says;
    } cases[] = {
        { clashing, "cond: result 0 is f32 [2,3] in one branch and f32 [2] in the other" },
        { writing, "cannot change a tensor from outside it" },
        { choose_many, "cond: 33 results in a trace, expected at most 32" },
        { growing, "while: state 0 is f32 [2,3], but the body makes it f32 [4,3]" },
        { negative, "while: max_trips must be at least 0, got -1" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        aril_program *p = aril_jit(cases[i].fn, &w, (aril_jit_opts){ 0 });
        CHECK(aril_program_run(p, ARIL_LIST(x), out) < 0);
        CHECK_MSG(strstr(aril_error(), cases[i].says), "%s", aril_error());
        aril_clear_error();
        aril_program_free(p);
    }
    CHECK(aril_cond(x, square_plus, row_sum, NULL, ARIL_LIST(x), 1, out) < 0);
    CHECK_MSG(strstr(aril_error(), "the condition has one element, got shape [2,3]"), "%s",
              aril_error());
    aril_clear_error();
    aril_tensor *y = numbers(ARIL_SHAPE(3), 1);
    CHECK(aril_map(square_plus, NULL, ARIL_LIST(x, y), 1, out) < 0);
    CHECK_MSG(strstr(aril_error(), "sequence 1 has 3 elements"), "%s", aril_error());
    aril_clear_error();
}

/* ---- loops that nothing needs ---- */

static void drop_trip(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    out[0] = aril_dropout(in[0], 0.5, (aril_dropout_opts){ 0 });
}

/* The map's result is not used; what depends on weights alone is prepared. */
static void unused_map(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    ARIL_NO_GRAD;
    aril_tensor *dead, *s = aril_softsign((aril_tensor *)ctx);
    aril_map(drop_trip, NULL, ARIL_LIST(s), 1, &dead);
    out[0] = aril_add(s, aril_dropout(in[0], 0.5, (aril_dropout_opts){ 0 }));
}

TEST(a_loop_that_nothing_needs_draws_its_numbers)
{
    ARIL_SCOPE;
    aril_tensor *w = numbers(ARIL_SHAPE(5, 4), 1), *x = numbers(ARIL_SHAPE(5, 4), 2);
    aril_program *p = aril_jit(unused_map, w, (aril_jit_opts){ 0 });
    for (uint64_t i = 0; i < 3; i++) {
        aril_tensor *got, *want;
        aril_seed(i);
        CHECK_INT(aril_program_run(p, ARIL_LIST(x), &got), ARIL_OK);
        CHECK_INT((int64_t)aril_generator_state(aril_default_generator()).calls, 6);
        aril_seed(i);
        unused_map(w, &x, &want);
        CHECK_INT((int64_t)aril_generator_state(aril_default_generator()).calls, 6);
        CHECK_MSG(aril_ok(), "%s", aril_error());
        CHECK(aril_equal(got, want));
    }
    aril_program_free(p);
}

/* ---- states that change ---- */

static void longer(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    out[0] = aril_cat(ARIL_LIST(in[0], in[0]), 0);
}

static void wider(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    out[0] = aril_cast(in[0], ARIL_F64);
}

static void is_below_limit(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    out[0] = aril_lt(aril_sum(aril_cast(in[0], ARIL_F32), ARIL_ALL), aril_scalar(1e6));
}

typedef struct loop_call {
    aril_fn *body;
    bool scans;
    int64_t max_trips;
} loop_call;

static void run_loop(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    const loop_call *l = ctx;
    if (l->scans)
        aril_scan(l->body, NULL, ARIL_LIST(in[0]), ARIL_LIST(in[1]), 0, out, NULL);
    else
        aril_while(is_below_limit, l->body, NULL, ARIL_LIST(in[0]),
                   (aril_while_opts){ .max_trips = l->max_trips }, out);
}

TEST(a_loop_whose_state_changes_its_shape_or_dtype_is_refused)
{
    ARIL_SCOPE;
    static const char *const says[] = { "state 0 is f32 [3], but the body makes it f32 [6]",
                                        "state 0 is f32 [3], but the body makes it f64 [3]" };
    aril_tensor *in[] = { numbers(ARIL_SHAPE(3), 1), numbers(ARIL_SHAPE(2, 2), 2) }, *out;
    for (int i = 0; i < 6; i++) {
        loop_call l = { i % 2 ? wider : longer, i < 2, i < 4 ? 0 : 5 };
        for (int traced = 0; traced < 2; traced++) {
            aril_program *p = traced ? aril_jit(run_loop, &l, (aril_jit_opts){ 0 }) : NULL;
            if (traced)
                CHECK(aril_program_run(p, (aril_list){ 2, in }, &out) < 0);
            else
                run_loop(&l, in, &out);
            CHECK_MSG(strstr(aril_error(), l.scans ? "scan: " : "while: ") &&
                          strstr(aril_error(), says[i % 2]),
                      "loop %d, traced %d: %s", i, traced, aril_error());
            CHECK(aril_tensor_status(out) < 0);
            aril_clear_error();
            aril_program_free(p);
        }
    }
}

/* ---- what is written to before the gradient ---- */

static void add_step(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    out[0] = aril_tanh(aril_add(in[0], in[1]));
    out[1] = aril_square(out[0]);
    out[2] = aril_cast(aril_gt_scalar(out[0], 0), ARIL_U8);
}

/* Results, and arguments, of control flow that are changed in place. */
static void write_around(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    int k = *(int *)ctx;
    aril_tensor *a = aril_mul_scalar(in[0], 2), *s = aril_copy(aril_select(a, 0, 0)), *r, *y[3];
    if (k < 3) {
        aril_scan(add_step, NULL, ARIL_LIST(s), ARIL_LIST(a), 2, &r, y);
        aril_fill_(y[1], 7);
    } else {
        aril_map(square_plus, NULL, ARIL_LIST(a), 1, y);
        r = y[0];
    }
    if (k == 0) aril_tanh_(y[0]);
    if (k == 1) aril_tanh_(aril_select(y[0], 0, 1));
    if (k == 2) aril_tanh_(s);
    if (k == 3) aril_sigmoid_(y[0]);
    out[0] =
        aril_add(aril_sum(aril_mul(y[0], in[0]), ARIL_ALL), aril_sum(aril_add(r, a), ARIL_ALL));
    aril_gradients(out[0], ARIL_LIST(in[0]), out + 1, (aril_grad_opts){ 0 });
}

TEST(results_and_arguments_may_be_written_to_before_the_gradient)
{
    for (int k = 0; k < 4; k++) {
        ARIL_SCOPE;
        aril_tensor *x = numbers(ARIL_SHAPE(4, 2), 3), *want[2], *got[2], *symbol[2], *ran[2];
        aril_set_requires_grad(x, true);
        write_around(&k, &x, want);
        CHECK_MSG(aril_ok(), "%d: %s", k, aril_error());
        aril_program *p = aril_jit(write_around, &k, (aril_jit_opts){ 0 });
        CHECK_MSG(aril_program_run(p, ARIL_LIST(x), got) == ARIL_OK, "%d: %s", k, aril_error());
        aril_graph *g = aril_graph_new("write");
        aril_tensor *given = aril_placeholder(g, "x", ARIL_SHAPE(4, 2), aril_dtype_of(x));
        aril_set_requires_grad(given, true);
        write_around(&k, &given, symbol);
        aril_session *s = aril_session_new(g, aril_cpu());
        CHECK_MSG(aril_session_run(s, ARIL_FEEDS({ given, x }), (aril_list){ 2, symbol }, ran) ==
                      ARIL_OK,
                  "%d: %s", k, aril_error());
        for (int i = 0; i < 2; i++) {
            check_near(got[i], want[i], "compiled");
            check_near(ran[i], want[i], "defined");
        }
        aril_session_free(s);
        aril_graph_free(g);
        aril_program_free(p);
    }
}
