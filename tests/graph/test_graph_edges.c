/* Edge cases of graphs: calls that are refused, tensors that belong to a graph, loops without
 * results or trips, seeds and borrowed memory in traces. */
#include "aril/aril.h"
#include "support/compare.h"
#include "support/temp.h"
#include "support/test.h"

#include <limits.h>
#include <string.h>

static aril_tensor *full(aril_shape shape, double value)
{
    return aril_full(shape, value, ARIL_F32, aril_cpu());
}

static void check_error(const char *says)
{
    CHECK_MSG(strstr(aril_error(), says), "expected '%s', got '%s'", says, aril_error());
    aril_clear_error();
}

static void check_equal(aril_tensor *got, aril_tensor *want, const char *what)
{
    char *why = test_difference_in_value(got, want, 0, 0);
    CHECK_MSG(!why, "%s: %s", what, why);
}

/* Runs a function once, which must fail with such a message. */
static void check_refused(aril_fn *fn, void *ctx, const char *says)
{
    ARIL_SCOPE;
    aril_tensor *out[2];
    aril_program *p = aril_jit(fn, ctx, (aril_jit_opts){ 0 });
    CHECK(aril_program_run(p, ARIL_LIST(full(ARIL_SHAPE(3), 1)), out) < 0);
    check_error(says);
    CHECK_INT(aril_program_traces(p), 0);
    aril_program_free(p);
}

static void plus_one(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    out[0] = aril_add_scalar(in[0], 1);
}

static void same(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    out[0] = in[0];
}

/* ---- control flow ---- */

static void map_without_results(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    aril_map(plus_one, NULL, ARIL_LIST(in[0]), 0, NULL);
    out[0] = in[0];
}

static void scan_without_results(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    aril_scan(plus_one, NULL, (aril_list){ 0 }, ARIL_LIST(in[0]), 0, NULL, NULL);
    out[0] = in[0];
}

TEST(loops_without_results_are_refused)
{
    ARIL_SCOPE;
    aril_tensor *x = full(ARIL_SHAPE(3), 1), *out[1];
    scan_without_results(NULL, &x, out);
    check_error("scan: expected at least one result");
    check_refused(map_without_results, NULL, "map: expected at least one result");
    check_refused(scan_without_results, NULL, "scan: expected at least one result");
}

static void zeroes_outside(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    aril_zero_(ctx);
    out[0] = in[0];
}

static void scales_outside(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    aril_mul_scalar_(ctx, 2);
    out[0] = in[0];
}

static aril_fn *writing_branch;

static void branch_that_writes(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    aril_tensor *yes = aril_gt_scalar(aril_sum(in[0], ARIL_ALL), 0);
    aril_cond(yes, writing_branch, same, ctx, ARIL_LIST(in[0]), 1, out);
}

TEST(a_write_in_a_branch_is_named_as_a_write)
{
    ARIL_SCOPE;
    aril_tensor *outside = full(ARIL_SHAPE(3), 1);
    writing_branch = zeroes_outside;
    check_refused(branch_that_writes, outside, "fill_: a branch or the body of a loop");
    writing_branch = scales_outside;
    check_refused(branch_that_writes, outside, "mul_: a branch or the body of a loop");
}

/* Ends in eager mode, but a trace takes both branches. */
static void calls_itself(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    aril_tensor *go = aril_gt_scalar(aril_sum(in[0], ARIL_ALL), 0);
    aril_cond(go, calls_itself, same, ctx, ARIL_LIST(aril_sub_scalar(in[0], 1)), 1, out);
}

TEST(a_branch_that_calls_itself_is_refused)
{
    ARIL_SCOPE;
    aril_tensor *x = full(ARIL_SHAPE(1), 3), *out[1];
    calls_itself(NULL, &x, out);
    CHECK(aril_item(out[0]) == -1);
    check_refused(calls_itself, NULL, "nested more than 64 deep in a trace");
    aril_graph *g = aril_graph_new(NULL);
    calls_itself(NULL, (aril_tensor *[]){ aril_placeholder(g, "x", ARIL_SHAPE(1), ARIL_F32) }, out);
    check_error("nested more than 64 deep in a trace");
    aril_graph_free(g);
}

