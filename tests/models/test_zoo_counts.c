/* Sizes of the networks, from shapes alone: torchvision's numbers, those derived layer by layer
 * from the papers, and those of Caffe's descriptions. */
#include "formats/schemas.h"
#include "nn/module.h"
#include "support/test.h"

#include <aril/aril.h>
#include <aril/zoo.h>
#include <stdlib.h>
#include <string.h>

static int64_t count(const char *name, aril_zoo_opts opts)
{
    const aril_zoo_entry *e = aril_zoo_find(name);
    aril_cost cost = { 0 };
    if (!e || aril_zoo_cost(e, opts, &cost) < 0)
        test_fail(__FILE__, __LINE__, "%s: %s", name, aril_error());
    return cost.parameters;
}

/* ---- torchvision and transformers; tests/peers/networks.py compares with theirs ---- */

static const struct {
    const char *name;
    int64_t parameters;
} known[] = {
    { "alexnet", 61100840 },
    { "vgg11", 132863336 },
    { "vgg11_bn", 132868840 },
    { "vgg13", 133047848 },
    { "vgg13_bn", 133053736 },
    { "vgg16", 138357544 },
    { "vgg16_bn", 138365992 },
    { "vgg19", 143667240 },
    { "vgg19_bn", 143678248 },
    { "googlenet", 6624904 },
    { "resnet18", 11689512 },
    { "resnet34", 21797672 },
    { "resnet50", 25557032 },
    { "resnet101", 44549160 },
    { "resnet152", 60192808 },
    { "resnet200", 64673832 },
    { "resnet50-v1", 25557032 },
    { "resnet101-v1", 44549160 },
    { "resnet152-v1", 60192808 },
    { "resnet200-v1", 64673832 },
    { "resnext50_32x4d", 25028904 },
    { "wide_resnet50_2", 68883240 },
    { "densenet121", 7978856 },
    { "densenet161", 28681000 },
    { "densenet169", 14149480 },
    { "densenet201", 20013928 },
    { "squeezenet1_0", 1248424 },
    { "squeezenet1_1", 1235496 },
    { "mobilenet_v2", 3504872 },
    { "mobilenet_v3_small", 2542856 },
    { "mobilenet_v3_large", 5483032 },
    { "shufflenet_v2_x0_5", 1366792 },
    { "shufflenet_v2_x1_0", 2278604 },
    { "shufflenet_v2_x1_5", 3503624 },
    { "shufflenet_v2_x2_0", 7393996 },
    { "efficientnet_b0", 5288548 },
    { "efficientnet_b1", 7794184 },
    { "efficientnet_b2", 9109994 },
    { "efficientnet_b3", 12233232 },
    { "efficientnet_b4", 19341616 },
    { "efficientnet_b5", 30389784 },
    { "efficientnet_b6", 43040704 },
    { "efficientnet_b7", 66347960 },
    { "efficientnet_v2_s", 21458488 },
    { "vit_b_16", 86567656 },
    { "convnext_tiny", 28589128 },
    { "bert-base-uncased", 109482240 },
    { "gpt2", 124439808 },
    { "gpt2-medium", 354823168 },
    { "gpt2-large", 774030080 },
    { "gpt2-xl", 1557611200 },
};

TEST(networks_have_the_published_number_of_parameters)
{
    for (size_t i = 0; i < sizeof known / sizeof *known && !test_failed(); i++) {
        int64_t n = count(known[i].name, (aril_zoo_opts){ 0 });
        CHECK_MSG(n == known[i].parameters, "%s has %lld parameters", known[i].name, (long long)n);
    }
    aril_zoo_opts aux = { .aux = true };
    CHECK_INT(count("inception_v3", aux), 27161264);
    CHECK_INT(count("googlenet", aux), 13004888);
}

