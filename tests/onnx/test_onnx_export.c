/* Exported networks, training steps, control flow and graphs, read again, give the same values;
 * files that cannot be written leave nothing behind. */
#include "onnx/export_case.h"
#include "onnx/onnx_text.h"
#include "support/compare.h"

#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static aril_tensor *normal(aril_shape shape)
{
    return aril_randn(shape, ARIL_F32, aril_cpu());
}

/* The results of a model on inputs; an error fails the test. */
static void run_model(const char *path, aril_list in, aril_tensor **out)
{
    aril_program *p = aril_program_load(path, (aril_load_opts){ 0 });
    CHECK_MSG(p != NULL, "%s", aril_error());
    aril_program_run(p, in, out);
    CHECK_MSG(aril_ok(), "%s", aril_error());
    aril_program_free(p);
}

static void check_equal(const char *what, aril_tensor *got, aril_tensor *want, double tolerance)
{
    char *why = test_difference_in_value(got, want, tolerance, tolerance);
    CHECK_MSG(!why, "%s: %s", what, why);
}

/* ---- networks ---- */

/* A smaller input where the network takes one, so that all of them run in seconds. */
static aril_shape small_input(const aril_zoo_entry *e)
{
    aril_shape s = e->input;
    int64_t side = strcmp(e->family, "inception") == 0 ? 75
                   : strcmp(e->family, "unet") == 0    ? 188
                                                       : 64;
    for (int d = 1; d < s.ndim && s.ndim == 3; d++)
        if (s.dim[d] > side) s.dim[d] = side;
    return s;
}

static void check_network(const aril_zoo_entry *e)
{
    ARIL_SCOPE;
    aril_seed(1);
    aril_shape input = e->dtype == ARIL_I64 ? ARIL_SHAPE(16) : small_input(e), batch = { 0 };
    aril_module *net = aril_zoo_make(e->name, (aril_zoo_opts){ .input = input, .classes = 10 });
    if (!net) { /* needs its own size */
        aril_clear_error();
        input = e->input;
        net = aril_zoo_make(e->name, (aril_zoo_opts){ .classes = 10 });
    }
    CHECK_MSG(net != NULL, "%s: %s", e->name, aril_error());
    batch = (aril_shape){ .ndim = input.ndim + 1, .dim = { 2 } };
    memcpy(batch.dim + 1, input.dim, (size_t)input.ndim * sizeof *input.dim);
    aril_tensor *x =
        e->dtype == ARIL_I64 ? aril_randint(0, 10, batch, ARIL_I64, aril_cpu()) : normal(batch);
    char name[80];
    snprintf(name, sizeof name, "net_%s", e->name);
    const char *path = case_path(name);
    aril_module_export(net, ARIL_LIST(x), path, (aril_export_opts){ .batch = true });
    CHECK_MSG(aril_ok(), "%s: %s", e->name, aril_error());
    CHECK(aril_module_training(net)); /* as before */
    aril_module_eval(net);
    aril_tensor *want = aril_forward(net, x), *got;
    run_model(path, ARIL_LIST(x), &got);
    if (!test_failed()) check_equal(e->name, got, want, 2e-3);
    if (!test_failed()) keep_case(name, 0, 1, &x, 1, &want);
    aril_module_release(net);
}

/* Networks of other sizes than these are built of the same parts. */
static const char *const networks[] = {
    "lenet5",
    "lenet5-1998",
    "mlp",
    "two_layer",
    "convnet",
    "alexnet",
    "vgg11",
    "vgg11_bn",
    "nin",
    "googlenet",
    "inception_v3",
    "resnet18",
    "resnet50",
    "resnet20",
    "densenet121",
    "squeezenet1_1",
    "mobilenet_v2",
    "mobilenet_v3_small",
    "shufflenet_v2_x0_5",
    "vit_b_16",
    "efficientnet_b0",
    "convnext_tiny",
    "googlenet-2014",
    "unet",
    "gpt2",
};

TEST(networks_of_the_zoo)
{
    int n = 0;
    bool all = getenv("ARIL_TEST_ALL") != NULL;
    for (int i = 0; i < aril_zoo_count() && !test_failed(); i++) {
        const aril_zoo_entry *e = aril_zoo_at(i);
        bool listed = all;
        for (size_t k = 0; k < sizeof networks / sizeof *networks; k++)
            listed |= strcmp(networks[k], e->name) == 0;
        if (!listed) continue;
        check_network(e);
        n++;
    }
    printf("# %d networks of %d\n", n, aril_zoo_count());
}

