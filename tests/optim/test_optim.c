/* Optimizers: groups, clipping, accumulation, missing gradients, dtypes, loss scale, averages. */
#include "aril/aril.h"
#include "support/compare.h"
#include "support/device.h"
#include "support/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 6 };

static aril_tensor *param(double value, aril_dtype dtype)
{
    return aril_parameter(aril_full(ARIL_SHAPE(N), value, dtype, test_device()));
}

static void give_grad(aril_tensor *p, double value)
{
    ARIL_SCOPE;
    aril_set_grad(p, aril_full(aril_shape_of(p), value, aril_dtype_of(p), test_device()));
}

static double first(aril_tensor *t)
{
    ARIL_SCOPE;
    return aril_item(aril_select(aril_reshape(aril_detach(t), ARIL_SHAPE(-1)), 0, 0));
}

/* A failed call: its code, and part of the message. */
#define CHECK_FAILS(call, code, text)                                                       \
    do {                                                                                    \
        (void)(call);                                                                       \
        CHECK_INT(aril_error_code(), code);                                                 \
        CHECK_MSG(strstr(aril_error(), text), "'%s' is not in '%s'", (text), aril_error()); \
        aril_clear_error();                                                                 \
    } while (0)

TEST(unknown_names_get_suggestions)
{
    const char *const *names = aril_optim_names();
    int n = 0;
    for (; names[n]; n++) {
        aril_optim *o = aril_optim_new(names[n], NULL, (aril_optim_opts){ 0 });
        CHECK_MSG(o, "%s", aril_error());
        CHECK(strcmp(aril_optim_name(o), names[n]) == 0);
        CHECK(n == 0 || strcmp(names[n - 1], names[n]) < 0);
        CHECK(aril_optim_option_names(names[n]) != NULL);
        aril_optim_free(o);
    }
    CHECK_INT(n, 17);
    aril_optim_opts none = { 0 };
    CHECK_FAILS(aril_optim_new("adm", NULL, none), ARIL_ERR_ARG, "did you mean adam?");
    CHECK_FAILS(aril_optim_new("zzzzzzzz", NULL, none), ARIL_ERR_ARG, "available: adadelta, ");
    CHECK_FAILS(aril_optim_new(NULL, NULL, none), ARIL_ERR_ARG, "unknown optimizer 'NULL'");
    CHECK_FAILS(aril_optim_option_names("sdg"), ARIL_ERR_ARG, "did you mean sgd?");
}

TEST(invalid_options_are_reported)
{
    CHECK_FAILS(aril_adam(NULL, (aril_adam_opts){ .momentum = 0.9 }), ARIL_ERR_ARG,
                "adam has no option momentum; available: lr, weight_decay, beta1");
    CHECK_FAILS(aril_sgd(NULL, (aril_sgd_opts){ .lr = -1 }), ARIL_ERR_ARG, "lr must be at least 0");
    CHECK_FAILS(aril_sgd(NULL, (aril_sgd_opts){ .lr = NAN }), ARIL_ERR_ARG,
                "lr must be at least 0");
    CHECK_FAILS(aril_sgd(NULL, (aril_sgd_opts){ .nesterov = true }), ARIL_ERR_ARG,
                "nesterov needs momentum");
    CHECK_FAILS(aril_adam(NULL, (aril_adam_opts){ .beta1 = 1 }), ARIL_ERR_ARG,
                "beta1 must be at least 0 and below 1, got 1");
    CHECK_FAILS(aril_rprop(NULL, (aril_rprop_opts){ .eta_plus = 0.9 }), ARIL_ERR_ARG, "eta_plus");
    CHECK_FAILS(aril_rprop(NULL, (aril_rprop_opts){ .step_min = 100 }), ARIL_ERR_ARG, "step_max");
    CHECK_FAILS(aril_lbfgs(NULL, (aril_lbfgs_opts){ .clip_norm = 1 }), ARIL_ERR_ARG,
                "lbfgs has no option clip_norm");
    CHECK_FAILS(aril_sgd(NULL, (aril_sgd_opts){ .accumulate = -2 }), ARIL_ERR_ARG, "accumulate");
}

TEST(defaults_are_known_before_creation)
{
    for (const char *const *name = aril_optim_names(); *name; name++) {
        aril_optim *o = aril_optim_new(*name, NULL, (aril_optim_opts){ 0 });
        CHECK_NEAR(aril_item(aril_optim_lr(o)), aril_optim_defaults(*name).lr, 0);
        aril_optim_free(o);
        o = aril_optim_new(*name, NULL, aril_optim_defaults(*name));
        CHECK_MSG(o != NULL, "%s", aril_error());
        aril_optim_free(o);
    }
    CHECK_NEAR(aril_optim_defaults("muon").momentum, 0.95, 0);
    CHECK_NEAR(aril_optim_defaults("sgd").momentum, 0, 0);
    CHECK_INT(aril_optim_defaults("sgd").loss_scale_growth, 2000);
    CHECK(aril_ok());
    CHECK_NEAR(aril_optim_defaults("sdg").lr, 0, 0);
    CHECK_INT(aril_error_code(), ARIL_ERR_ARG);
    aril_clear_error();
}