static void each_below_ten(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    out[0] = aril_lt_scalar(in[0], 10);
}

static void none(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    (void)in;
    out[0] = aril_zeros(ARIL_SHAPE(0), ARIL_BOOL, aril_cpu());
}

TEST(a_condition_of_a_loop_has_one_element)
{
    ARIL_SCOPE;
    aril_tensor *x = full(ARIL_SHAPE(3), 1), *out[1];
    CHECK(aril_while(each_below_ten, plus_one, NULL, ARIL_LIST(x), (aril_while_opts){ 0 }, out) <
          0);
    check_error("while: the condition has 3 elements, expected one");
    CHECK(aril_while(none, plus_one, NULL, ARIL_LIST(x), (aril_while_opts){ 0 }, out) < 0);
    check_error("while: the condition has 0 elements, expected one");
}

TEST(wrong_lists_of_loops_are_named)
{
    ARIL_SCOPE;
    aril_tensor *x = full(ARIL_SHAPE(3), 1), *out[1];
    aril_list one = { 1, &x }, no_list = { 1, NULL }, negative = { -1, &x }, many = { 65, &x };
    CHECK(aril_map(NULL, NULL, one, 1, out) < 0);
    check_error("map: a function is NULL");
    CHECK(aril_map(plus_one, NULL, no_list, 1, out) < 0);
    check_error("map: the list of inputs is NULL");
    CHECK(aril_map(plus_one, NULL, negative, 1, out) < 0);
    check_error("map: got -1 inputs, expected 0 to 64");
    CHECK(aril_map(plus_one, NULL, many, 1, out) < 0);
    check_error("map: got 65 inputs, expected 0 to 64");
    CHECK(aril_map(plus_one, NULL, one, -1, out) < 0);
    check_error("map: got -1 results, expected 0 or more");
    CHECK(aril_map(plus_one, NULL, one, 1, NULL) < 0);
    check_error("map: there is no room for results: out is NULL");
    CHECK(aril_map(plus_one, NULL, (aril_list){ 0 }, 1, out) < 0);
    check_error("map: expected at least one sequence to run along");
    CHECK(aril_map(plus_one, NULL, ARIL_LIST(aril_scalar(1)), 1, out) < 0);
    check_error("map: sequence 0 has no axis to run along");
    CHECK(aril_scan(plus_one, NULL, one, one, INT_MAX, out, out) < 0);
    check_error("scan: 1 states, 1 sequences and 2147483647 results");
}

static void sums_and_squares(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    out[0] = aril_add(in[0], in[1]);
    out[1] = aril_cast(aril_matmul(in[1], in[1]), ARIL_F64);
}

static void scan_squares(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    aril_tensor *start = full(ARIL_SHAPE(2, 2), 1);
    aril_scan(sums_and_squares, ctx, ARIL_LIST(start), ARIL_LIST(in[0]), 1, out, out + 1);
}

static void reads_a_value(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    out[0] = full(ARIL_SHAPE((int64_t)aril_item(in[0])), 1);
}

TEST(empty_sequences_give_empty_results_in_every_mode)
{
    ARIL_SCOPE;
    aril_tensor *x = full(ARIL_SHAPE(0, 2, 2), 1), *eager[2], *got[2];
    aril_rng_state before = aril_generator_state(aril_default_generator());
    scan_squares(NULL, &x, eager);
    CHECK_MSG(aril_ok(), "%s", aril_error());
    check_equal(eager[0], full(ARIL_SHAPE(2, 2), 1), "the state");
    CHECK_INT(aril_ndim(eager[1]), 3);
    CHECK_INT(aril_dtype_of(eager[1]), ARIL_F64);
    CHECK_INT(aril_generator_state(aril_default_generator()).calls, before.calls);
    const aril_shape open = ARIL_SHAPE(-1, 2, 2);
    for (int sized = 0; sized < 2; sized++) {
        aril_program *p =
            aril_jit(scan_squares, NULL, (aril_jit_opts){ .sizes = &open, .n_sizes = sized });
        CHECK_INT(aril_program_run(p, ARIL_LIST(x), got), ARIL_OK);
        for (int i = 0; i < 2; i++) check_equal(got[i], eager[i], "a result");
        aril_program_free(p);
    }
    CHECK(aril_map(reads_a_value, NULL, ARIL_LIST(aril_zeros(ARIL_SHAPE(0), ARIL_F32, aril_cpu())),
                   1, got) < 0);
    check_error("map: the sequences are empty, and a trace of the function does not tell");
}

