/* The op `update` on lists of parameters: it goes through apply and dispatch like every op, so that
 * the log, the profiler and a tracer see it as one call; and it changes its inputs in place. */
#include <aril/aril.h>

#include "ops/table/apply.h"
#include "ops/update/update.h"
#include "optim/optim.h"
#include "support/compare.h"
#include "support/device.h"
#include "support/ops.h"
#include "support/recorder.h"
#include "support/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHECK_FAILS(call, code, text)                                                       \
    do {                                                                                    \
        (void)(call);                                                                       \
        CHECK_INT(aril_error_code(), code);                                                 \
        CHECK_MSG(strstr(aril_error(), text), "'%s' is not in '%s'", (text), aril_error()); \
        aril_clear_error();                                                                 \
    } while (0)

enum { MAX_PARAMS = 200 };

/* n parameters of 3, 4, 5 ... elements with gradients and Adam's two slots, as inputs of the op. */
typedef struct list {
    int n;
    aril_tensor *in[ARIL__UPDATE_FIXED + MAX_PARAMS * ARIL__ITEM];
} list;

static const struct update_attrs adam = {
    .rule = { ARIL__RULE_adam }, .beta1 = { 0.9 }, .beta2 = { 0.99 }, .eps = { 1e-8 }
};

static void list_new(list *l, int n, aril_dtype dtype)
{
    memset(l, 0, sizeof *l);
    l->n = n;
    l->in[ARIL__UPDATE_LR] = aril_scalar(0.1);
    l->in[ARIL__UPDATE_STEP] = aril_full(ARIL_SHAPE(), 3, ARIL_I64, test_device());
    aril_seed(4);
    for (int i = 0; i < n; i++) {
        aril_tensor **item = l->in + ARIL__UPDATE_FIXED + i * ARIL__ITEM;
        for (int k = 0; k < 4; k++) {
            aril_tensor *t = aril_randn(ARIL_SHAPE(3 + i), ARIL_F32, test_device());
            if (k == ARIL__ITEM_SLOT + 1) t = aril_abs(t);
            item[k] = aril_cast(t, k < ARIL__ITEM_SLOT || dtype == ARIL_F64 ? dtype : ARIL_F32);
        }
    }
}

static aril_status list_apply(list *l)
{
    aril_tensor *out[ARIL__MAX_OUT];
    return aril__apply(&aril__op_update, ARIL__UPDATE_FIXED + l->n * ARIL__ITEM, l->in, &adam, out);
}

static void check_same(const list *a, const list *b)
{
    for (int i = ARIL__UPDATE_FIXED; i < ARIL__UPDATE_FIXED + a->n * ARIL__ITEM; i++) {
        char *why = a->in[i] ? test_difference_in_bits(a->in[i], b->in[i]) : NULL;
        CHECK_MSG(!why, "input %d: %s", i, why);
    }
}

/* ---- who sees it ---- */

/* Two linear layers and their optimizer. */
typedef struct net {
    aril_tensor *p[4];
    aril_optim *opt;
} net;

static net net_with(const char *name, aril_optim_opts opts)
{
    net n;
    aril_seed(9);
    n.p[0] = aril_parameter(aril_randn(ARIL_SHAPE(3, 4), ARIL_F32, test_device()));
    n.p[1] = aril_parameter(aril_randn(ARIL_SHAPE(3), ARIL_F32, test_device()));
    n.p[2] = aril_parameter(aril_randn(ARIL_SHAPE(2, 3), ARIL_F32, test_device()));
    n.p[3] = aril_parameter(aril_randn(ARIL_SHAPE(2), ARIL_F32, test_device()));
    n.opt = aril_optim_new(name, ARIL_TENSORS(n.p[0], n.p[1], n.p[2], n.p[3]), opts);
    return n;
}

static net net_new(const char *name)
{
    return net_with(name, (aril_optim_opts){ .lr = 0.01 });
}

static void net_free(net *n)
{
    aril_optim_free(n->opt);
    for (int i = 0; i < 4; i++) aril_release(n->p[i]);
}