TEST(invalid_parameters_are_reported)
{
    ARIL_SCOPE;
    aril_tensor *p = param(1, ARIL_F32), *q = param(1, ARIL_F32);
    aril_tensor *integer = aril_zeros(ARIL_SHAPE(2), ARIL_I64, test_device());
    aril_sgd_opts opts = { 0 };
    CHECK_FAILS(aril_sgd(ARIL_TENSORS(p, integer), opts), ARIL_ERR_DTYPE, "parameter '1' is i64");
    CHECK_FAILS(aril_sgd(ARIL_TENSORS(p, NULL), opts), ARIL_ERR_ARG, "NULL");
    CHECK_FAILS(aril_sgd(ARIL_TENSORS(p, q, p), opts), ARIL_ERR_ARG,
                "parameter '2' was already added as '0'");
    const char *names[] = { "w", "w" };
    aril_named twice = { 2, (aril_tensor *[]){ p, q }, names };
    CHECK_FAILS(aril_sgd(&twice, opts), ARIL_ERR_ARG, "two parameters have the name 'w'");

    aril_optim *o = aril_sgd(NULL, opts);
    CHECK_FAILS(aril_step(o), ARIL_ERR_STATE, "no parameters");
    CHECK_FAILS(aril_optim_set_parameters(o, NULL), ARIL_ERR_ARG, "NULL");
    CHECK_INT(aril_optim_set_parameters(o, ARIL_TENSORS(p)), ARIL_OK);
    CHECK_FAILS(aril_optim_set_parameters(o, ARIL_TENSORS(q)), ARIL_ERR_STATE, "already");
    CHECK_FAILS(aril_step(o), ARIL_ERR_GRAD, "none of the 1 parameters has a gradient");
    CHECK_FAILS(aril_step(NULL), ARIL_ERR_ARG, "NULL");
    CHECK_FAILS(aril_step_closure(o, NULL, NULL), ARIL_ERR_ARG, "NULL");
    CHECK_FAILS(aril_optim_group_lr(o, 1), ARIL_ERR_INDEX, "group 1 is out of range, there are 1");
    CHECK_FAILS(aril_optim_add_group(o, ARIL_TENSORS(q), (aril_sgd_opts){ .clip_norm = 1 }),
                ARIL_ERR_ARG, "clip_norm is an option of the optimizer, not of a group;");
    CHECK_FAILS(aril_optim_add_group(o, ARIL_TENSORS(p), opts), ARIL_ERR_ARG,
                "parameter '1' was already added as '0'");
    CHECK_INT(aril_optim_parameters(o)->n, 1); /* as before */
    CHECK_INT(aril_optim_groups(o), 1);
    aril_optim_free(o);
    aril_optim_free(NULL);

    o = aril_lbfgs(ARIL_TENSORS(p), (aril_lbfgs_opts){ 0 });
    CHECK_FAILS(aril_step(o), ARIL_ERR_STATE, "aril_step_closure");
    CHECK_FAILS(aril_optim_add_group(o, ARIL_TENSORS(q), opts), ARIL_ERR_UNSUPPORTED,
                "lbfgs supports a single group only");
    aril_optim_free(o);
    aril_release(p);
    aril_release(q);
}

/* Many small parameters, as in large ensembles. With a comparison of every pair this would take
 * minutes. */
TEST(a_hundred_thousand_parameters)
{
    enum { HALF = 50000, ALL = 2 * HALF };
    aril_tensor **p = calloc(ALL + 1, sizeof *p);
    char(*text)[16] = calloc(ALL + 1, sizeof *text);
    const char **names = calloc(ALL + 1, sizeof *names);
    if (!p || !text || !names) abort();
    ARIL_SCOPE;
    for (int i = 0; i < ALL; i++) {
        p[i] = param(1, ARIL_F32);
        snprintf(text[i], sizeof text[i], "p%d", i);
        names[i] = text[i];
    }
    aril_named first = { HALF, p, names }, rest = { HALF, p + HALF, names + HALF };
    aril_optim *o = aril_sgd(&first, (aril_sgd_opts){ 0 });
    CHECK_INT(aril_optim_add_group(o, &rest, (aril_sgd_opts){ 0 }), 1);
    CHECK_INT(aril_optim_parameters(o)->n, ALL);
    CHECK(aril_optim_parameters(o)->at[ALL - 1] == p[ALL - 1]);

    /* A group that fails at its end leaves nothing behind, and later ones still find all. */
    aril_tensor *more[] = { param(1, ARIL_F32), p[HALF - 1] };
    const char *more_names[] = { "new", "p0" };
    aril_sgd_opts opts = { 0 };
    aril_named same = { 2, more, more_names };
    for (int i = 0; i < 2; i++)
        CHECK_FAILS(aril_optim_add_group(o, &same, opts), ARIL_ERR_ARG,
                    "parameter 'p0' was already added as 'p49999'");
    aril_tensor *last = more[1] = param(1, ARIL_F32);
    CHECK_FAILS(aril_optim_add_group(o, &same, opts), ARIL_ERR_ARG,
                "two parameters have the name 'p0'");
    same.n = 1;
    CHECK_INT(aril_optim_add_group(o, &same, opts), 2);
    CHECK_INT(aril_optim_parameters(o)->n, ALL + 1);
    for (int i = 0; i < ALL; i++) aril_release(p[i]);
    aril_release(more[0]);
    aril_release(last);
    aril_optim_free(o);
    free(p);
    free(text);
    free(names);
}

TEST(parameters_can_be_added_later)
{
    aril_tensor *p = param(1, ARIL_F32);
    aril_optim *o = aril_sgd(NULL, (aril_sgd_opts){ .lr = 0.5 });
    CHECK_INT(aril_optim_parameters(o)->n, 0);
    const char *name = "w";
    CHECK_INT(aril_optim_set_parameters(o, &(aril_named){ 1, &p, &name }), ARIL_OK);
    CHECK(strcmp(aril_optim_parameters(o)->name[0], "w") == 0);
    give_grad(p, 1);
    CHECK_INT(aril_step(o), ARIL_OK);
    CHECK_NEAR(first(p), 0.5, 0);
    CHECK(!aril_has_grad(p));
    CHECK_INT(aril_item_int(aril_optim_steps(o)), 1);
    aril_optim_free(o);
    CHECK_NEAR(first(p), 0.5, 0);
    aril_release(p);
}

