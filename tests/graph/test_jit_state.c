/* Compiled functions and what exists outside them: shared memory, gradients, state, errors. */
#include "aril/aril.h"
#include "support/compare.h"
#include "support/device.h"
#include "support/test.h"

#include <pthread.h>
#include <string.h>

static void check_equal(aril_tensor *got, aril_tensor *want, const char *what)
{
    char *why = test_difference_in_value(got, want, 0, 0);
    CHECK_MSG(!why, "%s: %s", what, why);
}

static aril_tensor *row(int64_t n, double first)
{
    return aril_arange(first, first + (double)n, 1, ARIL_F32, test_device());
}

static aril_program *jit(aril_fn *fn, void *ctx)
{
    return aril_jit(fn, ctx, (aril_jit_opts){ .name = "test" });
}

/* ---- writes ---- */

static void write_through_views(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    aril_tensor *t = aril_transpose(in[0], 0, 1);
    aril_add_scalar_(aril_slice(t, 0, 1, 3, 1), 10);
    aril_mul_scalar_(aril_select(in[0], 0, 0), 2);
    out[0] = aril_copy(t); /* sees both writes */
    aril_tensor *flat = aril_reshape(in[0], ARIL_SHAPE(-1));
    aril_copy_(aril_slice(flat, 0, 0, 1, 1), aril_scalar(-1));
    out[1] = aril_sum(in[0], ARIL_ALL);
}

TEST(a_write_through_transpose_and_slice_changes_the_input)
{
    ARIL_SCOPE;
    aril_program *p = jit(write_through_views, NULL);
    for (int i = 0; i < 3; i++) {
        aril_tensor *x = aril_copy(aril_reshape(row(12, i), ARIL_SHAPE(3, 4)));
        aril_tensor *y = aril_copy(x), *got[2], *want[2];
        CHECK_INT(aril_program_run(p, ARIL_LIST(x), got), ARIL_OK);
        CHECK_MSG(aril_ok(), "%s", aril_error());
        write_through_views(NULL, &y, want);
        check_equal(got[0], want[0], "the transpose");
        check_equal(got[1], want[1], "the sum");
        check_equal(x, y, "the input");
    }
    aril_program_free(p);
}

static void write_first(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    aril_add_scalar_(in[0], 1);
    out[0] = aril_mul_scalar(in[1], 2);
    aril_add_scalar_(in[1], 5);
    out[1] = aril_sum(in[0], ARIL_ALL);
}

TEST(inputs_that_share_memory_see_each_other)
{
    ARIL_SCOPE;
    aril_program *p = jit(write_first, NULL);
    for (int i = 0; i < 6; i++) {
        aril_tensor *x = aril_copy(row(6, i)), *y = aril_copy(row(6, i)), *got[2], *want[2];
        aril_tensor *a[2] = { x, aril_slice(x, 0, 0, 2, 1) };
        aril_tensor *b[2] = { y, aril_slice(y, 0, 0, 2, 1) };
        if (i % 3 == 1) { /* the part first, at another place */
            a[0] = aril_slice(x, 0, 2, 5, 1), a[1] = x;
            b[0] = aril_slice(y, 0, 2, 5, 1), b[1] = y;
        }
        if (i % 3 == 2) a[1] = b[1] = row(2, 9); /* nothing is shared: another signature */
        CHECK_INT(aril_program_run(p, (aril_list){ 2, a }, got), ARIL_OK);
        CHECK_MSG(aril_ok(), "%s", aril_error());
        if (i % 3 == 2) b[1] = row(2, 9);
        write_first(NULL, b, want);
        check_equal(got[0], want[0], "result 0");
        check_equal(got[1], want[1], "result 1");
        check_equal(x, y, "the memory");
    }
    CHECK_INT(aril_program_traces(p), 3);
    aril_program_free(p);
}

typedef struct pair {
    aril_tensor *whole, *part;
} pair;

static void write_state(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    const pair *p = ctx;
    aril_add_(p->part, in[0]);
    out[0] = aril_sum(p->whole, ARIL_ALL);
    aril_mul_scalar_(p->whole, 2);
    out[1] = aril_copy(p->part);
}

