/* Unknown sizes in C code: functions that pass them on run with any size, those that compute with
 * them get an error or a trace for each size, and no run has wrong numbers. */
#include "aril/aril.h"
#include "core/tensor.h"
#include "graph/compiled.h"
#include "support/compare.h"
#include "support/test.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

#define CPU                       aril_cpu()
#define CHECK_OK(call)            CHECK_MSG((call) == ARIL_OK, "%s", aril_error())
#define CHECK_STR_HAS(text, part) CHECK_MSG(strstr((text), (part)), "%s", (text))

static aril_tensor *matrix(int64_t rows, int64_t columns)
{
    aril_tensor *t = aril_arange(1, rows * columns + 1, 1, ARIL_F32, CPU);
    return aril_mul_scalar(aril_reshape(t, ARIL_SHAPE(rows, columns)), 0.125);
}

static void check_equal(aril_tensor *got, aril_tensor *want, const char *what)
{
    char *why = test_difference_in_value(got, want, 0, 0);
    CHECK_MSG(!why && aril_ok(), "%s: %s", what, why ? why : aril_error());
}

/* No message shows the number that stands for a size. */
static bool shows_numbers(const char *text)
{
    for (int digits = 0; *text; text++) {
        digits = isdigit((unsigned char)*text) ? digits + 1 : 0;
        if (digits > 9) return true;
    }
    return false;
}

/* ---- functions of x [n,2] ---- */

#define F(name, ...)                                                       \
    static void name(void *ctx, aril_tensor *const *in, aril_tensor **out) \
    {                                                                      \
        (void)ctx;                                                         \
        aril_tensor *x = in[0];                                            \
        out[0] = __VA_ARGS__;                                              \
    }

static aril_tensor *sum_by_loop(aril_tensor *x)
{
    aril_tensor *sum = aril_zeros(ARIL_SHAPE(2), ARIL_F32, CPU);
    for (int64_t i = 0; i < aril_size(x, 0); i++) sum = aril_add(sum, aril_select(x, 0, i));
    return sum;
}

static aril_tensor *scaled_by(aril_tensor *x, double scale)
{
    return aril_mul_scalar(aril_sum(x, ARIL_AXES(0)), scale);
}

static aril_tensor *filled(aril_tensor *x, float value)
{
    return aril_add(x, aril_from(&value, ARIL_SHAPE(1), ARIL_F32, CPU));
}

F(divide, scaled_by(x, 1.0 / (double)aril_size(x, 0)))
F(divide_by_count, aril_div_scalar(aril_sum(x, ARIL_ALL), (double)aril_numel(x)))
F(by_shape, scaled_by(x, (double)aril_shape_of(x).dim[0] + 1))
F(by_stride, scaled_by(x, (double)aril_stride(aril_contiguous(aril_t(x)), 0)))
F(loop, sum_by_loop(x))
F(half, aril_slice(x, 0, 0, aril_size(x, 0) / 2, 1))
F(last, aril_select(x, 0, aril_size(x, 0) - 1))
F(branch, aril_size(x, 0) > 1 ? aril_exp(x) : aril_neg(x))
F(constant, filled(x, (float)aril_size(x, 0)))
F(reshaped, aril_reshape(x, ARIL_SHAPE(aril_size(x, 0) * 2)))
F(narrowed, aril_narrow(aril_cat(ARIL_LIST(x, x), 0), 0, 1, aril_size(x, 0) + 1))
F(zeros, aril_zeros(ARIL_SHAPE(aril_size(x, 0) - 1), ARIL_F32, CPU))
/* How many rows are found is known to a run alone. */
F(found, scaled_by(x, 1.0 / (double)aril_size(aril_nonzero(aril_gt_scalar(x, 0.5)), 0)))