TEST(groups_have_options_of_their_own)
{
    aril_tensor *p = param(1, ARIL_F32), *q = param(1, ARIL_F32), *r = param(1, ARIL_F32);
    aril_optim *o = aril_sgd(ARIL_TENSORS(p), (aril_sgd_opts){ .lr = 0.1, .weight_decay = 0.5 });
    CHECK_INT(aril_optim_add_group(o, ARIL_TENSORS(q), (aril_sgd_opts){ .lr = 0.2 }), 1);
    CHECK_INT(
        aril_optim_add_group(o, ARIL_TENSORS(r), (aril_sgd_opts){ .weight_decay = ARIL_ZERO }), 2);
    CHECK_INT(aril_optim_groups(o), 3);
    CHECK_INT(aril_optim_parameters(o)->n, 3);
    CHECK(strcmp(aril_optim_parameters(o)->name[2], "2") == 0);
    give_grad(p, 1);
    give_grad(q, 1);
    give_grad(r, 1);
    CHECK_INT(aril_step(o), ARIL_OK);
    CHECK_NEAR(first(p), 1 - 0.1 * 1.5, 1e-6);
    CHECK_NEAR(first(q), 1 - 0.2 * 1.5, 1e-6);
    CHECK_NEAR(first(r), 1 - 0.1, 1e-6);
    CHECK_INT(aril_optim_set_lr(o, 1), ARIL_OK);
    CHECK_NEAR(aril_item(aril_optim_lr(o)), 1, 0);
    CHECK_NEAR(aril_item(aril_optim_group_lr(o, 1)), 2, 1e-12);
    CHECK_FAILS(aril_optim_set_lr(o, -1), ARIL_ERR_ARG, "at least 0");
    aril_optim_free(o);
    aril_release(p);
    aril_release(q);
    aril_release(r);
}

TEST(learning_rate_is_a_writable_tensor)
{
    ARIL_SCOPE;
    aril_tensor *p = param(1, ARIL_F64);
    aril_optim *o = aril_sgd(ARIL_TENSORS(p), (aril_sgd_opts){ .lr = 0.1 });
    aril_fill_(aril_optim_lr(o), 0.25);
    give_grad(p, 1);
    CHECK_INT(aril_step(o), ARIL_OK);
    CHECK_NEAR(first(p), 0.75, 0);
    CHECK_INT(aril_ndim(aril_optim_lr(o)), 0);
    CHECK_INT(aril_dtype_of(aril_optim_steps(o)), ARIL_I64);
    aril_optim_free(o);
    aril_release(p);
}

TEST(parameter_without_gradient_is_skipped_and_counts_its_own_steps)
{
    aril_tensor *p = param(1, ARIL_F32), *late = param(1, ARIL_F32), *alone = param(1, ARIL_F32);
    aril_optim *o = aril_adam(ARIL_TENSORS(p, late), (aril_adam_opts){ .lr = 0.1 });
    aril_optim *fresh = aril_adam(ARIL_TENSORS(alone), (aril_adam_opts){ .lr = 0.1 });
    for (int t = 0; t < 8; t++) {
        give_grad(p, 1 + t);
        if (t >= 5) {
            give_grad(late, 0.5 + t);
            give_grad(alone, 0.5 + t);
            CHECK_INT(aril_step(fresh), ARIL_OK);
        }
        CHECK_INT(aril_step(o), ARIL_OK);
        if (t == 4) CHECK_NEAR(first(late), 1, 0);
    }
    CHECK_NEAR(first(late), first(alone), 0);
    CHECK(first(late) < 0.9);
    aril_optim_free(o);
    aril_optim_free(fresh);
    aril_release(p);
    aril_release(late);
    aril_release(alone);
}

TEST(parameter_of_a_later_group_counts_its_own_steps)
{
    aril_tensor *p = param(1, ARIL_F32), *late = param(1, ARIL_F32), *alone = param(1, ARIL_F32);
    aril_optim *o = aril_adam(ARIL_TENSORS(p), (aril_adam_opts){ .lr = 0.1 });
    aril_optim *fresh = aril_adam(ARIL_TENSORS(alone), (aril_adam_opts){ .lr = 0.1 });
    for (int t = 0; t < 8; t++) {
        if (t == 5)
            CHECK_INT(aril_optim_add_group(o, ARIL_TENSORS(late), (aril_adam_opts){ 0 }), 1);
        give_grad(p, 1 + t);
        if (t >= 5) {
            give_grad(late, 0.5 + t);
            give_grad(alone, 0.5 + t);
            CHECK_INT(aril_step(fresh), ARIL_OK);
        }
        CHECK_INT(aril_step(o), ARIL_OK);
    }
    CHECK_NEAR(first(late), first(alone), 0);
    aril_optim_free(o);
    aril_optim_free(fresh);
    aril_release(p);
    aril_release(late);
    aril_release(alone);
}