TEST(state_that_shares_memory_sees_each_other)
{
    ARIL_SCOPE;
    pair mine = { aril_copy(row(6, 0)), NULL }, theirs = { aril_copy(row(6, 0)), NULL };
    mine.part = aril_slice(mine.whole, 0, 1, 3, 1);
    theirs.part = aril_slice(theirs.whole, 0, 1, 3, 1);
    aril_program *p = jit(write_state, &mine);
    for (int i = 0; i < 4; i++) {
        aril_tensor *x = row(2, i), *got[2], *want[2];
        CHECK_INT(aril_program_run(p, ARIL_LIST(x), got), ARIL_OK);
        CHECK_MSG(aril_ok(), "%s", aril_error());
        write_state(&theirs, &x, want);
        check_equal(got[0], want[0], "the sum");
        check_equal(got[1], want[1], "the part");
        check_equal(mine.whole, theirs.whole, "the whole");
        check_equal(mine.part, theirs.part, "the part outside");
    }
    CHECK_INT(aril_program_traces(p), 1);
    aril_program_free(p);
}

/* ---- gradients ---- */

typedef struct leaf_case {
    aril_tensor *w;
} leaf_case;

static void accumulate(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    const leaf_case *c = ctx;
    out[0] = aril_sum(aril_square(aril_mul(in[0], c->w)), ARIL_ALL);
    aril_backward(out[0]);
}

TEST(gradients_stay_in_leaves)
{
    ARIL_SCOPE;
    leaf_case mine = { aril_parameter(aril_copy(row(4, 1))) };
    leaf_case theirs = { aril_parameter(aril_copy(row(4, 1))) };
    aril_program *p = jit(accumulate, &mine);
    for (int i = 0; i < 5; i++) {
        aril_tensor *x = row(4, i), *got[1], *want[1];
        CHECK_INT(aril_program_run(p, ARIL_LIST(x), got), ARIL_OK);
        CHECK_MSG(aril_ok(), "%s", aril_error());
        accumulate(&theirs, &x, want);
        check_equal(aril_grad(mine.w), aril_grad(theirs.w), "the gradient");
        if (i == 2) aril_zero_grad(mine.w), aril_zero_grad(theirs.w);
    }
    CHECK_INT(aril_program_traces(p), 2); /* with a gradient at entry, and without */
    aril_program_free(p);
    aril_release(mine.w);
    aril_release(theirs.w);
}

typedef struct net {
    aril_module *module;
    aril_optim *opt;
} net;

static net net_new(int accumulate_steps)
{
    aril_seed(5);
    aril_module *m = aril_nn_sequential(aril_nn_linear(6, 8), aril_nn_tanh(), aril_nn_linear(8, 3));
    aril_sgd_opts opts = { .lr = 0.05, .momentum = 0.9, .accumulate = accumulate_steps };
    return (net){ m, aril_sgd(aril_parameters(m), opts) };
}

static void net_free(net *n)
{
    aril_optim_free(n->opt);
    aril_module_release(n->module);
}

static void train(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    net *n = ctx;
    out[0] = aril_mse_loss(aril_forward(n->module, in[0]), in[1]);
    aril_backward(out[0]);
    aril_step(n->opt);
}

static void check_same_net(const net *a, const net *b)
{
    const aril_named *p = aril_parameters(a->module), *q = aril_parameters(b->module);
    for (int i = 0; i < p->n; i++) check_equal(p->at[i], q->at[i], p->name[i]);
}

static void batch(int i, aril_tensor **x)
{
    aril_generator *g = aril_generator_new((uint64_t)i);
    x[0] = aril_randn_from(g, ARIL_SHAPE(4, 6), ARIL_F32, test_device());
    x[1] = aril_randn_from(g, ARIL_SHAPE(4, 3), ARIL_F32, test_device());
    aril_generator_free(g);
}

TEST(gradients_of_four_micro_batches_accumulate)
{
    ARIL_SCOPE;
    net mine = net_new(4), theirs = net_new(4);
    aril_program *p = jit(train, &mine);
    for (int i = 0; i < 12 && !test_failed(); i++) {
        aril_tensor *x[2], *got[1], *want[1];
        batch(i, x);
        CHECK_INT(aril_program_run(p, (aril_list){ 2, x }, got), ARIL_OK);
        CHECK_MSG(aril_ok(), "%s", aril_error());
        train(&theirs, x, want);
        check_equal(got[0], want[0], "loss");
        check_same_net(&mine, &theirs);
    }
    CHECK_INT(aril_program_traces(p), 4); /* one for each micro-batch */
    aril_program_free(p);
    net_free(&mine);
    net_free(&theirs);
}

