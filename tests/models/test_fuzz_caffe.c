/* Damaged nets and weights: each is read, or refused with an error; nothing crashes, leaks, or
 * takes memory without bounds. ARIL_FUZZ_TIMES=100 runs longer. */
#include "aril/aril.h"
#include "support/temp.h"
#include "support/test.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t state = 88172645463325252u;

static unsigned rnd(unsigned n)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (unsigned)(state >> 11) % n;
}

static int times(int n)
{
    const char *more = getenv("ARIL_FUZZ_TIMES");
    return more ? n * atoi(more) : n;
}

/* Nets with most kinds of layers. Inputs have no shapes where any number may follow: then no blob
 * is created. */
static const char *const open_nets[] = {
    "name: 'n' layer { name: 'd' type: 'Data' top: 'x' top: 't' data_param { source: 's' "
    "batch_size: 8 } transform_param { crop_size: 5 } include { phase: TRAIN } }\n"
    "layer { name: 'd' type: 'HDF5Data' top: 'x' top: 't' hdf5_data_param { source: 's' } exclude "
    "{ phase: TRAIN min_level: 1 not_stage: 's' } }\n"
    "layer { name: 'c' type: 'Convolution' bottom: 'x' top: 'c' param { name: 'w' lr_mult: 1 } "
    "convolution_param { num_output: 4 kernel_size: 3 pad: 1 dilation: 2 weight_filler { type: "
    "'gaussian' std: 0.1 } } }\n"
    "layer { name: 'r' type: 'ReLU' bottom: 'c' top: 'c' }\n"
    "layer { name: 'p' type: 'Pooling' bottom: 'c' top: 'p' pooling_param { pool: AVE kernel_size: "
    "3 stride: 2 } }\n"
    "layer { name: 's' type: 'Slice' bottom: 'p' top: 's1' top: 's2' slice_param { slice_point: 2 "
    "} "
    "}\n"
    "layer { name: 'e' type: 'Eltwise' bottom: 's1' bottom: 's2' top: 'e' eltwise_param { "
    "operation: "
    "SUM coeff: 1 coeff: -1 } }\n"
    "layer { name: 'l' type: 'SoftmaxWithLoss' bottom: 'e' bottom: 't' loss_weight: 2 }\n",
    "layers { layer { name: 'd' type: 'data' source: 'db' batchsize: 8 } top: 'x' top: 'y' }\n"
    "layers { layer { name: 'pad' type: 'padding' pad: 2 } bottom: 'x' top: 'p' }\n"
    "layers { layer { name: 'c' type: 'conv' num_output: 4 kernelsize: 5 blobs_lr: 1 } bottom: 'p' "
    "top: 'c' }\n",
    "layers { name: 'd' type: DATA top: 'x' top: 'y' data_param { source: 's' scale: 0.5 } }\n"
    "layers { name: 'c' type: CONVOLUTION bottom: 'x' top: 'c' blobs_lr: 1 weight_decay: 1 param: "
    "'w' blob_share_mode: STRICT convolution_param { num_output: 3 kernel_size: 3 } }\n"
    "layers { name: 'l' type: SOFTMAX_LOSS bottom: 'c' bottom: 'y' top: 'l' }\n",
};

