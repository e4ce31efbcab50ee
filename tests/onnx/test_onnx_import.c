/* What importers trip over: versions of operators, names, optional inputs, functions, control flow,
 * and files that are wrong. */
#include "onnx/onnx_text.h"

#include "support/compare.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Loads and runs a model with one output; the result, or NULL after a failed check. */
static aril_tensor *run(const char *head, const char *graph, aril_list in)
{
    aril_tensor *out = NULL;
    aril_program *p = load_text(head, graph);
    if (!p || aril_program_run(p, in, &out) < 0) {
        test_fail(__FILE__, __LINE__, "%s", aril_error());
        out = NULL;
    }
    aril_program_free(p);
    return out;
}

static bool is(aril_tensor *t, aril_shape shape, const float *want)
{
    if (!t) return false;
    int64_t n = aril_numel(t);
    if (aril_ndim(t) != shape.ndim) return false;
    for (int i = 0; i < shape.ndim; i++)
        if (aril_size(t, i) != shape.dim[i]) return false;
    const float *got = aril_data(aril_cast(t, ARIL_F32));
    for (int64_t i = 0; i < n; i++)
        if (!(fabsf(got[i] - want[i]) < 1e-5f)) return false;
    return true;
}

#define VALUES(...) ((const float[]){ __VA_ARGS__ })

static aril_tensor *floats(aril_shape shape, const float *at)
{
    return aril_from(at, shape, ARIL_F32, aril_cpu());
}

/* Loading fails, and the message contains the text. */
static void refuses(const char *head, const char *graph, const char *text)
{
    aril_program *p = load_text(head, graph);
    if (p) test_fail(__FILE__, __LINE__, "loaded; expected \"%s\"", text);
    if (!strstr(aril_error(), text))
        test_fail(__FILE__, __LINE__, "\"%s\" does not contain \"%s\"", aril_error(), text);
    aril_clear_error();
    aril_program_free(p);
}

/* ---- inputs and outputs ---- */

TEST(inputs_and_outputs_have_names)
{
    ARIL_SCOPE;
    aril_program *p =
        load_text(OPSET(13),
                  "node { op_type: \"Add\" input: [\"a\", \"b\"] output: \"sum\" } "
                  "input " FLOATS("a", DIM(2) "dim { dim_param: \"n\" } ") "input " TYPED(
                      "b", 1) "output " ANY("sum"));
    CHECK(p != NULL);
    CHECK_INT(aril_program_inputs(p), 2);
    CHECK_INT(aril_program_outputs(p), 1);
    CHECK_STR(aril_program_input_name(p, 1), "b");
    CHECK(aril_program_input_name(p, 2) == NULL && aril_program_input_name(p, -1) == NULL);
    CHECK_STR(aril_program_output_name(p, 0), "sum");
    CHECK_INT(aril_program_input_shape(p, 0).ndim, 2);
    CHECK_INT(aril_program_input_shape(p, 0).dim[0], 2);
    CHECK_INT(aril_program_input_shape(p, 0).dim[1], -1);
    CHECK_INT(aril_program_input_dtype(p, 0), ARIL_F32);
    aril_tensor *x = aril_ones(ARIL_SHAPE(3, 2), ARIL_F32, aril_cpu()), *y = NULL;
    CHECK(aril_program_run(p, ARIL_LIST(x, x), &y) < 0);
    CHECK(strstr(aril_error(), "input a: expected sizes [2,n], got [3,2]") != NULL);
    aril_clear_error();
    CHECK(aril_program_run(p, ARIL_LIST(x), &y) < 0);
    CHECK(strstr(aril_error(), "got 1 inputs, expected 2") != NULL);
    aril_clear_error();
    aril_tensor *i = aril_ones(ARIL_SHAPE(2, 2), ARIL_I64, aril_cpu());
    CHECK(aril_program_run(p, ARIL_LIST(i, x), &y) < 0);
    CHECK(strstr(aril_error(), "input a: expected float, got i64") != NULL);
    aril_clear_error();
    aril_program_free(p);
}

/* In old models initializers are inputs too: they need not be given. */
TEST(initializers_that_are_inputs_are_optional)
{
    ARIL_SCOPE;
    aril_program *p =
        load_text("ir_version: 3 opset_import { version: 8 } ",
                  "node { op_type: \"Add\" input: [\"w\", \"x\"] output: \"y\" } "
                  "initializer { name: \"w\" dims: 1 data_type: 1 float_data: 5 } "
                  "input " FLOATS("w", DIM(1)) "input " FLOATS("x", DIM(1)) "output " ANY("y"));
    aril_tensor *y;
    CHECK(p != NULL);
    CHECK_INT(aril_program_inputs(p), 1);
    CHECK_STR(aril_program_input_name(p, 0), "x");
    CHECK_INT(aril_program_run(p, ARIL_LIST(floats(ARIL_SHAPE(1), VALUES(2))), &y), ARIL_OK);
    CHECK(is(y, ARIL_SHAPE(1), VALUES(7)));
    aril_program_free(p);
}