/* Table 2 of the paper, in millions. */
TEST(vgg_has_the_sizes_of_its_paper)
{
    static const struct {
        const char *name;
        double millions;
    } rows[] = { { "vgg11", 132.9 },  { "vgg11_lrn", 132.9 }, { "vgg13", 133.0 },
                 { "vgg16c", 133.6 }, { "vgg16", 138.4 },     { "vgg19", 143.7 } };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        CHECK_NEAR((double)count(rows[i].name, (aril_zoo_opts){ 0 }) / 1e6, rows[i].millions, 0.05);
}

/* ---- layer by layer ---- */

static int64_t conv(int64_t in, int64_t out, int64_t kernel)
{
    return in * out * kernel * kernel;
}

static int64_t biased(int64_t in, int64_t out, int64_t kernel)
{
    return conv(in, out, kernel) + out;
}

/* A convolution with batch norm. */
static int64_t normed(int64_t in, int64_t out, int64_t kernel)
{
    return conv(in, out, kernel) + 2 * out;
}

TEST(sizes_that_follow_from_the_papers)
{
    aril_zoo_opts none = { 0 };
    int64_t classifier = biased(256 * 36, 4096, 1) + biased(4096, 4096, 1) + biased(4096, 1000, 1);
    /* Two groups halve the inputs of a convolution. */
    CHECK_INT(count("alexnet-2012", none), biased(3, 96, 11) + biased(48, 256, 5) +
                                               biased(256, 384, 3) + biased(192, 384, 3) +
                                               biased(192, 256, 3) + classifier);
    CHECK_INT(count("zfnet", none), biased(3, 96, 7) + biased(96, 256, 5) + biased(256, 384, 3) +
                                        biased(384, 384, 3) + biased(384, 256, 3) + classifier);
    CHECK_INT(count("nin", none), biased(3, 192, 5) + biased(192, 160, 1) + biased(160, 96, 1) +
                                      biased(96, 192, 5) + 2 * biased(192, 192, 1) +
                                      biased(192, 192, 3) + biased(192, 192, 1) +
                                      biased(192, 10, 1));
    /* C has 1 x 1 windows where D has 3 x 3. */
    int64_t d = count("vgg16", none), c = d - 8 * (256 * 256 + 2 * 512 * 512);
    CHECK_INT(count("vgg16c", none), c);
    CHECK_INT(count("vgg16c_bn", none), c + 2 * (2 * 64 + 2 * 128 + 3 * 256 + 6 * 512));
    CHECK_INT(count("vgg11_lrn", none), 132863336);
}

/* 6n + 2 layers, 3 x 3 all of them, without parameters in shortcuts. */
TEST(resnets_for_cifar)
{
    static const int layers[] = { 20, 32, 44, 56, 110 };
    for (int i = 0; i < 5; i++) {
        int64_t n = (layers[i] - 2) / 6;
        int64_t want = normed(3, 16, 3) + 2 * n * normed(16, 16, 3) + normed(16, 32, 3) +
                       (2 * n - 1) * normed(32, 32, 3) + normed(32, 64, 3) +
                       (2 * n - 1) * normed(64, 64, 3) + biased(64, 10, 1);
        char name[16];
        snprintf(name, sizeof name, "resnet%d", layers[i]);
        CHECK_INT(count(name, (aril_zoo_opts){ 0 }), want);
    }
    CHECK_INT(count("resnet20", (aril_zoo_opts){ 0 }), 269722);
}

/* Each layer: batch norm, 1 x 1 to 4k channels, batch norm, 3 x 3 to k; 41 layers a block. */
TEST(densenet_bc_250)
{
    const int64_t k = 24;
    int64_t in = 2 * k, want = conv(3, in, 3);
    for (int block = 0; block < 3; block++) {
        for (int i = 0; i < 41; i++, in += k)
            want += 2 * in + conv(in, 4 * k, 1) + 2 * 4 * k + conv(4 * k, k, 3);
        want += 2 * in; /* the norm of the transition, or the last one */
        if (block < 2) want += conv(in, in / 2, 1), in /= 2;
    }
    want += biased(in, 10, 1);
    CHECK_INT(count("densenet-bc250", (aril_zoo_opts){ 0 }), want);
    CHECK_NEAR((double)want / 1e6, 15.3, 0.05); /* table 2 of the paper */
}

