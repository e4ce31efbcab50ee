/* Published weights and fine-tuning: which files, which layers are the head, what is frozen. */
#include "aril/aril.h"
#include "nn/module.h"
#include "support/temp.h"
#include "support/test.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- files ---- */

TEST(every_network_with_weights_has_files)
{
    int with_weights = 0;
    setenv("ARIL_CACHE", "/tmp/aril-no-such-cache", 1);
    for (int i = 0; i < aril_zoo_count(); i++) {
        const aril_zoo_entry *e = aril_zoo_at(i);
        int n = aril_published_count(e);
        CHECK_INT(n > 0, e->weights.url != NULL);
        for (int k = 0; k < n; k++) {
            aril_published_file f;
            CHECK_INT(aril_published_at(e, k, &f), ARIL_OK);
            CHECK(strncmp(f.url, "https://", 8) == 0 && f.size == 0 && f.part == 0);
            CHECK(strncmp(f.path, "/tmp/aril-no-such-cache/weights/", 32) == 0);
            size_t digits = f.sha256 ? strspn(f.sha256, "0123456789abcdef") : 64;
            CHECK_MSG(digits >= 8 && digits <= 64 && (!f.sha256 || !f.sha256[digits]),
                      "%s: hash '%s'", e->name, f.sha256);
            /* Other publishers name files by their hash. */
            const char *file = strrchr(f.url, '/');
            if (e->dtype != ARIL_I64) CHECK_MSG(strstr(file, f.sha256), "%s: %s", e->name, file);
        }
        with_weights += n > 0;
        char path[64];
        CHECK(!aril_zoo_weights_path(e, path, sizeof path));
    }
    CHECK(with_weights >= 30 && aril_ok());
    aril_published_file f;
    CHECK_INT(aril_published_at(aril_zoo_find("resnet18"), 1, &f), ARIL_ERR_INDEX);
    CHECK_INT(aril_published_count(NULL), 0);
    aril_clear_error();
}

static void write_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    CHECK(f);
    fputs(text, f);
    fclose(f);
}

TEST(files_are_found_in_the_cache)
{
    const aril_zoo_entry *gpt2 = aril_zoo_find("gpt2");
    char path[4096];
    setenv("ARIL_CACHE", temp_path(""), 1);
    CHECK_INT(aril_folder_create(temp_path("weights/gpt2")), ARIL_OK);
    CHECK_INT(aril_published_count(gpt2), 3);
    write_file(temp_path("weights/gpt2/model.safetensors"), "12345");
    write_file(temp_path("weights/gpt2/vocab.json.part"), "123");
    CHECK(aril_zoo_weights_path(gpt2, path, sizeof path));
    CHECK(strstr(path, "/weights/gpt2/model.safetensors") && !aril_zoo_weights_path(gpt2, path, 9));
    aril_published_file f;
    CHECK_INT(aril_published_at(gpt2, 1, &f), ARIL_OK);
    CHECK(strstr(f.url, "/vocab.json") && f.size == 0 && f.part == 3);
    setenv("ARIL_ZOO_MIRROR", "http://mirror/x/", 1);
    CHECK_INT(aril_published_at(gpt2, 0, &f), ARIL_OK);
    unsetenv("ARIL_ZOO_MIRROR");
    CHECK_STR(f.url, "http://mirror/x/gpt2/model.safetensors");
    CHECK_INT(f.size, 5);
    aril_zoo_download_opts offline = { .offline = true, .verbose = ARIL_ZERO };
    CHECK_INT(aril_zoo_download("gpt2", offline), ARIL_ERR_IO);
    CHECK(strstr(aril_error(), "vocab.json is not there, and this is offline"));
    aril_clear_error();
    int64_t removed;
    CHECK_INT(aril_zoo_remove("gpt2", &removed), ARIL_OK);
    CHECK_INT(removed, 8);
    CHECK_STR(files_in(temp_path("weights/gpt2")), "");
    CHECK_INT(aril_zoo_download("lenet5", offline), ARIL_ERR_ARG);
    CHECK_INT(aril_zoo_download("lenet55", offline), ARIL_ERR_ARG);
    CHECK_INT(aril_zoo_remove("lenet55", NULL), ARIL_ERR_ARG);
    aril_clear_error();
    unsetenv("ARIL_CACHE");
}

