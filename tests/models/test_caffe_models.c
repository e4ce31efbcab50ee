/* Networks that Caffe trained, as files of ARIL_TEST_DATA. */
#include "aril/aril.h"
#include "models/cifar10_quick.inc"
#include "support/device.h"
#include "support/temp.h"
#include "support/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *data_path(const char *name)
{
    static char path[4][1024];
    static int turn;
    const char *data = getenv("ARIL_TEST_DATA");
    char *p = path[turn++ % 4];
    snprintf(p, sizeof path[0], "%s/%s", data ? data : "../shared/data", name);
    return p;
}

static bool absent(const char *name)
{
    return access(data_path(name), R_OK) != 0;
}

static aril_module *load(const char *net, const char *weights, aril_caffe_opts opts)
{
    opts.weights = weights ? data_path(weights) : NULL;
    aril_module *m = aril_caffe_net(data_path(net), opts);
    if (m) aril_module_to(m, test_device());
    return m;
}

/* ---- LeNet on MNIST ---- */

static const char lenet[] = "caffe-models/lenet-cifar10-trained/lenet.prototxt",
                  lenet_weights[] =
                      "caffe-models/lenet-cifar10-trained/lenet_iter_10000.caffemodel",
                  lenet_train_test[] =
                      "caffe-models/lenet-cifar10-trained/lenet_train_test.prototxt";

TEST(lenet_reads_digits)
{
    ARIL_SCOPE;
    if (absent(lenet) || absent("mnist/t10k-images-idx3-ubyte.gz")) SKIP("no %s", data_path(lenet));
    aril_tensor *images = aril_idx_read(data_path("mnist/t10k-images-idx3-ubyte.gz")),
                *labels = aril_idx_read(data_path("mnist/t10k-labels-idx1-ubyte.gz"));
    aril_module *net = load(lenet, lenet_weights, (aril_caffe_opts){ 0 });
    CHECK_MSG(net && aril_ok(), "%s", aril_error());
    int64_t right = 0;
    for (int i = 0; i < 10; i++) {
        ARIL_SCOPE;
        ARIL_INFERENCE;
        aril_tensor *x = aril_unsqueeze(aril_narrow(images, 0, 1000 * i, 1000), 1);
        x = aril_to(aril_mul_scalar(aril_cast(x, ARIL_F32), 1 / 256.), test_device());
        aril_tensor *best = aril_argmax(aril_forward(net, x), ARIL_AXES(1));
        aril_tensor *want = aril_cast(aril_narrow(labels, 0, 1000 * i, 1000), ARIL_I64);
        right += aril_item_int(
            aril_sum(aril_cast(aril_eq(best, aril_to(want, test_device())), ARIL_I64), ARIL_ALL));
    }
    CHECK_INT(right, 9905);
    aril_module_release(net);
}

/* The same weights in the net of the test phase: loss and accuracy as its own layers tell. */
TEST(lenet_tells_its_accuracy)
{
    ARIL_SCOPE;
    if (absent(lenet_train_test) || absent("mnist/t10k-images-idx3-ubyte.gz"))
        SKIP("no %s", data_path(lenet_train_test));
    aril_tensor *images = aril_idx_read(data_path("mnist/t10k-images-idx3-ubyte.gz")),
                *labels = aril_idx_read(data_path("mnist/t10k-labels-idx1-ubyte.gz"));
    aril_shape shapes[] = { ARIL_SHAPE(1000, 1, 28, 28), ARIL_SHAPE(1000) };
    aril_module *net =
        load(lenet_train_test, lenet_weights, (aril_caffe_opts){ .shapes = shapes, .n_shapes = 2 });
    CHECK_MSG(net && aril_ok(), "%s", aril_error());
    CHECK_INT(aril_caffe_inputs(net), 2);
    CHECK_STR(aril_caffe_input(net, 1).name, "label");
    CHECK_STR(aril_caffe_output(net, 0).name, "accuracy");
    CHECK_STR(aril_caffe_output(net, 1).name, "loss");
    double accuracy = 0, loss = 0;
    for (int i = 0; i < 10; i++) {
        ARIL_SCOPE;
        ARIL_INFERENCE;
        aril_tensor *x = aril_unsqueeze(aril_narrow(images, 0, 1000 * i, 1000), 1), *out[3];
        x = aril_to(aril_mul_scalar(aril_cast(x, ARIL_F32), 1 / 256.), test_device());
        aril_tensor *y = aril_to(aril_narrow(labels, 0, 1000 * i, 1000), test_device());
        CHECK_INT(aril_forward_all(net, ARIL_LIST(x, y), 3, out), ARIL_OK);
        CHECK_NEAR(aril_item(out[1]), aril_item(out[2]), 0);
        accuracy += aril_item(out[0]) / 10;
        loss += aril_item(out[1]) / 10;
    }
    CHECK_NEAR(accuracy, 0.9905, 1e-6);
    CHECK(loss > 0.01 && loss < 0.04);
    aril_module_release(net);
}