TEST(skipped_steps_are_not_missed_by_parameters_without_gradient)
{
    const aril_adam_opts opts = { .lr = 0.1, .loss_scale = 8, .loss_scale_growth = ARIL_ZERO };
    aril_tensor *p = param(1, ARIL_F32), *late = param(1, ARIL_F32), *alone = param(1, ARIL_F32);
    aril_optim *o = aril_adam(ARIL_TENSORS(p, late), opts);
    aril_optim *fresh = aril_adam(ARIL_TENSORS(alone), opts);
    for (int t = 0; t < 8; t++) {
        give_grad(p, t == 0 || t == 1 || t == 4 ? INFINITY : 8.0 + t);
        if (t == 2 || t >= 5) {
            give_grad(late, 8 * (0.5 + t));
            give_grad(alone, 8 * (0.5 + t));
            CHECK_INT(aril_step(fresh), ARIL_OK);
        }
        CHECK_INT(aril_step(o), ARIL_OK);
        CHECK_NEAR(first(late), first(alone), 0);
    }
    CHECK_INT(aril_item_int(aril_optim_steps(o)), 5);

    /* What was counted is part of the state. */
    aril_tensor *q = param(first(p), ARIL_F32), *again = param(first(late), ARIL_F32);
    aril_optim *resumed = aril_adam(ARIL_TENSORS(q, again), opts);
    CHECK_INT(aril_optim_load_state(resumed, aril_optim_state(o)), ARIL_OK);
    give_grad(late, 24);
    CHECK_INT(aril_step(o), ARIL_OK);
    give_grad(again, 24);
    CHECK_INT(aril_step(resumed), ARIL_OK);
    CHECK_NEAR(first(again), first(late), 0);
    aril_optim_free(o);
    aril_optim_free(fresh);
    aril_optim_free(resumed);
    aril_tensor *all[] = { p, late, alone, q, again };
    for (int i = 0; i < 5; i++) aril_release(all[i]);
}

TEST(gradients_are_clipped_by_norm_and_by_value)
{
    ARIL_SCOPE;
    aril_tensor *p = param(0, ARIL_F32), *q = param(0, ARIL_F64), *none = param(0, ARIL_F32);
    const aril_named *all = ARIL_TENSORS(p, q, none);
    give_grad(p, 3);
    give_grad(q, -4);
    double norm = 5 * sqrt(N);
    CHECK_NEAR(aril_item(aril_clip_grad_norm(all, 1000, 0)), norm, 1e-5);
    CHECK_NEAR(first(aril_grad(p)), 3, 0);
    CHECK_NEAR(aril_item(aril_clip_grad_norm(all, norm / 10, 2)), norm, 1e-5);
    CHECK_NEAR(first(aril_grad(p)), 0.3, 1e-6);
    CHECK_NEAR(first(aril_grad(q)), -0.4, 1e-6);
    CHECK_NEAR(aril_item(aril_clip_grad_norm(all, 0.2, INFINITY)), 0.4, 1e-6);
    CHECK_NEAR(first(aril_grad(q)), -0.2, 1e-6);
    CHECK_INT(aril_clip_grad_value(all, 0.1), ARIL_OK);
    CHECK_NEAR(first(aril_grad(p)), 0.1, 1e-7);
    CHECK_NEAR(first(aril_grad(q)), -0.1, 1e-7);
    CHECK(!aril_has_grad(none));
    CHECK_NEAR(aril_item(aril_clip_grad_norm(ARIL_TENSORS(none), 1, 2)), 0, 0);
    CHECK_FAILS(aril_clip_grad_norm(NULL, 1, 2), ARIL_ERR_ARG, "NULL");
    CHECK_FAILS(aril_clip_grad_norm(all, -1, 2), ARIL_ERR_ARG, "at least 0");
    CHECK_FAILS(aril_clip_grad_value(all, NAN), ARIL_ERR_ARG, "at least 0");
    aril_release(p);
    aril_release(q);
    aril_release(none);
}

TEST(clipping_options_equal_clipping_functions)
{
    aril_tensor *p = param(1, ARIL_F32), *q = param(1, ARIL_F32);
    aril_optim *o = aril_sgd(ARIL_TENSORS(p), (aril_sgd_opts){ .lr = 1, .clip_norm = 0.5 });
    aril_optim *plain = aril_sgd(ARIL_TENSORS(q), (aril_sgd_opts){ .lr = 1 });
    give_grad(p, 2);
    give_grad(q, 2);
    {
        ARIL_SCOPE;
        aril_clip_grad_norm(ARIL_TENSORS(q), 0.5, 2);
    }
    CHECK_INT(aril_step(o), ARIL_OK);
    CHECK_INT(aril_step(plain), ARIL_OK);
    CHECK_NEAR(first(p), first(q), 1e-6);
    CHECK_NEAR(first(p), 1 - 0.5 / sqrt(N), 1e-5);
    give_grad(p, NAN); /* NaN is not hidden */
    CHECK_INT(aril_step(o), ARIL_OK);
    CHECK(isnan(first(p)));
    aril_optim_free(o);
    aril_optim_free(plain);
    aril_release(p);
    aril_release(q);
}

TEST(gradients_accumulate)
{
    aril_tensor *p = param(1, ARIL_F32), *q = param(1, ARIL_F32);
    aril_optim *o = aril_sgd(ARIL_TENSORS(p), (aril_sgd_opts){ .lr = 1, .accumulate = 3 });
    aril_optim *sum = aril_sgd(ARIL_TENSORS(q), (aril_sgd_opts){ .lr = 1 });
    for (int t = 1; t <= 3; t++) {
        ARIL_SCOPE;
        aril_backward(aril_sum(aril_mul_scalar(p, t), ARIL_ALL));
        aril_backward(aril_sum(aril_mul_scalar(q, t), ARIL_ALL));
        CHECK_INT(aril_step(o), ARIL_OK);
        CHECK_NEAR(first(p), t < 3 ? 1 : -1, 1e-6);
        CHECK_INT(aril_has_grad(p), t < 3);
        CHECK_INT(aril_item_int(aril_optim_steps(o)), t == 3);
    }
    CHECK_INT(aril_step(sum), ARIL_OK); /* several backward passes accumulate */
    CHECK_NEAR(first(q), 1 - 6, 1e-6);
    aril_optim_free(o);
    aril_optim_free(sum);
    aril_release(p);
    aril_release(q);
}