/* A model is traced once for each signature, and sizes that it computes are constants. */
/* Others write a negative number for a size that is open. */
TEST(negative_sizes_are_open)
{
    ARIL_SCOPE;
    aril_program *p =
        load_text(OPSET(13), "node { op_type: \"Relu\" input: \"x\" output: \"y\" } input " FLOATS(
                                 "x", DIM(-1) DIM(3)) "output " FLOATS("y", DIM(-7) DIM(3)));
    CHECK_MSG(p, "%s", aril_error());
    CHECK_INT(aril_program_input_shape(p, 0).dim[0], -1);
    for (int n = 1; n < 4; n++) {
        aril_tensor *x = aril_ones(ARIL_SHAPE(n, 3), ARIL_F32, aril_cpu()), *y;
        CHECK_MSG(aril_program_run(p, ARIL_LIST(x), &y) == ARIL_OK, "%s", aril_error());
        CHECK_INT(aril_size(y, 0), n);
    }
    aril_program_free(p);
    p = aril_program_load(temp_path("model.onnx"), (aril_load_opts){ .open_batch = true });
    aril_tensor *x = aril_ones(ARIL_SHAPE(2, 3), ARIL_F32, aril_cpu()), *y;
    CHECK_MSG(p && aril_program_run(p, ARIL_LIST(x), &y) == ARIL_OK, "%s", aril_error());
    aril_program_free(p);
}

TEST(sizes_that_are_computed)
{
    ARIL_SCOPE;
    aril_program *p =
        load_text(OPSET(13), "node { op_type: \"Shape\" input: \"x\" output: \"s\" } "
                             "node { op_type: \"Gather\" input: [\"s\", \"zero\"] output: \"n\" } "
                             "node { op_type: \"Concat\" input: [\"n\", \"rest\"] output: \"to\" "
                             "attribute { name: \"axis\" i: 0 type: INT } } "
                             "node { op_type: \"Reshape\" input: [\"x\", \"to\"] output: \"y\" } "
                             "initializer { name: \"zero\" dims: 1 data_type: 7 int64_data: 0 } "
                             "initializer { name: \"rest\" dims: 1 data_type: 7 int64_data: -1 } "
                             "input " ANY("x") "output " ANY("y"));
    CHECK(p != NULL);
    for (int64_t n = 1; n <= 3; n++) {
        aril_tensor *y;
        CHECK_INT(aril_program_run(
                      p, ARIL_LIST(aril_ones(ARIL_SHAPE(n, 2, 3), ARIL_F32, aril_cpu())), &y),
                  ARIL_OK);
        CHECK_INT(aril_ndim(y), 2);
        CHECK_INT(aril_size(y, 0), n);
        CHECK_INT(aril_size(y, 1), 6);
        CHECK_INT(aril_program_run(
                      p, ARIL_LIST(aril_ones(ARIL_SHAPE(n, 2, 3), ARIL_F32, aril_cpu())), &y),
                  ARIL_OK);
    }
    CHECK_INT(aril_program_traces(p), 3);
    aril_program_free(p);
}

/* Sizes that depend on values: the model is interpreted at each run. */
TEST(sizes_that_depend_on_values)
{
    ARIL_SCOPE;
    aril_program *p =
        load_text(OPSET(13), "node { op_type: \"NonZero\" input: \"x\" output: \"at\" } "
                             "node { op_type: \"Shape\" input: \"at\" output: \"y\" } "
                             "input " ANY("x") "output " TYPED("y", 7));
    aril_tensor *y;
    CHECK(p != NULL);
    CHECK_INT(aril_program_run(p, ARIL_LIST(floats(ARIL_SHAPE(4), VALUES(1, 0, 2, 0))), &y),
              ARIL_OK);
    CHECK(is(y, ARIL_SHAPE(2), VALUES(1, 2)));
    CHECK_INT(aril_program_run(p, ARIL_LIST(floats(ARIL_SHAPE(4), VALUES(1, 1, 2, 0))), &y),
              ARIL_OK);
    CHECK(is(y, ARIL_SHAPE(2), VALUES(1, 3)));
    CHECK(aril_ok());
    aril_program_free(p);
}

/* ---- versions ---- */

/* Before version 7 operands are broadcast from an axis. */
TEST(broadcast_of_version_6)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_zeros(ARIL_SHAPE(2, 3, 2), ARIL_F32, aril_cpu());
    aril_tensor *y = run("ir_version: 3 opset_import { version: 6 } ",
                         "node { op_type: \"Add\" input: [\"x\", \"b\"] output: \"y\" "
                         "attribute { name: \"broadcast\" i: 1 type: INT } attribute { name: "
                         "\"axis\" i: 1 type: INT } } "
                         "input " ANY("x") "input " ANY("b") "output " ANY("y"),
                         ARIL_LIST(x, floats(ARIL_SHAPE(3), VALUES(1, 2, 3))));
    CHECK(is(y, ARIL_SHAPE(2, 3, 2), VALUES(1, 1, 2, 2, 3, 3, 1, 1, 2, 2, 3, 3)));
}

/* Before version 13 softmax is over all axes from one on. */
TEST(softmax_of_version_11)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_zeros(ARIL_SHAPE(1, 2, 2), ARIL_F32, aril_cpu());
    const char *graph = "node { op_type: \"Softmax\" input: \"x\" output: \"y\" } input " ANY(
        "x") "output " ANY("y");
    CHECK(is(run(OPSET(11), graph, ARIL_LIST(x)), ARIL_SHAPE(1, 2, 2),
             VALUES(0.25, 0.25, 0.25, 0.25)));
    CHECK(is(run(OPSET(13), graph, ARIL_LIST(x)), ARIL_SHAPE(1, 2, 2), VALUES(0.5, 0.5, 0.5, 0.5)));
}