/* ---- head and backbone ---- */

TEST(heads_are_the_layers_of_the_classes)
{
    static const char *const want[][2] = { { "resnet18", "fc" },
                                           { "resnet20", "linear" },
                                           { "vgg16_bn", "classifier.6" },
                                           { "densenet121", "classifier" },
                                           { "squeezenet1_1", "classifier.1" },
                                           { "lenet5", "11" },
                                           { "two_layer", "3" } };
    char head[256];
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        CHECK_INT(aril_zoo_head(aril_zoo_find(want[i][0]), head, sizeof head), ARIL_OK);
        CHECK_STR(head, want[i][1]);
    }
    CHECK_INT(aril_zoo_head(aril_zoo_find("vgg16"), head, 12), ARIL_ERR_ARG);
    CHECK_INT(aril_zoo_head(NULL, head, sizeof head), ARIL_ERR_ARG);
    aril_clear_error();
    for (int i = 0; i < aril_zoo_count(); i++) { /* each has one */
        const aril_zoo_entry *e = aril_zoo_at(i);
        if (e->dtype == ARIL_I64) continue;
        CHECK_INT(aril_zoo_head(e, head, sizeof head), ARIL_OK);
        CHECK_MSG(*head, "%s has no head", e->name);
    }
}

/* The sum of all parameters and buffers that are not the head's. */
static double backbone_sum(aril_module *m)
{
    ARIL_SCOPE;
    const aril_named *s = aril_state(m);
    double sum = 0;
    for (int i = 0; i < s->n; i++)
        if (strncmp(s->name[i], "linear.", 7) != 0)
            sum += aril_item(aril_sum(aril_abs(aril_cast(s->at[i], ARIL_F64)), ARIL_ALL));
    return sum;
}

TEST(a_frozen_backbone_stays_as_it_is)
{
    const aril_zoo_entry *e = aril_zoo_find("resnet20");
    aril_seed(3);
    aril_module *m = aril_zoo_make("resnet20", (aril_zoo_opts){ .classes = 4 });
    CHECK_INT(aril_zoo_freeze_backbone(e, m), ARIL_OK);
    CHECK_INT(aril_trainable_count(m), 64 * 4 + 4);
    double before = backbone_sum(m);
    aril_module_train(m);
    CHECK(aril_module_training(m) && aril_module_training(aril_module_at(m, "linear")));
    CHECK(!aril_module_training(aril_module_at(m, "layer1.0.bn1")));
    aril_optim *opt = aril_sgd(aril_parameters(m), (aril_sgd_opts){ .lr = 0.001 });
    double loss[2] = { 0, 0 };
    for (int step = 0; step < 5; step++) {
        ARIL_SCOPE;
        static const int64_t classes[4] = { 0, 1, 2, 3 };
        aril_seed(5);
        aril_tensor *x = aril_randn(ARIL_SHAPE(4, 3, 32, 32), ARIL_F32, aril_cpu());
        aril_tensor *y = aril_from(classes, ARIL_SHAPE(4), ARIL_I64, aril_cpu());
        aril_tensor *l = aril_cross_entropy(aril_forward(m, x), y);
        loss[step > 0] = aril_item(l);
        aril_backward(l);
        aril_step(opt);
    }
    CHECK_MSG(aril_ok(), "%s", aril_error());
    CHECK(loss[1] < loss[0]);
    CHECK_NEAR(backbone_sum(m), before, 0);
    aril_module_unfreeze(m);
    aril_module_unfreeze_stats(m);
    aril_module_train(m);
    CHECK(aril_module_training(aril_module_at(m, "layer1.0.bn1")));
    CHECK_INT(aril_trainable_count(m), aril_parameter_count(m));
    aril_optim_free(opt);
    aril_module_release(m);
    aril_module *other = aril_nn_linear(3, 4);
    CHECK_INT(aril_zoo_freeze_backbone(e, other), ARIL_ERR_ARG);
    CHECK_INT(aril_zoo_freeze_backbone(e, NULL), ARIL_ERR_ARG);
    aril_module_release(other);
    aril_clear_error();
}