enum { WEIGHTS = 12, STATES = 5 };

static void add_weighted(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    aril_tensor **w = ctx, *x = in[STATES];
    for (int i = 0; i < STATES; i++) out[i] = aril_mul_scalar(in[i], 1 + 0.5 * i);
    for (int i = 0; i < WEIGHTS; i++)
        out[i % STATES] = aril_add(out[i % STATES], aril_mul(w[i], aril_square(x)));
}

/* Results: the loss, and the gradients of the weights and of the sequence. */
static void train_scan(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    aril_tensor **w = ctx, *final[STATES], *of[WEIGHTS + 1], *start = full(ARIL_SHAPE(4), 1);
    aril_tensor *x = aril_detach(in[0]);
    aril_set_requires_grad(x, true);
    aril_scan(add_weighted, w, ARIL_LIST(start, start, start, start, start), ARIL_LIST(x), 0, final,
              NULL);
    out[0] = aril_sum(aril_square(final[0]), ARIL_ALL);
    for (int i = 1; i < STATES; i++)
        out[0] = aril_add(out[0], aril_sum(aril_square(final[i]), ARIL_ALL));
    for (int i = 0; i < WEIGHTS; i++) of[i] = w[i];
    of[WEIGHTS] = x;
    aril_gradients(out[0], (aril_list){ WEIGHTS + 1, of }, out + 1, (aril_grad_opts){ 0 });
}

TEST(a_scan_of_many_states_has_gradients_of_many_weights)
{
    ARIL_SCOPE;
    aril_tensor *w[WEIGHTS], *eager[WEIGHTS + 2], *got[WEIGHTS + 2];
    for (int i = 0; i < WEIGHTS; i++) w[i] = aril_parameter(full(ARIL_SHAPE(4), 0.1 * i));
    aril_tensor *x = aril_reshape(aril_arange(0, 12, 1, ARIL_F32, aril_cpu()), ARIL_SHAPE(3, 4));
    train_scan(w, &x, eager);
    CHECK_MSG(aril_ok(), "%s", aril_error());
    aril_program *p = aril_jit(train_scan, w, (aril_jit_opts){ 0 });
    CHECK_INT(aril_program_run(p, ARIL_LIST(x), got), ARIL_OK);
    CHECK_MSG(aril_ok(), "%s", aril_error());
    for (int i = 0; i < WEIGHTS + 2 && aril_ok(); i++) {
        char *why = test_difference_in_value(got[i], eager[i], 1e-5, 1e-5);
        CHECK_MSG(!why, "result %d: %s", i, why);
    }
    aril_program_free(p);
    for (int i = 0; i < WEIGHTS; i++) aril_release(w[i]);
}

enum { TOO_MANY = 70 };

static void add_all(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    aril_tensor **w = ctx;
    out[0] = aril_add(in[0], in[1]);
    for (int i = 0; i < TOO_MANY; i++) out[0] = aril_mul(out[0], w[i]);
}

static void train_too_many(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    aril_tensor *sum, *start = full(ARIL_SHAPE(), 1), *dw[TOO_MANY];
    aril_scan(add_all, ctx, ARIL_LIST(start), ARIL_LIST(in[0]), 0, &sum, NULL);
    aril_gradients(sum, (aril_list){ TOO_MANY, ctx }, dw, (aril_grad_opts){ 0 });
    out[0] = dw[0];
}

TEST(gradients_of_too_many_weights_are_refused)
{
    aril_tensor *w[TOO_MANY];
    for (int i = 0; i < TOO_MANY; i++) w[i] = aril_parameter(full(ARIL_SHAPE(), 1));
    check_refused(train_too_many, w,
                  "scan: gradients of 71 tensors in a trace, expected at most 32");
    for (int i = 0; i < TOO_MANY; i++) aril_release(w[i]);
}

/* ---- tensors that belong to a graph ---- */

static aril_tensor *outside;

static void release_input(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    out[0] = aril_add_scalar(in[0], 1);
    aril_release(in[0]);
}

