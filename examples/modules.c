/* Modules, an optimizer, a loader and a checkpoint: a custom training loop. */
#include <aril/aril.h>

#include <stdlib.h>

enum { N = 64, D = 1000, H = 100 };

struct two_layer {
    aril_module *linear1, *linear2;
};

static aril_tensor *two_layer_forward(aril_module *self, aril_tensor *x)
{
    ARIL_SCOPE;
    struct two_layer *m = aril_module_data(self);
    aril_tensor *h = aril_clamp_min(aril_forward(m->linear1, x), 0);
    return aril_escape(aril_forward(m->linear2, h)); /* outlives the scope */
}

static aril_module *two_layer_new(int64_t d_in, int64_t h, int64_t d_out)
{
    aril_module *self = aril_module_new("TwoLayer", sizeof(struct two_layer), two_layer_forward);
    struct two_layer *m = aril_module_data(self);
    m->linear1 = aril_module_add(self, "linear1", aril_nn_linear(d_in, h)); /* the parent owns it */
    m->linear2 = aril_module_add(self, "linear2", aril_nn_linear(h, d_out));
    return self;
}

int main(void)
{
    int epochs = getenv("ARIL_EXAMPLE_QUICK") ? 4 : 100;
    aril_seed(0);
    aril_tensor *x = aril_randn(ARIL_SHAPE(N, D), ARIL_F32, aril_cpu());
    aril_tensor *y = aril_randn(ARIL_SHAPE(N, D), ARIL_F32, aril_cpu());
    /* or: aril_nn_sequential(aril_nn_linear(D, H), aril_nn_relu(), aril_nn_linear(H, D)) */
    aril_module *model = two_layer_new(D, H, D);
    aril_module_print(model, stdout);
    aril_optim *opt = aril_adam(aril_parameters(model), (aril_adam_opts){ .lr = 1e-3 });
    aril_loader *batches = aril_loader_new(aril_dataset_tensors(x, y),
                                           (aril_loader_opts){ .batch = 16, .shuffle = true });
    for (int epoch = 0; epoch < epochs; epoch++) {
        double sum = 0;
        for (aril_batch b; aril_loader_next(batches, &b);) {
            ARIL_SCOPE;
            aril_tensor *loss = aril_mse_loss(aril_forward(model, b.x), b.y);
            aril_backward(loss);
            aril_step(opt); /* updates the parameters and drops the gradients */
            sum += aril_item(loss) * (double)b.n;
        }
        if ((epoch + 1) % (epochs / 4) == 0) printf("epoch %d  loss %.4f\n", epoch + 1, sum / N);
        if (epoch == epochs / 2) /* a run interrupted here can resume from it, bit for bit */
            aril_checkpoint_save("modules_run", model, opt, batches);
    }
    /* Resume from the middle: model, optimizer, loader position and random number generator. */
    if (aril_checkpoint_load("modules_run", model, opt, batches) == ARIL_OK)
        printf("restored epoch %lld\n", (long long)aril_loader_tell(batches).epoch);
    aril_save(model, "modules_run/two_layer.safetensors"); /* PyTorch reads it too */
    aril_loader_free(batches);
    aril_optim_free(opt);
    aril_module_release(model);
    return aril_report(stderr);
}
