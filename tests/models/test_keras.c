/* Networks of Keras: values beside those that Keras computed, training, export, and files that are
 * damaged or ask for what is not supported. */
#include "aril/aril.h"
#include "formats/npy.h"
#include "models/keras_files.h"
#include "support/temp.h"
#include "support/test.h"

#include <stdlib.h>

/* ---- helpers ---- */

/* Without waiting for the disk, as the library's own writer does. */
static bool write_file(const char *path, const void *data, size_t n)
{
    FILE *f = fopen(path, "wb");
    bool good = f && fwrite(data, 1, n, f) == n;
    return f && fclose(f) == 0 && good;
}

/* Writes a file of the archive to the test's folder. */
static const char *unpack(const char *name)
{
    aril__bytes b = { 0 };
    const char *path = temp_path(name);
    if (!keras_file(name, &b) || !write_file(path, b.at, b.n))
        test_fail(__FILE__, __LINE__, "no file %s", name);
    aril__bytes_free(&b);
    return path;
}

static aril_tensor *array(const char *network, const char *kind, int i)
{
    char name[64];
    aril__bytes b = { 0 };
    snprintf(name, sizeof name, "%s.%s%d.npy", network, kind, i);
    aril_tensor *t = keras_file(name, &b) ? aril__npy_decode(name, b.at, b.n) : aril_scalar(0);
    aril__bytes_free(&b);
    return t;
}

static bool has_hdf5(void)
{
    aril__bytes b = { 0 };
    bool has = keras_file("functional.h5", &b) && write_file(temp_path("probe.h5"), b.at, b.n);
    aril__bytes_free(&b);
    aril_module *m = has ? aril_keras_load(temp_path("probe.h5"), (aril_keras_opts){ 0 }) : NULL;
    bool absent = !m && strstr(aril_error(), "HDF5") && strstr(aril_error(), "libhdf5");
    aril_module_release(m);
    aril_clear_error();
    if (absent) test_skip("without the HDF5 library");
    return !absent;
}

static aril_tensor *channels_first(aril_tensor *x)
{
    return aril_ndim(x) == 4 ? aril_movedim(x, ARIL_AXES(-1), ARIL_AXES(1)) : x;
}

static bool near(aril_tensor *got, aril_tensor *want)
{
    return aril_allclose(got, want, (aril_close_opts){ .rtol = 1e-4, .atol = 1e-5 });
}

/* Loads a file and compares its outputs in both orders. */
static void compare(const char *path, const char *weights, const char *network, int n_in, int n_out)
{
    for (int last = 0; last < 2; last++) {
        ARIL_SCOPE;
        aril_module *m = aril_keras_load(path, (aril_keras_opts){ .channels_last = last == 1,
                                                                  .weights = weights });
        CHECK_MSG(m, "%s", aril_error());
        aril_module_eval(m);
        aril_tensor *in[4], *out[4];
        for (int i = 0; i < n_in; i++) {
            in[i] = array(network, "x", i);
            if (!last) in[i] = channels_first(in[i]);
        }
        aril_status s = aril_forward_all(m, (aril_list){ n_in, in }, n_out, out);
        bool good = s == ARIL_OK;
        for (int i = 0; i < n_out && good; i++) {
            aril_tensor *want = array(network, "y", i);
            good = near(out[i], last ? want : channels_first(want));
        }
        aril_module_release(m);
        CHECK_MSG(s == ARIL_OK, "%s", aril_error());
        CHECK_MSG(good, "%s, channels %s: other values", network, last ? "last" : "first");
    }
}

static aril_module *load(const char *name)
{
    aril_module *m = aril_keras_load(unpack(name), (aril_keras_opts){ 0 });
    if (!m) test_fail(__FILE__, __LINE__, "%s", aril_error());
    return m;
}

/* ---- values ---- */

TEST(sequential_keras_3)
{
    if (has_hdf5()) compare(unpack("sequential.keras"), NULL, "sequential", 1, 1);
}

TEST(functional_keras_3)
{
    if (has_hdf5()) compare(unpack("functional.h5"), NULL, "functional", 3, 2);
}

