/* Caffe's solvers: snapshots in HDF5, and training on MemoryData layers. */
#include "aril/aril.h"
#include "formats/atomic_file.h"
#include "formats/bytes.h"
#include "formats/hdf5.h"
#include "support/temp.h"
#include "support/test.h"

#include <stdlib.h>
#include <string.h>

/* ---- helpers ---- */

enum { SAMPLES = 12, VALUES = 3 * 6 * 6 };

/* Images of three classes for the MemoryData layers of a net, and their labels. */
static aril_tensor *images(void)
{
    static unsigned char x[SAMPLES * VALUES];
    for (int i = 0; i < SAMPLES; i++)
        for (int k = 0; k < VALUES; k++)
            x[i * VALUES + k] = (unsigned char)(80 * (i % 3) + i * k * 31 % 60);
    return aril_from(x, ARIL_SHAPE(SAMPLES, 3, 6, 6), ARIL_U8, aril_cpu());
}

static aril_tensor *labels(void)
{
    int64_t y[SAMPLES];
    for (int i = 0; i < SAMPLES; i++) y[i] = i % 3;
    return aril_from(y, ARIL_SHAPE(SAMPLES), ARIL_I64, aril_cpu());
}

/* With all that a resumed run must find again: crops, mirrors, dropout, statistics, shared
 * parameters, a test net. */
static const char net[] =
    "name: \"memory\" "
    "layer { name: \"m\" type: \"MemoryData\" top: \"data\" top: \"label\" include { phase: TRAIN "
    "} "
    "transform_param { scale: 0.01 crop_size: 5 mirror: true mean_value: 100 } "
    "memory_data_param { batch_size: 4 channels: 3 height: 5 width: 5 } } "
    "layer { name: \"m\" type: \"MemoryData\" top: \"data\" top: \"label\" include { phase: TEST } "
    "transform_param { scale: 0.01 crop_size: 5 mean_value: 100 } "
    "memory_data_param { batch_size: 6 channels: 3 height: 5 width: 5 } } "
    "layer { name: \"a/conv\" type: \"Convolution\" bottom: \"data\" top: \"conv\" "
    "convolution_param { num_output: 4 kernel_size: 3 weight_filler { type: \"xavier\" } } } "
    "layer { name: \"bn\" type: \"BatchNorm\" bottom: \"conv\" top: \"conv\" } "
    "layer { name: \"one\" type: \"Convolution\" bottom: \"conv\" top: \"one\" "
    "param { name: \"shared\" } convolution_param { num_output: 4 kernel_size: 1 bias_term: false "
    "weight_filler { type: \"xavier\" } } } "
    "layer { name: \"two\" type: \"Convolution\" bottom: \"one\" top: \"two\" "
    "param { name: \"shared\" } convolution_param { num_output: 4 kernel_size: 1 bias_term: false "
    "} } "
    "layer { name: \"drop\" type: \"Dropout\" bottom: \"two\" top: \"two\" } "
    "layer { name: \"a\" type: \"InnerProduct\" bottom: \"two\" top: \"ip\" "
    "inner_product_param { num_output: 3 weight_filler { type: \"xavier\" } } } "
    "layer { name: \"accuracy\" type: \"Accuracy\" bottom: \"ip\" bottom: \"label\" "
    "top: \"accuracy\" include { phase: TEST } } "
    "layer { name: \"loss\" type: \"SoftmaxWithLoss\" bottom: \"ip\" bottom: \"label\" "
    "top: \"loss\" } ";

static aril_caffe_solver *open_solver(const char *type, const char *format, const char *snapshot,
                                      bool with_data)
{
    ARIL_SCOPE;
    char text[8192];
    snprintf(text, sizeof text,
             "solver_mode: CPU net_param { %s } type: \"%s\" base_lr: 0.05 lr_policy: \"step\" "
             "gamma: 0.5 stepsize: 8 momentum: 0.9 weight_decay: 0.001 max_iter: 30 test_iter: 2 "
             "test_interval: 10 snapshot_after_train: false random_seed: 7 snapshot_format: %s "
             "snapshot_prefix: \"%s/run\"",
             net, type, format, temp_path(""));
    aril_caffe_solver *s =
        aril_caffe_solver_parse(text, strlen(text), NULL,
                                (aril_caffe_solver_opts){ .snapshot = snapshot, .workers = -1 });
    if (s && with_data) {
        aril_caffe_feed_set(aril_caffe_solver_feed(s, -1), "m", images(), labels());
        aril_caffe_feed_set(aril_caffe_solver_feed(s, 0), NULL, images(), labels());
    }
    return s;
}