/* Axes are an attribute before version 13, and an input after it. */
TEST(axes_as_attribute_and_input)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_ones(ARIL_SHAPE(2, 3), ARIL_F32, aril_cpu());
    CHECK(is(run(OPSET(11),
                 "node { op_type: \"ReduceSum\" input: \"x\" output: \"y\" attribute { name: "
                 "\"axes\" ints: -1 type: INTS } } "
                 "input " ANY("x") "output " ANY("y"),
                 ARIL_LIST(x)),
             ARIL_SHAPE(2, 1), VALUES(3, 3)));
    const char *axes = "initializer { name: \"a\" dims: 1 data_type: 7 int64_data: 0 } input " ANY(
        "x") "output " ANY("y");
    char text[1000];
    snprintf(text, sizeof text,
             "node { op_type: \"ReduceSum\" input: [\"x\", \"a\"] output: \"y\" } %s", axes);
    CHECK(is(run(OPSET(13), text, ARIL_LIST(x)), ARIL_SHAPE(1, 3), VALUES(2, 2, 2)));
    CHECK(is(run(OPSET(13),
                 "node { op_type: \"ReduceSum\" input: [\"x\", \"\"] output: \"y\" "
                 "attribute { name: \"noop_with_empty_axes\" i: 1 type: INT } } input " ANY(
                     "x") "output " ANY("y"),
                 ARIL_LIST(x)),
             ARIL_SHAPE(2, 3), VALUES(1, 1, 1, 1, 1, 1)));
}

/* Integers are divided towards 0; Mod has the sign of the divisor, or of the dividend with fmod. */
TEST(division_of_integers)
{
    ARIL_SCOPE;
    const int64_t a[] = { 7, -7, 7, -7 }, b[] = { 2, 2, -2, -2 };
    aril_list in = ARIL_LIST(aril_from(a, ARIL_SHAPE(4), ARIL_I64, aril_cpu()),
                             aril_from(b, ARIL_SHAPE(4), ARIL_I64, aril_cpu()));
#define OF(op, attributes)                                                       \
    "node { op_type: \"" op "\" input: [\"a\", \"b\"] output: \"y\" " attributes \
    " } input " TYPED("a", 7) "input " TYPED("b", 7) "output " TYPED("y", 7)
    CHECK(is(run(OPSET(13), OF("Div", ""), in), ARIL_SHAPE(4), VALUES(3, -3, -3, 3)));
    CHECK(is(run(OPSET(13), OF("Mod", ""), in), ARIL_SHAPE(4), VALUES(1, 1, -1, -1)));
    CHECK(is(run(OPSET(13), OF("Mod", "attribute { name: \"fmod\" i: 1 type: INT }"), in),
             ARIL_SHAPE(4), VALUES(1, -1, 1, -1)));
}

/* ---- names, bodies, functions ---- */

#define BOOL_INPUT "input { name: \"c\" type { tensor_type { elem_type: 9 } } } "

/* Branches use values from outside, may shadow names, and may have different shapes. */
TEST(branches)
{
    ARIL_SCOPE;
    const char *graph = "node { op_type: \"Neg\" input: \"x\" output: \"t\" } "
                        "node { op_type: \"If\" input: \"c\" output: \"y\" "
                        "attribute { name: \"then_branch\" type: GRAPH g { name: \"then\" "
                        "node { op_type: \"Add\" input: [\"t\", \"x\"] output: \"u\" } node { "
                        "op_type: \"Abs\" input: \"u\" output: \"z\" } output " ANY(
                            "z") "} } "
                                 "attribute { name: \"else_branch\" type: GRAPH g { name: \"else\" "
                                 "node { op_type: \"Concat\" input: [\"t\", \"x\"] output: \"u\" "
                                 "attribute { name: \"axis\" i: 0 type: INT } } output " ANY(
                                     "u") "} } } " BOOL_INPUT "input " ANY("x") "output " ANY("y");
    aril_program *p = load_text(OPSET(13), graph);
    CHECK(p != NULL);
    aril_tensor *x = floats(ARIL_SHAPE(2), VALUES(1, 2)), *y;
    for (int i = 0; i < 4; i++) {
        bool c = i % 2;
        aril_tensor *cond = aril_from(&c, ARIL_SHAPE(), ARIL_BOOL, aril_cpu());
        CHECK_INT(aril_program_run(p, ARIL_LIST(cond, x), &y), ARIL_OK);
        CHECK(c ? is(y, ARIL_SHAPE(2), VALUES(0, 0)) : is(y, ARIL_SHAPE(4), VALUES(-1, -2, 1, 2)));
    }
    CHECK_INT(aril_program_traces(p), 2); /* one for each value of the condition */
    aril_program_free(p);
}

