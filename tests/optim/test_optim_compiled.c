/* Every optimizer's step, compiled, against the same step run as single operations. */
#include "aril/aril.h"
#include "support/compare.h"
#include "support/device.h"
#include "support/test.h"

#include <string.h>

enum { STEPS = 12 };

typedef struct trained {
    aril_tensor *w[2]; /* [6,5], [5,6] */
    aril_optim *opt;
} trained;

static trained trained_new(const char *name, aril_optim_opts opts, bool scheduled)
{
    ARIL_SCOPE;
    trained t;
    aril_generator *g = aril_generator_new(3);
    aril_shape shape[] = { ARIL_SHAPE(6, 5), ARIL_SHAPE(5, 6) };
    for (int i = 0; i < 2; i++)
        t.w[i] = aril_parameter(
            aril_to(aril_randn_from(g, shape[i], ARIL_F32, aril_cpu()), test_device()));
    aril_generator_free(g);
    t.opt = aril_optim_new(name, ARIL_TENSORS(t.w[0], t.w[1]), opts);
    if (scheduled)
        aril_optim_schedule(t.opt, aril_schedule_new("one_cycle",
                                                     (aril_schedule_opts){ .total = STEPS,
                                                                           .max_lr = 0.02,
                                                                           .per_batch = true }));
    return t;
}

static void trained_free(trained *t)
{
    aril_optim_free(t->opt);
    for (int i = 0; i < 2; i++) aril_release(t->w[i]);
}

static void train(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    trained *t = ctx;
    aril_tensor *y = aril_matmul(aril_tanh(aril_matmul(in[0], t->w[0])), t->w[1]);
    out[0] = aril_mean(aril_square(aril_sub(y, in[0])), ARIL_ALL);
    aril_backward(aril_scale_loss(t->opt, out[0]));
    aril_step(t->opt);
}

static void check_near(aril_tensor *got, aril_tensor *want, const char *name, int step)
{
    char *why = test_difference(got, want, 1e-4, 1e-5);
    CHECK_MSG(!why, "%s, step %d: %s", name, step, why);
}

static void compare(const char *name, aril_optim_opts opts, bool scheduled)
{
    trained eager = trained_new(name, opts, scheduled), jit = trained_new(name, opts, scheduled);
    aril_program *p = aril_jit(train, &jit, (aril_jit_opts){ .name = name });
    for (int i = 0; i < STEPS; i++) {
        ARIL_SCOPE;
        aril_generator *g = aril_generator_new((uint64_t)i);
        aril_tensor *x =
            aril_to(aril_randn_from(g, ARIL_SHAPE(4, 6), ARIL_F32, aril_cpu()), test_device());
        aril_tensor *got, *want;
        aril_generator_free(g);
        train(&eager, &x, &want);
        CHECK_MSG(aril_program_run(p, ARIL_LIST(x), &got) == ARIL_OK, "%s: %s", name, aril_error());
        check_near(got, want, name, i);
        for (int k = 0; k < 2; k++)
            check_near(aril_detach(jit.w[k]), aril_detach(eager.w[k]), name, i);
    }
    CHECK_INT(aril_item_int(aril_optim_steps(jit.opt)), aril_item_int(aril_optim_steps(eager.opt)));
    CHECK_NEAR(aril_item(aril_optim_lr(jit.opt)), aril_item(aril_optim_lr(eager.opt)), 0);
    /* A step that updates, one that only accumulates, and the loss scale moves to the device. */
    CHECK_MSG(aril_program_traces(p) <= 3, "%s: %d traces", name, aril_program_traces(p));
    CHECK_MSG(aril_ok(), "%s: %s", name, aril_error());
    aril_program_free(p);
    trained_free(&jit);
    trained_free(&eager);
}

TEST(compiled_steps_are_those_of_eager_mode)
{
    for (const char *const *name = aril_optim_names(); *name; name++) {
        bool decays = false;
        for (const char *const *o = aril_optim_option_names(*name); *o; o++)
            decays |= strcmp(*o, "weight_decay") == 0;
        aril_optim_opts opts = { .weight_decay = decays ? 0.01 : 0 };
        if (strcmp(*name, "lbfgs") == 0) continue; /* evaluates the loss several times */
        compare(*name, opts, false);
        compare(*name, opts, true);
        opts.clip_norm = 0.1;
        compare(*name, opts, false);
        opts.loss_scale = 8;
        opts.accumulate = 2;
        compare(*name, opts, true);
    }
}
