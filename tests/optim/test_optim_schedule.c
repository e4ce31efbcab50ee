/* Schedules: by name, per epoch and per batch, combined, wrong. Learning rates are compared with
 * PyTorch's in golden_optim. */
#include "aril/aril.h"
#include "support/device.h"
#include "support/test.h"

#include <math.h>
#include <string.h>

#define CHECK_FAILS(call, code, text)                                                       \
    do {                                                                                    \
        CHECK((call) == NULL);                                                              \
        CHECK_INT(aril_error_code(), code);                                                 \
        CHECK_MSG(strstr(aril_error(), text), "'%s' is not in '%s'", (text), aril_error()); \
        aril_clear_error();                                                                 \
    } while (0)

static double lr(aril_optim *o)
{
    return aril_item(aril_optim_lr(o));
}

TEST(unknown_names_get_suggestions)
{
    const char *const *names = aril_schedule_names();
    int n = 0;
    for (; names[n]; n++) {
        aril_schedule *s = aril_schedule_new(
            names[n],
            (aril_schedule_opts){ .total = 10, .every = 5, .gamma = 0.5, .at = { 3, 6 } });
        CHECK_MSG(s, "%s: %s", names[n], aril_error());
        CHECK(n == 0 || strcmp(names[n - 1], names[n]) < 0);
        double first = aril_schedule_at(s, 1, 0);
        CHECK(strcmp(names[n], "plateau") == 0 ? isnan(first) : first > 0 && first <= 1);
        aril_schedule_free(s);
    }
    CHECK_INT(n, 13);
    aril_schedule_opts none = { 0 };
    CHECK_FAILS(aril_schedule_new("cosin", none), ARIL_ERR_ARG, "did you mean cosine?");
    CHECK_FAILS(aril_schedule_new("qqqqqqq", none), ARIL_ERR_ARG, "available: constant, cosine");
    CHECK_FAILS(aril_schedule_new(NULL, none), ARIL_ERR_ARG, "NULL");
}

TEST(invalid_options_are_reported)
{
    aril_schedule_opts none = { 0 };
    CHECK_FAILS(aril_cosine_schedule(none), ARIL_ERR_ARG, ".total");
    CHECK_FAILS(aril_step_schedule(none), ARIL_ERR_ARG, ".every");
    CHECK_FAILS(aril_multistep_schedule(none), ARIL_ERR_ARG, ".at");
    CHECK_FAILS(aril_multistep_schedule((aril_schedule_opts){ .at = { 5, 3 } }), ARIL_ERR_ARG,
                "must ascend");
    CHECK_FAILS(aril_exponential_schedule(none), ARIL_ERR_ARG, ".gamma");
    CHECK_FAILS(aril_warm_restarts_schedule((aril_schedule_opts){ .total = 5, .growth = 0.5 }),
                ARIL_ERR_ARG, ".growth");
    CHECK_FAILS(aril_cyclic_schedule((aril_schedule_opts){ .max_lr = -5 }), ARIL_ERR_ARG,
                ".max_lr");
    CHECK_FAILS(aril_cyclic_schedule((aril_schedule_opts){ .max_lr = 1, .down = -1 }), ARIL_ERR_ARG,
                ".down");
    CHECK_FAILS(aril_one_cycle_schedule((aril_schedule_opts){ .total = 5, .warm_share = 2 }),
                ARIL_ERR_ARG, ".warm_share");
    CHECK_FAILS(aril_one_cycle_schedule((aril_schedule_opts){ .total = 5, .base_momentum = 0.99 }),
                ARIL_ERR_ARG, ".base_momentum must be at least 0 and at most .max_momentum");
    CHECK_FAILS(aril_cyclic_schedule((aril_schedule_opts){ .max_momentum = 1 }), ARIL_ERR_ARG,
                ".max_momentum");
    CHECK_FAILS(aril_plateau_schedule((aril_schedule_opts){ .factor = 1.5 }), ARIL_ERR_ARG,
                ".factor");
    CHECK_FAILS(aril_function_schedule(NULL, NULL, none), ARIL_ERR_ARG, "NULL");
    CHECK_FAILS(aril_chained_schedule(0, NULL), ARIL_ERR_ARG, "expected at least one part, got 0");
    aril_schedule_opts five = { .total = 5 }, batches = { .total = 5, .per_batch = true };
    aril_schedule *mixed[] = { aril_linear_schedule(five), aril_linear_schedule(batches) };
    CHECK_FAILS(aril_chained_schedule(2, mixed), ARIL_ERR_ARG, "some parts count batches");
    aril_schedule *hole[] = { aril_linear_schedule(five), NULL };
    CHECK_FAILS(aril_sequential_schedule(2, hole, (int64_t[]){ 3 }), ARIL_ERR_ARG,
                "part 1 is NULL");
    aril_schedule *three[] = { aril_linear_schedule(five), aril_linear_schedule(five),
                               aril_linear_schedule(five) };
    CHECK_FAILS(aril_sequential_schedule(3, three, (int64_t[]){ 5, 5 }), ARIL_ERR_ARG, "ascend");

    aril_optim *o = aril_sgd(NULL, (aril_sgd_opts){ 0 });
    CHECK_INT(aril_optim_schedule(o, NULL), ARIL_ERR_ARG);
    aril_clear_error();
    CHECK_INT(aril_optim_schedule(NULL, aril_linear_schedule(five)), ARIL_ERR_ARG);
    aril_clear_error();
    CHECK_INT(aril_optim_epoch(NULL, 0), ARIL_ERR_ARG);
    aril_clear_error();
    aril_optim_free(o);
}

