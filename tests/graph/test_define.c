/* Define and run: placeholders, variables, gradients, assignments, sessions. */
#include "aril/aril.h"
#include "support/compare.h"
#include "support/device.h"
#include "support/test.h"

#include <string.h>

enum { D = 5, H = 4 };

static aril_tensor *numbers(aril_shape shape, uint64_t seed)
{
    aril_generator *g = aril_generator_new(seed);
    aril_tensor *t = aril_randn_from(g, shape, ARIL_F32, aril_cpu());
    aril_generator_free(g);
    return t;
}

static void check_near(aril_tensor *got, aril_tensor *want, const char *what)
{
    char *why = test_difference_in_value(got, want, 1e-6, 1e-6);
    CHECK_MSG(!why, "%s: %s", what, why);
}

static bool are_equal(aril_tensor *a, aril_tensor *b)
{
    return test_difference_in_value(a, b, 0, 0) == NULL;
}

static aril_tensor *loss_of(aril_tensor *x, aril_tensor *y, aril_tensor *w1, aril_tensor *w2)
{
    aril_tensor *h = aril_relu(aril_matmul(x, w1));
    aril_tensor *diff = aril_sub(aril_matmul(h, w2), y);
    return aril_mean(aril_sum(aril_square(diff), ARIL_AXES(1)), ARIL_ALL);
}

/* Variables made on the session's device, or on the CPU; fed values likewise. */
TEST(a_graph_runs_on_the_device_of_its_session)
{
    if (test_on_cpu()) SKIP("about devices");
    aril_tensor *first = numbers(ARIL_SHAPE(D, H), 3), *values = numbers(ARIL_SHAPE(2, D), 4);
    for (int k = 0; k < 4; k++) {
        ARIL_SCOPE;
        aril_device of_variable = k & 1 ? test_device() : aril_cpu();
        aril_device of_feed = k & 2 ? test_device() : aril_cpu();
        aril_graph *g = aril_graph_new("line");
        aril_tensor *x = aril_placeholder(g, "x", ARIL_SHAPE(-1, D), ARIL_F32), *dw, *out[2];
        aril_tensor *w = aril_variable(g, "w", aril_to(first, of_variable));
        CHECK(aril_device_equal(aril_device_of(aril_variable_value(w)), of_variable));
        aril_tensor *loss = aril_sum(aril_square(aril_matmul(x, w)), ARIL_ALL);
        CHECK_INT(aril_gradients(loss, ARIL_LIST(w), &dw, (aril_grad_opts){ 0 }), ARIL_OK);
        aril_tensor *update = aril_assign_sub(w, aril_mul_scalar(dw, 0.01));
        aril_session *s = aril_session_new(g, test_device());
        aril_feeds feeds = ARIL_FEEDS({ x, aril_to(values, of_feed) });
        CHECK_INT(aril_session_run(s, feeds, ARIL_LIST(loss, update), out), ARIL_OK);
        CHECK(aril_device_equal(aril_device_of(out[0]), test_device()));
        CHECK(aril_device_equal(aril_device_of(aril_variable_value(w)), test_device()));
        aril_tensor *want = aril_sum(aril_square(aril_matmul(values, first)), ARIL_ALL);
        check_near(aril_to(out[0], aril_cpu()), want, "loss");
        aril_session_free(s);
        aril_graph_free(g);
    }
    CHECK_MSG(aril_ok(), "%s", aril_error());
}

