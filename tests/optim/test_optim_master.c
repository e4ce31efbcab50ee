/* Master weights in f32 for parameters in f16 and bf16. */
#include "aril/aril.h"
#include "support/device.h"
#include "support/compare.h"
#include "support/test.h"

#include <math.h>
#include <string.h>

enum { ROWS = 70, COLUMNS = 37 };

/* Values that bf16 and f16 hold exactly. */
static aril_tensor *exact(aril_shape shape, double by)
{
    aril_tensor *t = aril_mul_scalar(aril_randn(shape, ARIL_F32, test_device()), by);
    return aril_cast(aril_cast(aril_clamp(t, -8, 8), ARIL_BF16), ARIL_F32);
}

static aril_tensor *state_of(aril_optim *o, const char *name)
{
    const aril_named *state = aril_optim_state(o);
    for (int i = 0; i < state->n; i++)
        if (strcmp(state->name[i], name) == 0) return state->at[i];
    return NULL;
}

static aril_optim_opts options(bool master)
{
    return (aril_optim_opts){ .lr = 1e-3, .clip_norm = 3, .master_weights = master };
}

/* Whether p is `master` in its own dtype. */
static bool is_rounded(aril_tensor *p, aril_tensor *master)
{
    ARIL_SCOPE;
    char *why = test_difference_in_bits(aril_detach(p), aril_cast(master, aril_dtype_of(p)));
    return why == NULL;
}

/* The optimizer computes in f32 for either dtype, so with the same gradients the master has the
 * bits of a parameter in f32. */
TEST(master_has_the_bits_of_an_f32_parameter)
{
    const char *const *names = aril_optim_names();
    for (int k = 0; names[k]; k++) {
        if (strcmp(names[k], "lbfgs") == 0) continue;
        for (int turned = 0; turned < 2; turned++) {
            ARIL_SCOPE;
            aril_seed(7);
            aril_tensor *first = exact(ARIL_SHAPE(ROWS, COLUMNS), 1);
            aril_tensor *p = aril_parameter(aril_copy(first));
            aril_tensor *low = aril_cast(first, ARIL_BF16);
            low = aril_parameter(turned ? aril_t(aril_contiguous(aril_t(low))) : low);
            aril_optim *wide = aril_optim_new(names[k], ARIL_TENSORS(p), options(false));
            aril_optim *o = aril_optim_new(names[k], ARIL_TENSORS(low), options(true));
            for (int t = 0; t < 5; t++) {
                ARIL_SCOPE;
                /* Some are below bf16's machine epsilon. */
                aril_tensor *g = exact(ARIL_SHAPE(ROWS, COLUMNS), t % 2 ? 0.5 : 1e-4);
                aril_set_grad(p, g);
                aril_set_grad(low, aril_cast(g, ARIL_BF16));
                CHECK_INT(aril_step(wide), ARIL_OK);
                CHECK_MSG(aril_step(o) == ARIL_OK, "%s: %s", names[k], aril_error());
            }
            aril_tensor *master = state_of(o, "0.master");
            CHECK_MSG(master && aril_dtype_of(master) == ARIL_F32, "%s has no master", names[k]);
            char *why = test_difference_in_bits(master, aril_detach(p));
            CHECK_MSG(!why, "%s: %s", names[k], why);
            CHECK_MSG(is_rounded(low, master), "%s: the parameter is not the rounded master",
                      names[k]);
            aril_optim_free(wide);
            aril_optim_free(o);
            aril_release(p);
            aril_release(low);
        }
    }
}

TEST(small_updates_add_up)
{
    static const aril_dtype dtypes[] = { ARIL_F16, ARIL_BF16 };
    for (int i = 0; i < 2; i++) {
        double end[2];
        for (int master = 0; master < 2; master++) {
            ARIL_SCOPE;
            aril_tensor *p = aril_parameter(aril_ones(ARIL_SHAPE(5), dtypes[i], test_device()));
            aril_optim *o =
                aril_sgd(ARIL_TENSORS(p), (aril_sgd_opts){ .lr = 1e-4, .master_weights = master });
            for (int t = 0; t < 1000; t++) {
                ARIL_SCOPE;
                aril_set_grad(p, aril_ones(ARIL_SHAPE(5), dtypes[i], test_device()));
                CHECK_INT(aril_step(o), ARIL_OK);
            }
            end[master] = aril_item(aril_mean(aril_cast(aril_detach(p), ARIL_F32), ARIL_ALL));
            aril_optim_free(o);
            aril_release(p);
        }
        CHECK_NEAR(end[0], 1, 0); /* each update alone is lost */
        CHECK_NEAR(end[1], 0.9, 2e-3);
    }
}