/* ---- CIFAR-10 quick ---- */

TEST(cifar10_quick_finds_the_classes_that_pytorch_finds)
{
    ARIL_SCOPE;
    const char *images = "cifar10/test_batch_first2000.bin.xz";
    if (absent(images)) SKIP("no %s", data_path(images));
    char command[2400];
    snprintf(command, sizeof command, "xz -dc '%s' > '%s' 2>/dev/null", data_path(images),
             temp_path("images.bin"));
    if (system(command) != 0) SKIP("no xz");
    enum { N = 2000, RECORD = 3073 };
    unsigned char *raw = malloc(N * RECORD);
    FILE *f = fopen(temp_path("images.bin"), "rb");
    size_t got = f && raw ? fread(raw, 1, N * RECORD, f) : 0;
    if (f) fclose(f);
    aril_tensor *all =
        got == N * RECORD ? aril_from(raw, ARIL_SHAPE(N, RECORD), ARIL_U8, aril_cpu()) : NULL;
    free(raw);
    CHECK(all);
    aril_module *net = load("caffe-models/lenet-cifar10-trained/cifar10_quick.prototxt",
                            "caffe-models/lenet-cifar10-trained/cifar10_quick_iter_5000.caffemodel",
                            (aril_caffe_opts){ 0 });
    aril_tensor *mean =
        aril_to(aril_caffe_blob_load(data_path("cifar10/mean.binaryproto")), test_device());
    CHECK_MSG(net && aril_ok(), "%s", aril_error());
    char found[N + 1] = "";
    for (int i = 0; i < N; i += 200) {
        ARIL_SCOPE;
        ARIL_INFERENCE;
        aril_tensor *x = aril_narrow(aril_narrow(all, 0, i, 200), 1, 1, RECORD - 1);
        x = aril_cast(aril_reshape(x, ARIL_SHAPE(200, 3, 32, 32)), ARIL_F32);
        aril_tensor *y = aril_forward(net, aril_sub(aril_to(x, test_device()), mean));
        int64_t best[200];
        CHECK_INT(aril_read(aril_argmax(y, ARIL_AXES(1)), best), ARIL_OK);
        for (int k = 0; k < 200; k++) found[i + k] = (char)('0' + best[k]);
    }
    CHECK(strcmp(found, cifar10_quick_classes) == 0);
    aril_module_release(net);
}

/* ---- SqueezeNet ---- */

/* 256 by 256, of which the middle 227 by 227; BGR minus the mean colour. */
static aril_tensor *squeezenet_input(const char *path)
{
    aril_tensor *x = aril_image_read(path, (aril_image_opts){ .channels = 3 });
    x = aril_unsqueeze(aril_cast(x, ARIL_F32), 0);
    x = aril_interpolate(x, (aril_interpolate_opts){
                                .size = { 256, 256 }, .mode = ARIL_LINEAR, .antialias = true });
    x = aril_narrow(aril_narrow(x, 2, 14, 227), 3, 14, 227);
    float mean[] = { 104, 117, 123 };
    aril_tensor *m = aril_from(mean, ARIL_SHAPE(3, 1, 1), ARIL_F32, aril_cpu());
    return aril_sub(aril_flip(x, ARIL_AXES(1)), m);
}

/* "n02111889 Samoyed, Samoyede" */
static bool label_has(int64_t index, const char *word)
{
    char line[512] = "";
    FILE *f = fopen(data_path("labels/imagenet1000/synset_words.txt"), "r");
    for (int64_t i = 0; f && i <= index; i++)
        if (!fgets(line, sizeof line, f)) break;
    if (f) fclose(f);
    if (!strstr(line, word)) printf("%s", line);
    return strstr(line, word) != NULL;
}

TEST(squeezenet_names_what_it_sees)
{
    ARIL_SCOPE;
    static const char *const images[][2] = {
        { "images/pytorch-hub/dog.jpg", "Samoyed" },
        { "images/scikit-image/chelsea.png", "Egyptian cat" },
        { "images/scikit-image/coffee.png", "espresso" },
    };
    if (absent("caffe-models/squeezenet_v1.0/SqueezeNet_deploy.prototxt"))
        SKIP("no %s", data_path("caffe-models/squeezenet_v1.0"));
    aril_module *net = load("caffe-models/squeezenet_v1.0/SqueezeNet_deploy.prototxt",
                            "caffe-models/squeezenet_v1.0/decoded_SqueezeNet_v1.0.caffemodel",
                            (aril_caffe_opts){ 0 });
    CHECK_MSG(net && aril_ok(), "%s", aril_error());
    for (int i = 0; i < 3; i++) {
        ARIL_SCOPE;
        ARIL_INFERENCE;
        aril_tensor *x = squeezenet_input(data_path(images[i][0]));
        if (!aril_ok() && strstr(aril_error(), "built without")) {
            aril_clear_error();
            continue;
        }
        aril_tensor *y = aril_flatten(aril_forward(net, aril_to(x, test_device())), 0, -1);
        CHECK_INT(aril_numel(y), 1000);
        CHECK_MSG(label_has(aril_item_int(aril_argmax(y, ARIL_ALL)), images[i][1]), "%s",
                  images[i][0]);
    }
    aril_module_release(net);
}

