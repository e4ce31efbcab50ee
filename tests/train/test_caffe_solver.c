/* Caffe's solvers: updates, rates, tests, snapshots. */
#include "aril/aril.h"
#include "formats/atomic_file.h"
#include "formats/bytes.h"
#include "formats/schemas.h"
#include "support/temp.h"
#include "support/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- helpers ---- */

static aril_caffe_solver *parse_with(const char *text, aril_caffe_solver_opts opts)
{
    opts.workers = opts.workers ? opts.workers : -1;
    return aril_caffe_solver_parse(text, strlen(text), NULL, opts);
}

static aril_caffe_solver *parse(const char *text)
{
    return parse_with(text, (aril_caffe_solver_opts){ 0 });
}

/* A database of n samples with three floats and a label. */
enum { SAMPLES = 10, BATCH = 4 };
static const float label_of[SAMPLES] = { 1, -2, 3, 0, 5, -1, 2, 2, -3, 1 };

static float x_of(int i, int k)
{
    return sinf((float)(3 * i + k + 1) * 1.7f);
}

static bool write_samples(const char *folder)
{
    ARIL_SCOPE;
    float x[SAMPLES * 3];
    int64_t y[SAMPLES];
    for (int i = 0; i < SAMPLES; i++) {
        y[i] = (int64_t)label_of[i];
        for (int k = 0; k < 3; k++) x[3 * i + k] = x_of(i, k);
    }
    aril_dataset *d =
        aril_dataset_tensors(aril_from(x, ARIL_SHAPE(SAMPLES, 3), ARIL_F32, aril_cpu()),
                             aril_from(y, ARIL_SHAPE(SAMPLES), ARIL_I64, aril_cpu()));
    int64_t n = aril_caffe_import(d, folder, (aril_caffe_import_opts){ 0 });
    aril_dataset_release(d);
    return n == SAMPLES;
}

/* A linear regression: y = w x + b, the loss is the mean of squares over 2. */
static const char linear_net[] =
    "name: \"linear\" "
    "layer { name: \"d\" type: \"Data\" top: \"data\" top: \"label\" data_param { source: \"%s\" "
    "batch_size: 4 backend: LMDB } } "
    "layer { name: \"ip\" type: \"InnerProduct\" bottom: \"data\" top: \"ip\" "
    "param { lr_mult: 1 decay_mult: 1 } param { lr_mult: 2 decay_mult: 0 } "
    "inner_product_param { num_output: 1 weight_filler { type: \"constant\" value: 0.3 } "
    "bias_filler { type: \"constant\" value: -0.2 } } } "
    "layer { name: \"shape\" type: \"Reshape\" bottom: \"label\" top: \"target\" "
    "reshape_param { shape { dim: 0 dim: 1 } } } "
    "layer { name: \"loss\" type: \"EuclideanLoss\" bottom: \"ip\" bottom: \"target\" "
    "top: \"loss\" } ";

/* "net_param { ... } " and the rest of a solver. */
static const char *linear_solver(const char *rest)
{
    static char text[12288];
    char net[5120];
    snprintf(net, sizeof net, linear_net, temp_path("db"));
    snprintf(text, sizeof text, "solver_mode: CPU net_param { %s } %s", net, rest);
    return text;
}

/* ---- updates ---- */

typedef struct reference {
    double w[4], a[4], b[4]; /* parameters (three weights, the bias), and their history */
} reference;

typedef struct rule {
    const char *type, *more;
    double momentum, momentum2, decay, delta, clip;
    int iter_size;
    bool l1;
} rule;

/* One update as in Caffe's solvers. */
static void update(const rule *r, double rate, int t, reference *p, int *at)
{
    double g[4] = { 0 }, norm = 0;
    for (int m = 0; m < r->iter_size; m++, *at += BATCH)
        for (int i = 0; i < BATCH; i++) {
            int s = (*at + i) % SAMPLES;
            double y = p->w[3] - label_of[s];
            for (int k = 0; k < 3; k++) y += p->w[k] * (double)x_of(s, k);
            for (int k = 0; k < 3; k++) g[k] += y * (double)x_of(s, k) / BATCH;
            g[3] += y / BATCH;
        }
    for (int k = 0; k < 4; k++) norm += g[k] * g[k];
    norm = sqrt(norm);
    for (int k = 0; k < 4; k++) {
        if (r->clip > 0 && norm > r->clip) g[k] *= r->clip / norm;
        g[k] /= r->iter_size;
        if (k < 3) g[k] += r->decay * (r->l1 ? (p->w[k] > 0) - (p->w[k] < 0) : p->w[k]);
        double lr = rate * (k < 3 ? 1 : 2), *a = &p->a[k], *b = &p->b[k], mu = r->momentum, step;
        if (strcmp(r->type, "SGD") == 0) {
            step = *a = mu * *a + lr * g[k];
        } else if (strcmp(r->type, "Nesterov") == 0) {
            double before = *a;
            *a = mu * before + lr * g[k];
            step = (1 + mu) * *a - mu * before;
        } else if (strcmp(r->type, "AdaGrad") == 0) {
            *a += g[k] * g[k];
            step = lr * g[k] / (sqrt(*a) + r->delta);
        } else if (strcmp(r->type, "RMSProp") == 0) {
            *a = r->momentum2 * *a + (1 - r->momentum2) * g[k] * g[k];
            step = lr * g[k] / (sqrt(*a) + r->delta);
        } else if (strcmp(r->type, "AdaDelta") == 0) {
            *a = mu * *a + (1 - mu) * g[k] * g[k];
            step = g[k] * sqrt((*b + r->delta) / (*a + r->delta));
            *b = mu * *b + (1 - mu) * step * step;
            step *= lr;
        } else {
            *a = mu * *a + (1 - mu) * g[k];
            *b = r->momentum2 * *b + (1 - r->momentum2) * g[k] * g[k];
            double correction = sqrt(1 - pow(r->momentum2, t)) / (1 - pow(mu, t));
            step = lr * correction * *a / (sqrt(*b) + r->delta);
        }
        p->w[k] -= step;
    }
}

