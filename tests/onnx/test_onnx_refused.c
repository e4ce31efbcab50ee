/* Models whose nodes contradict themselves or their inputs are refused when they are loaded or run,
 * with a message that says why. */
#include "onnx/onnx_text.h"

#include <stdio.h>
#include <unistd.h>

/* A graph with the input x, an initializer w of ones with the sizes `dims`, and the output y. */
static aril_program *load(const char *head, const char *dims, int n, const char *nodes)
{
    char graph[6000], ones[400] = "";
    for (int i = 0; i < n; i++) strcat(ones, i ? ", 1" : "1");
    snprintf(graph, sizeof graph,
             "%s input %s output %s initializer { name: \"w\" dims: [%s] data_type: 1 float_data: "
             "[%s] }",
             nodes, ANY("x"), ANY("y"), dims, ones);
    return load_text(head, graph);
}

static void fails(aril_program *p, aril_tensor *x, const char *text)
{
    aril_tensor *y;
    if (p && aril_program_run(p, ARIL_LIST(x), &y) == ARIL_OK)
        test_fail(__FILE__, __LINE__, "computed; expected \"%s\"", text);
    else if (!strstr(aril_error(), text))
        test_fail(__FILE__, __LINE__, "\"%s\" does not contain \"%s\"", aril_error(), text);
    aril_clear_error();
    aril_program_free(p);
}

static aril_tensor *ones(aril_shape shape)
{
    return aril_ones(shape, ARIL_F32, aril_cpu());
}

#define INTS(name, values) "attribute { name: \"" name "\" ints: [" values "] type: INTS } "
#define INT(name, value)   "attribute { name: \"" name "\" i: " value " type: INT } "

TEST(kernel_shape_of_other_weights)
{
    ARIL_SCOPE;
    aril_tensor *x = ones(ARIL_SHAPE(1, 1, 6, 6));
#define NODE(op, more) "node { op_type: \"" op "\" input: [\"x\", \"w\"] output: \"y\" " more "} "
    fails(load(OPSET(13), "1, 1, 3, 3", 9, NODE("Conv", INTS("kernel_shape", "5, 5"))), x,
          "node Conv: kernel_shape says 5, the weights have 3");
    fails(load(OPSET(13), "1, 1, 3, 3", 9, NODE("ConvTranspose", INTS("kernel_shape", "3, 2"))), x,
          "node ConvTranspose: kernel_shape says 2, the weights have 3");
    fails(load(OPSET(22), "1, 1, 3, 3", 9,
               "node { op_type: \"Constant\" output: \"shape\" attribute { name: \"value_ints\" "
               "ints: [1, 18, 4, 4] type: INTS } } node { op_type: \"Expand\" input: [\"one\", "
               "\"shape\"] output: \"offset\" } node { op_type: \"DeformConv\" input: [\"x\", "
               "\"w\", \"offset\"] output: \"y\" " INTS(
                   "kernel_shape", "5, 5") "} initializer { name: "
                                           "\"one\" data_type: 1 float_data: 1 } "),
          x, "node DeformConv: kernel_shape is not that of the weights");
}

TEST(recurrent_layers_of_another_size)
{
    ARIL_SCOPE;
    aril_tensor *x = ones(ARIL_SHAPE(2, 1, 1));
#define RNN(more)                                                                             \
    "initializer { name: \"r\" dims: [1, 1, 1] data_type: 1 float_data: 1 } node { op_type: " \
    "\"RNN\" input: [\"x\", \"w\", \"r\"] output: \"y\" " more "} "
    fails(load(OPSET(14), "1, 1, 1", 1, RNN(INT("hidden_size", "77"))), x,
          "node RNN: hidden_size is 77, the weights are for 1");
    fails(load(OPSET(14), "1, 1, 1", 1, RNN(INT("hidden_size", "1") INT("layout", "9"))), x,
          "node RNN: layout 9, expected 0 or 1");
}