TEST(weights_loaded_between_runs_are_used)
{
    ARIL_SCOPE;
    net mine = net_new(1), theirs = net_new(1), other = net_new(1);
    aril_program *p = jit(train, &mine);
    for (int i = 0; i < 6 && !test_failed(); i++) {
        aril_tensor *x[2], *got[1], *want[1];
        batch(i, x);
        if (i == 3) {
            aril_load_state(mine.module, aril_state(other.module), (aril_load_state_opts){ 0 });
            aril_load_state(theirs.module, aril_state(other.module), (aril_load_state_opts){ 0 });
            CHECK_MSG(aril_ok(), "%s", aril_error());
        }
        CHECK_INT(aril_program_run(p, (aril_list){ 2, x }, got), ARIL_OK);
        train(&theirs, x, want);
        CHECK_MSG(aril_ok(), "%s", aril_error());
        check_equal(got[0], want[0], "loss");
        check_same_net(&mine, &theirs);
    }
    aril_program_free(p);
    net_free(&mine);
    net_free(&theirs);
    net_free(&other);
}

TEST(changed_options_and_modes_are_a_new_signature)
{
    ARIL_SCOPE;
    net mine = net_new(1), theirs = net_new(1);
    aril_program *p = jit(train, &mine);
    for (int i = 0; i < 6 && !test_failed(); i++) {
        aril_tensor *x[2], *got[1], *want[1];
        batch(i, x);
        if (i == 2) aril_optim_set_lr(mine.opt, 0.5), aril_optim_set_lr(theirs.opt, 0.5);
        CHECK_INT(aril_program_run(p, (aril_list){ 2, x }, got), ARIL_OK);
        train(&theirs, x, want);
        CHECK_MSG(aril_ok(), "%s", aril_error());
        check_same_net(&mine, &theirs);
    }
    CHECK_INT(aril_program_traces(p), 1); /* the learning rate is a value */
    aril_module_cast(mine.module, ARIL_F64);
    aril_module_cast(theirs.module, ARIL_F64);
    aril_tensor *x[2], *got[1], *want[1];
    batch(9, x);
    x[0] = aril_cast(x[0], ARIL_F64);
    x[1] = aril_cast(x[1], ARIL_F64);
    CHECK_INT(aril_program_run(p, (aril_list){ 2, x }, got), ARIL_OK);
    train(&theirs, x, want);
    CHECK_MSG(aril_ok(), "%s", aril_error());
    check_equal(got[0], want[0], "loss in f64");
    check_same_net(&mine, &theirs);
    aril_program_free(p);
    net_free(&mine);
    net_free(&theirs);
}

static void with_dropout(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    out[0] = aril_forward(ctx, in[0]);
}

TEST(training_and_evaluation_are_two_signatures)
{
    ARIL_SCOPE;
    aril_seed(3);
    aril_module *m = aril_nn_sequential(aril_nn_linear(6, 8), aril_nn_dropout(0.5));
    aril_program *p = jit(with_dropout, m);
    for (int i = 0; i < 6; i++) {
        aril_tensor *x[2], *got[1], *want[1];
        batch(1, x);
        if (i % 2)
            aril_module_eval(m);
        else
            aril_module_train(m);
        aril_seed((uint64_t)i);
        CHECK_INT(aril_program_run(p, (aril_list){ 1, x }, got), ARIL_OK);
        CHECK_MSG(aril_ok(), "%s", aril_error());
        aril_seed((uint64_t)i);
        with_dropout(m, x, want);
        check_equal(got[0], want[0], i % 2 ? "evaluation" : "training");
    }
    CHECK_INT(aril_program_traces(p), 2);
    aril_program_free(p);
    aril_module_release(m);
}

TEST(outputs_belong_to_the_caller)
{
    ARIL_SCOPE;
    net mine = net_new(1);
    aril_program *p = jit(train, &mine);
    aril_tensor *kept[10];
    double was[10];
    for (int i = 0; i < 10; i++) {
        aril_tensor *x[2];
        batch(i, x);
        CHECK_INT(aril_program_run(p, (aril_list){ 2, x }, &kept[i]), ARIL_OK);
        was[i] = aril_item(kept[i]);
    }
    for (int i = 0; i < 10; i++) CHECK_NEAR(aril_item(kept[i]), was[i], 0);
    aril_program_free(p);
    net_free(&mine);
}