/* The weights and the bias of the linear net. */
static void weights_of(const aril_caffe_solver *s, double w[4])
{
    ARIL_SCOPE;
    for (int i = 0, n = 0; i < 2; i++) {
        aril_tensor *t = aril_caffe_param_at(aril_caffe_solver_net(s), i).tensor;
        const float *v = aril_data(t);
        for (int64_t k = 0; k < aril_numel(t); k++) w[n++] = (double)v[k];
    }
}

TEST(updates_are_those_of_caffe)
{
    static const rule rules[] = {
        { "SGD", "", 0, 0, 0, 0, 0, 1, false },
        { "SGD", "momentum: 0.9 weight_decay: 0.05", 0.9, 0, 0.05, 0, 0, 1, false },
        { "SGD", "momentum: 0.9 weight_decay: 0.05 iter_size: 3 clip_gradients: 0.7", 0.9, 0, 0.05,
          0, 0.7, 3, false },
        { "SGD", "momentum: 0.8 weight_decay: 0.02 regularization_type: \"L1\" clip_gradients: 0.5",
          0.8, 0, 0.02, 0, 0.5, 1, true },
        { "SGD",
          "momentum: 0.8 weight_decay: 0.02 regularization_type: \"L1\" iter_size: 2 "
          "clip_gradients: 0.5",
          0.8, 0, 0.02, 0, 0.5, 2, true },
        { "Nesterov", "momentum: 0.9 weight_decay: 0.01", 0.9, 0, 0.01, 0, 0, 1, false },
        { "AdaGrad", "weight_decay: 0.01 delta: 1e-6", 0, 0, 0.01, 1e-6, 0, 1, false },
        { "RMSProp", "rms_decay: 0.95 weight_decay: 0.01 delta: 1e-5", 0, 0.95, 0.01, 1e-5, 0, 1,
          false },
        { "AdaDelta", "momentum: 0.95 delta: 1e-4 weight_decay: 0.01", 0.95, 0, 0.01, 1e-4, 0, 1,
          false },
        { "Adam", "momentum: 0.9 momentum2: 0.99 delta: 1e-2 weight_decay: 0.01 iter_size: 2", 0.9,
          0.99, 0.01, 1e-2, 0, 2, false },
    };
    CHECK(write_samples(temp_path("db")));
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        const rule *r = &rules[i];
        char rest[512];
        snprintf(
            rest, sizeof rest,
            "type: \"%s\" base_lr: 0.1 lr_policy: \"step\" gamma: 0.5 stepsize: 4 max_iter: 12 "
            "snapshot_after_train: false %s",
            r->type, r->more);
        aril_caffe_solver *s = parse(linear_solver(rest));
        CHECK_MSG(s, "%s: %s", r->type, aril_error());
        reference p = { .w = { 0.3f, 0.3f, 0.3f, -0.2f } };
        int at = 0;
        for (int t = 1; t <= 12; t++) {
            double w[4];
            CHECK_MSG(aril_caffe_solver_step(s, 1) == ARIL_OK, "%s", aril_error());
            update(r, 0.1 * pow(0.5, (t - 1) / 4), t, &p, &at);
            weights_of(s, w);
            for (int k = 0; k < 4; k++)
                CHECK_MSG(fabs(w[k] - p.w[k]) < 2e-5, "%s %s, update %d, parameter %d: %g, not %g",
                          r->type, r->more, t, k, w[k], p.w[k]);
        }
        CHECK_MSG(!aril_caffe_solver_eager_reason(s), "%s", aril_caffe_solver_eager_reason(s));
        aril_caffe_solver_free(s);
    }
}

TEST(rates_follow_the_policies)
{
    static const struct {
        const char *policy;
        double at[4]; /* of iterations 0, 1, 5, 9 */
    } policies[] = {
        { "lr_policy: \"fixed\"", { 0.2, 0.2, 0.2, 0.2 } },
        { "lr_policy: \"step\" gamma: 0.1 stepsize: 5", { 0.2, 0.2, 0.02, 0.02 } },
        { "lr_policy: \"exp\" gamma: 0.5", { 0.2, 0.1, 0.00625, 0.000390625 } },
        { "lr_policy: \"inv\" gamma: 1 power: 0.5",
          { 0.2, 0.141421356, 0.0816496581, 0.0632455532 } },
        { "lr_policy: \"multistep\" gamma: 0.5 stepvalue: 1 stepvalue: 6",
          { 0.2, 0.1, 0.1, 0.05 } },
        /* One value is passed in each iteration, as in Caffe. */
        { "lr_policy: \"multistep\" gamma: 0.5 stepvalue: 1 stepvalue: 1 stepvalue: 5 stepvalue: 5",
          { 0.2, 0.1, 0.025, 0.0125 } },
        { "lr_policy: \"multistep\" gamma: 0.5 stepvalue: 5 stepvalue: 3 stepvalue: 9",
          { 0.2, 0.2, 0.1, 0.025 } },
        { "lr_policy: \"poly\" power: 2", { 0.2, 0.162, 0.05, 0.002 } },
        { "lr_policy: \"sigmoid\" gamma: -0.5 stepsize: 5",
          { 0.184828363, 0.176159416, 0.1, 0.0238405844 } },
        { "lr_policy: \"fixed\" warmup_iter: 4 warmup_start_lr: 0.1", { 0.1, 0.125, 0.2, 0.2 } },
    };
    CHECK(write_samples(temp_path("db")));
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++) {
        char rest[512];
        snprintf(rest, sizeof rest, "base_lr: 0.2 max_iter: 10 snapshot_after_train: false %s",
                 policies[i].policy);
        aril_caffe_solver *s = parse(linear_solver(rest));
        CHECK_MSG(s, "%s", aril_error());
        CHECK_INT(aril_caffe_solver_max_iter(s), 10);
        for (int k = 0; k < 4; k++) {
            static const int at[] = { 0, 1, 5, 9 };
            CHECK_INT(aril_caffe_solver_step(s, at[k] - aril_caffe_solver_iter(s)), ARIL_OK);
            CHECK_NEAR(aril_caffe_solver_lr(s), policies[i].at[k], 1e-7);
        }
        aril_caffe_solver_free(s);
    }
}