/* A number that decides what is computed has a trace for each value, up to a limit. */
TEST(an_integer_input_decides)
{
    ARIL_SCOPE;
    const char *graph =
        "node { op_type: \"Range\" input: [\"zero\", \"k\", \"one\"] output: \"r\" } "
        "node { op_type: \"Cast\" input: \"r\" output: \"f\" attribute { name: \"to\" i: 1 type: "
        "INT } } "
        "node { op_type: \"Mul\" input: [\"f\", \"x\"] output: \"m\" } "
        "node { op_type: \"ReduceSum\" input: \"m\" output: \"y\" attribute { name: \"keepdims\" "
        "i: 0 type: INT } } "
        "initializer { name: \"zero\" data_type: 7 int64_data: 0 } "
        "initializer { name: \"one\" data_type: 7 int64_data: 1 } "
        "input " TYPED("k", 7) "input " ANY("x") "output " ANY("y");
    aril_program *p = load_text(OPSET(13), graph);
    CHECK(p != NULL);
    aril_tensor *x = floats(ARIL_SHAPE(1), VALUES(2)), *y;
    for (int round = 0; round < 2; round++)
        for (int64_t k = 1; k <= 24; k++) {
            aril_tensor *number = aril_from(&k, ARIL_SHAPE(), ARIL_I64, aril_cpu());
            CHECK_INT(aril_program_run(p, ARIL_LIST(number, x), &y), ARIL_OK);
            CHECK(is(y, ARIL_SHAPE(), VALUES((float)(k * (k - 1)))));
        }
    CHECK(aril_program_traces(p) >= 1 && aril_program_traces(p) <= 16);
    aril_program_free(p);
}

#define LOOP_BODY                                                                              \
    "attribute { name: \"body\" type: GRAPH g { name: \"body\" "                               \
    "node { op_type: \"Identity\" input: \"go\" output: \"go_on\" } "                          \
    "node { op_type: \"Add\" input: [\"s\", \"x\"] output: \"next\" } "                        \
    "node { op_type: \"Identity\" input: \"next\" output: \"seen\" } "                         \
    "input { name: \"i\" type { tensor_type { elem_type: 7 } } } input { name: \"go\" type { " \
    "tensor_type { elem_type: 9 } } } input " ANY(                                             \
        "s") "output { name: \"go_on\" type { "                                                \
             "tensor_type { elem_type: 9 } } } "                                               \
             "output " ANY("next") "output " FLOATS("seen", DIM(2)) "} } "

static void loop_of(int64_t trips, aril_shape shape, const float *want)
{
    ARIL_SCOPE;
    char graph[2000];
    snprintf(graph, sizeof graph,
             "node { op_type: \"Loop\" input: [\"n\", \"\", \"x\"] output: [\"last\", "
             "\"all\"] " LOOP_BODY " } "
             "initializer { name: \"n\" data_type: 7 int64_data: %lld } "
             "input " FLOATS("x", DIM(2)) "output " ANY("all"),
             (long long)trips);
    aril_tensor *y = run(OPSET(13), graph, ARIL_LIST(floats(ARIL_SHAPE(2), VALUES(1, 2))));
    CHECK(is(y, shape, want));
}

/* Results of all trips are stacked; without a trip there is a tensor of size 0. */
TEST(loops)
{
    loop_of(3, ARIL_SHAPE(3, 2), VALUES(2, 4, 3, 6, 4, 8));
    loop_of(0, ARIL_SHAPE(0, 2), NULL);
}

/* Attributes of functions: given, defaults, and left out; overloads. */
TEST(functions)
{
    ARIL_SCOPE;
    const char *head =
        "ir_version: 10 opset_import { version: 18 } opset_import { domain: \"my\" version: 1 } "
        "functions { name: \"Leak\" domain: \"my\" opset_import { version: 18 } input: \"v\" "
        "output: \"w\" "
        "attribute_proto { name: \"slope\" f: 0.5 type: FLOAT } "
        "node { op_type: \"LeakyRelu\" input: \"v\" output: \"w\" attribute { name: \"alpha\" "
        "ref_attr_name: \"slope\" type: FLOAT } } } "
        "functions { name: \"Leak\" domain: \"my\" overload: \"twice\" opset_import { version: 18 "
        "} opset_import { domain: \"my\" version: 1 } input: \"v\" output: \"w\" "
        "node { op_type: \"Leak\" domain: \"my\" input: \"v\" output: \"x\" } node { op_type: "
        "\"Leak\" domain: \"my\" input: \"x\" output: \"w\" } } ";
#define LEAK(extra)                                                             \
    "node { op_type: \"Leak\" domain: \"my\" input: \"x\" output: \"y\" " extra \
    " } input " ANY("x") "output " ANY("y")
    aril_tensor *x = floats(ARIL_SHAPE(2), VALUES(-4, 4));
    CHECK(is(run(head, LEAK(""), ARIL_LIST(x)), ARIL_SHAPE(2), VALUES(-2, 4)));
    CHECK(is(run(head, LEAK("attribute { name: \"slope\" f: 0.25 type: FLOAT }"), ARIL_LIST(x)),
             ARIL_SHAPE(2), VALUES(-1, 4)));
    CHECK(is(run(head, LEAK("overload: \"twice\""), ARIL_LIST(x)), ARIL_SHAPE(2), VALUES(-1, 4)));
}