TEST(dtypes_can_be_mixed)
{
    const char *const *names = aril_optim_names();
    for (int k = 0; names[k]; k++) {
        if (strcmp(names[k], "lbfgs") == 0 || strcmp(names[k], "muon") == 0)
            continue; /* no vectors */
        static const aril_dtype dtypes[4] = { ARIL_F32, ARIL_F64, ARIL_F16, ARIL_BF16 };
        aril_tensor *p[4];
        for (int i = 0; i < 4; i++) p[i] = param(1, dtypes[i]);
        aril_optim *o = aril_optim_new(names[k], &(aril_named){ 4, p, NULL },
                                       (aril_optim_opts){ .lr = 0.05, .clip_norm = 10 });
        for (int t = 0; t < 5; t++) {
            for (int i = 0; i < 4; i++) give_grad(p[i], 0.5);
            CHECK_MSG(aril_step(o) == ARIL_OK, "%s: %s", names[k], aril_error());
        }
        for (int i = 0; i < 4; i++) {
            CHECK_INT(aril_dtype_of(p[i]), dtypes[i]);
            CHECK_MSG(first(p[i]) < 1 || i > 1, "%s, parameter %d: %.9g", names[k], i, first(p[i]));
            CHECK_NEAR(first(p[i]), first(p[1]), i == 0 ? 1e-6 : 2e-2);
        }
        const aril_named *state = aril_optim_state(o);
        for (int i = 0; i < state->n; i++)
            if (strncmp(state->name[i], "2.", 2) == 0 && aril_numel(state->at[i]) == N)
                CHECK_INT(aril_dtype_of(state->at[i]), ARIL_F32);
        aril_optim_free(o);
        for (int i = 0; i < 4; i++) aril_release(p[i]);
    }
}

/* Ten steps on parameters of odd sizes: everything they produce. */
enum { ODD = 70001 };
static void odd_run(const char *name, float *to, bool by_op, bool turned)
{
    ARIL_SCOPE;
    aril_seed(11);
    aril_tensor *big = aril_randn(ARIL_SHAPE(ODD), ARIL_F32, test_device());
    aril_tensor *small = aril_randn(ARIL_SHAPE(3, 5), ARIL_F32, test_device());
    aril_tensor *p[2] = { aril_parameter(big), NULL };
    /* The same values, column-major. */
    p[1] = aril_parameter(turned ? aril_t(aril_contiguous(aril_t(small))) : aril_copy(small));
    aril_optim *o = aril_optim_new(name, &(aril_named){ 2, p, NULL },
                                   (aril_optim_opts){ .lr = 0.02, .clip_value = 0.8 });
    for (int t = 0; t < 4; t++) {
        ARIL_SCOPE;
        aril_set_grad(p[0], aril_randn(ARIL_SHAPE(ODD), ARIL_F32, test_device()));
        aril_set_grad(p[1], aril_randn(ARIL_SHAPE(3, 5), ARIL_F32, test_device()));
        aril_set_anomaly(by_op);
        aril_step(o);
        aril_set_anomaly(false);
    }
    aril_read(p[0], to);
    aril_read(p[1], to + ODD);
    aril_optim_free(o);
    aril_release(p[0]);
    aril_release(p[1]);
}

TEST(fused_update_is_bitwise_the_same_as_separate_ones)
{
    ONLY_ON_CPU("its fused kernel");
    static float want[ODD + 15], got[ODD + 15];
    const char *const *names = aril_optim_names();
    int threads = aril_threads();
    for (int k = 0; names[k]; k++) {
        if (strcmp(names[k], "lbfgs") == 0 || strcmp(names[k], "muon") == 0)
            continue; /* no vectors */
        odd_run(names[k], want, false, false);
        odd_run(names[k], got, true, false);
        CHECK_MSG(memcmp(want, got, sizeof got) == 0, "%s: op by op", names[k]);
        odd_run(names[k], got, false, true);
        CHECK_MSG(memcmp(want, got, sizeof got) == 0, "%s: another order in memory", names[k]);
        aril_set_threads(threads > 1 ? 1 : 3);
        odd_run(names[k], got, false, false);
        aril_set_threads(threads);
        CHECK_MSG(memcmp(want, got, sizeof got) == 0, "%s: other threads", names[k]);
    }
    CHECK_MSG(aril_ok(), "%s", aril_error());
}

TEST(loss_scale_adapts_to_infinities)
{
    ARIL_SCOPE;
    aril_tensor *p = param(1, ARIL_F32);
    aril_optim *o =
        aril_adam(ARIL_TENSORS(p),
                  (aril_adam_opts){ .lr = 0.1, .loss_scale = 1024, .loss_scale_growth = 3 });
    aril_tensor *scale = aril_optim_loss_scale(o);
    CHECK_NEAR(aril_item(aril_scale_loss(o, aril_scalar(2))), 2048, 0);
    give_grad(p, INFINITY);
    CHECK_INT(aril_step(o), ARIL_OK);
    CHECK_NEAR(first(p), 1, 0);
    CHECK_NEAR(aril_item(scale), 512, 0);
    CHECK_INT(aril_item_int(aril_optim_steps(o)), 0);
    CHECK(!aril_has_grad(p));
    give_grad(p, NAN);
    CHECK_INT(aril_step(o), ARIL_OK);
    CHECK_NEAR(aril_item(scale), 256, 0);
    for (int t = 0; t < 3; t++) {
        give_grad(p, 256 * 0.5);
        CHECK_INT(aril_step(o), ARIL_OK);
    }
    CHECK_NEAR(aril_item(scale), 512, 0);
    CHECK_INT(aril_item_int(aril_optim_steps(o)), 3);
    CHECK_NEAR(first(p), 0.7, 1e-5);
    aril_optim_free(o);

    o = aril_sgd(ARIL_TENSORS(p),
                 (aril_sgd_opts){
                     .lr = 1, .loss_scale = 8, .loss_scale_growth = ARIL_ZERO, .clip_norm = 100 });
    give_grad(p, 4);
    CHECK_INT(aril_step(o), ARIL_OK);
    CHECK_NEAR(first(p), 0.2, 1e-5);
    give_grad(p, INFINITY);
    CHECK_INT(aril_step(o), ARIL_OK);
    CHECK_NEAR(first(p), 0.2, 1e-5);
    CHECK_NEAR(aril_item(aril_optim_loss_scale(o)), 8, 0);
    aril_optim_free(o);

    o = aril_sgd(NULL, (aril_sgd_opts){ 0 });
    aril_tensor *loss = aril_scalar(2);
    CHECK(aril_scale_loss(o, loss) == loss);
    CHECK(aril_optim_loss_scale(o) == NULL);
    aril_optim_free(o);
    aril_release(p);
}

