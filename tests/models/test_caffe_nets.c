/* Nets of Caffe: how layers are connected, filtered, shared, upgraded, saved; what is refused. */
#include "aril/aril.h"
#include "support/device.h"
#include "support/temp.h"
#include "support/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static aril_module *parse_with(const char *text, aril_caffe_opts opts)
{
    aril_module *m = aril_caffe_net_parse(text, strlen(text), "test.prototxt", opts);
    if (m) aril_module_to(m, test_device());
    return m;
}

static aril_module *parse(const char *text)
{
    return parse_with(text, (aril_caffe_opts){ 0 });
}

static aril_module *parse_train(const char *text)
{
    return parse_with(text, (aril_caffe_opts){ .phase = ARIL_CAFFE_TRAIN });
}

/* A text must be refused with a message that contains the words. */
static void refused(const char *text, const char *words)
{
    aril_clear_error();
    aril_module *m = parse(text);
    if (m || !strstr(aril_error(), words))
        test_fail(__FILE__, __LINE__, "%s\nexpected '%s', got: %s", text, words,
                  m ? "a net" : aril_error());
    aril_module_release(m);
    aril_clear_error();
}

static aril_tensor *randn(aril_shape shape)
{
    return aril_randn(shape, ARIL_F32, test_device());
}

static aril_tensor *numbers(int n, const double *value)
{
    return aril_to(aril_cast(aril_from(value, ARIL_SHAPE(n), ARIL_F64, aril_cpu()), ARIL_F32),
                   test_device());
}

#define INPUT(name, dims)                                                                        \
    "layer { name: '" name "' type: 'Input' top: '" name "' input_param { shape { " dims " } } " \
    "}\n"
#define X23 INPUT("x", "dim: 2 dim: 3")

/* ---- wiring ---- */

static const char diamond[] =
    X23 "layer { name: 'a' type: 'Power' bottom: 'x' top: 'a' power_param { scale: 2 } }\n"
        "layer { name: 'b' type: 'Power' bottom: 'a' top: 'b' power_param { shift: 1 } }\n"
        "layer { name: 'in' type: 'Power' bottom: 'a' top: 'a' power_param { scale: 10 } }\n"
        "layer { name: 's' type: 'Eltwise' bottom: 'a' bottom: 'b' top: 's' }\n"
        "layer { name: 'z' type: 'Power' bottom: 'b' top: 'c' power_param { power: 2 } }\n";

TEST(layers_are_connected_by_names)
{
    ARIL_SCOPE;
    aril_module *m = parse(diamond);
    CHECK_MSG(m, "%s", aril_error());
    CHECK(aril_caffe_is_net(m) && !aril_caffe_is_net(aril_caffe_layer_at(m, 1).module));
    CHECK_INT(aril_caffe_inputs(m), 1);
    CHECK_INT(aril_caffe_outputs(m), 2);
    CHECK_STR(aril_caffe_output(m, 0).name, "c");
    CHECK_STR(aril_caffe_output(m, 1).name, "s");
    CHECK_INT(aril_caffe_output(m, 1).shape.dim[1], 3);
    CHECK_INT(aril_caffe_layers(m), 6);
    CHECK_STR(aril_caffe_layer_at(m, 4).bottoms[1], "b");
    CHECK_STR(aril_caffe_layer_at(m, 0).type, "Input");
    CHECK(!aril_caffe_layer_at(m, 0).module && !aril_caffe_layer_at(m, 0).is_data);
    aril_tensor *x = randn(ARIL_SHAPE(2, 3)), *out[3], *got[2];
    CHECK_INT(aril_forward_all(m, ARIL_LIST(x), 3, out), ARIL_OK);
    aril_tensor *b = aril_add_scalar(aril_mul_scalar(x, 2), 1);
    CHECK(aril_allclose(out[0], aril_square(b), (aril_close_opts){ 0 }));
    CHECK(aril_allclose(out[1], aril_add(aril_mul_scalar(x, 20), b), (aril_close_opts){ 0 }));
    CHECK(!out[2]); /* there is no loss */
    CHECK_NEAR(aril_item(aril_caffe_loss(m, ARIL_LIST(x), NULL)), 0, 0);
    /* By name: in place, the last value. */
    CHECK_INT(aril_caffe_blobs(m, ARIL_LIST(x), 2, (const char *[]){ "a", "b" }, got), ARIL_OK);
    CHECK(aril_allclose(got[0], aril_mul_scalar(x, 20), (aril_close_opts){ 0 }));
    CHECK(aril_allclose(got[1], b, (aril_close_opts){ 0 }));
    CHECK(aril_caffe_blobs(m, ARIL_LIST(x), 1, (const char *[]){ "d" }, got) < 0);
    CHECK(strstr(aril_error(), "there is no blob 'd'"));
    aril_clear_error();
    aril_module_release(m);
}

TEST(an_activation_is_fused_only_where_nobody_sees_it)
{
    ARIL_SCOPE;
    aril_module *m = parse(
        X23 "layer { name: 'ip' type: 'InnerProduct' bottom: 'x' top: 'ip' inner_product_param { "
            "num_output: 4 weight_filler { type: 'xavier' } } }\n"
            "layer { name: 'relu' type: 'ReLU' bottom: 'ip' top: 'y' }\n");
    CHECK_MSG(m, "%s", aril_error());
    aril_tensor *x = randn(ARIL_SHAPE(2, 3)), *got[2];
    CHECK_INT(aril_caffe_blobs(m, ARIL_LIST(x), 2, (const char *[]){ "ip", "y" }, got), ARIL_OK);
    CHECK(aril_item(aril_amin(got[0], ARIL_ALL)) < 0);
    CHECK(aril_equal(aril_relu(got[0]), got[1]));
    CHECK(aril_equal(aril_forward(m, x), got[1]));
    aril_module_release(m);
}

TEST(losses_are_summed_by_their_weights)
{
    ARIL_SCOPE;
    aril_module *m = parse_train(X23 INPUT("y", "dim: 2 dim: 3") INPUT(
        "t",
        "dim: 2") "layer { name: 'e' type: 'EuclideanLoss' bottom: 'x' bottom: 'y' top: 'e' "
                  "loss_weight: 0.5 }\n"
                  "layer { name: 'h' type: 'HingeLoss' bottom: 'x' bottom: 't' }\n" /* no top */
                  "layer { name: 'p' type: 'Power' bottom: 'x' top: 'p' loss_weight: 3 }\n"
                  "layer { name: 'q' type: 'Silence' bottom: 'p' }\n");
    CHECK_MSG(m, "%s", aril_error());
    CHECK_INT(aril_caffe_outputs(m), 1);
    CHECK_NEAR(aril_caffe_output(m, 0).loss_weight, 0.5, 0);
    aril_tensor *x = randn(ARIL_SHAPE(2, 3)), *y = randn(ARIL_SHAPE(2, 3)), *e;
    aril_tensor *t = aril_zeros(ARIL_SHAPE(2), ARIL_I64, test_device());
    aril_set_requires_grad(x, true);
    aril_tensor *loss = aril_caffe_loss(m, ARIL_LIST(x, y, t), &e);
    CHECK_MSG(aril_ok(), "%s", aril_error());
    aril_tensor *sign =
        aril_sub_scalar(aril_mul_scalar(aril_cast(aril_one_hot(t, 3), ARIL_F32), 2), 1);
    double hinge =
        aril_item(aril_sum(aril_relu(aril_rsub_scalar(aril_mul(x, sign), 1)), ARIL_ALL)) / 2;
    double want = 0.5 * aril_item(e) + hinge + 3 * aril_item(aril_sum(x, ARIL_ALL));
    CHECK_NEAR(aril_item(loss), want, 1e-5);
    CHECK_INT(aril_backward(loss), ARIL_OK);
    CHECK(aril_has_grad(x));
    aril_module_release(m);
}