TEST(functional_keras_2)
{
    if (has_hdf5()) compare(unpack("keras2.h5"), NULL, "keras2", 3, 2);
}

TEST(configuration_and_weights_in_two_files)
{
    if (!has_hdf5()) return;
    const char *config = unpack("text.json"), *weights = unpack("text.weights.h5");
    compare(config, weights, "text", 1, 1);
    if (test_failed()) return;
    CHECK(!aril_keras_load(config, (aril_keras_opts){ 0 }));
    CHECK_MSG(strstr(aril_error(), "no weights"), "%s", aril_error());
    aril_clear_error();
    CHECK(!aril_keras_load(weights, (aril_keras_opts){ 0 }));
    CHECK_MSG(strstr(aril_error(), "without a configuration"), "%s", aril_error());
}

/* ---- the module ---- */

TEST(parameters_have_keras_names)
{
    if (!has_hdf5()) return;
    aril_module *m = load("sequential.keras");
    if (!m) return;
    static const char *const names[] = { "conv.kernel", "conv.bias",   "bn.gamma",
                                         "bn.beta",     "head.kernel", "head.bias" };
    const aril_named *p = aril_parameters(m);
    bool good = p && p->n == 6;
    for (int i = 0; good && i < 6; i++) good = strcmp(p->name[i], names[i]) == 0;
    aril_tensor *kernel = aril_module_tensor(m, "conv.kernel");
    aril_shape s = aril_shape_of(kernel);
    good &= s.ndim == 4 && s.dim[0] == 4 && s.dim[1] == 2 && s.dim[2] == 3;
    good &= aril_module_tensor(m, "bn.moving_variance") != NULL;
    good &= aril_parameter_count(m) == 3 * 3 * 2 * 4 + 4 + 2 * 4 + 2 * 2 * 4 * 3 + 3;
    aril_module_release(m);
    CHECK(good);
}

TEST(frozen_layers_do_not_train)
{
    if (!has_hdf5()) return;
    ARIL_SCOPE;
    aril_module *m = load("functional.h5");
    if (!m) return;
    aril_tensor *gamma = NULL, *mean = NULL;
    const aril_named *p = aril_parameters(m), *b = aril_buffers(m);
    int frozen = 0;
    for (int i = 0; i < p->n; i++) {
        if (aril_requires_grad(p->at[i])) continue;
        frozen++;
        gamma = p->at[i];
    }
    for (int i = 0; i < b->n && !mean; i++)
        if (strstr(b->name[i], "moving_mean")) mean = b->at[i];
    aril_tensor *before = aril_copy(mean); /* of the frozen layer, which is the first */
    aril_tensor *in[3], *out[2];
    for (int i = 0; i < 3; i++) in[i] = channels_first(array("functional", "x", i));
    aril_module_train(m);
    aril_status s = aril_forward_all(m, (aril_list){ 3, in }, 2, out);
    bool same = s == ARIL_OK && aril_equal(before, mean);
    aril_module_release(m);
    CHECK_INT(frozen, 2);
    CHECK(gamma && s == ARIL_OK);
    CHECK(same);
}

TEST(training_lowers_the_loss)
{
    if (!has_hdf5()) return;
    ARIL_SCOPE;
    aril_module *m = load("sequential.keras");
    if (!m) return;
    aril_tensor *x = channels_first(array("sequential", "x", 0));
    aril_tensor *y = aril_from((const int64_t[]){ 0, 2 }, ARIL_SHAPE(2), ARIL_I64, aril_cpu());
    aril_optim *opt = aril_sgd(aril_parameters(m), (aril_sgd_opts){ .lr = 0.05 });
    double first = 0, last = 0;
    for (int i = 0; i < 40; i++) {
        ARIL_SCOPE;
        aril_tensor *loss =
            aril_neg(aril_mean(aril_gather(aril_log(aril_forward(m, x)), aril_unsqueeze(y, 1), 1),
                               ARIL_ALL));
        aril_backward(loss);
        aril_step(opt);
        last = aril_item(loss);
        if (i == 0) first = last;
    }
    aril_optim_free(opt);
    aril_module_release(m);
    CHECK_MSG(last < 0.5 * first, "from %g to %g", first, last);
}

