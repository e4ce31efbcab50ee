/* Values and nets that layers of Caffe cannot work with: clear errors. */
#include "aril/aril.h"
#include "support/temp.h"
#include "support/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static aril_module *parse(const char *text)
{
    return aril_caffe_net_parse(text, strlen(text), "net.prototxt", (aril_caffe_opts){ 0 });
}

/* NaN is no class, and no index. */
TEST(labels_that_are_nan_are_errors)
{
    static const struct {
        const char *type, *fields;
    } layers[] = {
        { "SoftmaxWithLoss", "" }, { "Accuracy", "" },
        { "HingeLoss", "" },       { "MultinomialLogisticLoss", "" },
        { "BatchReindex", "" },    { "SoftmaxWithLoss", "loss_param { ignore_label: 0 }" },
    };
    const float values[] = { 1, NAN }, good[] = { 1, 0 };
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
        ARIL_SCOPE;
        char text[512];
        snprintf(text, sizeof text,
                 "input: 'x' input: 't' input_shape { dim: 2 dim: 3 } input_shape { dim: 2 } "
                 "layer { name: 'l' type: '%s' bottom: 'x' bottom: 't' top: 'y' %s }",
                 layers[i].type, layers[i].fields);
        aril_module *m = parse(text);
        CHECK_MSG(m, "%s", aril_error());
        aril_tensor *x = aril_full(ARIL_SHAPE(2, 3), 0.5, ARIL_F32, aril_cpu());
        aril_tensor *t = aril_from(values, ARIL_SHAPE(2), ARIL_F32, aril_cpu());
        CHECK_MSG(aril_tensor_status(aril_forward_n(m, ARIL_LIST(x, t))) < 0, "%s with NaN",
                  layers[i].type);
        aril_clear_error();
        t = aril_from(good, ARIL_SHAPE(2), ARIL_F32, aril_cpu());
        CHECK_MSG(aril_tensor_status(aril_forward_n(m, ARIL_LIST(x, t))) == ARIL_OK, "%s",
                  aril_error());
        aril_module_release(m);
    }
}

TEST(indices_that_are_nan_are_errors)
{
    ARIL_SCOPE;
    const float value = NAN;
    aril_module *m = parse("input: 'x' input_shape { dim: 1 } layer { name: 'e' type: 'Embed' "
                           "bottom: 'x' top: 'y' embed_param { input_dim: 3 num_output: 2 } }");
    CHECK_MSG(m, "%s", aril_error());
    aril_tensor *x = aril_from(&value, ARIL_SHAPE(1), ARIL_F32, aril_cpu());
    CHECK(aril_tensor_status(aril_forward(m, x)) < 0);
    aril_clear_error();
    aril_module_release(m);
}

static void refused(const char *text, const char *words)
{
    CHECK(!parse(text));
    CHECK_MSG(strstr(aril_error(), words), "%s\n  want: %s", aril_error(), words);
    aril_clear_error();
}

TEST(too_many_bottoms)
{
    enum { BOTTOMS = 100000 };
    static const char one[] = "bottom:'x'", head[] = "input: 'x' input_shape { dim: 1 } layer { "
                                                     "name: 'c' type: 'Concat' top: 'y' ";
    size_t used = strlen(head);
    char *text = malloc(used + BOTTOMS * sizeof one + 8);
    CHECK(text);
    strcpy(text, head);
    for (int i = 0; i < BOTTOMS; i++, used += sizeof one - 1) strcpy(text + used, one);
    strcpy(text + used, "}");
    CHECK(!parse(text));
    CHECK_MSG(strstr(aril_error(), "at most ") && strstr(aril_error(), " bottoms, got 100000"),
              "%s", aril_error());
    aril_clear_error();
    free(text);
}

TEST(old_inputs_are_on_a_line)
{
    refused("input: 'x' input_dim: 1 input_dim: -3 input_dim: 1 input_dim: 1", "at line 1");
}