static bool no_hdf5(void)
{
    if (!strstr(aril_error(), "HDF5")) return false;
    aril_clear_error();
    return true;
}

/* Whether two nets have the same bits. */
static bool same_bits(const aril_module *a, const aril_module *b)
{
    ARIL_SCOPE;
    int n = aril_caffe_params(a);
    if (n < 1 || n != aril_caffe_params(b)) return false;
    for (int i = 0; i < n; i++) {
        aril_tensor *x = aril_caffe_param_at(a, i).tensor, *y = aril_caffe_param_at(b, i).tensor;
        if (memcmp(aril_data(x), aril_data(y), (size_t)aril_numel(x) * 4) != 0) return false;
    }
    return true;
}

/* ---- MemoryData ---- */

TEST(nets_train_on_memory)
{
    aril_caffe_solver *s = open_solver("SGD", "BINARYPROTO", NULL, false);
    CHECK_MSG(s, "%s", aril_error());
    CHECK(aril_caffe_solver_solve(s) < 0);
    CHECK_MSG(strstr(aril_error(), "layer 'm' (MemoryData) at line"), "%s", aril_error());
    aril_clear_error();
    ARIL_SCOPE;
    aril_caffe_feed *train = aril_caffe_solver_feed(s, -1);
    CHECK(!aril_caffe_solver_feed(s, 1));
    CHECK(aril_caffe_feed_set(train, "x", images(), NULL) < 0);
    CHECK_MSG(strstr(aril_error(), "no MemoryData layer named 'x'"), "%s", aril_error());
    aril_clear_error();
    CHECK(aril_caffe_feed_set(train, NULL, NULL, NULL) < 0);
    aril_clear_error();
    aril_caffe_solver_free(s);
    s = open_solver("SGD", "BINARYPROTO", NULL, true);
    double score[2], before[2];
    CHECK_INT(aril_caffe_solver_test(s, 0, before), ARIL_OK);
    CHECK_MSG(aril_caffe_solver_solve(s) == ARIL_OK, "%s", aril_error());
    CHECK_INT(aril_caffe_solver_test(s, 0, score), ARIL_OK);
    CHECK_MSG(score[1] < before[1], "the loss is %g, it was %g", score[1], before[1]);
    aril_caffe_solver_free(s);
}

/* ---- HDF5 ---- */

/* Stopped and resumed from snapshots in either form, it ends with the same bits. */
TEST(resumed_from_hdf5_it_ends_with_the_same_bits)
{
    static const char *const types[] = { "SGD", "Adam" };
    for (int t = 0; t < 2; t++) {
        aril_caffe_solver *whole = open_solver(types[t], "BINARYPROTO", NULL, true);
        CHECK_MSG(whole, "%s", aril_error());
        CHECK_INT(aril_caffe_solver_step(whole, 23), ARIL_OK);
        for (int hdf5 = 0; hdf5 < 2; hdf5++) {
            char snapshot[4096] = "";
            const char *format = hdf5 ? "HDF5" : "BINARYPROTO";
            for (int k = 0; k < 3; k++) {
                aril_caffe_solver *s =
                    open_solver(types[t], format, *snapshot ? snapshot : NULL, true);
                CHECK_MSG(s, "%s", aril_error());
                CHECK_INT(aril_caffe_solver_iter(s), 9 * k);
                CHECK_MSG(aril_caffe_solver_step(s, k == 2 ? 5 : 9) == ARIL_OK, "%s", aril_error());
                aril_status status = aril_caffe_solver_snapshot(s, snapshot, sizeof snapshot);
                if (status < 0 && no_hdf5()) {
                    aril_caffe_solver_free(s);
                    aril_caffe_solver_free(whole);
                    SKIP("no HDF5");
                }
                CHECK_MSG(status == ARIL_OK, "%s", aril_error());
                CHECK(strstr(snapshot, hdf5 ? ".solverstate.h5" : ".solverstate"));
                if (k == 2)
                    CHECK(same_bits(aril_caffe_solver_net(whole), aril_caffe_solver_net(s)));
                aril_caffe_solver_free(s);
            }
        }
        aril_caffe_solver_free(whole);
    }
}