TEST(sessions_and_functions_hold_their_graph)
{
    for (int k = 0; k < 2; k++) {
        ARIL_SCOPE;
        aril_graph *g = aril_graph_new("held");
        aril_tensor *x = aril_placeholder(g, "x", ARIL_SHAPE(-1, D), ARIL_F32), *out;
        aril_tensor *w = aril_variable(g, "w", numbers(ARIL_SHAPE(D, H), 3));
        aril_tensor *y = aril_matmul(x, w), *values = numbers(ARIL_SHAPE(2, D), 4);
        aril_tensor *want = aril_matmul(values, aril_variable_value(w));
        aril_session *s = aril_session_new(g, aril_cpu());
        aril_program *p = aril_graph_function(ARIL_LIST(x), ARIL_LIST(y), (aril_list){ 0 });
        aril_graph_free(g);
        if (k) aril_session_free(s);
        if (!k) aril_program_free(p);
        for (int i = 0; i < 2; i++) {
            if (k)
                CHECK_INT(aril_program_run(p, ARIL_LIST(values), &out), ARIL_OK);
            else
                CHECK_INT(aril_session_run(s, ARIL_FEEDS({ x, values }), ARIL_LIST(y), &out),
                          ARIL_OK);
            CHECK(are_equal(out, want));
        }
        if (k) aril_program_free(p);
        if (!k) aril_session_free(s);
    }
}

TEST(a_two_layer_network_trains_in_a_session)
{
    ARIL_SCOPE;
    aril_tensor *a = numbers(ARIL_SHAPE(D, H), 1), *b = numbers(ARIL_SHAPE(H, D), 2);
    aril_graph *g = aril_graph_new("two_layer");
    aril_tensor *x = aril_placeholder(g, "x", ARIL_SHAPE(-1, D), ARIL_F32);
    aril_tensor *y = aril_placeholder(g, "y", ARIL_SHAPE(-1, D), ARIL_F32);
    aril_tensor *w1 = aril_variable(g, "w1", a), *w2 = aril_variable(g, "w2", b), *grad[2];
    aril_tensor *loss = loss_of(x, y, w1, w2);
    CHECK_INT(aril_gradients(loss, ARIL_LIST(w1, w2), grad, (aril_grad_opts){ 0 }), ARIL_OK);
    aril_tensor *up1 = aril_assign_sub(w1, aril_mul_scalar(grad[0], 0.01));
    aril_tensor *up2 = aril_assign_sub(w2, aril_mul_scalar(grad[1], 0.01));
    CHECK_MSG(aril_ok(), "%s", aril_error());
    aril_session *s = aril_session_new(g, aril_cpu());
    aril_tensor *v1 = aril_parameter(aril_copy(a)), *v2 = aril_parameter(aril_copy(b));
    for (int t = 0; t < 5; t++) {
        ARIL_SCOPE;
        aril_tensor *xs = numbers(ARIL_SHAPE(3 + t, D), 10),
                    *ys = numbers(ARIL_SHAPE(3 + t, D), 11);
        aril_tensor *out[3];
        CHECK_INT(aril_session_run(s, ARIL_FEEDS({ x, xs }, { y, ys }), ARIL_LIST(loss, up1, up2),
                                   out),
                  ARIL_OK);
        CHECK_MSG(aril_ok(), "%s", aril_error());
        aril_tensor *want = loss_of(xs, ys, v1, v2);
        aril_backward(want);
        ARIL_NO_GRAD;
        aril_sub_(v1, aril_mul_scalar(aril_grad(v1), 0.01));
        aril_sub_(v2, aril_mul_scalar(aril_grad(v2), 0.01));
        aril_zero_grad(v1);
        aril_zero_grad(v2);
        check_near(out[0], want, "loss");
        check_near(out[1], v1, "the new w1");
        check_near(aril_variable_value(w2), v2, "w2");
    }
    /* a second session shares the variables, and initialization sets them back */
    aril_session *other = aril_session_new(g, aril_cpu());
    aril_tensor *got[1];
    CHECK_INT(aril_session_run(other, (aril_feeds){ 0 }, ARIL_LIST(w1), got), ARIL_OK);
    check_near(got[0], v1, "w1 in another session");
    CHECK_INT(aril_graph_initialize(g), ARIL_OK);
    CHECK_INT(aril_session_run(other, (aril_feeds){ 0 }, ARIL_LIST(w1), got), ARIL_OK);
    check_near(got[0], a, "w1 at the beginning");
    aril_session_free(s);
    aril_session_free(other);
    aril_graph_free(g);
    aril_release(v1);
    aril_release(v2);
}