/* ---- names and sizes ---- */

static aril_module *small_net(void)
{
    aril_seed(3);
    return aril_nn_sequential(aril_nn_linear(4, 3), aril_nn_relu(), aril_nn_linear(3, 2));
}

static const char *const x_name[] = { "x" }, *const y_name[] = { "logits" };

TEST(names_are_kept)
{
    ARIL_SCOPE;
    aril_module *net = small_net();
    aril_tensor *x = normal(ARIL_SHAPE(5, 4));
    const char *path = temp_path("net.onnx");
    aril_export_opts opts = { .inputs = x_name, .outputs = y_name, .batch = true };
    CHECK_INT(aril_module_export(net, ARIL_LIST(x), path, opts), ARIL_OK);
    aril_program *p = aril_program_load(path, (aril_load_opts){ 0 });
    CHECK_STR(aril_program_input_name(p, 0), "x");
    CHECK_STR(aril_program_output_name(p, 0), "logits");
    CHECK_INT(aril_program_input_shape(p, 0).dim[0], -1);
    CHECK_INT(aril_program_input_shape(p, 0).dim[1], 4);
    aril_program_free(p);
    aril_module *again = aril_module_load(path, (aril_load_opts){ 0 });
    const aril_named *a = aril_parameters(net), *b = aril_parameters(again);
    CHECK_INT(a->n, b->n);
    for (int i = 0; i < a->n; i++) {
        aril_tensor *t = aril_module_tensor(again, a->name[i]);
        CHECK_MSG(t && aril_ok(), "%s", a->name[i]);
        check_equal(a->name[i], t, a->at[i], 0);
    }
    /* Another batch size, and once more from what was read. */
    aril_tensor *other = normal(ARIL_SHAPE(7, 4)), *y;
    run_model(path, ARIL_LIST(other), &y);
    check_equal("another batch", y, aril_forward(net, other), 1e-5);
    const char *second = temp_path("again.onnx");
    CHECK_INT(aril_module_export(again, ARIL_LIST(x), second, opts), ARIL_OK);
    run_model(second, ARIL_LIST(other), &y);
    check_equal("exported again", y, aril_forward(net, other), 1e-5);
    aril_module *third = aril_module_load(second, (aril_load_opts){ 0 });
    CHECK_INT(aril_parameters(third)->n, a->n);
    aril_module_release(third);
    aril_module_release(again);
    aril_module_release(net);
}

TEST(a_loaded_program_is_exported)
{
    ARIL_SCOPE;
    aril_module *net = small_net();
    aril_tensor *x = normal(ARIL_SHAPE(5, 4)), *y;
    const char *path = temp_path("net.onnx"), *other = temp_path("newer.onnx");
    aril_export_opts opts = { .inputs = x_name, .opset = 13, .batch = true };
    CHECK_INT(aril_module_export(net, ARIL_LIST(x), path, opts), ARIL_OK);
    aril_program *p = aril_program_load(path, (aril_load_opts){ 0 });
    CHECK_INT(aril_program_export(p, ARIL_LIST(x), other, (aril_export_opts){ .opset = 21 }),
              ARIL_OK);
    aril_program_free(p);
    p = aril_program_load(other, (aril_load_opts){ 0 });
    CHECK_STR(aril_program_input_name(p, 0), "x");
    CHECK_INT(aril_program_input_shape(p, 0).dim[0], 5);
    aril_program_run(p, ARIL_LIST(x), &y);
    check_equal("newer", y, aril_forward(net, x), 1e-5);
    aril_program_free(p);
    aril_module *m = aril_module_load(other, (aril_load_opts){ 0 });
    CHECK(aril_module_tensor(m, "0.weight") != NULL);
    CHECK(aril_ok());
    aril_module_release(m);
    aril_module_release(net);
}

/* A model that computes with its sizes: x [n,2,3] as [n,6] by Shape, Slice, Concat and Reshape,
 * and a row that is expanded to as many. */
