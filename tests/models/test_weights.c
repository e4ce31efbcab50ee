/* Weights of files in modules: names, rules, reports; ResNet-20 as its authors trained it. */
#include "aril/aril.h"
#include "core/memory.h"
#include "support/temp.h"
#include "support/test.h"

#include <stdlib.h>
#include <string.h>

static const char classes[] =
#include "files/cifar10_classes.inc"
    ;

static aril_module *net(int64_t outputs)
{
    return aril_nn_sequential(aril_nn_conv2d(2, 4, 3), aril_nn_batch_norm2d(4), aril_nn_relu(),
                              aril_nn_flatten(), aril_nn_linear(64, outputs));
}

/* Saves m under other names: `prefix` and the name in m. */
static aril_status save_as(aril_module *m, const char *path, const char *prefix)
{
    const aril_named *state = aril_state(m);
    char text[16][64];
    const char *name[16];
    for (int i = 0; i < state->n; i++) {
        snprintf(text[i], sizeof text[i], "%s%s", prefix, state->name[i]);
        name[i] = text[i];
    }
    return aril_weights_save(path, &(aril_named){ state->n, state->at, name },
                             (aril_weights_save_opts){ 0 });
}

static bool same(aril_module *a, aril_module *b, const char *name)
{
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    return aril_item(aril_all(aril_eq(aril_module_tensor(a, name), aril_module_tensor(b, name)),
                              ARIL_ALL)) == 1;
}

TEST(every_kind_that_is_written_loads)
{
    static const char *const paths[] = { "n.safetensors", "n.pt", "n.pth", "n.bin", "n.npz" };
    aril_module *a = net(3);
    for (int i = 0; i < 5; i++) {
        aril_module *b = net(3);
        CHECK(!same(a, b, "0.weight"));
        CHECK_INT(aril_save(a, temp_path(paths[i])), ARIL_OK);
        CHECK_MSG(aril_load_weights(b, temp_path(paths[i]), (aril_load_weights_opts){ 0 }) ==
                      ARIL_OK,
                  "%s: %s", paths[i], aril_error());
        for (int k = 0; k < aril_state(a)->n; k++) CHECK(same(a, b, aril_state(a)->name[k]));
        aril_module_release(b);
    }
    aril_module_release(a);
}

TEST(prefixes_of_wrappers_are_removed)
{
    static const char *const prefixes[] = { "module.", "_orig_mod.", "module._orig_mod.",
                                            "_orig_mod.module." };
    aril_module *a = net(3);
    for (int i = 0; i < 4; i++) {
        aril_module *b = net(3);
        CHECK_INT(save_as(a, temp_path("w.pt"), prefixes[i]), ARIL_OK);
        CHECK_MSG(aril_load_weights(b, temp_path("w.pt"), (aril_load_weights_opts){ 0 }) == ARIL_OK,
                  "%s", aril_error());
        CHECK(same(a, b, "4.bias"));
        aril_module_release(b);
    }
    /* a module that has such a name itself keeps it */
    aril_module *outer = aril_nn_sequential(aril_nn_relu()), *other = net(3);
    aril_module_add(outer, "module", aril_module_keep(a));
    CHECK_INT(save_as(other, temp_path("w.pt"), "module."), ARIL_OK);
    CHECK_INT(aril_load_weights(outer, temp_path("w.pt"), (aril_load_weights_opts){ 0 }), ARIL_OK);
    CHECK(same(a, other, "4.weight"));
    aril_module_release(outer);
    aril_module_release(other);
    aril_module_release(a);
}