static aril_tensor *net_loss(const net *n, aril_tensor *x)
{
    aril_tensor *h = aril_tanh(aril_linear(x, n->p[0], n->p[1]));
    return aril_mean(aril_square(aril_linear(h, n->p[2], n->p[3])), ARIL_ALL);
}

static aril_tensor *batch(void)
{
    return aril_ones(ARIL_SHAPE(5, 4), ARIL_F32, test_device());
}

/* What fn writes to stderr while ARIL_LOG=dispatch. */
static char *logged(void (*fn)(net *n), net *n)
{
    static char text[1 << 14];
    char path[] = "/tmp/aril-log-XXXXXX";
    int fd = mkstemp(path), before = dup(STDERR_FILENO);
    unlink(path);
    dup2(fd, STDERR_FILENO);
    aril_set_log("dispatch");
    fn(n);
    aril_set_log("");
    dup2(before, STDERR_FILENO);
    close(before);
    lseek(fd, 0, SEEK_SET);
    ssize_t length = read(fd, text, sizeof text - 1);
    text[length > 0 ? length : 0] = '\0';
    close(fd);
    return text;
}

static int lines_with(const char *text, const char *what)
{
    int n = 0;
    while ((text = strstr(text, what)) != NULL) {
        n++;
        text += strlen(what);
    }
    return n;
}

static void one_step(net *n)
{
    CHECK_INT(aril_step(n->opt), ARIL_OK);
}

TEST(log_shows_one_call_for_all_parameters)
{
    ARIL_SCOPE;
    net n = net_new("adam");
    aril_backward(net_loss(&n, batch()));
    char *text = logged(one_step, &n);
    CHECK_INT(lines_with(text, "dispatch: update "), 1);
    CHECK_MSG(strstr(text,
                     "dispatch: update f32 [] [] - - - [3,4] [3,4] [3,4] [3,4] - - [3] [3]") &&
                  strstr(text, ": cpu_update\n"),
              "the log says: %s", text);
    net_free(&n);
    n = net_new("lamb");
    aril_backward(net_loss(&n, batch()));
    text = logged(one_step, &n);
    CHECK_INT(lines_with(text, "dispatch: update_norms f32 "), 1);
    CHECK_INT(lines_with(text, "dispatch: update f32 [] [] - - [4,2] "), 1);
    net_free(&n);
}

TEST(each_group_dtype_and_step_count_has_its_own_call)
{
    ARIL_SCOPE;
    net n = net_new("sgd");
    aril_tensor *low = aril_parameter(aril_ones(ARIL_SHAPE(4), ARIL_BF16, test_device()));
    aril_tensor *late = aril_parameter(aril_ones(ARIL_SHAPE(4), ARIL_F32, test_device()));
    aril_optim_add_group(n.opt, ARIL_TENSORS(low, late), (aril_optim_opts){ .weight_decay = 0.1 });
    for (int t = 0; t < 2; t++) {
        aril_tensor *loss =
            aril_add(net_loss(&n, batch()), aril_cast(aril_sum(low, ARIL_ALL), ARIL_F32));
        if (t == 1) loss = aril_add(loss, aril_sum(late, ARIL_ALL));
        aril_backward(loss);
        char *text = logged(one_step, &n);
        CHECK_INT(lines_with(text, "dispatch: update "), 2 + t);
        CHECK_INT(lines_with(text, "dispatch: update bf16 [] [] - - - [4] [4] - - - -: "), 1);
    }
    CHECK(aril_ok());
    net_free(&n);
    aril_release(low);
    aril_release(late);
}

TEST(profiler_shows_one_call_with_its_kernel)
{
    ARIL_SCOPE;
    net n = net_new("adam");
    aril_backward(net_loss(&n, batch()));
    aril_profile_begin((aril_profile_opts){ 0 });
    one_step(&n);
    aril_profile_end();
    const aril_profile_row *rows;
    int found = 0, count = aril_profile_rows(&rows);
    for (int i = 0; i < count; i++) {
        if (strcmp(rows[i].name, "update") != 0) continue;
        found++;
        CHECK_INT(rows[i].calls, 1);
        CHECK_STR(rows[i].kernel, "cpu_update");
        CHECK_NEAR(rows[i].flop, 12 + 3 + 6 + 2, 0);
        CHECK(rows[i].bytes >= 7 * 4 * (12 + 3 + 6 + 2));
    }
    CHECK_INT(found, 1);
    net_free(&n);
}