TEST(a_loaded_program_keeps_sizes_open)
{
    ARIL_SCOPE;
    aril_program *p = load_text(
        OPSET(18),
        "node { op_type: \"Shape\" input: \"x\" output: \"s\" } "
        "node { op_type: \"Slice\" input: [\"s\", \"zero\", \"one\"] output: \"n\" } "
        "node { op_type: \"Concat\" input: [\"n\", \"all\"] output: \"to\" attribute { "
        "name: \"axis\" i: 0 type: INT } } "
        "node { op_type: \"Reshape\" input: [\"x\", \"to\"] output: \"r\" } "
        "node { op_type: \"Concat\" input: [\"n\", \"six\"] output: \"as\" attribute { "
        "name: \"axis\" i: 0 type: INT } } "
        "node { op_type: \"Expand\" input: [\"row\", \"as\"] output: \"e\" } "
        "node { op_type: \"Add\" input: [\"r\", \"e\"] output: \"y\" } "
        "initializer { name: \"zero\" dims: 1 data_type: 7 int64_data: 0 } "
        "initializer { name: \"one\" dims: 1 data_type: 7 int64_data: 1 } "
        "initializer { name: \"all\" dims: 1 data_type: 7 int64_data: -1 } "
        "initializer { name: \"six\" dims: 1 data_type: 7 int64_data: 6 } "
        "initializer { name: \"row\" dims: 6 data_type: 1 float_data: [1, 2, 3, 4, 5, 6] } "
        "input { name: \"x\" type { tensor_type { elem_type: 1 shape { dim { dim_param: "
        "\"n\" } dim { dim_value: 2 } dim { dim_value: 3 } } } } } output " ANY("y"));
    CHECK_MSG(p != NULL, "%s", aril_error());
    aril_tensor *two = normal(ARIL_SHAPE(2, 2, 3)), *five = normal(ARIL_SHAPE(5, 2, 3)), *y, *want;
    const char *path = case_path("sizes_computed");
    CHECK_INT(aril_program_export(p, ARIL_LIST(two), path, (aril_export_opts){ .batch = true }),
              ARIL_OK);
    aril_program_run(p, ARIL_LIST(five), &want);
    run_model(path, ARIL_LIST(five), &y);
    CHECK_INT(aril_size(y, 0), 5);
    check_equal("five", y, want, 0);
    if (!test_failed()) keep_case("sizes_computed", 0, 1, &five, 1, &want);
    aril_program_free(p);
    p = aril_program_load(path, (aril_load_opts){ 0 });
    CHECK_INT(aril_program_input_shape(p, 0).dim[0], -1);
    aril_program_free(p);
}

/* Sizes with names: two inputs share one, and a product of two is computed in the model. */
static void flattened(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    aril_tensor *both = aril_mul(in[0], in[1]); /* [a,b,3] */
    out[0] = aril_flatten(both, 0, 1);          /* [a * b,3] */
    out[1] = aril_expand(aril_sum(both, ARIL_KEEPDIM(0, 2)), ARIL_SHAPE(2, aril_size(in[0], 1), 5));
}

TEST(sizes_with_names)
{
    ARIL_SCOPE;
    static const char *const names[] = { "rows", "columns" };
    const aril_shape sizes[] = { ARIL_SHAPE(-2, -3, 3), ARIL_SHAPE(-2, -3, 3) };
    aril_export_opts opts = {
        .sizes = sizes, .n_sizes = 2, .size_names = names, .n_size_names = 2
    };
    aril_program *p = aril_jit(flattened, NULL, (aril_jit_opts){ .name = "sizes" });
    aril_tensor *a = normal(ARIL_SHAPE(2, 4, 3)), *b = normal(ARIL_SHAPE(2, 4, 3));
    const char *path = case_path("sizes_named");
    for (int opset = 13; opset <= 18; opset += 5) {
        opts.opset = opset;
        CHECK_INT(aril_program_export(p, ARIL_LIST(a, b), path, opts), ARIL_OK);
        aril_tensor *in[] = { normal(ARIL_SHAPE(3, 2, 3)), normal(ARIL_SHAPE(3, 2, 3)) };
        aril_tensor *want[2] = { NULL }, *got[2];
        flattened(NULL, in, want);
        run_model(path, (aril_list){ 2, in }, got);
        for (int i = 0; i < 2 && !test_failed(); i++) check_equal("sizes", got[i], want[i], 1e-5);
        keep_case("sizes_named", 0, 2, in, 2, want);
    }
    aril_program_free(p);
}

static void similarity(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    out[0] = aril_cosine_similarity(in[0], in[1], 1);
}

