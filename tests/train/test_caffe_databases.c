/* The nets and solvers of ARIL_TEST_DATA that name sources of data, on small generated ones: a copy
 * of the folder gets the databases, lists, files and means that its prototxts name, and each solver
 * trains for two iterations and tests. In the copies only counts are changed (batches, iterations,
 * snapshots) and, for nets like AlexNet, the crop; ARIL_TEST_FULL=1 keeps the crop and runs the
 * largest nets too. */
#include "aril/aril.h"
#include "formats/atomic_file.h"
#include "support/device.h"
#include "support/temp.h"
#include "support/test.h"

#include <ftw.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST = 128, BATCH = 2 };

static char *paths[MOST]; /* of prototxts, below their folder */
static int n_paths;
static char from[1024], root[1024]; /* of the test data, of the copy */

/* ---- a copy of the prototxts ---- */

static int note_path(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st, (void)at;
    size_t n = strlen(path);
    if (kind == FTW_F && n > 9 && strcmp(path + n - 9, ".prototxt") == 0 && n_paths < MOST)
        paths[n_paths++] = strdup(path + strlen(from) + 1);
    return 0;
}

static int by_path(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool find_paths(void)
{
    const char *data = getenv("ARIL_TEST_DATA");
    snprintf(from, sizeof from, "%s/caffe-prototxt", data ? data : "../shared/data");
    snprintf(root, sizeof root, "%s", temp_path(""));
    while (n_paths) free(paths[--n_paths]);
    nftw(from, note_path, 16, FTW_PHYS);
    qsort(paths, (size_t)n_paths, sizeof *paths, by_path);
    if (n_paths == 0) test_skip("no %s", from);
    return n_paths > 0;
}

/* root/PATH, whose folder exists afterwards. */
static const char *in_copy(const char *path)
{
    static char full[4][2048];
    static int k;
    char *to = full[k++ % 4];
    snprintf(to, sizeof full[0], "%s/%s", root, path);
    for (char *slash = strchr(to + strlen(root) + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(to, 0700);
        *slash = '/';
    }
    return to;
}

/* Fields that get other values: counts that would take hours. */
static const struct {
    const char *name, *value;
} edits[] = {
    { "batch_size:", "2" },    { "max_iter:", "2" }, { "test_iter:", "1" }, { "display:", "0" },
    { "test_interval:", "2" }, { "snapshot:", "0" }, { "iter_size:", "2" },
};
enum { EDITS = sizeof edits / sizeof *edits };

/* Copies a line, edited; sources of the whole machine are taken as of the folder. */
static void put_line(FILE *to, const char *line, const char *net, int crop)
{
    const char *word = line + strspn(line, " \t"), *slash = strstr(line, "source: \"/");
    int indent = (int)(word - line);
    for (int i = 0; i < EDITS; i++)
        if (strncmp(word, edits[i].name, strlen(edits[i].name)) == 0) {
            fprintf(to, "%.*s%s %s\n", indent, line, edits[i].name, edits[i].value);
            return;
        }
    if (strncmp(word, "test_initialization:", 20) == 0) return; /* set at the end */
    if (net && strncmp(word, "net:", 4) == 0)
        fprintf(to, "net: \"%s\"\n", net);
    else if (crop && strncmp(word, "crop_size:", 10) == 0)
        fprintf(to, "%.*scrop_size: %d\n", indent, line, crop);
    else if (slash)
        fprintf(to, "%.*ssource: \"%s", indent, line, slash + strlen("source: \"/"));
    else
        fputs(line, to);
}

/* Copies a file to `as` in the copy, whose path is returned. net: what a solver names instead. */
static const char *copy_as(const char *path, const char *as, const char *net, int crop)
{
    char full[2048], line[4096];
    snprintf(full, sizeof full, "%s/%s", from, path);
    const char *target = in_copy(as);
    FILE *in = fopen(full, "r"), *to = fopen(target, "w");
    while (in && to && fgets(line, sizeof line, in)) put_line(to, line, net, crop);
    if (to && strstr(path, "solver"))
        fputs("\nsnapshot_after_train: false test_initialization: false\n", to);
    bool good = in && to && !ferror(in) && !ferror(to);
    if (in) fclose(in);
    if (to) fclose(to);
    return good ? target : "a file that could not be copied";
}

/* Where a file of the test data is in a folder of Caffe's: that of BVLC is its root. */
static const char *place_of(const char *path)
{
    return strncmp(path, "bvlc/", 5) == 0 ? path + 5 : path;
}

/* ---- sources ---- */

static bool put_text(const char *path, const char *text)
{
    return aril__file_replace(in_copy(path), text, strlen(text)) == ARIL_OK;
}

static aril_tensor *images(int64_t n, int64_t c, int64_t side)
{
    return aril_cast(aril_mul_scalar(aril_rand(ARIL_SHAPE(n, c, side, side), ARIL_F32, aril_cpu()),
                                     255),
                     ARIL_U8);
}

/* A database of three images: fewer than two batches, so that the second one wraps around. */
static bool put_lmdb(const char *path, int64_t c, int64_t side)
{
    ARIL_SCOPE;
    static const int64_t labels[] = { 0, 1, 1 };
    aril_dataset *d = aril_dataset_tensors(images(3, c, side),
                                           aril_from(labels, ARIL_SHAPE(3), ARIL_I64, aril_cpu()));
    int64_t n = d ? aril_caffe_import(d, in_copy(path), (aril_caffe_import_opts){ 0 }) : -1;
    aril_dataset_release(d);
    return n == 3;
}

static bool put_mean(const char *lmdb, const char *path)
{
    return aril_caffe_mean(in_copy(lmdb), in_copy(path)) == ARIL_OK;
}

static bool put_image(const char *path, int64_t height, int64_t width)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_rand(ARIL_SHAPE(3, height, width), ARIL_F32, aril_cpu());
    return aril_image_write(in_copy(path), aril_cast(aril_mul_scalar(x, 255), ARIL_U8),
                            (aril_image_write_opts){ 0 }) == ARIL_OK;
}

/* ---- solvers ---- */

static const char *base_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* The file of the net that a solver trains, by the names in the test data: "net:" of the solver if
 * there is such a file, else the solver's own name with train_val. Returns false if the net is in
 * the solver. */
static bool net_of(const char *solver, char *net, size_t size)
{
    char full[2048], line[4096], name[1024] = "";
    snprintf(full, sizeof full, "%s/%s", from, solver);
    FILE *in = fopen(full, "r");
    while (in && fgets(line, sizeof line, in))
        if (sscanf(line, "net: \"%1023[^\"]", name) == 1) break;
    if (in) fclose(in);
    if (!*name) return false;
    for (int i = 0; i < n_paths; i++)
        if (strcmp(place_of(paths[i]), name) == 0) return snprintf(net, size, "%s", paths[i]), true;
    const char *word = strstr(solver, "solver");
    snprintf(net, size, "%.*strain_val%s", (int)(word - solver), solver, word + strlen("solver"));
    return true;
}

/* Copies of the biases, whose changes show that a net learns. */
static int copy_biases(aril_module *net, aril_tensor **to, int most)
{
    const aril_named *p = aril_parameters(net);
    int n = 0;
    for (int i = p ? p->n - 1 : -1; i >= 0 && n < most; i--)
        if (aril_ndim(p->at[i]) == 1) to[n++] = aril_copy(aril_detach(p->at[i]));
    return n;
}

static void check_scores(aril_caffe_solver *s, const char *path)
{
    double score[64];
    for (int i = 0; i < aril_caffe_solver_tests(s); i++) {
        CHECK_MSG(aril_caffe_solver_test(s, i, score) == ARIL_OK, "%s: %s", path, aril_error());
        int n = aril_caffe_outputs(aril_caffe_solver_test_net(s, i));
        CHECK_MSG(n > 0 && n < 64, "%s: %d outputs", path, n);
        for (int k = 0; k < n; k++)
            CHECK_MSG(isfinite(score[k]), "%s: score %d is %g", path, k, score[k]);
    }
}

static void train(aril_caffe_solver *s, const char *path, int tests)
{
    ARIL_SCOPE;
    enum { FEW = 64 };
    aril_tensor *before[FEW], *after[FEW];
    int n = copy_biases(aril_caffe_solver_net(s), before, FEW);
    CHECK_MSG(aril_caffe_solver_solve(s) == ARIL_OK, "%s: %s", path, aril_error());
    CHECK_INT(aril_caffe_solver_iter(s), 2);
    CHECK_MSG(isfinite(aril_caffe_solver_loss(s)), "%s: the loss is %g", path,
              aril_caffe_solver_loss(s));
    CHECK_INT(copy_biases(aril_caffe_solver_net(s), after, FEW), n);
    bool learns = false;
    for (int i = 0; i < n && !learns; i++)
        learns = aril_item(aril_amax(aril_abs(aril_sub(after[i], before[i])), ARIL_ALL)) > 0;
    CHECK_MSG(learns, "%s: nothing has changed", path);
    CHECK_MSG(aril_caffe_solver_tests(s) == tests, "%s: %d test nets", path,
              aril_caffe_solver_tests(s));
    check_scores(s, path);
}

/* Trains by a solver, with the smallest of the crops that its net allows (0: its own). */
static void run_solver(const char *path, const int *crop, int tests)
{
    char net[1024] = "", named[1024], solver[2048];
    bool has_net = net_of(path, net, sizeof net);
    snprintf(named, sizeof named, "%s", place_of(net));
    snprintf(solver, sizeof solver, "%s", copy_as(path, place_of(path), has_net ? named : NULL, 0));
    aril_caffe_solver *s = NULL;
    for (; !s; crop++) {
        if (has_net) copy_as(net, named, NULL, *crop);
        aril_clear_error();
        s = aril_caffe_solver_open(solver, (aril_caffe_solver_opts){ .workers = -1,
                                                                     .device = test_device(),
                                                                     .has_device = true });
        if (!*crop) break;
    }
    CHECK_MSG(s, "%s: %s", path, aril_error());
    train(s, path, tests);
    aril_caffe_solver_free(s);
}

static const int as_they_are[] = { 0 };

/* All solvers whose paths contain a word; returns how many. */
static int run_solvers(const char *word, const int *crop, int tests)
{
    int n = 0;
    for (int i = 0; i < n_paths; i++) {
        const char *name = base_of(paths[i]);
        if (!strstr(paths[i], word) || !strstr(name, "solver")) continue;
        n++;
        run_solver(paths[i], crop, tests);
        if (test_failed()) break;
    }
    return n;
}

/* ---- MNIST's size ---- */

TEST(lenet_and_the_autoencoder_train_on_databases)
{
    if (!find_paths()) return;
    aril_seed(1);
    CHECK(put_lmdb("examples/mnist/mnist_train_lmdb", 1, 28));
    CHECK(put_lmdb("examples/mnist/mnist_test_lmdb", 1, 28));
    /* Nets that a script writes; those of the other solvers are the same. */
    copy_as("bvlc/examples/mnist/lenet_train_test.prototxt", "mnist/lenet_auto_train.prototxt",
            NULL, 0);
    copy_as("bvlc/examples/mnist/lenet_train_test.prototxt", "mnist/lenet_auto_test.prototxt", NULL,
            0);
    CHECK_INT(run_solvers("mnist/lenet_consolidated", as_they_are, 2), 1);
    CHECK_INT(run_solvers("mnist/mnist_autoencoder", as_they_are, 2), 4);
    static const char *const others[] = { "lenet_adadelta", "lenet_auto", "lenet_multistep",
                                          "lenet_solver.", "lenet_solver_" };
    static const int counts[] = { 1, 1, 1, 1, 2 };
    for (int i = 0; i < 5; i++) CHECK_INT(run_solvers(others[i], as_they_are, 1), counts[i]);
}

TEST(the_siamese_net_trains_on_a_database)
{
    if (!find_paths()) return;
    aril_seed(1);
    CHECK(put_lmdb("examples/siamese/mnist_siamese_train_lmdb", 2, 28));
    CHECK(put_lmdb("examples/siamese/mnist_siamese_test_lmdb", 2, 28));
    CHECK_INT(run_solvers("siamese", as_they_are, 1), 1);
}

/* ---- CIFAR's size ---- */

TEST(nets_of_cifar_train_on_databases_and_a_mean)
{
    if (!find_paths()) return;
    aril_seed(1);
    CHECK(put_lmdb("examples/cifar10/cifar10_train_lmdb", 3, 32));
    CHECK(put_lmdb("examples/cifar10/cifar10_test_lmdb", 3, 32));
    CHECK(put_mean("examples/cifar10/cifar10_train_lmdb", "examples/cifar10/mean.binaryproto"));
    CHECK_INT(run_solvers("cifar10", as_they_are, 1), 7);
}

/* ---- ImageNet's size ---- */

static const int *crops(void)
{
    static const int small[] = { 67, 131, 0 };
    return getenv("ARIL_TEST_FULL") ? as_they_are : small;
}

static bool put_imagenet(void)
{
    aril_seed(1);
    return put_lmdb("examples/imagenet/ilsvrc12_train_lmdb", 3, 256) &&
           put_lmdb("examples/imagenet/ilsvrc12_val_lmdb", 3, 256) &&
           put_mean("examples/imagenet/ilsvrc12_train_lmdb",
                    "data/ilsvrc12/imagenet_mean.binaryproto");
}

TEST(alexnet_and_caffenet_train_on_databases)
{
    if (!find_paths()) return;
    CHECK(put_imagenet());
    CHECK_INT(run_solvers("bvlc_alexnet", crops(), 1), 1);
    CHECK_INT(run_solvers("caffenet", crops(), 1), 1);
}

TEST(googlenet_trains_on_databases)
{
    if (!find_paths()) return;
    CHECK(put_imagenet());
    /* Its two solvers differ in their schedules. */
    bool full = getenv("ARIL_TEST_FULL") != NULL;
    CHECK_INT(run_solvers(full ? "googlenet" : "googlenet/quick", as_they_are, 1), full ? 2 : 1);
}

TEST(squeezenets_train_on_databases)
{
    if (!find_paths()) return;
    CHECK(put_imagenet());
    CHECK(put_lmdb("localdisk/imagenet/compressed_lmdb/ilsvrc12_train_lmdb", 3, 256));
    CHECK(put_lmdb("localdisk/imagenet/compressed_lmdb/ilsvrc12_val_lmdb", 3, 256));
    bool full = getenv("ARIL_TEST_FULL") != NULL;
    CHECK_INT(run_solvers("squeezenet/", as_they_are, 1), 2);
    CHECK_INT(run_solvers(full ? "squeezenext/" : "SqNxt-23_", as_they_are, 1), full ? 2 : 1);
}

static bool put_images(void)
{
    return put_image("images/wide.png", 120, 150) && put_image("images/high.png", 160, 110);
}

TEST(the_flickr_net_trains_on_lists_of_images)
{
    if (!find_paths()) return;
    CHECK(put_imagenet());
    if (!put_images()) SKIP("%s", aril_error());
    char list[2500];
    snprintf(list, sizeof list, "%s/images/wide.png 3\n%s/images/high.png 19\n", root, root);
    CHECK(put_text("data/flickr_style/train.txt", list));
    CHECK(put_text("data/flickr_style/test.txt", "images/high.png 0\nimages/wide.png 1\n"));
    CHECK_INT(run_solvers("flickr", crops(), 1), 1);
}

TEST(the_detector_trains_on_windows)
{
    if (!find_paths()) return;
    CHECK(put_imagenet());
    if (!put_images()) SKIP("%s", aril_error());
    static const char windows[] =
        "# 0\nimages/wide.png\n3\n120\n150\n3\n7 0.9 10 20 90 80\n5 0.2 0 0 40 50\n9 0.6 60 30 149 "
        "110\n# 1\nimages/high.png\n3\n160\n110\n2\n1 0.8 4 4 100 120\n2 0.1 50 90 109 159\n";
    CHECK(put_text("examples/finetune_pascal_detection/window_file_2007_trainval.txt", windows));
    CHECK(put_text("examples/finetune_pascal_detection/window_file_2007_test.txt", windows));
    CHECK_INT(run_solvers("pascal", crops(), 1), 1);
}

/* ---- nets without a solver ---- */

/* Runs a net on its own data: one pass forward and, if it learns, backward. */
static void run_net(const char *path, aril_caffe_phase phase, aril_shape shape, int crop)
{
    ARIL_SCOPE;
    aril_module *net = aril_caffe_net(copy_as(path, place_of(path), NULL, crop),
                                      (aril_caffe_opts){ .phase = phase, .root = root });
    CHECK_MSG(net, "%s: %s", path, aril_error());
    aril_caffe_feed *f = aril_caffe_feed_new(
        net, (aril_caffe_feed_opts){ .root = root, .train = phase == ARIL_CAFFE_TRAIN });
    CHECK_MSG(f, "%s: %s", path, aril_error());
    aril_tensor *in[4], *out[8];
    int n_in = aril_caffe_inputs(net), n_out = aril_caffe_outputs(net);
    CHECK_INT(n_in, 2);
    CHECK(n_out > 0 && n_out <= 8);
    CHECK_MSG(aril_caffe_feed_next(f, in) == ARIL_OK, "%s: %s", path, aril_error());
    aril_shape got = aril_shape_of(in[0]);
    CHECK(got.ndim == shape.ndim &&
          memcmp(got.dim, shape.dim, sizeof(int64_t) * (size_t)shape.ndim) == 0);
    aril_tensor *loss = aril_caffe_loss(net, (aril_list){ n_in, in }, out);
    CHECK_MSG(aril_ok(), "%s: %s", path, aril_error());
    if (phase == ARIL_CAFFE_TRAIN)
        CHECK_MSG(aril_backward(loss) == ARIL_OK, "%s: %s", path, aril_error());
    for (int i = 0; i < n_out; i++)
        CHECK_MSG(isfinite(aril_item(aril_sum(out[i], ARIL_ALL))), "%s: output %d", path, i);
    aril_caffe_feed_free(f);
    aril_module_release(net);
}

TEST(nets_of_hdf5_files_run)
{
    if (!find_paths()) return;
    aril_seed(1);
    float labels[5] = { 0, 1, 1, 0, 1 };
    const char *names[] = { "data", "label" };
    aril_tensor *t[] = { aril_randn(ARIL_SHAPE(5, 4), ARIL_F32, aril_cpu()),
                         aril_from(labels, ARIL_SHAPE(5), ARIL_F32, aril_cpu()) };
    if (aril_hdf5_write(in_copy("examples/hdf5_classification/data/a.h5"),
                        &(aril_named){ .n = 2, .at = t, .name = names }) != ARIL_OK)
        SKIP("%s", aril_error());
    static const char list[] = "examples/hdf5_classification/data/a.h5\n";
    CHECK(put_text("examples/hdf5_classification/data/train.txt", list));
    CHECK(put_text("examples/hdf5_classification/data/test.txt", list));
    static const struct {
        const char *name;
        bool train, test;
    } nets[] = { { "train_val", true, true },
                 { "nonlinear_train_val", true, true },
                 { "nonlinear_auto_train", true, false },
                 { "nonlinear_auto_test", false, true } };
    for (int i = 0; i < 4; i++) {
        char path[256];
        snprintf(path, sizeof path, "bvlc/examples/hdf5_classification/%s.prototxt", nets[i].name);
        if (nets[i].train) run_net(path, ARIL_CAFFE_TRAIN, ARIL_SHAPE(BATCH, 4), 0);
        if (nets[i].test) run_net(path, ARIL_CAFFE_TEST, ARIL_SHAPE(BATCH, 4), 0);
    }
}

TEST(the_net_for_features_reads_a_list_of_images)
{
    if (!find_paths()) return;
    CHECK(put_imagenet());
    if (!put_images()) SKIP("%s", aril_error());
    CHECK(put_text("examples/_temp/file_list.txt", "images/wide.png 0\nimages/high.png 0\n"));
    int crop = getenv("ARIL_TEST_FULL") ? 227 : 67;
    run_net("bvlc/examples/feature_extraction/imagenet_val.prototxt", ARIL_CAFFE_TEST,
            ARIL_SHAPE(BATCH, 3, crop, crop), crop);
}
