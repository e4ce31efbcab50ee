/* Inception v3 (Szegedy, Vanhoucke, Ioffe, Shlens, Wojna: Rethinking the Inception Architecture for
 * Computer Vision, 2015). */
#include "models/inception.h"

#include "aril/init.h"
#include "models/models.h"
#include "nn/module.h"

#include <string.h>

/* ---- auxiliary classifiers ---- */

typedef struct auxiliary {
    int heads;
    struct {
        int after, child; /* counted from 1; 0: none yet */
    } head[ARIL__MAX_HEADS];
} auxiliary;

static void auxiliary_forward(aril_module *self, int n_in, aril_tensor *const *in, int n_out,
                              aril_tensor **out)
{
    (void)n_in;
    const auxiliary *a = aril_module_data(self);
    bool training = aril_module_training(self);
    aril_tensor *x = in[0];
    for (int i = 0; i < aril_module_children(self); i++) {
        bool is_head = false;
        for (int k = 0; k < a->heads; k++) is_head |= a->head[k].child == i + 1;
        if (is_head) continue;
        aril_tensor *y = aril_forward(aril_module_child(self, i), x);
        if (x != in[0] && x != y) aril_drop(x);
        x = y;
        for (int k = 0; k < a->heads; k++) {
            if (!training || n_out < k + 2 || a->head[k].after != i + 1) continue;
            out[k + 1] = aril_forward(aril_module_child(self, a->head[k].child - 1), x);
        }
    }
    out[0] = x;
}

aril_module *aril__with_auxiliary(int heads)
{
    static const aril_module_class classes[ARIL__MAX_HEADS] = {
        { .type = "InceptionV3",
          .size = sizeof(auxiliary),
          .forward = auxiliary_forward,
          .outputs = 2 },
        { .type = "GoogLeNet",
          .size = sizeof(auxiliary),
          .forward = auxiliary_forward,
          .outputs = 3 },
    };
    aril_module *m = aril_module_make(&classes[heads - 1]);
    if (m) ((auxiliary *)aril_module_data(m))->heads = heads;
    return m;
}

static auxiliary *auxiliary_of(aril_module *m)
{
    return m && m->type->forward == auxiliary_forward ? aril_module_data(m) : NULL;
}

aril_module *aril__auxiliary_after(aril_module *m, int head)
{
    auxiliary *a = auxiliary_of(m);
    if (a) a->head[head].after = aril_module_children(m);
    return m;
}

aril_module *aril__with_head(aril_module *m, const char *name, int head, aril_module *child)
{
    m = aril__with(m, name, child);
    auxiliary *a = auxiliary_of(m);
    if (a) a->head[head].child = aril_module_children(m);
    return m;
}

/* ---- convolutions ---- */

aril_module *aril__inception_conv(int64_t in, int64_t out, aril_nn_conv_opts opts)
{
    opts.no_bias = true;
    aril_module *m = aril_nn_sequential_of(0, NULL);
    m = aril__with(m, "conv", aril_nn_conv2d_with(in, out, 0, opts));
    m = aril__with(m, "bn",
                   aril_nn_batch_norm2d_with(out, (aril_nn_batch_norm_opts){ .eps = 0.001 }));
    return aril__with(m, "relu", aril_nn_relu());
}

static aril_module *conv(int64_t in, int64_t out, int64_t kernel, int64_t stride, int64_t padding)
{
    return aril__inception_conv(in, out,
                                (aril_nn_conv_opts){ .kernel = { kernel, kernel },
                                                     .stride = { stride },
                                                     .padding = { padding } });
}

/* Windows of h x w pixels, padded so that images keep their size. */
static aril_module *window(int64_t in, int64_t out, int64_t h, int64_t w)
{
    return aril__inception_conv(in, out,
                                (aril_nn_conv_opts){ .kernel = { h, w },
                                                     .padding = { h / 2 ? h / 2 : ARIL_ZERO,
                                                                  w / 2 ? w / 2 : ARIL_ZERO } });
}

/* ---- blocks ----
 *
 * The layers of all branches are children of the block, in order; `ends` tells where branches end:
 * each begins with the block's input. The child "pool" is without parameters. */

typedef struct branches {
    int ends[5], n; /* the number of children up to the end of each branch */
    bool forked;    /* the last two children of branches 1 and 2 stand side by side */
} branches;