/* Two unknown sizes of which one may be 1: a run of the model broadcasts as eager mode does. */
TEST(sizes_that_broadcast)
{
    ARIL_SCOPE;
    const aril_shape sizes[] = { ARIL_SHAPE(-1, -1), ARIL_SHAPE(-1, -1) };
    static const int64_t columns[][2] = { { 4, 4 }, { 4, 1 }, { 1, 4 } };
    aril_program *p = aril_jit(similarity, NULL, (aril_jit_opts){ .name = "similarity" });
    aril_tensor *a = normal(ARIL_SHAPE(2, 4)), *b = normal(ARIL_SHAPE(2, 4));
    const char *path = case_path("sizes_broadcast");
    aril_export_opts opts = { .sizes = sizes, .n_sizes = 2 };
    CHECK_INT(aril_program_export(p, ARIL_LIST(a, b), path, opts), ARIL_OK);
    for (int i = 0; i < 3 && !test_failed(); i++) {
        aril_tensor *in[] = { normal(ARIL_SHAPE(3, columns[i][0])),
                              normal(ARIL_SHAPE(3, columns[i][1])) };
        aril_tensor *want = NULL, *got;
        similarity(NULL, in, &want);
        run_model(path, (aril_list){ 2, in }, &got);
        if (!test_failed()) check_equal("similarity", got, want, 1e-5);
        keep_case("sizes_broadcast", i, 2, in, 1, &want);
    }
    aril_program_free(p);
}

/* ---- a training step ---- */

typedef struct training {
    aril_module *net;
    aril_optim *opt;
} training;

static void train_step(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    training *t = ctx;
    out[0] = aril_cross_entropy(aril_forward(t->net, in[0]), in[1]);
    aril_backward(out[0]);
    aril_step(t->opt);
}

/* Ten steps of a network: the model, fed with what it returned, and Aril have the same losses and
 * parameters. */
static void check_training(const char *name, training *t, aril_shape image)
{
    enum { STEPS = 10, MOST = 64 };
    ARIL_SCOPE;
    aril_tensor *x[STEPS], *y[STEPS];
    for (int k = 0; k < STEPS; k++) {
        x[k] = normal(image);
        y[k] = aril_randint(0, 10, ARIL_SHAPE(image.dim[0]), ARIL_I64, aril_cpu());
    }
    aril_program *p = aril_jit(train_step, t, (aril_jit_opts){ .name = name });
    const char *path = case_path(name);
    aril_program_export(p, ARIL_LIST(x[0], y[0]), path, (aril_export_opts){ 0 });
    CHECK_MSG(aril_ok(), "%s", aril_error());
    /* The defaults are the values of now: a first run needs no others. */
    aril_tensor *first[MOST] = { NULL }, *loss, *got[MOST] = { NULL };
    aril_program *model = aril_program_load(path, (aril_load_opts){ 0 });
    CHECK_MSG(model != NULL, "%s", aril_error());
    CHECK_INT(aril_program_inputs(model), 2);
    aril_program_run(model, ARIL_LIST(x[0], y[0]), got);
    CHECK_MSG(aril_ok(), "%s", aril_error());
    for (int k = 0; k < STEPS; k++) {
        aril_program_run(p, ARIL_LIST(x[k], y[k]), &loss);
        CHECK_MSG(aril_ok(), "%s", aril_error());
        first[k] = loss;
        if (k == 0) check_equal("the first loss", got[0], loss, 1e-5);
    }
    const aril_named *now = aril_parameters(t->net);
    CHECK(aril_program_outputs(model) > now->n);
    aril_program_free(model);
    aril_program_free(p);
    /* Cases for onnxruntime: the script feeds each run with the outputs of the last. */
    if (!getenv("ARIL_EXPORT_DIR")) return;
    for (int k = 0; k < STEPS; k++) {
        aril_tensor *in[] = { x[k], y[k] };
        keep_case(name, k, 2, in, 1, &first[k]);
    }
    for (int i = 0; i < now->n; i++) {
        char file[1500];
        snprintf(file, sizeof file, "%s/%s", getenv("ARIL_EXPORT_DIR"), name);
        char folder[1600];
        snprintf(folder, sizeof folder, "%s/final", file);
        mkdir(folder, 0777);
        case_value(folder, now->name[i], 0, now->at[i]);
    }
}