TEST(only_half_precision_has_a_master)
{
    ARIL_SCOPE;
    aril_tensor *p[3] = { aril_parameter(aril_ones(ARIL_SHAPE(3), ARIL_F32, test_device())),
                          aril_parameter(aril_ones(ARIL_SHAPE(3), ARIL_F16, test_device())),
                          aril_parameter(aril_ones(ARIL_SHAPE(3), ARIL_F16, test_device())) };
    aril_optim *o = aril_adam(ARIL_TENSORS(p[0], p[1]), (aril_adam_opts){ 0 });
    CHECK_INT(aril_optim_add_group(o, ARIL_TENSORS(p[2]), (aril_adam_opts){ .master_weights = 1 }),
              1);
    for (int i = 0; i < 3; i++)
        aril_set_grad(p[i], aril_ones(ARIL_SHAPE(3), aril_dtype_of(p[i]), test_device()));
    CHECK_INT(aril_step(o), ARIL_OK);
    CHECK(!state_of(o, "0.master") && !state_of(o, "1.master")); /* off by default */
    CHECK(state_of(o, "2.master") != NULL);
    aril_optim_free(o);
    for (int i = 0; i < 3; i++) aril_release(p[i]);
    CHECK(aril_lbfgs(NULL, (aril_lbfgs_opts){ .master_weights = true }) == NULL);
    CHECK(strstr(aril_error(), "lbfgs has no option master_weights"));
    aril_clear_error();
}

/* Loaded weights, and averages that are swapped in, count; elements that did not change keep the
 * precision of their master. */
TEST(writes_to_the_parameter_take_effect)
{
    ARIL_SCOPE;
    aril_tensor *p = aril_parameter(aril_ones(ARIL_SHAPE(4), ARIL_BF16, test_device()));
    aril_optim *o =
        aril_sgd(ARIL_TENSORS(p), (aril_sgd_opts){ .lr = 1e-4, .master_weights = true });
    for (int t = 0; t < 3; t++) {
        aril_set_grad(p, aril_ones(ARIL_SHAPE(4), ARIL_BF16, test_device()));
        CHECK_INT(aril_step(o), ARIL_OK);
        if (t == 1) aril_fill_(aril_select(aril_detach(p), 0, 2), 5);
    }
    float master[4];
    aril_read(state_of(o, "0.master"), master);
    CHECK_NEAR(master[0], 1 - 3e-4, 1e-7);
    CHECK_NEAR(master[2], 5 - 1e-4, 1e-6);
    CHECK(is_rounded(p, state_of(o, "0.master")));
    aril_optim_free(o);
    aril_release(p);
}

static void step_with(aril_optim *o, aril_tensor *p, double g)
{
    ARIL_SCOPE;
    aril_set_grad(p, aril_full(aril_shape_of(p), g, aril_dtype_of(p), test_device()));
    CHECK_INT(aril_step(o), ARIL_OK);
}

TEST(master_is_saved_and_loaded)
{
    static const char *const names[] = { "adam", "lamb", "muon" };
    for (int k = 0; k < 3; k++) {
        ARIL_SCOPE;
        aril_seed(3);
        aril_optim_opts opts = options(true);
        aril_tensor *w = aril_randn(ARIL_SHAPE(3, 4), ARIL_BF16, test_device());
        aril_tensor *p = aril_parameter(aril_copy(w)), *q = aril_parameter(aril_copy(w));
        aril_optim *a = aril_optim_new(names[k], ARIL_TENSORS(p), opts);
        aril_optim *b = aril_optim_new(names[k], ARIL_TENSORS(q), opts);
        for (int t = 0; t < 4; t++) step_with(a, p, 0.5 + t);
        aril_copy_(aril_detach(q), aril_detach(p));
        CHECK_MSG(aril_optim_load_state(b, aril_optim_state(a)) == ARIL_OK, "%s", aril_error());
        for (int t = 0; t < 4; t++) {
            step_with(a, p, 0.25 * t);
            step_with(b, q, 0.25 * t);
        }
        char *why = test_difference_in_bits(state_of(a, "0.master"), state_of(b, "0.master"));
        CHECK_MSG(!why, "%s: %s", names[k], why);
        aril_optim *without = aril_optim_new(names[k], ARIL_TENSORS(q), options(false));
        CHECK(aril_optim_load_state(without, aril_optim_state(a)) == ARIL_ERR_FORMAT);
        CHECK_MSG(strstr(aril_error(), "unknown to this"), "%s", aril_error());
        aril_clear_error();
        aril_optim_free(a);
        aril_optim_free(b);
        aril_optim_free(without);
        aril_release(p);
        aril_release(q);
    }
}

TEST(master_ends_when_the_parameter_becomes_f32)
{
    ARIL_SCOPE;
    aril_module *net = aril_nn_linear(3, 2);
    CHECK_INT(aril_module_cast(net, ARIL_BF16), ARIL_OK);
    aril_optim *o = aril_adam(aril_parameters(net), (aril_adam_opts){ .master_weights = true });
    aril_tensor *w = aril_module_tensor(net, "weight");
    step_with(o, w, 1);
    CHECK(state_of(o, "weight.master") != NULL);
    CHECK_INT(aril_module_cast(net, ARIL_F32), ARIL_OK);
    step_with(o, w, 1);
    CHECK(state_of(o, "weight.master") == NULL);
    CHECK_INT(aril_module_cast(net, ARIL_F16), ARIL_OK);
    step_with(o, w, 1);
    CHECK(state_of(o, "weight.master") != NULL);
    CHECK_MSG(aril_ok(), "%s", aril_error());
    aril_optim_free(o);
    aril_module_release(net);
}