TEST(wrong_solvers_are_errors)
{
    static const struct {
        const char *rest, *error;
    } wrong[] = {
        { "lr_policy: \"stp\"", "unknown lr_policy 'stp'; did you mean step?" },
        { "", "unknown lr_policy ''" },
        { "lr_policy: \"step\"", "stepsize must be at least 1" },
        { "lr_policy: \"fixed\" type: \"Sgd2\"", "unknown type 'Sgd2'" },
        { "lr_policy: \"fixed\" type: \"AdaGrad\" momentum: 0.9", "AdaGrad has no momentum" },
        { "lr_policy: \"fixed\" type: \"Adam\" momentum: 1", "from 0 to below 1" },
        { "lr_policy: \"fixed\" regularization_type: \"L3\"", "unknown regularization_type 'L3'" },
        { "lr_policy: \"fixed\" iter_size: 0", "iter_size must be at least 1" },
        { "lr_policy: \"fixed\" base_lr: -1", "base_lr must be at least 0" },
        { "lr_policy: \"fixed\" test_iter: 3", "needs a test_interval" },
        { "lr_policy: \"fixed\" test_iter: 0 test_interval: 1", "test_iter must be at least 1" },
        { "lr_policy: \"fixed\" net: \"x\"", "got 2 of them" },
        { "lr_policy: \"fixed\" test_state { stage: \"a\" }", "test_state must be given for each" },
        { "lr_policy: \"fixed\" no_such_field: 3", "no_such_field" },
    };
    CHECK(write_samples(temp_path("db")));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CHECK(!parse(linear_solver(wrong[i].rest)));
        CHECK_MSG(strstr(aril_error(), wrong[i].error), "%zu: %s", i, aril_error());
        aril_clear_error();
    }
    CHECK(!aril_caffe_solver_open(temp_path("none.prototxt"), (aril_caffe_solver_opts){ 0 }));
    aril_clear_error();
}

/* ---- snapshots ---- */

/* A net with all that a resumed run must find again: crops, mirrors, shuffled data, dropout,
 * statistics of BatchNorm, a test net. */
static const char random_net[] =
    "name: \"random\" "
    "layer { name: \"d\" type: \"Data\" top: \"data\" top: \"label\" include { phase: TRAIN } "
    "transform_param { scale: 0.01 crop_size: 5 mirror: true mean_value: 100 } "
    "data_param { source: \"%s\" batch_size: 6 backend: LMDB shuffle: true rand_skip: 3 } } "
    "layer { name: \"d\" type: \"Data\" top: \"data\" top: \"label\" include { phase: TEST } "
    "transform_param { scale: 0.01 crop_size: 5 mirror: true mean_value: 100 } "
    "data_param { source: \"%s\" batch_size: 4 backend: LMDB } } "
    "layer { name: \"conv\" type: \"Convolution\" bottom: \"data\" top: \"conv\" "
    "convolution_param { num_output: 4 kernel_size: 3 weight_filler { type: \"xavier\" } } } "
    "layer { name: \"bn\" type: \"BatchNorm\" bottom: \"conv\" top: \"conv\" } "
    "layer { name: \"relu\" type: \"ReLU\" bottom: \"conv\" top: \"conv\" } "
    "layer { name: \"drop\" type: \"Dropout\" bottom: \"conv\" top: \"conv\" } "
    "layer { name: \"ip\" type: \"InnerProduct\" bottom: \"conv\" top: \"ip\" "
    "inner_product_param { num_output: 3 weight_filler { type: \"gaussian\" std: 0.1 } } } "
    "layer { name: \"accuracy\" type: \"Accuracy\" bottom: \"ip\" bottom: \"label\" "
    "top: \"accuracy\" include { phase: TEST } } "
    "layer { name: \"loss\" type: \"SoftmaxWithLoss\" bottom: \"ip\" bottom: \"label\" "
    "top: \"loss\" } ";

static bool write_images(const char *folder, int64_t n)
{
    ARIL_SCOPE;
    unsigned char *x = malloc((size_t)n * 3 * 7 * 7);
    int64_t *y = malloc((size_t)n * sizeof *y);
    for (int64_t i = 0; i < n; i++) {
        y[i] = i % 3;
        for (int64_t k = 0; k < 147; k++) x[147 * i + k] = (unsigned char)(i * k * 31 + k * k);
    }
    aril_dataset *d = aril_dataset_images(aril_from(x, ARIL_SHAPE(n, 3, 7, 7), ARIL_U8, aril_cpu()),
                                          aril_from(y, ARIL_SHAPE(n), ARIL_I64, aril_cpu()));
    int64_t written = aril_caffe_import(d, folder, (aril_caffe_import_opts){ 0 });
    aril_dataset_release(d);
    free(x);
    free(y);
    return written == n;
}

static aril_caffe_solver *open_random(const char *prefix, const char *type, const char *snapshot,
                                      int workers, FILE *log)
{
    char net[12288], text[20480], db[4096];
    snprintf(db, sizeof db, "%s", temp_path("images"));
    snprintf(net, sizeof net, random_net, db, db);
    snprintf(text, sizeof text,
             "solver_mode: CPU net_param { %s } type: \"%s\" base_lr: 0.05 lr_policy: \"inv\" "
             "gamma: 0.1 power: 0.75 momentum: 0.9 weight_decay: 0.001 iter_size: 2 max_iter: 20 "
             "display: 3 average_loss: 4 test_iter: 2 test_interval: 4 snapshot: 5 "
             "snapshot_prefix: \"%s/%s\" random_seed: 7",
             net, type, temp_path(""), prefix);
    return parse_with(text, (aril_caffe_solver_opts){
                                .snapshot = snapshot, .workers = workers, .log = log });
}

static void read_file(const char *path, aril__bytes *b)
{
    *b = (aril__bytes){ 0 };
    aril__read_file("file", path, 0, b);
}

static bool same_files(const char *a, const char *b)
{
    aril__bytes x, y;
    read_file(temp_path(a), &x);
    read_file(temp_path(b), &y);
    bool same = x.n > 0 && x.n == y.n && memcmp(x.at, y.at, x.n) == 0;
    aril__bytes_free(&x);
    aril__bytes_free(&y);
    return same;
}