TEST(loss_scale_with_parameters_without_elements)
{
    aril_tensor *none = aril_parameter(aril_zeros(ARIL_SHAPE(0, 3), ARIL_F32, test_device()));
    aril_tensor *p = param(1, ARIL_F32);
    const aril_sgd_opts opts = { .lr = 1, .loss_scale = 8 };
    aril_optim *o = aril_sgd(ARIL_TENSORS(none, p), opts),
               *alone = aril_sgd(ARIL_TENSORS(none), opts);
    give_grad(none, 1);
    give_grad(p, 4);
    CHECK_INT(aril_step(o), ARIL_OK);
    CHECK_NEAR(first(p), 0.5, 0);
    give_grad(none, 1);
    CHECK_INT(aril_step(alone), ARIL_OK);
    CHECK_INT(aril_item_int(aril_optim_steps(alone)), 1);

    ARIL_SCOPE;
    give_grad(none, 1);
    give_grad(p, 4);
    CHECK_NEAR(aril_item(aril_clip_grad_norm(ARIL_TENSORS(none, p), 1, INFINITY)), 4, 0);
    aril_optim_free(o);
    aril_optim_free(alone);
    aril_release(none);
    aril_release(p);
}

TEST(gradients_can_be_kept)
{
    aril_tensor *p = param(1, ARIL_F32);
    aril_optim *o = aril_sgd(ARIL_TENSORS(p),
                             (aril_sgd_opts){ .lr = 0.5, .keep_grads = true, .maximize = true });
    give_grad(p, 1);
    CHECK_INT(aril_step(o), ARIL_OK);
    CHECK_INT(aril_step(o), ARIL_OK);
    CHECK_NEAR(first(p), 2, 0);
    CHECK(aril_has_grad(p));
    aril_optim_zero_grad(o);
    CHECK(!aril_has_grad(p));
    aril_optim_free(o);
    aril_release(p);
}

/* ---- with a closure ---- */

static int calls;

static aril_tensor *bowl(void *ctx)
{
    calls++;
    aril_tensor *loss = aril_sum(aril_square(aril_sub_scalar(ctx, 3)), ARIL_ALL);
    aril_backward(loss);
    return loss;
}

static aril_tensor *broken(void *ctx)
{
    return ctx;
}

TEST(closures_are_called_as_often_as_needed)
{
    ARIL_SCOPE;
    aril_tensor *p = param(0, ARIL_F32);
    aril_optim *o = aril_sgd(ARIL_TENSORS(p), (aril_sgd_opts){ .lr = 0.25 });
    calls = 0;
    CHECK_NEAR(aril_item(aril_step_closure(o, bowl, p)), 9 * N, 1e-5);
    CHECK_INT(calls, 1);
    CHECK_NEAR(first(p), 1.5, 1e-6);
    CHECK_FAILS(aril_step_closure(o, broken, NULL), ARIL_ERR_ARG, "NULL");
    aril_optim_free(o);

    o = aril_lbfgs(ARIL_TENSORS(p), (aril_lbfgs_opts){ .strong_wolfe = true });
    calls = 0;
    CHECK_NEAR(aril_item(aril_step_closure(o, bowl, p)), 1.5 * 1.5 * N, 1e-5);
    CHECK(calls > 1 && calls < 10);
    CHECK_NEAR(first(p), 3, 1e-4);
    CHECK_FAILS(aril_step_closure(o, broken, NULL), ARIL_ERR_ARG, "NULL");
    aril_optim_free(o);
    /* A learning rate far too small makes the line search long: it ends when max_eval is used
     * up. */
    for (int max = 1; max <= 4; max++) {
        o = aril_lbfgs(ARIL_TENSORS(p),
                       (aril_lbfgs_opts){
                           .strong_wolfe = true, .lr = 1e-4, .max_iter = 1, .max_eval = max });
        aril_fill_(aril_detach(p), 0);
        calls = 0;
        aril_step_closure(o, bowl, p);
        CHECK_INT(calls, max + 1);
        aril_optim_free(o);
    }
    o = aril_lbfgs(NULL, (aril_lbfgs_opts){ 0 });
    CHECK_FAILS(aril_step_closure(o, bowl, p), ARIL_ERR_STATE, "no parameters");
    aril_optim_free(o);
    aril_release(p);
}

/* ---- averages ---- */