static int64_t integer_of(const char *path, const char *name)
{
    ARIL_SCOPE;
    aril_tensor *t = aril_hdf5_read(path, name);
    bool is = aril_dtype_of(t) == ARIL_I32 && aril_ndim(t) == 1 && aril_size(t, 0) == 1;
    return is ? aril_item_int(t) : -1;
}

TEST(hdf5_snapshots_have_the_layout_of_caffe)
{
    ARIL_SCOPE;
    char path[4096], text[256];
    aril_caffe_solver *s = open_solver("Adam", "HDF5", NULL, true);
    CHECK_MSG(s, "%s", aril_error());
    CHECK_INT(aril_caffe_solver_step(s, 8), ARIL_OK);
    aril_status status = aril_caffe_solver_snapshot(s, path, sizeof path);
    if (status < 0 && no_hdf5()) {
        aril_caffe_solver_free(s);
        SKIP("no HDF5");
    }
    CHECK_MSG(status == ARIL_OK, "%s", aril_error());
    CHECK_INT(integer_of(path, "current_step"), 0); /* of the iteration before */
    CHECK_INT(aril_caffe_solver_step(s, 1), ARIL_OK);
    CHECK_INT(aril_caffe_solver_snapshot(s, path, sizeof path), ARIL_OK);
    CHECK_INT(integer_of(path, "iter"), 9);
    CHECK_INT(integer_of(path, "current_step"), 1);
    aril__hdf5 *f = aril__hdf5_open(path);
    aril__hdf5_texts names;
    CHECK_MSG(f, "%s", aril_error());
    CHECK_INT(aril__hdf5_text_array(f, "learned_net", &names), ARIL_OK);
    CHECK_INT(names.n, 1);
    CHECK(strstr(names.at[0], "/run_iter_9.caffemodel.h5"));
    char weights[4096];
    snprintf(weights, sizeof weights, "%s", names.at[0]);
    aril__hdf5_texts_free(&names);
    const aril_module *m = aril_caffe_solver_net(s);
    int n = aril_caffe_params(m);
    CHECK_INT(n, 8); /* two of conv, three of bn, one shared, two of ip */
    CHECK_INT(aril__hdf5_group(f, "history", &names), ARIL_OK);
    CHECK_INT(names.n, 2 * n);
    aril__hdf5_texts_free(&names);
    for (int i = 0; i < 2 * n; i++) {
        aril_tensor *p = aril_caffe_param_at(m, i % n).tensor;
        snprintf(text, sizeof text, "history/%d", i);
        int at = aril__hdf5_find(f, text);
        CHECK_MSG(at >= 0, "no %s", text);
        aril_shape shape = aril__hdf5_array_shape(f, at);
        CHECK_INT(shape.ndim, aril_ndim(p));
        for (int k = 0; k < shape.ndim; k++) CHECK_INT(shape.dim[k], aril_size(p, k));
    }
    aril__hdf5_close(f);
    /* A group for each layer, also those without blobs, and shared blobs once. */
    f = aril__hdf5_open(weights);
    CHECK_MSG(f, "%s", aril_error());
    CHECK_INT(aril__hdf5_group(f, "data", &names), ARIL_OK);
    static const char *const groups[] = { "a", "bn", "drop", "loss", "m", "one", "two" };
    CHECK_INT(names.n, 7);
    for (int i = 0; i < 7 && i < names.n; i++) CHECK_STR(names.at[i], groups[i]);
    aril__hdf5_texts_free(&names);
    CHECK_INT(aril__hdf5_count(f), n);
    CHECK(aril__hdf5_find(f, "data/a/conv/1") >= 0);
    CHECK(aril__hdf5_find(f, "data/one/0") >= 0);
    CHECK(aril__hdf5_find(f, "data/two/0") < 0);
    aril__hdf5_close(f);
    aril_caffe_solver_free(s);
}