/* Killed at five places and resumed from the latest snapshot, it ends with the same bits. */
TEST(resumed_training_ends_with_the_same_bits)
{
    static const char *const types[] = { "SGD", "Adam" };
    CHECK(write_images(temp_path("images"), 23));
    for (int t = 0; t < 2; t++) {
        aril_caffe_solver *s = open_random("whole", types[t], NULL, 0, NULL);
        CHECK_MSG(s, "%s", aril_error());
        CHECK_MSG(aril_caffe_solver_solve(s) == ARIL_OK, "%s", aril_error());
        double loss = aril_caffe_solver_loss(s);
        aril_caffe_solver_free(s);
        static const int killed_at[] = { 6, 7, 11, 14, 19 };
        char snapshot[4096] = "";
        for (int k = 0; k < 6; k++) {
            aril_seed(1234 + (uint64_t)k);
            s = open_random("part", types[t], *snapshot ? snapshot : NULL, k % 3 - 1, NULL);
            CHECK_MSG(s, "%s", aril_error());
            int64_t until = k < 5 ? killed_at[k] : 20, from = aril_caffe_solver_iter(s);
            CHECK_INT(from, k == 0 ? 0 : killed_at[k - 1] / 5 * 5);
            CHECK_MSG((k < 5 ? aril_caffe_solver_step(s, until - from)
                             : aril_caffe_solver_solve(s)) == ARIL_OK,
                      "%s", aril_error());
            if (k == 5) CHECK_NEAR(aril_caffe_solver_loss(s), loss, 0);
            aril_caffe_solver_free(s);
            snprintf(snapshot, sizeof snapshot, "%s/part_iter_%d.solverstate", temp_path(""),
                     (int)(until / 5 * 5));
        }
        CHECK(same_files("whole_iter_20.caffemodel", "part_iter_20.caffemodel"));
    }
}

/* Lines of a log without times and names of files. */
static void strip(char *text)
{
    char *to = text;
    for (char *line = text, *next; *line; line = next) {
        next = strchr(line, '\n');
        next = next ? next + 1 : line + strlen(line);
        char *open = strstr(line, " iter/s, "), *close = NULL;
        if (open && open < next) {
            while (open > line && *open != '(') open--;
            close = strchr(open, ')');
        }
        bool keep = strncmp(line, "Snapshotting", 12) != 0 && strncmp(line, "Resuming", 8) != 0;
        for (char *c = line; c < next && keep; c++)
            if (!close || c < open - 1 || c > close) *to++ = *c;
    }
    *to = '\0';
}

TEST(output_after_a_resume_is_that_of_the_whole_run)
{
    CHECK(write_images(temp_path("images"), 23));
    char *text[2] = { NULL };
    size_t size[2];
    for (int k = 0; k < 2; k++) {
        FILE *log = open_memstream(&text[k], &size[k]);
        char snapshot[4096];
        snprintf(snapshot, sizeof snapshot, "%s/run_iter_10.solverstate", temp_path(""));
        aril_caffe_solver *s = open_random("run", "SGD", k ? snapshot : NULL, 0, log);
        CHECK_MSG(s, "%s", aril_error());
        CHECK_INT(aril_caffe_solver_solve(s), ARIL_OK);
        aril_caffe_solver_free(s);
        fclose(log);
        strip(text[k]);
    }
    const char *both = strstr(text[0], "Iteration 12, Testing"),
               *resumed = strstr(text[1], "Iteration 12, Testing");
    CHECK(both && resumed);
    CHECK_STR(resumed, both);
    CHECK(strstr(both, "Test net output #0: accuracy = "));
    CHECK(strstr(both, "Optimization Done."));
    free(text[0]);
    free(text[1]);
}

TEST(snapshots_have_the_layout_of_caffe)
{
    static const char *const types[] = { "SGD", "Adam" };
    CHECK(write_images(temp_path("images"), 23));
    for (int t = 0; t < 2; t++) {
        char path[4096];
        aril_caffe_solver *s = open_random("layout", types[t], NULL, 0, NULL);
        CHECK_MSG(s, "%s", aril_error());
        CHECK_INT(aril_caffe_solver_step(s, 3), ARIL_OK);
        CHECK_INT(aril_caffe_solver_snapshot(s, path, sizeof path), ARIL_OK);
        int n = aril_caffe_params(aril_caffe_solver_net(s));
        CHECK_INT(n, 7); /* two of conv, three of bn, two of ip */
        aril__message *m = aril__message_load(&aril__caffe_SolverState, path);
        CHECK_MSG(m, "%s", aril_error());
        CHECK_INT(aril__message_int(m, "iter"), 3);
        CHECK_INT(aril__message_count(m, "history"), (size_t)(n * (t + 1)));
        struct stat st;
        CHECK_INT(stat(aril__message_text(m, "learned_net"), &st), 0);
        for (int i = 0; i < n * (t + 1); i++) {
            const aril__message *blob = aril__message_sub_at(m, "history", (size_t)i);
            aril_tensor *p = aril_caffe_param_at(aril_caffe_solver_net(s), i % n).tensor;
            const aril__message *shape = aril__message_sub(blob, "shape");
            CHECK_INT(aril__message_count(shape, "dim"), aril_ndim(p));
            for (int k = 0; k < aril_ndim(p); k++)
                CHECK_INT(aril__message_int_at(shape, "dim", (size_t)k), aril_size(p, k));
            CHECK_INT(aril__message_array(blob, "data").n, aril_numel(p));
        }
        aril__message_free(m);
        aril_caffe_solver_free(s);
    }
}

/* Without what only Aril writes, the data start over, as with Caffe's own snapshots. */
TEST(snapshots_of_caffe_are_resumed)
{
    CHECK(write_images(temp_path("images"), 23));
    char path[4096], other[4200];
    aril_caffe_solver *s = open_random("caffe", "SGD", NULL, 0, NULL);
    CHECK_INT(aril_caffe_solver_step(s, 5), ARIL_OK);
    CHECK_INT(aril_caffe_solver_snapshot(s, path, sizeof path), ARIL_OK);
    aril_caffe_solver_free(s);
    snprintf(other, sizeof other, "%s.aril", path);
    CHECK_INT(remove(other), 0);
    char *text;
    size_t size;
    FILE *log = open_memstream(&text, &size);
    s = open_random("caffe", "SGD", path, 0, log);
    CHECK_MSG(s, "%s", aril_error());
    CHECK_INT(aril_caffe_solver_iter(s), 5);
    CHECK_INT(aril_caffe_solver_step(s, 1), ARIL_OK);
    aril_caffe_solver_free(s);
    fclose(log);
    CHECK_MSG(strstr(text, "so the data start over"), "%s", text);
    free(text);
    /* Of another solver type: a clear error. */
    CHECK(!open_random("caffe", "Adam", path, 0, NULL));
    CHECK_MSG(strstr(aril_error(), "its history has 7 blobs, but Adam of this net has 14"), "%s",
              aril_error());
    aril_clear_error();
}