F(folded, aril_reshape(x, ARIL_SHAPE(aril_size(x, 0), 2, 1)))
F(joined, aril_reshape(x, ARIL_SHAPE(-1, aril_size(x, 0))))
F(zeros_beside, aril_add(x, aril_zeros(ARIL_SHAPE(aril_size(x, 0), 2), ARIL_F32, CPU)))
F(counted, aril_add(aril_select(x, 1, 0), aril_arange(0, aril_size(x, 0), 1, ARIL_F32, CPU)))
F(expanded, aril_expand(aril_unsqueeze(x, 0), ARIL_SHAPE(3, aril_size(x, 0), 2)))
F(triangle, aril_tril(aril_ones(ARIL_SHAPE(aril_size(x, 0), aril_size(x, 0)), ARIL_F32, CPU), 0))
F(columns, scaled_by(x, 1.0 / (double)aril_size(x, 1)))
F(blocks, aril_repeat(x, ARIL_SHAPE(2, 1)))
F(wide_blocks, aril_tile(x, ARIL_SHAPE(3, 2, 2)))
F(each, aril_repeat_interleave(x, 3, 0))
F(none, aril_repeat_interleave(x, 0, 0))
F(both, aril_add(aril_repeat(x, ARIL_SHAPE(2, 1)), aril_cat(ARIL_LIST(x, x), 0)))
F(as_often, aril_repeat(aril_slice(x, 0, 0, 1, 1), ARIL_SHAPE(aril_size(x, 0), 2)))
F(each_as_often, aril_repeat_interleave(aril_select(x, 0, 0), aril_size(x, 0), 0))
F(diagonal, aril_diag_embed(aril_select(x, 1, 0), 0, 0, 1))
F(above, aril_diag_embed(aril_select(x, 1, 0), 1, 0, 1))
F(below, aril_diag_embed(x, -2, 2, 0))
F(moved, aril_diag_embed(aril_t(x), 1, 0, 2))

static int n_calls;
F(counted_calls, (n_calls++, aril_reshape(x, ARIL_SHAPE(aril_size(x, 0), 2))))

typedef struct sized {
    const char *name;
    aril_fn *fn;
} sized;

#define ROW(name)   \
    {               \
#name, name \
    }

static aril_program *any_rows(const sized *f)
{
    const aril_shape sizes = ARIL_SHAPE(-1, 2);
    return aril_jit(f->fn, NULL, (aril_jit_opts){ .name = f->name, .sizes = &sizes, .n_sizes = 1 });
}

TEST(sizes_that_c_code_computes_with_are_errors)
{
    static const sized all[] = {
        ROW(divide), ROW(divide_by_count), ROW(by_shape), ROW(by_stride), ROW(loop), ROW(half),
        ROW(last),   ROW(branch),          ROW(constant), ROW(found)
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        ARIL_SCOPE;
        aril_program *p = any_rows(&all[i]);
        for (int64_t n = 4; n < 7; n += 2) {
            aril_tensor *y;
            CHECK_INT(aril_program_run(p, ARIL_LIST(matrix(n, 2)), &y), ARIL_ERR_STATE);
            CHECK_STR_HAS(aril_error(), all[i].name);
            CHECK_STR_HAS(aril_error(), "test_jit_sizes.c:");
            if (all[i].fn != found) CHECK_STR_HAS(aril_error(), "the size of axis 0 of input 0");
            CHECK_MSG(!shows_numbers(aril_error()), "%s", aril_error());
            aril_clear_error();
        }
        CHECK_INT(aril_program_traces(p), 0);
        aril_program_free(p);
    }
}

TEST(messages_show_no_number_for_an_unknown_size)
{
    static const sized all[] = { ROW(reshaped), ROW(narrowed), ROW(zeros) };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        ARIL_SCOPE;
        aril_program *p = any_rows(&all[i]);
        aril_tensor *y;
        CHECK(aril_program_run(p, ARIL_LIST(matrix(4, 2)), &y) < 0);
        CHECK_STR_HAS(aril_error(), "'?' was computed in C from a size that only the run knows");
        CHECK_MSG(!shows_numbers(aril_error()), "%s", aril_error());
        aril_clear_error();
        aril_program_free(p);
    }
    CHECK(aril_select(aril_zeros(ARIL_SHAPE(3), ARIL_F32, CPU), 0, -5000000000) != NULL);
    CHECK_STR_HAS(aril_error(), "-5000000000"); /* a number of the user */
    aril_clear_error();
}