TEST(only_what_a_fetch_needs_runs)
{
    ARIL_SCOPE;
    aril_graph *g = aril_graph_new(NULL);
    aril_tensor *x = aril_placeholder(g, "x", ARIL_SHAPE(2), ARIL_F32);
    aril_tensor *y = aril_placeholder(g, "y", ARIL_SHAPE(2), ARIL_F32);
    aril_tensor *n = aril_variable(g, "n", aril_zeros(ARIL_SHAPE(), ARIL_F32, aril_cpu()));
    aril_tensor *twice = aril_mul_scalar(x, 2), *both = aril_add(twice, y), *out[1];
    aril_tensor *up = aril_assign_add(n, aril_sum(x, ARIL_ALL));
    aril_session *s = aril_session_new(g, aril_cpu());
    aril_tensor *ones = aril_ones(ARIL_SHAPE(2), ARIL_F32, aril_cpu());
    CHECK_INT(aril_session_run(s, ARIL_FEEDS({ x, ones }), ARIL_LIST(twice), out), ARIL_OK);
    CHECK_NEAR(aril_item(aril_sum(out[0], ARIL_ALL)), 4, 0);
    CHECK_NEAR(aril_item(aril_variable_value(n)), 0, 0);
    CHECK_INT(aril_session_run(s, ARIL_FEEDS({ x, ones }), ARIL_LIST(up), out), ARIL_OK);
    CHECK_INT(aril_session_run(s, ARIL_FEEDS({ x, ones }), ARIL_LIST(up), out), ARIL_OK);
    CHECK_NEAR(aril_item(aril_variable_value(n)), 4, 0);
    CHECK_NEAR(aril_item(out[0]), 4, 0);
    CHECK_MSG(aril_ok(), "%s", aril_error());
    CHECK_INT(aril_session_run(s, ARIL_FEEDS({ x, ones }), ARIL_LIST(both), out), ARIL_ERR_ARG);
    CHECK_MSG(strstr(aril_error(), "the placeholder 'y' was not fed"), "%s", aril_error());
    aril_clear_error();
    aril_session_free(s);
    aril_graph_free(g);
}