/* x + 1 in each of that many trips; with `scan`, its values are stacked. */
static aril_status run_loop(const char *trips, bool scan, float *last)
{
    ARIL_SCOPE;
    char graph[2000];
    snprintf(
        graph, sizeof graph,
        "node { op_type: \"Loop\" input: [\"n\", \"\", \"x\"] output: [\"y\" %s] attribute { name: "
        "\"body\" type: GRAPH g { node { op_type: \"Identity\" input: \"c\" output: \"d\" } node "
        "{ op_type: \"Add\" input: [\"a\", \"one\"] output: \"b\" } node { op_type: "
        "\"Identity\" input: \"b\" output: \"s\" } input %s input %s input %s output %s "
        "output %s %s } } } initializer { name: \"n\" data_type: 7 int64_data: %s } initializer "
        "{ name: \"one\" dims: 1 data_type: 1 float_data: 1 } input %s output %s",
        scan ? ", \"z\"" : "", TYPED("i", 7), TYPED("c", 9), ANY("a"), TYPED("d", 9), ANY("b"),
        scan ? "output " ANY("s") : "", trips, ANY("x"), scan ? ANY("z") : ANY("y"));
    aril_program *p = load_text(OPSET(18), graph);
    aril_tensor *y;
    if (!p) return aril_error_code();
    aril_status s =
        aril_program_run(p, ARIL_LIST(aril_zeros(ARIL_SHAPE(1), ARIL_F32, aril_cpu())), &y);
    if (s == ARIL_OK && !scan) *last = (float)aril_item(y);
    aril_program_free(p);
    return s;
}

TEST(a_loop_without_an_end_obeys_the_limit_of_memory)
{
    float last = 0;
    aril_memory_set_limit(aril_cpu(), 16 << 20);
    CHECK_INT(run_loop("4611686018427387904", true, &last), ARIL_ERR_MEMORY);
    aril_clear_error();
    /* Many trips of which only the last state is a result need no more memory than one. */
    CHECK_INT(run_loop("100000", false, &last), ARIL_OK);
    CHECK_MSG(aril_ok(), "%s", aril_error());
    CHECK_INT((int)last, 100000);
    aril_memory_set_limit(aril_cpu(), 0);
}

TEST(many_functions)
{
    enum { FUNCTIONS = 20000 };
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    fputs("ir_version: 10 opset_import { version: 18 } opset_import { domain: \"my\" version: 1 } ",
          f);
    for (int i = 0; i < FUNCTIONS; i++)
        fprintf(
            f,
            "functions { name: \"F%d\" domain: \"my\" opset_import { version: 18 } input: \"a\" "
            "output: \"b\" node { op_type: \"Neg\" input: \"a\" output: \"b\" } } ",
            i);
    fputs("graph { ", f);
    for (int i = 0; i < FUNCTIONS; i++)
        fprintf(f, "node { op_type: \"F%d\" domain: \"my\" input: \"v%d\" output: \"v%d\" } ", i, i,
                i + 1);
    fprintf(f, "input %s output { name: \"v%d\" type { tensor_type { elem_type: 1 } } } }",
            ANY("v0"), FUNCTIONS);
    fclose(f);
    aril_program *p = aril_program_load(save_model(text), (aril_load_opts){ 0 });
    CHECK_MSG(p != NULL, "%s", aril_error());
    aril_program_free(p);
    free(text);
}

TEST(lrn_of_a_large_even_size)
{
    ARIL_SCOPE;
    aril_tensor *y;
    aril_program *p = load_text(
        OPSET(13),
        "node { op_type: \"LRN\" input: \"x\" output: \"y\" attribute { name: \"size\" i: "
        "1099511627776 type: INT } } input " ANY("x") "output " ANY("y"));
    CHECK(p != NULL);
    aril_tensor *x = aril_ones(ARIL_SHAPE(1, 2, 2), ARIL_F32, aril_cpu());
    CHECK(aril_program_run(p, ARIL_LIST(x), &y) < 0);
    CHECK_MSG(strstr(aril_error(), "node LRN: "), "%s", aril_error());
    aril_clear_error();
    aril_program_free(p);
    /* The window of 2 begins at the channel itself. */
    aril_tensor *z =
        run(OPSET(13),
            "node { op_type: \"LRN\" input: \"x\" output: \"y\" attribute { name: "
            "\"size\" i: 2 type: INT } attribute { name: \"alpha\" f: 2 type: FLOAT } "
            "attribute { name: \"beta\" f: 1 type: FLOAT } } input " ANY("x") "output " ANY("y"),
            ARIL_LIST(floats(ARIL_SHAPE(1, 3, 1), VALUES(1, 2, 3))));
    CHECK(is(z, ARIL_SHAPE(1, 3, 1), VALUES(1.f / 6, 2.f / 14, 3.f / 10)));
}

/* ---- padding ---- */

/* The odd element of the padding is at the beginning. */
TEST(same_lower)
{
    ARIL_SCOPE;
    aril_tensor *x = floats(ARIL_SHAPE(1, 1, 3), VALUES(1, 2, 3)),
                *w = floats(ARIL_SHAPE(1, 1, 2), VALUES(1, 10));
#define CONV(pad)                                                                                  \
    "node { op_type: \"Conv\" input: [\"x\", \"w\"] output: \"y\" attribute { name: \"auto_pad\" " \
    "s: \"" pad "\" type: STRING } } input " ANY("x") "input " ANY("w") "output " ANY("y")
    CHECK(is(run(OPSET(13), CONV("SAME_LOWER"), ARIL_LIST(x, w)), ARIL_SHAPE(1, 1, 3),
             VALUES(10, 21, 32)));
    CHECK(is(run(OPSET(13), CONV("SAME_UPPER"), ARIL_LIST(x, w)), ARIL_SHAPE(1, 1, 3),
             VALUES(21, 32, 3)));
}