TEST(epochs_and_batches_are_counted_separately)
{
    ARIL_SCOPE;
    aril_tensor *p = aril_parameter(aril_ones(ARIL_SHAPE(2), ARIL_F32, test_device()));
    aril_optim *o = aril_sgd(ARIL_TENSORS(p), (aril_sgd_opts){ .lr = 1 });
    CHECK_INT(aril_optim_schedule(o, aril_linear_schedule((aril_schedule_opts){
                                         .total = 4, .start = 0.2, .per_batch = true })),
              ARIL_OK);
    CHECK_INT(aril_optim_schedule(o,
                                  aril_exponential_schedule((aril_schedule_opts){ .gamma = 0.5 })),
              ARIL_OK);
    CHECK_NEAR(lr(o), 0.2, 1e-12);
    for (int t = 0; t < 2; t++) {
        aril_set_grad(p, aril_ones(ARIL_SHAPE(2), ARIL_F32, test_device()));
        CHECK_INT(aril_step(o), ARIL_OK);
    }
    CHECK_NEAR(lr(o), 0.6, 1e-12); /* halfway up */
    CHECK_INT(aril_optim_epoch(o, NAN), ARIL_OK);
    CHECK_NEAR(lr(o), 0.3, 1e-12);
    CHECK_INT(aril_schedule_step(o), ARIL_OK); /* both */
    CHECK_NEAR(lr(o), 0.8 * 0.25, 1e-12);
    CHECK_INT(aril_optim_set_lr(o, 2), ARIL_OK); /* continues from another base */
    CHECK_NEAR(lr(o), 1.6 * 0.25, 1e-12);
    aril_optim_free(o);
    aril_release(p);
}

TEST(groups_follow_in_proportion)
{
    ARIL_SCOPE;
    aril_tensor *p = aril_parameter(aril_ones(ARIL_SHAPE(2), ARIL_F32, test_device()));
    aril_tensor *q = aril_parameter(aril_ones(ARIL_SHAPE(2), ARIL_F32, test_device()));
    aril_optim *o = aril_sgd(ARIL_TENSORS(p), (aril_sgd_opts){ .lr = 1 });
    aril_optim_schedule(o, aril_step_schedule((aril_schedule_opts){ .every = 1, .gamma = 0.5 }));
    aril_optim_epoch(o, NAN);
    CHECK_INT(aril_optim_add_group(o, ARIL_TENSORS(q), (aril_sgd_opts){ .lr = 3 }), 1);
    CHECK_NEAR(aril_item(aril_optim_group_lr(o, 1)), 1.5, 1e-12);
    aril_optim_epoch(o, NAN);
    CHECK_NEAR(lr(o), 0.25, 1e-12);
    CHECK_NEAR(aril_item(aril_optim_group_lr(o, 1)), 0.75, 1e-12);
    aril_optim_free(o);
    aril_release(p);
    aril_release(q);
}

