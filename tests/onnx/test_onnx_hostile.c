/* Models that say what cannot be: each is an error with a reason, none is taken for something else,
 * and none takes memory or time without bounds. */
#include "onnx/onnx_text.h"
#include "onnx/rules.h"

#include <stdio.h>

#define IO             "input " ANY("x") "output " ANY("y")
#define TEXT           "input " TYPED("x", 8) "output " ANY("y")
#define NODE(op, rest) "node { op_type: \"" op "\" input: \"x\" output: \"y\" " rest " } "
#define INT(name, v)   "attribute { name: \"" name "\" i: " #v " type: INT } "
#define WORD(name, v)  "attribute { name: \"" name "\" s: \"" v "\" type: STRING } "

static bool has(const char *text)
{
    bool found = strstr(aril_error(), text) != NULL;
    if (!found) test_fail(__FILE__, __LINE__, "\"%s\" does not contain \"%s\"", aril_error(), text);
    aril_clear_error();
    return found;
}

/* Loading fails for this reason. */
static void refuses(const char *graph, const char *why)
{
    aril_program *p = load_text(OPSET(18), graph);
    if (p) test_fail(__FILE__, __LINE__, "loaded; expected \"%s\"", why);
    if (!p) has(why);
    aril_program_free(p);
}

/* Running fails for this reason. */
static void fails(const char *head, const char *graph, aril_value *x, const char *why)
{
    ARIL_SCOPE;
    aril_program *p = load_text(head, graph);
    aril_value *y = NULL;
    CHECK(p != NULL);
    if (p && aril_program_run_values(p, ARIL_VALUES(x), &y) == ARIL_OK)
        test_fail(__FILE__, __LINE__, "runs; expected \"%s\"", why);
    has(why);
    aril_program_free(p);
}

static aril_value *ones(aril_shape shape)
{
    return aril_value_of(aril_ones(shape, ARIL_F32, aril_cpu()));
}

/* ---- nodes ---- */

TEST(attributes_of_the_wrong_kind)
{
    refuses(NODE("Softmax", "attribute { name: \"axis\" ints: 0 type: INTS } ") IO,
            "the attribute axis is integers, expected an integer");
    refuses(NODE("LeakyRelu", INT("alpha", 1)) IO, "alpha is an integer, expected a float");
    refuses(NODE("Softmax", "attribute { name: \"axis\" f: 1 type: INT } ") IO,
            "axis is of no clear type");
    refuses(NODE("Softmax", INT("axis", 1) INT("axis", 0)) IO, "axis is there twice");
    refuses(NODE("Softmax", INT("aixs", 1)) IO, "the operator has no attribute aixs");
    refuses(NODE("Concat", "") IO, "the attribute axis is missing");
    CHECK(load_text(OPSET(18), NODE("Softmax", "attribute { name: \"axis\" i: 0 } ") IO) != NULL);
}

TEST(words_that_an_attribute_does_not_know)
{
    refuses(NODE("Gelu", WORD("approximate", "erf")) IO, "Gelu");
    refuses(NODE("DepthToSpace", INT("blocksize", 2) WORD("mode", "CDR")) IO,
            "the attribute mode is \"CDR\", expected one of: DCR CRD");
    refuses(NODE("MaxPool", "attribute { name: \"kernel_shape\" ints: 2 type: INTS } " WORD(
                                "auto_pad", "SAME")) IO,
            "expected one of: NOTSET SAME_UPPER SAME_LOWER VALID");
}

TEST(inputs_that_are_missing_or_too_many)
{
    refuses("node { op_type: \"Add\" input: \"x\" output: \"y\" } " IO, "input 1 (B) is missing");
    refuses("node { op_type: \"Add\" input: [\"\", \"x\"] output: \"y\" } " IO,
            "input 0 (A) is missing");
    refuses("node { op_type: \"Exp\" input: [\"x\", \"x\"] output: \"y\" } " IO,
            "2 inputs, the operator has at most 1");
    refuses("node { op_type: \"If\" input: \"x\" output: \"y\" attribute { name: \"then_branch\" "
            "type: GRAPH g { node { op_type: \"Constant\" output: \"t\" attribute { name: "
            "\"value_int\" i: 1 type: INT } } output " ANY("t") "} } } " IO,
            "the attribute else_branch is missing");
    /* Inside a function, whose call leaves it out. */
    fails("ir_version: 10 opset_import { version: 20 } opset_import { domain: \"my\" version: 1 } "
          "functions { name: \"F\" domain: \"my\" opset_import { version: 20 } input: [\"a\", "
          "\"b\"] output: \"c\" node { op_type: \"ImageDecoder\" input: \"b\" output: \"c\" } } ",
          "node { op_type: \"F\" domain: \"my\" input: \"x\" output: \"y\" } " IO,
          ones(ARIL_SHAPE(2)), "input 0 is missing");
}