/* All scores of a sample are those of its classes, whatever their shape. */
TEST(a_multinomial_loss_takes_scores_of_any_shape)
{
    ARIL_SCOPE;
    aril_module *m = parse_train(INPUT("x", "dim: 2 dim: 2 dim: 2") INPUT(
        "t", "dim: 2") "layer { name: 'l' type: 'MultinomialLogisticLoss' bottom: 'x' bottom: 't' "
                       "top: 'l' }\n");
    CHECK_MSG(m, "%s", aril_error());
    static const float p[] = { 0.1F, 0.2F, 0.3F, 0.4F, 0.4F, 0.3F, 0.2F, 0.1F };
    static const int64_t label[] = { 3, 1 };
    aril_tensor *x = aril_from(p, ARIL_SHAPE(2, 2, 2), ARIL_F32, test_device());
    aril_tensor *t = aril_from(label, ARIL_SHAPE(2), ARIL_I64, test_device());
    CHECK_NEAR(aril_item(aril_caffe_loss(m, ARIL_LIST(x, t), NULL)), -(log(0.4) + log(0.3)) / 2,
               1e-6);
    aril_module_release(m);
}

TEST(no_gradient_flows_where_propagate_down_is_false)
{
    ARIL_SCOPE;
    aril_module *m = parse_train(
        X23 INPUT("y", "dim: 2 dim: 3") "layer { name: 'e' type: 'EuclideanLoss' bottom: 'x' "
                                        "bottom: 'y' top: 'e' propagate_down: true "
                                        "propagate_down: false }\n");
    CHECK_MSG(m, "%s", aril_error());
    aril_tensor *x = randn(ARIL_SHAPE(2, 3)), *y = randn(ARIL_SHAPE(2, 3));
    aril_set_requires_grad(x, true);
    aril_set_requires_grad(y, true);
    CHECK_INT(aril_backward(aril_caffe_loss(m, ARIL_LIST(x, y), NULL)), ARIL_OK);
    CHECK(aril_has_grad(x) && !aril_has_grad(y));
    aril_module_release(m);
}

TEST(names_of_children)
{
    aril_module *m = parse(X23 "layer { name: 'a.b/c' type: 'ReLU' bottom: 'x' top: 'y' }\n"
                               "layer { name: 'a.b/c' type: 'ReLU' bottom: 'y' top: 'z' }\n"
                               "layer { type: 'ReLU' bottom: 'z' top: 'w' }\n");
    CHECK_MSG(m, "%s", aril_error());
    CHECK_STR(aril_module_child_name(m, 0), "a_b/c");
    CHECK_STR(aril_module_child_name(m, 1), "a_b/c#2");
    CHECK_STR(aril_module_child_name(m, 2), "layer");
    aril_module_release(m);
}

/* ---- filters ---- */

static int layers_of(const char *text, aril_caffe_opts opts)
{
    aril_module *m = parse_with(text, opts);
    int n = m ? aril_caffe_layers(m) : -1;
    aril_module_release(m);
    return n;
}

TEST(rules_choose_layers)
{
    static const char text[] =
        X23 "layer { name: 'a' type: 'ReLU' bottom: 'x' top: 'a' include { phase: TRAIN } }\n"
            "layer { name: 'b' type: 'ReLU' bottom: 'x' top: 'b' exclude { phase: TRAIN } }\n"
            "layer { name: 'c' type: 'ReLU' bottom: 'x' top: 'c' include { min_level: 2 max_level: "
            "3 } }\n"
            "layer { name: 'd' type: 'ReLU' bottom: 'x' top: 'd' include { stage: 's' stage: 't' } "
            "include { stage: 'u' not_stage: 's' } }\n";
    const char *st[] = { "s", "t" }, *u[] = { "u" }, *su[] = { "s", "u" };
    CHECK_INT(layers_of(text, (aril_caffe_opts){ 0 }), 2);
    CHECK_INT(layers_of(text, (aril_caffe_opts){ .phase = ARIL_CAFFE_TRAIN }), 2);
    CHECK_INT(layers_of(text, (aril_caffe_opts){ .level = 1 }), 2);
    CHECK_INT(layers_of(text, (aril_caffe_opts){ .level = 3 }), 3);
    CHECK_INT(layers_of(text, (aril_caffe_opts){ .level = 4 }), 2);
    CHECK_INT(layers_of(text, (aril_caffe_opts){ .stages = st, .n_stages = 2 }), 3);
    CHECK_INT(layers_of(text, (aril_caffe_opts){ .stages = st, .n_stages = 1 }), 2);
    CHECK_INT(layers_of(text, (aril_caffe_opts){ .stages = u, .n_stages = 1 }), 3);
    CHECK_INT(layers_of(text, (aril_caffe_opts){ .stages = su, .n_stages = 2 }), 2);
    CHECK_INT(layers_of("state { level: 2 stage: 'u' }\n" X23
                        "layer { name: 'd' type: 'ReLU' bottom: 'x' top: 'd' include { stage: 'u' "
                        "min_level: 2 } }\n",
                        (aril_caffe_opts){ 0 }),
              2);
    refused("layer { name: 'a' include { phase: TRAIN } exclude { phase: TEST } }",
            "include and exclude");
}

/* ---- parameters ---- */

static const char siamese[] =
    X23 INPUT("y", "dim: 2 dim: 3") "layer { name: 'a' type: 'InnerProduct' bottom: 'x' top: 'a' "
                                    "param { name: 'w' lr_mult: 2 "
                                    "decay_mult: 3 } param { name: 'b' lr_mult: 0 } "
                                    "inner_product_param { num_output: 2 "
                                    "weight_filler { type: 'xavier' } } }\n"
                                    "layer { name: 'b' type: 'InnerProduct' bottom: 'y' top: 'b' "
                                    "param { name: 'w' } param { "
                                    "name: 'b' } inner_product_param { num_output: 2 } }\n"
                                    "layer { name: 'loss' type: 'EuclideanLoss' bottom: 'a' "
                                    "bottom: 'b' top: 'loss' }\n";