TEST(releasing_what_a_graph_owns_is_an_error)
{
    const char *says = "release: the tensor belongs to its graph, which will release it";
    aril_graph *g = aril_graph_new("owner");
    aril_tensor *x, *y, *v, *value;
    {
        ARIL_SCOPE;
        x = aril_placeholder(g, "x", ARIL_SHAPE(3), ARIL_F32);
        v = aril_variable(g, "v", full(ARIL_SHAPE(3), 2));
        y = aril_add(x, v);
        value = aril_variable_value(v);
        aril_tensor *all[] = { x, y, v, value };
        for (int i = 0; i < 4; i++) {
            aril_release(all[i]);
            check_error(says);
        }
    }
    aril_tensor *all[] = { x, y, v, value }; /* now only the graph has them */
    for (int i = 0; i < 4; i++) {
        aril_release(all[i]);
        check_error(says);
        aril_adopt(all[i]);
        check_error("adopt: the tensor belongs to its graph already");
        aril_release(aril_keep(all[i]));
        CHECK_MSG(aril_ok(), "%s", aril_error());
    }
    aril_session *s = aril_session_new(g, aril_cpu());
    aril_tensor *out[1];
    aril_tensor *ones = full(ARIL_SHAPE(3), 1);
    CHECK_INT(aril_session_run(s, ARIL_FEEDS({ x, ones }), ARIL_LIST(y), out), ARIL_OK);
    check_equal(out[0], full(ARIL_SHAPE(3), 3), "the sum");
    aril_session_free(s);
    aril_keep(value);
    aril_graph_free(g);
    check_equal(value, full(ARIL_SHAPE(3), 2), "a value that outlives its graph");
    aril_release(value);
    CHECK_MSG(aril_ok(), "%s", aril_error());
    check_refused(release_input, NULL, says);
}

/* ---- graphs inside traces ---- */

static aril_session *session;
static aril_tensor *fed, *fetched;

static void run_session(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    (void)in;
    aril_session_run(session, ARIL_FEEDS({ fed, outside }), ARIL_LIST(fetched), out);
}

static void define_variable(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    aril_graph *g = aril_graph_new("inside");
    out[0] = in[0];
    aril_variable(g, "v", outside);
    aril_session_free(aril_session_new(g, aril_cpu()));
    aril_graph_free(g);
}

static void define_placeholder(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    aril_graph *g = aril_graph_new("inside");
    out[0] = in[0];
    aril_placeholder(g, "x", ARIL_SHAPE(3), ARIL_F32);
    aril_graph_free(g);
}

static void initialize_graph(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    out[0] = in[0];
    aril_graph_initialize(ctx);
}

TEST(traces_neither_define_nor_run_graphs)
{
    ARIL_SCOPE;
    aril_graph *g = aril_graph_new("outside");
    outside = full(ARIL_SHAPE(3), 9);
    fed = aril_placeholder(g, "x", ARIL_SHAPE(3), ARIL_F32);
    aril_tensor *v = aril_variable(g, "v", full(ARIL_SHAPE(3), 4));
    fetched = aril_assign_add(v, fed);
    session = aril_session_new(g, aril_cpu());
    check_refused(run_session, NULL, "session_run: not possible inside a trace");
    check_refused(define_variable, NULL, "variable: not possible inside a trace");
    check_refused(define_placeholder, NULL, "placeholder: not possible inside a trace");
    check_refused(initialize_graph, g, "graph_initialize: not possible inside a trace");
    check_equal(aril_variable_value(v), full(ARIL_SHAPE(3), 4), "the variable");
    aril_session_free(session);
    aril_graph_free(g);
}

/* ---- programs of defined graphs ---- */

static void check_no_function(aril_list inputs, aril_list outputs, aril_list updates,
                              const char *says)
{
    CHECK(!aril_graph_function(inputs, outputs, updates));
    check_error(says);
}