TEST(damaged_snapshots_are_errors)
{
    CHECK(write_images(temp_path("images"), 23));
    char path[4096], extension[4200];
    aril_caffe_solver *s = open_random("bad", "SGD", NULL, 0, NULL);
    CHECK_INT(aril_caffe_solver_step(s, 2), ARIL_OK);
    CHECK_INT(aril_caffe_solver_snapshot(s, path, sizeof path), ARIL_OK);
    snprintf(extension, sizeof extension, "%s.aril", path);
    aril__bytes good[2];
    read_file(path, &good[0]);
    read_file(extension, &good[1]);
    uint64_t random = 88172645463325252u;
    int refused = 0;
    for (int k = 0; k < 200; k++) {
        int which = k % 2;
        aril__bytes bad = { 0 };
        aril__bytes_add(&bad, good[which].at, good[which].n);
        for (int j = 0; j < 1 + k % 5; j++) {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            bad.at[random % (k % 3 ? 64 : bad.n)] = (unsigned char)(random >> 40);
        }
        size_t size = k % 4 ? bad.n : random % bad.n;
        CHECK_INT(aril__file_replace(which ? extension : path, bad.at, size), ARIL_OK);
        aril__bytes_free(&bad);
        if (aril_caffe_solver_restore(s, path) < 0) refused++;
        aril_clear_error();
        CHECK_INT(aril__file_replace(which ? extension : path, good[which].at, good[which].n),
                  ARIL_OK);
    }
    CHECK_MSG(refused > 60, "%d of 200", refused);
    CHECK_MSG(aril_caffe_solver_restore(s, path) == ARIL_OK, "%s", aril_error());
    CHECK_INT(aril_caffe_solver_iter(s), 2);
    CHECK_INT(aril_caffe_solver_step(s, 1), ARIL_OK);
    aril_caffe_solver_free(s);
    aril__bytes_free(&good[0]);
    aril__bytes_free(&good[1]);
}

/* ---- actions ---- */

static aril_caffe_action act(void *ctx)
{
    int *left = ctx;
    --*left;
    return *left == 3 ? ARIL_CAFFE_SNAPSHOT : *left == 0 ? ARIL_CAFFE_STOP : ARIL_CAFFE_GO_ON;
}

TEST(actions_snapshot_and_stop)
{
    CHECK(write_samples(temp_path("db")));
    char rest[4500];
    struct stat st;
    int left = 8;
    snprintf(rest, sizeof rest,
             "base_lr: 0.1 lr_policy: \"fixed\" max_iter: 100 snapshot_prefix: \"%s/new/run\"",
             temp_path(""));
    aril_caffe_solver *s =
        parse_with(linear_solver(rest), (aril_caffe_solver_opts){ .action = act, .ctx = &left });
    CHECK_MSG(s, "%s", aril_error());
    CHECK_INT(aril_caffe_solver_solve(s), ARIL_OK);
    CHECK_INT(aril_caffe_solver_iter(s), 8);
    CHECK_INT(stat(temp_path("new/run_iter_5.solverstate"), &st), 0);
    CHECK_INT(stat(temp_path("new/run_iter_8.caffemodel"), &st), 0);
    aril_caffe_solver_free(s);
}

/* A Python layer with state: the n-th call gives a batch of the value n. */
static void next_batch(const char *param, aril_list in, int n_out, aril_tensor **out, void *ctx)
{
    (void)param, (void)in, (void)n_out;
    out[0] = aril_full(ARIL_SHAPE(2, 1), (double)++*(int *)ctx, ARIL_F32, aril_cpu());
}

TEST(python_layers_are_called_in_each_step)
{
    static const char text[] =
        "net_param { layer { name: 'd' type: 'Python' top: 'x' python_param { module: 'my' "
        "layer: 'Data' } } layer { name: 'ip' type: 'InnerProduct' bottom: 'x' top: 'ip' "
        "inner_product_param { num_output: 1 bias_term: false weight_filler { type: 'constant' "
        "value: 1 } } } layer { name: 'r' type: 'Reduction' bottom: 'ip' top: 'r' "
        "reduction_param { operation: MEAN } loss_weight: 1 } } base_lr: 0 lr_policy: 'fixed' "
        "max_iter: 9 test_iter: 3 test_interval: 100 solver_mode: CPU snapshot_after_train: false";
    int calls = 0;
    double score;
    CHECK_INT(aril_caffe_register("my.Data", next_batch, &calls), ARIL_OK);
    aril_caffe_solver *s = parse(text);
    CHECK_MSG(s, "%s", aril_error());
    calls = 0;
    for (int i = 1; i <= 6; i++) {
        CHECK_INT(aril_caffe_solver_step(s, 1), ARIL_OK);
        /* The first step tests the net too: three batches. */
        CHECK_NEAR(aril_caffe_solver_loss(s), i + 3, 0);
        CHECK_INT(calls, i + 3);
    }
    CHECK_INT(aril_caffe_solver_test(s, 0, &score), ARIL_OK);
    CHECK_NEAR(score, 11, 0); /* calls 10, 11 and 12 */
    const char *why = aril_caffe_solver_eager_reason(s);
    CHECK_MSG(why && strstr(why, "Python layer"), "%s", why);
    aril_caffe_solver_free(s);
    CHECK_INT(aril_caffe_register("my.Data", NULL, NULL), ARIL_OK);
}