TEST(plateau_drops_when_the_metric_stops_improving)
{
    aril_optim *o = aril_sgd(NULL, (aril_sgd_opts){ .lr = 1 });
    aril_optim_schedule(o, aril_plateau_schedule((aril_schedule_opts){ .patience = 2 }));
    aril_optim_epoch(o, 1);
    aril_optim_epoch(o, 0.5);
    for (int i = 0; i < 2; i++) aril_optim_epoch(o, 0.5);
    aril_optim_epoch(o, NAN); /* a NaN metric is ignored */
    CHECK_NEAR(lr(o), 1, 0);
    aril_optim_epoch(o, 0.6);
    CHECK_NEAR(lr(o), 0.1, 1e-12);
    aril_optim_free(o);
}

static double halves(double base, int64_t t, void *ctx)
{
    ++*(int *)ctx;
    return base / (double)(1 << t);
}

TEST(custom_function)
{
    int calls = 0;
    aril_optim *o = aril_sgd(NULL, (aril_sgd_opts){ .lr = 1 });
    aril_optim_schedule(o, aril_function_schedule(halves, &calls, (aril_schedule_opts){ 0 }));
    for (int i = 0; i < 3; i++) aril_optim_epoch(o, NAN);
    CHECK_NEAR(lr(o), 0.125, 0);
    CHECK_INT(calls, 4);
    aril_optim_free(o);
}

TEST(schedule_has_one_owner)
{
    ARIL_SCOPE;
    aril_tensor *w = aril_ones(ARIL_SHAPE(3), ARIL_F32, test_device());
    aril_set_requires_grad(w, true);
    aril_optim *o = aril_sgd(ARIL_TENSORS(w), (aril_sgd_opts){ .lr = 1 });
    aril_schedule *s = aril_exponential_schedule((aril_schedule_opts){ .gamma = 0.5 });
    CHECK_INT(aril_optim_schedule(o, s), ARIL_OK);
    CHECK_INT(aril_optim_schedule(o, s), ARIL_ERR_ARG);
    CHECK(strstr(aril_error(), "already in use"));
    aril_clear_error();
    aril_schedule *fresh = aril_exponential_schedule((aril_schedule_opts){ .gamma = 0.5 });
    CHECK_FAILS(aril_chained_schedule(2, (aril_schedule *[]){ fresh, s }), ARIL_ERR_ARG, "in use");
    fresh = aril_exponential_schedule((aril_schedule_opts){ .gamma = 0.5 });
    CHECK_FAILS(aril_chained_schedule(3, (aril_schedule *[]){ fresh, fresh, fresh }), ARIL_ERR_ARG,
                "in use");
    aril_optim_epoch(o, NAN);
    CHECK(lr(o) == 0.5);
    aril_optim_free(o);
}

TEST(schedule_options_must_be_finite)
{
    CHECK_FAILS(aril_cosine_schedule((aril_schedule_opts){ .total = 9, .min_lr = NAN }),
                ARIL_ERR_ARG, ".min_lr is nan");
    CHECK_FAILS(aril_exponential_schedule((aril_schedule_opts){ .gamma = NAN }), ARIL_ERR_ARG,
                ".gamma");
    CHECK_FAILS(aril_polynomial_schedule((aril_schedule_opts){ .power = INFINITY }), ARIL_ERR_ARG,
                ".power");
}

/* ---- over a whole training ---- */

static double over(const char *name, int64_t epochs, int64_t steps, aril_schedule_opts opts,
                   int64_t t)
{
    aril_schedule *s = aril_schedule_for_training(name, epochs, steps, opts);
    double rate = s ? aril_schedule_at(s, 1, t) : (double)NAN;
    aril_schedule_free(s);
    return rate;
}