/* ---- files that Caffe's calls of the HDF5 library made ---- */

struct part {
    int at, size;
    const char *bytes;
};
#include "files/caffe_hdf5.inc"

static const char *write_parts(const char *name, const struct part *part, size_t n, size_t size)
{
    const char *path = temp_path(name);
    unsigned char *all = calloc(size, 1);
    for (size_t i = 0; i < n; i++) memcpy(all + part[i].at, part[i].bytes, (size_t)part[i].size);
    bool good = aril__file_replace(path, all, size) == ARIL_OK;
    free(all);
    return good ? path : "";
}

static const char linear[] =
    "solver_mode: CPU base_lr: 0 lr_policy: \"fixed\" momentum: 0.5 max_iter: 10 net_param { "
    "layer { name: \"d\" type: \"MemoryData\" top: \"data\" top: \"label\" memory_data_param { "
    "batch_size: 1 channels: 3 height: 1 width: 1 } } "
    "layer { name: \"ip\" type: \"InnerProduct\" bottom: \"data\" top: \"ip\" "
    "inner_product_param { num_output: 1 } } "
    "layer { name: \"shape\" type: \"Reshape\" bottom: \"label\" top: \"target\" "
    "reshape_param { shape { dim: 0 dim: 1 } } } "
    "layer { name: \"loss\" type: \"EuclideanLoss\" bottom: \"ip\" bottom: \"target\" "
    "top: \"loss\" } }";

static aril_caffe_solver *open_linear(const char *snapshot)
{
    return aril_caffe_solver_parse(linear, strlen(linear), NULL,
                                   (aril_caffe_solver_opts){ .snapshot = snapshot, .workers = -1 });
}

TEST(hdf5_of_caffe_is_resumed)
{
    ARIL_SCOPE;
    write_parts("linear_iter_7.caffemodel.h5", caffe_weights,
                sizeof caffe_weights / sizeof *caffe_weights, CAFFE_WEIGHTS_SIZE);
    const char *path = write_parts("linear_iter_7.solverstate.h5", caffe_state,
                                   sizeof caffe_state / sizeof *caffe_state, CAFFE_STATE_SIZE);
    aril_caffe_solver *s = open_linear(path);
    if (!s && no_hdf5()) SKIP("no HDF5");
    CHECK_MSG(s, "%s", aril_error());
    CHECK_INT(aril_caffe_solver_iter(s), 7);
    /* A step of rate 0 moves by half of the history: v = 0.5 v, w -= v. */
    aril_tensor *x = aril_zeros(ARIL_SHAPE(1, 3, 1, 1), ARIL_F32, aril_cpu());
    CHECK_INT(aril_caffe_feed_set(aril_caffe_solver_feed(s, -1), NULL, x, NULL), ARIL_OK);
    const float *w = aril_data(aril_caffe_param_at(aril_caffe_solver_net(s), 0).tensor);
    CHECK_NEAR(w[1], -1.25, 0);
    CHECK_MSG(aril_caffe_solver_step(s, 1) == ARIL_OK, "%s", aril_error());
    static const double want[] = { 0.5 - 0.005, -1.25 - 0.01, 2 + 0.015, 0.75 - 0.02 };
    w = aril_data(aril_caffe_param_at(aril_caffe_solver_net(s), 0).tensor);
    for (int k = 0; k < 3; k++) CHECK_NEAR(w[k], want[k], 1e-6);
    CHECK_NEAR(aril_item(aril_caffe_param_at(aril_caffe_solver_net(s), 1).tensor), want[3], 1e-6);
    aril_caffe_solver_free(s);
}