TEST(parameters_are_shared_by_name)
{
    ARIL_SCOPE;
    aril_module *m = parse_train(siamese);
    CHECK_MSG(m, "%s", aril_error());
    CHECK(aril_module_tensor(m, "a.weight") == aril_module_tensor(m, "b.weight"));
    CHECK_INT(aril_parameters(m)->n, 2);
    CHECK_INT(aril_caffe_params(m), 2);
    aril_caffe_param w = aril_caffe_param_at(m, 0), b = aril_caffe_param_at(m, 1);
    CHECK(w.tensor == aril_module_tensor(m, "a.weight") && w.layer == 2 && w.index == 0);
    CHECK_NEAR(w.lr_mult, 2, 0);
    CHECK_NEAR(w.decay_mult, 3, 0);
    CHECK_NEAR(b.lr_mult, 0, 0);
    CHECK_NEAR(b.decay_mult, 1, 0);
    CHECK(aril_requires_grad(w.tensor) && !aril_requires_grad(b.tensor)); /* lr_mult is 0 */
    aril_tensor *x = randn(ARIL_SHAPE(2, 3)), *y = randn(ARIL_SHAPE(2, 3));
    CHECK_INT(aril_backward(aril_caffe_loss(m, ARIL_LIST(x, y), NULL)), ARIL_OK);
    /* d = (x - y) W^T, loss = sum d^2 / 4 */
    aril_tensor *xy = aril_sub(x, y), *d = aril_matmul(xy, aril_t(aril_detach(w.tensor)));
    aril_tensor *want = aril_mul_scalar(aril_matmul(aril_t(d), xy), 0.5);
    CHECK(
        aril_allclose(aril_grad(w.tensor), want, (aril_close_opts){ .rtol = 1e-4, .atol = 1e-5 }));
    aril_module_release(m);
    aril_clear_error();
    refused(X23 "layer { name: 'a' type: 'InnerProduct' bottom: 'x' top: 'a' param { name: 'w' "
                "lr_mult: 1 } inner_product_param { num_output: 2 bias_term: false } }\n"
                "layer { name: 'b' type: 'InnerProduct' bottom: 'x' top: 'b' param { name: 'w' "
                "lr_mult: 2 } inner_product_param { num_output: 2 bias_term: false } }\n",
            "lr_mult 2 of blob 0 differs from 1");
}

#define TWO(mode)                                                                                \
    X23 "layer { name: 'a' type: 'InnerProduct' bottom: 'x' top: 'a' param { name: 'w' } "       \
        "inner_product_param { num_output: 2 bias_term: false weight_filler { type: 'xavier' } " \
        "} }\n"                                                                                  \
        "layer { name: 't' type: 'InnerProduct' bottom: 'x' top: 't' param { name: 'w' " mode    \
        " } inner_product_param { num_output: 2 bias_term: false transpose: true } }\n"

TEST(a_permissive_share_has_another_shape)
{
    ARIL_SCOPE;
    refused(TWO(""), "PERMISSIVE allows that");
    aril_module *m = parse(TWO("share_mode: PERMISSIVE"));
    CHECK_MSG(m, "%s", aril_error());
    aril_tensor *x = randn(ARIL_SHAPE(2, 3)), *out[2];
    CHECK_INT(aril_forward_all(m, ARIL_LIST(x), 2, out), ARIL_OK);
    aril_tensor *w = aril_detach(aril_module_tensor(m, "a.weight"));
    aril_tensor *want = aril_matmul(x, aril_reshape(w, ARIL_SHAPE(3, 2)));
    CHECK(aril_allclose(out[1], want, (aril_close_opts){ .rtol = 1e-5, .atol = 1e-6 }));
    aril_module_release(m);
}

TEST(a_test_net_uses_the_parameters_of_the_train_net)
{
    ARIL_SCOPE;
    aril_module *train = parse_train(siamese), *test = parse(siamese);
    CHECK_MSG(train && test, "%s", aril_error());
    CHECK(aril_module_training(train) && !aril_module_training(test));
    CHECK_INT(aril_caffe_share(test, train), ARIL_OK);
    CHECK(aril_module_tensor(test, "b.weight") == aril_module_tensor(train, "a.weight"));
    aril_tensor *x = randn(ARIL_SHAPE(2, 3)), *y = randn(ARIL_SHAPE(2, 3));
    double before = aril_item(aril_forward_n(test, ARIL_LIST(x, y)));
    {
        ARIL_NO_GRAD;
        aril_mul_scalar_(aril_module_tensor(train, "a.weight"), 2);
    }
    CHECK_NEAR(aril_item(aril_forward_n(test, ARIL_LIST(x, y))), 4 * before, 1e-4 * before);
    aril_module_release(train);
    aril_module_release(test);
}

/* ---- fillers ---- */

static aril_tensor *filled(aril_module **m, const char *filler)
{
    char text[512];
    snprintf(text, sizeof text,
             INPUT("x",
                   "dim: 1 dim: 400") "layer { name: 'l' type: 'InnerProduct' bottom: 'x' top: "
                                      "'y' inner_product_param { num_output: 100 bias_term: "
                                      "false weight_filler { %s } } }",
             filler);
    *m = parse(text);
    return *m ? aril_detach(aril_module_tensor(*m, "l.weight")) : NULL; /* [100,400] */
}

static void check_fill(const char *filler, double mean, double std, double low, double high)
{
    aril_module *m;
    aril_tensor *w = filled(&m, filler), *got_mean;
    CHECK_MSG(w, "%s", aril_error());
    double got = aril_item(aril_std_mean(w, ARIL_ALL, 0, &got_mean));
    CHECK_NEAR(got, std, 0.03 * std + 1e-9);
    CHECK_NEAR(aril_item(got_mean), mean, 0.03 * (fabs(mean) + std) + 1e-9);
    CHECK(aril_item(aril_amin(w, ARIL_ALL)) >= low && aril_item(aril_amax(w, ARIL_ALL)) <= high);
    aril_module_release(m);
}

TEST(fillers)
{
    ARIL_SCOPE;
    aril_seed(1);
    double a = sqrt(3. / 400), out = sqrt(3. / 100), both = sqrt(3. / 250), inf = INFINITY;
    check_fill("value: 2.5", 2.5, 0, 2.5, 2.5);
    check_fill("type: 'uniform' min: -1 max: 3", 1, 4 / sqrt(12), -1, 3);
    check_fill("type: 'gaussian' mean: 1 std: 2", 1, 2, -inf, inf);
    check_fill("type: 'gaussian' std: 2 sparse: 25", 0, 1, -inf, inf); /* a quarter of them */
    check_fill("type: 'positive_unitball'", 1. / 400, 1. / 400 / sqrt(3), 0, 1);
    check_fill("type: 'xavier'", 0, a / sqrt(3), -a, a);
    check_fill("type: 'xavier' variance_norm: FAN_OUT", 0, out / sqrt(3), -out, out);
    check_fill("type: 'xavier' variance_norm: AVERAGE", 0, both / sqrt(3), -both, both);
    check_fill("type: 'msra'", 0, sqrt(2. / 400), -inf, inf);
    check_fill("type: 'msra' variance_norm: FAN_OUT", 0, sqrt(2. / 100), -inf, inf);
    aril_module *m;
    aril_tensor *w = filled(&m, "type: 'positive_unitball'");
    CHECK(aril_allclose(aril_sum(w, ARIL_AXES(1)),
                        aril_ones(ARIL_SHAPE(100), ARIL_F32, test_device()),
                        (aril_close_opts){ .rtol = 1e-4 }));
    aril_module_release(m);
    refused(X23 "layer { name: 'l' type: 'InnerProduct' bottom: 'x' top: 'y' inner_product_param { "
                "num_output: 1 weight_filler { type: 'glorot' } } }",
            "there is no filler 'glorot'");
}