TEST(wrong_feeds_are_refused)
{
    ARIL_SCOPE;
    aril_graph *g = aril_graph_new(NULL), *other = aril_graph_new(NULL);
    aril_tensor *x = aril_placeholder(g, "x", ARIL_SHAPE(-1, 3), ARIL_F32);
    aril_tensor *z = aril_placeholder(other, "z", ARIL_SHAPE(3), ARIL_F32);
    aril_tensor *y = aril_exp(x), *out[1];
    aril_session *s = aril_session_new(g, aril_cpu());
    aril_tensor *good = numbers(ARIL_SHAPE(2, 3), 1), *wide = numbers(ARIL_SHAPE(2, 4), 1);
    aril_tensor *wrong_dtype = aril_cast(good, ARIL_F64);
    const struct {
        aril_feed feed;
        aril_tensor *fetch;
        const char *says;
    } cases[] = {
        { { x, wide }, y, "the placeholder 'x' has shape [?,3], but was fed [2,4]" },
        { { x, wrong_dtype }, y, "the placeholder 'x' is f32, but was fed f64" },
        { { y, good }, y, "feed 0 is not for a placeholder" },
        { { z, good }, y, "feed 0 is not for a placeholder of this graph" },
        { { good, good }, y, "expected a symbolic tensor" },
        { { x, y }, y, "symbolic" },
        { { x, good }, z, "fetch 0 belongs to another graph" },
        { { x, good }, good, "expected a symbolic tensor" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        aril_tensor *fetch = cases[i].fetch;
        CHECK(aril_session_run(s, (aril_feeds){ 1, &cases[i].feed }, ARIL_LIST(fetch), out) < 0);
        CHECK(aril_tensor_status(out[0]) < 0);
        CHECK_MSG(strstr(aril_error(), cases[i].says), "case %zu: %s", i, aril_error());
        aril_clear_error();
    }
    /* two graphs do not mix, and a symbolic tensor has no value */
    CHECK_INT(aril_tensor_status(aril_add(y, z)), ARIL_ERR_STATE);
    aril_clear_error();
    aril_item(aril_sum(y, ARIL_ALL));
    CHECK_MSG(strstr(aril_error(), "item: a symbolic tensor has no value") &&
                  strstr(aril_error(), "aril_cond"),
              "%s", aril_error());
    aril_clear_error();
    CHECK_INT(aril_tensor_status(aril_matmul(x, x)), ARIL_OK); /* [?,3] x [?,3] may fit */
    aril_tensor *mm = aril_matmul(x, x);
    CHECK(aril_session_run(s, ARIL_FEEDS({ x, good }), ARIL_LIST(mm), out) < 0);
    aril_clear_error();
    CHECK_INT(aril_tensor_status(aril_matmul(x, good)), ARIL_ERR_SHAPE);
    aril_clear_error();
    aril_add_(x, x);
    CHECK_MSG(strstr(aril_error(), "aril_assign"), "%s", aril_error());
    aril_clear_error();
    CHECK_INT(aril_tensor_status(aril_assign(x, y)), ARIL_ERR_ARG);
    CHECK_MSG(strstr(aril_error(), "got a placeholder"), "%s", aril_error());
    aril_clear_error();
    /* variables are changed by assignments only */
    aril_tensor *w = aril_variable(g, "w", good);
    {
        ARIL_NO_GRAD;
        aril_add_(w, w);
    }
    CHECK_MSG(strstr(aril_error(), "aril_assign"), "%s", aril_error());
    aril_clear_error();
    aril_tensor *a = aril_assign_add(w, w), *b = aril_assign(w, w), *two[2];
    CHECK_INT(aril_session_run(s, (aril_feeds){ 0 }, ARIL_LIST(a, b), two), ARIL_ERR_ARG);
    CHECK_MSG(strstr(aril_error(), "assign to the variable 'w'"), "%s", aril_error());
    aril_clear_error();
    CHECK_INT(aril_tensor_status(aril_assign(w, aril_sum(w, ARIL_ALL))), ARIL_ERR_SHAPE);
    aril_clear_error();
    CHECK_INT(aril_tensor_status(aril_assign(x, w)), ARIL_ERR_ARG);
    aril_clear_error();
    aril_session_free(s);
    aril_graph_free(g);
    aril_graph_free(other);
}

/* Theano's function(inputs, outputs, updates). */
TEST(sizes_that_depend_on_values_are_refused)
{
    aril_graph *g = aril_graph_new("classes");
    aril_tensor *i = aril_placeholder(g, "i", ARIL_SHAPE(4), ARIL_I64);
    CHECK_INT(aril_tensor_status(aril_one_hot(i, -1)), ARIL_ERR_STATE);
    CHECK_MSG(strstr(aril_error(), "depends on the values"), "%s", aril_error());
    aril_clear_error();
    CHECK_INT(aril_tensor_status(aril_one_hot(i, 3)), ARIL_OK);
    aril_graph_free(g);
}

TEST(names_are_unique_and_sizes_that_clash_are_named)
{
    ARIL_SCOPE;
    aril_graph *g = aril_graph_new("names");
    aril_tensor *x = aril_placeholder(g, "x", ARIL_SHAPE(-2, D), ARIL_F32), *out;
    aril_tensor *y = aril_placeholder(g, "x", ARIL_SHAPE(-2, D), ARIL_F32);
    aril_tensor *z = aril_add(aril_add(x, y), aril_placeholder(g, "x", ARIL_SHAPE(1), ARIL_F32));
    aril_session *s = aril_session_new(g, aril_cpu());
    aril_tensor *four = numbers(ARIL_SHAPE(4, D), 1), *five = numbers(ARIL_SHAPE(5, D), 1);
    CHECK_INT(aril_session_run(s, ARIL_FEEDS({ x, four }), ARIL_LIST(z), &out), ARIL_ERR_ARG);
    CHECK_MSG(strstr(aril_error(), "'x_1' was not fed"), "%s", aril_error());
    aril_clear_error();
    aril_tensor *w = aril_placeholder(g, "w", ARIL_SHAPE(-2), ARIL_F32);
    aril_tensor *u = aril_mul(aril_sum(x, ARIL_AXES(1)), w);
    aril_feeds feeds = ARIL_FEEDS({ x, four }, { w, aril_select(five, 1, 0) });
    CHECK(aril_session_run(s, feeds, ARIL_LIST(u), &out) < 0);
    CHECK_MSG(strstr(aril_error(), "axis 0 of 'x' has 4") && strstr(aril_error(), "here 5"), "%s",
              aril_error());
    aril_clear_error();
    feeds = ARIL_FEEDS({ x, four }, { y, four });
    CHECK_INT(aril_session_run(s, feeds, ARIL_LIST(aril_add(x, y)), &out), ARIL_OK);
    aril_session_free(s);
    aril_graph_free(g);
}

TEST(a_function_of_a_graph)
{
    ARIL_SCOPE;
    aril_graph *g = aril_graph_new("count");
    aril_tensor *x = aril_placeholder(g, "x", ARIL_SHAPE(-1), ARIL_F32);
    aril_tensor *n = aril_variable(g, "n", aril_zeros(ARIL_SHAPE(), ARIL_F32, aril_cpu()));
    aril_tensor *total = aril_sum(x, ARIL_ALL), *mean = aril_mean(x, ARIL_ALL);
    aril_tensor *up = aril_assign_add(n, total);
    aril_program *f = aril_graph_function(ARIL_LIST(x), ARIL_LIST(mean), ARIL_LIST(up));
    CHECK_MSG(f && aril_ok(), "%s", aril_error());
    for (int i = 1; i < 4; i++) {
        aril_tensor *out[1];
        aril_tensor *xs = aril_full(ARIL_SHAPE(i), i, ARIL_F32, aril_cpu());
        CHECK_INT(aril_program_run(f, ARIL_LIST(xs), out), ARIL_OK);
        CHECK_NEAR(aril_item(out[0]), i, 0);
    }
    CHECK_NEAR(aril_item(aril_variable_value(n)), 14, 0);
    aril_tensor *leaf = aril_ones(ARIL_SHAPE(2), ARIL_F32, aril_cpu()), *y;
    aril_set_requires_grad(leaf, true);
    CHECK(aril_program_run(f, ARIL_LIST(aril_neg(leaf)), &y) < 0);
    CHECK_MSG(strstr(aril_error(), "aril_detach"), "%s", aril_error());
    aril_clear_error();
    CHECK(!aril_graph_function((aril_list){ 0 }, ARIL_LIST(mean), (aril_list){ 0 }));
    CHECK_MSG(strstr(aril_error(), "depend on the placeholder 'x'"), "%s", aril_error());
    aril_clear_error();
    CHECK(!aril_graph_function(ARIL_LIST(x), ARIL_LIST(mean), ARIL_LIST(up, total)));
    CHECK_MSG(strstr(aril_error(), "update 1 changes no variable"), "%s", aril_error());
    aril_clear_error();
    aril_program_free(f);
    aril_graph_free(g);
}

TEST(values_that_do_not_fit_a_variable_are_refused)
{
    ARIL_SCOPE;
    aril_graph *g = aril_graph_new("shapes");
    aril_tensor *w = aril_variable(g, "w", aril_zeros(ARIL_SHAPE(2, 3), ARIL_F32, aril_cpu()));
    aril_tensor *(*const assign[])(aril_tensor *, aril_tensor *) = { aril_assign, aril_assign_add,
                                                                     aril_assign_sub };
    const char *const says[] = { "assign: the variable is f32 [2,3], but the value f32 [4]",
                                 "assign_add: the variable is f32 [2,3], but the value f32 [4]",
                                 "assign_sub: the variable is f32 [2,3], but the value f32 [4]" };
    for (int i = 0; i < 3; i++) {
        aril_tensor *four = aril_ones(ARIL_SHAPE(4), ARIL_F32, aril_cpu());
        CHECK(aril_tensor_status(assign[i](w, four)) == ARIL_ERR_SHAPE);
        CHECK_MSG(strstr(aril_error(), says[i]), "%s", aril_error());
        aril_clear_error();
        aril_tensor *row = aril_ones(ARIL_SHAPE(3), ARIL_F32, aril_cpu());
        CHECK_INT(aril_tensor_status(assign[i](w, row)), ARIL_OK);
    }
    aril_graph_free(g);
}

/* The text of a program's graph; in static memory. */
static const char *text_of(aril_program *p)
{
    static char text[8192];
    FILE *f = tmpfile();
    aril_program_print(p, f);
    rewind(f);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    return text;
}

/* Passes, as of compiled functions. */
TEST(parts_of_a_graph_are_optimized)
{
    ARIL_SCOPE;
    aril_graph *g = aril_graph_new("chain");
    aril_tensor *x = aril_placeholder(g, "x", ARIL_SHAPE(-1, D), ARIL_F32);
    aril_tensor *w = aril_variable(g, "w", numbers(ARIL_SHAPE(D, D), 1));
    aril_tensor *y = aril_matmul(x, w), *unused = aril_exp(y);
    for (int i = 0; i < 3; i++) y = aril_tanh(aril_add_scalar(y, i));
    aril_tensor *same = aril_sub(y, aril_mul_scalar(y, 1)); /* x * 1 is left out */
    aril_program *f = aril_graph_function(ARIL_LIST(x), ARIL_LIST(y, same), (aril_list){ 0 });
    CHECK_MSG(f && aril_ok(), "%s", aril_error());
    const char *text = text_of(f);
    CHECK_MSG(strstr(text, "fused_2(") && !strstr(text, "exp"), "%s", text);
    aril_session *s = aril_session_new(g, aril_cpu());
    aril_tensor *xs = numbers(ARIL_SHAPE(3, D), 2), *out[2], *by_function[2], *want;
    CHECK_INT(aril_session_run(s, ARIL_FEEDS({ x, xs }), ARIL_LIST(y, same), out), ARIL_OK);
    CHECK_INT(aril_program_run(f, ARIL_LIST(xs), by_function), ARIL_OK);
    want = aril_matmul(xs, aril_variable_value(w));
    for (int i = 0; i < 3; i++) want = aril_tanh(aril_add_scalar(want, i));
    check_near(out[0], want, "session");
    CHECK(are_equal(out[0], by_function[0]));
    CHECK(are_equal(out[1], aril_zeros_like(want)));
    CHECK_INT(aril_session_run(s, ARIL_FEEDS({ x, xs }), ARIL_LIST(unused), out), ARIL_OK);
    aril_program_free(f);
    aril_session_free(s);
    aril_graph_free(g);
}

/* More sets of fetches than a session keeps programs for, and a graph that grows meanwhile. */
TEST(many_sets_of_fetches)
{
    ARIL_SCOPE;
    enum { MANY = 80 };
    aril_graph *g = aril_graph_new(NULL);
    aril_tensor *x = aril_placeholder(g, "x", ARIL_SHAPE(4), ARIL_F32), *y[MANY], *out[2];
    aril_session *s = aril_session_new(g, aril_cpu());
    aril_tensor *xs = aril_ones(ARIL_SHAPE(4), ARIL_F32, aril_cpu());
    for (int round = 0; round < 3; round++)
        for (int i = 0; i < MANY; i++) {
            ARIL_SCOPE;
            if (round == 0) y[i] = i ? aril_add(y[i - 1], x) : x;
            CHECK_INT(aril_session_run(s, ARIL_FEEDS({ x, xs }), ARIL_LIST(y[i], y[i / 2]), out),
                      ARIL_OK);
            CHECK_NEAR(aril_item(aril_select(out[0], 0, 1)), i + 1, 0);
            CHECK_NEAR(aril_item(aril_select(out[1], 0, 1)), i / 2 + 1, 0);
        }
    aril_session_free(s);
    aril_graph_free(g);
}

/* A fetched assignment is a value of its own: later runs do not change it. */
TEST(fetched_assignments_stay_as_they_are)
{
    ARIL_SCOPE;
    aril_graph *g = aril_graph_new(NULL);
    aril_tensor *w = aril_variable(g, "w", aril_zeros(ARIL_SHAPE(100), ARIL_F32, aril_cpu()));
    aril_tensor *up = aril_assign_add(w, aril_ones(ARIL_SHAPE(100), ARIL_F32, aril_cpu()));
    aril_session *s = aril_session_new(g, aril_cpu());
    aril_tensor *out[3][2];
    for (int i = 0; i < 3; i++)
        CHECK_INT(aril_session_run(s, (aril_feeds){ 0 }, ARIL_LIST(up, up), out[i]), ARIL_OK);
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 2; k++) CHECK_NEAR(aril_item(aril_select(out[i][k], 0, 7)), i + 1, 0);
    aril_fill_(out[2][0], 9);
    CHECK_NEAR(aril_item(aril_select(out[2][1], 0, 7)), 3, 0);
    CHECK_NEAR(aril_item(aril_select(aril_variable_value(w), 0, 7)), 3, 0);
    aril_session_free(s);
    aril_graph_free(g);
}

