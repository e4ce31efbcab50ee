/* Models that are written node by node: those that a trace cannot hold. */
#include "onnx/export_case.h"
#include "onnx/onnx_text.h"
#include "support/compare.h"

#include <stdlib.h>

/* The number of rows as a float, or of columns if there are more, by a result whose size only a run
 * knows: no trace has it. */
#define ROWS                                                                       \
    "node { op_type: 'Shape' input: 'x' output: 'rows.shape' } "                   \
    "node { op_type: 'Cast' input: 'rows.shape' output: 'rows.float' "             \
    "attribute { name: 'to' type: INT i: 1 } } "                                   \
    "node { op_type: 'ReduceMax' input: 'rows.float' output: 'rows.max' } "        \
    "node { op_type: 'Cast' input: 'rows.max' output: 'rows.n' "                   \
    "attribute { name: 'to' type: INT i: 7 } } "                                   \
    "node { op_type: 'Expand' input: ['rows.max', 'rows.n'] output: 'rows.all' } " \
    "node { op_type: 'ReduceMax' input: 'rows.all' output: 'rows' "                \
    "attribute { name: 'keepdims' type: INT i: 0 } } "
#define NODE(op, in, out, more) \
    "node { op_type: '" op "' input: [" in "] output: [" out "] " more " } "
#define INT(name, v)   "attribute { name: '" name "' type: INT i: " #v " } "
#define FLOAT(name, v) "attribute { name: '" name "' type: FLOAT f: " #v " } "
#define INTS(name, v)  "attribute { name: '" name "' type: INTS ints: [" v "] } "
#define OPEN(name, d)                                                                        \
    "{ name: '" name "' type { tensor_type { elem_type: 1 shape { dim { dim_param: 'N' } " d \
    "} } } } "
#define MATRIX(name) \
    "{ name: '" name "' type { tensor_type { elem_type: 1 shape { dim { } dim { } } } } } "

/* Writes the program with an open batch in an operator set; returns what is read from the file. */
static aril_program *rewritten(const char *name, aril_program *p, aril_tensor *x, int opset)
{
    const char *path = case_path(name), *names[] = { "N" };
    aril_shape open = aril_shape_of(x);
    open.dim[0] = -2;
    aril_export_opts opts = {
        .opset = opset, .sizes = &open, .n_sizes = 1, .size_names = names, .n_size_names = 1
    };
    if (aril_program_export(p, ARIL_LIST(x), path, opts) < 0) {
        test_fail(__FILE__, __LINE__, "%s", aril_error());
        return NULL;
    }
    aril_program *q = aril_program_load(path, (aril_load_opts){ 0 });
    if (!q) test_fail(__FILE__, __LINE__, "%s", aril_error());
    if (q && strcmp(aril_program_input_size_name(q, 0, 0), "N") != 0)
        test_fail(__FILE__, __LINE__, "the batch is called otherwise");
    return q;
}

/* Both programs give the same for two batch sizes. */
static void check_same(const char *name, const char *head, const char *graph, aril_shape shape,
                       int opset)
{
    ARIL_SCOPE;
    aril_program *p = load_text(head, graph);
    if (!p) test_fail(__FILE__, __LINE__, "%s", aril_error());
    aril_program *q = p ? rewritten(name, p, aril_randn(shape, ARIL_F32, aril_cpu()), opset) : NULL;
    for (int64_t n = 2; n < 4 && q; n++) {
        aril_tensor *want, *got;
        shape.dim[0] = n;
        aril_tensor *x = aril_randn(shape, ARIL_F32, aril_cpu());
        aril_program_run(p, ARIL_LIST(x), &want);
        aril_program_run(q, ARIL_LIST(x), &got);
        if (!aril_ok()) test_fail(__FILE__, __LINE__, "%s", aril_error());
        CHECK(aril_allclose(got, want, (aril_close_opts){ 0 }));
        if (!test_failed()) keep_case(name, (int)n - 2, 1, &x, 1, &want);
    }
    aril_program_free(p);
    aril_program_free(q);
}