TEST(regions_of_an_image_before_the_first)
{
    ARIL_SCOPE;
    aril_tensor *x = ones(ARIL_SHAPE(1, 1, 4, 4));
#define REGIONS(number)                                                                        \
    "initializer { name: \"b\" dims: 1 data_type: 7 int64_data: " number " } node { op_type: " \
    "\"RoiAlign\" input: [\"x\", \"w\", \"b\"] output: \"y\" } "
    fails(load(OPSET(16), "1, 4", 4, REGIONS("-1")), x, "node RoiAlign: image -1 of region 0");
    /* Computed in the run, where a trace does not know it. */
    fails(load(OPSET(16), "1, 4", 4,
               "node { op_type: \"ReduceSum\" input: \"x\" output: \"s\" " INT(
                   "keepdims",
                   "0") "} "
                        "node { op_type: \"Neg\" input: \"s\" output: \"n\" } node { op_type: "
                        "\"Cast\" input: "
                        "\"n\" output: \"i\" " INT(
                            "to", "7") "} initializer { name: \"one\" dims: 1 data_type: "
                                       "7 int64_data: 1 } node { op_type: \"Reshape\" input: "
                                       "[\"i\", \"one\"] output: \"b\" } "
                                       "node { op_type: \"RoiAlign\" input: [\"x\", \"w\", \"b\"] "
                                       "output: \"y\" " INT("sampling_ratio", "1") "} "),
          x, "");
}

TEST(blocks_that_do_not_divide_the_image)
{
    ARIL_SCOPE;
    aril_tensor *x = ones(ARIL_SHAPE(1, 4, 2, 2));
#define BLOCKS(op, size) \
    "node { op_type: \"" op "\" input: \"x\" output: \"y\" " INT("blocksize", size) "} "
    /* The square of 4294967296 is 0 in 64 bits. */
    static const char *const large[] = { "4294967296", "4611686018427387904", "3037000500", "0",
                                         "-2" };
    for (size_t i = 0; i < sizeof large / sizeof *large; i++) {
        char nodes[200], text[80];
        snprintf(text, sizeof text, "blocksize %s, expected 1 to 2147483647", large[i]);
        snprintf(nodes, sizeof nodes, BLOCKS("DepthToSpace", "%s"), large[i]);
        fails(load(OPSET(13), "1", 1, nodes), x, text);
        snprintf(nodes, sizeof nodes, BLOCKS("SpaceToDepth", "%s"), large[i]);
        fails(load(OPSET(13), "1", 1, nodes), x, text);
    }
    fails(load(OPSET(13), "1", 1, BLOCKS("DepthToSpace", "3")), x,
          "node DepthToSpace: the square of blocksize 3 does not divide the number of channels, 4");
    fails(load(OPSET(13), "1", 1, BLOCKS("SpaceToDepth", "3")), x,
          "node SpaceToDepth: blocksize 3 does not divide size 2 of dimension 2");
}

TEST(products_of_attributes_that_overflow)
{
    ARIL_SCOPE;
    aril_tensor *x = ones(ARIL_SHAPE(1, 4, 2, 2)), *row = ones(ARIL_SHAPE(1, 4));
#define POSITIONS                                                                      \
    "initializer { name: \"i\" dims: [1, 4, 2, 2] data_type: 7 int64_data: [0, 0, 0, " \
    "0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0] } "
    fails(load(OPSET(13), "1", 1,
               POSITIONS "node { op_type: \"MaxUnpool\" input: [\"x\", \"i\"] output: \"y\" " INTS(
                   "kernel_shape", "2, 2") INTS("strides", "9223372036854775807, 2") "} "),
          x, "node MaxUnpool: strides has 9223372036854775807, expected at most 2147483647");
    fails(load(OPSET(13), "1", 1,
               POSITIONS "initializer { name: \"s\" dims: 4 data_type: 7 int64_data: [1, 4, "
                         "4294967296, 4294967296] } node { op_type: \"MaxUnpool\" input: [\"x\", "
                         "\"i\", \"s\"] output: \"y\" " INTS("kernel_shape", "2, 2") "} "),
          x, "node MaxUnpool: output_shape: too many elements");
    fails(
        load(OPSET(18), "1", 1,
             "initializer { name: \"n\" dims: 2 data_type: 7 int64_data: [4294967296, "
             "4294967296] } initializer { name: \"b\" dims: 2 data_type: 7 int64_data: [1, 1] } "
             "node { op_type: \"Squeeze\" input: \"x\" output: \"v\" } node { op_type: \"Col2Im\" "
             "input: [\"v\", \"n\", \"b\"] output: \"y\" } "),
        x, "node Col2Im: the blocks do not fit the image");
    fails(load("ir_version: 8 opset_import { version: 18 } opset_import { domain: \"ai.onnx.ml\" "
               "version: 3 } ",
               "1", 1,
               "node { op_type: \"LinearRegressor\" domain: \"ai.onnx.ml\" input: \"x\" output: "
               "\"y\" " INT("targets", "4611686018427387904") "attribute { name: \"coefficients\" "
                                                              "type: FLOATS } } "),
          row, "node LinearRegressor: 0 coefficients");
}