TEST(ten_steps_of_lenet5)
{
    aril_seed(5);
    training t = { .net = aril_zoo_make("lenet5", (aril_zoo_opts){ .classes = 10 }) };
    t.opt = aril_sgd(aril_parameters(t.net), (aril_sgd_opts){ .lr = 0.05, .momentum = 0.9 });
    check_training("train_lenet5_sgd", &t, ARIL_SHAPE(8, 1, 28, 28));
    aril_optim_free(t.opt);
    aril_module_release(t.net);
    aril_seed(5);
    t.net = aril_zoo_make("lenet5-1998", (aril_zoo_opts){ .classes = 10 });
    t.opt = aril_adam(aril_parameters(t.net), (aril_adam_opts){ .lr = 0.002 });
    check_training("train_lenet5_adam", &t, ARIL_SHAPE(8, 1, 28, 28));
    aril_optim_free(t.opt);
    aril_module_release(t.net);
}

/* A model that runs through its own steps in Aril: the next values are fed by name. */
TEST(a_step_is_fed_with_its_results)
{
    ARIL_SCOPE;
    training t = { .net = small_net() };
    t.opt = aril_sgd(aril_parameters(t.net), (aril_sgd_opts){ .lr = 0.1 });
    aril_tensor *x = normal(ARIL_SHAPE(6, 4));
    aril_tensor *y = aril_randint(0, 2, ARIL_SHAPE(6), ARIL_I64, aril_cpu());
    aril_program *p = aril_jit(train_step, &t, (aril_jit_opts){ .name = "step" });
    const char *path = temp_path("step.onnx");
    CHECK_INT(aril_program_export(p, ARIL_LIST(x, y), path, (aril_export_opts){ 0 }), ARIL_OK);
    aril_module *model = aril_module_load(path, (aril_load_opts){ 0 });
    CHECK_MSG(model != NULL, "%s", aril_error());
    /* Inputs beyond x and y are optional: their defaults are the parameters. */
    for (int k = 0; k < 4; k++) {
        aril_tensor *loss, *out[16] = { NULL };
        {
            ARIL_NO_GRAD;
            aril_forward_all(model, ARIL_LIST(x, y), 16, out);
        }
        CHECK_MSG(aril_ok(), "%s", aril_error());
        aril_program_run(p, ARIL_LIST(x, y), &loss);
        check_equal("loss", out[0], loss, 1e-5);
        static const char *const names[] = { "0.weight", "0.bias", "2.weight", "2.bias" };
        for (int i = 0; i < 4 && !test_failed(); i++) {
            aril_tensor *now = aril_module_tensor(t.net, names[i]), *found = NULL;
            for (int o = 1; o < 16 && out[o]; o++) /* of the same shape, and as it is now */
                if (!test_difference_in_value(out[o], now, 1e-5, 1e-6)) found = out[o];
            CHECK_MSG(found != NULL, "step %d: no new value of %s", k, names[i]);
            ARIL_NO_GRAD;
            aril_copy_(aril_module_tensor(model, names[i]), found);
        }
    }
    aril_module_release(model);
    aril_program_free(p);
    aril_optim_free(t.opt);
    aril_module_release(t.net);
}

/* ---- control flow ---- */

static void twice(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    out[0] = aril_mul_scalar(in[0], 2);
    out[1] = in[0];
}

static void other_side(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    out[0] = aril_add(in[0], ctx);
    out[1] = aril_neg(in[0]);
}

static void below(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    out[0] = aril_lt_scalar(aril_sum(aril_abs(in[0]), ARIL_ALL), 100);
}

static void grow(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    out[0] = aril_add(aril_mul_scalar(in[0], 1.5), ctx);
    out[1] = aril_add_scalar(in[1], 1);
}

static void trip(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    out[0] = aril_tanh(aril_add(aril_mul(in[0], ctx), in[1]));
    out[1] = aril_mul_scalar(out[0], 2);
}

static void branches_and_loops(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    aril_tensor *count = aril_zeros(ARIL_SHAPE(), ARIL_I64, aril_cpu());
    aril_tensor *h = aril_zeros(ARIL_SHAPE(3), ARIL_F32, aril_cpu());
    aril_cond(aril_gt_scalar(aril_sum(in[0], ARIL_ALL), 0), twice, other_side, ctx,
              ARIL_LIST(in[0]), 2, out);
    aril_while(below, grow, ctx, ARIL_LIST(aril_add_scalar(aril_abs(in[0]), 1), count),
               (aril_while_opts){ 0 }, out + 2);
    aril_scan(trip, ctx, ARIL_LIST(h), ARIL_LIST(in[1]), 1, out + 4, out + 5);
}