/* Operators whose attributes became inputs, or that mean something else. */
TEST(old_operator_sets)
{
    check_same(
        "rewrite_8", "ir_version: 3 opset_import { version: 8 } ",
        NODE("Slice", "'x'", "'a'", INTS("starts", "0") INTS("ends", "3") INTS("axes", "1")) NODE(
            "BatchNormalization", "'a', 's', 's', 's', 's'", "'b'",
            INT("spatial",
                1)) NODE("Upsample", "'b'", "'c'",
                         "attribute { name: 'scales' type: FLOATS floats: [1, 1, 2, 1.5] } ")
            NODE("Dropout", "'c'", "'d'", FLOAT("ratio", 0.25)) NODE(
                "TopK", "'d'", "'e', 'index'",
                INT("k", 2)) NODE("Clip", "'e'", "'f'",
                                  FLOAT("max", 0.9)) NODE("Softmax", "'f'", "'g'", INT("axis", 2))
                NODE("ReduceSum", "'g'", "'h'", INTS("axes", "2") INT("keepdims", 0)) NODE(
                    "Pad", "'h'", "'i'",
                    INTS("pads", "0, 1, 0, 0, 0, 1")
                        FLOAT("value", 0.5)) NODE("Squeeze", "'one'", "'two'", INTS("axes", "0"))
                    NODE("Unsqueeze", "'two'", "'three'", INTS("axes", "0, 1")) NODE(
                        "Add", "'i', 'three'",
                        "'j'",
                        "") NODE("Split", "'j'", "'k', 'l'", INT("axis", 1) INTS("split", "3, 1"))
                        ROWS NODE(
                            "Mul", "'l', 'rows'",
                            "'y'",
                            "") "initializer { name: 's' dims: 3 data_type: 1 float_data: [1, 2, "
                                "0.5] } "
                                "initializer { name: 'one' dims: 1 data_type: 1 float_data: 3 } "
                                "input " OPEN("x", DIM(4) DIM(4) DIM(6)) "input " FLOATS(
                                    "s",
                                    DIM(3)) "input " FLOATS("one",
                                                            DIM(1)) "output { name: 'y' type { "
                                                                    "tensor_type { elem_type: 1 "
                                                                    "shape { dim { } dim { } "
                                                                    "dim { } } } } }",
        ARIL_SHAPE(2, 4, 4, 6), 18);
}

TEST(resize_of_the_first_version)
{
    check_same(
        "rewrite_10", OPSET(10),
        NODE("Resize", "'x', 'scales'", "'a'", "")
            NODE("Clip", "'a'", "'b'", FLOAT("min", -0.5) FLOAT("max", 0.5)) ROWS NODE(
                "Mul", "'b', 'rows'", "'y'",
                "") "initializer { name: 'scales' dims: 2 data_type: 1 float_data: [1, 1.7] } "
                    "input " OPEN("x", DIM(5)) "output " MATRIX("y"),
        ARIL_SHAPE(2, 5), 21);
}

/* Axes that are inputs become attributes again. */
TEST(older_than_the_file)
{
    check_same("rewrite_down", OPSET(18),
               NODE("ReduceMean", "'x', 'axes'", "'m'", "")
                   NODE("Split", "'x'", "'a', 'b'", INT("axis", 1) INT("num_outputs", 2))
                       NODE("Add", "'a', 'm'", "'c'", "") ROWS NODE(
                           "Mul", "'c', 'rows'", "'y'",
                           "") "initializer { name: 'axes' dims: 1 data_type: 7 int64_data: -1 } "
                               "input " OPEN("x", DIM(4)) "output " MATRIX("y"),
               ARIL_SHAPE(2, 4), 13);
}

/* A branch is a graph of its own, and sees the values around it. */
TEST(graphs_inside)
{
    check_same(
        "rewrite_inner", OPSET(11),
        ROWS NODE("Greater", "'rows', 'limit'", "'many'",
                  "") "node { op_type: 'If' input: 'many' output: 'y' "
                      "attribute { name: 'then_branch' type: GRAPH g { name: "
                      "'then' " NODE("Softmax", "'x'", "'p'", "") "output " MATRIX(
                          "p") "} } "
                               "attribute { name: 'else_branch' type: GRAPH g { name: "
                               "'else' " NODE("Unsqueeze", "'half'", "'u'", INTS("axes", "0, 1"))
                                   NODE("Mul", "'x', 'u'", "'q'",
                                        "") "initializer { name: 'half' data_type: 1 "
                                            "float_data: 0.5 } "
                                            "output " MATRIX(
                                                "q") "} } } "
                                                     "initializer { name: 'limit' "
                                                     "data_type: 1 float_data: 6.5 } "
                                                     "input " OPEN("x",
                                                                   DIM(6)) "output " MATRIX("y"),
        ARIL_SHAPE(2, 6), 18);
}