/* ---- a face detector, and the same net from ONNX ---- */

enum { BOXES = 4420 };

/* Center and size of the prior boxes, as parts of the image: 4 maps of the 240 by 320 image. */
static void make_priors(float prior[BOXES][4])
{
    static const int side[4][4] = {
        { 10, 16, 24, 0 }, { 32, 48, 0 }, { 64, 96, 0 }, { 128, 192, 256 }
    };
    int n = 0;
    for (int map = 0; map < 4; map++) {
        int step = 8 << map, rows = (240 + step - 1) / step, columns = (320 + step - 1) / step;
        for (int y = 0; y < rows; y++)
            for (int x = 0; x < columns; x++)
                for (int k = 0; k < 4 && side[map][k]; k++, n++) {
                    float at[] = { ((float)x + 0.5f) / (float)columns,
                                   ((float)y + 0.5f) / (float)rows, (float)side[map][k] / 320,
                                   (float)side[map][k] / 240 };
                    for (int d = 0; d < 4; d++) prior[n][d] = at[d] > 1 ? 1 : at[d];
                }
    }
    CHECK_INT(n, BOXES);
}

/* Corners from the net's offsets. */
static void decode(const float *offset, const float *prior, float *box)
{
    for (int d = 0; d < 2; d++) {
        float center = offset[d] * 0.1f * prior[2 + d] + prior[d],
              size = expf(offset[2 + d] * 0.2f) * prior[2 + d];
        box[d] = center - size / 2;
        box[2 + d] = center + size / 2;
    }
}

static void compare_faces(aril_module *net, aril_program *twin, aril_tensor *x)
{
    static float prior[BOXES][4], offset[BOXES][4], want[BOXES][4];
    aril_tensor *y[2], *z[2]; /* boxes, scores; scores, boxes */
    make_priors(prior);
    CHECK_INT(aril_forward_all(net, ARIL_LIST(aril_to(x, test_device())), 2, y), ARIL_OK);
    CHECK_INT(aril_program_run(twin, ARIL_LIST(x), z), ARIL_OK);
    CHECK(aril_allclose(aril_to(y[1], aril_cpu()), z[0],
                        (aril_close_opts){ .rtol = 1e-9, .atol = 1e-4 }));
    CHECK_INT(aril_read(y[0], offset), ARIL_OK);
    CHECK_INT(aril_read(z[1], want), ARIL_OK);
    for (int i = 0; i < BOXES; i++) {
        float box[4];
        decode(offset[i], prior[i], box);
        for (int d = 0; d < 4; d++) CHECK_NEAR(box[d], want[i][d], 1e-4);
    }
}

TEST(ultraface_agrees_with_its_onnx_twin)
{
    ARIL_SCOPE;
    ARIL_INFERENCE;
    const char *twin_path = "onnx-models/ultraface/version-RFB-320.onnx";
    if (absent("caffe-models/ultraface/RFB-320.caffemodel") || absent(twin_path))
        SKIP("no %s", data_path("caffe-models/ultraface"));
    aril_module *net = load("caffe-models/ultraface/RFB-320.prototxt",
                            "caffe-models/ultraface/RFB-320.caffemodel", (aril_caffe_opts){ 0 });
    aril_program *twin = aril_program_load(data_path(twin_path), (aril_load_opts){ 0 });
    CHECK_MSG(net && twin, "%s", aril_error());
    aril_seed(1);
    compare_faces(net, twin, aril_randn(ARIL_SHAPE(1, 3, 240, 320), ARIL_F32, aril_cpu()));
    aril_tensor *x = aril_image_read(data_path("images/scikit-image/astronaut.png"),
                                     (aril_image_opts){ .channels = 3 });
    if (aril_ok()) {
        x = aril_interpolate(aril_unsqueeze(aril_cast(x, ARIL_F32), 0),
                             (aril_interpolate_opts){ .size = { 240, 320 }, .mode = ARIL_LINEAR });
        compare_faces(net, twin, aril_mul_scalar(aril_sub_scalar(x, 127), 1 / 128.));
    }
    aril_clear_error();
    aril_program_free(twin);
    aril_module_release(net);
}