TEST(a_bilinear_filler_interpolates)
{
    ARIL_SCOPE;
    aril_module *m = parse(INPUT(
        "x",
        "dim: 1 dim: 1 dim: 3 dim: 3") "layer { name: 'up' type: 'Deconvolution' bottom: 'x' top: "
                                       "'y' "
                                       "convolution_param { num_output: 1 kernel_size: 4 stride: 2 "
                                       "pad: 1 "
                                       "bias_term: false weight_filler { type: 'bilinear' } } }");
    CHECK_MSG(m, "%s", aril_error());
    double row[] = { 0.25, 0.75, 0.75, 0.25 };
    aril_tensor *r = numbers(4, row), *w = aril_detach(aril_module_tensor(m, "up.weight"));
    CHECK(aril_allclose(aril_reshape(w, ARIL_SHAPE(4, 4)), aril_mul(aril_unsqueeze(r, 1), r),
                        (aril_close_opts){ 0 }));
    aril_module_release(m);
}

static void count_call(aril_module *m, int n_in, aril_tensor **in, void *ctx)
{
    (void)m, (void)n_in, (void)in;
    ++*(int *)ctx;
}

/* `aril time` does so with each layer. */
TEST(hooks_of_layers_without_bottoms)
{
    ARIL_SCOPE;
    aril_tensor *x;
    int calls = 0;
    aril_module *m = parse("layer { name: 'd' type: 'DummyData' top: 'u' dummy_data_param { "
                           "shape { dim: 2 } data_filler { value: 7 } } }\n");
    CHECK_MSG(m, "%s", aril_error());
    CHECK(aril_module_hook_before(aril_caffe_layer_at(m, 0).module, count_call, &calls) > 0);
    CHECK_MSG(aril_forward_all(m, (aril_list){ 0 }, 1, &x) == ARIL_OK, "%s", aril_error());
    CHECK_INT(calls, 1);
    CHECK_NEAR(aril_item(aril_mean(x, ARIL_ALL)), 7, 0);
    aril_module_release(m);
}

TEST(dummy_data_is_drawn_anew)
{
    ARIL_SCOPE;
    aril_module *m =
        parse("layer { name: 'd' type: 'DummyData' top: 'u' top: 'v' dummy_data_param { "
              "shape { dim: 2 dim: 3 } data_filler { type: 'gaussian' } data_filler { "
              "value: 7 } } }\n");
    CHECK_MSG(m, "%s", aril_error());
    CHECK_INT(aril_caffe_inputs(m), 0);
    aril_tensor *a[2], *b[2];
    CHECK_MSG(aril_forward_all(m, (aril_list){ 0 }, 2, a) == ARIL_OK, "%s", aril_error());
    CHECK_INT(aril_forward_all(m, (aril_list){ 0 }, 2, b), ARIL_OK);
    CHECK(!aril_equal(a[0], b[0]) && aril_equal(a[1], b[1]));
    CHECK_NEAR(aril_item(aril_mean(a[1], ARIL_ALL)), 7, 0);
    aril_module_release(m);
    m = parse("layer { name: 'd' type: 'DummyData' top: 'u' dummy_data_param { num: 2 channels: 3 "
              "height: 4 width: 5 } }\n");
    CHECK_MSG(m, "%s", aril_error());
    CHECK_INT(aril_caffe_output(m, 0).shape.dim[3], 5);
    aril_module_release(m);
}

/* ---- layers with states or chance ---- */

TEST(dropout_and_phases)
{
    ARIL_SCOPE;
    static const char text[] =
        INPUT("x", "dim: 100 dim: 100") "layer { name: 'd' type: 'Dropout' bottom: 'x' top: 'y' "
                                        "dropout_param { dropout_ratio: 0.25 "
                                        "} }\n"
                                        "layer { name: 'e' type: 'Dropout' bottom: 'x' top: 'z' "
                                        "phase: TEST }\n";
    aril_module *m = parse_train(text);
    CHECK_MSG(m, "%s", aril_error());
    aril_tensor *x = aril_ones(ARIL_SHAPE(100, 100), ARIL_F32, test_device()), *out[2];
    CHECK_INT(aril_forward_all(m, ARIL_LIST(x), 2, out), ARIL_OK);
    double zeros = (double)aril_item_int(aril_sum(aril_eq_scalar(out[0], 0), ARIL_ALL));
    CHECK_NEAR(zeros / 1e4, 0.25, 0.03);
    CHECK_NEAR(aril_item(aril_amax(out[0], ARIL_ALL)), 4 / 3., 1e-6);
    CHECK(aril_equal(out[1], x)); /* its own phase is TEST */
    aril_module_eval(m);
    CHECK(aril_equal(aril_forward(m, x), x));
    aril_module_release(m);
}

TEST(stochastic_pooling_draws_by_value)
{
    ARIL_SCOPE;
    aril_seed(3);
    aril_module *m = parse_train(INPUT(
        "x",
        "dim: 1000 dim: 1 dim: 2 dim: 2") "layer { name: 'p' type: 'Pooling' bottom: 'x' top: 'y' "
                                          "pooling_param { pool: STOCHASTIC kernel_size: 2 } }\n");
    CHECK_MSG(m, "%s", aril_error());
    double one[] = { 1, 0, 2, 5 };
    aril_tensor *x = aril_repeat(aril_reshape(numbers(4, one), ARIL_SHAPE(1, 1, 2, 2)),
                                 ARIL_SHAPE(1000, 1, 1, 1));
    aril_set_requires_grad(x, true);
    aril_tensor *y = aril_forward(m, x);
    for (int k = 0; k < 4; k++) {
        double part = (double)aril_item_int(aril_sum(aril_eq_scalar(y, one[k]), ARIL_ALL)) / 1000;
        CHECK_NEAR(part, one[k] / 8, 0.05);
    }
    CHECK_INT(aril_backward(aril_sum(y, ARIL_ALL)), ARIL_OK);
    aril_tensor *g = aril_grad(x); /* 1 where the element was drawn */
    CHECK_NEAR(aril_item(aril_sum(g, ARIL_ALL)), 1000, 1e-3);
    CHECK_NEAR(aril_item(aril_sum(aril_mul(g, aril_detach(x)), ARIL_ALL)),
               aril_item(aril_sum(y, ARIL_ALL)), 1e-2);
    aril_module_release(m);
}

TEST(an_lstm_goes_on_where_it_ended)
{
    ARIL_SCOPE;
    static const char text[] = INPUT("x", "dim: %d dim: 2 dim: 3")
        INPUT("cont", "dim: %d dim: 2") "layer { name: 'l' type: 'LSTM' bottom: 'x' bottom: 'cont' "
                                        "top: 'y' recurrent_param { "
                                        "num_output: 4 weight_filler { type: 'xavier' } } }\n";
    char whole_text[1024], half_text[1024];
    snprintf(whole_text, sizeof whole_text, text, 6, 6);
    snprintf(half_text, sizeof half_text, text, 3, 3);
    aril_module *whole = parse(whole_text), *half = parse(half_text);
    CHECK_MSG(whole && half, "%s", aril_error());
    CHECK_INT(aril_caffe_share(half, whole), ARIL_OK);
    aril_tensor *x = randn(ARIL_SHAPE(6, 2, 3));
    aril_tensor *cont = aril_cat(ARIL_LIST(aril_zeros(ARIL_SHAPE(1, 2), ARIL_F32, test_device()),
                                           aril_ones(ARIL_SHAPE(5, 2), ARIL_F32, test_device())),
                                 0);
    aril_tensor *y = aril_forward_n(whole, ARIL_LIST(x, cont)), *part[2];
    for (int i = 0; i < 2; i++)
        part[i] = aril_copy(aril_forward_n(half, ARIL_LIST(aril_narrow(x, 0, 3 * i, 3),
                                                           aril_narrow(cont, 0, 3 * i, 3))));
    CHECK_MSG(aril_ok(), "%s", aril_error());
    CHECK(aril_allclose(aril_cat((aril_list){ 2, part }, 0), y,
                        (aril_close_opts){ .rtol = 1e-5, .atol = 1e-6 }));
    aril_module_release(whole);
    aril_module_release(half);
}