TEST(rules_rename)
{
    static const aril_rename rules[] = {
        { "*.gamma", "*.weight" }, { "a.*.b.*", "*.*" }, { "drop*", "" }, { "x*y*", "*-*-*" }, { 0 }
    };
    char buf[64];
    CHECK_STR(aril_renamed("bn.gamma", rules, buf, sizeof buf), "bn.weight");
    CHECK_STR(aril_renamed("a.1.b.gamma", rules, buf, sizeof buf), "1.weight");
    CHECK_STR(aril_renamed("a.b.b.b.c", rules, buf, sizeof buf), "b.b.c");
    CHECK_STR(aril_renamed("xaybyc", rules, buf, sizeof buf), "a-byc-");
    CHECK_STR(aril_renamed("same", rules, buf, sizeof buf), "same");
    CHECK(!aril_renamed("dropped", rules, buf, sizeof buf) && aril_ok());
    CHECK(!aril_renamed("a long name", NULL, buf, 5) && !aril_ok());
    aril_clear_error();
    CHECK_STR(aril_renamed("plain", NULL, buf, sizeof buf), "plain");

    aril_module *a = net(3), *b = net(3);
    CHECK_INT(save_as(a, temp_path("w.pt"), "backbone.net."), ARIL_OK);
    CHECK(aril_load_weights(b, temp_path("w.pt"), (aril_load_weights_opts){ 0 }) < 0);
    CHECK_MSG(strstr(aril_error(), "6 missing") || strstr(aril_error(), "missing (0.weight"), "%s",
              aril_error());
    aril_clear_error();
    CHECK_INT(aril_load_weights(b, temp_path("w.pt"),
                                (aril_load_weights_opts){
                                    .rename = (aril_rename[]){ { "backbone.*.*", "*" }, { 0 } } }),
              ARIL_ERR_ARG); /* all become "net" */
    CHECK_MSG(strstr(aril_error(), "would both be loaded"), "%s", aril_error());
    aril_clear_error();
    CHECK_INT(aril_load_weights(b, temp_path("w.pt"),
                                (aril_load_weights_opts){
                                    .rename =
                                        (aril_rename[]){ { "backbone.net.*", "*" }, { 0 } } }),
              ARIL_OK);
    CHECK(same(a, b, "0.weight"));
    aril_module_release(a);
    aril_module_release(b);
}

TEST(reports)
{
    aril_module *a = net(3), *b = net(5);
    aril_weights_report r;
    CHECK_INT(save_as(a, temp_path("w.pt"), ""), ARIL_OK);
    CHECK_INT(aril_load_weights(b, temp_path("w.pt"), (aril_load_weights_opts){ .report = &r }),
              ARIL_ERR_SHAPE);
    CHECK_MSG(strstr(aril_error(), "\"4.weight\" is [5,64] in the module, but [3,64] in the file"),
              "%s", aril_error());
    aril_clear_error();
    CHECK_INT(r.loaded, 0);
    CHECK_INT(r.other_shape.n, 2);
    CHECK_STR(r.other_shape.at[0].name, "4.weight");
    CHECK(r.other_shape.at[0].shape.dim[0] == 5 && r.other_shape.at[0].file_shape.dim[0] == 3);
    aril_weights_report_free(&r);
    CHECK(!same(a, b, "0.weight"));
    aril_load_weights_opts opts = { .other_shapes = true, .report = &r };
    CHECK_INT(aril_load_weights(b, temp_path("w.pt"), opts), ARIL_OK);
    CHECK(same(a, b, "0.weight"));
    CHECK_INT(r.loaded, aril_state(a)->n - 2);
    aril_weights_report_free(&r);

    aril_module *small = aril_nn_sequential(aril_nn_conv2d(2, 4, 3), aril_nn_linear(2, 2));
    opts = (aril_load_weights_opts){ .partial = true, .report = &r };
    CHECK_INT(aril_load_weights(small, temp_path("w.pt"), opts), ARIL_ERR_SHAPE); /* 1.weight */
    aril_clear_error();
    aril_weights_report_free(&r);
    opts.other_shapes = true;
    CHECK_INT(aril_load_weights(small, temp_path("w.pt"), opts), ARIL_OK);
    CHECK_INT(r.loaded, 2);
    CHECK_INT(r.missing.n, 0);
    CHECK_INT(r.other_shape.n, 2);
    CHECK_INT(r.left_over.n, 5);
    CHECK_STR(r.left_over.at[0].file_name, "1.running_mean");
    CHECK(!r.left_over.at[0].name && r.left_over.at[0].file_shape.dim[0] == 4);
    FILE *f = fopen(temp_path("report"), "w+");
    CHECK(f);
    aril_weights_report_print(&r, f, 2);
    rewind(f);
    char text[512] = "";
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = '\0';
    CHECK_STR(text, "2 loaded\n"
                    "5 left over:\n  1.running_mean [4]\n  1.running_var [4]\n  and 3 more\n"
                    "2 of another shape:\n  1.weight [2,2], in the file [4]\n"
                    "  1.bias [2], in the file [4]\n");
    aril_weights_report_free(&r);
    CHECK(aril_load_weights(small, temp_path("none"), opts) < 0);
    CHECK(r.loaded == 0 && !r.memory);
    aril_clear_error();
    aril_module_release(a);
    aril_module_release(b);
    aril_module_release(small);
}

