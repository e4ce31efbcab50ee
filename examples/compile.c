/* A whole training step compiled: traced at the first call, and repeated by the others. */
#include <aril/aril.h>

#include <stdlib.h>

enum { N = 64, D = 1000, H = 100 };

typedef struct training {
    aril_module *model;
    aril_optim *opt;
} training;

/* Forward, backward and update: ordinary code, which could be called as it is. */
static void step(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    training *t = ctx;
    out[0] = aril_mse_loss(aril_forward(t->model, in[0]), in[1]);
    aril_backward(out[0]);
    aril_step(t->opt);
}

int main(void)
{
    int steps = getenv("ARIL_EXAMPLE_QUICK") ? 5 : 500;
    aril_seed(0);
    training t = { .model = aril_nn_sequential(aril_nn_linear(D, H), aril_nn_relu(),
                                               aril_nn_linear(H, D)) };
    t.opt = aril_adam(aril_parameters(t.model), (aril_adam_opts){ .lr = 1e-4 });
    aril_tensor *x = aril_randn(ARIL_SHAPE(N, D), ARIL_F32, aril_cpu());
    aril_tensor *y = aril_randn(ARIL_SHAPE(N, D), ARIL_F32, aril_cpu());
    aril_program *train = aril_jit(step, &t, (aril_jit_opts){ .name = "step" });
    for (int i = 0; i < steps; i++) {
        ARIL_SCOPE;
        aril_tensor *loss;
        aril_program_run(train, ARIL_LIST(x, y), &loss);
        if (i % (steps / 5) == steps / 5 - 1) printf("%d %g\n", i, aril_item(loss));
    }
    aril_program_print(train, stdout);
    aril_program_free(train);
    aril_optim_free(t.opt);
    aril_module_release(t.model);
    return aril_report(stderr);
}
