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