static aril_tensor *block_forward(aril_module *self, aril_tensor *x)
{
    const branches *b = aril_module_data(self);
    aril_tensor *part[6];
    int n = 0;
    for (int i = 0, first = 0; i < b->n; first = b->ends[i++]) {
        int last = b->ends[i] - 1;
        if (b->forked && (i == 1 || i == 2)) {
            aril_tensor *y = aril__run_children(self, first, last - 2, x);
            part[n++] = aril_forward(aril_module_child(self, last - 1), y);
            part[n++] = aril_forward(aril_module_child(self, last), y);
            aril_drop(y);
        } else {
            part[n++] = aril__run_children(self, first, last, x);
        }
    }
    return aril_cat((aril_list){ n, part }, 1);
}

static aril_module *block(const char *type)
{
    return aril_module_new(type, sizeof(branches), block_forward);
}

static aril_module *end_branch(aril_module *m)
{
    branches *b = m ? aril_module_data(m) : NULL;
    if (b) b->ends[b->n++] = aril_module_children(m);
    return m;
}

/* Average pooling and a convolution; torchvision has no module for the first. */
static aril_module *pooled(aril_module *m, int64_t in, int64_t out)
{
    m = aril__with(m, "pool",
                   aril_nn_avg_pool2d_with(3,
                                           (aril_pool_opts){ .stride = { 1 }, .padding = { 1 } }));
    return end_branch(aril__with(m, "branch_pool", conv(in, out, 1, 1, 0)));
}

static aril_module *block_a(int64_t in, int64_t pool)
{
    aril_module *m =
        end_branch(aril__with(block("InceptionA"), "branch1x1", conv(in, 64, 1, 1, 0)));
    m = aril__with(m, "branch5x5_1", conv(in, 48, 1, 1, 0));
    m = end_branch(aril__with(m, "branch5x5_2", conv(48, 64, 5, 1, 2)));
    m = aril__with(m, "branch3x3dbl_1", conv(in, 64, 1, 1, 0));
    m = aril__with(m, "branch3x3dbl_2", conv(64, 96, 3, 1, 1));
    m = end_branch(aril__with(m, "branch3x3dbl_3", conv(96, 96, 3, 1, 1)));
    return pooled(m, in, pool);
}

static aril_module *block_b(int64_t in)
{
    aril_module *m =
        end_branch(aril__with(block("InceptionB"), "branch3x3", conv(in, 384, 3, 2, 0)));
    m = aril__with(m, "branch3x3dbl_1", conv(in, 64, 1, 1, 0));
    m = aril__with(m, "branch3x3dbl_2", conv(64, 96, 3, 1, 1));
    m = end_branch(aril__with(m, "branch3x3dbl_3", conv(96, 96, 3, 2, 0)));
    return end_branch(aril__with(m, "pool", aril__max_pool(3, 2, 0)));
}

static aril_module *block_c(int64_t in, int64_t c)
{
    aril_module *m =
        end_branch(aril__with(block("InceptionC"), "branch1x1", conv(in, 192, 1, 1, 0)));
    m = aril__with(m, "branch7x7_1", conv(in, c, 1, 1, 0));
    m = aril__with(m, "branch7x7_2", window(c, c, 1, 7));
    m = end_branch(aril__with(m, "branch7x7_3", window(c, 192, 7, 1)));
    m = aril__with(m, "branch7x7dbl_1", conv(in, c, 1, 1, 0));
    m = aril__with(m, "branch7x7dbl_2", window(c, c, 7, 1));
    m = aril__with(m, "branch7x7dbl_3", window(c, c, 1, 7));
    m = aril__with(m, "branch7x7dbl_4", window(c, c, 7, 1));
    m = end_branch(aril__with(m, "branch7x7dbl_5", window(c, 192, 1, 7)));
    return pooled(m, in, 192);
}

static aril_module *block_d(int64_t in)
{
    aril_module *m = aril__with(block("InceptionD"), "branch3x3_1", conv(in, 192, 1, 1, 0));
    m = end_branch(aril__with(m, "branch3x3_2", conv(192, 320, 3, 2, 0)));
    m = aril__with(m, "branch7x7x3_1", conv(in, 192, 1, 1, 0));
    m = aril__with(m, "branch7x7x3_2", window(192, 192, 1, 7));
    m = aril__with(m, "branch7x7x3_3", window(192, 192, 7, 1));
    m = end_branch(aril__with(m, "branch7x7x3_4", conv(192, 192, 3, 2, 0)));
    return end_branch(aril__with(m, "pool", aril__max_pool(3, 2, 0)));
}