/* Every operator that can be loaded is declared: scripts/onnx-signatures. */
TEST(every_operator_has_a_declaration)
{
    for (int t = 0; aril__onnx_rules(t); t++)
        for (const onnx_rule *r = aril__onnx_rules(t); r->name; r++)
            if (!aril__onnx_has_signature(r->domain, r->name, 1000))
                test_fail(__FILE__, __LINE__, "%s of '%s' has none", r->name, r->domain);
}

TEST(attributes_that_contradict_the_weights)
{
    fails(OPSET(18),
          "node { op_type: \"Conv\" input: [\"x\", \"w\"] output: \"y\" attribute { name: "
          "\"kernel_shape\" ints: [5, 5] type: INTS } } initializer { name: \"w\" dims: [1, 1, 1, "
          "1] data_type: 1 float_data: 1 } " IO,
          ones(ARIL_SHAPE(1, 1, 6, 6)), "kernel_shape says 5, but the weights have size 1");
    fails(OPSET(18),
          "node { op_type: \"RNN\" input: [\"x\", \"w\", \"w\"] output: \"y\" " INT(
              "hidden_size", 7) "} initializer { name: \"w\" dims: [1, 1, 1] data_type: 1 "
                                "float_data: 1 } " IO,
          ones(ARIL_SHAPE(1, 1, 1)), "hidden_size is 7, but the weights are for 1");
}

TEST(a_negative_image_of_a_region)
{
    fails(OPSET(18),
          "node { op_type: \"RoiAlign\" input: [\"x\", \"r\", \"b\"] output: \"y\" } initializer { "
          "name: \"r\" dims: [1, 4] data_type: 1 float_data: [0, 0, 1, 1] } initializer { name: "
          "\"b\" dims: 1 data_type: 7 int64_data: -1 } " IO,
          ones(ARIL_SHAPE(2, 1, 3, 3)), "out of range");
}

/* ---- sparse tensors ---- */

/* A sparse initializer [2,3] with one or two values at these indices. */
static void refuses_sparse(const char *dims, const char *indices, const char *why)
{
    char graph[800];
    snprintf(graph, sizeof graph,
             "node { op_type: \"Add\" input: [\"x\", \"w\"] output: \"y\" } sparse_initializer { "
             "%s values { name: \"w\" dims: 2 data_type: 1 float_data: [1, 2] } indices { %s } } "
             "input " ANY("x") "output " ANY("y"),
             dims, indices);
    refuses(graph, why);
}

TEST(sparse_tensors_with_bad_sizes_or_indices)
{
    static const char good[] = "dims: 2 data_type: 7 int64_data: [0, 5]", sizes[] = "dims: [2, 3]";
    refuses_sparse("dims: -3", good, "tensor w at");
    refuses_sparse("dims: [4611686018427387904, 4]", good, "sizes are too large");
    refuses_sparse(sizes, "dims: 2 data_type: 7 int64_data: [0, 6]", "outside its sizes");
    refuses_sparse(sizes, "dims: 2 data_type: 7 int64_data: [-1, 5]", "outside its sizes");
    refuses_sparse(sizes, "dims: 2 data_type: 7 int64_data: [5, 0]", "do not ascend");
    refuses_sparse(sizes, "dims: 2 data_type: 7 int64_data: [5, 5]", "do not ascend");
    refuses_sparse(sizes, "dims: 2 data_type: 1 float_data: [0, 5]", "must be int64");
    refuses_sparse(sizes, "dims: 1 data_type: 7 int64_data: 0", "do not fit");
    refuses_sparse(sizes, "dims: [2, 2] data_type: 7 int64_data: [0, 0, 0, 5]", "outside");
    refuses_sparse(sizes, "dims: [2, 1] data_type: 7 int64_data: [0, 1]", "do not fit");
}

/* ---- the file ---- */

TEST(versions_that_cannot_be_read)
{
    static const char *const heads[][2] = {
        { "ir_version: 15 opset_import { version: 18 } ", "IR version 15" },
        { "opset_import { version: 18 } ", "IR version 0" },
        { "ir_version: 8 opset_import { version: -1 } ", "no version -1 of the operators" },
        { "ir_version: 8 opset_import { version: 18 } opset_import { version: 13 } ",
          "imported in two versions" },
    };
    for (int i = 0; i < 4; i++) {
        CHECK(load_text(heads[i][0], NODE("Relu", "") IO) == NULL);
        has(heads[i][1]);
    }
}

TEST(an_empty_file_is_no_model)
{
    const char *path = temp_path("empty.onnx");
    FILE *f = fopen(path, "w"), *to = tmpfile();
    if (f) fclose(f);
    CHECK(aril_program_load(path, (aril_load_opts){ 0 }) == NULL);
    has("has no graph");
    CHECK(to && aril_describe_file(path, to) < 0);
    has("has no graph");
    CHECK_INT(ftell(to), 0);
    fclose(to);
}