TEST(mobilenet_v1)
{
    static const int width[] = { 32,  64,  128, 128, 256, 256,  512,
                                 512, 512, 512, 512, 512, 1024, 1024 };
    int64_t want = normed(3, 32, 3) + biased(1024, 1000, 1);
    for (int i = 0; i < 13; i++) want += normed(1, width[i], 3) + normed(width[i], width[i + 1], 1);
    CHECK_INT(count("mobilenet_v1", (aril_zoo_opts){ 0 }), want);
}

/* Two 3 x 3 convolutions a level, 64 channels to 1024; 2 x 2 up-convolutions halve them again. */
TEST(unet)
{
    int64_t want = biased(64, 2, 1), in = 1;
    for (int64_t width = 64; width <= 1024; in = width, width *= 2)
        want += biased(in, width, 3) + biased(width, width, 3);
    for (int64_t width = 512; width >= 64; width /= 2)
        want += biased(2 * width, width, 2) + biased(2 * width, width, 3) + biased(width, width, 3);
    CHECK_INT(count("unet", (aril_zoo_opts){ 0 }), want);
    ARIL_SCOPE;
    aril_module *m =
        aril_zoo_make("unet", (aril_zoo_opts){ .input = ARIL_SHAPE(1, 188, 204), .classes = 3 });
    aril_module_eval(m);
    aril_tensor *y = aril_forward(m, aril_zeros(ARIL_SHAPE(1, 1, 188, 204), ARIL_F32, aril_cpu()));
    CHECK_MSG(aril_ok(), "%s", aril_error());
    CHECK_INT(aril_size(y, 1), 3);
    CHECK_INT(aril_size(y, 2), 188 - 184);
    CHECK_INT(aril_size(y, 3), 204 - 184);
    aril_module_release(m);
}

/* ---- Caffe's descriptions ---- */

enum { MAX_BLOBS = 2048, MAX_LAYERS = 512 };

/* Outputs, inputs of a group, height and width of a window. */
typedef struct weight {
    int64_t dim[4];
} weight;

typedef struct blob {
    const char *name;
    int64_t channels, side;
    bool convolved; /* by a convolution with a bias: what batch norm makes pointless */
} blob;

typedef struct described {
    blob blobs[MAX_BLOBS];
    weight weights[MAX_LAYERS];
    int n_blobs, n_weights;
    int64_t others; /* biases, and factors of batch norm */
} described;

static blob *find(described *d, const char *name)
{
    for (int i = d->n_blobs - 1; i >= 0; i--)
        if (strcmp(d->blobs[i].name, name) == 0) return &d->blobs[i];
    test_fail(__FILE__, __LINE__, "no blob %s", name);
    return NULL;
}

static int64_t first_or(const aril__message *m, const char *name, int64_t otherwise)
{
    return aril__message_count(m, name) ? aril__message_int_at(m, name, 0) : otherwise;
}

static void note_weight(described *d, int64_t out, int64_t in, int64_t kernel)
{
    d->weights[d->n_weights++] = (weight){ { out, in, kernel, kernel } };
}

