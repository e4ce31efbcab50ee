/* Event files, read back. With ARIL_TENSORBOARD_OUT the first test writes there, for the comparison
 * with TensorBoard's own reader (peers/event_files.py). */
#include "formats/schemas.h"
#include "formats/tensorboard.h"
#include "support/device.h"
#include "support/test.h"

#include <aril/aril.h>
#include <aril/nn.h>

#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <signal.h>
#include <unistd.h>

/* ---- files ---- */

static unsigned char *read_all(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    unsigned char *data = malloc(1 << 20);
    *n = f && data ? fread(data, 1, 1 << 20, f) : 0;
    if (f) fclose(f);
    return data;
}

static bool find_events(const char *folder, char *path, size_t size)
{
    DIR *d = opendir(folder);
    bool found = false;
    for (struct dirent *e; d && (e = readdir(d)) != NULL;)
        if (strncmp(e->d_name, "events.out.tfevents.", 20) == 0) {
            snprintf(path, size, "%s/%s", folder, e->d_name);
            found = true;
        }
    if (d) closedir(d);
    return found;
}

static void remove_folder(const char *folder)
{
    char path[4096];
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d)) != NULL;) {
        if (e->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        if (unlink(path) != 0) remove_folder(path);
    }
    if (d) closedir(d);
    rmdir(folder);
}

/* ---- a log with everything ---- */

static void write_log(const char *folder)
{
    ARIL_SCOPE;
    aril_seed(1);
    aril_tensorboard *tb = aril_tensorboard_new(folder);
    CHECK(tb);
    for (int i = 0; i < 50; i++) {
        CHECK_INT(aril_tensorboard_scalar(tb, "loss/train", exp(-i * 0.1), i), ARIL_OK);
        CHECK_INT(aril_tensorboard_scalar(tb, "accuracy", 1 - exp(-i * 0.1), i), ARIL_OK);
    }
    for (int i = 0; i < 5; i++) {
        aril_tensor *x = aril_randn(ARIL_SHAPE(1000), ARIL_F32, test_device());
        x = aril_add_scalar(aril_mul_scalar(x, 1 + 0.2 * i), i);
        CHECK_INT(aril_tensorboard_histogram(tb, "weights/w1", x, i), ARIL_OK);
    }
    aril_tensor *ramp = aril_linspace(0, 1, 3 * 32 * 48, ARIL_F32, test_device());
    CHECK_INT(aril_tensorboard_image(tb, "ramp", aril_reshape(ramp, ARIL_SHAPE(3, 32, 48)), 3),
              ARIL_OK);
    aril_tensor *batch = aril_rand(ARIL_SHAPE(10, 1, 12, 12), ARIL_F32, test_device());
    CHECK_INT(aril_tensorboard_image(tb, "sheet", batch, 3), ARIL_OK);
    CHECK_INT(aril_tensorboard_text(tb, "notes", "A **run** of `Aril`", 0), ARIL_OK);
    aril_tensor *scores = aril_rand(ARIL_SHAPE(500), ARIL_F32, test_device());
    aril_tensor *labels = aril_bernoulli(scores);
    CHECK_INT(aril_tensorboard_pr_curve(tb, "classes/0", labels, scores, 0, 1), ARIL_OK);
    aril_tensor *points = aril_randn(ARIL_SHAPE(10, 8), ARIL_F32, test_device());
    static const char *const names[] = { "zero", "one", "two",   "three", "four",
                                         "five", "six", "seven", "eight", "nine" };
    CHECK_INT(aril_tensorboard_embedding(tb, "digits", points,
                                         (aril_tensorboard_embedding_opts){ names, batch }),
              ARIL_OK);
    static const aril_hparam hparams[] = { { "lr", NULL, 0.1 }, { "optimizer", "sgd", 0 } };
    static const char *const metrics[] = { "accuracy" };
    CHECK_INT(aril_tensorboard_hparams(tb, hparams, 2, metrics, 1), ARIL_OK);
    static const char *const from_x[] = { "x" }, *const from_fc[] = { "net/fc" };
    static const aril_tensorboard_node nodes[] = {
        { "x", "Input", 0, NULL, { 2, { -1, 784 } }, NULL },
        { "net/fc", "Linear", 1, from_x, { 2, { -1, 10 } }, "784 to 10" },
        { "net/relu", "ReLU", 1, from_fc, { 2, { -1, 10 } }, NULL },
    };
    CHECK_INT(aril_tensorboard_graph(tb, nodes, 3), ARIL_OK);
    CHECK_INT(aril_tensorboard_hparams_end(tb, true), ARIL_OK);
    CHECK_INT(aril_tensorboard_flush(tb), ARIL_OK);
    aril_tensorboard_free(tb);
    CHECK(aril_ok());
}