TEST(a_test_net_needs_no_loss)
{
    static const char text[] =
        "net_param { layer { name: 'd' type: 'DummyData' top: 'x' dummy_data_param { shape { dim: "
        "2 "
        "dim: 1 } data_filler { value: 3 } } } layer { name: 'ip' type: 'InnerProduct' bottom: 'x' "
        "top: 'ip' inner_product_param { num_output: 1 weight_filler { value: 1 } } } "
        "layer { name: 'r' type: 'Reduction' bottom: 'ip' top: 'r' loss_weight: 1 "
        "include { phase: TRAIN } } } base_lr: 0 lr_policy: 'fixed' max_iter: 4 test_iter: 2 "
        "test_interval: 1 test_compute_loss: true solver_mode: CPU snapshot_after_train: false";
    double score;
    aril_caffe_solver *s = parse(text);
    CHECK_MSG(s, "%s", aril_error());
    CHECK_INT(aril_caffe_solver_solve(s), ARIL_OK);
    CHECK_INT(aril_caffe_solver_test(s, 0, &score), ARIL_OK);
    CHECK_NEAR(score, 3, 0);
    aril_caffe_solver_free(s);
}

TEST(parameters_that_the_loss_does_not_reach_decay)
{
    static const char text[] =
        "net_param { layer { name: 'd' type: 'DummyData' top: 'x' dummy_data_param { shape { dim: "
        "2 "
        "dim: 1 } } } layer { name: 'ip' type: 'InnerProduct' bottom: 'x' top: 'ip' "
        "inner_product_param { num_output: 1 bias_term: false weight_filler { type: 'constant' "
        "value: 1 } } } layer { name: 's' type: 'Silence' bottom: 'ip' } "
        "layer { name: 'r' type: 'Reduction' bottom: 'x' top: 'r' loss_weight: 1 } } "
        "base_lr: 0.5 weight_decay: 0.5 lr_policy: 'fixed' max_iter: 9 solver_mode: CPU";
    aril_caffe_solver *s = parse(text);
    CHECK_MSG(s, "%s", aril_error());
    for (int i = 1; i <= 4; i++) {
        CHECK_INT(aril_caffe_solver_step(s, 1), ARIL_OK);
        CHECK_NEAR(aril_item(aril_caffe_param_at(aril_caffe_solver_net(s), 0).tensor), pow(0.75, i),
                   1e-6);
    }
    CHECK_MSG(!aril_caffe_solver_eager_reason(s), "%s", aril_caffe_solver_eager_reason(s));
    aril_caffe_solver_free(s);
}

/* As in Caffe: only negative numbers switch clipping off. */
TEST(gradients_clipped_to_nothing_leave_the_decay)
{
    static const char *const rest[] = { "weight_decay: 0", "weight_decay: 0.5" };
    static const double want[] = { 1, 0.75 };
    for (int i = 0; i < 2; i++) {
        char text[1000];
        snprintf(text, sizeof text,
                 "net_param { layer { name: 'd' type: 'DummyData' top: 'x' dummy_data_param { "
                 "shape { dim: 2 dim: 1 } data_filler { value: 1 } } } "
                 "layer { name: 'ip' type: 'InnerProduct' bottom: 'x' top: 'ip' "
                 "inner_product_param { num_output: 1 bias_term: false weight_filler { value: 1 } "
                 "} } layer { name: 'r' type: 'Reduction' bottom: 'ip' top: 'r' loss_weight: 1 } } "
                 "base_lr: 0.5 lr_policy: 'fixed' max_iter: 9 solver_mode: CPU clip_gradients: 0 "
                 "%s",
                 rest[i]);
        aril_caffe_solver *s = parse(text);
        CHECK_MSG(s, "%s", aril_error());
        CHECK_INT(aril_caffe_solver_step(s, 1), ARIL_OK);
        CHECK_NEAR(aril_item(aril_caffe_param_at(aril_caffe_solver_net(s), 0).tensor), want[i],
                   1e-6);
        aril_caffe_solver_free(s);
    }
}

/* w . 1 - 2 of a row of ones: the gradient of each weight is that. */
static const char ones_net[] =
    "net_param { layer { name: \"d\" type: \"DummyData\" top: \"x\" top: \"y\" dummy_data_param { "
    "shape { dim: 2 dim: 3 } shape { dim: 2 dim: 1 } data_filler { value: 1 } "
    "data_filler { value: 2 } } } "
    "layer { name: \"ip\" type: \"InnerProduct\" bottom: \"x\" top: \"ip\" "
    "inner_product_param { num_output: 1 bias_term: false } } "
    "layer { name: \"loss\" type: \"EuclideanLoss\" bottom: \"ip\" bottom: \"y\" top: \"loss\" } } "
    "base_lr: 0.1 lr_policy: \"fixed\" max_iter: 10 solver_mode: CPU "
    "test_iter: 1 test_interval: 100 test_initialization: false iter_size: ";

TEST(an_iteration_starts_without_gradients)
{
    for (int k = 0; k < 8; k++) {
        char text[2048];
        bool on_test_net = k & 1, eager = k & 2, parts = k & 4;
        snprintf(text, sizeof text, "%s%d", ones_net, parts ? 2 : 1);
        aril_caffe_solver *s = parse_with(text, (aril_caffe_solver_opts){ .eager = eager });
        CHECK_MSG(s, "%s", aril_error());
        aril_module *net =
            on_test_net ? aril_caffe_solver_test_net(s, 0) : aril_caffe_solver_net(s);
        for (int i = 0; i < 2; i++) {
            ARIL_SCOPE;
            CHECK_MSG(aril_caffe_solver_step(s, 1) == ARIL_OK, "%s", aril_error());
            aril_tensor *in[2] = { aril_ones(ARIL_SHAPE(2, 3), ARIL_F32, aril_cpu()),
                                   aril_full(ARIL_SHAPE(2, 1), 2, ARIL_F32, aril_cpu()) };
            aril_list list = { .n = aril_caffe_inputs(net), .at = in };
            if (i == 0) CHECK(aril_backward(aril_caffe_loss(net, list, NULL)) == ARIL_OK);
        }
        ARIL_SCOPE;
        aril_tensor *w = aril_caffe_param_at(aril_caffe_solver_net(s), 0).tensor;
        CHECK_NEAR(aril_item(aril_mean(aril_detach(w), ARIL_ALL)), 0.34, 1e-6);
        aril_caffe_solver_free(s);
    }
}