TEST(wrong_lists_of_graph_functions_and_sessions_are_named)
{
    ARIL_SCOPE;
    aril_graph *g = aril_graph_new("lists");
    aril_tensor *x = aril_placeholder(g, "x", ARIL_SHAPE(3), ARIL_F32), *y = aril_neg(x), *out[1];
    const aril_list empty = { 0 }, no_list = { 1, NULL }, ys = { 1, &y }, xs = { 1, &x };
    check_no_function(no_list, ys, empty, "graph_function: the list of inputs is NULL");
    check_no_function(xs, no_list, empty, "graph_function: the list of outputs is NULL");
    check_no_function(xs, ys, no_list, "graph_function: the list of updates is NULL");
    check_no_function((aril_list){ -1, &x }, ys, empty, "graph_function: there are -1 inputs");
    check_no_function(xs, (aril_list){ -7, &y }, empty, "graph_function: there are -7 outputs");
    check_no_function(xs, empty, empty, "graph_function: there are no outputs and no updates");
    check_no_function(ARIL_LIST(x, x), ys, empty,
                      "graph_function: inputs 0 and 1 are the same placeholder 'x'");
    aril_session *s = aril_session_new(g, aril_cpu());
    CHECK(aril_session_run(s, (aril_feeds){ 1, NULL }, ys, out) < 0);
    check_error("session_run: the list of feeds is NULL");
    CHECK(aril_session_run(s, (aril_feeds){ -1, NULL }, ys, out) < 0);
    check_error("session_run: there are -1 feeds");
    CHECK(aril_session_run(s, (aril_feeds){ 0 }, no_list, out) < 0);
    check_error("session_run: the list of fetches is NULL");
    CHECK(aril_session_run(s, (aril_feeds){ 0 }, ys, NULL) < 0);
    check_error("session_run: there is no room for results");
    aril_session_free(s);
    aril_graph_free(g);
}

TEST(inputs_of_a_graph_function_have_the_dtypes_of_its_placeholders)
{
    ARIL_SCOPE;
    aril_graph *g = aril_graph_new("dtypes");
    aril_tensor *x = aril_placeholder(g, "x", ARIL_SHAPE(-1), ARIL_F32), *out[1];
    aril_tensor *y = aril_tanh(aril_mul_scalar(aril_exp(x), 0.5));
    aril_program *p = aril_graph_function(ARIL_LIST(x), ARIL_LIST(y), (aril_list){ 0 });
    static const aril_dtype others[] = { ARIL_U8, ARIL_F16, ARIL_F64, ARIL_I64 };
    for (int i = 0; i < 4; i++) {
        aril_tensor *ones = aril_ones(ARIL_SHAPE(1003), others[i], aril_cpu());
        CHECK(aril_program_run(p, ARIL_LIST(ones), out) < 0);
        check_error("input 0 is the placeholder 'x' of dtype f32, but got");
        CHECK(aril_tensor_status(out[0]) < 0);
    }
    CHECK_INT(aril_program_run(p, ARIL_LIST(full(ARIL_SHAPE(5), 1)), out), ARIL_OK);
    aril_program_free(p);
    aril_graph_free(g);
}

/* ---- costs and drawings ---- */

TEST(costs_are_those_of_inputs_that_the_trace_is_for)
{
    ARIL_SCOPE;
    const aril_shape open = ARIL_SHAPE(-1, 5);
    FILE *to = tmpfile();
    aril_tensor *out[1];
    for (int sized = 0; sized < 2; sized++) {
        aril_program *p =
            aril_jit(plus_one, NULL, (aril_jit_opts){ .sizes = &open, .n_sizes = sized });
        CHECK_INT(aril_program_run(p, ARIL_LIST(full(ARIL_SHAPE(10, 5), 1)), out), ARIL_OK);
        CHECK_INT(aril_program_costs(p, ARIL_LIST(full(ARIL_SHAPE(10, 5), 1)), to), ARIL_OK);
        aril_status other = aril_program_costs(p, ARIL_LIST(full(ARIL_SHAPE(20, 5), 1)), to);
        CHECK_INT(other, sized ? ARIL_OK : ARIL_ERR_SHAPE);
        aril_clear_error();
        CHECK(aril_program_costs(p, ARIL_LIST(full(ARIL_SHAPE(10, 4), 1)), to) < 0);
        check_error("input 0 has shape [10,4], but the graph was built for");
        aril_tensor *bytes = aril_ones(ARIL_SHAPE(10, 5), ARIL_U8, aril_cpu());
        CHECK(aril_program_costs(p, ARIL_LIST(bytes), to) < 0);
        check_error("input 0 is u8, expected f32");
        FILE *none_left = fopen("/dev/full", "w");
        if (none_left) {
            CHECK_INT(aril_program_costs(p, ARIL_LIST(full(ARIL_SHAPE(10, 5), 1)), none_left),
                      ARIL_ERR_IO);
            check_error("costs: cannot write the table");
            fclose(none_left);
        }
        aril_program_free(p);
    }
    fclose(to);
}