/* ---- loading ---- */

/* Saves the state of a network; `rename` changes names to those of a publisher. */
static const char *saved(const char *net, aril_zoo_opts opts, const aril_rename *rename,
                         const char *file)
{
    ARIL_SCOPE;
    static char names[1200][128];
    static const char *name[1200];
    const char *path = temp_path(file);
    aril_module *m = aril_zoo_make(net, opts);
    const aril_named *s = aril_state(m);
    for (int i = 0; i < s->n && i < 1200; i++)
        name[i] = aril_renamed(s->name[i], rename, names[i], sizeof names[i]);
    aril_named all = { s->n, s->at, name };
    aril_weights_save(path, &all, (aril_weights_save_opts){ 0 });
    aril_module_release(m);
    return aril_ok() ? path : NULL;
}

/* The sum of the absolute values of a tensor. */
static double sum_of(aril_module *m, const char *name)
{
    ARIL_SCOPE;
    return aril_item(aril_sum(aril_abs(aril_module_tensor(m, name)), ARIL_ALL));
}

TEST(weights_are_loaded_by_name)
{
    aril_seed(11);
    const char *path = saved("resnet20", (aril_zoo_opts){ 0 }, NULL, "r.safetensors");
    CHECK_MSG(path, "%s", aril_error());
    aril_module *a = aril_zoo_make("resnet20", (aril_zoo_opts){ .weights = path });
    aril_module *b = aril_zoo_make("resnet20", (aril_zoo_opts){ .weights = path, .classes = 3 });
    CHECK_MSG(a && b, "%s", aril_error());
    CHECK_NEAR(sum_of(a, "conv1.weight"), sum_of(b, "conv1.weight"), 0);
    CHECK_NEAR(sum_of(a, "layer3.2.conv2.weight"), sum_of(b, "layer3.2.conv2.weight"), 0);
    CHECK_INT(aril_size(aril_module_tensor(b, "linear.weight"), 0), 3);
    aril_module_release(a);
    aril_module_release(b);
    CHECK(!aril_zoo_make("resnet32", (aril_zoo_opts){ .weights = path, .classes = 3 }));
    CHECK_MSG(strstr(aril_error(), "layer1.3."), "%s", aril_error());
    aril_clear_error();
    CHECK(!aril_zoo_make("resnet20", (aril_zoo_opts){ .weights = "no-such-file" }));
    CHECK(strstr(aril_error(), "no-such-file"));
    aril_clear_error();
}

/* Writes a file of resnet20 whose head has a matrix [rows,columns], and a bias. */
static void write_with_head(const char *path, int64_t rows, int64_t columns, int64_t bias)
{
    ARIL_SCOPE;
    const char *name[256];
    aril_tensor *at[256];
    aril_module *m = aril_zoo_make("resnet20", (aril_zoo_opts){ 0 });
    const aril_named *s = aril_state(m);
    CHECK(s && s->n < 256);
    for (int i = 0; i < s->n; i++) {
        name[i] = s->name[i];
        at[i] = strcmp(name[i], "linear.weight") == 0
                    ? aril_ones(ARIL_SHAPE(rows, columns), ARIL_F32, aril_cpu())
                : strcmp(name[i], "linear.bias") == 0
                    ? aril_ones(ARIL_SHAPE(bias), ARIL_F32, aril_cpu())
                    : s->at[i];
    }
    CHECK_INT(aril_weights_save(path, &(aril_named){ s->n, at, name },
                                (aril_weights_save_opts){ 0 }),
              ARIL_OK);
    aril_module_release(m);
}