TEST(hdf5_of_caffe_is_described)
{
    char text[1024] = "", path[4096];
    snprintf(path, sizeof path, "%s",
             write_parts("w.h5", caffe_weights, sizeof caffe_weights / sizeof *caffe_weights,
                         CAFFE_WEIGHTS_SIZE));
    CHECK(!aril_describes_file(path));
    aril_weights *w = aril_weights_open(path, (aril_weights_opts){ 0 });
    if (!w && no_hdf5()) SKIP("no HDF5");
    CHECK_MSG(w, "%s", aril_error());
    CHECK_INT(aril_weights_count(w), 2);
    CHECK(aril_weights_find(w, "ip.weight") >= 0 && aril_weights_find(w, "ip.bias") >= 0);
    aril_weights_close(w);
    for (int i = 0; i < 2; i++) { /* known by its contents */
        const char *state = write_parts(i ? "s.h5" : "s.solverstate", caffe_state,
                                        sizeof caffe_state / sizeof *caffe_state, CAFFE_STATE_SIZE);
        CHECK(aril_describes_file(state));
        FILE *f = fmemopen(text, sizeof text - 1, "w");
        CHECK_MSG(aril_describe_file(state, f) == ARIL_OK, "%s", aril_error());
        fclose(f);
        CHECK_STR(text,
                  "Caffe solver state after iteration 7, step 1, weights "
                  "models/linear_iter_7.caffemodel.h5\n\nhistory\n  0 [1,3] f32\n  1 [1] f32\n");
    }
}

/* ---- what does not fit, or is damaged ---- */

static aril_module *net_of(const char *layers)
{
    char text[1024];
    snprintf(text, sizeof text,
             "input: \"data\" input_shape { dim: 1 dim: 3 } layer { name: \"ip\" %s }", layers);
    return aril_caffe_net_parse(text, strlen(text), NULL, (aril_caffe_opts){ 0 });
}

TEST(weights_in_hdf5_must_fit)
{
    static const struct {
        const char *layers, *error;
    } wrong[] = {
        { "type: \"InnerProduct\" bottom: \"data\" top: \"y\" inner_product_param { num_output: 2 "
          "}",
          "blob 0 is [2,3], in the file [1,3]" },
        { "type: \"InnerProduct\" bottom: \"data\" top: \"y\" inner_product_param { num_output: 1 "
          "bias_term: false }",
          "has 1 blobs, in the file 2" },
        { "type: \"BatchNorm\" bottom: \"data\" top: \"y\"", "blob 0 is [3], in the file [1,3]" },
        { "type: \"InnerProduct\" bottom: \"data\" top: \"y\" inner_product_param { num_output: 1 "
          "}",
          NULL },
        { "type: \"ReLU\" bottom: \"data\" top: \"y\"", "has 0 blobs, in the file 2" },
    };
    const char *path =
        write_parts("w.caffemodel", caffe_weights, /* known by its contents */
                    sizeof caffe_weights / sizeof *caffe_weights, CAFFE_WEIGHTS_SIZE);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        aril_module *m = net_of(wrong[i].layers);
        CHECK_MSG(m, "%s", aril_error());
        aril_status status = aril_caffe_weights_load(m, path);
        aril_module_release(m);
        if (status < 0 && no_hdf5()) SKIP("no HDF5");
        CHECK_MSG((status == ARIL_OK) == !wrong[i].error, "%zu: %s", i, aril_error());
        if (wrong[i].error)
            CHECK_MSG(strstr(aril_error(), wrong[i].error), "%zu: %s", i, aril_error());
        aril_clear_error();
    }
    /* A state is no caffemodel, nor the other way round. */
    const char *state = write_parts("s.h5", caffe_state, sizeof caffe_state / sizeof *caffe_state,
                                    CAFFE_STATE_SIZE);
    aril_module *m = net_of(wrong[3].layers);
    CHECK(aril_caffe_weights_load(m, state) < 0);
    CHECK_MSG(strstr(aril_error(), "has no group 'data' with the blobs of layers: it is the state "
                                   "of a solver"),
              "%s", aril_error());
    aril_clear_error();
    aril_module_release(m);
    CHECK(!open_linear(path));
    CHECK_MSG(strstr(aril_error(), "is a caffemodel, not the state of a solver"), "%s",
              aril_error());
    aril_clear_error();
}

/* A state of the linear net in which one thing may differ. */
typedef struct state_of {
    const char *iter, *step, *second; /* names of arrays */
    aril_dtype dtype;                 /* of iter */
    int64_t value, rows, length;      /* of iter, its size, that of the second history */
    bool net_is_number, no_group;
} state_of;

