/* Blobs of Caffe's nets go by the names of layers, also where several layers have the same name. */
#include "aril/aril.h"
#include "formats/bytes.h"
#include "support/temp.h"
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define IP(name, from, to)                                                       \
    "layer { name: '" name "' type: 'InnerProduct' bottom: '" from "' top: '" to \
    "' inner_product_param { num_output: 3 bias_term: "                          \
    "false weight_filler { type: 'gaussian' } } }\n"
#define RELU(name, from, to) \
    "layer { name: '" name "' type: 'ReLU' bottom: '" from "' top: '" to "' }\n"
#define X "input: 'x' input_shape { dim: 2 dim: 3 }\n"

/* Three layers named r, of which two have blobs. */
static const char same[] =
    X RELU("r", "x", "a") IP("r", "a", "b") IP("r", "b", "c") IP("other", "c", "y");

static aril_module *parse(const char *text)
{
    aril_module *m = aril_caffe_net_parse(text, strlen(text), "test", (aril_caffe_opts){ 0 });
    if (!m) test_fail(__FILE__, __LINE__, "%s", aril_error());
    return m;
}

static aril_tensor *blob(const aril_module *m, int i)
{
    return aril_caffe_param_at(m, i).tensor;
}

/* Whether the i-th blob of a is the k-th of b. */
static bool equal(const aril_module *a, int i, const aril_module *b, int k)
{
    ARIL_SCOPE;
    return aril_equal(blob(a, i), blob(b, k));
}

/* False where HDF5 is missing. */
static bool save(aril_module *m, const char *path)
{
    aril_status s = aril_caffe_weights_save(m, path);
    bool none = s < 0 && strstr(aril_error(), "without HDF5");
    if (none) aril_clear_error();
    if (s < 0 && !none) test_fail(__FILE__, __LINE__, "%s", aril_error());
    return s == ARIL_OK;
}

static void load(aril_module *m, const char *path)
{
    CHECK_MSG(aril_caffe_weights_load(m, path) == ARIL_OK, "%s", aril_error());
}

static int ignored(const aril_module *m)
{
    int n = 0;
    while (aril_caffe_weights_ignored(m, n)) n++;
    return n;
}

static void round_trip(const char *file)
{
    char path[4096];
    snprintf(path, sizeof path, "%s", temp_path(file));
    aril_module *a = parse(same), *b = parse(same);
    CHECK_INT(aril_caffe_params(a), 3);
    CHECK(!equal(a, 0, a, 1));
    bool written = save(a, path);
    if (written) {
        load(b, path);
        for (int i = 0; i < 3; i++) CHECK_MSG(equal(a, i, b, i), "%s: blob %d differs", file, i);
        /* One layer of that name takes the first blobs, three leave the last as it is. */
        aril_module *one = parse(X IP("r", "x", "y"));
        aril_module *three = parse(X IP("r", "x", "a") IP("r", "a", "b") IP("r", "b", "y"));
        ARIL_SCOPE;
        aril_tensor *before = aril_copy(blob(three, 2));
        load(one, path);
        load(three, path);
        CHECK(equal(one, 0, a, 0) && equal(three, 0, a, 0) && equal(three, 1, a, 1));
        CHECK(aril_equal(blob(three, 2), before));
        /* What the file has and the net does not, and the other way round. */
        CHECK_INT(ignored(b), 0);
        CHECK(!aril_caffe_weights_missing(b, 0));
        CHECK_INT(ignored(one), 2);
        CHECK_INT(ignored(three), 1);
        CHECK_STR(aril_caffe_weights_ignored(three, 0), "other");
        CHECK_STR(aril_caffe_weights_missing(three, 0), "r");
        CHECK(!aril_caffe_weights_missing(three, 1));
        CHECK(!aril_caffe_weights_missing(three, -1) && !aril_caffe_weights_ignored(three, -1));
        aril_module_release(one);
        aril_module_release(three);
    }
    aril_module_release(a);
    aril_module_release(b);
    if (!written) SKIP("no HDF5");
}

TEST(tops_have_shapes)
{
    aril_module *m = parse(same);
    CHECK_STR(aril_caffe_top(m, 1, 0).name, "a");
    CHECK_INT(aril_caffe_top(m, 1, 0).shape.dim[0], 2);
    CHECK_STR(aril_caffe_top(m, 4, 0).name, "y");
    CHECK(aril_caffe_top(m, 4, 0).known);
    CHECK(!aril_caffe_top(m, 4, 1).name && !aril_caffe_top(m, 5, 0).name);
    CHECK(!aril_caffe_top(m, -1, 0).name && !aril_caffe_top(m, 0, -1).name);
    aril_module_release(m);
}

TEST(layers_of_one_name_in_a_caffemodel)
{
    round_trip("same.caffemodel");
}

TEST(layers_of_one_name_in_hdf5)
{
    round_trip("same.caffemodel.h5");
}