/* What a layer makes of its first input; other layers keep its shape. */
static void follow(described *d, const aril__message *layer, blob *b)
{
    const char *type = aril__message_text(layer, "type");
    if (strcmp(type, "Convolution") == 0) {
        const aril__message *p = aril__message_sub(layer, "convolution_param");
        int64_t out = aril__message_int(p, "num_output"), k = first_or(p, "kernel_size", 1);
        note_weight(d, out, b->channels / aril__message_int(p, "group"), k);
        b->convolved = aril__message_int(p, "bias_term") != 0;
        d->others += b->convolved ? out : 0;
        b->channels = out;
        b->side = (b->side + 2 * first_or(p, "pad", 0) - k) / first_or(p, "stride", 1) + 1;
    } else if (strcmp(type, "InnerProduct") == 0) {
        const aril__message *p = aril__message_sub(layer, "inner_product_param");
        int64_t out = aril__message_int(p, "num_output");
        note_weight(d, out, b->channels * b->side * b->side, 1);
        d->others += out;
        b->channels = out;
        b->side = 1;
    } else if (strcmp(type, "Pooling") == 0) {
        const aril__message *p = aril__message_sub(layer, "pooling_param");
        int64_t k = aril__message_int(p, "kernel_size"), s = aril__message_int(p, "stride");
        int64_t pad = aril__message_int(p, "pad");
        b->side =
            aril__message_int(p, "global_pooling") ? 1 : (b->side + 2 * pad - k + s - 1) / s + 1;
    } else if (strcmp(type, "BatchNorm") == 0) {
        if (b->convolved) d->others -= b->channels;
        b->convolved = false;
    } else if (strcmp(type, "Scale") == 0) {
        d->others += 2 * b->channels;
    }
}

static bool is_read(const aril__message *layer)
{
    static const char *const types[] = { "Data", "Input", "Accuracy", "SoftmaxWithLoss" };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(aril__message_text(layer, "type"), types[i]) == 0) return false;
    return aril__message_count(layer, "bottom") > 0;
}

static void describe(const aril__message *net, int64_t side, described *d)
{
    d->blobs[d->n_blobs++] = (blob){ .name = "data", .channels = 3, .side = side };
    for (size_t i = 0; i < aril__message_count(net, "layer") && !test_failed(); i++) {
        const aril__message *layer = aril__message_sub_at(net, "layer", i);
        if (!is_read(layer)) continue;
        const blob *read = find(d, aril__message_text_at(layer, "bottom", 0));
        if (!read) return;
        blob made = *read;
        size_t bottoms = aril__message_count(layer, "bottom");
        if (strcmp(aril__message_text(layer, "type"), "Concat") == 0)
            for (size_t k = 1; k < bottoms; k++)
                made.channels += find(d, aril__message_text_at(layer, "bottom", k))->channels;
        follow(d, layer, &made);
        made.name = aril__message_text_at(layer, "top", 0);
        d->blobs[d->n_blobs++] = made;
    }
}

static int by_size(const void *a, const void *b)
{
    const weight *x = a, *y = b;
    for (int i = 0; i < 4; i++)
        if (x->dim[i] != y->dim[i]) return x->dim[i] < y->dim[i] ? -1 : 1;
    return 0;
}

/* Removes a convolution with batch norm. */
static void leave_out(described *d, const weight *w)
{
    for (int i = 0; i < d->n_weights; i++) {
        if (by_size(&d->weights[i], w) != 0) continue;
        d->weights[i] = d->weights[--d->n_weights];
        d->others -= 2 * w->dim[0];
        return;
    }
}

/* The weights of a network, whose first layer for vectors may read what images become. */
static void list_weights(const char *name, bool aux, described *d)
{
    ARIL_SCOPE;
    bool before = aril__sketch(true); /* shapes suffice */
    aril_module *m = aril_zoo_make(name, (aril_zoo_opts){ .aux = aux });
    aril__sketch(before);
    CHECK_MSG(m, "%s: %s", name, aril_error());
    const aril_named *p = aril_parameters(m);
    for (int i = 0; i < p->n; i++) {
        aril_shape s = aril_shape_of(p->at[i]);
        if (s.ndim == 1)
            d->others += s.dim[0];
        else
            d->weights[d->n_weights++] = (weight){ { s.dim[0], s.dim[1], s.ndim > 2 ? s.dim[2] : 1,
                                                     s.ndim > 2 ? s.dim[3] : 1 } };
    }
    aril_module_release(m);
}