typedef struct seen {
    int events, scalars, histograms, images, tensors, graphs;
    double last_loss, histogram_count;
    bool version;
} seen;

static void read_value(const aril__message *value, int64_t step, seen *s)
{
    const char *tag = aril__message_text(value, "tag");
    CHECK(*tag);
    s->scalars += aril__message_has(value, "simple_value");
    s->images += aril__message_has(value, "image");
    s->tensors += aril__message_has(value, "tensor");
    s->histograms += aril__message_has(value, "histo");
    if (strcmp(tag, "loss/train") == 0 && step == 49)
        s->last_loss = aril__message_number(value, "simple_value");
    const aril__message *histogram = aril__message_sub(value, "histo");
    for (size_t i = 0; i < aril__message_count(histogram, "bucket"); i++)
        s->histogram_count += aril__message_number_at(histogram, "bucket", i);
}

static void read_event(const unsigned char *at, size_t n, seen *s)
{
    aril__message *event =
        aril__message_read(&aril__tensorboard_Event, at, n, (aril__message_opts){ 0 });
    CHECK_MSG(event, "%s", aril_error());
    s->events++;
    s->version |= strcmp(aril__message_text(event, "file_version"), "brain.Event:2") == 0;
    s->graphs += aril__message_has(event, "graph_def");
    const aril__message *summary = aril__message_sub(event, "summary");
    for (size_t i = 0; i < aril__message_count(summary, "value"); i++)
        read_value(aril__message_sub_at(summary, "value", i), aril__message_int(event, "step"), s);
    aril__message_free(event);
}

TEST(file_contains_everything)
{
    char made[] = "/tmp/aril_tb_XXXXXX", folder[4096], path[4096];
    const char *out = getenv("ARIL_TENSORBOARD_OUT");
    CHECK(out || mkdtemp(made));
    snprintf(folder, sizeof folder, "%s/runs/one", out ? out : made);
    write_log(folder);
    if (test_failed()) return;
    CHECK(find_events(folder, path, sizeof path));
    size_t n = 0, at = 0;
    unsigned char *data = read_all(path, &n);
    seen s = { 0 };
    while (at + 12 <= n && !test_failed()) {
        uint64_t length = 0;
        for (int i = 0; i < 8; i++) length |= (uint64_t)data[at + (size_t)i] << 8 * i;
        CHECK(length <= n - at - 16);
        read_event(data + at + 12, length, &s);
        at += 16 + length;
    }
    CHECK_INT(at, n);
    free(data);
    CHECK(s.version);
    CHECK_INT(s.scalars, 100);
    CHECK_INT(s.histograms, 5);
    CHECK_NEAR(s.histogram_count, 5000, 0);
    CHECK_INT(s.images, 2);
    CHECK_INT(s.tensors, 2);
    CHECK_INT(s.graphs, 1);
    CHECK_NEAR(s.last_loss, exp(-4.9), 1e-8);
    static const char *const beside[] = { "projector_config.pbtxt", "digits/tensors.tsv",
                                          "digits/metadata.tsv", "digits/sprite.png" };
    for (size_t i = 0; i < sizeof beside / sizeof *beside; i++) {
        struct stat st;
        snprintf(path, sizeof path, "%s/runs/one/%s", out ? out : made, beside[i]);
        CHECK_MSG(stat(path, &st) == 0 && st.st_size > 0, "no file %s", beside[i]);
    }
    if (!out) remove_folder(made);
}