/* PyTorch before 0.4.1 did not save it. */
TEST(the_number_of_batches_may_be_missing)
{
    aril_module *a = net(3), *b = net(3);
    aril_weights_report r;
    aril_load_weights_opts opts = { .rename =
                                        (aril_rename[]){ { "*num_batches_tracked", "" }, { 0 } },
                                    .report = &r };
    CHECK_INT(aril_save(a, temp_path("w.pt")), ARIL_OK);
    CHECK_INT(aril_load_weights(b, temp_path("w.pt"), opts), ARIL_OK);
    CHECK_INT(r.missing.n, 0);
    aril_weights_report_free(&r);
    aril_module_release(a);
    aril_module_release(b);
}

TEST(dtypes_are_converted)
{
    ARIL_SCOPE;
    aril_module *a = aril_nn_linear(3, 2), *b = aril_nn_linear(3, 2);
    CHECK_INT(aril_module_cast(a, ARIL_BF16), ARIL_OK);
    CHECK_INT(aril_save(a, temp_path("w.pt")), ARIL_OK);
    CHECK_INT(aril_load_weights(b, temp_path("w.pt"), (aril_load_weights_opts){ 0 }), ARIL_OK);
    CHECK_INT(aril_dtype_of(aril_module_tensor(b, "weight")), ARIL_F32);
    CHECK(same(a, b, "weight"));
    aril_module_release(a);
    aril_module_release(b);
}

TEST(lost_memory_changes_nothing)
{
    aril_module *a = net(3), *b = net(3), *before = net(3);
    CHECK_INT(aril_save(a, temp_path("w.pt")), ARIL_OK);
    CHECK_INT(aril_load_state(before, aril_state(b), (aril_load_state_opts){ 0 }), ARIL_OK);
    for (int64_t n = 1;; n++) {
        aril_weights_report r;
        aril_fail_allocation(n);
        aril_status s =
            aril_load_weights(b, temp_path("w.pt"), (aril_load_weights_opts){ .report = &r });
        bool failed = aril_allocation_failed();
        aril_fail_allocation(0);
        aril_clear_error();
        aril_weights_report_free(&r);
        CHECK_MSG(same(b, s < 0 ? before : a, "4.weight"), "allocation %lld", (long long)n);
        if (!failed) break;
        if (s == ARIL_OK)
            CHECK_INT(aril_load_state(b, aril_state(before), (aril_load_state_opts){ 0 }), ARIL_OK);
        CHECK(n < 10000);
    }
    aril_module_release(a);
    aril_module_release(b);
    aril_module_release(before);
}

/* ---- ResNet-20 for CIFAR-10 ---- */

typedef struct block {
    aril_module *conv1, *bn1, *conv2, *bn2;
    int64_t pad; /* channels added on either side of a shortcut that halves the image */
} block;

static aril_tensor *block_forward(aril_module *self, aril_tensor *x)
{
    const block *b = aril_module_data(self);
    aril_tensor *y = aril_relu(aril_forward(b->bn1, aril_forward(b->conv1, x))); /* [N,C,H,W] */
    y = aril_forward(b->bn2, aril_forward(b->conv2, y));
    if (b->pad) {
        x = aril_index(x,
                       ARIL_INDEX(ARIL_DOTS, ARIL_STEP(0, ARIL_END, 2), ARIL_STEP(0, ARIL_END, 2)));
        x = aril_pad(x, ARIL_PADS(0, 0, 0, 0, b->pad, b->pad), (aril_pad_opts){ 0 });
    }
    return aril_relu(aril_add(x, y));
}

static aril_module *conv(int64_t in, int64_t out, int64_t stride)
{
    return aril_nn_conv2d_with(
        in, out, 3,
        (aril_nn_conv_opts){ .stride = { stride, stride }, .padding = { 1, 1 }, .no_bias = true });
}