TEST(networks_equal_their_descriptions)
{
    static const struct {
        const char *name, *file;
        int64_t side;
        bool aux;
        weight more; /* a convolution that is only in the description */
    } rows[] = {
        { "alexnet-2012", "bvlc/models/bvlc_alexnet/train_val.prototxt", 227, false, { { 0 } } },
        { "alexnet-2012", "bvlc/models/bvlc_alexnet/deploy.prototxt", 227, false, { { 0 } } },
        { "googlenet-2014", "bvlc/models/bvlc_googlenet/deploy.prototxt", 224, false, { { 0 } } },
        { "googlenet-2014", "bvlc/models/bvlc_googlenet/train_val.prototxt", 224, true, { { 0 } } },
        { "squeezenet1_0", "squeezenet/SqueezeNet_v1.0_deploy.prototxt", 227, false, { { 0 } } },
        { "squeezenet1_1", "squeezenet/SqueezeNet_v1.1_deploy.prototxt", 227, false, { { 0 } } },
        { "resnet50-v1", "resnet/ResNet-50-deploy.prototxt", 224, false, { { 0 } } },
        { "resnet101-v1", "resnet/ResNet-101-deploy.prototxt", 224, false, { { 0 } } },
        { "resnet152-v1", "resnet/ResNet-152-deploy.prototxt", 224, false, { { 0 } } },
        { "mobilenet_v1", "mobilenet/mobilenet_deploy.prototxt", 224, false, { { 0 } } },
        /* The first block, which is not wider inside, has a 1 x 1 convolution there. */
        { "mobilenet_v2",
          "mobilenet/mobilenet_v2_deploy.prototxt",
          224,
          false,
          { { 32, 32, 1, 1 } } },
    };
    const char *data = getenv("ARIL_TEST_DATA");
    for (size_t i = 0; i < sizeof rows / sizeof *rows && !test_failed(); i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/caffe-prototxt/%s", data ? data : "../shared/data",
                 rows[i].file);
        aril__message *net = aril__message_load_text(&aril__caffe_NetParameter, path);
        if (!net) {
            aril_clear_error();
            test_skip("no %s", path);
            return;
        }
        described *want = calloc(1, sizeof *want), *got = calloc(1, sizeof *got);
        describe(net, rows[i].side, want);
        if (rows[i].more.dim[0]) leave_out(want, &rows[i].more);
        list_weights(rows[i].name, rows[i].aux, got);
        CHECK_MSG(got->n_weights == want->n_weights, "%s has %d weights, %s %d", rows[i].name,
                  got->n_weights, rows[i].file, want->n_weights);
        qsort(got->weights, (size_t)got->n_weights, sizeof(weight), by_size);
        qsort(want->weights, (size_t)want->n_weights, sizeof(weight), by_size);
        for (int k = 0; k < got->n_weights && !test_failed(); k++)
            CHECK_MSG(by_size(&got->weights[k], &want->weights[k]) == 0,
                      "%s: weight [%lld,%lld,%lld,%lld], %s has [%lld,%lld,%lld,%lld]",
                      rows[i].name, (long long)got->weights[k].dim[0],
                      (long long)got->weights[k].dim[1], (long long)got->weights[k].dim[2],
                      (long long)got->weights[k].dim[3], rows[i].file,
                      (long long)want->weights[k].dim[0], (long long)want->weights[k].dim[1],
                      (long long)want->weights[k].dim[2], (long long)want->weights[k].dim[3]);
        CHECK_MSG(got->others == want->others, "%s: %lld biases and factors, %s has %lld",
                  rows[i].name, (long long)got->others, rows[i].file, (long long)want->others);
        free(want);
        free(got);
        aril__message_free(net);
    }
}

/* ---- costs without memory ---- */