TEST(schedules_end_with_the_training)
{
    aril_schedule_opts none = { 0 };
    /* Per step: 10 epochs of 20. */
    CHECK_NEAR(over("cosine", 10, 20, none, 0), 1, 1e-12);
    CHECK_NEAR(over("cosine", 10, 20, none, 100), 0.5, 1e-12);
    CHECK_NEAR(over("cosine", 10, 20, none, 200), 0, 1e-12);
    CHECK_NEAR(over("linear", 10, 20, none, 50), 0.75, 1e-12);
    CHECK_NEAR(over("linear", 10, 20, none, 200), 0, 1e-12);
    CHECK_NEAR(over("constant", 10, 20, none, 50), 1, 1e-12);
    CHECK_NEAR(over("polynomial", 10, 20, none, 100), 0.5, 1e-12);
    CHECK_NEAR(over("sigmoid", 10, 20, (aril_schedule_opts){ .gamma = -1 }, 100), 0.5, 1e-12);
    CHECK(over("one_cycle", 10, 20, none, 60) > 0.99); /* the maximum, after 0.3 of it */
    CHECK(over("one_cycle", 10, 20, none, 199) < 1e-4);
    /* Per epoch. */
    CHECK_NEAR(over("step", 9, 20, none, 2), 1, 1e-12);
    CHECK_NEAR(over("step", 9, 20, none, 3), 0.1, 1e-12);
    CHECK_NEAR(over("step", 9, 20, none, 8), 0.01, 1e-12);
    CHECK_NEAR(over("multistep", 8, 20, none, 3), 1, 1e-12);
    CHECK_NEAR(over("multistep", 8, 20, none, 4), 0.1, 1e-12);
    CHECK_NEAR(over("multistep", 8, 20, none, 6), 0.01, 1e-12);
    CHECK_NEAR(over("exponential", 8, 20, (aril_schedule_opts){ .gamma = 0.5 }, 2), 0.25, 1e-12);
    CHECK(aril_ok());
}

TEST(lengths_over_a_training_are_in_epochs)
{
    /* The warm-up shares the steps: 2 of 10 epochs, then half of the cosine after 4 more. */
    aril_schedule_opts warm = { .warmup = 2, .warm_start = 0.5 };
    CHECK_NEAR(over("cosine", 10, 20, warm, 0), 0.5, 1e-12);
    CHECK_NEAR(over("cosine", 10, 20, warm, 20), 0.75, 1e-12);
    CHECK_NEAR(over("cosine", 10, 20, warm, 40), 1, 1e-12);
    CHECK_NEAR(over("cosine", 10, 20, warm, 120), 0.5, 1e-12);
    CHECK_NEAR(over("cosine", 10, 20, warm, 200), 0, 1e-12);
    /* What is given stays: a cosine over the first half. */
    CHECK_NEAR(over("cosine", 10, 20, (aril_schedule_opts){ .total = 5 }, 50), 0.5, 1e-12);
    CHECK_NEAR(over("step", 9, 20, (aril_schedule_opts){ .every = 6 }, 5), 1, 1e-12);
    CHECK_NEAR(over("multistep", 9, 20, (aril_schedule_opts){ .at = { 2 } }, 8), 0.1, 1e-12);
    aril_schedule_opts none = { 0 };
    CHECK_FAILS(aril_schedule_for_training("cosine", 0, 20, none), ARIL_ERR_ARG, "0 epochs");
    CHECK_FAILS(aril_schedule_for_training("cosine", 3, -1, none), ARIL_ERR_ARG, "-1 steps");
    CHECK_FAILS(aril_schedule_for_training("cosin", 3, 1, none), ARIL_ERR_ARG, "did you mean");
    /* Each name works over any training: short ones, too. */
    for (const char *const *n = aril_schedule_names(); *n; n++)
        for (int64_t epochs = 1; epochs < 5; epochs++) {
            aril_schedule *s =
                aril_schedule_for_training(*n, epochs, 1,
                                           (aril_schedule_opts){ .gamma = 0.5, .warmup = 1 });
            CHECK_MSG(s, "%s: %s", *n, aril_error());
            aril_schedule_free(s);
        }
}

/* Whether gamma changes the learning rate at some count. */
static bool depends_on_gamma(const char *name)
{
    aril_schedule *s[2];
    bool differs = false;
    for (int i = 0; i < 2; i++)
        s[i] = aril_schedule_for_training(name, 10, 10,
                                          (aril_schedule_opts){ .gamma = i ? 0.25 : 0.5 });
    for (int64_t t = 0; t < 100; t++)
        differs |= fabs(aril_schedule_at(s[0], 1, t) - aril_schedule_at(s[1], 1, t)) > 1e-9;
    aril_schedule_free(s[0]);
    aril_schedule_free(s[1]);
    return differs;
}

TEST(schedules_name_their_options)
{
    int needing = 0;
    for (const char *const *name = aril_schedule_names(); *name; name++) {
        const char *const *options = aril_schedule_option_names(*name);
        bool has = false;
        for (; *options; options++) has |= strcmp(*options, "gamma") == 0;
        CHECK_MSG(has == depends_on_gamma(*name), "%s: gamma", *name);
        aril_schedule *s = aril_schedule_for_training(*name, 10, 10, (aril_schedule_opts){ 0 });
        CHECK_MSG((s == NULL) == aril_schedule_needs_gamma(*name), "%s: %s", *name, aril_error());
        needing += s == NULL;
        aril_schedule_free(s);
        aril_clear_error();
    }
    CHECK_INT(needing, 3);
    CHECK_FAILS(aril_schedule_option_names("cosin"), ARIL_ERR_ARG, "did you mean cosine?");
    CHECK(!aril_schedule_needs_gamma("cosin") && !aril_ok());
    aril_clear_error();
}