TEST(sizes_that_are_passed_on_serve_every_run)
{
    static const sized all[] = { ROW(folded),   ROW(joined),        ROW(zeros_beside), ROW(counted),
                                 ROW(expanded), ROW(triangle),      ROW(columns),      ROW(blocks),
                                 ROW(each),     ROW(wide_blocks),   ROW(none),         ROW(both),
                                 ROW(as_often), ROW(each_as_often), ROW(diagonal),     ROW(above),
                                 ROW(below),    ROW(moved) };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        ARIL_SCOPE;
        aril_program *p = any_rows(&all[i]);
        for (int64_t n = 3; n < 8; n++) {
            aril_tensor *x = matrix(n, 2), *got = NULL, *want;
            all[i].fn(NULL, (aril_tensor *[]){ x }, &want);
            CHECK_OK(aril_program_run(p, ARIL_LIST(x), &got));
            check_equal(got, want, all[i].name);
        }
        CHECK_MSG(aril_program_traces(p) == 1, "%s: %d traces", all[i].name,
                  aril_program_traces(p));
        aril_program_free(p);
    }
}

/* In the trace with unknown sizes, gradients of the two parts may have been broadcast, so that
 * backward adds them up in another order. The function itself asks for the size only if told to. */
static void differences(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    aril_tensor *d = aril_diff(in[0], 1, 0), *g;
    if (*(bool *)ctx) (void)aril_size(d, 0);
    out[0] = aril_mean(aril_square(aril_add_scalar(d, 0.3)), ARIL_ALL);
    aril_gradients(out[0], ARIL_LIST(in[0]), &g, (aril_grad_opts){ .create_graph = true });
    aril_gradients(aril_sum(aril_square(g), ARIL_ALL), ARIL_LIST(in[0]), out + 1,
                   (aril_grad_opts){ 0 });
}

TEST(gradients_are_the_same_in_any_order)
{
    const aril_shape any = ARIL_SHAPE(-1);
    for (int k = 0; k < 2; k++) {
        bool asks = k;
        aril_program *p =
            aril_jit(differences, &asks, (aril_jit_opts){ .sizes = &any, .n_sizes = 1 });
        for (int64_t n = 5; n < 9; n++) {
            ARIL_SCOPE;
            aril_tensor *x = aril_randn(ARIL_SHAPE(n), ARIL_F64, CPU), *got[2], *want[2];
            aril_set_requires_grad(x, true);
            CHECK_MSG(aril_program_run(p, ARIL_LIST(x), got) == ARIL_OK, "%s", aril_error());
            differences(&asks, &x, want);
            for (int i = 0; i < 2; i++) check_equal(got[i], want[i], "result");
        }
        aril_program_free(p);
    }
}

TEST(gradients_of_what_is_repeated)
{
    static const sized all[] = { ROW(blocks), ROW(wide_blocks), ROW(each), ROW(above), ROW(moved) };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        for (int64_t n = 3; n < 6; n++) {
            ARIL_SCOPE;
            aril_graph *g = aril_graph_new("repeated");
            aril_tensor *x = aril_placeholder(g, "x", ARIL_SHAPE(-1, 2), ARIL_F32), *y, *dx,
                        *got[2];
            all[i].fn(NULL, (aril_tensor *[]){ x }, &y);
            aril_tensor *total = aril_sum(aril_square(y), ARIL_ALL), *value = matrix(n, 2), *want;
            CHECK_OK(aril_gradients(total, ARIL_LIST(x), &dx, (aril_grad_opts){ 0 }));
            aril_session *s = aril_session_new(g, CPU);
            CHECK_OK(aril_session_run(s, ARIL_FEEDS({ x, value }), ARIL_LIST(y, dx), got));
            all[i].fn(NULL, (aril_tensor *[]){ value }, &want);
            check_equal(got[0], want, all[i].name);
            aril_tensor *leaf = aril_parameter(value);
            all[i].fn(NULL, (aril_tensor *[]){ leaf }, &want);
            aril_backward(aril_sum(aril_square(want), ARIL_ALL));
            check_equal(got[1], aril_grad(leaf), all[i].name);
            aril_release(leaf);
            aril_session_free(s);
            aril_graph_free(g);
        }
}

