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
    CHECK_INT(aril_parameters(body)->n, 4); /* without those behind it */
    aril_module *net = aril_nn_sequential(body, aril_nn_linear(2, 4));
    aril_tensor *y = aril_forward(net, image(2));
    CHECK_INT(aril_ndim(y), 2);
    CHECK_INT(aril_size(y, 1), 4);
    aril_module_release(net);
    CHECK(load("nothing") == NULL);
    CHECK(strstr(aril_error(), "the model has no value 'nothing'") != NULL);
    aril_clear_error();
    CHECK(load("featurs") == NULL);
    CHECK(strstr(aril_error(), "no value 'featurs'; did you mean features?") != NULL);
    aril_clear_error();
    CHECK(aril_module_load(NULL, (aril_load_opts){ 0 }) == NULL);
    aril_clear_error();
}

/* ---- a model that is cut ---- */

TEST(a_cut_model_has_the_name_of_its_output)
{
    ARIL_SCOPE;
    const char *path = temp_path("cut.onnx");
    aril_program *p = aril_program_load(save_model(network), (aril_load_opts){ .output = "p" });
    CHECK_MSG(p != NULL, "%s", aril_error());
    CHECK_INT(aril_program_outputs(p), 1);
    CHECK_STR(aril_program_output_name(p, 0), "p");
    CHECK_INT(aril_program_output_kind(p, 0), ARIL_VALUE_TENSOR);
    CHECK_INT(aril_program_export(p, ARIL_LIST(image(1)), path, (aril_export_opts){ 0 }), ARIL_OK);
    aril_program_free(p);
    p = aril_program_load(path, (aril_load_opts){ 0 });
    CHECK_STR(aril_program_output_name(p, 0), "p");
    aril_program_free(p);
}

/* Not of the part that was left out, of which nothing is saved either. */
TEST(a_cut_model_has_the_parameters_of_what_is_left)
{
    ARIL_SCOPE;
    aril_module *m = load("features");
    CHECK_MSG(m != NULL, "%s", aril_error());
    const aril_named *p = aril_parameters(m);
    CHECK_INT(p->n, 4);
    for (int i = 0; i < p->n; i++) CHECK_MSG(!strstr(p->name[i], "head"), "%s", p->name[i]);
    CHECK_INT(aril_size(aril_forward(m, image(3)), 1), 2);
    aril_module_release(m);
}

TEST(a_cast_is_refused)
{
    ARIL_SCOPE;
    aril_module *m = load(NULL), *net = aril_nn_sequential(m, aril_nn_relu());
    CHECK(aril_module_cast(net, ARIL_F64) < 0);
    CHECK_MSG(strstr(aril_error(), "ARIL_AUTOCAST"), "%s", aril_error());
    aril_clear_error();
    CHECK_INT(aril_module_cast(net, ARIL_F32), ARIL_OK);
    CHECK_NEAR(aril_item(aril_forward(net, image(3))), 3.5, 1e-4);
    aril_module_release(net);
}

/* ---- models for one sample ---- */

static const char one_sample[] =
    OPSET(13) "graph { "
              "node { op_type: 'Reshape' input: ['x', 'to'] output: 'r' } "
              "node { op_type: 'Reshape' input: ['w', 'as'] output: 'm' } "
              "node { op_type: 'MatMul' input: ['r', 'm'] output: 'y' } "
              "initializer { name: 'to' dims: 2 data_type: 7 int64_data: [1, 6] } "
              "initializer { name: 'as' dims: 2 data_type: 7 int64_data: [6, 1] } "
              "initializer { name: 'w' dims: [1, 6] data_type: 1 "
              "              float_data: [1, 2, 3, 4, 5, 6] } "
              "input " FLOATS("x", DIM(1) DIM(2) DIM(3)) "output " FLOATS("y", DIM(1) DIM(1)) "}";

TEST(a_model_for_one_sample_takes_a_batch)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_randn(ARIL_SHAPE(4, 2, 3), ARIL_F32, aril_cpu()), *y, *one;
    const char *path = save_model(one_sample), *out = temp_path("batch.onnx");
    aril_program *p = aril_program_load(path, (aril_load_opts){ 0 });
    CHECK(aril_program_run(p, ARIL_LIST(x), &y) < 0);
    CHECK_MSG(strstr(aril_error(), ".open_batch"), "%s", aril_error());
    aril_clear_error();
    aril_program *q = aril_program_load(path, (aril_load_opts){ .open_batch = true });
    CHECK_INT(aril_program_input_shape(p, 0).dim[0], 1);
    CHECK_INT(aril_program_input_shape(q, 0).dim[0], -1);
    CHECK_INT(aril_program_run(q, ARIL_LIST(x), &y), ARIL_OK);
    CHECK_INT(aril_size(y, 0), 4);
    for (int i = 0; i < 4; i++) {
        aril_program_run(p, ARIL_LIST(aril_narrow(x, 0, i, 1)), &one);
        CHECK_NEAR(aril_item(aril_select(y, 0, i)), aril_item(one), 1e-5);
    }
    /* It can be written with an open batch, and trained in batches. */
    CHECK_MSG(aril_program_export(q, ARIL_LIST(x), out, (aril_export_opts){ .batch = true }) ==
                  ARIL_OK,
              "%s", aril_error());
    aril_program_free(q);
    aril_program_free(p);
    aril_module *m = aril_module_load(path, (aril_load_opts){ .open_batch = true });
    CHECK_INT(aril_size(aril_forward(m, x), 0), 4);
    aril_backward(aril_mean(aril_forward(m, x), ARIL_ALL));
    CHECK_MSG(aril_ok() && aril_grad(aril_module_tensor(m, "w")), "%s", aril_error());
    aril_module_release(m);
}

TEST(a_model_without_inputs)
{
    ARIL_SCOPE;
    static const char graph[] =
        OPSET(13) "graph { node { op_type: \"Neg\" input: \"w\" output: \"y\" } initializer { "
                  "name: \"w\" dims: 2 data_type: 1 float_data: [1, 2] } output " ANY("y") "}";
    aril_module *m = aril_module_load(save_model(graph), (aril_load_opts){ 0 });
    CHECK_MSG(m, "%s", aril_error());
    aril_tensor *y = aril_forward_n(m, (aril_list){ 0 });
    CHECK_MSG(aril_tensor_status(y) == ARIL_OK, "%s", aril_error());
    CHECK_NEAR(aril_item(aril_select(y, 0, 1)), -2, 0);
    aril_module_release(m);
    m = aril_module_load(save_model(
                             OPSET(13) "graph { node { op_type: \"Neg\" input: \"x\" output: "
                                       "\"y\" } input " ANY("x") "output " ANY("y") "}"),
                         (aril_load_opts){ 0 });
    CHECK_MSG(m, "%s", aril_error());
    aril_forward_n(m, (aril_list){ 0 });
    CHECK_MSG(strstr(aril_error(), "got 0 inputs, expected 1: the next one is x"), "%s",
              aril_error());
    aril_clear_error();
    aril_module_release(m);
}