TEST(a_net_shares_with_layers_of_one_name)
{
    ARIL_SCOPE;
    aril_module *a = parse(same), *b = parse(same), *c = parse(X RELU("r", "x", "y"));
    CHECK_MSG(aril_caffe_share(a, b) == ARIL_OK, "%s", aril_error());
    for (int i = 0; i < 3; i++) CHECK(blob(a, i) == blob(b, i));
    CHECK(aril_caffe_share(c, b) < 0);
    CHECK_MSG(strstr(aril_error(), "has 0 blobs, the other net's 1"), "%s", aril_error());
    aril_clear_error();
    CHECK(aril_caffe_share(b, c) < 0);
    CHECK_MSG(strstr(aril_error(), "has 1 blobs, the other net's 0"), "%s", aril_error());
    aril_clear_error();
    aril_module_release(a);
    aril_module_release(b);
    aril_module_release(c);
}

/* A layer that is really named so cannot be told from the second one of the shorter name. */
TEST(hdf5_refuses_a_name_that_is_taken)
{
    aril_module *m = parse(X IP("r", "x", "a") IP("r", "a", "b") IP("r#2", "b", "y"));
    CHECK(aril_caffe_weights_save(m, temp_path("taken.h5")) < 0);
    CHECK_MSG(strstr(aril_error(), "HDF5"), "%s", aril_error());
    aril_clear_error();
    aril_module_release(m);
}

/* The names of the weights in a file, in order. */
static int names_in(const char *path, char names[][64], int most)
{
    aril_weights *w = aril_weights_open(path, (aril_weights_opts){ 0 });
    if (!w) test_fail(__FILE__, __LINE__, "%s", aril_error());
    int n = w ? aril_weights_count(w) : 0;
    for (int i = 0; i < n && i < most; i++) snprintf(names[i], 64, "%s", aril_weights_name(w, i));
    aril_weights_close(w);
    return n;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(a, b);
}

TEST(weights_have_the_same_names_in_both_forms)
{
    static const char many[] =
        "layer { name: 'in' type: 'Input' top: 'x' top: 'c' input_param { shape { dim: 2 dim: 3 "
        "dim: 4 } shape { dim: 2 dim: 3 } } }"
        "layer { name: 'a/b' type: 'Convolution' bottom: 'x' top: 'v' convolution_param { "
        "num_output: 2 kernel_size: 1 axis: 0 } }"
        "layer { name: 'n.1' type: 'BatchNorm' bottom: 'x' top: 'n' }"
        "layer { name: 's' type: 'Scale' bottom: 'n' top: 's' scale_param { bias_term: true } }"
        "layer { name: 'p' type: 'PReLU' bottom: 's' top: 'p' }"
        "layer { name: 'l' type: 'LSTM' bottom: 'x' bottom: 'c' top: 'l' recurrent_param { "
        "num_output: 2 } }"
        "layer { name: 'r' type: 'RNN' bottom: 'x' bottom: 'c' top: 'r' recurrent_param { "
        "num_output: 2 } }"
        "layer { name: 'i' type: 'InnerProduct' bottom: 'l' top: 'i' param { name: 'w' } "
        "inner_product_param { num_output: 2 axis: 2 } }"
        "layer { name: 'j' type: 'InnerProduct' bottom: 'i' top: 'j' param { name: 'w' } "
        "inner_product_param { num_output: 2 axis: 2 } }";
    enum { MOST = 32 };
    char wire[4096], hdf5[4096], a[MOST][64], b[MOST][64];
    snprintf(wire, sizeof wire, "%s", temp_path("many.caffemodel"));
    snprintf(hdf5, sizeof hdf5, "%s", temp_path("many.h5"));
    aril_module *m = parse(many);
    CHECK(save(m, wire));
    bool written = save(m, hdf5);
    aril_module_release(m);
    if (!written) SKIP("no HDF5");
    int n = names_in(wire, a, MOST), k = names_in(hdf5, b, MOST);
    CHECK_INT(k, n - 1); /* HDF5 has a shared blob once */
    qsort(a, (size_t)n, sizeof *a, by_text);
    qsort(b, (size_t)k, sizeof *b, by_text);
    for (int i = 0, at = 0; i < n; i++)
        if (strcmp(a[i], "j.weight") != 0) CHECK_STR(b[at++], a[i]);
    /* All that a file holds, as it is. */
    aril_weights *w = aril_weights_open(hdf5, (aril_weights_opts){ .root = "" });
    CHECK(w && aril_weights_find(w, "data/a/b/0") >= 0);
    aril_weights_close(w);
}

/* No time is stored: a snapshot that is written again is the same file. */
TEST(the_same_weights_make_the_same_hdf5)
{
    char path[2][4096];
    aril_module *m = parse(same);
    for (int i = 0; i < 2; i++) {
        snprintf(path[i], sizeof *path, "%s", temp_path(i ? "b.h5" : "a.h5"));
        if (!save(m, path[i])) {
            aril_module_release(m);
            SKIP("no HDF5");
        }
        if (i == 0) usleep(1100000); /* times are in seconds */
    }
    aril_module_release(m);
    aril__bytes a = { 0 }, b = { 0 };
    CHECK_INT(aril__read_file("file", path[0], 0, &a), ARIL_OK);
    CHECK_INT(aril__read_file("file", path[1], 0, &b), ARIL_OK);
    CHECK(a.n > 0 && a.n == b.n && memcmp(a.at, b.at, a.n) == 0);
    aril__bytes_free(&a);
    aril__bytes_free(&b);
}