/* Parts of a graph on a device, values with and without one, for sessions on either. */
TEST(nodes_are_placed_on_devices)
{
    aril_device there = test_device();
    aril_tensor *first = numbers(ARIL_SHAPE(D, H), 3), *xs = numbers(ARIL_SHAPE(2, D), 4);
    aril_tensor *shift = numbers(ARIL_SHAPE(H), 5);
    aril_tensor *want = aril_tanh(aril_add(aril_matmul(xs, first), shift));
    for (int k = 0; k < 4; k++) {
        ARIL_SCOPE;
        aril_device of_session = k & 1 ? there : aril_cpu(), of_node = k & 2 ? there : aril_cpu();
        aril_graph *g = aril_graph_new("placed");
        aril_tensor *x = aril_placeholder(g, "x", ARIL_SHAPE(-1, D), ARIL_F32), *out[3], *dw;
        aril_tensor *w = aril_variable(g, "w", first), *h = aril_matmul(x, w), *y;
        aril_tensor *scale = aril_variable(g, "scale", aril_full(ARIL_SHAPE(), 2, ARIL_F32, there));
        {
            ARIL_DEVICE(of_node);
            y = aril_tanh(aril_add(h, shift));
        }
        aril_tensor *z = aril_add(aril_neg(x), aril_to(xs, there)); /* a value with a device */
        aril_tensor *loss = aril_sum(aril_mul(y, scale), ARIL_ALL); /* outside of the block again */
        CHECK_INT(aril_gradients(loss, ARIL_LIST(w), &dw, (aril_grad_opts){ 0 }), ARIL_OK);
        aril_session *s = aril_session_new(g, of_session);
        CHECK_INT(aril_session_run(s, ARIL_FEEDS({ x, xs }), ARIL_LIST(y, z, dw), out), ARIL_OK);
        CHECK_MSG(aril_ok(), "%s", aril_error());
        CHECK(aril_device_equal(aril_device_of(out[0]), of_node));
        CHECK(aril_device_equal(aril_device_of(out[1]), of_session));
        check_near(aril_to(out[0], aril_cpu()), want, "placed");
        check_near(aril_to(out[1], aril_cpu()), aril_zeros_like(xs), "a constant elsewhere");
        aril_tensor *g_h = aril_sub(aril_ones_like(want), aril_square(want));
        g_h = aril_mul_scalar(aril_matmul(aril_t(xs), g_h), 2);
        check_near(aril_to(out[2], aril_cpu()), g_h, "gradient");
        aril_session_free(s);
        aril_graph_free(g);
    }
}