/* With shapes: numbers stay below 10. */
static const char closed_net[] =
    "input: 'x' input_dim: 2 input_dim: 4 input_dim: 6 input_dim: 6\n"
    "layer { name: 'c' type: 'Convolution' bottom: 'x' top: 'c' param { lr_mult: 1 } "
    "convolution_param { num_output: 4 kernel_size: 3 pad: 1 stride: 1 group: 2 weight_filler { "
    "type: 'xavier' } } }\n"
    "layer { name: 'b' type: 'BatchNorm' bottom: 'c' top: 'c' }\n"
    "layer { name: 's' type: 'Scale' bottom: 'c' top: 'c' scale_param { axis: 1 num_axes: 1 } }\n"
    "layer { name: 'n' type: 'LRN' bottom: 'c' top: 'n' lrn_param { local_size: 3 } }\n"
    "layer { name: 'p' type: 'Pooling' bottom: 'n' top: 'p' pooling_param { kernel_size: 3 stride: "
    "2 "
    "} }\n"
    "layer { name: 'f' type: 'Flatten' bottom: 'p' top: 'f' flatten_param { axis: 1 end_axis: -1 } "
    "}\n"
    "layer { name: 'i' type: 'InnerProduct' bottom: 'f' top: 'i' inner_product_param { num_output: "
    "3 "
    "} }\n"
    "layer { name: 'r' type: 'Reshape' bottom: 'i' top: 'r' reshape_param { shape { dim: 0 dim: 3 "
    "dim: 1 } axis: 0 num_axes: -1 } }\n"
    "layer { name: 'g' type: 'Permute' bottom: 'r' top: 'g' permute_param { order: 1 order: 0 } }\n"
    "layer { name: 't' type: 'Tile' bottom: 'g' top: 't' tile_param { axis: 1 tiles: 2 } }\n"
    "layer { name: 'v' type: 'Crop' bottom: 't' bottom: 'g' top: 'v' crop_param { axis: 1 } "
    "}\n"
    "layer { name: 'a' type: 'ArgMax' bottom: 'v' top: 'a' argmax_param { top_k: 2 axis: 0 } }\n"
    "layer { name: 'm' type: 'Softmax' bottom: 'v' top: 'm' softmax_param { axis: 1 } }\n"
    "layer { name: 'q' type: 'Reduction' bottom: 'm' top: 'q' reduction_param { axis: 1 } }\n";

static const char *const words[] = {
    "layer { name: 'q' type: 'ReLU' bottom: 'c' top: 'q' }",
    "{",
    "}",
    "''",
    "'c'",
    "'x'",
    "'p'",
    "type: 'Concat'",
    "type: 'Split'",
    "type: 'Input'",
    "type: 'LSTM'",
    "type: 'Filter'",
    "type: 'SPP'",
    "type: 'Accuracy'",
    "bottom: 'x'",
    "top: 'y'",
    "phase: TEST",
    "loss_weight: 1",
    "propagate_down: false",
    "param { name: 'w' share_mode: PERMISSIVE }",
    "axis: -1",
    "dim: 0",
    "type: 'EuclideanLoss'",
    "type: 'Python'",
    "type: 'DummyData'",
    "type: 'Deconvolution'",
};
static const char *const large[] = { "9223372036854775807",
                                     "-9223372036854775808",
                                     "4294967295",
                                     "2147483648",
                                     "-1",
                                     "65536",
                                     "1e38",
                                     "nan",
                                     "0" };

/* Deletes, repeats or replaces a piece of the text. */
static size_t damage(char *text, size_t n, size_t room, bool any_number)
{
    char piece[128];
    size_t at = n ? rnd((unsigned)n) : 0, cut = 0;
    unsigned kind = rnd(6);
    piece[0] = 0;
    if (kind == 0) {
        cut = rnd(12);
    } else if (kind == 1) {
        snprintf(piece, sizeof piece, " %s ", words[rnd(sizeof words / sizeof *words)]);
    } else if (kind == 2) { /* a number */
        while (at < n && !(text[at] >= '0' && text[at] <= '9')) at++;
        cut = at < n;
        if (any_number)
            snprintf(piece, sizeof piece, "%s", large[rnd(sizeof large / sizeof *large)]);
        else
            snprintf(piece, sizeof piece, "%u", rnd(10));
        if (cut == 0) piece[0] = 0;
        /* Not beside another digit. */
        if (!any_number && at + 1 < n && text[at + 1] >= '0' && text[at + 1] <= '9') piece[0] = 0;
    } else if (kind == 3) { /* a part of the text itself */
        size_t from = rnd((unsigned)n), length = rnd(100);
        if (from + length > n) length = n - from;
        memcpy(piece, text + from, length);
        piece[length] = 0;
    } else if (kind == 4) { /* a whole word */
        while (at < n && text[at] != ' ') at++;
        for (cut = 1; at + cut < n && text[at + cut] != ' ';) cut++;
    } else {
        cut = 1;
        snprintf(piece, sizeof piece, "%c", any_number ? (char)(1 + rnd(255)) : "{}:' ab"[rnd(7)]);
    }
    size_t add = strlen(piece);
    if (at + cut > n) cut = n - at;
    if (n - cut + add >= room) return n;
    memmove(text + at + add, text + at + cut, n - at - cut);
    memcpy(text + at, piece, add);
    return n - cut + add;
}