/* Its condition does not hold in the first run, nor for the number of an unknown size. */
TEST(a_condition_is_checked_with_a_second_size)
{
    ARIL_SCOPE;
    aril_program *p = any_rows(&(sized)ROW(branch));
    aril_tensor *y;
    CHECK_OK(aril_program_run(p, ARIL_LIST(matrix(1, 2)), &y));
    check_equal(y, aril_neg(matrix(1, 2)), "one row");
    CHECK_INT(aril_program_run(p, ARIL_LIST(matrix(3, 2)), &y), ARIL_ERR_STATE);
    CHECK_STR_HAS(aril_error(), "has exp at");
    aril_clear_error();
    aril_program_free(p);
}

/* Each new size is compared, in whichever order they come, and those that were are right. */
F(above_two, aril_size(x, 0) > 2 ? aril_exp(x) : aril_neg(x))
F(only_five, aril_size(x, 0) == 5 ? aril_exp(x) : aril_neg(x))

TEST(a_condition_is_checked_with_every_size)
{
    static const int64_t orders[][5] = {
        { 1, 2, 3, 4, 5 }, { 3, 1, 2, 4, 5 }, { 1, 1, 3, 2, 4 }, { 2, 5, 1, 3, 1 }
    };
    static const sized all[] = { ROW(above_two), ROW(only_five) };
    for (size_t k = 0; k < sizeof orders / sizeof *orders * 2; k++) {
        ARIL_SCOPE;
        const sized *f = &all[k % 2];
        aril_program *p = any_rows(f);
        int right = 0;
        for (int i = 0; i < 5; i++) {
            int64_t n = orders[k / 2][i];
            aril_tensor *x = matrix(n, 2), *got, *want;
            f->fn(NULL, &x, &want);
            if (aril_program_run(p, ARIL_LIST(x), &got) == ARIL_OK) {
                check_equal(got, want, f->name);
                right++;
                continue;
            }
            CHECK_STR_HAS(aril_error(), "C code computes with a size that only the run knows");
            aril_clear_error();
        }
        CHECK_MSG(right >= 2, "order %zu: %d", k, right);
        aril_program_free(p);
    }
}

TEST(a_size_is_compared_once)
{
    ARIL_SCOPE;
    aril_program *p = any_rows(&(sized)ROW(counted_calls));
    for (int round = 0; round < 3; round++)
        for (int64_t n = 1; n < 40; n++) {
            ARIL_SCOPE;
            aril_tensor *x = matrix(n, 2), *y;
            CHECK_OK(aril_program_run(p, ARIL_LIST(x), &y));
            check_equal(y, x, "copy");
        }
    CHECK_INT(aril_program_traces(p), 1);
    CHECK_INT(n_calls, 2 * 39); /* with unknown and with known sizes */
    aril_program_free(p);
}

/* A module computes with sizes of which some only differ in a later batch. */
static aril_tensor *short_batches(aril_module *m, aril_tensor *x)
{
    aril_tensor *y = aril_forward(aril_module_child(m, 0), x);
    return aril_size(x, 0) > 20 ? aril_exp(y) : y;
}

TEST(modules_that_decide_by_sizes_are_right_with_all)
{
    ARIL_SCOPE;
    ARIL_INFERENCE;
    aril_module *net = aril_module_new("Short", 0, short_batches);
    aril_module_add(net, "linear", aril_nn_linear(2, 3));
    aril_tensor *want[24];
    for (int64_t n = 2; n < 24; n++) want[n] = aril_forward(net, matrix(n, 2));
    CHECK_OK(aril_module_jit(net));
    for (int64_t n = 2; n < 24; n++) check_equal(aril_forward(net, matrix(n, 2)), want[n], "rows");
    aril_module_release(net);
}

/* ---- defined graphs ---- */