TEST(several_test_nets_have_their_states)
{
    CHECK(write_samples(temp_path("db")));
    char rest[2048];
    snprintf(rest, sizeof rest,
             "base_lr: 0.1 lr_policy: \"fixed\" max_iter: 1 snapshot_after_train: false "
             "test_iter: 1 test_iter: 2 test_interval: 1 test_state { stage: \"a\" } "
             "test_state { stage: \"b\" } ");
    char *text = strdup(linear_solver(rest));
    char *at = strstr(text, "layer { name: \"loss\"");
    char more[8192];
    snprintf(more, sizeof more,
             "%.*s layer { name: \"twice\" type: \"Power\" bottom: \"ip\" top: \"b\" power_param { "
             "scale: 2 } include { stage: \"b\" } } %s",
             (int)(at - text), text, at);
    free(text);
    aril_caffe_solver *s = parse(more);
    CHECK_MSG(s, "%s", aril_error());
    CHECK_INT(aril_caffe_solver_tests(s), 2);
    CHECK_INT(aril_caffe_outputs(aril_caffe_solver_test_net(s, 0)), 1);
    CHECK_INT(aril_caffe_outputs(aril_caffe_solver_test_net(s, 1)), 2);
    double score[2];
    CHECK_INT(aril_caffe_solver_test(s, 1, score), ARIL_OK);
    double want = 0;
    for (int i = 0; i < 8; i++)
        want += 2 * (0.3 * (double)(x_of(i, 0) + x_of(i, 1) + x_of(i, 2)) - 0.2) / 8;
    CHECK_NEAR(score[0], want, 1e-5); /* outputs are sorted by name: b, loss */
    CHECK(aril_caffe_solver_test(s, 2, score) < 0);
    aril_clear_error();
    aril_caffe_solver_free(s);
}

/* ---- blobs to files ---- */

TEST(outputs_and_features_are_written)
{
    ARIL_SCOPE;
    CHECK(write_samples(temp_path("db")));
    char net[5120], file[4096], text[16384];
    snprintf(net, sizeof net, linear_net, temp_path("db"));
    snprintf(file, sizeof file, "%s", temp_path("out.h5"));
    snprintf(text, sizeof text,
             "%s layer { name: \"out\" type: \"HDF5Output\" bottom: \"ip\" bottom: \"target\" "
             "hdf5_output_param { file_name: \"%s\" } }",
             net, file);
    aril_module *m = aril_caffe_net_parse(text, strlen(text), NULL, (aril_caffe_opts){ 0 });
    CHECK_MSG(m, "%s", aril_error());
    aril_caffe_feed *f = aril_caffe_feed_new(m, (aril_caffe_feed_opts){ 0 });
    CHECK_MSG(f, "%s", aril_error());
    aril_caffe_sink *sink = aril_caffe_sink_new(m);
    CHECK_INT(aril_caffe_sink_files(sink), 1);
    for (int k = 0; k < 3; k++) {
        aril_tensor *in[2];
        CHECK_INT(aril_caffe_feed_next(f, in), ARIL_OK);
        CHECK_MSG(aril_caffe_sink_add(sink, ARIL_LIST(in[0], in[1]), NULL) == ARIL_OK, "%s",
                  aril_error());
    }
    const char *blob[] = { "ip" }, *to[] = { temp_path("features") };
    CHECK_MSG(aril_caffe_features(m, f, 2, 1, blob, to) == ARIL_OK, "%s", aril_error());
    aril_dataset *d = aril_dataset_lmdb(to[0]);
    CHECK_INT(aril_dataset_size(d), 8);
    for (int i = 0; i < 8; i++) { /* the feed went on: samples 12 and later */
        aril_sample s = { 0 };
        int k = (12 + i) % SAMPLES;
        CHECK_INT(aril_dataset_get(d, i, &s), ARIL_OK);
        CHECK_NEAR(*(const float *)aril_data(s.x),
                   0.3 * (double)(x_of(k, 0) + x_of(k, 1) + x_of(k, 2)) - 0.2, 1e-6);
    }
    aril_dataset_release(d);
    aril_status status = aril_caffe_sink_write(sink);
    aril_caffe_sink_free(sink);
    aril_caffe_feed_free(f);
    aril_module_release(m);
    if (status == ARIL_ERR_UNSUPPORTED) SKIP("%s", aril_error());
    aril_tensor *data = aril_hdf5_read(file, "data"), *label = aril_hdf5_read(file, "label");
    CHECK_INT(aril_size(data, 0), 12);
    CHECK_INT(aril_numel(label), 12);
    const float *y = aril_data(label);
    for (int i = 0; i < 12; i++) CHECK_NEAR(y[i], label_of[i % SAMPLES], 0);
}

/* Trains a net with BatchNorm and Dropout for five iterations, with HDF5Output layers in both
 * phases or without. */
static void train_and_write(bool writes, double *loss)
{
    static const char out[] =
        "layer { name: \"%s\" type: \"HDF5Output\" bottom: \"conv\" bottom: \"label\" "
        "include { phase: %s } hdf5_output_param { file_name: \"%s/%s.h5\" } } ";
    char net[8192], layers[2][2048], db[1024], text[20480];
    snprintf(db, sizeof db, "%s", temp_path("images"));
    snprintf(net, sizeof net, random_net, db, db);
    for (int i = 0; i < 2; i++)
        snprintf(layers[i], sizeof *layers, out, i ? "b" : "a", i ? "TEST" : "TRAIN", temp_path(""),
                 i ? "test" : "train");
    snprintf(text, sizeof text,
             "solver_mode: CPU net_param { %s %s %s } base_lr: 0.05 lr_policy: \"fixed\" "
             "max_iter: 5 iter_size: 2 test_iter: 3 test_interval: 4 display: 1 random_seed: 7 "
             "snapshot_after_train: false",
             net, writes ? layers[0] : "", writes ? layers[1] : "");
    aril_caffe_solver *s = parse(text);
    CHECK_MSG(s, "%s", aril_error());
    aril_status status = aril_caffe_solver_solve(s);
    if (status != ARIL_ERR_UNSUPPORTED) CHECK_MSG(status == ARIL_OK, "%s", aril_error());
    *loss = aril_caffe_solver_loss(s);
    CHECK(!aril_caffe_solver_eager_reason(s));
    aril_caffe_solver_free(s);
}

/* The file of a net in training has the batch of the last run, that of a test all its batches; the
 * layers change nothing else: values come from the same run. */