/* Numbers of more than two digits would make large blobs. */
static bool small_numbers(const char *text, size_t n)
{
    size_t digits = 0;
    for (size_t i = 0; i < n; i++) {
        digits = text[i] >= '0' && text[i] <= '9' ? digits + 1 : 0;
        if (digits > 1) return false;
    }
    return true;
}

static void try_text(const char *text, size_t n, bool runs)
{
    ARIL_SCOPE;
    aril_clear_error();
    aril_module *m = aril_caffe_net_parse(text, n, "fuzz", (aril_caffe_opts){ .phase = rnd(2) });
    if (!m && aril_ok())
        test_fail(__FILE__, __LINE__, "refused without an error: %.*s", (int)n, text);
    if (m && runs && aril_caffe_inputs(m) == 1 && aril_module_built(m)) {
        aril_tensor *x = aril_randn(aril_caffe_input(m, 0).shape, ARIL_F32, aril_cpu());
        aril_tensor *y = aril_caffe_loss(m, ARIL_LIST(x), NULL);
        if (aril_tensor_status(y) == ARIL_OK && aril_requires_grad(y)) aril_backward(y);
    }
    aril_module_release(m);
    aril_clear_error();
}

TEST(damaged_texts)
{
    enum { ROOM = 8192 };
    char text[ROOM];
    for (int i = 0; i < times(3000) && !test_failed(); i++) {
        const char *from = open_nets[rnd(3)];
        size_t n = strlen(from);
        memcpy(text, from, n);
        for (unsigned k = 1 + rnd(4); k > 0; k--) n = damage(text, n, ROOM, true);
        /* DummyData and inputs of any size would be created. */
        text[n] = 0;
        if (strstr(text, "shape") || strstr(text, "input") || strstr(text, "Dummy")) continue;
        try_text(text, n, false);
    }
}

TEST(damaged_nets_run_or_are_refused)
{
    enum { ROOM = 8192 };
    char text[ROOM];
    for (int i = 0; i < times(300) && !test_failed(); i++) {
        size_t n = strlen(closed_net);
        memcpy(text, closed_net, n);
        for (unsigned k = 1 + rnd(3); k > 0; k--) n = damage(text, n, ROOM, false);
        if (small_numbers(text, n)) try_text(text, n, true);
    }
}

/* ---- wire form ---- */

/* All that reads a caffemodel without its net. */
static void try_file(const char *path)
{
    ARIL_SCOPE;
    aril_weights *w = aril_weights_open(path, (aril_weights_opts){ 0 });
    for (int i = 0; w && i < aril_weights_count(w); i++) aril_weights_tensor(w, i);
    aril_weights_close(w);
    aril_clear_error();
    aril_caffe_upgrade(path, temp_path("bad.h5"), true);
    aril_clear_error();
}

/* The same bytes as another kind of file. */
static void try_description(const void *data, size_t size, const char *path)
{
    FILE *f = fopen(path, "wb"), *out = fopen("/dev/null", "w");
    CHECK(f && out);
    fwrite(data, 1, size, f);
    fclose(f);
    aril_describe_file(path, out);
    fclose(out);
    aril_clear_error();
}