/* The number of strings was not compared with the sizes, and what is beyond them was read. */
TEST(strings_in_a_shape_of_another_size)
{
    static const char *const shapes[] = { "2, 2", "-1, 2", "-1, -1", "4294967296, 4294967296",
                                          "0, -1" };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        char graph[1000];
        snprintf(graph, sizeof graph,
                 "initializer { name: \"t\" dims: 3 data_type: 8 string_data: [\"a\", \"b\", "
                 "\"c\"] } initializer { name: \"s\" dims: 2 data_type: 7 int64_data: [%s] } "
                 "node { op_type: \"Reshape\" input: [\"t\", \"s\"] output: \"r\" attribute { "
                 "name: \"allowzero\" i: 1 type: INT } } node { op_type: \"StringConcat\" input: "
                 "[\"r\", \"r\"] output: \"y\" } output { name: \"y\" type { tensor_type { "
                 "elem_type: 8 } } } ",
                 shapes[i]);
        aril_program *p = load_text(OPSET(20), graph);
        aril_value *y;
        CHECK_MSG(p, "%s", aril_error());
        CHECK_INT(aril_program_run_values(p, (aril_values){ 0 }, &y), ARIL_ERR_SHAPE);
        CHECK_MSG(strstr(aril_error(), "node Reshape: 3 strings cannot have the sizes"), "%s",
                  aril_error());
        aril_clear_error();
        aril_program_free(p);
    }
    /* No strings, and more rows than memory has bytes. */
    aril_program *p = load_text(
        OPSET(13),
        "initializer { name: \"t\" dims: [4611686018427387904, 0] data_type: 8 } node { "
        "op_type: \"TfIdfVectorizer\" input: \"t\" output: \"y\" " INT("min_gram_length", "1")
            INT("max_gram_length", "1") INT("max_skip_count", "0") INTS("ngram_counts", "0")
                INTS("ngram_indexes", "3") "attribute { name: \"mode\" s: \"IDF\" type: STRING } "
                                           "attribute { name: \"pool_strings\" strings: [\"a\"] "
                                           "type: STRINGS } } output " ANY("y"));
    aril_tensor *y;
    CHECK(!p || aril_program_run(p, (aril_list){ 0 }, &y) < 0);
    CHECK(!aril_ok());
    aril_clear_error();
    aril_program_free(p);
}

TEST(bits_of_blocks)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_zeros(ARIL_SHAPE(1), ARIL_I64, aril_cpu());
    static const char *const bits[] = { "0", "1", "-1", "3", "64" };
    for (size_t i = 0; i < sizeof bits / sizeof *bits; i++) {
        char graph[1000];
        snprintf(
            graph, sizeof graph,
            "initializer { name: \"t\" dims: [1, 2] data_type: 2 int32_data: [1, 2] } "
            "initializer { name: \"s\" dims: [1, 1] data_type: 1 float_data: 1 } node { "
            "op_type: \"GatherBlockQuantized\" domain: \"com.microsoft\" input: [\"t\", \"x\", "
            "\"s\"] output: \"y\" " INT("bits", "%s") "} input " TYPED("x", 7) "output " ANY("y"),
            bits[i]);
        fails(load_text("ir_version: 8 opset_import { version: 18 } opset_import { domain: "
                        "\"com.microsoft\" version: 1 } ",
                        graph),
              x, "node GatherBlockQuantized: bits ");
    }
}

/* ---- batches of indices ---- */

TEST(batches_beyond_the_indices)
{
    ARIL_SCOPE;
    aril_tensor *x = ones(ARIL_SHAPE(2, 2, 2));
    static const char *const wrong[] = { "2", "3", "-1", "4294967296", "4294967297" };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char nodes[400], text[80];
        snprintf(nodes, sizeof nodes,
                 "initializer { name: \"i\" dims: [2, 1] data_type: 7 int64_data: [0, 1] } node { "
                 "op_type: \"GatherND\" input: [\"x\", \"i\"] output: \"y\" " INT("batch_dims",
                                                                                  "%s") "} ",
                 wrong[i]);
        snprintf(text, sizeof text, "node GatherND: batch_dims is %s for data with 3 dimensions",
                 wrong[i]);
        fails(load(OPSET(13), "1", 1, nodes), x, text);
    }
}