TEST(lists_may_begin_with_the_mark_of_utf8)
{
    FILE *f = fopen(temp_path("list.txt"), "w");
    CHECK(f);
    fputs("\xef\xbb\xbf"
          "a.png 3\n",
          f);
    CHECK_INT(fclose(f), 0);
    aril_dataset *d = aril_caffe_image_list(temp_path("list.txt"), (aril_caffe_list_opts){ 0 });
    CHECK_MSG(d, "%s", aril_error());
    aril_sample s = { 0 };
    ARIL_SCOPE;
    CHECK(aril_dataset_get(d, 0, &s) < 0);
    CHECK_MSG(strstr(aril_error(), "a.png") && !strstr(aril_error(), "\xef"), "%s", aril_error());
    aril_clear_error();
    aril_dataset_release(d);
}

/* ---- numbers ---- */

/* A layer of one bottom with these fields; on line 2. */
static aril_module *one_layer(const char *type, const char *fields)
{
    char text[1024];
    snprintf(text, sizeof text,
             "input: 'x' input_shape { dim: 2 dim: 3 dim: 4 dim: 4 }\n"
             "layer { name: 'l' type: '%s' bottom: 'x' top: 'y' %s }",
             type, fields);
    return parse(text);
}

TEST(numbers_that_make_no_sense_are_errors)
{
    static const struct {
        const char *type, *fields, *words;
    } wrong[] = {
        { "MVN", "mvn_param { eps: nan }", "mvn_param.eps must be a finite number, got nan" },
        { "LRN", "lrn_param { alpha: nan }", "lrn_param.alpha must be" },
        { "LRN", "lrn_param { beta: inf }", "lrn_param.beta must be a finite number, got inf" },
        { "LRN", "lrn_param { k: -inf }", "lrn_param.k must be a finite number, got -inf" },
        { "ELU", "elu_param { alpha: nan }", "elu_param.alpha must be" },
        { "Clip", "clip_param { min: nan max: 1 }", "clip_param.min must be a number, got nan" },
        { "Clip", "clip_param { min: 2 max: 1 }", "min 2 is above max 1" },
        { "BatchNorm", "batch_norm_param { moving_average_fraction: nan }", "must be" },
        { "BatchNorm", "batch_norm_param { moving_average_fraction: -1 }", "from 0 to 1, got -1" },
        { "BatchNorm", "batch_norm_param { moving_average_fraction: 1.5 }", "0 to 1, got 1.5" },
        { "Power", "loss_weight: nan", "loss_weight must be a finite number, got nan" },
        { "Power", "transform_param { scale: nan }", "transform_param.scale must be" },
        { "Power", "transform_param { mean_value: 1 mean_value: inf }",
          "transform_param.mean_value must be" },
        { "InnerProduct", "param { lr_mult: nan } inner_product_param { num_output: 2 }",
          "param.lr_mult must be a finite number, got nan" },
        { "InnerProduct", "param { lr_mult: inf } inner_product_param { num_output: 2 }",
          "param.lr_mult must be a finite number, got inf" },
        { "InnerProduct", "param { decay_mult: nan } inner_product_param { num_output: 2 }",
          "param.decay_mult must be a finite number, got nan" },
        { "InnerProduct", "param { } param { lr_mult: -1 } inner_product_param { num_output: 2 }",
          "lr_mult of blob 1 must be at least 0, got -1" },
        { "InnerProduct", "inner_product_param { num_output: 2 weight_filler { value: nan } }",
          "inner_product_param.weight_filler.value must be a finite number, got nan" },
        { "InnerProduct",
          "inner_product_param { num_output: 2 bias_filler { type: 'gaussian' std: -1 } }",
          "std -1 of a gaussian filler is negative" },
        { "Scale", "scale_param { filler { type: 'uniform' min: 3 max: 2 } }",
          "min 3 of a uniform filler is above max 2" },
        { "PReLU", "prelu_param { filler { type: 'gaussian' std: nan } }",
          "prelu_param.filler.std must be" },
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char where[80];
        snprintf(where, sizeof where, "net.prototxt: layer 'l' (%s) at line 2: ", wrong[i].type);
        CHECK_MSG(!one_layer(wrong[i].type, wrong[i].fields), "%s", wrong[i].fields);
        CHECK_MSG(strstr(aril_error(), where) && strstr(aril_error(), wrong[i].words),
                  "%s\n  want: %s%s", aril_error(), where, wrong[i].words);
        aril_clear_error();
    }
    /* A Clip may be open at one end. */
    aril_module *m = one_layer("Clip", "clip_param { min: -inf max: 1 }");
    CHECK_MSG(m, "%s", aril_error());
    aril_module_release(m);
}