F(made_zeros, aril_zeros(ARIL_SHAPE(aril_size(x, 0), 3), ARIL_F32, CPU))
F(made_identity, aril_eye(aril_size(x, 0), aril_size(x, 0), ARIL_F32, CPU))
F(made_noise, aril_randn(ARIL_SHAPE(aril_size(x, 0), 4), ARIL_F32, CPU))
F(made_range, aril_arange(0, aril_size(x, 0), 1, ARIL_I64, CPU))
F(spread, aril_expand(aril_ones(ARIL_SHAPE(1, 2), ARIL_F32, CPU), ARIL_SHAPE(aril_size(x, 0), 2)))
F(flat, aril_reshape(x, ARIL_SHAPE(aril_numel(x))))
F(split_axis, aril_unflatten(aril_reshape(x, ARIL_SHAPE(-1)), 0, ARIL_SHAPE(aril_size(x, 0), -1)))
F(doubled, aril_mul_scalar(x, 2.0 * (double)aril_size(x, 0)))
F(less_one, aril_add_scalar(x, (double)aril_size(x, 0) - 1))
F(by_root, scaled_by(x, 1 / sqrt((double)aril_size(x, 0))))
F(tenth, scaled_by(x, 0.1 / (double)aril_size(x, 0)))
F(full_of, aril_full(ARIL_SHAPE(2), (double)aril_size(x, 0), ARIL_F32, CPU))
F(full_of_count, aril_full(ARIL_SHAPE(2), (double)aril_numel(x), ARIL_F32, CPU))

/* Runs a function in a graph that it defines on x [n,2]. */
static aril_status run_defined(const sized *f, int64_t n, aril_tensor **got)
{
    aril_graph *g = aril_graph_new("defined");
    aril_tensor *x = aril_placeholder(g, "x", ARIL_SHAPE(-1, 2), ARIL_F32), *y = NULL;
    f->fn(NULL, &x, &y);
    aril_status s = aril_tensor_status(y);
    aril_session *session = aril_session_new(g, CPU);
    if (s == ARIL_OK)
        s = aril_session_run(session, ARIL_FEEDS({ x, matrix(n, 2) }), ARIL_LIST(y), got);
    aril_session_free(session);
    aril_graph_free(g);
    return s;
}

TEST(defined_graphs_pass_sizes_on)
{
    static const sized all[] = { ROW(folded),     ROW(joined),        ROW(zeros_beside),
                                 ROW(counted),    ROW(expanded),      ROW(triangle),
                                 ROW(blocks),     ROW(as_often),      ROW(each_as_often),
                                 ROW(made_zeros), ROW(made_identity), ROW(made_noise),
                                 ROW(made_range), ROW(spread),        ROW(flat),
                                 ROW(split_axis) };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        for (int64_t n = 1; n < 5; n++) {
            ARIL_SCOPE;
            aril_tensor *x = matrix(n, 2), *got = NULL, *want;
            aril_seed(5);
            CHECK_OK(run_defined(&all[i], n, &got));
            aril_seed(5);
            all[i].fn(NULL, &x, &want);
            if (all[i].fn == made_noise) /* a graph draws when it runs */
                CHECK_INT(aril_size(got, 0), n);
            else
                check_equal(got, want, all[i].name);
        }
}

TEST(defined_graphs_do_not_compute_with_sizes)
{
    static const sized all[] = { ROW(divide),   ROW(divide_by_count), ROW(last),
                                 ROW(half),     ROW(narrowed),        ROW(constant),
                                 ROW(branch),   ROW(doubled),         ROW(less_one),
                                 ROW(reshaped), ROW(zeros),           ROW(by_root),
                                 ROW(tenth),    ROW(full_of),         ROW(full_of_count) };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        ARIL_SCOPE;
        aril_tensor *got = NULL;
        CHECK_MSG(run_defined(&all[i], 3, &got) < 0, "%s", all[i].name);
        CHECK_STR_HAS(aril_error(), "only the run knows");
        CHECK_STR_HAS(aril_error(), "test_jit_sizes.c:");
        CHECK_MSG(!shows_numbers(aril_error()), "%s", aril_error());
        aril_clear_error();
    }
}

F(by_root_and_shape,
  scaled_by(aril_reshape(x, ARIL_SHAPE(aril_size(x, 0), 2)), 1 / sqrt((double)aril_size(x, 0))))

TEST(roots_of_sizes_that_are_passed_on_are_found)
{
    static const sized root = ROW(by_root_and_shape);
    ARIL_SCOPE;
    aril_tensor *got = NULL;
    CHECK(run_defined(&root, 3, &got) < 0);
    CHECK_STR_HAS(aril_error(), "only the run knows");
    aril_clear_error();
}

