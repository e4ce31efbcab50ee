/* All prototxts of ARIL_TEST_DATA: they print back to the same meaning, and nets run forward and
 * backward with random weights and inputs (tests/train/test_caffe_databases.c reads data). Images
 * are as small as a net allows; ARIL_TEST_FULL=1 runs the sizes of the files. */
#include "aril/aril.h"
#include "formats/caffe/net.h"
#include "models/caffe/net.h"
#include "support/device.h"
#include "support/test.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST = 128 };
static char *paths[MOST];
static int n_paths;

static int note_path(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st, (void)at;
    size_t n = strlen(path);
    if (kind == FTW_F && n > 9 && strcmp(path + n - 9, ".prototxt") == 0 && n_paths < MOST)
        paths[n_paths++] = strdup(path);
    return 0;
}

static int by_path(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The files of a folder, sorted. */
static bool find_paths(void)
{
    char folder[1024];
    const char *data = getenv("ARIL_TEST_DATA");
    snprintf(folder, sizeof folder, "%s/caffe-prototxt", data ? data : "../shared/data");
    if (n_paths == 0) nftw(folder, note_path, 16, FTW_PHYS);
    qsort(paths, (size_t)n_paths, sizeof *paths, by_path);
    if (n_paths == 0) test_skip("no %s", folder);
    return n_paths > 0;
}

static bool is_solver(const char *path)
{
    return strstr(path, "solver") != NULL;
}

/* ---- text ---- */

TEST(all_print_back_to_the_same_meaning)
{
    if (!find_paths()) return;
    CHECK_INT(n_paths, 69);
    for (int i = 0; i < n_paths; i++) {
        bool solver = is_solver(paths[i]);
        const aril__proto_type *type =
            solver ? &aril__caffe_SolverParameter : &aril__caffe_NetParameter;
        aril__message *m = aril__message_load_text(type, paths[i]), *again;
        CHECK_MSG(m, "%s", aril_error());
        CHECK_INT(solver ? aril__caffe_solver_upgrade(m, paths[i])
                         : aril__caffe_net_upgrade(m, paths[i]),
                  ARIL_OK);
        aril__bytes text = { 0 };
        CHECK_INT(aril__message_print(m, &text), ARIL_OK);
        again = aril__message_parse(type, (const char *)text.at, text.n, (aril__message_opts){ 0 });
        CHECK_MSG(again && aril__message_equal(m, again), "%s: %s", paths[i], aril_error());
        aril__bytes_free(&text);
        aril__message_free(m);
        aril__message_free(again);
    }
}

/* ---- running ---- */

static void euclidean(const char *param, aril_list in, int n_out, aril_tensor **out, void *ctx)
{
    (void)param, (void)n_out, (void)ctx;
    out[0] =
        aril_mul_scalar(aril_mse_loss(in.at[0], in.at[1]), 0.5 * (double)aril_size(in.at[0], 1));
}

/* The image of nets whose data layers do not tell: by the dataset that the path names. */
static aril_shape data_shape(const char *path, const aril__message *layer, int64_t side)
{
    static const struct {
        const char *word;
        int64_t c, h;
    } sets[] = { { "siamese", 2, 28 }, { "mnist", 1, 28 }, { "cifar10", 3, 32 } };
    const aril__message *transform = aril__message_sub(layer, "transform_param");
    int64_t crop = aril__message_int(transform, "crop_size");
    for (int i = 0; i < 3 && !crop; i++)
        if (strstr(path, sets[i].word)) return ARIL_SHAPE(2, sets[i].c, sets[i].h, sets[i].h);
    if (strstr(path, "hdf5")) return ARIL_SHAPE(2, 4);
    if (!crop || (side && side < crop)) crop = side ? side : 227;
    return ARIL_SHAPE(1, 3, crop, crop);
}

/* Shapes of a net's inputs with a batch of 1, and images of at most `side` pixels (0: as the file
 * says). */
static int input_shapes(const aril_module *net, const char *path, int64_t side, aril_shape *shape)
{
    int n = aril_caffe_inputs(net);
    for (int i = 0; i < n; i++) {
        aril_caffe_blob in = aril_caffe_input(net, i);
        aril_caffe_layer layer = aril_caffe_layer_at(net, in.layer);
        bool label = layer.is_data && i > layer.first_input;
        shape[i] = layer.is_data ? data_shape(path, aril__caffe_layer_message(net, in.layer), side)
                                 : in.shape;
        if (label) shape[i] = ARIL_SHAPE(shape[layer.first_input].dim[0]);
        if (layer.is_data || in.shape.ndim != 4) continue;
        shape[i].dim[0] = 1;
        for (int d = 2; d < 4 && side; d++)
            if (shape[i].dim[d] > side) shape[i].dim[d] = side;
    }
    return n;
}

static aril_module *make(const char *path, aril_caffe_phase phase, int64_t side)
{
    aril_shape shape[8];
    /* Its layers, as data layers leave sizes open. */
    static const char *const stage[] = { "test-on-test" };
    aril_caffe_opts opts = { .phase = phase, .stages = stage, .n_stages = 1 };
    aril_module *net = aril_caffe_net(path, opts);
    if (!net || aril_caffe_inputs(net) > 8) return net;
    opts.shapes = shape;
    opts.n_shapes = input_shapes(net, path, side, shape);
    aril_module_release(net);
    return aril_caffe_net(path, opts);
}

/* A net of the smallest image that its pooling allows. */
static aril_module *make_small(const char *path, aril_caffe_phase phase)
{
    static const int64_t sides[] = { 33, 67, 99, 131, 195 };
    for (int i = 0; i < 5 && !getenv("ARIL_TEST_FULL"); i++) {
        aril_module *net = make(path, phase, sides[i]);
        if (net) return net;
        aril_clear_error();
    }
    return make(path, phase, 0);
}

static void run(const char *path, aril_caffe_phase phase)
{
    ARIL_SCOPE;
    aril_module *net = make_small(path, phase);
    CHECK_MSG(net, "%s: %s", path, aril_error());
    CHECK_MSG(aril_module_built(net), "%s", path);
    aril_module_to(net, test_device());
    /* Statistics as after training: those of a new net are zero, and divide by almost nothing. */
    const aril_named *b = aril_buffers(net);
    for (int i = 0; b && i < b->n; i++)
        if (!strstr(b->name[i], ".mean")) aril_fill_(b->at[i], 1);
    aril_tensor *in[8], *out[17];
    int n = aril_caffe_inputs(net), n_out = aril_caffe_outputs(net);
    CHECK(n <= 8 && n_out <= 16);
    for (int i = 0; i < n; i++) {
        aril_shape s = aril_caffe_input(net, i).shape;
        in[i] = s.ndim > 1 ? aril_randn(s, ARIL_F32, test_device())
                           : aril_zeros(s, ARIL_I64, test_device());
    }
    aril_tensor *loss = aril_caffe_loss(net, (aril_list){ n, in }, out);
    for (int i = 0; i < n_out && phase == ARIL_CAFFE_TEST; i++)
        if (aril_requires_grad(out[i]))
            loss = aril_add(loss, aril_sum(aril_square(out[i]), ARIL_ALL));
    CHECK_MSG(aril_ok(), "%s: %s", path, aril_error());
    bool learns = aril_caffe_params(net) > 0 && aril_requires_grad(loss);
    if (learns) CHECK_MSG(aril_backward(loss) == ARIL_OK, "%s: %s", path, aril_error());
    bool some = false;
    for (int i = 0; i < aril_caffe_params(net); i++)
        some |= aril_has_grad(aril_caffe_param_at(net, i).tensor);
    CHECK_MSG(some == learns, "%s: no gradient", path);
    CHECK_MSG(learns || phase == ARIL_CAFFE_TEST || aril_caffe_params(net) == 0, "%s", path);
    for (int i = 0; i < n_out; i++) {
        double sum = aril_item(aril_sum(out[i], ARIL_ALL));
        CHECK_MSG(sum == sum || aril_numel(out[i]) == 0, "%s: %s is NaN", path,
                  aril_caffe_output(net, i).name);
    }
    aril_module_release(net);
}

/* Nets without weights, and the largest ones by the part that takes them. */
static void run_part(int part)
{
    if (!find_paths()) return;
    aril_seed(1);
    CHECK_INT(aril_caffe_register("pyloss.EuclideanLossLayer", euclidean, NULL), ARIL_OK);
    for (int i = 0; i < n_paths; i++) {
        if (is_solver(paths[i]) || i % 4 != part) continue;
        bool deep = strstr(paths[i], "ResNet-1") || strstr(paths[i], "SqNxt-23v5");
        if (deep && !getenv("ARIL_TEST_FULL")) continue;
        run(paths[i], ARIL_CAFFE_TEST);
        bool both = strstr(paths[i], "train") != NULL;
        if (both && !test_failed()) run(paths[i], ARIL_CAFFE_TRAIN);
        if (test_failed()) break;
    }
    aril_caffe_register("pyloss.EuclideanLossLayer", NULL, NULL);
}

TEST(nets_run_forward_and_backward_1)
{
    run_part(0);
}
TEST(nets_run_forward_and_backward_2)
{
    run_part(1);
}
TEST(nets_run_forward_and_backward_3)
{
    run_part(2);
}
TEST(nets_run_forward_and_backward_4)
{
    run_part(3);
}