TEST(control_flow)
{
    ARIL_SCOPE;
    aril_seed(8);
    aril_tensor *w = normal(ARIL_SHAPE(3));
    aril_program *p = aril_jit(branches_and_loops, w, (aril_jit_opts){ .name = "control" });
    aril_tensor *x = aril_ones(ARIL_SHAPE(3), ARIL_F32, aril_cpu()),
                *seq = normal(ARIL_SHAPE(4, 3));
    const char *path = case_path("control_flow");
    CHECK_INT(aril_program_export(p, ARIL_LIST(x, seq), path, (aril_export_opts){ 0 }), ARIL_OK);
    for (int sign = -1; sign <= 1; sign += 2) {
        aril_tensor *in[] = { aril_mul_scalar(x, sign), seq }, *want[6] = { NULL }, *got[6];
        branches_and_loops(w, in, want);
        run_model(path, (aril_list){ 2, in }, got);
        for (int i = 0; i < 6 && !test_failed(); i++) check_equal("control", got[i], want[i], 1e-5);
        keep_case("control_flow", sign > 0, 2, in, 6, want);
    }
    aril_program_free(p);
}

/* ---- defined graphs ---- */

TEST(a_defined_graph)
{
    ARIL_SCOPE;
    aril_graph *g = aril_graph_new("line");
    aril_tensor *x = aril_placeholder(g, "x", ARIL_SHAPE(-1, 2), ARIL_F32);
    aril_tensor *w = aril_variable(g, "w", aril_ones(ARIL_SHAPE(2), ARIL_F32, aril_cpu()));
    aril_tensor *y = aril_sum(aril_mul(x, w), ARIL_AXES(1));
    aril_tensor *next = aril_assign_add(w, aril_mean(x, ARIL_AXES(0)));
    const char *path = case_path("defined_graph");
    CHECK(aril_graph_export((aril_list){ 0 }, ARIL_LIST(y), (aril_list){ 0 }, path,
                            (aril_export_opts){ 0 }) < 0);
    CHECK_MSG(strstr(aril_error(), "depend on the placeholder 'x'"), "%s", aril_error());
    aril_clear_error();
    CHECK_INT(aril_graph_export(ARIL_LIST(x), ARIL_LIST(y), ARIL_LIST(next), path,
                                (aril_export_opts){ 0 }),
              ARIL_OK);
    aril_program *p = aril_program_load(path, (aril_load_opts){ 0 });
    CHECK_MSG(p != NULL, "%s", aril_error());
    CHECK_STR(aril_program_input_name(p, 0), "x");
    CHECK_STR(aril_program_output_name(p, 1), "w.next");
    float v[] = { 1, 2, 3, 4 };
    aril_tensor *in = aril_from(v, ARIL_SHAPE(2, 2), ARIL_F32, aril_cpu()), *out[2];
    aril_program_run(p, ARIL_LIST(in), out);
    CHECK_NEAR(aril_item(aril_select(out[0], 0, 1)), 7, 1e-6);
    CHECK_NEAR(aril_item(aril_select(out[1], 0, 0)), 3, 1e-6);
    aril_tensor *fed[] = { in, aril_ones(ARIL_SHAPE(2), ARIL_F32, aril_cpu()) };
    keep_case("defined_graph", 0, 2, fed, 2, out);
    aril_program_free(p);
    aril_graph_free(g);
}

/* ---- gradients of inputs ---- */

static void slope(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    aril_gradients(aril_sum(aril_square(in[0]), ARIL_ALL), ARIL_LIST(in[0]), out,
                   (aril_grad_opts){ 0 });
}

TEST(a_gradient_of_an_input)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_full(ARIL_SHAPE(2), 3, ARIL_F32, aril_cpu()), *y;
    aril_set_requires_grad(x, true);
    aril_program *p = aril_jit(slope, NULL, (aril_jit_opts){ 0 });
    const char *path = case_path("gradient_of_an_input");
    CHECK_INT(aril_program_export(p, ARIL_LIST(x), path, (aril_export_opts){ 0 }), ARIL_OK);
    aril_program *q = aril_program_load(path, (aril_load_opts){ 0 });
    CHECK_INT(aril_program_run(q, ARIL_LIST(x), &y), ARIL_OK);
    CHECK_NEAR(aril_item(aril_select(y, 0, 1)), 6, 1e-6);
    keep_case("gradient_of_an_input", 0, 1, &x, 1, &y);
    aril_program_free(p);
    aril_program_free(q);
}

