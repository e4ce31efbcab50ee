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

#define X "input: 'x' input_shape { dim: 2 dim: 3 }\n"

/* Forks of Caffe have other layers, with other fields. */
TEST(unknown_fields_name_the_layer)
{
    refused(X "layer { name: 'roi' type: 'ROIPooling' bottom: 'x' top: 'y' roi_pooling_param { "
              "pooled_w: 7 } }",
            "net.prototxt:2:61: LayerParameter has no field 'roi_pooling_param', in layer 'roi' "
            "(ROIPooling)");
    refused(X "layer { type: 'Pooling' pooling_param { out_size: 3 } }",
            "PoolingParameter has no field 'out_size', in layer '' (Pooling)");
    refused("layers { name: 'r' type: RELU axis: 3 }",
            "V1LayerParameter has no field 'axis', in layers 'r' (RELU)");
    refused("layer { axis: 3 }", "LayerParameter has no field 'axis'");
}

TEST(old_layers_take_old_types)
{
    refused(X "layers { name: 's' type: \"Softmax\" bottom: 'x' top: 'y' }",
            "net.prototxt:2:26: type: expected SOFTMAX, without quotes, got '\"Softmax\"'; or "
            "'layer' in place of 'layers', which takes text");
    refused("layers { type: 'SoftmaxWithLoss' }", "expected SOFTMAX_LOSS, without quotes");
    refused("layers { type: 'InnerProduct' }", "expected INNER_PRODUCT, without quotes");
    refused("layers { type: 'Permute' }",
            "expected a value of V1LayerParameter_LayerType, without quotes");
    refused("layer { include { phase: 'TRAIN' } }", "phase: expected TRAIN, without quotes, got");
    refused("layer { include { phase: '' } }", "phase: expected a value of Phase, without quotes");
}

TEST(a_missing_brace_is_guessed)
{
    refused("layer { name: 'a' type: 'ReLU' bottom: 'x' top: 'y'\nlayer { name: 'b' }",
            "net.prototxt:2:1: LayerParameter has no field 'layer', in layer 'a' (ReLU), but "
            "NetParameter has: is a '}' missing before it?");
    refused("layer { type: 'Convolution' convolution_param { num_output: 3\nlayer { } } }",
            "ConvolutionParameter has no field 'layer', in layer '' (Convolution), but "
            "NetParameter has: is a '}'");
}

TEST(bottoms_of_another_phase_are_named)
{
    refused(X "layer { name: 'd' type: 'ReLU' bottom: 'x' top: 'r' include { phase: TRAIN } }\n"
              "layer { name: 'e' type: 'ReLU' bottom: 'r' top: 'y' }",
            "net.prototxt: layer 'e' (ReLU) at line 3: no layer has the top 'r' in the phase TEST: "
            "layer 'd' (ReLU) at line 2 has it, but its include or exclude rules leave it out");
}

TEST(a_missing_matrix_names_its_layer)
{
    refused(X "input: 't' input_shape { dim: 2 }\nlayer { name: 'i' type: 'InfogainLoss' bottom: "
              "'x' bottom: 't' top: 'y' infogain_loss_param { source: 'nofile' } }",
            "net.prototxt: layer 'i' (InfogainLoss) at line 3: load: cannot open nofile");
}

TEST(nets_are_printed_with_their_shapes)
{
    static const char text[] =
        "layer { name: 'in' type: 'Input' top: 'x' top: 'y' input_param { shape { dim: 64 dim: 3 } "
        "} } layer { name: 'sum' type: 'Eltwise' bottom: 'x' bottom: 'y' top: 'sum' }";
    for (int given = 0; given < 3; given++) {
        char printed[1024] = "";
        const aril_shape shapes[] = { ARIL_SHAPE(4, 3), ARIL_SHAPE(4, 3) };
        aril_module *m =
            aril_caffe_net_parse(text, strlen(text), NULL,
                                 (aril_caffe_opts){ .shapes = shapes, .n_shapes = given });
        if (given == 1) { /* x has another batch size than y */
            CHECK(!m);
            aril_clear_error();
            continue;
        }
        CHECK_MSG(m, "%s", aril_error());
        FILE *f = fmemopen(printed, sizeof printed - 1, "w");
        CHECK_INT(aril_caffe_print(m, f), ARIL_OK);
        fclose(f);
        aril_module_release(m);
        m = aril_caffe_net_parse(printed, strlen(printed), NULL, (aril_caffe_opts){ 0 });
        CHECK_MSG(m, "%s: %s", aril_error(), printed);
        for (int i = 0; i < 2; i++) CHECK_INT(aril_caffe_input(m, i).shape.dim[0], given ? 4 : 64);
        CHECK_INT(aril_caffe_output(m, 0).shape.dim[0], given ? 4 : 64);
        aril_module_release(m);
    }
}

/* The files of a snapshot have similar names. */
TEST(swapped_files_of_a_snapshot_are_recognized)
{
    static const char solver[] =
        "net_param { layer { name: 'd' type: 'DummyData' top: 'x' top: 'y' dummy_data_param { "
        "shape { dim: 2 dim: 3 } shape { dim: 2 dim: 1 } } } layer { name: 'ip' type: "
        "'InnerProduct' bottom: 'x' top: 'ip' inner_product_param { num_output: 1 } } layer { "
        "name: 'loss' type: 'EuclideanLoss' bottom: 'ip' bottom: 'y' top: 'loss' } } base_lr: 0.1 "
        "lr_policy: 'fixed' max_iter: 10 solver_mode: CPU snapshot_prefix: '%s' %s";
    for (int hdf5 = 0; hdf5 < 2; hdf5++) {
        char text[2048], state[4096], weights[4096];
        const char *end = hdf5 ? ".h5" : "", *prefix = temp_path("snap");
        snprintf(text, sizeof text, solver, prefix, hdf5 ? "snapshot_format: HDF5" : "");
        snprintf(weights, sizeof weights, "%s_iter_1.caffemodel%s", prefix, end);
        aril_caffe_solver_opts opts = { .workers = -1 };
        aril_caffe_solver *s = aril_caffe_solver_parse(text, strlen(text), NULL, opts);
        CHECK_MSG(s, "%s", aril_error());
        CHECK_MSG(aril_caffe_solver_step(s, 1) == ARIL_OK, "%s", aril_error());
        aril_status status = aril_caffe_solver_snapshot(s, state, sizeof state);
        aril_caffe_solver_free(s);
        CHECK_MSG(status == ARIL_OK, "%s", aril_error());
        opts.weights = state;
        CHECK(!aril_caffe_solver_parse(text, strlen(text), NULL, opts));
        CHECK_MSG(strstr(aril_error(), "the state of a solver, not a caffemodel"), "%s",
                  aril_error());
        aril_clear_error();
        opts = (aril_caffe_solver_opts){ .workers = -1, .snapshot = weights };
        CHECK(!aril_caffe_solver_parse(text, strlen(text), NULL, opts));
        CHECK_MSG(strstr(aril_error(), "is a caffemodel, not the state of a solver"), "%s",
                  aril_error());
        aril_clear_error();
    }
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