TEST(costs_follow_from_shapes)
{
    static const char *const names[] = { "lenet5",
                                         "lenet5-1998",
                                         "mlp",
                                         "nin",
                                         "densenet121",
                                         "resnet18",
                                         "gpt2",
                                         "mobilenet_v3_small",
                                         "shufflenet_v2_x0_5",
                                         "bert-base-uncased" };
    for (size_t i = 0; i < sizeof names / sizeof *names && !test_failed(); i++) {
        ARIL_SCOPE;
        const aril_zoo_entry *e = aril_zoo_find(names[i]);
        bool tokens = e->dtype == ARIL_I64;
        aril_shape input = e->input;
        for (int k = 1; k < input.ndim; k++) input.dim[k] = input.dim[k] > 40 ? 40 : input.dim[k];
        if (tokens) input = ARIL_SHAPE(8);
        aril_zoo_opts opts = { .input = input, .classes = 10 };
        aril_module *m = aril_zoo_make(names[i], opts);
        aril_shape batch = { .ndim = input.ndim + 1, .dim = { 1 } };
        memcpy(batch.dim + 1, input.dim, (size_t)input.ndim * sizeof *input.dim);
        aril_cost want, got;
        CHECK_INT(aril_module_cost(
                      m, ARIL_LIST(aril_zeros(batch, tokens ? ARIL_I64 : ARIL_F32, aril_cpu())),
                      &want),
                  ARIL_OK);
        CHECK_INT(aril_zoo_cost(e, opts, &got), ARIL_OK);
        CHECK_INT(got.parameters, want.parameters);
        CHECK_INT(got.buffers, want.buffers);
        CHECK_MSG(got.flop == want.flop, "%s: %.0f and %.0f FLOPs", names[i], got.flop, want.flop);
        aril_module_release(m);
    }
}

/* Nothing that initializes may touch a parameter without memory. */
TEST(all_networks_have_a_cost)
{
    for (int i = 0; i < aril_zoo_count(); i++) {
        aril_cost cost;
        const aril_zoo_entry *e = aril_zoo_at(i);
        CHECK_INT(aril_zoo_cost(e, (aril_zoo_opts){ 0 }, &cost), ARIL_OK);
        CHECK_MSG(aril_ok() && cost.parameters > 0 && cost.flop > 0, "%s: %s", e->name,
                  aril_error());
    }
}

TEST(a_network_of_gigabytes_costs_no_memory)
{
    aril_cost cost;
    int64_t before = aril_memory(aril_cpu()).live;
    aril_memory_reset_peak(aril_cpu());
    CHECK_INT(aril_zoo_cost(aril_zoo_find("gpt2-xl"), (aril_zoo_opts){ 0 }, &cost), ARIL_OK);
    CHECK(cost.parameter_bytes > 6e9 && cost.flop > 3e12);
    CHECK_INT(aril_memory(aril_cpu()).live, before);
    CHECK(aril_memory(aril_cpu()).peak < before + ((int64_t)1 << 26));
    CHECK(aril_zoo_cost(NULL, (aril_zoo_opts){ 0 }, &cost) < 0);
    CHECK(aril_zoo_cost(aril_zoo_find("resnet18"), (aril_zoo_opts){ .classes = -1 }, &cost) < 0);
    CHECK(aril_zoo_cost(aril_zoo_find("resnet18"), (aril_zoo_opts){ .input = ARIL_SHAPE(3) },
                        &cost) < 0);
    aril_clear_error();
}

/* What aril_zoo_summary, or with `real` the summary of a network, prints. */
static char *summary(const char *name, aril_zoo_opts opts, bool real)
{
    char *text = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);
    const aril_zoo_entry *e = aril_zoo_find(name);
    aril_summary_opts how = { .batch = 3, .ascii = true, .dtype = e->dtype };
    aril_module *m = real ? aril_zoo_make(name, opts) : NULL;
    aril_shape input = opts.input.ndim ? opts.input : e->input;
    aril_status s =
        real ? aril_summary_with(m, input, to, how)
             : aril_zoo_summary(e, opts, to, (aril_summary_opts){ .batch = 3, .ascii = true });
    aril_module_release(m);
    fclose(to);
    if (s < 0) test_fail(__FILE__, __LINE__, "%s: %s", name, aril_error());
    return text;
}