TEST(solvers_write_outputs)
{
    ARIL_SCOPE;
    CHECK(write_images(temp_path("images"), 23));
    double with = 0, without = 1;
    train_and_write(true, &with);
    if (!aril_ok()) SKIP("%s", aril_error());
    train_and_write(false, &without);
    CHECK_NEAR(with, without, 0);
    static const int64_t rows[] = { 6, 12 };
    for (int i = 0; i < 2; i++) {
        char file[4096];
        snprintf(file, sizeof file, "%s", temp_path(i ? "test.h5" : "train.h5"));
        aril_tensor *data = aril_hdf5_read(file, "data"), *label = aril_hdf5_read(file, "label");
        CHECK_MSG(aril_ok(), "%s", aril_error());
        CHECK_INT(aril_size(data, 0), rows[i]);
        CHECK_INT(aril_size(data, 1), 4);
        CHECK_INT(aril_size(label, 0), rows[i]);
        CHECK(aril_item(aril_amax(data, ARIL_ALL)) > 0);
    }
}

/* ---- Caffe's own snapshot ---- */

typedef struct expected {
    double loss;
    struct {
        double norm, value[3], change[3];
    } blob[10];
} expected;
static const expected updates[] = {
#include "caffe_updates.inc"
};

static const char *models(char *buf, size_t size, const char *name)
{
    const char *data = getenv("ARIL_TEST_DATA");
    snprintf(buf, size, "%s/caffe-models/lenet-cifar10-trained/%s", data ? data : "../shared/data",
             name);
    return buf;
}

/* The first 300 of CIFAR's images as a batch file, and as a database. */
static bool write_cifar(const char *folder, const char *db)
{
    char command[4096], path[4200];
    const char *data = getenv("ARIL_TEST_DATA");
    snprintf(command, sizeof command, "xz -dc '%s/cifar10/test_batch_first2000.bin.xz' 2>/dev/null",
             data ? data : "../shared/data");
    static unsigned char records[300 * 3073];
    FILE *in = popen(command, "r");
    size_t n = in ? fread(records, 1, sizeof records, in) : 0;
    if (in) pclose(in);
    if (n != sizeof records || aril_folder_create(folder) != ARIL_OK) return false;
    snprintf(path, sizeof path, "%s/test_batch.bin", folder);
    if (aril__file_replace(path, records, n) != ARIL_OK) return false;
    aril_dataset *d = aril_dataset_open(folder, "test");
    aril_caffe_import_opts opts = { .rgb = true, .key_digits = 5 };
    int64_t count = d ? aril_caffe_import(d, db, opts) : -1;
    aril_dataset_release(d);
    return count == 300;
}

static bool copy_text(const char *name, const char *from, const char *to, const char *mean)
{
    char path[4096], text[16384];
    aril__bytes b = { 0 }, out = { 0 };
    if (aril__read_file("net", models(path, sizeof path, name), 0, &b) != ARIL_OK) return false;
    for (const char *at = (const char *)b.at; *at;) {
        bool source = strncmp(at, from, strlen(from)) == 0;
        bool is_mean = strncmp(at, "examples/cifar10/mean.binaryproto", 33) == 0;
        aril__bytes_print(&out, "%s", source ? to : is_mean ? mean : "");
        if (source || is_mean)
            at = strchr(at, '"');
        else
            aril__bytes_add(&out, at++, 1);
    }
    snprintf(text, sizeof text, "%s", (const char *)out.at);
    bool good = aril__file_replace(temp_path("net.prototxt"), out.at, out.n) == ARIL_OK;
    aril__bytes_free(&b);
    aril__bytes_free(&out);
    return good;
}

TEST(updates_from_the_solverstate_of_caffe)
{
    char state[4096], text[8192], db[4096], mean[4096], batches[4096];
    const char *data = getenv("ARIL_TEST_DATA");
    struct stat st;
    models(state, sizeof state, "cifar10_quick_iter_5000.solverstate");
    if (stat(state, &st) != 0) SKIP("no %s (set ARIL_TEST_DATA)", state);
    snprintf(db, sizeof db, "%s", temp_path("cifar_lmdb"));
    snprintf(batches, sizeof batches, "%s", temp_path("cifar"));
    snprintf(mean, sizeof mean, "%s/cifar10/mean.binaryproto", data ? data : "../shared/data");
    if (!write_cifar(batches, db)) SKIP("no images: xz is missing, or %s", aril_error());
    CHECK(copy_text("cifar10_quick_train_test.prototxt", "examples/cifar10/cifar10_train_leveldb",
                    db, mean));
    snprintf(text, sizeof text,
             "train_net: \"%s\" base_lr: 0.001 momentum: 0.9 weight_decay: 0.004 lr_policy: "
             "\"fixed\" max_iter: 6000 solver_mode: CPU",
             temp_path("net.prototxt"));
    aril_caffe_solver *s = parse_with(text, (aril_caffe_solver_opts){ .snapshot = state });
    CHECK_MSG(s, "%s", aril_error());
    CHECK_INT(aril_caffe_solver_iter(s), 5000);
    CHECK_INT(aril_caffe_params(aril_caffe_solver_net(s)), 10);
    for (int k = 0; k < 3; k++) {
        ARIL_SCOPE;
        aril_tensor *before[10];
        for (int i = 0; i < 10; i++)
            before[i] =
                aril_copy(aril_detach(aril_caffe_param_at(aril_caffe_solver_net(s), i).tensor));
        CHECK_MSG(aril_caffe_solver_step(s, 1) == ARIL_OK, "%s", aril_error());
        CHECK_NEAR(aril_caffe_solver_loss(s), updates[k].loss, 2e-6);
        for (int i = 0; i < 10; i++) {
            aril_tensor *now = aril_caffe_param_at(aril_caffe_solver_net(s), i).tensor;
            aril_tensor *change = aril_sub(before[i], aril_detach(now));
            double norm = aril_item(aril_norm(change, ARIL_ALL, 2)), want = updates[k].blob[i].norm;
            CHECK_NEAR(norm, want, 2e-4 * want);
            const float *at = aril_data(now);
            int64_t n = aril_numel(now), place[3] = { 0, n / 3, n - 1 };
            for (int j = 0; j < 3; j++) CHECK_NEAR(at[place[j]], updates[k].blob[i].value[j], 2e-7);
        }
    }
    aril_caffe_solver_free(s);
}