TEST(tracer_records_one_call_that_replays)
{
    const char *const names[] = { "sgd", "adam", "nadam", "lamb" };
    for (int k = 0; k < 4; k++) {
        ARIL_SCOPE;
        net eager = net_new(names[k]), traced = net_new(names[k]);
        recorder *r = recorder_new();
        aril_tensor *loss;
        {
            ARIL_SCOPE;
            aril_tensor *x = recorder_input(r, ARIL_SHAPE(-1, 4), ARIL_F32);
            recorder_begin(r);
            loss = aril_escape(net_loss(&traced, x));
            aril_backward(loss);
            CHECK_INT(aril_step(traced.opt), ARIL_OK);
            recorder_end(r);
        }
        int calls = 0;
        for (int i = 0; i < recorder_count(r); i++)
            calls += strcmp(recorder_name(r, i), "update") == 0;
        CHECK_INT(calls, 1);
        for (int t = 0; t < 3; t++) {
            ARIL_SCOPE;
            recorder_play(r, ARIL_LIST(batch()), loss);
            aril_backward(net_loss(&eager, batch()));
            CHECK_INT(aril_step(eager.opt), ARIL_OK);
            for (int i = 0; i < 4; i++) {
                char *why = test_difference_in_value(traced.p[i], eager.p[i], 1e-6, 1e-7);
                CHECK_MSG(!why, "%s, step %d, parameter %d: %s", names[k], t, i, why);
            }
        }
        CHECK_MSG(aril_ok(), "%s", aril_error());
        recorder_free(r);
        net_free(&eager);
        net_free(&traced);
    }
}

/* What a program does in a round of accumulation: `calls` batches, each followed by aril_step. */
static aril_tensor *round_of(net *n, aril_tensor *x, int calls)
{
    aril_tensor *loss = NULL;
    for (int i = 0; i < calls; i++) {
        loss = net_loss(n, aril_mul_scalar(x, 1 + i));
        aril_backward(aril_scale_loss(n->opt, loss));
        aril_step(n->opt);
    }
    return loss;
}

static void add_schedules(aril_optim *o)
{
    aril_optim_schedule(o, aril_one_cycle_schedule((aril_schedule_opts){
                               .total = 6, .per_batch = true, .max_lr = 0.1 }));
    aril_optim_schedule(o, aril_exponential_schedule((aril_schedule_opts){ .gamma = 0.5 }));
}

/* Everything that later steps of `eager` depend on, in bits: step count, learning rates, counters
 * of missed and pending steps, schedules, loss scale, slots. */
static void check_same_state(const char *name, net *a, net *eager)
{
    const aril_named *x = aril_optim_state(a->opt), *y = aril_optim_state(eager->opt);
    aril__name_lookup names;
    CHECK_INT(aril__names_index(&names, "test", x), ARIL_OK);
    for (int i = 0; i < y->n; i++) {
        aril_tensor *t = aril__named_find(&names, "%s", y->name[i]);
        CHECK_MSG(t, "%s: no %s", name, y->name[i]);
        char *why = test_difference_in_bits(t, y->at[i]);
        CHECK_MSG(!why, "%s: %s: %s", name, y->name[i], why);
    }
    aril__names_index_free(&names);
    for (int i = 0; i < 4; i++) {
        char *why = test_difference_in_bits(aril_detach(a->p[i]), aril_detach(eager->p[i]));
        CHECK_MSG(!why, "%s, parameter %d: %s", name, i, why);
    }
}