TEST(compiled_and_exported_networks_are_equal)
{
    if (!has_hdf5()) return;
    ARIL_SCOPE;
    aril_module *m = load("sequential.keras");
    if (!m) return;
    aril_module_eval(m);
    aril_tensor *x = channels_first(array("sequential", "x", 0)),
                *want = array("sequential", "y", 0);
    const char *path = temp_path("net.onnx");
    aril_status s = aril_module_export(m, ARIL_LIST(x), path, (aril_export_opts){ 0 });
    aril_module *again = s == ARIL_OK ? aril_module_load(path, (aril_load_opts){ 0 }) : NULL;
    bool exported = again && near(aril_forward(again, x), want);
    bool compiled = aril_module_jit(m) == ARIL_OK && near(aril_forward(m, x), want) &&
                    !aril_module_eager_reason(m);
    aril_module_release(again);
    aril_module_release(m);
    CHECK_MSG(exported, "%s", aril_error());
    CHECK(compiled);
}

TEST(networks_tell_their_inputs)
{
    if (!has_hdf5()) return;
    aril_module *m = load("sequential.keras"), *linear = aril_nn_linear(3, 2);
    aril_shape shape = aril_keras_input_shape(m, 0);
    CHECK_INT(aril_keras_inputs(m), 1);
    CHECK(shape.ndim == 4 && shape.dim[0] == -1 && shape.dim[1] == 2);
    CHECK(shape.dim[2] == 6 && shape.dim[3] == 7);
    CHECK(aril_keras_input_shape(m, 1).ndim == 0 && aril_keras_input_shape(m, -1).ndim == 0);
    CHECK(aril_keras_inputs(linear) == 0 && aril_keras_inputs(NULL) == 0);
    CHECK(aril_keras_input_shape(linear, 0).ndim == 0);
    aril_module_release(linear);
    aril_module_release(m);
}

TEST(wrong_inputs_are_errors)
{
    if (!has_hdf5()) return;
    ARIL_SCOPE;
    aril_module *m = load("sequential.keras");
    if (!m) return;
    aril_tensor *bad = aril_forward(m, aril_zeros(ARIL_SHAPE(1, 6, 7, 2), ARIL_F32, aril_cpu()));
    bool poison = aril_tensor_status(bad) == ARIL_ERR_SHAPE;
    aril_module_release(m);
    CHECK(poison);
    CHECK_MSG(strstr(aril_error(), "expected [?,2,6,7]"), "%s", aril_error());
}

/* ---- configurations ---- */

/* Loads a configuration with the weights of the text network; returns the error, "" if it loads. */
static const char *load_config(const char *text, size_t size)
{
    const char *path = temp_path("config.json");
    aril_clear_error();
    if (!write_file(path, text, size)) return "cannot write";
    aril_module *m =
        aril_keras_load(path, (aril_keras_opts){ .weights = temp_path("text.weights.h5") });
    aril_module_release(m);
    return m ? "" : aril_error();
}

#define LAYER(class, name, more) \
    "{\"class_name\":\"" class "\",\"config\":{\"name\":\"" name "\"" more "}}"
#define INPUT LAYER("InputLayer", "in", ",\"batch_shape\":[null,4]")
#define SEQUENTIAL(layers) \
    "{\"class_name\":\"Sequential\",\"config\":{\"name\":\"net\",\"layers\":[" layers "]}}"