/* ---- Python layers ---- */

static void twice(const char *param, aril_list in, int n_out, aril_tensor **out, void *ctx)
{
    *(int *)ctx += 1;
    for (int i = 0; i < n_out; i++) out[i] = aril_mul_scalar(in.at[i], atof(param));
}

TEST(python_layers_call_registered_functions)
{
    ARIL_SCOPE;
    static const char text[] = X23 "layer { name: 'p' type: 'Python' bottom: 'x' top: 'y' "
                                   "python_param { module: 'mine' layer: "
                                   "'Twice' param_str: '2' } loss_weight: 1 }\n";
    int calls = 0;
    refused(text, "layer 'p' (Python) at line 2: no function computes the Python layer mine.Twice");
    CHECK_INT(aril_caffe_register("mine.Twice", twice, &calls), ARIL_OK);
    aril_module *m = parse(text);
    CHECK_MSG(m, "%s", aril_error());
    aril_tensor *x = randn(ARIL_SHAPE(2, 3));
    aril_set_requires_grad(x, true);
    CHECK_INT(aril_backward(aril_caffe_loss(m, ARIL_LIST(x), NULL)), ARIL_OK);
    CHECK(calls == 2 && aril_equal(aril_grad(x), aril_full_like(x, 2)));
    aril_module_release(m);
    CHECK_INT(aril_caffe_register("mine.Twice", NULL, NULL), ARIL_OK);
    refused(text, "no function");
    CHECK(aril_caffe_register("mine", twice, NULL) < 0);
    aril_clear_error();
}

/* Adds the number of its calls, which it counts. */
static void count(const char *param, aril_list in, int n_out, aril_tensor **out, void *ctx)
{
    (void)param, (void)n_out;
    out[0] = aril_add_scalar(in.at[0], ++*(int *)ctx);
}

TEST(python_layers_are_called_in_each_run)
{
    static const char text[] = X23 "layer { name: 'p' type: 'Python' bottom: 'x' top: 'y' "
                                   "python_param { module: 'mine' layer: 'Count' } }\n";
    int calls = 0;
    CHECK_INT(aril_caffe_register("mine.Count", count, &calls), ARIL_OK);
    aril_module *m = parse(text);
    CHECK_MSG(m, "%s", aril_error());
    CHECK_INT(aril_module_jit(m), ARIL_OK);
    aril_tensor *x = aril_zeros(ARIL_SHAPE(2, 3), ARIL_F32, test_device());
    calls = 0;
    for (int i = 1; i <= 5; i++)
        CHECK_NEAR(aril_item(aril_amax(aril_forward(m, x), ARIL_ALL)), i, 0);
    CHECK_MSG(aril_module_eager_reason(m) && strstr(aril_module_eager_reason(m), "Python layer"),
              "%s", aril_module_eager_reason(m));
    aril_module_release(m);
    CHECK_INT(aril_caffe_register("mine.Count", NULL, NULL), ARIL_OK);
}

TEST(dropout_of_nothing_is_the_identity)
{
    ARIL_SCOPE;
    aril_module *m = parse_train(X23 "layer { name: 'd' type: 'Dropout' bottom: 'x' top: 'y' "
                                     "dropout_param { dropout_ratio: 0 } }\n");
    CHECK_MSG(m, "%s", aril_error());
    aril_tensor *x = randn(ARIL_SHAPE(2, 3));
    CHECK(aril_equal(aril_forward(m, x), x));
    aril_module_release(m);
}

/* ---- data layers ---- */

TEST(data_layers_are_inputs)
{
    ARIL_SCOPE;
    static const char text[] =
        "layer { name: 'mnist' type: 'Data' top: 'data' top: 'label' include { phase: TRAIN } "
        "data_param { source: 'train_lmdb' batch_size: 4 backend: LMDB } }\n"
        "layer { name: 'ip' type: 'InnerProduct' bottom: 'data' top: 'ip' inner_product_param { "
        "num_output: 3 weight_filler { type: 'xavier' } } }\n"
        "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' }\n"
        "layer { name: 'out' type: 'HDF5Output' bottom: 'ip' bottom: 'label' hdf5_output_param { "
        "file_name: 'x.h5' } }\n";
    aril_module *m = parse_train(text);
    CHECK_MSG(m, "%s", aril_error());
    aril_caffe_layer data = aril_caffe_layer_at(m, 0);
    CHECK(data.is_data && !data.module && data.first_input == 0 && data.n_tops == 2);
    CHECK(!aril_caffe_input(m, 0).known && !aril_module_built(m));
    CHECK(aril_caffe_params(m) < 0);
    aril_clear_error();
    aril_tensor *x = randn(ARIL_SHAPE(4, 5));
    aril_tensor *t = aril_zeros(ARIL_SHAPE(4), ARIL_I32, test_device());
    CHECK(aril_item(aril_caffe_loss(m, ARIL_LIST(x, t), NULL)) > 0);
    CHECK_INT(aril_caffe_params(m), 2);
    CHECK_INT(aril_caffe_input(m, 0).shape.dim[1], 5);
    CHECK(aril_tensor_status(aril_forward(m, x)) < 0);
    CHECK(strstr(aril_error(), "expected 2 inputs (data, label), got 1"));
    aril_clear_error();
    /* What does not need the label runs without it. */
    aril_tensor *ip;
    CHECK_INT(aril_caffe_blobs(m, ARIL_LIST(x), 1, (const char *[]){ "ip" }, &ip), ARIL_OK);
    aril_module_release(m);
}

/* ---- older forms ---- */

/* Two texts must make nets that print the same. */
static char *printed(aril_module *m)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    aril_caffe_print(m, f);
    fclose(f);
    return text;
}

static void same_nets(const char *older, const char *text)
{
    aril_module *a = parse_train(older), *b = parse_train(text);
    char *x = a ? printed(a) : NULL, *y = b ? printed(b) : NULL;
    if (!x || !y || strcmp(x, y) != 0)
        test_fail(__FILE__, __LINE__, "%s\n%s\n---\n%s", aril_error(), x ? x : "", y ? y : "");
    free(x);
    free(y);
    aril_module_release(a);
    aril_module_release(b);
}