static aril_module *block_e(int64_t in)
{
    aril_module *m =
        end_branch(aril__with(block("InceptionE"), "branch1x1", conv(in, 320, 1, 1, 0)));
    if (m) ((branches *)aril_module_data(m))->forked = true;
    m = aril__with(m, "branch3x3_1", conv(in, 384, 1, 1, 0));
    m = aril__with(m, "branch3x3_2a", window(384, 384, 1, 3));
    m = end_branch(aril__with(m, "branch3x3_2b", window(384, 384, 3, 1)));
    m = aril__with(m, "branch3x3dbl_1", conv(in, 448, 1, 1, 0));
    m = aril__with(m, "branch3x3dbl_2", conv(448, 384, 3, 1, 1));
    m = aril__with(m, "branch3x3dbl_3a", window(384, 384, 1, 3));
    m = end_branch(aril__with(m, "branch3x3dbl_3b", window(384, 384, 3, 1)));
    return pooled(m, in, 192);
}

static aril_module *auxiliary_classifier(int64_t classes)
{
    aril_module *m = aril_nn_sequential_of(0, NULL);
    m = aril__with(m, "pool", aril_nn_avg_pool2d_with(5, (aril_pool_opts){ .stride = { 3 } }));
    m = aril__with(m, "conv0", conv(768, 128, 1, 1, 0));
    m = aril__with(m, "conv1", conv(128, 768, 5, 1, 0));
    m = aril__with(m, "avgpool", aril_nn_adaptive_avg_pool2d(1));
    m = aril__with(m, "flatten", aril_nn_flatten());
    return aril__with(m, "fc", aril_nn_linear(768, classes));
}

/* ---- the network ---- */

static void init_layer(aril_module *m, const char *path, void *ctx)
{
    (void)ctx;
    const char *type = aril_module_type(m);
    if (strcmp(type, "Conv2d") != 0 && strcmp(type, "Linear") != 0) return;
    double std = strcmp(path, "AuxLogits.fc") == 0 ? 0.001 : 0.1;
    aril_init_truncated_normal(aril_module_own(m, 0), 0, std, -2, 2);
}

static aril_module *inception_v3(const aril_zoo_entry *e, const aril_zoo_opts *o)
{
    if (!aril__takes_image(e->name, o->input)) return NULL;
    aril_module *m = o->aux ? aril__with_auxiliary(1) : aril_nn_sequential_of(0, NULL);
    m = aril__with(m, "Conv2d_1a_3x3", conv(o->input.dim[0], 32, 3, 2, 0));
    m = aril__with(m, "Conv2d_2a_3x3", conv(32, 32, 3, 1, 0));
    m = aril__with(m, "Conv2d_2b_3x3", conv(32, 64, 3, 1, 1));
    m = aril__with(m, "maxpool1", aril__max_pool(3, 2, 0));
    m = aril__with(m, "Conv2d_3b_1x1", conv(64, 80, 1, 1, 0));
    m = aril__with(m, "Conv2d_4a_3x3", conv(80, 192, 3, 1, 0));
    m = aril__with(m, "maxpool2", aril__max_pool(3, 2, 0));
    m = aril__with(m, "Mixed_5b", block_a(192, 32));
    m = aril__with(m, "Mixed_5c", block_a(256, 64));
    m = aril__with(m, "Mixed_5d", block_a(288, 64));
    m = aril__with(m, "Mixed_6a", block_b(288));
    m = aril__with(m, "Mixed_6b", block_c(768, 128));
    m = aril__with(m, "Mixed_6c", block_c(768, 160));
    m = aril__with(m, "Mixed_6d", block_c(768, 160));
    m = aril__auxiliary_after(aril__with(m, "Mixed_6e", block_c(768, 192)), 0);
    if (o->aux) m = aril__with_head(m, "AuxLogits", 0, auxiliary_classifier(o->classes));
    m = aril__with(m, "Mixed_7a", block_d(768));
    m = aril__with(m, "Mixed_7b", block_e(1280));
    m = aril__with(m, "Mixed_7c", block_e(2048));
    m = aril__with(m, "avgpool", aril_nn_adaptive_avg_pool2d(1));
    m = aril__with(m, "dropout", aril__dropout(o, 0.5));
    m = aril__with(m, "flatten", aril_nn_flatten());
    return aril__init_layers(aril__with(m, "fc", aril_nn_linear(2048, o->classes)), init_layer,
                             NULL);
}

const aril_zoo_entry aril__zoo_inception[] = {
    { .name = "inception_v3",
      .family = "inception",
      .paper = "Rethinking the Inception Architecture for Computer Vision",
      .year = 2015,
      ARIL__IMAGENET(299, .resize = 342, ARIL__HALF_NORM),
      ARIL__TORCHVISION("inception_v3_google", "0cc3c7bd"),
      .make = inception_v3,
      .about = "Inception v3: factorized convolutions" },
    { 0 },
};