/* Numbers of code that has nothing to do with graphs, while many graphs were asked for sizes. */
TEST(numbers_elsewhere_are_numbers)
{
    enum { GRAPHS = 40, RANDOM = 2000 };
    static const double written[] = { 1e-9,       2.5e-10,        1e-12,  3e-12,  1e9,
                                      1e12,       1e15,           0x1p31, 0x1p32, 0x1p43,
                                      1e-30,      6.62607015e-34, 1e-38,  1e-300, 8.8541878128e-12,
                                      2147483647, 4294967295,     1e10 };
    ARIL_SCOPE;
    aril_graph *g[GRAPHS];
    aril_tensor *x = aril_ones(ARIL_SHAPE(2), ARIL_F64, CPU);
    uint64_t state = 1;
    for (int i = 0; i < GRAPHS; i++) {
        g[i] = aril_graph_new("asked");
        aril_tensor *p = aril_placeholder(g[i], "p", ARIL_SHAPE(-1, 2), ARIL_F32);
        aril_reshape(p, ARIL_SHAPE(aril_size(p, 0), 2));
        for (size_t k = 0; k < sizeof written / sizeof *written + RANDOM; k++) {
            ARIL_SCOPE;
            state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            double v = ldexp((double)(state >> 11), (int)(state % 200) - 140);
            if (k < sizeof written / sizeof *written) v = written[k];
            if (k & 1) v = (float)v;
            aril_tensor *y = aril_add_scalar(x, v);
            CHECK_MSG(!aril__is_poison(y), "%a: %s", v, aril_error());
        }
    }
    volatile double zero = 0;
    double nan = sqrt(zero - 1);
    CHECK_OK(aril_tensor_status(aril_full(ARIL_SHAPE(2), copysign(nan, -1), ARIL_F32, CPU)));
    for (int i = 0; i < GRAPHS; i++) aril_graph_free(g[i]);
}

/* Sizes belong to their graph; numbers that are like those of sizes are numbers elsewhere. */
TEST(sizes_of_several_graphs)
{
    ARIL_SCOPE;
    aril_graph *g = aril_graph_new("first"), *h = aril_graph_new("second");
    aril_tensor *x = aril_placeholder(g, "x", ARIL_SHAPE(-1, 2), ARIL_F32);
    aril_tensor *y = aril_placeholder(h, "y", ARIL_SHAPE(-1, 2), ARIL_F32), *got;
    int64_t n = aril_size(x, 0), m = aril_size(y, 0);
    aril_tensor *a = aril_zeros(ARIL_SHAPE(n, 3), ARIL_F32, CPU);
    aril_tensor *b = aril_ones(ARIL_SHAPE(m, 1), ARIL_F32, CPU);
    CHECK(!aril__is_poison(aril_reshape(y, ARIL_SHAPE(m, 2, 1))));
    CHECK(aril_tensor_status(aril_reshape(y, ARIL_SHAPE(n, 2))) == ARIL_ERR_STATE);
    CHECK_STR_HAS(aril_error(), "a run of another graph");
    aril_clear_error();
    aril_session *s = aril_session_new(g, CPU), *t = aril_session_new(h, CPU);
    CHECK_OK(aril_session_run(s, ARIL_FEEDS({ x, matrix(4, 2) }), ARIL_LIST(a), &got));
    CHECK_INT(aril_size(got, 0), 4);
    CHECK_OK(aril_session_run(t, ARIL_FEEDS({ y, matrix(5, 2) }), ARIL_LIST(b), &got));
    CHECK_INT(aril_size(got, 0), 5);
    static const double plain[] = { 1e-12, 1e15, -1e15, 0x1p48, -0x1p48, 3e-16, -1e-10, 1e-30 };
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        CHECK_MSG(!aril__is_poison(aril_scalar(plain[i])), "%g: %s", plain[i], aril_error());
    CHECK(!aril__is_poison(aril_slice(matrix(3, 2), 0, 1, ARIL_END, 1)));
    aril_session_free(s);
    aril_session_free(t);
    aril_graph_free(g);
    CHECK(aril_tensor_status(aril_zeros(ARIL_SHAPE(n), ARIL_F32, CPU)) == ARIL_ERR_SHAPE);
    CHECK_MSG(!shows_numbers(aril_error()), "%s", aril_error());
    aril_clear_error();
    aril_graph_free(h);
}