TEST(replayed_steps_have_the_bits_of_eager_ones)
{
    static const struct {
        const char *name;
        aril_optim_opts opts;
    } cases[] = { { "sgd", { .lr = 0.02 } },
                  { "adam", { .lr = 0.01, .accumulate = 3 } },
                  { "adam", { .lr = 0.01, .clip_norm = 0.1, .loss_scale = 4, .accumulate = 2 } },
                  { "nadam", { .lr = 0.01, .loss_scale = 4, .loss_scale_growth = 2 } },
                  { "lamb", { .lr = 0.01, .clip_norm = 0.1 } } };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        ARIL_SCOPE;
        net eager = net_with(cases[k].name, cases[k].opts);
        net played = net_with(cases[k].name, cases[k].opts);
        int calls = cases[k].opts.accumulate ? cases[k].opts.accumulate : 1;
        add_schedules(eager.opt);
        add_schedules(played.opt);
        for (int i = 0; i < 2; i++) { /* parameter 3 starts late, parameter 1 is never used */
            aril_set_requires_grad(eager.p[1], false);
            aril_set_requires_grad(played.p[1], false);
            aril_set_requires_grad(eager.p[3], i > 0);
            aril_set_requires_grad(played.p[3], i > 0);
            if (i == 0) round_of(&eager, batch(), calls);
            if (i == 0) round_of(&played, batch(), calls);
        }
        recorder *r = recorder_new();
        aril_tensor *loss;
        {
            ARIL_SCOPE;
            aril_tensor *x = recorder_input(r, ARIL_SHAPE(5, 4), ARIL_F32);
            recorder_begin(r);
            loss = aril_escape(round_of(&played, x, calls));
            recorder_end(r);
        }
        check_same_state(cases[k].name, &played, &eager); /* recording has run nothing */
        for (int t = 0; t < 4; t++) {
            ARIL_SCOPE;
            recorder_play(r, ARIL_LIST(batch()), loss);
            for (int i = 0; i < calls; i++) aril__step_host(played.opt, played.opt->took);
            round_of(&eager, batch(), calls);
            if (t == 1) aril_optim_epoch(eager.opt, NAN);
            if (t == 1) aril_optim_epoch(played.opt, NAN);
            check_same_state(cases[k].name, &played, &eager);
        }
        CHECK_MSG(aril_ok(), "%s", aril_error());
        recorder_free(r);
        net_free(&eager);
        net_free(&played);
    }
}

/* ---- what it does ---- */

TEST(long_list_equals_many_calls)
{
    static const aril_dtype dtypes[] = { ARIL_F32, ARIL_F64, ARIL_BF16 };
    static list together, apart;
    for (int d = 0; d < 3; d++) {
        ARIL_SCOPE;
        list_new(&together, MAX_PARAMS, dtypes[d]);
        list_new(&apart, MAX_PARAMS, dtypes[d]);
        CHECK_INT(list_apply(&together), ARIL_OK);
        for (int i = 0; i < MAX_PARAMS; i++) {
            list one = { .n = 1 };
            memcpy(one.in, apart.in, ARIL__UPDATE_FIXED * sizeof *one.in);
            memcpy(one.in + ARIL__UPDATE_FIXED, apart.in + ARIL__UPDATE_FIXED + i * ARIL__ITEM,
                   ARIL__ITEM * sizeof *one.in);
            CHECK_INT(list_apply(&one), ARIL_OK);
        }
        check_same(&together, &apart);
    }
    CHECK(aril_ok());
}

TEST(tensors_of_different_layouts_give_the_same_result)
{
    ARIL_SCOPE;
    list plain, mixed;
    list_new(&plain, 3, ARIL_F32);
    list_new(&mixed, 3, ARIL_F32);
    aril_tensor **item = mixed.in + ARIL__UPDATE_FIXED + ARIL__ITEM;
    for (int k = 0; k < 3; k++) { /* p, grad and m of the second are every other element */
        aril_tensor *wide = aril_zeros(ARIL_SHAPE(8), ARIL_F32, test_device());
        item[k] = aril_copy_(aril_slice(wide, 0, 0, ARIL_END, 2), item[k]);
    }
    CHECK_INT(list_apply(&plain), ARIL_OK);
    CHECK_INT(list_apply(&mixed), ARIL_OK);
    check_same(&plain, &mixed);
}

TEST(versions_of_everything_written_change)
{
    ARIL_SCOPE;
    list l;
    list_new(&l, 2, ARIL_F32);
    unsigned before[ARIL__ITEM];
    aril_tensor **item = l.in + ARIL__UPDATE_FIXED + ARIL__ITEM;
    for (int k = 0; k < 4; k++) before[k] = aril__version(item[k]);
    CHECK_INT(list_apply(&l), ARIL_OK);
    for (int k = 0; k < 4; k++)
        CHECK_INT(aril__version(item[k]) != before[k], k != ARIL__ITEM_GRAD);
}

