/* Models as modules: their tensors, training, freezing, saving, and another head. */
#include "onnx/onnx_text.h"

#include <math.h>

/* A small network with batch norm, whose initializers have PyTorch's names. */
static const char network[] = OPSET(
    13) "graph { "
        "node { op_type: \"Conv\" input: [\"x\", \"conv.weight\", \"conv.bias\"] output: \"a\" } "
        "node { op_type: \"BatchNormalization\" input: [\"a\", \"bn.weight\", \"bn.bias\", "
        "\"bn.running_mean\", \"bn.running_var\"] output: \"b\" } "
        "node { op_type: \"Relu\" input: \"b\" output: \"r\" } "
        "node { op_type: \"GlobalAveragePool\" input: \"r\" output: \"p\" } "
        "node { op_type: \"Reshape\" input: [\"p\", \"shape\"] output: \"features\" } "
        "node { op_type: \"Gemm\" input: [\"features\", \"head.0.weight\", \"head.0.bias\"] "
        "output: \"y\" attribute { name: \"transB\" i: 1 type: INT } } "
        "initializer { name: \"conv.weight\" dims: [2, 1, 1, 1] data_type: 1 float_data: [1, -1] } "
        "initializer { name: \"conv.bias\" dims: 2 data_type: 1 float_data: [0, 0] } "
        "initializer { name: \"bn.weight\" dims: 2 data_type: 1 float_data: [1, 1] } "
        "initializer { name: \"bn.bias\" dims: 2 data_type: 1 float_data: [0, 0] } "
        "initializer { name: \"bn.running_mean\" dims: 2 data_type: 1 float_data: [0, 0] } "
        "initializer { name: \"bn.running_var\" dims: 2 data_type: 1 float_data: [1, 1] } "
        "initializer { name: \"shape\" dims: 2 data_type: 7 int64_data: [0, -1] } "
        "initializer { name: \"head.0.weight\" dims: [1, 2] data_type: 1 float_data: [1, 2] } "
        "initializer { name: \"head.0.bias\" dims: 1 data_type: 1 float_data: 0.5 } "
        "input " ANY("x") "output " ANY("y") " }";

static aril_module *load(const char *output)
{
    return aril_module_load(save_model(network), (aril_load_opts){ .output = output });
}

static aril_tensor *image(float value)
{
    return aril_full(ARIL_SHAPE(1, 1, 2, 2), value, ARIL_F32, aril_cpu());
}

TEST(tensors_have_the_names_of_initializers)
{
    ARIL_SCOPE;
    aril_module *m = load(NULL);
    CHECK(m != NULL);
    const aril_named *p = aril_parameters(m), *b = aril_buffers(m);
    static const char *const names[] = { "conv.weight", "conv.bias", "bn.weight", "bn.bias",
                                         "head.0.weight" };
    CHECK_INT(p->n, 5);
    for (int i = 0; i < 5; i++) {
        bool found = false;
        for (int k = 0; k < p->n; k++) found |= strcmp(p->name[k], names[i]) == 0;
        CHECK_MSG(found, "no parameter %s", names[i]);
    }
    CHECK_INT(b->n, 3); /* statistics, and a number */
    CHECK_NEAR(aril_item(aril_forward(m, image(3))), 3.5, 1e-4);
    CHECK_NEAR(aril_item(aril_forward(m, image(-3))), 6.5, 1e-4);
    aril_module_release(m);
}

TEST(a_model_is_trained)
{
    ARIL_SCOPE;
    aril_module *m = load(NULL);
    CHECK(m != NULL);
    aril_optim *opt = aril_sgd(aril_parameters(m), (aril_sgd_opts){ .lr = 0.01 });
    double loss = 0;
    for (int i = 0; i < 100; i++) {
        ARIL_SCOPE;
        aril_tensor *l = aril_mse_loss(aril_forward(m, image(1)),
                                       aril_full(ARIL_SHAPE(1, 1), 7, ARIL_F32, aril_cpu()));
        loss = aril_item(l);
        aril_backward(l);
        aril_step(opt);
    }
    CHECK_MSG(loss < 0.01, "the loss is %g", loss);
    CHECK_NEAR(aril_item(aril_select(aril_module_tensor(m, "bn.running_mean"), 0, 0)), 0,
               0); /* as in the file */
    aril_optim_free(opt);
    aril_module_release(m);
}

/* A traced step reads the weights as they are at each run. */
struct step {
    aril_module *m;
    aril_optim *opt;
};

static void step(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    struct step *s = ctx;
    out[0] = aril_mse_loss(aril_forward(s->m, in[0]), in[1]);
    aril_backward(out[0]);
    aril_step(s->opt);
}

TEST(a_training_step_is_compiled)
{
    ARIL_SCOPE;
    double loss[2];
    for (int compiled = 0; compiled < 2; compiled++) {
        struct step s = { .m = load(NULL) };
        CHECK(s.m != NULL);
        s.opt = aril_sgd(aril_parameters(s.m), (aril_sgd_opts){ .lr = 0.01 });
        aril_program *p = aril_jit(step, &s, (aril_jit_opts){ 0 });
        aril_tensor *x = image(1), *y = aril_full(ARIL_SHAPE(1, 1), 7, ARIL_F32, aril_cpu());
        for (int i = 0; i < 10; i++) {
            ARIL_SCOPE;
            aril_tensor *out = NULL;
            if (compiled)
                CHECK_INT(aril_program_run(p, ARIL_LIST(x, y), &out), ARIL_OK);
            else
                step(&s, (aril_tensor *[]){ x, y }, &out);
            loss[compiled] = aril_item(out);
        }
        aril_program_free(p);
        aril_optim_free(s.opt);
        aril_module_release(s.m);
    }
    CHECK_NEAR(loss[1], loss[0], 1e-6);
    CHECK(loss[0] < 30);
}

TEST(weights_are_saved_and_loaded)
{
    ARIL_SCOPE;
    aril_module *a = load(NULL), *b = load(NULL);
    CHECK(a && b);
    aril_fill_(aril_detach(aril_module_tensor(a, "head.0.weight")), 4);
    CHECK_INT(aril_save(a, temp_path("w.safetensors")), ARIL_OK);
    CHECK_INT(aril_load_weights(b, temp_path("w.safetensors"), (aril_load_weights_opts){ 0 }),
              ARIL_OK);
    CHECK_NEAR(aril_item(aril_forward(b, image(3))), aril_item(aril_forward(a, image(3))), 0);
    CHECK_NEAR(aril_item(aril_forward(b, image(3))), 12.5, 1e-4);
    aril_module_release(a);
    aril_module_release(b);
}

TEST(another_head)
{
    ARIL_SCOPE;
    aril_module *body = load("features");
    CHECK(body != NULL);
    CHECK_INT(aril_parameters(body)->n, 5); /* initializers behind it stay */
    aril_module *net = aril_nn_sequential(body, aril_nn_linear(2, 4));
    aril_tensor *y = aril_forward(net, image(2));
    CHECK_INT(aril_ndim(y), 2);
    CHECK_INT(aril_size(y, 1), 4);
    aril_module_release(net);
    CHECK(load("nothing") == NULL);
    CHECK(strstr(aril_error(), "the model has no value 'nothing'") != NULL);
    aril_clear_error();
    CHECK(aril_module_load(NULL, (aril_load_opts){ 0 }) == NULL);
    aril_clear_error();
}
