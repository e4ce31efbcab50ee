/* Nets of Caffe when memory runs out, at each allocation in turn: an error, and nothing leaks. */
#include "aril/aril.h"
#include "core/tensor.h"
#include "support/temp.h"
#include "support/test.h"

#include <string.h>

static const char text[] =
    "input: 'x' input_shape { dim: 2 dim: 2 dim: 6 dim: 6 }\n"
    "layer { name: 'c' type: 'Convolution' bottom: 'x' top: 'c' param { name: 'w' lr_mult: 2 } "
    "convolution_param { num_output: 2 kernel_size: 3 weight_filler { type: 'xavier' } } }\n"
    "layer { name: 'b' type: 'BatchNorm' bottom: 'c' top: 'c' }\n"
    "layer { name: 'r' type: 'ReLU' bottom: 'c' top: 'c' }\n"
    "layer { name: 'd' type: 'Convolution' bottom: 'x' top: 'd' param { name: 'w' } "
    "convolution_param { num_output: 2 kernel_size: 3 } }\n"
    "layer { name: 'p' type: 'Pooling' bottom: 'c' top: 'p' pooling_param { pool: STOCHASTIC "
    "kernel_size: 3 stride: 2 } }\n"
    "layer { name: 's' type: 'Slice' bottom: 'p' top: 's1' top: 's2' }\n"
    "layer { name: 'e' type: 'EuclideanLoss' bottom: 's1' bottom: 's2' loss_weight: 0.5 }\n"
    "layer { name: 'q' type: 'Power' bottom: 'd' top: 'q' propagate_down: true }\n";

static const char v1[] = "input: 'x' input_dim: 1 input_dim: 2 input_dim: 6 input_dim: 6\n"
                         "layers { name: 'c' type: CONVOLUTION bottom: 'x' top: 'c' blobs_lr: 1 "
                         "convolution_param { num_output: 2 kernel_size: 3 } }\n";

static bool all_of_it(aril_tensor *x)
{
    ARIL_SCOPE;
    aril_tensor *blob;
    aril_module *m = aril_caffe_net_parse(text, strlen(text), "net",
                                          (aril_caffe_opts){ .phase = ARIL_CAFFE_TRAIN });
    aril_module *old = aril_caffe_net_parse(v1, strlen(v1), "v1", (aril_caffe_opts){ 0 });
    bool good = m && old && aril_backward(aril_caffe_loss(m, ARIL_LIST(x), NULL)) == ARIL_OK &&
                aril_caffe_blobs(m, ARIL_LIST(x), 1, (const char *[]){ "s1" }, &blob) == ARIL_OK &&
                aril_caffe_weights_save(m, temp_path("net.caffemodel")) == ARIL_OK &&
                aril_caffe_weights_load(m, temp_path("net.caffemodel")) == ARIL_OK &&
                aril_caffe_share(m, m) == ARIL_OK &&
                aril_caffe_upgrade(temp_path("net.caffemodel"), temp_path("net.prototxt"), false) ==
                    ARIL_OK &&
                aril_caffe_blob_save(temp_path("blob"), blob) == ARIL_OK &&
                aril_tensor_status(aril_caffe_blob_load(temp_path("blob"))) == ARIL_OK;
    aril_module_release(m);
    aril_module_release(old);
    return good;
}

TEST(each_allocation_may_fail)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_randn(ARIL_SHAPE(2, 2, 6, 6), ARIL_F32, aril_cpu());
    CHECK_MSG(all_of_it(x) && all_of_it(x), "%s", aril_error());
    int failures = 0;
    /* Every one of the first, then ever fewer: those are of operations, which have such tests. */
    for (int64_t n = 1;; n += 1 + n / 60, failures++) {
        int64_t blocks = aril__live_blocks(), bytes = aril_memory(aril_cpu()).live;
        aril_fail_allocation(n);
        bool good = all_of_it(x), failed = aril_allocation_failed();
        aril_fail_allocation(0);
        CHECK_MSG(good || !aril_ok(), "allocation %lld: no error", (long long)n);
        aril_clear_error();
        CHECK_MSG(aril__live_blocks() == blocks, "allocation %lld: %lld blocks leaked",
                  (long long)n, (long long)(aril__live_blocks() - blocks));
        CHECK_INT(aril_memory(aril_cpu()).live, bytes);
        if (!failed) break;
    }
    CHECK(failures > 100);
}

/* ---- loading weights ---- */

static void fill_all(const aril_module *m, double value)
{
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    for (int i = 0; i < aril_caffe_params(m); i++)
        aril_fill_(aril_caffe_param_at(m, i).tensor, value);
}

/* The number of blobs that do not begin with that value. */
static int others(const aril_module *m, float value)
{
    ARIL_SCOPE;
    int n = 0;
    for (int i = 0; i < aril_caffe_params(m); i++)
        n += *(const float *)aril_data(aril_caffe_param_at(m, i).tensor) != value;
    return n;
}

static void load_with_failures(const char *path)
{
    ARIL_SCOPE;
    aril_module *m = aril_caffe_net_parse(text, strlen(text), "net", (aril_caffe_opts){ 0 });
    CHECK_MSG(m, "%s", aril_error());
    fill_all(m, 3);
    aril_status status = aril_caffe_weights_save(m, path);
    if (status < 0 && strstr(aril_error(), "without HDF5")) {
        aril_clear_error();
        aril_module_release(m);
        return;
    }
    CHECK_MSG(status == ARIL_OK, "%s", aril_error());
    int n = 1;
    for (bool failed = true; failed; n++) {
        int64_t blocks = aril__live_blocks();
        fill_all(m, 7);
        aril_fail_allocation(n);
        status = aril_caffe_weights_load(m, path);
        failed = aril_allocation_failed();
        aril_fail_allocation(0);
        if (status == ARIL_OK) {
            CHECK_MSG(others(m, 3) == 0, "%s: allocation %d", path, n);
        } else {
            CHECK_MSG(status == ARIL_ERR_MEMORY, "%s: allocation %d: %s", path, n, aril_error());
            CHECK_MSG(others(m, 7) == 0, "%s: allocation %d: %d blobs have changed", path, n,
                      others(m, 7));
        }
        aril_clear_error();
        CHECK_INT(aril__live_blocks(), blocks);
    }
    CHECK(n > 5);
    aril_module_release(m);
}

TEST(weights_that_cannot_be_loaded_change_nothing)
{
    load_with_failures(temp_path("load.caffemodel"));
    load_with_failures(temp_path("load.caffemodel.h5"));
}