/* Weights are never used as they happen to lie in memory. */
TEST(fillers_that_run_out_of_memory_are_errors)
{
    static const char *const types[] = { "type: 'constant' value: 2",  "type: 'uniform'",
                                         "type: 'gaussian'",           "type: 'xavier'",
                                         "type: 'gaussian' sparse: 2", "type: 'msra'",
                                         "type: 'positive_unitball'" };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        char fields[200];
        bool fails = true;
        snprintf(fields, sizeof fields,
                 "inner_product_param { num_output: 300 bias_term: false weight_filler { "
                 "%s } }",
                 types[i]);
        for (int n = 1; fails && n < 3000; n++) {
            ARIL_SCOPE;
            aril_seed(1);
            aril_fail_allocation(n);
            aril_module *m = one_layer("InnerProduct", fields);
            fails = aril_allocation_failed();
            aril_fail_allocation(0);
            CHECK_MSG(m || !aril_ok(), "%s: no error", types[i]);
            if (!m || !fails) {
                aril_module_release(m);
                aril_clear_error();
                continue;
            }
            aril_seed(1);
            aril_module *whole = one_layer("InnerProduct", fields);
            CHECK(whole);
            CHECK_MSG(aril_equal(aril_caffe_param_at(m, 0).tensor,
                                 aril_caffe_param_at(whole, 0).tensor),
                      "%s: allocation %d failed, and the weights are others", types[i], n);
            aril_module_release(m);
            aril_module_release(whole);
            aril_clear_error();
        }
    }
}

/* ---- options ---- */

TEST(wrong_options_of_nets_are_errors)
{
    static const char text[] = "input: 'x' layer { name: 'r' type: 'ReLU' bottom: 'x' top: 'y' }";
    const aril_shape good = ARIL_SHAPE(2, 3), below = { .ndim = -1 }, deep = { .ndim = 99 },
                     negative = ARIL_SHAPE(2, -3);
    const struct {
        aril_caffe_opts opts;
        const char *words;
    } wrong[] = {
        { { .phase = (aril_caffe_phase)77 }, "there is no phase 77" },
        { { .n_shapes = -1 }, "-1 shapes in a list that is NULL" },
        { { .n_shapes = -1, .shapes = &good }, "-1 shapes in a list that is there" },
        { { .n_shapes = 5 }, "5 shapes in a list that is NULL" },
        { { .n_shapes = 1, .shapes = &below }, "shape 0 has -1 dimensions" },
        { { .n_shapes = 1, .shapes = &deep }, "shape 0 has 99 dimensions" },
        { { .n_shapes = 1, .shapes = &negative }, "size 1 of shape 0 is -3" },
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CHECK(!aril_caffe_net_parse(text, strlen(text), "net", wrong[i].opts));
        CHECK_MSG(strstr(aril_error(), wrong[i].words), "%s", aril_error());
        aril_clear_error();
    }
}

TEST(inputs_have_shapes_of_one_kind)
{
    refused("input: 'x' input_dim: 1 input_dim: 3 input_dim: 4 input_dim: 4 "
            "input_shape { dim: 1 dim: 3 dim: 4 dim: 4 }",
            "expected either input_shape or the older input_dim, got both");
}