/* Each run draws other numbers, and the gradient sees the mask of its run. */
TEST(random_nodes_draw_in_each_run)
{
    ARIL_SCOPE;
    aril_graph *g = aril_graph_new(NULL);
    aril_tensor *x = aril_placeholder(g, "x", ARIL_SHAPE(64), ARIL_F32), *dx;
    aril_tensor *y = aril_dropout(x, 0.5, (aril_dropout_opts){ 0 });
    CHECK_INT(aril_gradients(aril_sum(y, ARIL_ALL), ARIL_LIST(x), &dx, (aril_grad_opts){ 0 }),
              ARIL_OK);
    aril_session *s = aril_session_new(g, aril_cpu());
    aril_tensor *ones = aril_ones(ARIL_SHAPE(64), ARIL_F32, aril_cpu()), *first = NULL;
    aril_seed(4);
    for (int i = 0; i < 3; i++) {
        aril_tensor *out[2];
        CHECK_INT(aril_session_run(s, ARIL_FEEDS({ x, ones }), ARIL_LIST(y, dx), out), ARIL_OK);
        CHECK(are_equal(out[0], out[1]));
        if (first) CHECK(!are_equal(out[0], first));
        if (!first) first = out[0];
    }
    aril_seed(4);
    check_near(first, aril_dropout(ones, 0.5, (aril_dropout_opts){ 0 }), "the mask of eager mode");
    aril_session_free(s);
    aril_graph_free(g);
}