/* ---- what is refused ---- */

/* Positions in the padding, or past the end of a row, take no time. */
TEST(windows_much_larger_than_the_image)
{
    static const struct {
        const char *op;
        float want;
    } pools[] = { { "MaxPool", 1 }, { "AveragePool", 1 }, { "LpPool", 64 } };
    ARIL_SCOPE;
    aril_tensor *line = aril_ones(ARIL_SHAPE(1, 3, 64), ARIL_F32, aril_cpu()),
                *image = aril_ones(ARIL_SHAPE(1, 3, 64, 64), ARIL_F32, aril_cpu());
    for (int i = 0; i < 6; i++) {
        char graph[600];
        snprintf(
            graph, sizeof graph,
            "node { op_type: \"%s\" input: \"x\" output: \"y\" attribute { name: "
            "\"kernel_shape\" ints: [%s2147483647] type: INTS } attribute { name: \"auto_pad\" "
            "s: \"SAME_LOWER\" type: STRING } %s } input %s output %s",
            pools[i / 2].op, i % 2 ? "1, " : "",
            i / 2 == 2 ? "attribute { name: \"p\" i: 1 type: INT }" : "", ANY("x"), ANY("y"));
        aril_tensor *y = run(OPSET(18), graph, ARIL_LIST(i % 2 ? image : line));
        CHECK(y != NULL && aril_size(y, -1) == 64);
        CHECK_NEAR(aril_item(aril_amax(y, ARIL_ALL)), pools[i / 2].want, 1e-3);
        CHECK_NEAR(aril_item(aril_amin(y, ARIL_ALL)), pools[i / 2].want, 1e-3);
    }
}

TEST(grams_with_any_number_of_skips)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_from((int32_t[]){ 7, 1, 7, 7 }, ARIL_SHAPE(4), ARIL_I32, aril_cpu());
    aril_tensor *y = run(
        OPSET(13),
        "node { op_type: \"TfIdfVectorizer\" input: \"x\" output: \"y\" attribute { name: \"mode\" "
        "s: "
        "\"TF\" type: STRING } attribute { name: \"min_gram_length\" i: 3 type: INT } attribute { "
        "name: \"max_gram_length\" i: 3 type: INT } attribute { name: \"max_skip_count\" i: "
        "9223372036854775807 type: INT } attribute { name: \"ngram_counts\" ints: [0, 0, 0] type: "
        "INTS } attribute { name: \"ngram_indexes\" ints: 0 type: INTS } attribute { name: "
        "\"pool_int64s\" ints: [1, 7, 7] type: INTS } } input " TYPED("x", 6) "output " ANY("y"),
        ARIL_LIST(x));
    CHECK(y != NULL);
    CHECK_NEAR(aril_item(y), 1, 0);
}

TEST(all_missing_operators_are_listed)
{
    refuses(OPSET(13),
            "node { name: \"first\" op_type: \"Nothing\" input: \"x\" output: \"a\" } "
            "node { op_type: \"Gelu\" input: \"a\" output: \"b\" } "
            "node { op_type: \"Fused\" domain: \"com.example\" input: \"b\" output: \"y\" } "
            "input " ANY("x") "output " ANY("y"),
            "3 nodes are not supported: Nothing-13 (node first at byte ");
    refuses(OPSET(13),
            "node { op_type: \"Gelu\" input: \"x\" output: \"y\" } input " ANY("x") "output " ANY(
                "y"),
            "Gelu-13 (node without a name at byte 6, supported: versions 20 to 28)");
    refuses(
        OPSET(13),
        "node { op_type: \"Fused\" domain: \"com.example\" input: \"x\" output: \"y\" } input " ANY(
            "x") "output " ANY("y"),
        "com.example.Fused (node without a name at byte 6, the domain is not imported)");
}

/* One entry for an operator that many nodes have, and all operators. */
TEST(missing_operators_are_grouped)
{
    char graph[20000];
    size_t n = 0;
    for (int i = 0; i < 60; i++)
        n += (size_t)snprintf(graph + n, sizeof graph - n,
                              "node { name: 'a%d' op_type: '%s%d' domain: 'far' input: 'x' output: "
                              "'a%d' } ",
                              i, i < 40 ? "Same" : "Other", i < 40 ? 0 : i, i);
    snprintf(graph + n, sizeof graph - n, "input %s output %s", ANY("x"), ANY("a59"));
    const char *head = "ir_version: 8 opset_import { version: 18 } opset_import { domain: 'far' "
                       "version: 1 } ";
    refuses(head, graph, "60 nodes are not supported: far.Same0-1 (40 nodes, first a0 at byte ");
    refuses(head, graph, ", far.Other40-1 (node a40 at byte ");
    refuses(head, graph, ", far.Other59-1");
}