/* Thousands of functions, each called once, are found without a search through all. */
TEST(a_file_of_many_functions)
{
    enum { MANY = 5000, EACH = 220 };
    char *text = malloc(MANY * EACH + 1000), *to = text;
    to += sprintf(to, "ir_version: 10 opset_import { version: 18 } opset_import { domain: \"my\" "
                      "version: 1 } ");
    for (int i = 0; i < MANY; i++)
        to += sprintf(to,
                      "functions { name: \"F%d\" domain: \"my\" opset_import { version: 18 } "
                      "input: \"a\" output: \"b\" node { op_type: \"Neg\" input: \"a\" output: "
                      "\"b\" } } ",
                      i);
    char *graph = malloc(MANY * 100 + 1000), *g = graph;
    for (int i = 0; i < MANY; i++)
        g += sprintf(g, "node { op_type: \"F%d\" domain: \"my\" input: \"v%d\" output: \"v%d\" } ",
                     i, i, i + 1);
    sprintf(g, "input " ANY("v0") "output " ANY("v%d"), MANY);
    aril_program *p = load_text(text, graph);
    CHECK(p != NULL);
    aril_program_free(p);
    free(text);
    free(graph);
}

/* ---- time and memory ---- */

TEST(a_normalization_over_more_channels_than_there_are)
{
    ARIL_SCOPE;
    static const char *const sizes[] = { "4", "4094", "1099511627776", "1099511627777" };
    aril_tensor *x = aril_full(ARIL_SHAPE(1, 2, 1, 1), 2.0, ARIL_F32, aril_cpu()), *y = NULL;
    for (int i = 0; i < 4; i++) {
        char graph[400];
        snprintf(graph, sizeof graph,
                 "node { op_type: \"LRN\" input: \"x\" output: \"y\" attribute { name: \"size\" i: "
                 "%s type: INT } attribute { name: \"alpha\" f: %s.0 type: FLOAT } attribute { "
                 "name: \"beta\" f: 1 type: FLOAT } } " IO,
                 sizes[i], sizes[i]);
        aril_program *p = load_text(OPSET(18), graph);
        CHECK(p && aril_program_run(p, ARIL_LIST(x), &y) == ARIL_OK);
        CHECK_NEAR(aril_item(aril_select(y, 1, 0)), 2.0 / (1 + 8), 1e-4); /* 1 + 4 + 4 */
        aril_program_free(p);
    }
    refuses(NODE("LRN", "") IO, "the attribute size is missing");
    fails(OPSET(18), NODE("LRN", INT("size", 0)) IO, ones(ARIL_SHAPE(1, 1)), "must be positive");
}

TEST(patterns_beyond_reason)
{
    ARIL_SCOPE;
    aril_value *x = aril_value_text(ARIL_SHAPE(1), (const char *const[]){ "aa" });
    char *deep = malloc(40000), graph[400];
    memset(deep, '(', 20000);
    deep[20000] = 0;
    char *text = malloc(41000);
    sprintf(text, NODE("RegexFullMatch", WORD("pattern", "%s")) TEXT, deep);
    fails(OPSET(20), text, x, "the pattern is too large");
    static const char *const patterns[] = { "((((a{1,255}){1,255}){1,255}){1,255})", "(a+)\\\\1",
                                            "((((((((((((((((a+)+)+)+)+)+)+)+)+)+)+)+)+)+)+)+)+" };
    for (int i = 0; i < 3; i++) {
        snprintf(graph, sizeof graph, NODE("RegexFullMatch", WORD("pattern", "%s")) TEXT,
                 patterns[i]);
        fails(OPSET(20), graph, x, "the pattern is too large");
    }
    free(deep);
    free(text);
}

/* n trips that add 1 to x: its last value, and the largest element after each. */
static const char count_up[] =
    "node { op_type: \"Loop\" input: [\"n\", \"\", \"x\"] output: [\"last\", \"all\"] "
    "attribute { name: \"body\" type: GRAPH g { "
    "node { op_type: \"Identity\" input: \"c\" output: \"d\" } "
    "node { op_type: \"Add\" input: [\"v\", \"one\"] output: \"w\" } "
    "node { op_type: \"ReduceMax\" input: \"w\" output: \"m\" attribute { name: \"keepdims\" "
    "i: 0 type: INT } } "
    "initializer { name: \"one\" data_type: 1 float_data: 1 } "
    "input { name: \"i\" } input { name: \"c\" } input { name: \"v\" } "
    "output { name: \"d\" } output { name: \"w\" } output { name: \"m\" } } } } "
    "input { name: \"n\" type { tensor_type { elem_type: 7 } } } "
    "input { name: \"x\" type { tensor_type { elem_type: 1 } } } "
    "output { name: \"last\" type { tensor_type { elem_type: 1 } } } "
    "output { name: \"all\" type { tensor_type { elem_type: 1 } } } ";