static aril_module *new_block(int64_t in, int64_t out)
{
    aril_module *self = aril_module_new("Block", sizeof(block), block_forward);
    block *b = aril_module_data(self);
    b->conv1 = aril_module_add(self, "conv1", conv(in, out, in == out ? 1 : 2));
    b->bn1 = aril_module_add(self, "bn1", aril_nn_batch_norm2d(out));
    b->conv2 = aril_module_add(self, "conv2", conv(out, out, 1));
    b->bn2 = aril_module_add(self, "bn2", aril_nn_batch_norm2d(out));
    b->pad = (out - in) / 2;
    return self;
}

typedef struct resnet20 {
    aril_module *conv1, *bn1, *layer[3], *linear;
} resnet20;

static aril_tensor *resnet20_forward(aril_module *self, aril_tensor *x)
{
    const resnet20 *r = aril_module_data(self);
    x = aril_relu(aril_forward(r->bn1, aril_forward(r->conv1, x))); /* [N,16,32,32] */
    for (int i = 0; i < 3; i++) x = aril_forward(r->layer[i], x);
    return aril_forward(r->linear, aril_mean(x, ARIL_AXES(2, 3))); /* [N,10] */
}

static aril_module *new_resnet20(void)
{
    static const char *const names[] = { "layer1", "layer2", "layer3" };
    static const int64_t channels[] = { 16, 16, 32, 64 };
    aril_module *self = aril_module_new("ResNet20", sizeof(resnet20), resnet20_forward);
    resnet20 *r = aril_module_data(self);
    r->conv1 = aril_module_add(self, "conv1", conv(3, 16, 1));
    r->bn1 = aril_module_add(self, "bn1", aril_nn_batch_norm2d(16));
    for (int i = 0; i < 3; i++) {
        int64_t in = channels[i], out = channels[i + 1];
        r->layer[i] = aril_module_add(self, names[i],
                                      aril_nn_sequential(new_block(in, out), new_block(out, out),
                                                         new_block(out, out)));
    }
    r->linear = aril_module_add(self, "linear", aril_nn_linear(64, 10));
    return self;
}

/* The first images of the file, unpacked by xz; NULL: it could not be. */
static unsigned char *read_images(const char *data, int n)
{
    enum { IMAGE = 3073 };
    char command[600];
    snprintf(command, sizeof command, "xz -dc '%s/cifar10/test_batch_first2000.bin.xz' 2>/dev/null",
             data);
    FILE *pipe = popen(command, "r");
    unsigned char *images = malloc((size_t)n * IMAGE);
    bool good = pipe && images && fread(images, IMAGE, (size_t)n, pipe) == (size_t)n;
    if (pipe) pclose(pipe);
    if (good) return images;
    free(images);
    return NULL;
}

static aril_tensor *normalized(const unsigned char *images, int n)
{
    static const float mean[] = { .485f, .456f, .406f }, deviation[] = { .229f, .224f, .225f };
    aril_tensor *x = aril_from(images, ARIL_SHAPE(n, 3073), ARIL_U8, aril_cpu());
    x = aril_index(x, ARIL_INDEX(ARIL_EVERY, ARIL_RANGE(1, ARIL_END)));
    x = aril_reshape(aril_cast(x, ARIL_F32), ARIL_SHAPE(n, 3, 32, 32));
    aril_tensor *m = aril_from(mean, ARIL_SHAPE(3, 1, 1), ARIL_F32, aril_cpu());
    aril_tensor *d = aril_from(deviation, ARIL_SHAPE(3, 1, 1), ARIL_F32, aril_cpu());
    return aril_div(aril_sub(aril_div_scalar(x, 255), m), d); /* [N,3,32,32] */
}