static const char *write_state(state_of w)
{
    ARIL_SCOPE;
    aril_tensor *iter = aril_full(ARIL_SHAPE(w.rows), (double)w.value, w.dtype, aril_cpu());
    aril_tensor *step = aril_full(ARIL_SHAPE(1), 0, ARIL_I32, aril_cpu());
    aril_tensor *weight = aril_zeros(ARIL_SHAPE(1, 3), ARIL_F32, aril_cpu());
    aril_tensor *at[] = { iter, step, weight,
                          aril_zeros(ARIL_SHAPE(w.length), ARIL_F32, aril_cpu()), step };
    const char *names[] = { w.iter, w.step, w.no_group ? "x" : "history/0", w.second,
                            "learned_net" };
    const char *text_name[] = { "learned_net" }, *text[] = { "linear_iter_7.caffemodel.h5" };
    aril__hdf5_contents c = { .arrays = { .n = w.net_is_number ? 5 : 4, .at = at, .name = names },
                              .n_texts = !w.net_is_number,
                              .text_name = text_name,
                              .text = text };
    const char *path = temp_path("state.h5");
    return aril__hdf5_write(path, &c) == ARIL_OK ? path : "";
}

TEST(malformed_hdf5_states_are_errors)
{
    write_parts("linear_iter_7.caffemodel.h5", caffe_weights,
                sizeof caffe_weights / sizeof *caffe_weights, CAFFE_WEIGHTS_SIZE);
    state_of good = { "iter", "current_step", "history/1", ARIL_I32, 7, 1, 1, false, false };
    aril_caffe_solver *s = open_linear(write_state(good));
    if (!s && no_hdf5()) SKIP("no HDF5");
    CHECK_MSG(s, "%s", aril_error());
    static const struct {
        state_of state;
        const char *error;
    } wrong[] = {
        { { "it", "current_step", "history/1", ARIL_I32, 7, 1, 1, false, false },
          "it has no integer 'iter'" },
        { { "iter", "step", "history/1", ARIL_I32, 7, 1, 1, false, false },
          "it has no integer 'current_step'" },
        { { "iter", "current_step", "history/1", ARIL_F32, 7, 1, 1, false, false },
          "it has no integer 'iter'" },
        { { "iter", "current_step", "history/1", ARIL_I32, 7, 2, 1, false, false },
          "it has no integer 'iter'" },
        { { "iter", "current_step", "history/1", ARIL_I64, -1, 1, 1, false, false },
          "at iteration -1, which is negative" },
        { { "iter", "current_step", "history/1", ARIL_I64, INT64_C(1) << 40, 1, 1, false, false },
          "at iteration 1099511627776; Caffe counts up to 2147483647" },
        { { "iter", "current_step", "history/2", ARIL_I32, 7, 1, 1, false, false },
          "blob 1 of its history has 0 values, the net's 1" },
        { { "iter", "current_step", "history/1", ARIL_I32, 7, 1, 4, false, false },
          "blob 1 of its history has 4 values, the net's 1" },
        { { "iter", "current_step", "y", ARIL_I32, 7, 1, 1, false, false },
          "its history has 1 blobs, but SGD of this net has 2" },
        { { "iter", "current_step", "y", ARIL_I32, 7, 1, 1, false, true },
          "it has no group 'history'" },
        { { "iter", "current_step", "history/1", ARIL_I32, 7, 1, 1, true, false },
          "learned_net of" },
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CHECK(aril_caffe_solver_restore(s, write_state(wrong[i].state)) < 0);
        CHECK_MSG(strstr(aril_error(), wrong[i].error), "%zu: %s", i, aril_error());
        aril_clear_error();
    }
    /* Cut at any place. */
    aril__bytes whole = { 0 };
    const char *path = temp_path("cut.h5");
    CHECK_INT(aril__read_file("file", write_state(good), 0, &whole), ARIL_OK);
    for (size_t k = 0; k < 60; k++) {
        CHECK_INT(aril__file_replace(path, whole.at, whole.n * k / 60), ARIL_OK);
        CHECK_MSG(aril_caffe_solver_restore(s, path) < 0, "cut at %zu", whole.n * k / 60);
        aril_clear_error();
    }
    aril__bytes_free(&whole);
    CHECK_MSG(aril_caffe_solver_restore(s, write_state(good)) == ARIL_OK, "%s", aril_error());
    aril_caffe_solver_free(s);
}