TEST(malformed_graphs)
{
    refuses(OPSET(13),
            "node { op_type: \"Abs\" input: \"b\" output: \"a\" } node { op_type: \"Abs\" input: "
            "\"a\" output: \"b\" } output " ANY("b"),
            "is not computed before it");
    refuses(OPSET(13),
            "node { name: 'first' op_type: 'Abs' input: 'b' output: 'a' } output " ANY("a"),
            "node first Abs: its input b is not computed before it");
    refuses(OPSET(13),
            "initializer { name: 'w' dims: 2 data_type: 1 float_data: 1 } output " ANY("w"),
            "model.onnx: tensor w at byte ");
    refuses(OPSET(13), "node { op_type: \"Abs\" input: \"x\" output: \"y\" } output " ANY("y"),
            "is not computed before it");
    refuses(OPSET(13),
            "node { op_type: \"Abs\" input: \"x\" output: \"x\" } input " ANY("x") "output " ANY(
                "x"),
            "two values have the name x");
    refuses(OPSET(13), "input " ANY("x") "output " ANY("y"), "an output is not computed: y");
    refuses(OPSET(13),
            "initializer { name: \"w\" dims: 2 data_type: 1 float_data: 1 } output " ANY("w"),
            "the number of values is not that of its sizes");
    refuses(OPSET(13), "initializer { name: \"w\" dims: -1 data_type: 1 } output " ANY("w"),
            "a size is negative");
    refuses(OPSET(13),
            "initializer { name: \"w\" dims: [4294967296, 4294967296] data_type: 1 } output " ANY(
                "w"),
            "its sizes are too large");
    refuses(OPSET(13), "initializer { name: \"w\" dims: 1 data_type: 14 } output " ANY("w"),
            "type complex64 is not supported");
    refuses(
        "ir_version: 10 opset_import { version: 18 } opset_import { domain: \"my\" version: 1 } "
        "functions { name: \"F\" domain: \"my\" opset_import { domain: \"my\" version: 1 } input: "
        "\"v\" output: \"w\" node { op_type: \"F\" domain: \"my\" input: \"v\" output: \"w\" } } ",
        "node { op_type: \"F\" domain: \"my\" input: \"x\" output: \"y\" } input " ANY(
            "x") "output " ANY("y"),
        "a function that calls itself: F");
    CHECK(aril_program_load(NULL, (aril_load_opts){ 0 }) == NULL);
    CHECK(aril_program_load(temp_path("none.onnx"), (aril_load_opts){ 0 }) == NULL);
    aril_clear_error();
}

#define SPARSE(indices, dims)                                                                      \
    "sparse_initializer { values { name: \"w\" dims: 2 data_type: 1 float_data: [5, 7] } indices " \
    "{ " indices " } dims: [" dims                                                                 \
    "] } node { op_type: \"Identity\" input: \"w\" output: \"y\" } "                               \
    "output " ANY("y")

TEST(sparse_tensors)
{
    ARIL_SCOPE;
    CHECK(is(run(OPSET(13), SPARSE("dims: 2 data_type: 7 int64_data: [1, 5]", "2, 3"),
                 (aril_list){ 0 }),
             ARIL_SHAPE(2, 3), VALUES(0, 5, 0, 0, 0, 7)));
    CHECK(is(run(OPSET(13), SPARSE("dims: [2, 2] data_type: 7 int64_data: [0, 1, 1, 2]", "2, 3"),
                 (aril_list){ 0 }),
             ARIL_SHAPE(2, 3), VALUES(0, 5, 0, 0, 0, 7)));
    static const char *const outside[] = {
        SPARSE("dims: 2 data_type: 7 int64_data: [0, 6]", "2, 3"),
        SPARSE("dims: 2 data_type: 7 int64_data: [-1, 5]", "2, 3"),
        SPARSE("dims: [2, 2] data_type: 7 int64_data: [0, 5, 1, 0]", "2, 3"),
        SPARSE("dims: [2, 2] data_type: 7 int64_data: [0, -1, 1, 0]", "2, 3"),
        SPARSE("dims: [2, 2] data_type: 7 int64_data: [4611686018427387904, 0, 1, 1]", "4, 4"),
    };
    for (size_t i = 0; i < sizeof outside / sizeof *outside; i++)
        refuses(OPSET(13), outside[i], "tensor w at ");
    for (size_t i = 0; i < sizeof outside / sizeof *outside; i++)
        refuses(OPSET(13), outside[i], "an index is outside of its sizes");
    static const char *const wrong[] = {
        SPARSE("dims: [2, 1] data_type: 7 int64_data: [0, 1]", "2, 3"),
        SPARSE("dims: [2, 3] data_type: 7 int64_data: [0, 1, 0, 1, 0, 0]", "2, 3"),
        SPARSE("dims: 1 data_type: 7 int64_data: 1", "2, 3"),
        SPARSE("dims: [2, 1, 1] data_type: 7 int64_data: [0, 1]", "2, 3"),
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        refuses(OPSET(13), wrong[i], "its indices do not fit its values and sizes");
    refuses(OPSET(13), SPARSE("dims: 2 data_type: 7 int64_data: [3, 3]", "2, 3"),
            "its indices are not in ascending order");
    refuses(OPSET(13), SPARSE("dims: 2 data_type: 1 float_data: [0, 1]", "2, 3"),
            "its indices are not of type int64");
    refuses(OPSET(13), SPARSE("dims: 2 data_type: 7 int64_data: [0, 1]", "-3"),
            "tensor w at byte ");
    refuses(OPSET(13), SPARSE("dims: 2 data_type: 7 int64_data: [0, 1]", "4611686018427387904, 4"),
            "its sizes are too large");
    refuses(OPSET(13), SPARSE("dims: 2 data_type: 7 int64_data: [0, 1]", "4000000000"),
            "it would take 16000000000 bytes for 2 values");
}

/* The axis that has no elements decides, before the others are copied. */
TEST(a_tile_without_elements)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_ones(ARIL_SHAPE(2, 3, 4), ARIL_F32, aril_cpu()), *y;
    aril_memory_reset_peak(aril_cpu());
    int64_t before = aril_memory(aril_cpu()).peak;
    y = aril_tile(x, ARIL_SHAPE(0, 1000, 100000));
    CHECK_MSG(aril_ndim(y) == 3 && aril_size(y, 0) == 0 && aril_size(y, 1) == 3000 &&
                  aril_size(y, 2) == 400000,
              "%s", aril_error());
    CHECK(aril_memory(aril_cpu()).peak - before < 1 << 20);
}