TEST(v1_nets_are_upgraded)
{
    same_nets(
        "name: 'n' input: 'x' input_dim: 1 input_dim: 2 input_dim: 8 input_dim: 8\n"
        "layers { name: 'c' type: CONVOLUTION bottom: 'x' top: 'c' blobs_lr: 1 blobs_lr: 2 "
        "weight_decay: 1 weight_decay: 0 param: 'w' blob_share_mode: PERMISSIVE "
        "convolution_param { num_output: 3 kernel_size: 3 } }\n"
        "layers { name: 'l' type: SOFTMAX_LOSS bottom: 'c' bottom: 'x' top: 'l' loss_weight: "
        "0 include { phase: TEST } }\n"
        "layers { name: 'p' type: POOLING bottom: 'c' top: 'p' pooling_param { pool: AVE "
        "kernel_size: 2 } }\n",
        "name: 'n'\n"
        "layer { name: 'input' type: 'Input' top: 'x' input_param { shape { dim: 1 dim: 2 dim: "
        "8 dim: 8 } } }\n"
        "layer { name: 'c' type: 'Convolution' bottom: 'x' top: 'c' param { name: 'w' "
        "share_mode: PERMISSIVE lr_mult: 1 decay_mult: 1 } param { lr_mult: 2 decay_mult: 0 } "
        "convolution_param { num_output: 3 kernel_size: 3 } }\n"
        "layer { name: 'p' type: 'Pooling' bottom: 'c' top: 'p' pooling_param { pool: AVE "
        "kernel_size: 2 } }\n");
    same_nets(
        "layers { name: 'd' type: IMAGE_DATA top: 'x' image_data_param { source: 's' scale: "
        "0.5 crop_size: 3 mirror: true mean_file: 'm' } }\n"
        "layers { name: 't' type: TANH bottom: 'x' top: 'x' }\n",
        "layer { name: 'd' type: 'ImageData' top: 'x' transform_param { scale: 0.5 crop_size: "
        "3 mirror: true mean_file: 'm' } image_data_param { source: 's' } }\n"
        "layer { name: 't' type: 'TanH' bottom: 'x' top: 'x' }\n");
    same_nets(
        "input: 'x' input: 'y' input_shape { dim: 2 dim: 3 } input_shape { dim: 2 }\n"
        "layer { name: 'b' type: 'BatchNorm' bottom: 'x' top: 'b' param { lr_mult: 0 } param { "
        "lr_mult: 0 } param { lr_mult: 0 } }\n",
        "layer { name: 'input' type: 'Input' top: 'x' top: 'y' input_param { shape { dim: 2 "
        "dim: 3 } shape { dim: 2 } } }\n"
        "layer { name: 'b' type: 'BatchNorm' bottom: 'x' top: 'b' }\n");
    refused("layers { name: 'x' type: TANH } layer { name: 'y' }", "of the current form");
    refused("input: 'x' input_dim: 1 layer { name: 'y' }", "1 inputs need 1 values of input_shape");
}

TEST(v0_nets_are_upgraded)
{
    same_nets(
        "layers { layer { name: 'd' type: 'data' source: 'db' meanfile: 'm' batchsize: 8 "
        "cropsize: 5 mirror: true scale: 0.5 rand_skip: 3 } top: 'x' top: 'y' }\n"
        "layers { layer { name: 'pad' type: 'padding' pad: 2 } bottom: 'x' top: 'p' }\n"
        "layers { layer { name: 'c' type: 'conv' num_output: 4 group: 1 kernelsize: 5 stride: "
        "2 biasterm: false weight_filler { type: 'gaussian' std: 0.01 } blobs_lr: 1 "
        "weight_decay: 0.5 } bottom: 'p' top: 'c' }\n"
        "layers { layer { name: 'm' type: 'pool' pool: AVE kernelsize: 3 stride: 2 } bottom: "
        "'c' top: 'm' }\n"
        "layers { layer { name: 'n' type: 'lrn' local_size: 3 alpha: 0.1 beta: 0.5 } bottom: "
        "'m' top: 'n' }\n"
        "layers { layer { name: 'i' type: 'innerproduct' num_output: 2 } bottom: 'n' top: 'i' "
        "}\n"
        "layers { layer { name: 'l' type: 'softmax_loss' } bottom: 'i' bottom: 'y' }\n",
        "layer { name: 'd' type: 'Data' top: 'x' top: 'y' transform_param { scale: 0.5 mirror: "
        "true crop_size: 5 mean_file: 'm' } data_param { source: 'db' batch_size: 8 rand_skip: "
        "3 } }\n"
        "layer { name: 'c' type: 'Convolution' bottom: 'x' top: 'c' param { lr_mult: 1 "
        "decay_mult: 0.5 } convolution_param { num_output: 4 bias_term: false pad: 2 "
        "kernel_size: 5 group: 1 stride: 2 weight_filler { type: 'gaussian' std: 0.01 } } }\n"
        "layer { name: 'm' type: 'Pooling' bottom: 'c' top: 'm' pooling_param { pool: AVE "
        "kernel_size: 3 stride: 2 } }\n"
        "layer { name: 'n' type: 'LRN' bottom: 'm' top: 'n' lrn_param { local_size: 3 alpha: "
        "0.1 beta: 0.5 } }\n"
        "layer { name: 'i' type: 'InnerProduct' bottom: 'n' top: 'i' inner_product_param { "
        "num_output: 2 } }\n"
        "layer { name: 'l' type: 'SoftmaxWithLoss' bottom: 'i' bottom: 'y' }\n");
    refused("layers { layer { name: 'c' type: 'convolve' } }", "no V0 layer type 'convolve'");
}

/* ---- weights ---- */

static const char small[] = INPUT(
    "x",
    "dim: 2 dim: 2 dim: 4 dim: 4") "layer { name: 'conv/1' type: 'Convolution' bottom: 'x' top: "
                                   "'c' convolution_param { num_output: "
                                   "3 kernel_size: 3 weight_filler { type: 'xavier' } bias_filler "
                                   "{ type: 'uniform' } } }\n"
                                   "layer { name: 'bn' type: 'BatchNorm' bottom: 'c' top: 'c' }\n"
                                   "layer { name: 'scale' type: 'Scale' bottom: 'c' top: 'c' "
                                   "scale_param { bias_term: true filler { "
                                   "type: 'uniform' } } }\n"
                                   "layer { name: 'relu' type: 'ReLU' bottom: 'c' top: 'c' }\n"
                                   "layer { name: 'ip' type: 'InnerProduct' bottom: 'c' top: 'y' "
                                   "inner_product_param { num_output: 2 "
                                   "weight_filler { type: 'gaussian' } } }\n";

static void round_trip(const char *file)
{
    ARIL_SCOPE;
    aril_module *a = parse_train(small), *b = parse(small);
    CHECK_MSG(a && b, "%s", aril_error());
    aril_tensor *x = randn(ARIL_SHAPE(2, 2, 4, 4));
    CHECK(!aril_tensor_status(aril_forward(a, x))); /* changes the statistics */
    aril_module_eval(a);
    aril_status s = aril_caffe_weights_save(a, temp_path(file));
    if (s < 0 && strstr(aril_error(), "HDF5")) {
        aril_clear_error();
    } else {
        CHECK_MSG(s == ARIL_OK, "%s", aril_error());
        CHECK_MSG(aril_caffe_weights_load(b, temp_path(file)) == ARIL_OK, "%s", aril_error());
        CHECK(aril_equal(aril_forward(a, x), aril_forward(b, x)));
    }
    aril_module_release(a);
    aril_module_release(b);
}