/* ---- traces have no effects ---- */

static int calls;

static void noisy(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    aril_tensor *x = in[0], *sum = ctx;
    calls++;
    aril_tensor *y = aril_mul(x, aril_rand(ARIL_SHAPE(aril_size(x, 0), 2), ARIL_F32, CPU));
    aril_add_(sum, aril_sum(y, ARIL_AXES(0)));
    out[0] = y;
}

TEST(tracing_twice_changes_nothing)
{
    ARIL_SCOPE;
    const aril_shape sizes = ARIL_SHAPE(-1, 2);
    aril_tensor *sum[2] = { aril_zeros(ARIL_SHAPE(2), ARIL_F32, CPU),
                            aril_zeros(ARIL_SHAPE(2), ARIL_F32, CPU) };
    aril_program *p =
        aril_jit(noisy, sum[0], (aril_jit_opts){ .name = "noisy", .sizes = &sizes, .n_sizes = 1 });
    for (int64_t n = 2; n < 6; n++) {
        aril_tensor *x = matrix(n, 2), *got, *want;
        aril_rng_state before = aril_generator_state(aril_default_generator());
        CHECK_OK(aril_program_run(p, ARIL_LIST(x), &got));
        aril_rng_state after = aril_generator_state(aril_default_generator());
        aril_generator_set_state(aril_default_generator(), before);
        int traced = calls;
        noisy(sum[1], &x, &want);
        calls = traced;
        aril_rng_state eager = aril_generator_state(aril_default_generator());
        CHECK(after.seed == eager.seed && after.calls == eager.calls);
        check_equal(got, want, "result");
        check_equal(sum[0], sum[1], "state");
    }
    CHECK_INT(aril_program_traces(p), 1);
    CHECK_INT(calls, 8); /* for each size with it, and with an unknown one */
    aril_program_free(p);
}

/* ---- inputs against .sizes ---- */

static void sum_of_two(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    out[0] = aril_add(in[0], in[1]);
}

TEST(inputs_must_be_as_sizes_declare)
{
    ARIL_SCOPE;
    const aril_shape sizes[] = { ARIL_SHAPE(-2, 2), ARIL_SHAPE(-2, 2) };
    aril_program *p =
        aril_jit(sum_of_two, NULL, (aril_jit_opts){ .name = "two", .sizes = sizes, .n_sizes = 2 });
    aril_tensor *x = matrix(4, 2), *y;
    CHECK_INT(aril_program_run(p, ARIL_LIST(x), &y), ARIL_ERR_ARG);
    CHECK_STR_HAS(aril_error(), "two: got 1 inputs, expected 2");
    aril_clear_error();
    aril_tensor *row = aril_select(x, 0, 0);
    CHECK_INT(aril_program_run(p, ARIL_LIST(x, row), &y), ARIL_ERR_SHAPE);
    CHECK_STR_HAS(aril_error(), "two: input 1 is [2], but .sizes declares [?,2]");
    aril_clear_error();
    CHECK_OK(aril_program_run(p, ARIL_LIST(x, x), &y));
    aril_program_free(p);
}

/* ---- where sizes become unknown by themselves ---- */

static aril_tensor *mean_of_rows(aril_module *m, aril_tensor *x)
{
    return scaled_by(aril_forward(aril_module_child(m, 0), x), 1.0 / (double)aril_size(x, 0));
}

static aril_tensor *doubled_rows(aril_module *m, aril_tensor *x)
{
    return aril_forward(aril_module_child(m, 0), aril_repeat(x, ARIL_SHAPE(2, 1)));
}

TEST(modules_that_compute_with_sizes_are_traced_for_each)
{
    aril_tensor *(*const forward[])(aril_module *, aril_tensor *) = { mean_of_rows, doubled_rows };
    for (int f = 0; f < 2; f++) {
        ARIL_SCOPE;
        ARIL_INFERENCE;
        aril_module *net = aril_module_new("Rows", 0, forward[f]);
        aril_module_add(net, "linear", aril_nn_linear(2, 3));
        aril_tensor *want[12];
        for (int64_t n = 1; n <= 12; n++) want[n - 1] = aril_forward(net, matrix(n, 2));
        CHECK_OK(aril_module_jit(net));
        for (int64_t n = 1; n <= 12; n++)
            check_equal(aril_forward(net, matrix(n, 2)), want[n - 1], "rows");
        aril_module_release(net);
    }
}