/* Predictions by a head that kept random weights would look like any others. */
TEST(heads_are_new_only_where_classes_are_asked_for)
{
    static const struct {
        int64_t rows, columns, bias, classes;
        const char *says; /* NULL: it loads */
    } cases[] = {
        { 10, 64, 10, 0, NULL },
        { 10, 64, 10, 10, NULL },
        { 7, 64, 7, 7, NULL },
        { 7, 64, 7, 3, NULL },
        { 7, 64, 7, 10, NULL },
        { 7, 64, 7, 0, "are for 7 classes, resnet20 has 10; create it with 7 classes" },
        { 10, 32, 10, 0, "do not fit resnet20: " },
        { 10, 32, 10, 3, "do not fit resnet20: " },
        { 10, 32, 10, 64, "do not fit resnet20: " },
        { 64, 10, 10, 0, "do not fit resnet20: " },
        { 64, 10, 10, 3, "do not fit resnet20: " },
        { 7, 64, 10, 0, "do not fit resnet20: " },
        { 7, 64, 10, 10, "do not fit resnet20: " },
        { 7, 64, 8, 3, "do not fit resnet20: " },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *path = temp_path("head.safetensors");
        write_with_head(path, cases[i].rows, cases[i].columns, cases[i].bias);
        if (test_failed()) return;
        aril_zoo_opts opts = { .weights = path, .classes = cases[i].classes };
        aril_module *m = aril_zoo_make("resnet20", opts);
        if (!cases[i].says) {
            CHECK_MSG(m, "row %zu: %s", i, aril_error());
            bool taken = cases[i].classes == 0 || cases[i].classes == cases[i].rows;
            double ones = (double)(cases[i].rows * cases[i].columns);
            CHECK_INT(sum_of(m, "linear.weight") == ones, taken);
        } else {
            CHECK_MSG(!m && strstr(aril_error(), cases[i].says), "row %zu: %s", i, aril_error());
            aril_clear_error();
        }
        aril_module_release(m);
    }
}

TEST(default_weights_come_from_the_cache)
{
    aril_zoo_opts published = { .weights = "default" };
    setenv("ARIL_CACHE", temp_path(""), 1);
    CHECK(!aril_zoo_make("resnet20", published));
    CHECK_MSG(strstr(aril_error(), "are not in the cache; `aril zoo get resnet20` downloads them"),
              "%s", aril_error());
    aril_clear_error();
    CHECK(!aril_zoo_make("lenet5", published));
    CHECK(strstr(aril_error(), "no weights are published for lenet5"));
    aril_clear_error();
    aril_folder_create(temp_path("weights"));
    CHECK(saved("resnet20", (aril_zoo_opts){ 0 }, NULL, "weights/r.safetensors"));
    CHECK_INT(rename(temp_path("weights/r.safetensors"), temp_path("weights/resnet20-12fca82f.th")),
              0);
    aril_module *m = aril_zoo_make("resnet20", published);
    CHECK_MSG(m, "%s", aril_error());
    aril_module_release(m);
    unsetenv("ARIL_CACHE");
}

TEST(names_of_publishers_are_translated)
{
    static const aril_rename old[] = { { "*.norm1.*", "*.norm.1.*" },
                                       { "*.norm2.*", "*.norm.2.*" },
                                       { "*.conv1.*", "*.conv.1.*" },
                                       { "*.conv2.*", "*.conv.2.*" },
                                       { 0 } };
    const char *path = saved("densenet121", (aril_zoo_opts){ 0 }, old, "d.safetensors");
    CHECK_MSG(path, "%s", aril_error());
    aril_module *m = aril_zoo_make("densenet121", (aril_zoo_opts){ .weights = path });
    CHECK_MSG(m, "%s", aril_error());
    aril_module_release(m);
}

TEST(auxiliary_heads_may_be_left_over)
{
    /* Their network is only sketched: initializing it takes seconds. */
    bool before = aril__sketch(true);
    const char *path = saved("googlenet", (aril_zoo_opts){ .aux = true }, NULL, "g.safetensors");
    aril__sketch(before);
    CHECK_MSG(path, "%s", aril_error());
    aril_module *m = aril_zoo_make("googlenet", (aril_zoo_opts){ .weights = path });
    CHECK_MSG(m, "%s", aril_error());
    CHECK_NEAR(sum_of(m, "fc.weight"), 0, 0);
    aril_module_release(m);
}