TEST(weights_are_saved_and_loaded)
{
    round_trip("net.caffemodel");
    round_trip("net.caffemodel.h5");
    ARIL_SCOPE;
    /* The file holds the net too. */
    aril_module *a = parse(small), *b;
    CHECK_INT(aril_caffe_weights_save(a, temp_path("a.caffemodel")), ARIL_OK);
    b = aril_caffe_net(temp_path("a.caffemodel"), (aril_caffe_opts){ 0 });
    CHECK_MSG(b, "%s", aril_error());
    aril_module_to(b, test_device());
    aril_tensor *x = randn(ARIL_SHAPE(2, 2, 4, 4));
    CHECK(aril_equal(aril_forward(a, x), aril_forward(b, x)));
    aril_module_release(b);
    /* Upgraded, as text and in wire form. */
    CHECK_INT(aril_caffe_upgrade(temp_path("a.caffemodel"), temp_path("b.caffemodel"), true),
              ARIL_OK);
    b = parse_with(small, (aril_caffe_opts){ .weights = temp_path("b.caffemodel") });
    CHECK(b && aril_equal(aril_forward(a, x), aril_forward(b, x)));
    aril_module_release(a);
    aril_module_release(b);
}

/* The blobs of a file have the names and shapes that they have in the net, without the net. */
TEST(a_caffemodel_is_a_file_of_weights)
{
    ARIL_SCOPE;
    aril_module *m = parse(
        INPUT("x", "dim: 1 dim: 2 dim: 6 dim: 6") INPUT("s", "dim: 1 dim: 2")
            INPUT("t", "dim: 3 dim: 1 dim: 4") INPUT("cont", "dim: 3 dim: 1") INPUT("u",
                                                                                    "dim: 1 dim: 5")
                INPUT("i", "dim: 2") "layer { name: 'c.1' type: 'Convolution' bottom: 'x' top: 'a' "
                                     "convolution_param { "
                                     "num_output: 2 kernel_size: 3 pad: 1 } }\n"
                                     "layer { name: 'd' type: 'Deconvolution' bottom: 'a' top: 'a' "
                                     "convolution_param { "
                                     "num_output: 2 kernel_size: 1 bias_term: false } }\n"
                                     "layer { name: 'p' type: 'PReLU' bottom: 'a' top: 'a' }\n"
                                     "layer { name: 'b' type: 'BatchNorm' bottom: 'a' top: 'a' }\n"
                                     "layer { name: 'sc' type: 'Scale' bottom: 'a' top: 'a' "
                                     "scale_param { bias_term: true } }\n"
                                     "layer { name: 's2' type: 'Scale' bottom: 'a' bottom: 's' "
                                     "top: 'a' scale_param { axis: 0 "
                                     "bias_term: true } }\n"
                                     "layer { name: 'bi' type: 'Bias' bottom: 'a' top: 'a' }\n"
                                     "layer { name: 'ip' type: 'InnerProduct' bottom: 'a' top: "
                                     "'ip' inner_product_param { "
                                     "num_output: 3 } }\n"
                                     "layer { name: 'e' type: 'Embed' bottom: 'i' top: 'e' "
                                     "embed_param { num_output: 2 "
                                     "input_dim: 3 } }\n"
                                     "layer { name: 'l' type: 'LSTM' bottom: 't' bottom: 'cont' "
                                     "top: 'l' recurrent_param { "
                                     "num_output: 2 } }\n"
                                     "layer { name: 'l2' type: 'LSTM' bottom: 't' bottom: 'cont' "
                                     "bottom: 'u' top: 'l2' "
                                     "recurrent_param { num_output: 2 } }\n"
                                     "layer { name: 'r' type: 'RNN' bottom: 't' bottom: 'cont' "
                                     "bottom: 'u' top: 'r' "
                                     "recurrent_param { num_output: 2 } }\n"
                                     "layer { name: 'pa' type: 'Parameter' top: 'pa' "
                                     "parameter_param { shape { dim: 2 } } }\n");
    CHECK_MSG(m, "%s", aril_error());
    const char *path = temp_path("all.caffemodel");
    CHECK_INT(aril_caffe_weights_save(m, path), ARIL_OK);
    aril_weights *w = aril_weights_open(path, (aril_weights_opts){ 0 });
    CHECK_MSG(w, "%s", aril_error());
    const aril_named *state = aril_state(m);
    int found = 0;
    for (int i = 0; i < state->n; i++) {
        int at = aril_weights_find(w, state->name[i]);
        if (at < 0) continue; /* states of LSTM are not in the file */
        found++;
        CHECK_MSG(aril_equal(aril_weights_tensor(w, at), aril_to(state->at[i], aril_cpu())), "%s",
                  state->name[i]);
    }
    CHECK_INT(found, aril_weights_count(w));
    CHECK_INT(found, aril_caffe_params(m));
    CHECK(aril_weights_find(w, "c_1.weight") >= 0 && aril_weights_find(w, "s2.bias") >= 0);
    aril_weights_close(w);
    aril_module_release(m);
}

TEST(weights_that_do_not_fit_change_nothing)
{
    ARIL_SCOPE;
    aril_module *a = parse(small);
    CHECK_INT(aril_caffe_weights_save(a, temp_path("a.caffemodel")), ARIL_OK);
    char text[2048];
    snprintf(text, sizeof text, "%s", small);
    char *at = strstr(text, "num_output: 2");
    CHECK(at);
    at[strlen("num_output: 2") - 1] = '5';
    aril_module *b = parse(text);
    aril_tensor *w = aril_copy(aril_module_tensor(b, "conv/1.weight"));
    CHECK(aril_caffe_weights_load(b, temp_path("a.caffemodel")) < 0);
    CHECK(strstr(aril_error(), "'ip'") &&
          strstr(aril_error(), "blob 0 is [5,12], in the file [2,12]"));
    CHECK(aril_equal(w, aril_module_tensor(b, "conv/1.weight")));
    aril_clear_error();
    CHECK(aril_caffe_weights_missing(b, 0) != NULL); /* nothing was loaded */
    CHECK(aril_caffe_weights_load(b, temp_path("none.caffemodel")) < 0);
    aril_clear_error();
    aril_module_release(a);
    aril_module_release(b);
}

TEST(single_blobs)
{
    ARIL_SCOPE;
    aril_tensor *t = randn(ARIL_SHAPE(3, 4, 5));
    CHECK_INT(aril_caffe_blob_save(temp_path("mean.binaryproto"), t), ARIL_OK);
    CHECK(aril_equal(aril_caffe_blob_load(temp_path("mean.binaryproto")), aril_to(t, aril_cpu())));
    CHECK(aril_tensor_status(aril_caffe_blob_load(temp_path("none"))) < 0);
    aril_clear_error();
}

/* ---- as a module ---- */