/* As the state of an optimizer does: from the CPU to the device, or from f32 to f64. */
TEST(averages_follow_the_parameters)
{
    ARIL_SCOPE;
    aril_module *net = aril_nn_linear(2, 1);
    CHECK_INT(aril_module_to(net, aril_cpu()), ARIL_OK);
    const aril_named *params = aril_parameters(net);
    aril_average *mean = aril_average_new(params, (aril_average_opts){ .equal = true });
    for (int t = 0; t < 3; t++) {
        {
            ARIL_NO_GRAD;
            aril_fill_(params->at[0], t);
        }
        CHECK_INT(aril_average_update(mean), ARIL_OK);
        if (t == 0) CHECK_INT(aril_module_to(net, test_device()), ARIL_OK);
        if (t == 1) CHECK_INT(aril_module_cast(net, ARIL_F64), ARIL_OK);
    }
    CHECK_INT(aril_module_to(net, aril_cpu()), ARIL_OK);
    CHECK_INT(aril_average_swap(mean), ARIL_OK);
    CHECK_INT(aril_dtype_of(params->at[0]), ARIL_F64);
    CHECK_NEAR(first(params->at[0]), 1, 1e-6);
    CHECK(aril_ok());
    aril_average_free(mean);
    aril_module_release(net);
}

TEST(averaged_weights_are_swapped_in_and_out)
{
    aril_tensor *p = param(2, ARIL_F32);
    aril_average *ema = aril_average_new(ARIL_TENSORS(p), (aril_average_opts){ .decay = 0.5 });
    aril_average *all = aril_average_new(ARIL_TENSORS(p), (aril_average_opts){ .equal = true });
    for (int t = 0; t < 3; t++) {
        CHECK_INT(aril_average_update(ema), ARIL_OK);
        CHECK_INT(aril_average_update(all), ARIL_OK);
        ARIL_SCOPE;
        ARIL_NO_GRAD;
        aril_add_scalar_(p, 2);
    } /* it saw 2, 4, 6 and is 8 now */
    CHECK_INT(aril_average_swap(ema), ARIL_OK);
    CHECK_NEAR(first(p), (3 + 6) / 2.0, 1e-6);
    CHECK_FAILS(aril_average_update(ema), ARIL_ERR_STATE, "swapped in");
    CHECK_FAILS(aril_average_state(ema), ARIL_ERR_STATE, "swapped in");
    CHECK_INT(aril_average_swap(ema), ARIL_OK);
    CHECK_NEAR(first(p), 8, 0);
    CHECK_INT(aril_average_swap(all), ARIL_OK);
    CHECK_NEAR(first(p), 4, 1e-6);
    CHECK_INT(aril_average_swap(all), ARIL_OK);

    aril_average *again = aril_average_new(ARIL_TENSORS(p), (aril_average_opts){ .equal = true });
    const aril_named *state = aril_average_state(all);
    CHECK(state && state->n == 2);
    CHECK_FAILS(aril_average_load_state(again, &(aril_named){ 1, state->at, state->name }),
                ARIL_ERR_FORMAT, "1 tensors, expected 2");
    CHECK_INT(aril_average_load_state(again, state), ARIL_OK);
    aril_average_update(all);
    aril_average_update(again);
    aril_average_swap(again);
    CHECK_NEAR(first(p), 5, 1e-6);
    aril_average_swap(again);
    aril_average_swap(all);
    CHECK_NEAR(first(p), 5, 1e-6);

    CHECK_FAILS(aril_average_new(NULL, (aril_average_opts){ 0 }), ARIL_ERR_ARG, "NULL");
    CHECK_FAILS(aril_average_new(ARIL_TENSORS(p), (aril_average_opts){ .decay = 1 }), ARIL_ERR_ARG,
                "below 1");
    CHECK_FAILS(aril_average_new(ARIL_TENSORS(p),
                                 (aril_average_opts){ .decay = 0.5, .equal = true }),
                ARIL_ERR_ARG, "either");
    aril_average_free(ema);
    aril_average_free(all);
    aril_average_free(again);
    aril_average_free(NULL);
    aril_release(p);
}

TEST(loss_scales_are_normal_numbers_of_f32)
{
    ARIL_SCOPE;
    aril_tensor *p = aril_parameter(aril_ones(ARIL_SHAPE(2), ARIL_F32, test_device()));
    static const double wrong[] = { 1e-50, 1e40 }; /* 0 and infinity in f32 */
    for (int i = 0; i < 2; i++) {
        CHECK(!aril_sgd(ARIL_TENSORS(p), (aril_sgd_opts){ .loss_scale = wrong[i] }));
        CHECK_MSG(strstr(aril_error(), "loss_scale must be 2^-126 to 2^126"), "%s", aril_error());
        aril_clear_error();
    }
    aril_release(p);
}

TEST(loss_scale_never_sticks_at_0_or_infinity)
{
    ARIL_SCOPE;
    aril_tensor *w = aril_ones(ARIL_SHAPE(3), ARIL_F32, test_device());
    aril_set_requires_grad(w, true);
    aril_optim *o = aril_sgd(ARIL_TENSORS(w),
                             (aril_sgd_opts){ .lr = 0.5, .loss_scale = 4, .loss_scale_growth = 1 });
    for (int up = 0; up < 2; up++) {
        for (int i = 0; i < 300; i++) {
            ARIL_SCOPE;
            aril_tensor *l = aril_sum(aril_mul_scalar(w, up ? 0.0 : INFINITY), ARIL_ALL);
            aril_backward(aril_scale_loss(o, l));
            aril_step(o);
        }
        double scale = aril_item(aril_optim_loss_scale(o));
        CHECK(scale > 0 && isfinite(scale));
    }
    aril_backward(aril_scale_loss(o, aril_mean(w, ARIL_ALL)));
    aril_step(o);
    CHECK(aril_ok() && fabs(aril_item(aril_sum(w, ARIL_ALL)) - 2.5) < 1e-6);
    aril_optim_free(o);
}