TEST(resnet20_predicts_the_classes_that_pytorch_does)
{
    enum { PER = 100 };
    const int n = ARIL__PLAIN_BLOCKS ? 200 : 2000; /* fewer under a sanitizer */
    const char *data = getenv("ARIL_TEST_DATA");
    char path[600];
    if (!data || !*data) data = "../shared/data";
    snprintf(path, sizeof path, "%s/pytorch-models/cifar10-resnet/resnet20-12fca82f.th", data);
    unsigned char *images = read_images(data, n);
    if (!images) {
        test_skip("no CIFAR-10 in %s (set ARIL_TEST_DATA), or no xz", data);
        return;
    }
    ARIL_SCOPE;
    ARIL_INFERENCE;
    CHECK_INT(strlen(classes), 2000);
    aril_module *m = new_resnet20();
    aril_module_eval(m);
    CHECK_MSG(aril_load_weights(m, path, (aril_load_weights_opts){ 0 }) == ARIL_OK, "%s",
              aril_error());
    int wrong = 0, correct = 0;
    for (int i = 0; i < n; i += PER) {
        ARIL_SCOPE;
        int64_t got[PER];
        aril_tensor *x = normalized(images + (size_t)i * 3073, PER);
        CHECK_INT(aril_read(aril_argmax(aril_forward(m, x), ARIL_AXES(1)), got), ARIL_OK);
        for (int k = 0; k < PER; k++) {
            wrong += got[k] != classes[i + k] - '0';
            correct += got[k] == images[(size_t)(i + k) * 3073];
        }
    }
    CHECK_INT(wrong, 0);
    CHECK(n < 2000 || correct == 1833);
    free(images);
    aril_module_release(m);
}

/* ---- FastestDet ---- */

TEST(checkpoints_of_fastestdet)
{
    static const struct {
        const char *file;
        int n;
        int64_t elements;
    } files[] = { { "shufflenetv2.pth", 330, 149095 },
                  { "weight_AP05_0.253207_280-epoch.pth", 420, 252938 } };
    const char *data = getenv("ARIL_TEST_DATA");
    if (!data || !*data) data = "../shared/data";
    for (int k = 0; k < 2; k++) {
        char path[600];
        snprintf(path, sizeof path, "%s/pytorch-models/fastestdet/%s", data, files[k].file);
        FILE *f = fopen(path, "rb");
        if (!f) {
            test_skip("no %s (set ARIL_TEST_DATA)", path);
            return;
        }
        fclose(f);
        aril_weights *w = aril_weights_open(path, (aril_weights_opts){ 0 });
        CHECK_MSG(w, "%s", aril_error());
        CHECK_INT(aril_weights_count(w), files[k].n);
        const aril_named *all = aril_weights_all(w);
        CHECK(all);
        int64_t elements = 0;
        for (int i = 0; i < all->n; i++) {
            ARIL_SCOPE;
            elements += aril_numel(all->at[i]);
            bool finite =
                aril_item(aril_all(aril_isfinite(aril_cast(all->at[i], ARIL_F32)), ARIL_ALL)) == 1;
            CHECK_MSG(finite, "%s", all->name[i]);
        }
        CHECK_INT(elements, files[k].elements);
        aril_weights_close(w);
    }
}

/* ---- ONNX ---- */

TEST(initializers_of_a_model)
{
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    aril_module *m = aril_nn_sequential(aril_nn_linear(4, 3));
    aril_tensor *x = aril_zeros(ARIL_SHAPE(1, 4), ARIL_F32, aril_cpu());
    aril_module_eval(m);
    CHECK_INT(aril_module_export(m, ARIL_LIST(x), temp_path("m.onnx"),
                                 (aril_export_opts){ .external_data = true }),
              ARIL_OK);
    aril_weights *w = aril_weights_open(temp_path("m.onnx"), (aril_weights_opts){ 0 });
    CHECK_MSG(w, "%s", aril_error());
    CHECK_STR(aril_weights_kind(w), "ONNX");
    bool found = false;
    for (int i = 0; i < aril_weights_count(w); i++) {
        aril_tensor *t = aril_weights_tensor(w, i), *weight = aril_module_tensor(m, "0.weight");
        CHECK_MSG(aril_tensor_status(t) == ARIL_OK, "%s", aril_error());
        if (aril_ndim(t) != 2) continue;
        if (aril_size(t, 0) == 4) t = aril_transpose(t, 0, 1);
        found |= aril_item(aril_all(aril_eq(t, weight), ARIL_ALL)) == 1;
    }
    CHECK(found);
    aril_weights_close(w);
    aril_module_release(m);
}
