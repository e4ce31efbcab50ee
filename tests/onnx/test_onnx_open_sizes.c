/* Single operators on inputs all of whose sizes are open: the file that export writes gives the
 * values of the model at other sizes, or export is an error that names the node. */
#include "core/sizes.h"
#include "onnx/export_case.h"
#include "onnx/onnx_text.h"
#include "support/compare.h"

#include <math.h>
#include <string.h>

typedef struct open_case {
    const char *name, *node; /* x and k are its inputs, y and i its outputs */
    int opset;
    aril_shape first, other; /* of x: of the example, and of the run */
    aril_shape k;            /* of an input that is open, too; no dimensions: there is none */
    int known;               /* a bit for each axis of x whose size is not open */
} open_case;

#define S(...)                                                       \
    {                                                                \
        (int)(sizeof((int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t)), \
        {                                                            \
            __VA_ARGS__                                              \
        }                                                            \
    }
#define A(name_, v)  "attribute { name: '" name_ "' i: " #v " type: INT } "
#define AS(name_, v) "attribute { name: '" name_ "' ints: " v " type: INTS } "
#define AT(name_, v) "attribute { name: '" name_ "' s: '" v "' type: STRING } "
#define N(type, attributes) \
    "node { op_type: '" type "' name: 'the_node' input: ['x', 'k'] output: ['y'] " attributes "} "
#define N1(type, attributes) \
    "node { op_type: '" type "' name: 'the_node' input: ['x'] output: ['y'] " attributes "} "
#define INTS(name_, n, v) \
    "initializer { name: '" name_ "' dims: " #n " data_type: 7 int64_data: " v " } "

static const open_case written[] = {
    { "argmax",
      N1("ArgMax", A("axis", 1) A("select_last_index", 1)),
      13,
      S(2, 3),
      S(4, 6),
      { 0 },
      0 },
    { "argmin",
      N1("ArgMin", A("axis", 0) A("select_last_index", 1) A("keepdims", 0)),
      13,
      S(2, 3),
      S(4, 6),
      { 0 },
      0 },
    { "softmax_11", N1("Softmax", A("axis", 1)), 11, S(2, 3, 4), S(3, 2, 5), { 0 }, 0 },
    { "log_softmax_11", N1("LogSoftmax", A("axis", 0)), 11, S(2, 3, 4), S(3, 2, 5), { 0 }, 0 },
    { "hardmax_11", N1("Hardmax", A("axis", 2)), 11, S(2, 3, 4, 2), S(3, 2, 5, 3), { 0 }, 0 },
    { "crop",
      N("CenterCropPad", AS("axes", "[2, 3]")) INTS("k", 2, "[5, 6]"),
      18,
      S(1, 2, 8, 4),
      S(2, 3, 4, 9),
      { 0 },
      0 },
    { "conv_transpose",
      "node { op_type: 'ConvTranspose' name: 'the_node' input: ['x', 'w', 'b'] output: 'y' " AS(
          "output_shape", "[8, 8]")
          AS("strides",
             "[2, 1]") "} "
                       "initializer { name: 'w' dims: [1, 2, 2, 2] data_type: 1 float_data: [1, 2, "
                       "3, 4, 5, 6, 7, "
                       "8] } initializer { name: 'b' dims: 2 data_type: 1 float_data: [1, 2] } ",
      18,
      S(1, 1, 4, 9),
      S(2, 1, 3, 5),
      { 0 },
      0 },
    { "conv_transpose_upper",
      "node { op_type: 'ConvTranspose' name: 'the_node' input: ['x', 'w'] output: 'y' " AS(
          "output_shape", "[7]")
          AT("auto_pad", "SAME_UPPER") "} "
                                       "initializer { name: 'w' dims: [1, 1, 3] data_type: 1 "
                                       "float_data: [1, 2, 3] } ",
      18,
      S(1, 1, 8),
      S(2, 1, 4),
      { 0 },
      0 },
    { "conv_kernel", N("Conv", AS("pads", "[1, 0, 1, 0]")), 18, S(1, 2, 4, 5), S(2, 2, 6, 3),
      S(3, 2, 3, 2), 0 },
    { "conv_kernel_same", N("Conv", AT("auto_pad", "SAME_LOWER") AS("strides", "[2, 2]")), 18,
      S(1, 2, 4, 5), S(2, 2, 6, 7), S(3, 2, 3, 2), 0 },
    { "lp_pool",
      N1("LpPool",
         AS("kernel_shape", "[1, 3]") AS("strides", "[1, 3]") AT("auto_pad", "SAME_UPPER")),
      18,
      S(1, 1, 3, 5),
      S(2, 2, 2, 7),
      { 0 },
      0 },
    { "lp_pool_lower",
      N1("LpPool", AS("kernel_shape", "[2]") AS("strides", "[2]") AT("auto_pad", "SAME_LOWER")),
      18,
      S(1, 1, 4),
      S(2, 3, 5),
      { 0 },
      0 },
    { "average_dilated",
      N1("AveragePool", AS("kernel_shape", "[2, 2]") AS("dilations", "[2, 2]")
                            AS("strides", "[2, 2]") AT("auto_pad", "SAME_UPPER")),
      19,
      S(1, 1, 5, 6),
      S(2, 2, 7, 4),
      { 0 },
      0 },
    { "max_pool_indices",
      "node { op_type: 'MaxPool' name: 'the_node' input: 'x' output: ['v', 'y'] " AS("kernel_shape",
                                                                                     "[2, 2]") "} ",
      18,
      S(1, 1, 3, 4),
      S(2, 3, 5, 4),
      { 0 },
      0 },
    { "depth_to_space",
      N1("DepthToSpace", A("blocksize", 2)),
      18,
      S(1, 8, 2, 3),
      S(2, 8, 3, 2),
      { 0 },
      2 },
    { "cumsum", N("CumSum", A("exclusive", 1)) INTS("k", 1, "1"), 18, S(2, 3), S(3, 5), { 0 }, 0 },
    { "gather_nd",
      N("GatherND", "") INTS("k", 2, "[0, -1]"),
      18,
      S(2, 3, 2),
      S(3, 4, 5),
      { 0 },
      0 },
    { "eye_like", N1("EyeLike", A("k", 1)), 18, S(2, 3), S(3, 5), { 0 }, 0 },
    { "reflect",
      N("Pad", AT("mode", "reflect")) INTS("k", 4, "[1, 2, 0, 1]"),
      18,
      S(3, 4),
      S(5, 3),
      { 0 },
      0 },
    { "edge",
      N("Pad", AT("mode", "edge")) INTS("k", 4, "[1, 2, 0, 1]"),
      18,
      S(3, 4),
      S(5, 3),
      { 0 },
      0 },
    { "global_max", N1("GlobalMaxPool", ""), 18, S(1, 2, 3, 4), S(2, 1, 5, 2), { 0 }, 0 },
    { "shape", N1("Shape", ""), 18, S(2, 3), S(4, 5), { 0 }, 0 },
    { "shape_part", N1("Shape", A("start", 1)), 18, S(2, 3, 2), S(4, 5, 2), { 0 }, 0 },
    { "size", N1("Size", ""), 18, S(2, 3), S(4, 5), { 0 }, 0 },
    { "size_computed",
      "node { op_type: 'Shape' input: 'x' output: 's' } "
      "node { op_type: 'Cast' input: 's' output: 'f' " A(
          "to", 1) "} "
                   "node { op_type: 'Sub' input: ['f', 'f'] output: 'zero' } "
                   "node { op_type: 'Sqrt' input: 'f' output: 'r' } "
                   "node { op_type: 'Add' input: ['zero', 'r'] output: 'y' } ",
      18,
      S(2, 3),
      S(4, 5),
      { 0 },
      0 },
};

static aril_shape open_shape(aril_shape s, int from, int known)
{
    for (int d = 0; d < s.ndim; d++)
        if (!(known >> d & 1)) s.dim[d] = -2 - from - d;
    return s;
}

static aril_program *program_of(const open_case *c)
{
    char head[80], graph[4000];
    snprintf(head, sizeof head, "ir_version: 8 opset_import { version: %d } ", c->opset);
    snprintf(graph, sizeof graph, "%s input %s %s%s output { name: 'y' }", c->node, ANY("x"),
             c->k.ndim ? "input " : "", c->k.ndim ? ANY("k") : "");
    return load_text(head, graph);
}

/* Exports a case with all sizes left open. */
static aril_status export_open(const open_case *c, aril_program *p, const char *path)
{
    static const char *const names[] = { "a", "b", "c", "d", "e", "f", "g", "h" };
    const aril_shape sizes[] = { open_shape(c->first, 0, c->known), open_shape(c->k, 4, 0) };
    aril_tensor *in[] = { aril_randn(c->first, ARIL_F32, aril_cpu()),
                          aril_randn(c->k, ARIL_F32, aril_cpu()) };
    int n = 1 + (c->k.ndim > 0);
    aril_export_opts opts = {
        .sizes = sizes, .n_sizes = n, .size_names = names, .n_size_names = 8
    };
    return aril_program_export(p, (aril_list){ n, in }, path, opts);
}

static void check_written(const open_case *c)
{
    ARIL_SCOPE;
    char name[80];
    snprintf(name, sizeof name, "open_%s", c->name);
    const char *path = case_path(name);
    aril_program *p = program_of(c);
    CHECK_MSG(p != NULL, "%s: %s", c->name, aril_error());
    CHECK_MSG(export_open(c, p, path) == ARIL_OK, "%s: %s", c->name, aril_error());
    aril_tensor *in[] = { aril_randn(c->other, ARIL_F32, aril_cpu()),
                          aril_randn(c->k, ARIL_F32, aril_cpu()) },
                *got, *want;
    aril_list list = { 1 + (c->k.ndim > 0), in };
    aril_program *q = aril_program_load(path, (aril_load_opts){ 0 });
    CHECK_MSG(q != NULL, "%s: %s", c->name, aril_error());
    aril_program_run(p, list, &want);
    aril_program_run(q, list, &got);
    CHECK_MSG(aril_ok(), "%s: %s", c->name, aril_error());
    char *why = test_difference_in_value(got, want, 1e-5, 1e-5);
    CHECK_MSG(!why, "%s: %s", c->name, why);
    if (!test_failed()) keep_case(name, 0, list.n, in, 1, &want);
    aril_program_free(q);
    aril_program_free(p);
}

TEST(operators_with_open_sizes)
{
    for (size_t i = 0; i < sizeof written / sizeof *written && !test_failed(); i++)
        check_written(&written[i]);
}

/* What a graph has no form for. A loaded model is written node by node then, and a function that
 * calls it is refused. */
static const open_case refused[] = {
    { "squeeze", N1("Squeeze", ""), 13, S(2, 1, 3), { 0 }, { 0 }, 0 },
    { "lp_pool_ceil",
      N1("LpPool", AS("kernel_shape", "[2]") A("ceil_mode", 1)),
      18,
      S(1, 1, 5),
      { 0 },
      { 0 },
      0 },
    { "average_ceil",
      N1("AveragePool", AS("kernel_shape", "[2]") AS("dilations", "[2]") A("ceil_mode", 1)),
      19,
      S(1, 1, 5),
      { 0 },
      { 0 },
      0 },
    { "max_pool_columns",
      "node { op_type: 'MaxPool' name: 'the_node' input: 'x' output: ['v', 'y'] " AS(
          "kernel_shape", "[2, 2]") A("storage_order", 1) "} ",
      18,
      S(1, 1, 3, 4),
      { 0 },
      { 0 },
      0 },
    { "group_norm",
      "node { op_type: 'GroupNormalization' name: 'the_node' input: ['x', 'w', 'w'] output: 'y' " A(
          "num_groups", 1) "} "
                           "initializer { name: 'w' dims: 2 data_type: 1 float_data: [1, 2] } ",
      21,
      S(1, 2, 3),
      { 0 },
      { 0 },
      0 },
    { "split", N1("Split", A("num_outputs", 1)), 18, S(4, 3), { 0 }, { 0 }, 0 },
    { "attention",
      "node { op_type: 'Attention' name: 'the_node' input: ['x', 'x', 'x'] output: 'y' } ",
      23,
      S(1, 1, 2, 4),
      { 0 },
      { 0 },
      0 },
};

static void calls(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    out[0] = aril_forward(ctx, in[0]);
}

TEST(open_sizes_that_must_be_known)
{
    ARIL_SCOPE;
    for (size_t i = 0; i < sizeof refused / sizeof *refused && !test_failed(); i++) {
        const open_case *c = &refused[i];
        aril_program *p = program_of(c);
        CHECK_MSG(p != NULL, "%s: %s", c->name, aril_error());
        aril_module *m = aril_module_load(temp_path("model.onnx"), (aril_load_opts){ 0 });
        CHECK_MSG(m != NULL, "%s: %s", c->name, aril_error());
        aril_program *q = aril_jit(calls, m, (aril_jit_opts){ .name = "calls" });
        const char *path = temp_path("refused.onnx");
        CHECK_MSG(export_open(c, q, path) < 0, "%s is written", c->name);
        CHECK_MSG(strstr(aril_error(), "node the_node"), "%s: %s", c->name, aril_error());
        CHECK_MSG(strstr(aril_error(),
                         "computes with sizes that are left open; they must be known"),
                  "%s: %s", c->name, aril_error());
        CHECK_MSG(!strchr(aril_error(), '?'), "%s: %s", c->name, aril_error());
        aril_clear_error();
        CHECK(fopen(path, "r") == NULL);
        aril_program_free(q);
        aril_program_free(p);
        aril_module_release(m);
    }
}

/* ---- functions in C ---- */

static double factor;

/* A number that C code computes from a size. */
static void scaled(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    int64_t n = aril_size(in[0], 0);
    double by = factor < 0 ? 1 / (double)n : factor * (double)n - 1;
    out[0] = aril_mul_scalar(in[0], by);
}

TEST(numbers_that_derive_from_a_size_are_not_written)
{
    ARIL_SCOPE;
    static const double factors[] = { 1, 2, 0.5, 3, 1.5, 224, -1 };
    aril_tensor *x = aril_ones(ARIL_SHAPE(4, 3), ARIL_F32, aril_cpu());
    for (size_t i = 0; i < sizeof factors / sizeof *factors && !test_failed(); i++) {
        factor = factors[i];
        aril_program *p = aril_jit(scaled, NULL, (aril_jit_opts){ .name = "scaled" });
        const char *path = temp_path("scaled.onnx");
        CHECK(aril_program_export(p, ARIL_LIST(x), path, (aril_export_opts){ .batch = true }) < 0);
        CHECK_MSG(strstr(aril_error(), "a size that"), "%s", aril_error());
        aril_clear_error();
        CHECK_INT(aril_program_export(p, ARIL_LIST(x), path, (aril_export_opts){ 0 }), ARIL_OK);
        remove(path);
        aril_program_free(p);
    }
}

TEST(numbers_of_models_are_not_taken_for_sizes)
{
    aril__sizes s = { 0 };
    for (int i = 0; i < 20; i++) aril__size_new(&s, NULL);
    int64_t n = aril__size_new(&s, NULL);
    CHECK(aril__size_derives(&s, (double)n, false) && aril__size_derives(&s, (double)-n, false));
    CHECK(aril__size_derives(&s, (double)(float)n, true));
    CHECK(aril__size_derives(&s, (double)(3 * n + 17), false));
    CHECK(aril__size_derives(&s, (double)(n / 7), false));
    CHECK(aril__size_derives(&s, 1 / (double)n, false));
    for (int e = 0; e < 63; e++) {
        double power = (double)(INT64_C(1) << e);
        CHECK(!aril__size_derives(&s, power, false) && !aril__size_derives(&s, -power, false));
        CHECK(!aril__size_derives(&s, power - 1, false));
        CHECK(!aril__size_derives(&s, 1 / power, false));
    }
    for (double power = 1e-30; power < 1e30; power *= 10)
        CHECK(!aril__size_derives(&s, power, false) && !aril__size_derives(&s, -power, true));
    CHECK(!aril__size_derives(&s, 0, true) && !aril__size_derives(&s, INFINITY, true));
    CHECK(!aril__size_derives(&s, (double)INT64_MAX, false));
    CHECK(!aril__size_derives(&s, (double)INT64_MIN, false));
    aril__sizes_free(&s);
}