TEST(summaries_need_no_weights)
{
    static const char *const names[] = { "lenet5",   "resnet20",     "shufflenet_v2_x0_5",
                                         "char_rnn", "mobilenet_v2", "densenet121" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        aril_zoo_opts opts = { .input = i > 3 ? ARIL_SHAPE(3, 64, 64) : (aril_shape){ 0 } };
        char *sketch = summary(names[i], opts, false), *real = summary(names[i], opts, true);
        bool same = strcmp(sketch, real) == 0;
        if (!same) test_fail(__FILE__, __LINE__, "%s\n%s\n%s", names[i], sketch, real);
        free(sketch);
        free(real);
    }
    int64_t before = aril_memory(aril_cpu()).live;
    aril_memory_reset_peak(aril_cpu());
    char *text = summary("gpt2-xl", (aril_zoo_opts){ 0 }, false);
    bool total = strstr(text, "Total params: 1,557,611,200 (5.80 GB)");
    free(text);
    CHECK(total);
    CHECK_INT(aril_memory(aril_cpu()).live, before);
    CHECK(aril_memory(aril_cpu()).peak < before + ((int64_t)1 << 26));
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);
    CHECK_INT(aril_zoo_print(aril_zoo_find("gpt2-xl"), (aril_zoo_opts){ 0 }, to), ARIL_OK);
    fclose(to);
    bool tree = strstr(text, "GPT2") || strstr(text, "gpt2");
    free(text);
    CHECK(tree);
    CHECK(aril_zoo_summary(NULL, (aril_zoo_opts){ 0 }, stdout, (aril_summary_opts){ 0 }) < 0);
    CHECK(aril_zoo_print(NULL, (aril_zoo_opts){ 0 }, stdout) < 0);
    CHECK(aril_zoo_print(aril_zoo_find("lenet5"), (aril_zoo_opts){ 0 }, NULL) < 0);
    CHECK(aril_zoo_summary(aril_zoo_find("lenet5"), (aril_zoo_opts){ 0 }, NULL,
                           (aril_summary_opts){ 0 }) < 0);
    aril_clear_error();
}

/* Each allocation in turn, of a sample of them, fails: an error, and nothing else. */
TEST(networks_survive_lost_memory)
{
    static const struct {
        const char *name;
        int step;
    } rows[] = { { "lenet5-1998", 3 },
                 { "alexnet-2012", 5 },
                 { "nin", 7 },
                 { "googlenet", 197 },
                 { "inception_v3", 307 },
                 { "resnet20", 101 },
                 { "squeezenet1_0", 29 },
                 { "mobilenet_v3_small", 211 },
                 { "shufflenet_v2_x0_5", 223 },
                 { "efficientnet_b0", 307 },
                 { "convnext_tiny", 199 },
                 { "vit_b_16", 157 },
                 { "gpt2", 127 } };
    for (size_t i = 0; i < sizeof rows / sizeof *rows && !test_failed(); i++) {
        const aril_zoo_entry *e = aril_zoo_find(rows[i].name);
        aril_zoo_opts opts = { .input = e->dtype == ARIL_I64 ? ARIL_SHAPE(4) : e->input,
                               .aux = true };
        int tried = 0;
        aril_cost first; /* what the library allocates once is not lost */
        CHECK_INT(aril_zoo_cost(e, opts, &first), ARIL_OK);
        for (int n = 1;; n += rows[i].step, tried++) {
            aril_cost cost;
            aril_fail_allocation(n);
            aril_status s = aril_zoo_cost(e, opts, &cost);
            bool failed = aril_allocation_failed();
            aril_fail_allocation(0);
            if (!failed) break;
            /* What a scope or a cache could do without is no error. */
            CHECK_MSG(s == ARIL_OK || aril_error_code() == ARIL_ERR_MEMORY, "%s, allocation %d: %s",
                      e->name, n, aril_error());
            aril_clear_error();
        }
        CHECK_MSG(tried > 3, "%s: only %d allocations", e->name, tried);
    }
}