/* ---- numbers of inputs ---- */

TEST(too_few_or_too_many_inputs)
{
    ARIL_SCOPE;
    aril_tensor *x = ones(ARIL_SHAPE(2)), *y;
    const aril_list lists[] = { { 0 }, ARIL_LIST(x, x) };
    for (int i = 0; i < 2; i++) {
        char text[80];
        snprintf(text, sizeof text, "model.onnx: got %d inputs, expected 1", lists[i].n);
        aril_program *p =
            load(OPSET(13), "1", 1, "node { op_type: \"Neg\" input: \"x\" output: \"y\" } ");
        CHECK_MSG(p, "%s", aril_error());
        CHECK_INT(aril_program_run(p, lists[i], &y), ARIL_ERR_ARG);
        CHECK_MSG(strstr(aril_error(), text), "%s", aril_error());
        aril_clear_error();
        CHECK_INT(aril_program_export(p, lists[i], temp_path("copy.onnx"), (aril_export_opts){ 0 }),
                  ARIL_ERR_ARG);
        CHECK_MSG(strstr(aril_error(), text), "%s", aril_error());
        aril_clear_error();
        CHECK(access(temp_path("copy.onnx"), F_OK) != 0);
        aril_program_free(p);
    }
}

/* ---- trees ---- */

#define TREES                                                                                      \
    "ir_version: 8 opset_import { version: 18 } opset_import { domain: \"ai.onnx.ml\" version: 3 " \
    "} "
#define TREE(modes, yes, no, more)                                                               \
    "node { op_type: \"TreeEnsembleRegressor\" domain: \"ai.onnx.ml\" input: \"x\" output: "     \
    "\"y\" " INTS("nodes_treeids", "0, 0, 0") INTS("nodes_nodeids", "0, 1, 2")                   \
        INTS("nodes_featureids", "0, 0, 0") INTS("nodes_truenodeids", yes)                       \
            INTS("nodes_falsenodeids",                                                           \
                 no) "attribute { name: \"nodes_modes\" strings: [" modes                        \
                     "] type: STRINGS } attribute { name: \"nodes_values\" floats: [0.5, 0.5, "  \
                     "0.5] type: FLOATS } " INTS("target_ids", "0, 0")                           \
                         INTS("target_nodeids", "1, 2")                                          \
                             INTS("target_treeids",                                              \
                                  "0, 0") "attribute { name: \"target_weights\" floats: [3, 4] " \
                                          "type: FLOATS } " INT("n_targets", "1") more "} "
#define LEQ "\"BRANCH_LEQ\""
#define END "\"LEAF\""

TEST(trees_with_cycles_and_several_roots)
{
    ARIL_SCOPE;
    aril_tensor *x = ones(ARIL_SHAPE(1, 1)), *y;
    aril_program *p = load(TREES, "1", 1, TREE(LEQ ", " END ", " END, "1, 0, 0", "2, 0, 0", ""));
    CHECK_MSG(p && aril_program_run(p, ARIL_LIST(x), &y) == ARIL_OK, "%s", aril_error());
    CHECK_INT((int64_t)aril_item(y), 4);
    aril_program_free(p);
    fails(load(TREES, "1", 1, TREE(LEQ ", " END ", " END, "0, 0, 0", "2, 0, 0", "")), x,
          "node TreeEnsembleRegressor: a tree has a cycle");
    fails(load(TREES, "1", 1, TREE(LEQ ", " LEQ ", " END, "1, 0, 0", "2, 0, 0", "")), x,
          "a tree has a cycle");
    fails(load(TREES, "1", 1, TREE(LEQ ", " END ", " END, "2, 0, 0", "2, 0, 0", "")), x,
          "tree 0 has more than one root");
    fails(load(TREES, "1", 1,
               TREE(LEQ ", " END ", " END, "1, 0, 0", "2, 0, 0",
                    "attribute { name: \"base_values\" floats: [1, 2, 3] type: FLOATS } ")),
          x, "3 base_values for 1 targets");
}

/* ---- control flow ---- */

#define CHOICE(branch)                                                                             \
    "initializer { name: \"c\" data_type: 9 int32_data: 1 } node { op_type: \"If\" input: \"c\" "  \
    "output: \"y\" attribute { name: \"then_branch\" type: GRAPH g { node { op_type: \"Neg\" "     \
    "input: \"x\" output: \"t\" } output " ANY("t") "} } attribute { name: \"else_branch\" type: " \
                                                    "GRAPH g { " branch " } } } "