/* ---- random numbers ---- */

static void with_dropout(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    out[0] = aril_dropout(in[0], 0.5, (aril_dropout_opts){ 0 });
}

TEST(dropout_is_refused)
{
    ARIL_SCOPE;
    aril_program *p = aril_jit(with_dropout, NULL, (aril_jit_opts){ .name = "dropout" });
    aril_tensor *x = normal(ARIL_SHAPE(4));
    aril_program_export(p, ARIL_LIST(x), temp_path("m.onnx"), (aril_export_opts){ 0 });
    CHECK_MSG(strstr(aril_error(), "dropout") && strstr(aril_error(), "evaluation"), "%s",
              aril_error());
    CHECK_INT(temp_count(), 0);
    aril_clear_error();
    aril_program_free(p);
}

/* ---- files ---- */

TEST(external_data)
{
    ARIL_SCOPE;
    aril_seed(2);
    aril_module *net = aril_nn_sequential(aril_nn_linear(64, 32), aril_nn_linear(32, 3));
    aril_tensor *x = normal(ARIL_SHAPE(2, 64)), *y;
    const char *path = temp_path("big.onnx");
    CHECK_INT(aril_module_export(net, ARIL_LIST(x), path,
                                 (aril_export_opts){ .external_data = true }),
              ARIL_OK);
    CHECK_STR(files_in(temp_path("")), "big.onnx big.onnx.data ");
    run_model(path, ARIL_LIST(x), &y);
    check_equal("external", y, aril_forward(net, x), 1e-5);
    aril_module_release(net);
}

TEST(wrong_arguments)
{
    ARIL_SCOPE;
    aril_module *net = small_net();
    aril_tensor *x = normal(ARIL_SHAPE(5, 4));
    const char *path = temp_path("net.onnx");
    CHECK(aril_module_export(NULL, ARIL_LIST(x), path, (aril_export_opts){ 0 }) < 0);
    CHECK(aril_module_export(net, ARIL_LIST(x), NULL, (aril_export_opts){ 0 }) < 0);
    aril_clear_error();
    CHECK(aril_module_export(net, ARIL_LIST(x), path, (aril_export_opts){ .opset = 12 }) < 0);
    CHECK(strstr(aril_error(), "13 to 28") != NULL);
    CHECK(aril_module_export(net, ARIL_LIST(x), path, (aril_export_opts){ .opset = 29 }) < 0);
    CHECK(aril_program_export(NULL, ARIL_LIST(x), path, (aril_export_opts){ 0 }) < 0);
    CHECK(aril_graph_export(ARIL_LIST(x), (aril_list){ 0 }, (aril_list){ 0 }, path,
                            (aril_export_opts){ 0 }) < 0);
    aril_tensor *narrow = normal(ARIL_SHAPE(5, 3)); /* does not fit the network */
    CHECK(aril_module_export(net, ARIL_LIST(narrow), path, (aril_export_opts){ 0 }) < 0);
    CHECK_INT(temp_count(), 0);
    aril_clear_error();
    aril_module_release(net);
}