/* A loop keeps the values of its last trip, and packs small results of all. */
TEST(a_long_loop_takes_little_memory)
{
    ARIL_SCOPE;
    enum { TRIPS = 5000 };
    aril_program *p = load_text(OPSET(18), count_up);
    aril_tensor *n = aril_full(ARIL_SHAPE(), TRIPS, ARIL_I64, aril_cpu()), *out[2];
    aril_tensor *x = aril_zeros(ARIL_SHAPE(1000), ARIL_F32, aril_cpu());
    aril_memory_set_limit(aril_cpu(), aril_memory(aril_cpu()).live + (4 << 20));
    CHECK(p && aril_program_run(p, ARIL_LIST(n, x), out) == ARIL_OK);
    aril_memory_set_limit(aril_cpu(), 0);
    if (aril_ok()) {
        CHECK_NEAR(aril_item(aril_select(out[0], 0, 0)), TRIPS, 0);
        CHECK_INT(aril_size(out[1], 0), TRIPS);
        CHECK_NEAR(aril_item(aril_sum(out[1], ARIL_ALL)), (double)TRIPS * (TRIPS + 1) / 2, 1000);
    }
    aril_program_free(p);
}

/* A trace that cannot hold so many inputs is an error. */
static void cat_many(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    enum { MANY = 70000 };
    (void)ctx;
    aril_tensor **all = malloc(MANY * sizeof *all);
    for (int i = 0; i < MANY; i++) all[i] = in[0];
    out[0] = aril_cat((aril_list){ MANY, all }, 0);
    free(all);
}

TEST(more_inputs_than_a_node_can_have)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_ones(ARIL_SHAPE(1), ARIL_F32, aril_cpu()), *y;
    aril_program *p = aril_jit(cat_many, NULL, (aril_jit_opts){ 0 });
    CHECK(aril_program_run(p, ARIL_LIST(x), &y) < 0);
    has("cat: 70000 inputs, at most 65535 can be traced");
    aril_program_free(p);
    cat_many(NULL, &x, &y);
    CHECK_INT(aril_size(y, 0), 70000);
    x = aril_ones(ARIL_SHAPE(1), ARIL_F32, aril_cpu());
    aril_set_requires_grad(x, true);
    cat_many(NULL, &x, &y);
    has("cat: 70000 inputs, at most 65535 can be differentiated");
}

/* ---- trees ---- */

#define LIST(name, kind, field, ...) \
    "attribute { name: \"" name "\" type: " kind " " field ": [" #__VA_ARGS__ "] } "
#define NUMBERS(name, ...) LIST(name, "INTS", "ints", __VA_ARGS__)
#define REALS(name, ...)   LIST(name, "FLOATS", "floats", __VA_ARGS__)

/* Three nodes; the children of node 0, and base values. */
static void refuses_tree(const char *children, const char *why)
{
    char graph[1600];
    snprintf(graph, sizeof graph,
             "node { op_type: \"TreeEnsembleRegressor\" domain: \"ai.onnx.ml\" input: \"x\" "
             "output: \"y\" %s" INT("n_targets", 1) NUMBERS("nodes_treeids", 0, 0, 0)
                 NUMBERS("nodes_nodeids", 0, 1, 2) NUMBERS("nodes_featureids", 0, 0, 0)
                     REALS("nodes_values", 0, 0,
                           0) "attribute { name: \"nodes_modes\" type: "
                              "STRINGS strings: [\"BRANCH_LEQ\", \"LEAF\", \"LEAF\"] } " NUMBERS(
                                  "target_treeids", 0, 0) NUMBERS("target_nodeids", 1, 2)
                                  NUMBERS("target_ids", 0, 0) REALS("target_weights", 1, 2) "} " IO,
             children);
    fails("ir_version: 8 opset_import { version: 18 } opset_import { domain: \"ai.onnx.ml\" "
          "version: 3 } ",
          graph, ones(ARIL_SHAPE(1, 1)), why);
}

TEST(trees_that_are_none)
{
    refuses_tree(NUMBERS("nodes_truenodeids", 0, 0, 0) NUMBERS("nodes_falsenodeids", 1, 0, 0),
                 "has a cycle, at node");
    refuses_tree(NUMBERS("nodes_truenodeids", 1, 0, 0) NUMBERS("nodes_falsenodeids", 1, 0, 0),
                 "has several roots");
    refuses_tree(NUMBERS("nodes_truenodeids", 1, 0, 0) NUMBERS("nodes_falsenodeids", 2, 0, 0)
                     REALS("base_values", 1, 2, 3),
                 "3 base values for 1 targets");
}