static void check_refused(int opset, const char *graph, const char *text)
{
    ARIL_SCOPE;
    aril_program *p = load_text(OPSET(18), graph);
    if (!p) test_fail(__FILE__, __LINE__, "%s", aril_error());
    aril_shape open = { 2, { -2, 4 } };
    aril_export_opts opts = { .opset = opset, .sizes = &open, .n_sizes = 1 };
    aril_tensor *x = aril_ones(ARIL_SHAPE(2, 4), ARIL_F32, aril_cpu());
    CHECK(aril_program_export(p, ARIL_LIST(x), temp_path("refused.onnx"), opts) < 0);
    if (!strstr(aril_error(), text))
        test_fail(__FILE__, __LINE__, "\"%s\" does not contain \"%s\"", aril_error(), text);
    aril_clear_error();
    aril_program_free(p);
}

TEST(what_an_operator_set_does_not_have)
{
    check_refused(13,
                  NODE("Mish", "'x'", "'a'", "name: 'soft'")
                      ROWS NODE("Mul", "'a', 'rows'", "'y'",
                                "") "input " OPEN("x", DIM(4)) "output " MATRIX("y"),
                  "node soft Mish-18: operator set 13 does not have the operator");
}

/* ---- modules ---- */

/* A loaded module is written with its parameters of now. */
TEST(parameters_that_have_changed)
{
    ARIL_SCOPE;
    const char *path =
        save_model(OPSET(17) "graph { name: 'net' " NODE("MatMul", "'x', 'fc.weight'", "'h'", "")
                       ROWS NODE("Mul", "'h', 'rows'", "'y'",
                                 "") "initializer { name: 'fc.weight' dims: [2, 2] data_type: 1 "
                                     "float_data: [1, 2, 3, 4] } "
                                     "input " OPEN("x", DIM(2)) "output " MATRIX("y") "}");
    aril_module *m = aril_module_load(path, (aril_load_opts){ 0 });
    if (!m) test_fail(__FILE__, __LINE__, "%s", aril_error());
    aril_tensor *x = aril_randn(ARIL_SHAPE(3, 2), ARIL_F32, aril_cpu());
    const aril_named *state = aril_state(m);
    CHECK(state && state->n == 1);
    {
        ARIL_NO_GRAD;
        aril_mul_(state->at[0], aril_scalar(-2));
    }
    const char *to = case_path("rewrite_module");
    aril_export_opts opts = { .opset = 21, .batch = true };
    if (aril_module_export(m, ARIL_LIST(x), to, opts) < 0)
        test_fail(__FILE__, __LINE__, "%s", aril_error());
    aril_program *p = aril_program_load(to, (aril_load_opts){ 0 });
    if (!p) test_fail(__FILE__, __LINE__, "%s", aril_error());
    aril_tensor *want = aril_detach(aril_forward(m, x)), *got;
    CHECK(strcmp(aril_program_input_size_name(p, 0, 0), "batch") == 0);
    aril_program_run(p, ARIL_LIST(x), &got);
    CHECK(aril_allclose(got, want, (aril_close_opts){ 0 }));
    if (!test_failed()) keep_case("rewrite_module", 0, 1, &x, 1, &want);
    aril_program_free(p);
    aril_module_release(m);
}

/* Scales decide on sizes: they are no parameters, and a trace knows them. */
TEST(scales_of_resize_in_a_module)
{
    ARIL_SCOPE;
    const char *path = save_model(
        OPSET(18) "graph { " NODE("Concat", "'two', 'scale'", "'scales'", INT("axis", 0))
            NODE("Resize", "'x', '', 'scales'", "'y'",
                 "") "initializer { name: 'two' dims: 2 data_type: 1 float_data: [1, 1] } "
                     "initializer { name: 'scale' dims: 2 data_type: 1 float_data: [2, 2] } "
                     "input " OPEN(
                         "x",
                         DIM(3) DIM(4) DIM(
                             4)) "output { name: 'y' type { tensor_type { elem_type: 1 } } } }");
    aril_module *m = aril_module_load(path, (aril_load_opts){ 0 });
    if (!m) test_fail(__FILE__, __LINE__, "%s", aril_error());
    aril_module *net = aril_nn_sequential(m, aril_nn_conv2d(3, 2, 1));
    aril_tensor *x = aril_randn(ARIL_SHAPE(2, 3, 4, 4), ARIL_F32, aril_cpu()), *got;
    aril_tensor *want = aril_detach(aril_forward(net, x));
    const char *to = case_path("resize_in_a_module");
    if (aril_module_export(net, ARIL_LIST(x), to, (aril_export_opts){ .batch = true }) < 0)
        test_fail(__FILE__, __LINE__, "%s", aril_error());
    aril_program *p = aril_program_load(to, (aril_load_opts){ 0 });
    aril_program_run(p, ARIL_LIST(x), &got);
    CHECK(aril_allclose(got, want, (aril_close_opts){ .atol = 1e-5 }));
    if (!test_failed()) keep_case("resize_in_a_module", 0, 1, &x, 1, &want);
    aril_program_free(p);
    aril_module_release(net);
}

