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