/* ---- momentum ---- */

static aril_optim *cycling(const char *name, aril_tensor *p, aril_optim_opts opts)
{
    aril_optim *o = aril_optim_new(name, ARIL_TENSORS(p), opts);
    aril_optim_schedule(o, aril_one_cycle_schedule((aril_schedule_opts){
                               .total = 12, .per_batch = true, .warmup = 3 }));
    return o;
}

static void steps(aril_optim *o, aril_tensor *p, int from, int to)
{
    for (int t = from; t < to; t++) {
        ARIL_SCOPE;
        aril_set_grad(p, aril_full(ARIL_SHAPE(3), 1 + t % 4, ARIL_F32, test_device()));
        aril_step(o);
    }
}

TEST(momentum_continues_from_a_saved_state)
{
    static const char *const names[] = { "sgd", "adam", "rmsprop", "lion" };
    for (int k = 0; k < 4; k++)
        for (int at = 0; at < 12; at += 5) {
            ARIL_SCOPE;
            aril_tensor *p = aril_parameter(aril_ones(ARIL_SHAPE(3), ARIL_F32, test_device()));
            aril_tensor *q = aril_parameter(aril_ones(ARIL_SHAPE(3), ARIL_F32, test_device()));
            aril_optim *a = cycling(names[k], p, (aril_optim_opts){ .lr = 0.1 });
            aril_optim *b = cycling(names[k], q, (aril_optim_opts){ .lr = 0.1 });
            steps(a, p, 0, at);
            steps(b, q, 0, 2);
            aril_copy_(aril_detach(q), aril_detach(p));
            CHECK_MSG(aril_optim_load_state(b, aril_optim_state(a)) == ARIL_OK, "%s: %s", names[k],
                      aril_error());
            steps(a, p, at, 12);
            steps(b, q, at, 12);
            float x[3], y[3];
            aril_read(p, x);
            aril_read(q, y);
            CHECK_MSG(memcmp(x, y, sizeof x) == 0, "%s from step %d: %.9g and %.9g", names[k], at,
                      (double)x[0], (double)y[0]);
            aril_optim_free(a);
            aril_optim_free(b);
            aril_release(p);
            aril_release(q);
        }
    CHECK_MSG(aril_ok(), "%s", aril_error());
}

TEST(momentum_of_combined_schedules)
{
    aril_schedule *s = aril_one_cycle_schedule(
        (aril_schedule_opts){ .total = 10, .warmup = 5, .max_momentum = 0.97 });
    CHECK_NEAR(aril_schedule_momentum_at(s, 0.6, 4), 0.6, 0); /* the optimizer's own */
    CHECK_NEAR(aril_schedule_momentum_at(s, 0.6, 5), 0.97, 1e-15);
    CHECK_NEAR(aril_schedule_momentum_at(s, 0.6, 5 + 2), 0.85, 1e-15);
    aril_schedule *both = aril_chained_schedule(
        2, (aril_schedule *[]){ s, aril_cosine_schedule((aril_schedule_opts){ .total = 10 }) });
    CHECK_NEAR(aril_schedule_momentum_at(both, 0.6, 5), 0.97, 1e-15);
    aril_schedule_free(both);
    CHECK(isnan(aril_schedule_momentum_at(NULL, 0.6, 1)));
}

/* As before the schedule moved the momentum. */
TEST(optimizers_without_momentum_follow_the_rate_alone)
{
    ARIL_SCOPE;
    aril_tensor *p = aril_parameter(aril_ones(ARIL_SHAPE(3), ARIL_F32, test_device()));
    aril_optim *o = cycling("adagrad", p, (aril_optim_opts){ .lr = 0.1 });
    steps(o, p, 0, 12);
    CHECK_MSG(aril_ok(), "%s", aril_error());
    CHECK_INT(aril_item_int(aril_optim_steps(o)), 12);
    aril_optim_free(o);
    aril_release(p);
}