TEST(read_only_tensors_are_rejected)
{
    ARIL_SCOPE;
    list l;
    list_new(&l, 2, ARIL_F32);
    aril_tensor **p = &l.in[ARIL__UPDATE_FIXED + ARIL__ITEM], *was = *p;
    *p = aril_expand(aril_ones(ARIL_SHAPE(1), ARIL_F32, test_device()), ARIL_SHAPE(4));
    CHECK_FAILS(list_apply(&l), ARIL_ERR_STATE, "update_: elements of the destination share");
    *p = aril_detach(was);
    aril_set_requires_grad(*p, true);
    CHECK_FAILS(list_apply(&l), ARIL_ERR_GRAD, "update_: a leaf that requires a gradient");
    ARIL_NO_GRAD;
    CHECK_INT(list_apply(&l), ARIL_OK);
    *p = aril_cast(was, ARIL_F64);
    CHECK_FAILS(list_apply(&l), ARIL_ERR_DTYPE, "parameter 0 is f32, parameter 1 is f64");
    *p = was;
    l.in[ARIL__UPDATE_FIXED + ARIL__ITEM + ARIL__ITEM_SLOT] = NULL;
    CHECK_FAILS(list_apply(&l), ARIL_ERR_ARG, "update: adam needs state 0");
    aril_tensor *out[ARIL__MAX_OUT];
    CHECK_FAILS(aril__apply(&aril__op_update, ARIL__UPDATE_FIXED + ARIL__ITEM + 1, l.in, &adam,
                            out),
                ARIL_ERR_ARG, "update: got 12 inputs, expected 5 and 6 for each item");
}

TEST(anomaly_mode_names_the_update)
{
    ARIL_SCOPE;
    list l;
    list_new(&l, 3, ARIL_F32);
    aril_fill_(l.in[ARIL__UPDATE_FIXED + 2 * ARIL__ITEM + ARIL__ITEM_GRAD], NAN);
    aril_set_anomaly(true);
    CHECK_FAILS(list_apply(&l), ARIL_ERR_NUMBER, "update: produced a NaN (anomaly mode)");
    aril_set_anomaly(false);
}

/* No allocation means that nothing can fail between the first parameter and the last. */
TEST(tensors_of_the_same_layout_need_no_memory)
{
    static const aril_dtype dtypes[] = { ARIL_F32, ARIL_F64, ARIL_F16 };
    static list l;
    for (int d = 0; d < 3; d++) {
        ARIL_SCOPE;
        list_new(&l, MAX_PARAMS, dtypes[d]);
        aril_fail_allocation(1);
        aril_status s = list_apply(&l);
        bool failed = aril_allocation_failed();
        aril_fail_allocation(0);
        CHECK_INT(s, ARIL_OK);
        CHECK(!failed);
    }
}

/* ---- the rows ---- */

TEST(rows_are_in_alphabetical_order_and_documented)
{
    const char *const *names = aril_optim_names();
    for (int i = 0; names[i]; i++) {
        const char *doc = aril_optim_doc(names[i]);
        CHECK_MSG(doc && *doc && strlen(doc) < 90, "%s: %s", names[i], doc ? doc : "NULL");
        if (i) CHECK_MSG(strcmp(names[i - 1], names[i]) < 0, "%s", names[i]);
    }
    CHECK_FAILS(aril_optim_doc("sdg"), ARIL_ERR_ARG, "did you mean sgd?");
}

TEST(lbfgs_alone_needs_a_closure)
{
    const char *const *names = aril_optim_names();
    for (int i = 0; names[i]; i++) {
        aril_optim *opt = aril_optim_new(names[i], NULL, (aril_optim_opts){ 0 });
        CHECK_INT(aril_optim_needs_closure(opt), strcmp(names[i], "lbfgs") == 0);
        aril_optim_free(opt);
    }
    CHECK(!aril_optim_needs_closure(NULL));
}