/* ---- errors ---- */

static void reads(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    net *n = ctx;
    aril_tensor *loss = aril_mse_loss(aril_forward(n->module, in[0]), in[1]);
    aril_backward(loss);
    aril_step(n->opt);
    aril_dropout(loss, 0.5, (aril_dropout_opts){ 0 });
    if (aril_item(loss) > 0) out[0] = loss;
}

static void reads_state(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    aril_tensor *w = aril_parameters(((net *)ctx)->module)->at[0];
    float buf[64];
    aril_read(w, buf);
    out[0] = aril_mul_scalar(in[0], buf[0]);
}

TEST(reading_a_value_fails_and_leaves_no_change)
{
    ARIL_SCOPE;
    net mine = net_new(2), theirs = net_new(2);
    aril_tensor *x[2], *out[1];
    batch(1, x);
    train(&mine, x, out); /* a gradient, and a step that is pending */
    train(&theirs, x, out);
    aril_rng_state before = aril_generator_state(aril_default_generator());
    aril_program *p = jit(reads, &mine);
    CHECK_INT(aril_program_run(p, (aril_list){ 2, x }, out), ARIL_ERR_STATE);
    CHECK_MSG(strstr(aril_error(), "item: a traced function") && strstr(aril_error(), "aril_cond"),
              "%s", aril_error());
    aril_clear_error();
    CHECK_INT(aril_program_traces(p), 0);
    CHECK(aril_generator_state(aril_default_generator()).calls == before.calls);
    aril_program *q = jit(reads_state, &mine);
    CHECK_INT(aril_program_run(q, (aril_list){ 1, x }, out), ARIL_ERR_STATE);
    CHECK_MSG(strstr(aril_error(), "read: a traced function"), "%s", aril_error());
    aril_clear_error();
    const aril_named *a = aril_parameters(mine.module), *b = aril_parameters(theirs.module);
    for (int i = 0; i < a->n; i++) {
        check_equal(a->at[i], b->at[i], "a weight");
        check_equal(aril_grad(a->at[i]), aril_grad(b->at[i]), "a gradient");
    }
    train(&mine, x, out);
    train(&theirs, x, out);
    check_same_net(&mine, &theirs);
    aril_program_free(p);
    aril_program_free(q);
    net_free(&mine);
    net_free(&theirs);
}

static aril_tensor *leaked;

static void leaks(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    out[0] = aril_exp(in[0]);
    if (!leaked) leaked = aril_keep(out[0]);
}

static void multiply_by_itself(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    out[0] = aril_neg(in[0]);
    out[1] = aril_matmul(in[0], in[0]);
}

static void twice(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    out[0] = aril_add(in[0], in[0]);
}

TEST(a_program_or_room_for_results_that_is_missing)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_ones(ARIL_SHAPE(2), ARIL_F32, test_device()), *y = NULL;
    CHECK_INT(aril_program_run(NULL, ARIL_LIST(x), &y), ARIL_ERR_ARG);
    CHECK(y && aril_tensor_status(y) < 0);
    aril_clear_error();
    aril_program *p = aril_jit(twice, NULL, (aril_jit_opts){ 0 });
    CHECK_INT(aril_program_run(p, ARIL_LIST(x), NULL), ARIL_ERR_ARG);
    aril_clear_error();
    CHECK_INT(aril_program_run(p, ARIL_LIST(x), &y), ARIL_OK);
    aril_program_free(p);
}

TEST(a_first_trace_that_fails_poisons_the_results)
{
    aril_tensor *x = aril_ones(ARIL_SHAPE(2, 3), ARIL_F32, test_device()), *out[2] = { x, x };
    aril_program *p = aril_jit(multiply_by_itself, NULL, (aril_jit_opts){ 0 });
    CHECK_INT(aril_program_run(p, ARIL_LIST(x), out), ARIL_ERR_SHAPE);
    CHECK(aril_tensor_status(out[0]) < 0 && aril_tensor_status(out[1]) < 0);
    out[0] = x;
    aril_clear_error();
    aril_program_run(p, ARIL_LIST(out[1]), out); /* the input is poisoned */
    CHECK(aril_tensor_status(out[0]) < 0);
    aril_clear_error();
    aril_program_free(p);
}