TEST(broken_configurations_are_errors)
{
    if (!has_hdf5()) return;
    unpack("text.weights.h5");
    static const struct {
        const char *text, *error;
    } cases[] = {
        { "{}", "class (none)" },
        { "{\"class_name\":\"Sequential\"", "not valid JSON" },
        { "{\"class_name\":\"MyModel\",\"config\":{}}", "class MyModel" },
        { SEQUENTIAL(""), "no list of layers" },
        { SEQUENTIAL("3"), "no class_name" },
        { SEQUENTIAL(INPUT "," LAYER("Lambda", "f", "") "," LAYER("Mystery", "g", "")),
          "2 of 4 layers are of a class that is not supported: f (Lambda), g (Mystery)" },
        { SEQUENTIAL(INPUT "," LAYER("Dense", "d", ",\"units\":2") "," LAYER("Dense", "e", "")),
          "no weights for variable kernel of layer \"e\"" },
        { SEQUENTIAL(INPUT "," LAYER("Dense", "d", ",\"units\":2,\"use_bias\":false")),
          "" }, /* the kernel is [4,2] */
        { SEQUENTIAL(INPUT "," LAYER("Dense", "d", ",\"units\":5,\"use_bias\":false")),
          "its kernel is [4,2] in the file, its configuration asks for [4,5]" },
        { SEQUENTIAL(INPUT "," LAYER("Reshape", "r", ",\"target_shape\":[3,5]")), "reshape" },
        { SEQUENTIAL(INPUT "," LAYER("Permute", "p", ",\"dims\":[7,7]")), "permute" },
        { SEQUENTIAL(INPUT "," LAYER("RepeatVector", "r", ",\"n\":1e300")), "n must be" },
        { SEQUENTIAL(INPUT "," LAYER("MaxPooling2D", "p", "")), "expected 4" },
        { SEQUENTIAL(INPUT "," LAYER("Activation", "a", ",\"activation\":\"mine\"")),
          "its activation \"mine\" is not supported" },
        { SEQUENTIAL(INPUT "," LAYER("Softmax", "s", ",\"axis\":[]")), "0 axes for 2 dim" },
        { SEQUENTIAL(INPUT "," LAYER("Softmax", "s", ",\"axis\":[1,-1]")), "axis -1 twice" },
        { SEQUENTIAL(INPUT "," LAYER("Softmax", "s", ",\"axis\":[0,2]")), "axis 2 does not" },
        { SEQUENTIAL(LAYER("ReLU", "r", "")), "the shape of input" },
        { SEQUENTIAL(LAYER("InputLayer", "i", ",\"batch_shape\":[null,-7]")), "the shape of" },
        { SEQUENTIAL(INPUT "," LAYER("TimeDistributed", "t", "")), "class_name" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *got = load_config(cases[i].text, strlen(cases[i].text));
        bool right = *cases[i].error ? strstr(got, cases[i].error) != NULL : !*got;
        CHECK_MSG(right, "%s\ngave: %s\nexpected: %s", cases[i].text, got, cases[i].error);
    }
}

/* Softmax over rows and channels of [N,H,W,C], in Aril [N,C,H,W]: the axes 2 and 1. */
TEST(softmax_takes_a_list_of_axes)
{
    static const char *const config = SEQUENTIAL(
        LAYER("InputLayer", "in", ",\"batch_shape\":[null,2,3,2]") "," LAYER("Softmax", "s",
                                                                             ",\"axis\":[1,-1]"));
    ARIL_SCOPE;
    if (!has_hdf5()) return;
    unpack("text.weights.h5");
    const char *path = temp_path("config.json");
    CHECK(write_file(path, config, strlen(config)));
    aril_module *m =
        aril_keras_load(path, (aril_keras_opts){ .weights = temp_path("text.weights.h5") });
    CHECK_MSG(m, "%s", aril_error());
    aril_tensor *x =
        aril_mul_scalar(aril_randn(ARIL_SHAPE(2, 2, 2, 3), ARIL_F32, aril_cpu()), 100.0);
    aril_tensor *y = aril_forward(m, x);
    for (int i = 0; i < 2; i++) { /* beside softmax of the same elements on one axis */
        for (int k = 0; k < 3; k++) {
            aril_tensor *in = aril_flatten(aril_select(aril_select(x, 0, i), 2, k), 0, -1);
            aril_tensor *out = aril_flatten(aril_select(aril_select(y, 0, i), 2, k), 0, -1);
            CHECK(aril_allclose(out, aril_softmax(in, 0), (aril_close_opts){ .atol = 1e-6 }));
        }
    }
    aril_module_release(m);
    CHECK(aril_ok());
}

#define NODE(from) "\"inbound_nodes\":[[[\"" from "\",0,0,{}]]]"
#define CALL(name, from)                                                          \
    "{\"class_name\":\"ReLU\",\"name\":\"" name "\",\"config\":{\"name\":\"" name \
    "\"}," NODE(from) "}"
#define FUNCTIONAL(layers, in, out)                                                        \
    "{\"class_name\":\"Functional\",\"config\":{\"name\":\"net\",\"layers\":[" layers "]," \
    "\"input_layers\":[[\"" in "\",0,0]],\"output_layers\":[[\"" out "\",0,0]]}}"
#define PLUS "," LAYER("ReLU", "x", "")

TEST(broken_graphs_are_errors)
{
    if (!has_hdf5()) return;
    unpack("text.weights.h5");
    static const struct {
        const char *text, *error;
    } cases[] = {
        { FUNCTIONAL(INPUT "," CALL("a", "in"), "in", "a"), "" },
        { FUNCTIONAL(INPUT "," CALL("a", "b") "," CALL("b", "a"), "in", "a"), "a cycle" },
        { FUNCTIONAL(INPUT "," CALL("a", "a"), "in", "a"), "a cycle" },
        { FUNCTIONAL(INPUT "," CALL("a", "c"), "in", "a"), "refers to a layer \"c\"" },
        { FUNCTIONAL(INPUT "," CALL("a", "in"), "in", "z"), "refers to a layer \"z\"" },
        { FUNCTIONAL(INPUT "," CALL("a", "in"), "a", "a"), "is no InputLayer" },
        { FUNCTIONAL(INPUT "," CALL("a", "in") "," CALL("a", "in"), "in", "a"),
          "two layers are named \"a\"" },
        { FUNCTIONAL(INPUT PLUS, "in", "x"), "refers to call 0 of layer \"x\"" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *got = load_config(cases[i].text, strlen(cases[i].text));
        bool right = *cases[i].error ? strstr(got, cases[i].error) != NULL : !*got;
        CHECK_MSG(right, "%s\ngave: %s\nexpected: %s", cases[i].text, got, cases[i].error);
    }
}

/* A layer of a network, called with `from`, JSON of the version's kind. */
static void add_layer(aril__bytes *to, const char *class, const char *name, const char *config,
                      const char *from)
{
    aril__bytes_print(to,
                      "%s{\"class_name\":\"%s\",\"name\":\"%s\",\"config\":{\"name\":\"%s\"%s},"
                      "\"inbound_nodes\":[%s]}",
                      to->at[to->n - 1] == '[' ? "" : ",", class, name, name, config, from);
}

#define VECTOR_OF_3       ",\"batch_shape\":[null,3]"
#define OLD_FROM(name, n) "[\"" name "\"," n ",0,{}]"
#define NEW_FROM(name, n) \
    "{\"class_name\":\"__keras_tensor__\",\"config\":{\"keras_history\":[\"" name "\"," n ",0]}}"
#define NEW_NODE(args) "{\"args\":[" args "],\"kwargs\":{}}"

/* Loads a network that calls `inner`, relu, on a and on b; its outputs: the sum of both results or
 * nothing, and result `first`, counted as Keras counts it. */
static aril_module *load_called_twice(int version, bool sequential, bool sum, const char *first)
{
    const char *path = temp_path("config.json");
    aril__bytes b = { 0 }, inner = { 0 };
    aril__bytes_print(&inner, ",\"layers\":[");
    add_layer(&inner, "InputLayer", "i", VECTOR_OF_3, "");
    add_layer(&inner, "ReLU", "r", "",
              version == 2 ? "[[\"i\",0,0,{}]]" : NEW_NODE(NEW_FROM("i", "0")));
    aril__bytes_print(&inner, "]");
    if (!sequential)
        aril__bytes_print(&inner,
                          ",\"input_layers\":[[\"i\",0,0]],\"output_layers\":[[\"r\",0,0]]");
    aril__bytes_print(&b,
                      "{\"class_name\":\"Functional\",\"module\":\"keras\",%s\"config\":{"
                      "\"name\":\"net\",\"layers\":[",
                      version == 2 ? "\"keras_version\":\"2.21.0\"," : "");
    add_layer(&b, "InputLayer", "a", VECTOR_OF_3, "");
    add_layer(&b, "InputLayer", "b", VECTOR_OF_3, "");
    add_layer(&b, sequential ? "Sequential" : "Functional", "inner", (char *)inner.at,
              version == 2 ? "[" OLD_FROM("a", "0") "],[" OLD_FROM("b", "0") "]"
                           : NEW_NODE(NEW_FROM("a", "0")) "," NEW_NODE(NEW_FROM("b", "0")));
    if (sum)
        add_layer(&b, "Add", "sum", "",
                  version == 2
                      ? "[" OLD_FROM("inner", "1") "," OLD_FROM("inner", "2") "]"
                      : NEW_NODE("[" NEW_FROM("inner", "0") "," NEW_FROM("inner", "1") "]"));
    aril__bytes_print(&b, "],\"input_layers\":[[\"a\",0,0],[\"b\",0,0]],\"output_layers\":[%s%s]}}",
                      sum ? "[\"sum\",0,0]," : "", first);
    bool written = !b.failed && !inner.failed && write_file(path, b.at, b.n);
    aril__bytes_free(&b);
    aril__bytes_free(&inner);
    return written
               ? aril_keras_load(path, (aril_keras_opts){ .weights = temp_path("text.weights.h5") })
               : NULL;
}

/* Keras 2 counts the calls of a network from 1; Keras 3 in the list of outputs only, and from 0 if
 * it is a Sequential. */
TEST(outputs_name_the_call_of_a_shared_network)
{
    if (!has_hdf5()) return;
    unpack("text.weights.h5");
    static const struct {
        int version;
        bool sequential, sum;
        const char *outputs;
        int which[2]; /* 0: relu(a), 1: relu(b) */
    } cases[] = {
        { 3, false, true, "[\"inner\",1,0]", { 0 } },
        { 3, false, true, "[\"inner\",2,0]", { 1 } },
        { 3, true, true, "[\"inner\",0,0]", { 0 } },
        { 3, true, true, "[\"inner\",1,0]", { 1 } },
        { 3, false, false, "[\"inner\",2,0],[\"inner\",1,0]", { 1, 0 } },
        { 2, false, true, "[\"inner\",1,0]", { 0 } },
        { 2, false, true, "[\"inner\",2,0]", { 1 } },
        { 2, true, true, "[\"inner\",1,0]", { 0 } },
        { 2, true, false, "[\"inner\",2,0],[\"inner\",1,0]", { 1, 0 } },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ARIL_SCOPE;
        aril_module *m = load_called_twice(cases[i].version, cases[i].sequential, cases[i].sum,
                                           cases[i].outputs);
        CHECK_MSG(m, "%zu: %s", i, aril_error());
        aril_tensor *in[2], *relu[2], *out[2];
        for (int k = 0; k < 2; k++) {
            in[k] = aril_randn(ARIL_SHAPE(2, 3), ARIL_F32, aril_cpu());
            relu[k] = aril_relu(in[k]);
        }
        aril_status s = aril_forward_all(m, (aril_list){ 2, in }, 2, out);
        aril_module_release(m);
        CHECK_MSG(s == ARIL_OK, "%zu: %s", i, aril_error());
        for (int k = 0; k < 2; k++) {
            aril_tensor *want = !cases[i].sum ? relu[cases[i].which[k]]
                                : k == 0      ? aril_add(relu[0], relu[1])
                                              : relu[cases[i].which[0]];
            CHECK_MSG(near(out[k], want), "%zu: output %d is of another call", i, k);
        }
    }
}

/* A network whose outputs are one tensor twice. */
TEST(a_nested_network_may_give_a_result_twice)
{
    static const char config[] =
        "{\"class_name\":\"Functional\",\"config\":{\"name\":\"net\",\"layers\":[" INPUT
        ",{\"class_name\":\"Functional\",\"name\":\"inner\",\"config\":{\"name\":\"inner\","
        "\"layers\":[" INPUT "," CALL(
            "r",
            "in") "],\"input_layers\":[[\"in\",0,0]],"
                  "\"output_layers\":[[\"r\",0,0],[\"r\",0,0]]}," NODE(
                      "in") "},"
                            "{\"class_name\":\"ReLU\",\"name\":\"x\",\"config\":{\"name\":\"x\"},"
                            "\"inbound_nodes\":[[[\"inner\",1,0,{}]]]},"
                            "{\"class_name\":\"Add\",\"name\":\"y\",\"config\":{\"name\":\"y\"},"
                            "\"inbound_nodes\":[[[\"x\",0,0,{}],[\"inner\",1,1,{}]]]}],"
                            "\"input_layers\":[[\"in\",0,0]],\"output_layers\":[[\"y\",0,0]]}}";
    ARIL_SCOPE;
    if (!has_hdf5()) return;
    unpack("text.weights.h5");
    const char *path = temp_path("config.json");
    CHECK(write_file(path, config, strlen(config)));
    aril_module *m =
        aril_keras_load(path, (aril_keras_opts){ .weights = temp_path("text.weights.h5") });
    CHECK_MSG(m, "%s", aril_error());
    aril_tensor *x = aril_randn(ARIL_SHAPE(2, 4), ARIL_F32, aril_cpu());
    aril_tensor *y = aril_forward(m, x);
    bool good = near(y, aril_mul_scalar(aril_relu(x), 2.0));
    aril_module_release(m);
    CHECK_MSG(good, "%s", aril_error());
}

/* Networks in networks: refused at a depth that no stack minds. */
TEST(deep_nesting_is_an_error)
{
    if (!has_hdf5()) return;
    unpack("text.weights.h5");
    aril__bytes b = { 0 };
    enum { LEVELS = 2000 };
    for (int i = 0; i < LEVELS; i++)
        aril__bytes_print(&b, "{\"class_name\":\"Sequential\",\"config\":{\"name\":\"n\","
                              "\"layers\":[");
    for (int i = 0; i < LEVELS; i++) aril__bytes_print(&b, "]}}");
    const char *got = load_config((char *)b.at, b.n);
    aril__bytes_free(&b);
    CHECK_MSG(strstr(got, "nested too deep"), "%s", got);
}

/* A small archive may hold a configuration of any size. */
TEST(many_layers_are_an_error)
{
    if (!has_hdf5()) return;
    unpack("text.weights.h5");
    aril__bytes b = { 0 };
    aril__bytes_print(&b,
                      "{\"class_name\":\"Sequential\",\"config\":{\"name\":\"n\",\"layers\":[%s",
                      INPUT);
    for (int i = 0; i < 10000; i++) aril__bytes_print(&b, ",%s", LAYER("ReLU", "r", ""));
    aril__bytes_print(&b, "]}}");
    const char *got = load_config((char *)b.at, b.n);
    aril__bytes_free(&b);
    CHECK_MSG(strstr(got, "more than 10000 layers"), "%s", got);
}

TEST(epsilon_is_not_negative)
{
    if (!has_hdf5()) return;
    unpack("text.weights.h5");
#define BARE ",\"scale\":false,\"center\":false,\"epsilon\":"
    static const char *const cases[] = {
        SEQUENTIAL(INPUT "," LAYER("LayerNormalization", "b", BARE "-5")),
        SEQUENTIAL(INPUT "," LAYER("LayerNormalization", "b", BARE "1e999")),
        SEQUENTIAL(INPUT "," LAYER("GroupNormalization", "b", BARE "-1,\"groups\":2")),
    };
    for (int i = 0; i < 3; i++) {
        const char *got = load_config(cases[i], strlen(cases[i]));
        CHECK_MSG(strstr(got, "epsilon must be finite and not negative"), "%s", got);
    }
}

/* ---- damage ---- */

static uint64_t state = 1;

static size_t draw(size_t below)
{
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (size_t)((state >> 33) % below);
}

/* A configuration with random changes loads, or is refused with a message. */
TEST(random_changes_of_a_configuration)
{
    if (!has_hdf5()) return;
    static const char *const words[] = { "-1",   "0", "null", "[]",    "{}",      "1e99",
                                         "\"\"", "7", "true", "\"x\"", "[1,2,3]", "99999999999" };
    aril__bytes config = { 0 }, changed = { 0 };
    unpack("text.weights.h5");
    CHECK(keras_file("text.json", &config));
    for (int round = 0; round < 200; round++) {
        changed.n = 0;
        aril__bytes_add(&changed, config.at, config.n);
        for (size_t times = 1 + draw(3); times > 0; times--) {
            size_t at = draw(changed.n);
            if (draw(2)) {
                changed.at[at] = (unsigned char)"0123456789-{}[](),:\"'\n\\.ae"[draw(27)];
                continue;
            }
            /* the value after a ':' becomes another one */
            while (at < changed.n && changed.at[at] != ':') at++;
            size_t end = at;
            while (end < changed.n && !strchr(",}", changed.at[end])) end++;
            const char *word = words[draw(sizeof words / sizeof *words)];
            size_t n = strlen(word), rest = changed.n - end;
            if (at == changed.n || end == changed.n) continue;
            aril__bytes_add(&changed, NULL, n);
            memmove(changed.at + at + 1 + n, changed.at + end, rest);
            memcpy(changed.at + at + 1, word, n);
            changed.n = at + 1 + n + rest;
        }
        const char *got = load_config((char *)changed.at, changed.n);
        if (*got && strlen(got) < 10) test_fail(__FILE__, __LINE__, "round %d: %s", round, got);
    }
    aril__bytes_free(&config);
    aril__bytes_free(&changed);
}

/* Each archive is cut at many places, and its bytes are changed: the checksums see it. */
TEST(damaged_archives_are_errors)
{
    if (!has_hdf5()) return;
    aril__bytes file = { 0 };
    CHECK(keras_file("sequential.keras", &file));
    const char *path = temp_path("damaged.keras");
    int loaded = 0;
    for (int round = 0; round < 150; round++) {
        size_t at = draw(file.n), n = round % 3 ? file.n : at;
        unsigned char before = file.at[at];
        if (round % 3) file.at[at] ^= (unsigned char)(1u << draw(8));
        bool written = write_file(path, file.at, n);
        file.at[at] = before;
        CHECK(written);
        aril_clear_error();
        aril_module *m = aril_keras_load(path, (aril_keras_opts){ 0 });
        loaded += m != NULL; /* bytes that nobody reads, such as times */
        if (!m && !*aril_error()) test_fail(__FILE__, __LINE__, "round %d: no message", round);
        aril_module_release(m);
    }
    aril__bytes_free(&file);
    CHECK_MSG(loaded < 75, "%d of 150 damaged files loaded", loaded);
}

TEST(files_of_other_kinds_are_errors)
{
    static const char *const contents[] = {
        "",  "x",    "PK\3\4", "PK\3\4 and more", "\211HDF\r\n\032\n", "\211HDF\r\n\032\n and more",
        "{", "[1,2]"
    };
    for (size_t i = 0; i < sizeof contents / sizeof *contents; i++) {
        const char *path = temp_path("other.keras");
        aril_clear_error();
        CHECK(write_file(path, contents[i], strlen(contents[i])));
        CHECK(!aril_keras_load(path, (aril_keras_opts){ 0 }));
        CHECK(!aril_ok());
    }
    aril_clear_error();
    CHECK(!aril_keras_load(temp_path("missing.keras"), (aril_keras_opts){ 0 }));
    CHECK(!aril_keras_load(NULL, (aril_keras_opts){ 0 }));
}

/* ---- memory ---- */

TEST(out_of_memory_leaks_nothing)
{
    if (!has_hdf5()) return;
    static const char *const names[] = { "sequential.keras", "functional.h5" };
    for (int f = 0; f < 2; f++) {
        const char *path = unpack(names[f]);
        aril_module *m = NULL;
        int step = f ? 61 : 7; /* loading has thousands of allocations */
        for (int i = 1; !m && i < 100000; i += step) {
            aril_clear_error();
            aril_fail_allocation(i);
            m = aril_keras_load(path, (aril_keras_opts){ 0 });
            aril_fail_allocation(0);
            if (!m && aril_ok()) test_fail(__FILE__, __LINE__, "allocation %d: no error", i);
        }
        CHECK_MSG(m, "%s", names[f]);
        aril_module_release(m);
    }
}