/* Its placeholders are given in another order than they were made in, and one is not needed. */
TEST(a_graph_function_is_drawn_with_values)
{
    ARIL_SCOPE;
    const char *path = temp_path("drawn.dot");
    char text[8192];
    aril_graph *g = aril_graph_new("drawn");
    aril_tensor *a = aril_placeholder(g, "a", ARIL_SHAPE(-1), ARIL_F32);
    aril_tensor *b = aril_placeholder(g, "b", ARIL_SHAPE(2, 2), ARIL_F32);
    aril_tensor *c = aril_placeholder(g, "c", ARIL_SHAPE(-1), ARIL_F32);
    aril_tensor *y = aril_sub(a, c);
    aril_neg(b);
    aril_program *p = aril_graph_function(ARIL_LIST(c, a), ARIL_LIST(y), (aril_list){ 0 });
    aril_tensor *nine = full(ARIL_SHAPE(1), 9), *four = full(ARIL_SHAPE(1), 4);
    CHECK_INT(aril_program_draw(p, path, ARIL_LIST(four, nine)), ARIL_OK);
    CHECK_MSG(aril_ok(), "%s", aril_error());
    FILE *from = fopen(path, "r");
    CHECK(from);
    text[from ? fread(text, 1, sizeof text - 1, from) : 0] = '\0';
    if (from) fclose(from);
    CHECK_MSG(strstr(text, "sub") && !strstr(text, "neg"), "%s", text);
    CHECK_MSG(strstr(text, "9") && strstr(text, "4") && strstr(text, "5"), "%s", text);
    FILE *to = tmpfile();
    CHECK_INT(aril_program_costs(p, ARIL_LIST(four, nine), to), ARIL_OK);
    CHECK(aril_program_costs(p, ARIL_LIST(four), to) < 0);
    check_error("got 1 inputs, expected 2");
    fclose(to);
    aril_program_free(p);
    aril_graph_free(g);
}

/* ---- results of runs that fail ---- */

static void one_or_four(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    int n = aril_dtype_of(in[0]) == ARIL_F32 ? 4 : 1;
    for (int i = 0; i < n; i++) out[i] = aril_add_scalar(in[0], i);
}

TEST(a_run_that_fails_poisons_no_more_than_every_signature_returns)
{
    ARIL_SCOPE;
    aril_program *p = aril_jit(one_or_four, NULL, (aril_jit_opts){ 0 });
    aril_tensor *out[4], *longs = aril_ones(ARIL_SHAPE(2), ARIL_I64, aril_cpu());
    CHECK_INT(aril_program_run(p, ARIL_LIST(longs), out), ARIL_OK);
    CHECK_INT(aril_program_run(p, ARIL_LIST(full(ARIL_SHAPE(2), 1)), out), ARIL_OK);
    CHECK_INT(aril_program_results(p), 4);
    aril_tensor *poison = aril_add(longs, aril_ones(ARIL_SHAPE(3), ARIL_I64, aril_cpu()));
    aril_clear_error();
    aril_tensor *one[2] = { NULL, longs };
    CHECK(aril_program_run(p, ARIL_LIST(poison), one) < 0);
    aril_clear_error();
    CHECK(one[0] && aril_tensor_status(one[0]) < 0);
    CHECK(one[1] == longs);
    aril_program_free(p);
}

TEST(a_bound_of_results_is_checked)
{
    CHECK(!aril_jit(plus_one, NULL, (aril_jit_opts){ .max_results = INT_MAX }));
    check_error("jit: max_results is 2147483647, expected at most 1048576");
    CHECK(!aril_jit(plus_one, NULL, (aril_jit_opts){ .n_sizes = -1 }));
    check_error("jit: n_sizes is -1, expected 0 or more");
}

/* ---- what a traced function does on the host ---- */