TEST(a_tensor_that_outlives_its_trace_is_an_error)
{
    ARIL_SCOPE;
    aril_program *p = jit(leaks, NULL);
    aril_tensor *x = row(3, 0), *out[1], *want;
    leaked = NULL;
    CHECK_INT(aril_program_run(p, ARIL_LIST(x), out), ARIL_ERR_STATE);
    CHECK_MSG(strstr(aril_error(), "still keeps a result"), "%s", aril_error());
    CHECK_MSG(strstr(aril_error(), "test_jit_state.c:"), "%s", aril_error());
    aril_clear_error();
    CHECK_INT(aril_program_traces(p), 0);
    aril_program_free(p);
    aril_tensor *had = leaked; /* with the value that the function gave it */
    leaked = NULL;
    leaks(NULL, &x, &want);
    check_equal(had, leaked, "the kept tensor");
    aril_release(had);
    aril_release(leaked);
}

/* State that is created by the first call. */
static aril_tensor *lazy;

static void counts_in_lazy(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    if (!lazy) lazy = aril_keep(aril_zeros_like(in[0]));
    aril_add_(lazy, in[0]);
    out[0] = aril_mul_scalar(lazy, 1);
}

TEST(state_that_the_first_call_creates)
{
    ARIL_SCOPE;
    aril_tensor *x = row(3, 0), *got[3], *want;
    lazy = NULL;
    aril_program *p = jit(counts_in_lazy, NULL);
    CHECK_INT(aril_program_run(p, ARIL_LIST(x), got), ARIL_ERR_STATE);
    aril_clear_error();
    for (int i = 0; i < 3; i++) /* it is there now */
        CHECK_INT(aril_program_run(p, ARIL_LIST(x), &got[i]), ARIL_OK);
    CHECK_INT(aril_program_traces(p), 1);
    aril_program_free(p);
    aril_release(lazy);
    lazy = NULL;
    for (int i = 0; i < 3; i++) {
        counts_in_lazy(NULL, &x, &want);
        check_equal(got[i], want, "the count");
    }
    aril_release(lazy);
}

static aril_tensor *lazy_forward(aril_module *m, aril_tensor *x)
{
    aril_tensor *y;
    counts_in_lazy(NULL, &x, &y);
    return aril_forward(aril_module_child(m, 0), y);
}

TEST(a_module_that_creates_state_in_its_first_call_runs_eagerly)
{
    aril_tensor *sum[2][3];
    for (int jit = 0; jit < 2; jit++) {
        ARIL_NO_GRAD;
        aril_seed(1);
        lazy = NULL;
        aril_module *module = aril_module_new("Lazy", 0, lazy_forward);
        aril_module_add(module, "linear", aril_nn_linear(3, 2));
        if (jit) CHECK_INT(aril_module_jit(module), ARIL_OK);
        for (int i = 0; i < 3; i++) sum[jit][i] = aril_keep(aril_forward(module, row(3, 1)));
        CHECK_MSG(aril_ok(), "%s", aril_error());
        if (jit) {
            const char *why = aril_module_eager_reason(module);
            CHECK_MSG(why && strstr(why, "still keeps a result"), "%s", why);
        }
        aril_module_release(module);
        aril_release(lazy);
    }
    for (int i = 0; i < 3; i++) {
        check_equal(sum[1][i], sum[0][i], "a forward pass");
        aril_release(sum[0][i]);
        aril_release(sum[1][i]);
    }
}

/* A tensor that the function creates by value is a constant, also if it writes to it. */
static void own_numbers(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    const float data[3] = { 1, 2, 3 };
    aril_tensor *acc = aril_from(data, ARIL_SHAPE(3), ARIL_F32, test_device());
    aril_add_(acc, in[0]);
    aril_generator *g = aril_generator_new(3);
    aril_tensor *noise = aril_randn_from(g, ARIL_SHAPE(3), ARIL_F32, test_device());
    aril_generator_free(g);
    out[0] = aril_add(acc, noise);
}