TEST(errors_of_a_run_name_the_node)
{
    ARIL_SCOPE;
    aril_program *p =
        load_text(OPSET(13), "node { name: \"product\" op_type: \"MatMul\" input: [\"x\", \"x\"] "
                             "output: \"y\" } input " ANY("x") "output " ANY("y"));
    aril_tensor *y;
    CHECK(p != NULL);
    CHECK(aril_program_run(p, ARIL_LIST(aril_ones(ARIL_SHAPE(2, 3), ARIL_F32, aril_cpu())), &y) <
          0);
    CHECK(strstr(aril_error(), "node product MatMul: matmul: ") != NULL);
    aril_clear_error();
    aril_program_free(p);
}

/* ---- external data ---- */

static void write_file(const char *path, const void *data, size_t n)
{
    FILE *f = fopen(path, "wb");
    CHECK(f != NULL);
    CHECK_INT((long long)fwrite(data, 1, n, f), (long long)n);
    fclose(f);
}

#define EXTERNAL(location, more)                                              \
    "initializer { name: \"w\" dims: 2 data_type: 1 data_location: EXTERNAL " \
    "external_data { key: \"location\" value: \"" location "\" } " more " } " \
    "node { op_type: \"Identity\" input: \"w\" output: \"y\" } output " ANY("y")

TEST(external_data)
{
    ARIL_SCOPE;
    const float data[] = { 9, 1, 2 };
    write_file(temp_path("weights.bin"), data, sizeof data);
    CHECK(is(run(OPSET(13),
                 EXTERNAL("weights.bin", "external_data { key: \"offset\" value: \"4\" } "
                                         "external_data { key: \"length\" value: \"8\" }"),
                 (aril_list){ 0 }),
             ARIL_SHAPE(2), VALUES(1, 2)));
    refuses(OPSET(13), EXTERNAL("weights.bin", "external_data { key: \"offset\" value: \"8\" }"),
            "not as long as its sizes say");
    refuses(OPSET(13), EXTERNAL("weights.bin", "external_data { key: \"length\" value: \"12\" }"),
            "not as long as its sizes say");
    refuses(OPSET(13), EXTERNAL("weights.bin", "external_data { key: \"offset\" value: \"-4\" }"),
            "is not a number");
    refuses(OPSET(13), EXTERNAL("../../../../../../../../etc/passwd", ""),
            "leaves the model's folder");
    refuses(OPSET(13), EXTERNAL("/etc/passwd", ""), "leaves the model's folder");
    refuses(OPSET(13), EXTERNAL("missing.bin", ""), "cannot find");
    CHECK_INT(symlink("/etc/passwd", temp_path("link.bin")), 0);
    refuses(OPSET(13), EXTERNAL("link.bin", ""), "leaves the model's folder");
}

/* ---- broken files ---- */

TEST(a_file_cut_at_every_byte)
{
    const char *path = save_model(
        OPSET(13) "graph { node { op_type: \"Add\" input: [\"x\", \"w\"] output: \"y\" } "
                  "initializer { name: \"w\" dims: 2 data_type: 1 float_data: [1, 2] } input " ANY(
                      "x") "output " ANY("y") " }");
    FILE *f = fopen(path, "rb");
    unsigned char data[1024];
    size_t n = f ? fread(data, 1, sizeof data, f) : 0;
    CHECK(n > 50 && n < sizeof data);
    fclose(f);
    for (size_t i = 0; i < n; i++) {
        ARIL_SCOPE;
        write_file(temp_path("cut.onnx"), data, i);
        aril_program *p = aril_program_load(temp_path("cut.onnx"), (aril_load_opts){ 0 });
        if (p) { /* the end of a message may be the end of the file */
            aril_tensor *y = NULL;
            if (aril_program_inputs(p) == 1 && aril_program_outputs(p) == 1)
                aril_program_run(p, ARIL_LIST(aril_ones(ARIL_SHAPE(2), ARIL_F32, aril_cpu())), &y);
        } else {
            CHECK(!aril_ok());
        }
        aril_program_free(p);
        aril_clear_error();
    }
}