static void seeded(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    out[0] = aril_add(in[0], aril_rand(ARIL_SHAPE(4), ARIL_F32, aril_cpu()));
    aril_seed(5);
    out[1] = aril_rand(ARIL_SHAPE(4), ARIL_F32, aril_cpu());
    out[2] = aril_rand(ARIL_SHAPE(4), ARIL_F32, aril_cpu());
}

static void seeded_for_a_while(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    aril_generator *g = aril_default_generator();
    aril_rng_state here = aril_generator_state(g);
    aril_seed(6);
    out[0] = aril_add(in[0], aril_rand(ARIL_SHAPE(4), ARIL_F32, aril_cpu()));
    aril_generator_set_state(g, here);
    out[1] = aril_rand(ARIL_SHAPE(4), ARIL_F32, aril_cpu());
    out[2] = aril_rand(ARIL_SHAPE(4), ARIL_F32, aril_cpu());
}

TEST(seeds_in_a_traced_function_act_in_each_run)
{
    ARIL_SCOPE;
    aril_fn *const fns[] = { seeded, seeded_for_a_while };
    aril_generator *g = aril_default_generator();
    aril_tensor *x = full(ARIL_SHAPE(4), 0), *eager[3], *got[3];
    for (int k = 0; k < 2; k++) {
        aril_program *p = aril_jit(fns[k], NULL, (aril_jit_opts){ 0 });
        for (int i = 0; i < 4; i++) {
            const aril_rng_state from = { i < 2 ? 5 : 70 + (uint64_t)i, 3 * (uint64_t)i };
            aril_generator_set_state(g, from);
            fns[k](NULL, &x, eager);
            aril_rng_state want = aril_generator_state(g);
            aril_generator_set_state(g, from);
            CHECK_INT(aril_program_run(p, ARIL_LIST(x), got), ARIL_OK);
            aril_rng_state now = aril_generator_state(g);
            for (int r = 0; r < 3; r++) check_equal(got[r], eager[r], "numbers");
            CHECK(now.seed == want.seed && now.calls == want.calls);
        }
        aril_program_free(p);
    }
}

static void seeds_a_trip(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    aril_seed(5);
    out[0] = aril_dropout(in[0], 0.5, (aril_dropout_opts){ 0 });
}

static void seeds_trips(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    aril_map(seeds_a_trip, ctx, ARIL_LIST(in[0]), 1, out);
}

TEST(bodies_do_not_seed)
{
    check_refused(seeds_trips, NULL, "seed: a branch or the body of a loop cannot seed");
}

static void count_in_borrowed_memory(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    aril_tensor *counter = aril_borrow(ctx, ARIL_SHAPE(2), ARIL_F32, NULL, NULL);
    aril_add_(counter, in[0]);
    out[0] = aril_mul_scalar(counter, 10);
}

TEST(writes_to_borrowed_memory_are_made_in_each_run)
{
    ARIL_SCOPE;
    static float memory[2];
    aril_program *p = aril_jit(count_in_borrowed_memory, memory, (aril_jit_opts){ 0 });
    aril_tensor *x = full(ARIL_SHAPE(2), 1), *out[1];
    for (int i = 1; i <= 3; i++) {
        CHECK_INT(aril_program_run(p, ARIL_LIST(x), out), ARIL_OK);
        CHECK(memory[0] == (float)i && memory[1] == (float)i);
        check_equal(out[0], full(ARIL_SHAPE(2), 10 * i), "the result");
    }
    aril_program_free(p);
}

static void format_state(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    aril_add_scalar_(outside, 1);
    aril_format(ctx, 80, outside);
    out[0] = in[0];
}

TEST(traces_print_no_values)
{
    ARIL_SCOPE;
    char text[80];
    outside = full(ARIL_SHAPE(2), 1);
    aril_program *p = aril_jit(format_state, text, (aril_jit_opts){ 0 });
    aril_tensor *out[1];
    CHECK_INT(aril_program_run(p, ARIL_LIST(full(ARIL_SHAPE(2), 1)), out), ARIL_OK);
    CHECK_STR(text, "tensor(..., size=(2,))");
    aril_format(text, sizeof text, outside);
    CHECK_STR(text, "tensor([2., 2.])");
    aril_program_free(p);
}