TEST(damaged_weights)
{
    ARIL_SCOPE;
    aril_module *m =
        aril_caffe_net_parse(closed_net, strlen(closed_net), "net", (aril_caffe_opts){ 0 });
    CHECK_MSG(m, "%s", aril_error());
    CHECK_INT(aril_caffe_weights_save(m, temp_path("good.caffemodel")), ARIL_OK);
    static unsigned char good[1 << 16], bad[1 << 16];
    FILE *f = fopen(temp_path("good.caffemodel"), "rb");
    size_t n = f ? fread(good, 1, sizeof good, f) : 0;
    if (f) fclose(f);
    CHECK(n > 100 && n < sizeof good);
    for (int i = 0; i < times(300) && !test_failed(); i++) {
        size_t size = rnd(8) ? n : rnd((unsigned)n);
        memcpy(bad, good, n);
        for (unsigned k = 1 + rnd(4); k > 0 && size; k--)
            bad[rnd((unsigned)size)] = (unsigned char)rnd(256);
        f = fopen(temp_path("bad.caffemodel"), "wb");
        CHECK(f);
        fwrite(bad, 1, size, f);
        fclose(f);
        if (aril_caffe_weights_load(m, temp_path("bad.caffemodel")) < 0) CHECK(!aril_ok());
        aril_clear_error();
        /* A net of any size could come of it: only upgraded. */
        aril_caffe_upgrade(temp_path("bad.caffemodel"), temp_path("text.prototxt"), false);
        aril_clear_error();
        try_file(temp_path("bad.caffemodel"));
        try_description(bad, size, temp_path("bad.binaryproto"));
        try_description(bad, size, temp_path("bad.solverstate"));
    }
    aril_module_release(m);
}

/* ---- particular attacks ---- */

static void refused(const char *text, size_t n, const char *words_of_it)
{
    aril_clear_error();
    aril_module *m = aril_caffe_net_parse(text, n, "attack", (aril_caffe_opts){ 0 });
    if (m || !strstr(aril_error(), words_of_it))
        test_fail(__FILE__, __LINE__, "expected '%s', got: %.200s", words_of_it,
                  m ? "a net" : aril_error());
    aril_module_release(m);
    aril_clear_error();
}

TEST(deep_and_long_texts)
{
    enum { N = 30000, ROOM = N * 64 };
    char *text = malloc(ROOM);
    size_t n = 0;
    CHECK(text);
    for (int i = 0; i < 200; i++) n += (size_t)sprintf(text + n, "layer { ");
    refused(text, n, "attack");
    n = 0;
    for (int i = 0; i < N; i++)
        n += (size_t)sprintf(text + n, "layer { name: 'a' type: 'Silence' }\n");
    refused(text, n, "at most 20000");
    n = 0;
    for (int i = 0; i < N; i++)
        n += (size_t)sprintf(text + n, "layers { layer { type: 'conv' } }\n");
    refused(text, n, "at most 5000");
    n = (size_t)sprintf(text, "layer { name: 's' type: 'Silence' ");
    for (int i = 0; i < N; i++) n += (size_t)sprintf(text + n, "bottom: 'x' ");
    n += (size_t)sprintf(text + n, "}");
    refused(text, n, "no layer has the top 'x'");
    /* Blobs that no memory holds. */
    n = (size_t)sprintf(text, "layer { name: 'x' type: 'Input' top: 'x' input_param { shape { dim: "
                              "9223372036854775807 } } }");
    refused(text, n, "cannot be size 0");
    n = (size_t)sprintf(text,
                        "layer { name: 'x' type: 'Input' top: 'x' input_param { shape { dim: 1 "
                        "dim: 2147483647 } } }\n"
                        "layer { name: 'i' type: 'InnerProduct' bottom: 'x' top: 'y' "
                        "inner_product_param { num_output: 2147483647 } }");
    refused(text, n, "layer 'i' (InnerProduct) at line 2: ");
    n = (size_t)sprintf(text,
                        "layer { name: 'p' type: 'Parameter' top: 'p' parameter_param { shape { "
                        "dim: 1000000000 dim: 1000000000 } } }");
    refused(text, n, "layer 'p' (Parameter) at line 1: ");
    free(text);
}