TEST(compiled_and_exported_nets_agree)
{
    ARIL_SCOPE;
    ARIL_INFERENCE;
    aril_module *m = parse(small);
    CHECK_MSG(m, "%s", aril_error());
    aril_tensor *x = randn(ARIL_SHAPE(2, 2, 4, 4)), *y = aril_forward(m, x), *z;
    CHECK_INT(aril_module_export(m, ARIL_LIST(x), temp_path("net.onnx"), (aril_export_opts){ 0 }),
              ARIL_OK);
    aril_program *p =
        aril_program_load(temp_path("net.onnx"), (aril_load_opts){ .device = test_device() });
    CHECK_MSG(p, "%s", aril_error());
    CHECK_INT(aril_program_outputs(p), 1);
    CHECK_INT(aril_program_run(p, ARIL_LIST(x), &z), ARIL_OK);
    CHECK(aril_allclose(y, z, (aril_close_opts){ .rtol = 1e-4, .atol = 1e-5 }));
    aril_program_free(p);
    CHECK_INT(aril_module_jit(m), ARIL_OK);
    z = aril_forward(m, x);
    CHECK(aril_allclose(y, z, (aril_close_opts){ .rtol = 1e-5, .atol = 1e-6 }));
    CHECK_MSG(!aril_module_eager_reason(m), "%s", aril_module_eager_reason(m));
    aril_module_release(m);
}

TEST(a_net_learns)
{
    ARIL_SCOPE;
    aril_seed(1);
    aril_module *m = parse_train(INPUT("x", "dim: 8 dim: 4") INPUT(
        "t",
        "dim: 8") "layer { name: 'a' type: 'InnerProduct' bottom: 'x' top: 'a' inner_product_param "
                  "{ "
                  "num_output: 16 weight_filler { type: 'xavier' } } }\n"
                  "layer { name: 'r' type: 'ReLU' bottom: 'a' top: 'a' }\n"
                  "layer { name: 'b' type: 'InnerProduct' bottom: 'a' top: 'b' inner_product_param "
                  "{ "
                  "num_output: 3 weight_filler { type: 'xavier' } } }\n"
                  "layer { name: 'l' type: 'SoftmaxWithLoss' bottom: 'b' bottom: 't' top: 'l' }\n");
    CHECK_MSG(m, "%s", aril_error());
    aril_tensor *x = randn(ARIL_SHAPE(8, 4));
    aril_tensor *t = aril_remainder_scalar(aril_arange(0, 8, 1, ARIL_I64, test_device()), 3);
    aril_optim *opt = aril_sgd(aril_parameters(m), (aril_sgd_opts){ .lr = 0.5 });
    double first = 0, last = 0;
    for (int i = 0; i < 60; i++) {
        ARIL_SCOPE;
        aril_tensor *loss = aril_caffe_loss(m, ARIL_LIST(x, t), NULL);
        last = aril_item(loss);
        if (i == 0) first = last;
        aril_backward(loss);
        aril_step(opt);
    }
    CHECK_MSG(aril_ok() && last < first / 5, "%g -> %g: %s", first, last, aril_error());
    aril_optim_free(opt);
    aril_module_release(m);
}

/* ---- what is refused ---- */

#define L(text) X23 "layer { name: 'l' bottom: 'x' top: 'y' " text " }"

TEST(mistakes_are_errors_that_say_where)
{
    refused(L("type: 'Relu'"), "layer 'l' at line 2: there is no layer type 'Relu'; did you mean "
                               "'ReLU'?");
    refused(L(""), "the type is missing");
    refused("layer { name: 'l' type: 'ReLU' bottom: 'x' top: 'y' }", "no layer has the top 'x'");
    refused(X23 "layer { name: 'a' type: 'ReLU' bottom: 'b' top: 'a' }\n"
                "layer { name: 'b' type: 'ReLU' bottom: 'a' top: 'b' }\n",
            "the bottom 'b' is computed by a later layer, 'b'");
    refused(X23 "layer { name: 'a' type: 'ReLU' bottom: 'x' top: 'y' }\n"
                "layer { name: 'b' type: 'ReLU' bottom: 'x' top: 'y' }\n",
            "the top 'y' is computed by layer 'a' already");
    refused(X23 "layer { name: 'a' type: 'ReLU' bottom: 'x' bottom: 'x' top: 'y' }",
            "expected 1 "
            "bottom, got 2");
    refused(X23 "layer { name: 'a' type: 'ReLU' bottom: 'x' }", "expected 1 top, got 0");
    refused(L("type: 'ReLU' loss_weight: 1 loss_weight: 1"), "2 values of loss_weight for 1 tops");
    refused(L("type: 'ReLU' propagate_down: true propagate_down: true"), "propagate_down");
    refused(L("type: 'ReLU' param { lr_mult: 1 }"),
            "param is given 1 times, the layer has 0 blobs");
    refused(L("type: 'Convolution' convolution_param { kernel_size: 3 }"), "num_output 0");
    refused(L("type: 'Convolution' convolution_param { num_output: 2 }"), "kernel_size is 0");
    refused(L("type: 'Convolution' convolution_param { num_output: 3 group: 2 kernel_size: 1 }"),
            "a multiple of group 2");
    refused(L("type: 'Convolution' convolution_param { num_output: 2 kernel_h: 1 kernel_w: 1 "
              "kernel_size: 1 }"),
            "exclude kernel_size");
    refused(L("type: 'Pooling' pooling_param { kernel_size: 2 pad: 2 }"), "pad 2 must be below");
    refused(L("type: 'Pooling' pooling_param { kernel_size: 2 global_pooling: true }"),
            "no kernel");
    refused(L("type: 'Pooling' pooling_param { kernel_size: 2 }"),
            "test.prototxt: layer 'l' (Pooling) at line 2: expected [N,C,H,W], got [2,3]");
    refused(L("type: 'Dropout' dropout_param { dropout_ratio: 1 }"), "from 0 to below 1");
    refused(L("type: 'Slice' slice_param { slice_point: 1 slice_point: 2 }"),
            "0 values of slice_point");
    refused(L("type: 'Flatten' flatten_param { axis: 5 }"), "axis 5 does not exist");
    refused(L("type: 'Reshape' reshape_param { shape { dim: -1 dim: -1 } }"), "once, -1");
    refused(L("type: 'Reshape' reshape_param { shape { dim: 4 } }"),
            "test.prototxt: layer 'l' (Reshape) at line 2: reshape: ");
    refused(L("type: 'LRN' lrn_param { local_size: 4 }"), "must be odd");
    refused(L("type: 'Log' log_param { base: 1 }"), "base 1");
    refused(L("type: 'BatchNorm' param { lr_mult: 1 }"), "are not learned");
    refused(L("type: 'Clip'"), "clip_param");
    refused(INPUT("x", "dim: 0"), "0 cannot be size 0");
    refused(INPUT("x", "dim: 9223372036854775807 dim: 2"), "cannot be size");
    refused(L("type: 'InfogainLoss' bottom: 'x'"), "the matrix is missing");
    refused(L("type: 'InfogainLoss' bottom: 'x' infogain_loss_param { source: '/none/such' }"),
            "none");
    refused("layer { name: 'l' typ: 'ReLU' }", "has no field 'typ'");
    aril_module *m = aril_caffe_net("/none/such.prototxt", (aril_caffe_opts){ 0 });
    CHECK(!m && strstr(aril_error(), "such.prototxt"));
    aril_clear_error();
    m = parse_with(X23, (aril_caffe_opts){ .weights = "/none/such.caffemodel" });
    CHECK(!m && strstr(aril_error(), "such.caffemodel"));
    aril_clear_error();
    CHECK_INT(aril_caffe_inputs(NULL), 0);
    CHECK(strstr(aril_error(), "expected a net of Caffe, got NULL"));
    aril_clear_error();
}