TEST(what_the_function_creates_is_new_in_each_run)
{
    ARIL_SCOPE;
    aril_program *p = jit(own_numbers, NULL);
    for (int i = 0; i < 3; i++) {
        aril_tensor *x = row(3, i), *got[1], *want[1];
        CHECK_INT(aril_program_run(p, ARIL_LIST(x), got), ARIL_OK);
        CHECK_MSG(aril_ok(), "%s", aril_error());
        own_numbers(NULL, &x, want);
        check_equal(got[0], want[0], "the sum");
    }
    aril_program_free(p);
}

/* ---- threads ---- */

static void forward(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    ARIL_NO_GRAD;
    out[0] = aril_softmax(aril_forward(((net *)ctx)->module, in[0]), 1);
}

typedef struct job {
    aril_program *p;
    net *n;
    bool ok;
} job;

static void *run_many(void *arg)
{
    job *j = arg;
    j->ok = true;
    for (int i = 0; i < 50 && j->ok; i++) {
        ARIL_SCOPE;
        aril_tensor *x[2], *got[1], *want[1];
        batch(i, x);
        if (i % 2) x[0] = aril_slice(x[0], 0, 0, 2, 1);
        j->ok = aril_program_run(j->p, (aril_list){ 1, x }, got) == ARIL_OK;
        forward(j->n, x, want);
        j->ok = j->ok && !test_difference_in_value(got[0], want[0], 0, 0);
    }
    return NULL;
}

TEST(eight_threads_run_one_program)
{
    ARIL_SCOPE;
    net n = net_new(1);
    aril_program *p = jit(forward, &n);
    pthread_t thread[8];
    job jobs[8];
    for (int i = 0; i < 8; i++) {
        jobs[i] = (job){ p, &n, false };
        pthread_create(&thread[i], NULL, run_many, &jobs[i]);
    }
    for (int i = 0; i < 8; i++) pthread_join(thread[i], NULL);
    for (int i = 0; i < 8; i++) CHECK(jobs[i].ok);
    aril_program_free(p);
    net_free(&n);
}

/* ---- frozen parameters ---- */

typedef struct tuning {
    aril_module *net;
    aril_optim *opt;
    int traced;
} tuning;

static void tune(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    tuning *t = ctx;
    t->traced++;
    out[0] = aril_cross_entropy(aril_forward(t->net, in[0]), in[1]);
    aril_backward(out[0]);
    aril_step(t->opt);
}

TEST(steps_with_frozen_parameters_are_traced_once)
{
    ARIL_SCOPE;
    aril_seed(2);
    tuning t = { .net = aril_nn_sequential(aril_nn_linear(4, 5), aril_nn_relu(),
                                           aril_nn_linear(5, 3)) };
    aril_module_to(t.net, test_device());
    aril_module *body = aril_module_at(t.net, "0");
    t.opt = aril_adam(aril_parameters(t.net), (aril_adam_opts){ .lr = 0.1 });
    aril_module_freeze(body);
    aril_program *p = jit(tune, &t);
    aril_tensor *x = aril_randn(ARIL_SHAPE(6, 4), ARIL_F32, test_device()), *loss;
    aril_tensor *y = aril_randint(0, 3, ARIL_SHAPE(6), ARIL_I64, test_device());
    aril_tensor *before = aril_copy(aril_module_tensor(body, "weight"));
    int traced = 0;
    for (int i = 0; i < 6; i++) {
        CHECK_INT(aril_program_run(p, ARIL_LIST(x, y), &loss), ARIL_OK);
        if (i == 1) traced = t.traced;
    }
    CHECK_INT(t.traced, traced);
    check_equal(aril_module_tensor(body, "weight"), before, "the frozen weight");
    aril_module_unfreeze(body);
    CHECK_INT(aril_program_run(p, ARIL_LIST(x, y), &loss), ARIL_OK);
    CHECK(t.traced > traced);
    aril_tensor *moved =
        aril_amax(aril_abs(aril_sub(aril_module_tensor(body, "weight"), before)), ARIL_ALL);
    CHECK_NEAR(aril_item(moved), 0.1, 1e-3); /* Adam's first step, as the six before were missed */
    aril_program_free(p);
    aril_optim_free(t.opt);
    aril_module_release(t.net);
    CHECK_MSG(aril_ok(), "%s", aril_error());
}