/* ---- types ---- */

TEST(operands_of_two_types)
{
    ARIL_SCOPE;
    aril_program *p =
        load_text(OPSET(18),
                  "node { op_type: 'Add' name: 'sum' input: ['x', 'z'] "
                  "output: 'y' } input " ANY("x") "input " TYPED("z", 7) "output " ANY("y"));
    aril_tensor *x = aril_ones(ARIL_SHAPE(2), ARIL_F32, aril_cpu()),
                *z = aril_ones(ARIL_SHAPE(2), ARIL_I64, aril_cpu()), *y;
    CHECK(aril_program_run(p, ARIL_LIST(x, z), &y) < 0);
    CHECK(strstr(aril_error(), "node sum Add: "));
    CHECK(strstr(aril_error(), "inputs 0 and 1 have the types float and int64"));
    aril_clear_error();
    aril_program_free(p);
}

/* ---- sizes and names ---- */

TEST(sizes_of_one_name_are_equal)
{
    ARIL_SCOPE;
    aril_program *p = load_text(
        OPSET(18),
        "node { op_type: 'Concat' input: ['x', 'z'] output: 'y' " INT(
            "axis", 1) "} "
                       "input " OPEN("x", DIM(2)) "input " OPEN("z", DIM(3)) "output " MATRIX("y"));
    aril_tensor *x = aril_ones(ARIL_SHAPE(2, 2), ARIL_F32, aril_cpu()),
                *z = aril_ones(ARIL_SHAPE(4, 3), ARIL_F32, aril_cpu()), *y;
    CHECK(aril_program_run(p, ARIL_LIST(x, z), &y) < 0);
    CHECK_MSG(strstr(aril_error(), "input z: the size N is 4, but 2 in input x"), "%s",
              aril_error());
    aril_clear_error();
    aril_program_free(p);
}

TEST(empty_names_are_refused)
{
    ARIL_SCOPE;
    aril_module *m = aril_nn_linear(2, 3);
    aril_tensor *x = aril_ones(ARIL_SHAPE(1, 2), ARIL_F32, aril_cpu());
    const char *none[] = { "" };
    const char *path = temp_path("names.onnx");
    CHECK(aril_module_export(m, ARIL_LIST(x), path, (aril_export_opts){ .inputs = none }) < 0);
    CHECK_MSG(strstr(aril_error(), "the name of input 0 is empty"), "%s", aril_error());
    aril_clear_error();
    CHECK(aril_module_export(m, ARIL_LIST(x), path, (aril_export_opts){ .outputs = none }) < 0);
    CHECK_MSG(strstr(aril_error(), "the name of output 0 is empty"), "%s", aril_error());
    aril_clear_error();
    aril_module_release(m);
}

/* Inputs and outputs of a model that is written node by node get other names. */
TEST(other_names)
{
    ARIL_SCOPE;
    aril_program *p =
        load_text(OPSET(18), ROWS NODE("Mul", "'x', 'rows'", "'y'",
                                       "") "input " OPEN("x", DIM(2)) "output " MATRIX("y"));
    aril_tensor *x = aril_ones(ARIL_SHAPE(3, 2), ARIL_F32, aril_cpu());
    const char *in[] = { "pixels" }, *out[] = { "scores" }, *taken[] = { "rows" };
    aril_shape open = { 2, { -1, 2 } };
    aril_export_opts opts = { .inputs = in, .outputs = out, .sizes = &open, .n_sizes = 1 };
    const char *path = temp_path("named.onnx");
    CHECK_MSG(aril_program_export(p, ARIL_LIST(x), path, opts) == ARIL_OK, "%s", aril_error());
    aril_program *q = aril_program_load(path, (aril_load_opts){ 0 });
    CHECK_MSG(q != NULL, "%s", aril_error());
    CHECK_STR(aril_program_input_name(q, 0), "pixels");
    CHECK_STR(aril_program_output_name(q, 0), "scores");
    CHECK_STR(aril_program_input_size_name(q, 0, 0), "N");
    opts.outputs = taken;
    CHECK(aril_program_export(p, ARIL_LIST(x), path, opts) < 0);
    CHECK_MSG(strstr(aril_error(), "another value named rows"), "%s", aril_error());
    aril_clear_error();
    aril_program_free(q);
    aril_program_free(p);
}
