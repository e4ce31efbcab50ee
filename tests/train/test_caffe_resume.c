/* Caffe's solvers: what a snapshot needs to be resumed with the same bits. */
#include "aril/aril.h"
#include "support/temp.h"
#include "support/test.h"

#include <stdio.h>
#include <string.h>

/* Two layers have the same name. */
static const char net[] =
    "layer { name: 'x' type: 'DummyData' top: 'x' top: 't' dummy_data_param { "
    "shape { dim: 4 dim: 3 } shape { dim: 4 dim: 3 } data_filler { type: 'gaussian' } "
    "data_filler { type: 'gaussian' } } } "
    "layer { name: 'fc' type: 'InnerProduct' bottom: 'x' top: 'a' inner_product_param { "
    "num_output: 3 weight_filler { type: 'xavier' } } } "
    "layer { name: 'fc' type: 'InnerProduct' bottom: 'a' top: 'y' inner_product_param { "
    "num_output: 3 weight_filler { type: 'xavier' } } } "
    "layer { name: 'loss' type: 'EuclideanLoss' bottom: 'y' bottom: 't' top: 'loss' }";

static aril_caffe_solver *open_log(const char *format, const char *prefix, const char *snapshot,
                                   FILE *log)
{
    char text[4096];
    snprintf(text, sizeof text,
             "solver_mode: CPU net_param { %s } base_lr: 0.01 lr_policy: 'fixed' momentum: 0.9 "
             "max_iter: 40 random_seed: 1 snapshot_format: %s snapshot_prefix: '%s'",
             net, format, temp_path(prefix));
    return aril_caffe_solver_parse(text, strlen(text), NULL,
                                   (aril_caffe_solver_opts){ .snapshot = snapshot, .log = log });
}

static aril_caffe_solver *open_solver(const char *format, const char *prefix, const char *snapshot)
{
    return open_log(format, prefix, snapshot, NULL);
}

static bool same_bits(const aril_module *a, const aril_module *b)
{
    ARIL_SCOPE;
    int n = aril_caffe_params(a);
    bool same = n > 0 && n == aril_caffe_params(b);
    for (int i = 0; i < n && same; i++)
        same = aril_equal(aril_caffe_param_at(a, i).tensor, aril_caffe_param_at(b, i).tensor);
    return same;
}

static void resume_in_the_middle(const char *format)
{
    char path[4096];
    aril_caffe_solver *whole = open_solver(format, "whole", NULL);
    CHECK_MSG(whole, "%s", aril_error());
    CHECK_INT(aril_caffe_solver_step(whole, 10), ARIL_OK);
    aril_status status = aril_caffe_solver_snapshot(whole, path, sizeof path);
    if (status < 0 && strstr(aril_error(), "without HDF5")) {
        aril_clear_error();
        aril_caffe_solver_free(whole);
        SKIP("no HDF5");
    }
    CHECK_MSG(status == ARIL_OK, "%s", aril_error());
    CHECK_INT(aril_caffe_solver_step(whole, 10), ARIL_OK);
    aril_caffe_solver *resumed = open_solver(format, "resumed", path);
    CHECK_MSG(resumed, "%s", aril_error());
    CHECK_INT(aril_caffe_solver_step(resumed, 10), ARIL_OK);
    CHECK(same_bits(aril_caffe_solver_net(whole), aril_caffe_solver_net(resumed)));
    aril_caffe_solver_free(whole);
    aril_caffe_solver_free(resumed);
}

TEST(layers_of_one_name_resume_with_the_same_bits)
{
    resume_in_the_middle("BINARYPROTO");
    resume_in_the_middle("HDF5");
}