TEST(branches_that_do_not_fit)
{
    ARIL_SCOPE;
    aril_tensor *x = ones(ARIL_SHAPE(2));
    fails(load(OPSET(13), "1", 1,
               CHOICE("node { op_type: \"Neg\" input: \"i\" output: \"e\" } input " ANY(
                   "i") "output " ANY("e"))),
          x, "node If: else_branch has inputs");
    fails(load(OPSET(13), "1", 1,
               CHOICE(
                   "node { op_type: \"Neg\" input: \"x\" output: \"e\" } node { op_type: \"Abs\" "
                   "input: \"x\" output: \"f\" } output " ANY("e") "output " ANY("f"))),
          x, "node If: else_branch has 2 outputs, the node 1");
    fails(load(OPSET(13), "1", 1,
               "node { op_type: \"Scan\" input: \"x\" output: \"y\" " INT("num_scan_inputs", "1")
                   INTS("scan_input_directions",
                        "7") "attribute { name: \"body\" type: GRAPH g { node { "
                             "op_type: \"Neg\" input: \"i\" output: \"o\" } input " ANY(
                                 "i") "output " ANY("o") "} } } "),
          x, "node Scan: scan_input_directions has a 7");
}

/* ---- errors of compiled runs ---- */

TEST(errors_of_a_compiled_run_name_the_node)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_from((int32_t[]){ 4, 6 }, ARIL_SHAPE(2), ARIL_I32, aril_cpu()),
                *zero = aril_from((int32_t[]){ 1, 0 }, ARIL_SHAPE(2), ARIL_I32, aril_cpu()), *y;
    aril_program *p =
        load_text(OPSET(13),
                  "node { name: \"quotient\" op_type: \"Div\" input: [\"x\", \"z\"] output: \"y\" "
                  "} input " TYPED("x", 6) "input " TYPED("z", 6) "output " TYPED("y", 6));
    CHECK(p != NULL);
    CHECK_INT(aril_program_run(p, ARIL_LIST(x, x), &y), ARIL_OK);
    CHECK_INT(aril_program_run(p, ARIL_LIST(x, zero), &y), ARIL_ERR_NUMBER);
    CHECK_MSG(strstr(aril_error(), "model.onnx: node quotient Div: "), "%s", aril_error());
    CHECK_MSG(strstr(aril_error(), "integer division by zero"), "%s", aril_error());
    aril_clear_error();
    aril_program_free(p);
}

/* ---- the file ---- */

#define NEG "node { op_type: \"Neg\" input: \"x\" output: \"y\" } "

TEST(versions_that_do_not_exist)
{
    ARIL_SCOPE;
    static const char *const none[] = { "0", "-1", "2", "15", "9223372036854775807" };
    char head[200], text[200];
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        snprintf(head, sizeof head, "ir_version: %s opset_import { version: 13 } ", none[i]);
        snprintf(text, sizeof text, "(ir_version) is %s, expected 3 to 14", none[i]);
        fails(load(head, "1", 1, NEG), NULL, text);
    }
    fails(load("ir_version: 8 opset_import { version: 0 } ", "1", 1, NEG), NULL,
          "there is no operator set 0 of the domain ai.onnx");
    fails(load("ir_version: 8 opset_import { version: -1 } ", "1", 1, NEG), NULL,
          "there is no operator set -1 of the domain ai.onnx");
    fails(load("ir_version: 8 opset_import { version: 13 } opset_import { domain: \"ai.onnx\" "
               "version: 14 } ",
               "1", 1, NEG),
          NULL, "two versions are imported of the domain ai.onnx");
    /* The same version twice, as skl2onnx writes it. */
    aril_program *p =
        load("ir_version: 8 opset_import { version: 13 } opset_import { version: 13 } ", "1", 1,
             NEG);
    CHECK_MSG(p != NULL, "%s", aril_error());
    aril_program_free(p);
}

TEST(a_device_that_does_not_exist)
{
    char graph[300];
    snprintf(graph, sizeof graph, OPSET(13) "graph { " NEG "input %s output %s }", ANY("x"),
             ANY("y"));
    aril_load_opts o = { .device = { 99, 0 } };
    CHECK(aril_program_load(save_model(graph), o) == NULL);
    CHECK(!aril_ok());
    aril_clear_error();
}