static aril_tensor *mean_loss(aril_tensor *y, aril_tensor *t, void *ctx)
{
    (void)ctx;
    return aril_mul_scalar(aril_sum(aril_square(aril_sub(y, t)), ARIL_ALL),
                           1.0 / (double)aril_size(y, 0));
}

TEST(training_on_batches_of_many_sizes_with_a_loss_that_divides)
{
    double loss[2][18];
    for (int jit = 0; jit < 2; jit++) {
        aril_seed(1);
        aril_model *model = aril_model_new(aril_nn_sequential(aril_nn_linear(2, 1)), ARIL_SHAPE(2));
        CHECK_OK(aril_model_compile(
            model, (aril_model_opts){ .loss_fn = mean_loss,
                                      .optimizer = aril_sgd(NULL, (aril_sgd_opts){ .lr = 0.01 }),
                                      .eager = !jit }));
        for (int i = 0; i < 18; i++) {
            ARIL_SCOPE;
            int64_t n = 2 + i % 6;
            aril_tensor *t = aril_full(ARIL_SHAPE(n, 1), 2, ARIL_F32, CPU);
            loss[jit][i] = aril_model_train_on_batch(model, matrix(n, 2), t, NULL);
        }
        CHECK_MSG(!jit || !aril_model_eager_reason(model), "%s", aril_model_eager_reason(model));
        aril_model_free(model);
    }
    CHECK_MSG(aril_ok(), "%s", aril_error());
    for (int i = 0; i < 18; i++) CHECK_MSG(loss[0][i] == loss[1][i], "step %d", i);
}

/* A function whose program fails when it runs with unknown sizes. */
static void fails_unknown(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    int64_t row = in[0]->numel < 0 ? 100 : 0;
    out[0] = aril_index_select(in[0], aril_from(&row, ARIL_SHAPE(1), ARIL_I64, CPU), 0);
}

TEST(runs_that_fail_with_unknown_sizes_are_repeated_without)
{
    aril__compiled *c = aril__compiled_new("fails", fails_unknown, NULL, false);
    for (int64_t n = 2; n < 12; n++) {
        ARIL_SCOPE;
        aril_tensor *x = matrix(n, 2), *got = NULL, *want;
        aril_status s = ARIL_ERR_INTERNAL;
        fails_unknown(NULL, (aril_tensor *[]){ x }, &want);
        CHECK(aril__compiled_run(c, ARIL_LIST(x), false, &got, &s));
        CHECK_OK(s);
        check_equal(got, want, "row");
    }
    CHECK(!aril__compiled_reason(c));
    CHECK_INT(aril__compiled_traces(c), 11);
    aril__compiled_free(c);
}

/* An error of the data is one whatever the sizes are, and changes nothing for later runs. */
static void picks(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    out[0] = aril_index_select(in[0], in[1], 0);
}

TEST(errors_of_the_data_stay_errors)
{
    aril__compiled *c = aril__compiled_new("picks", picks, NULL, false);
    for (int64_t n = 2; n < 9; n++) {
        ARIL_SCOPE;
        int64_t row = n == 6 ? 50 : 1;
        aril_tensor *x = matrix(n, 2), *i = aril_from(&row, ARIL_SHAPE(1), ARIL_I64, CPU), *got;
        aril_status s = ARIL_ERR_INTERNAL;
        bool ran = aril__compiled_run(c, ARIL_LIST(x, i), false, &got, &s);
        CHECK(ran);
        CHECK_INT(s, n == 6 ? ARIL_ERR_INDEX : ARIL_OK);
        if (n == 6) CHECK_STR_HAS(aril_error(), "50");
        if (n != 6) check_equal(got, aril_slice(x, 0, 1, 2, 1), "row");
        aril_clear_error();
    }
    CHECK_INT(aril__compiled_traces(c), 5); /* three sizes, any size, and the one that failed */
    aril__compiled_free(c);
}