/* ---- methods that are not element-wise ---- */

TEST(muon_accepts_only_matrices)
{
    ARIL_SCOPE;
    aril_tensor *w = aril_parameter(aril_randn(ARIL_SHAPE(4, 6), ARIL_F32, test_device()));
    aril_tensor *b = aril_parameter(aril_zeros(ARIL_SHAPE(4), ARIL_F32, test_device()));
    CHECK_FAILS(aril_muon(ARIL_TENSORS(w, b), (aril_muon_opts){ 0 }), ARIL_ERR_SHAPE,
                "muon: parameter '1' has shape [4]; muon expects matrices");
    aril_optim *o = aril_muon(ARIL_TENSORS(w), (aril_muon_opts){ .weight_decay = ARIL_ZERO });
    CHECK_FAILS(aril_optim_add_group(o, ARIL_TENSORS(b), (aril_optim_opts){ 0 }), ARIL_ERR_SHAPE,
                "parameter '1' has shape [4]");
    aril_tensor *before = aril_copy(aril_detach(w));
    give_grad(w, 0.5); /* of rank 1: so is its orthogonal factor, of norm about 1 */
    CHECK_INT(aril_step(o), ARIL_OK);
    double moved = aril_item(aril_norm(aril_sub(aril_detach(w), before), ARIL_ALL, 2));
    CHECK(moved > 0.0006 && moved < 0.0013);
    aril_optim_free(o);
    aril_release(w);
    aril_release(b);
}

TEST(steps_are_the_same_inside_an_autocast_region)
{
    ARIL_SCOPE;
    aril_seed(3);
    aril_tensor *w[2], *v = aril_randn(ARIL_SHAPE(4, 6), ARIL_F32, test_device());
    for (int i = 0; i < 2; i++) {
        w[i] = aril_parameter(aril_copy(v));
        aril_optim *o = aril_muon(ARIL_TENSORS(w[i]), (aril_muon_opts){ .lr = 0.1 });
        aril_backward(aril_sum(aril_square(w[i]), ARIL_ALL));
        aril_guard g = i ? aril_autocast_begin(ARIL_BF16) : aril_scope_begin();
        CHECK_INT(aril_step(o), ARIL_OK);
        aril_guard_end(&g);
        aril_optim_free(o);
    }
    char *difference = test_difference(w[1], w[0], 0, 0);
    CHECK_MSG(!difference, "%s", difference);
    aril_release(w[0]);
    aril_release(w[1]);
}

TEST(muon_in_every_dtype)
{
    static const aril_dtype dtypes[4] = { ARIL_F64, ARIL_F32, ARIL_F16, ARIL_BF16 };
    for (int i = 0; i < 4; i++) {
        ARIL_SCOPE;
        aril_seed(3);
        aril_tensor *w = aril_parameter(
            aril_cast(aril_randn(ARIL_SHAPE(5, 3), ARIL_F64, test_device()), dtypes[i]));
        aril_optim *o = aril_muon(ARIL_TENSORS(w), (aril_muon_opts){ .lr = 0.1 });
        double first_loss = 0, loss = 0;
        for (int t = 0; t < 60; t++) {
            ARIL_SCOPE;
            aril_tensor *l = aril_sum(aril_square(w), ARIL_ALL);
            loss = aril_item(l);
            if (t == 0) first_loss = loss;
            aril_backward(l);
            CHECK_INT(aril_step(o), ARIL_OK);
        }
        CHECK_MSG(loss < 0.1 * first_loss, "%s: %g after %g", aril_dtype_name(dtypes[i]), loss,
                  first_loss);
        CHECK_INT(aril_dtype_of(aril_optim_state(o)->at[aril_optim_state(o)->n - 1]),
                  i == 0 ? ARIL_F64 : ARIL_F32);
        aril_optim_free(o);
        aril_release(w);
    }
}

TEST(adafactor_keeps_rows_and_columns)
{
    ARIL_SCOPE;
    aril_tensor *w = aril_parameter(aril_randn(ARIL_SHAPE(2, 3, 4), ARIL_BF16, test_device()));
    aril_optim *o = aril_adafactor(ARIL_TENSORS(w), (aril_adafactor_opts){ 0 });
    give_grad(w, 1);
    CHECK_INT(aril_step(o), ARIL_OK);
    const aril_named *state = aril_optim_state(o);
    int64_t numbers = 0;
    for (int i = 0; i < state->n; i++)
        if (strncmp(state->name[i], "0.", 2) == 0) numbers += aril_numel(state->at[i]);
    CHECK_INT(numbers, 2 * 3 + 2 * 4);
    CHECK_FAILS(aril_adafactor(NULL, (aril_adafactor_opts){ .clip_update = 0.5 }), ARIL_ERR_ARG,
                "clip_update must be at least 1, got 0.5");
    aril_optim_free(o);
    aril_release(w);
}

TEST(skipped_step_changes_nothing)
{
    ARIL_SCOPE;
    aril_tensor *w = aril_parameter(aril_ones(ARIL_SHAPE(3, 2), ARIL_F32, test_device()));
    aril_optim *o = aril_adafactor(ARIL_TENSORS(w), (aril_adafactor_opts){ .loss_scale = 8 });
    give_grad(w, INFINITY);
    CHECK_INT(aril_step(o), ARIL_OK);
    CHECK_NEAR(first(w), 1, 0);
    CHECK_INT(aril_item_int(aril_optim_steps(o)), 0);
    give_grad(w, 8);
    CHECK_INT(aril_step(o), ARIL_OK);
    CHECK(first(w) < 1);
    aril_optim_free(o);
    aril_release(w);
}