/* What would be an invalid file, or something else than was asked for, replaces none. */
TEST(options_that_make_no_valid_file)
{
    ARIL_SCOPE;
    aril_module *net = small_net();
    aril_tensor *x = normal(ARIL_SHAPE(5, 4)), *y;
    static const char *const empty[] = { "" }, *const latin[] = { "caf\xe9" },
                             *const twice[] = { "k", "k" }, *const null[] = { NULL };
    const aril_metadata repeated = { 2, twice, twice }, other = { 1, latin, latin },
                        negative = { -3, NULL, NULL }, no_key = { 1, null, twice },
                        no_value = { 1, twice, latin };
    const aril_shape open[] = { ARIL_SHAPE(-2, 4) };
    const struct {
        aril_export_opts opts;
        const char *why;
    } wrong[] = {
        { { .inputs = empty }, "the name of input 0 is empty" },
        { { .outputs = empty }, "the name of output 0 is empty" },
        { { .name = "" }, "the name of the graph is empty" },
        { { .inputs = latin }, "is not UTF-8" },
        { { .outputs = latin }, "is not UTF-8" },
        { { .name = "caf\xe9" }, "is not UTF-8" },
        { { .sizes = open, .n_sizes = 1, .size_names = latin, .n_size_names = 1 }, "is not UTF-8" },
        { { .metadata = &repeated }, "the metadata have two entries \"k\"" },
        { { .metadata = &other }, "is not UTF-8" },
        { { .metadata = &no_value }, "is not UTF-8" },
        { { .metadata = &negative }, "-3 entries of metadata" },
        { { .metadata = &no_key }, "key 0 of the metadata is NULL" },
        { { .batch = true, .sizes = open, .n_sizes = 1 }, "leave out .sizes" },
        { { .n_sizes = 1 }, "n_sizes is 1, and sizes are NULL" },
        { { .sizes = open, .n_sizes = -1 }, "n_sizes is -1, and sizes are given" },
        { { .sizes = open, .n_sizes = 1, .n_size_names = 1 },
          "n_size_names is 1, and size_names are NULL" },
    };
    char path[512]; /* temp_path has few buffers */
    snprintf(path, sizeof path, "%s", temp_path("net.onnx"));
    CHECK_INT(aril_module_export(net, ARIL_LIST(x), path, (aril_export_opts){ 0 }), ARIL_OK);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CHECK_INT(aril_module_export(net, ARIL_LIST(x), path, wrong[i].opts), ARIL_ERR_ARG);
        CHECK_MSG(strstr(aril_error(), wrong[i].why), "%zu: %s", i, aril_error());
        aril_clear_error();
        CHECK_STR(files_in(temp_path("")), "net.onnx ");
    }
    run_model(path, ARIL_LIST(x), &y);
    check_equal("the old file", y, aril_forward(net, x), 1e-5);
    aril_module_release(net);
}

/* A file that cannot be written leaves the old one as it was, and nothing else. */
TEST(failed_writes_leave_nothing)
{
    ARIL_SCOPE;
    aril_module *net = small_net();
    aril_tensor *x = normal(ARIL_SHAPE(5, 4)), *y;
    CHECK(aril_module_export(net, ARIL_LIST(x), temp_path("no/such/folder.onnx"),
                             (aril_export_opts){ 0 }) < 0);
    const char *path = temp_path("net.onnx");
    aril_clear_error();
    CHECK_INT(aril_module_export(net, ARIL_LIST(x), path, (aril_export_opts){ 0 }), ARIL_OK);
    struct rlimit old, small;
    getrlimit(RLIMIT_FSIZE, &old);
    small = old;
    small.rlim_cur = 64;
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &small);
    aril_status plain =
        aril_module_export(net, ARIL_LIST(x), path, (aril_export_opts){ .opset = 21 });
    aril_status beside =
        aril_module_export(net, ARIL_LIST(x), path, (aril_export_opts){ .external_data = true });
    setrlimit(RLIMIT_FSIZE, &old);
    CHECK(plain < 0 && beside < 0);
    aril_clear_error();
    CHECK_STR(files_in(temp_path("")), "net.onnx ");
    run_model(path, ARIL_LIST(x), &y);
    check_equal("the old file", y, aril_forward(net, x), 1e-5);
    aril_module_release(net);
}

/* Entries of metadata_props are written, read, and kept by a program that is written again. */
TEST(metadata)
{
    ARIL_SCOPE;
    static const char *const key[] = { "names", "stride" }, *const value[] = { "cat\ndog", "32" };
    aril_module *net = small_net();
    aril_tensor *x = normal(ARIL_SHAPE(5, 4));
    const char *path = temp_path("net.onnx");
    aril_metadata given = { 2, key, value };
    for (int again = 0; again < 2; again++) {
        if (again) {
            aril_program *p = aril_program_load(path, (aril_load_opts){ 0 });
            path = temp_path("again.onnx");
            CHECK_INT(aril_program_export(p, ARIL_LIST(x), path, (aril_export_opts){ 0 }), ARIL_OK);
            aril_program_free(p);
        } else {
            CHECK_INT(aril_module_export(net, ARIL_LIST(x), path,
                                         (aril_export_opts){ .metadata = &given }),
                      ARIL_OK);
        }
        aril_program *p = aril_program_load(path, (aril_load_opts){ 0 });
        aril_metadata told = aril_program_metadata(p);
        CHECK_INT(told.n, 2);
        for (int i = 0; i < told.n; i++) {
            CHECK_STR(told.key[i], key[i]);
            CHECK_STR(told.value[i], value[i]);
        }
        aril_program_free(p);
    }
    CHECK_INT(aril_program_metadata(NULL).n, 0);
    aril_module_release(net);
}