static void drop(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    out[0] = aril_dropout(in[0], 0.5, (aril_dropout_opts){ 0 });
}

static void drop_rows(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    aril_map(drop, ctx, ARIL_LIST(in[0]), 1, out);
}

/* The masks of the run are those of what is computed again, also where the same numbers were drawn
 * while the graph was defined. */
static void check_checkpoints(aril_fn *fn)
{
    ARIL_SCOPE;
    aril_graph *g = aril_graph_new(NULL);
    aril_tensor *x = aril_placeholder(g, "x", ARIL_SHAPE(4, 32), ARIL_F32), *y[2], *dx[2];
    aril_tensor *w[2], *out[4];
    for (int i = 0; i < 2; i++) {
        aril_seed(5);
        w[i] =
            aril_variable(g, i ? "w1" : "w0", aril_ones(ARIL_SHAPE(4, 32), ARIL_F32, aril_cpu()));
        CHECK_INT(aril_checkpoint(fn, NULL, ARIL_LIST(aril_mul(x, w[i])), 1, &y[i]), ARIL_OK);
    }
    aril_tensor *sum = aril_sum(aril_add(y[0], y[1]), ARIL_ALL);
    CHECK_INT(aril_gradients(sum, ARIL_LIST(w[0], w[1]), dx, (aril_grad_opts){ 0 }), ARIL_OK);
    aril_session *s = aril_session_new(g, aril_cpu());
    aril_tensor *ones = aril_ones(ARIL_SHAPE(4, 32), ARIL_F32, aril_cpu());
    for (int i = 0; i < 3; i++) {
        CHECK_INT(aril_session_run(s, ARIL_FEEDS({ x, ones }), ARIL_LIST(y[0], y[1], dx[0], dx[1]),
                                   out),
                  ARIL_OK);
        CHECK_MSG(aril_ok(), "%s", aril_error());
        CHECK(are_equal(out[0], out[2]));
        CHECK(are_equal(out[1], out[3]));
        CHECK(!are_equal(out[0], out[1]));
    }
    aril_session_free(s);
    aril_graph_free(g);
}

TEST(checkpoints_draw_the_same_numbers_again)
{
    check_checkpoints(drop);
    check_checkpoints(drop_rows);
}