/* ---- the graph of a module ---- */

static bool has(const unsigned char *data, size_t n, const char *text)
{
    return memmem(data, n, text, strlen(text)) != NULL;
}

static aril_tensor *twice_forward(aril_module *self, aril_tensor *x)
{
    aril_module *a = aril_module_child(self, 0), *b = aril_module_child(self, 1);
    return aril_forward(b, aril_tanh(aril_add(aril_forward(a, x), x)));
}

TEST(modules_as_graphs)
{
    ARIL_SCOPE;
    char made[] = "/tmp/aril_tb_XXXXXX", path[4096];
    CHECK(mkdtemp(made));
    aril_module *net = aril_module_new("Net", 0, twice_forward);
    aril_module_add(net, "first", aril_nn_sequential(aril_nn_linear(8, 8), aril_nn_relu()));
    aril_module_add(net, "second", aril_nn_linear(8, 2));
    aril_tensorboard *tb = aril_tensorboard_new(made);
    CHECK_INT(aril_tensorboard_module(tb, net, ARIL_SHAPE(8)), ARIL_OK);
    CHECK(aril_module_training(net));
    CHECK_INT(aril_tensorboard_module(tb, net, ARIL_SHAPE(9)), ARIL_ERR_SHAPE);
    aril_clear_error();
    aril_tensorboard_free(tb);
    CHECK(find_events(made, path, sizeof path));
    size_t n;
    unsigned char *data = read_all(path, &n);
    static const char *const names[] = { "input",
                                         "output",
                                         "Net/Sequential.first/Linear.0/linear",
                                         "Net/Sequential.first/Linear.0/weight",
                                         "Net/Sequential.first/ReLU.1/relu",
                                         "Net/add",
                                         "Net/tanh",
                                         "Net/Linear.second/linear",
                                         "Net/Linear.second/bias" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        CHECK_MSG(has(data, n, names[i]), "no node %s", names[i]);
    CHECK(!has(data, n, "Linear.second/tanh") && !has(data, n, "linear_1"));
    free(data);
    aril_module_release(net);
    remove_folder(made);
}

/* The checksum of a known record, as TensorFlow writes it. */
TEST(checksums)
{
    char made[] = "/tmp/aril_tb_XXXXXX", path[4096];
    CHECK(mkdtemp(made));
    aril_tensorboard_free(aril_tensorboard_new(made));
    CHECK(find_events(made, path, sizeof path));
    size_t n;
    unsigned char *data = read_all(path, &n);
    /* A record of 24 bytes: the checksum of its length is the same in every such file. */
    static const unsigned char head[] = { 24, 0, 0, 0, 0, 0, 0, 0, 0xa3, 0x7f, 0x4b, 0x22 };
    CHECK_INT(n, 40);
    CHECK(memcmp(data, head, sizeof head) == 0);
    free(data);
    remove_folder(made);
}

TEST(invalid_arguments_are_rejected)
{
    ARIL_SCOPE;
    char made[] = "/tmp/aril_tb_XXXXXX", path[4096];
    CHECK(mkdtemp(made));
    CHECK(aril_tensorboard_new("") == NULL && aril_error_code() == ARIL_ERR_ARG);
    aril_clear_error();
    snprintf(path, sizeof path, "%s/file", made);
    fclose(fopen(path, "w"));
    snprintf(path, sizeof path, "%s/file/log", made);
    CHECK(aril_tensorboard_new(path) == NULL && aril_error_code() == ARIL_ERR_IO);
    CHECK(strstr(aril_error(), "/file'"));
    aril_clear_error();
    CHECK_INT(aril_tensorboard_scalar(NULL, "x", 1, 1), ARIL_ERR_ARG);
    aril_clear_error();
    aril_tensorboard *tb = aril_tensorboard_new(made);
    aril_tensor *x = aril_zeros(ARIL_SHAPE(2, 5, 4, 4), ARIL_F32, test_device());
    CHECK_INT(aril_tensorboard_scalar(tb, NULL, 1, 1), ARIL_ERR_ARG);
    aril_clear_error();
    CHECK_INT(aril_tensorboard_image(tb, "x", x, 1), ARIL_ERR_SHAPE);
    aril_clear_error();
    aril_tensor *three = aril_ones(ARIL_SHAPE(3), ARIL_F32, test_device());
    aril_tensor *two = aril_ones(ARIL_SHAPE(2), ARIL_F32, test_device());
    CHECK_INT(aril_tensorboard_pr_curve(tb, "x", three, two, 0, 1), ARIL_ERR_SHAPE);
    aril_clear_error();
    CHECK_INT(aril_tensorboard_pr_curve(tb, "x", two, aril_mul_scalar(two, 2), 0, 1),
              ARIL_ERR_NUMBER);
    aril_clear_error();
    CHECK_INT(aril_tensorboard_embedding(tb, "x", three, (aril_tensorboard_embedding_opts){ 0 }),
              ARIL_ERR_SHAPE);
    aril_clear_error();
    /* A module that is already built, and an invalid shape. */
    aril_module *built = aril_nn_linear(3, 2);
    for (int ndim = -1; ndim < 100; ndim += 100 - 1) {
        CHECK_INT(aril_tensorboard_module(tb, built, (aril_shape){ .ndim = ndim }), ARIL_ERR_SHAPE);
        aril_clear_error();
    }
    aril_module_release(built);
    /* All NaN: an empty histogram. */
    aril_tensor *none = aril_full_like(three, NAN);
    CHECK_INT(aril_tensorboard_histogram(tb, "x", none, 1), ARIL_OK);
    aril_tensorboard_free(tb);
    CHECK(aril_ok());
    remove_folder(made);
}

TEST(full_disk_is_reported)
{
    char made[] = "/tmp/aril_tb_XXXXXX";
    struct rlimit old, small;
    CHECK(mkdtemp(made));
    getrlimit(RLIMIT_FSIZE, &old);
    small = old;
    small.rlim_cur = 4096;
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    aril_tensorboard *tb = aril_tensorboard_new(made);
    CHECK(tb);
    setrlimit(RLIMIT_FSIZE, &small);
    aril_status s = ARIL_OK;
    for (int i = 0; i < 10000 && s == ARIL_OK; i++) s = aril_tensorboard_scalar(tb, "x", i, i);
    setrlimit(RLIMIT_FSIZE, &old);
    signal(SIGXFSZ, handler);
    CHECK_INT(s, ARIL_ERR_IO);
    aril_tensorboard_free(tb);
    aril_clear_error();
    remove_folder(made);
}

TEST(histograms_of_wide_ranges)
{
    char made[] = "/tmp/aril_tb_XXXXXX";
    CHECK(mkdtemp(made));
    {
        ARIL_SCOPE;
        aril_tensorboard *tb = aril_tensorboard_new(made);
        const double far[] = { -1.7e308, 0, 1.7e308, NAN };
        aril_tensor *t = aril_from(far, ARIL_SHAPE(4), ARIL_F64, test_device());
        CHECK_INT(aril_tensorboard_histogram(tb, "far", t, 0), ARIL_OK);
        aril_tensor *line = aril_ones(ARIL_SHAPE(3), ARIL_F32, test_device());
        CHECK_INT(aril_tensorboard_embedding(tb, "line", line,
                                             (aril_tensorboard_embedding_opts){ 0 }),
                  ARIL_ERR_SHAPE);
        CHECK(strstr(aril_error(), "[N,D]") != NULL);
        aril_clear_error();
        aril_tensorboard_free(tb);
    }
    remove_folder(made);
}
