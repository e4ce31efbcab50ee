/* Drawings of models by the names in their files, and what nodes cost that are interpreted. */
#include "onnx/onnx_text.h"

#include "support/compare.h"

#include <stdio.h>

static char text[1 << 16];

static bool has(const char *part)
{
    if (strstr(text, part)) return true;
    test_fail(__FILE__, __LINE__, "\"%s\" is not in:\n%.2000s", part, text);
    return false;
}

static void read_text(const char *path)
{
    FILE *f = fopen(path, "r");
    size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    text[n] = '\0';
    if (f) fclose(f);
}

static void draw(const char *graph)
{
    aril_program *p = load_text(OPSET(18), graph);
    const char *to = temp_path("model.dot");
    CHECK(p && aril_program_draw(p, to, (aril_list){ 0 }) == ARIL_OK);
    read_text(to);
    aril_program_free(p);
}

/* Nothing has to run before: inputs, weights, nodes and outputs have their names. */
TEST(a_small_model)
{
    draw(
        "name: \"net\" node { op_type: \"Gemm\" name: \"fc\" input: [\"x\", \"fc.weight\"] output: "
        "\"h\" } node { op_type: \"Relu\" name: \"act\" input: \"h\" output: \"y\" } initializer { "
        "name: \"fc.weight\" dims: [2, 1] data_type: 1 float_data: [1, 2] } "
        "input " FLOATS("x", "dim { dim_param: \"n\" } " DIM(2)) "output " ANY("y"));
    has("digraph \"net\"");
    has("[label=\"x\\nf32[n,2]\", shape=ellipse");
    has("[label=\"fc.weight\\nf32[2,1]\", shape=ellipse");
    has("n0 [label=\"Gemm\\nfc\\nf32[n,1]\"]");
    has("n1 [label=\"Relu\\nact\\nf32[n,1]\"]");
    has("n0 -> n1;");
    has("[label=\"y\\nf32[n,1]\", shape=ellipse");
    has("n1 -> out0;");
}

/* A large model by its modules, of names of nodes or of weights. */
static void draw_layers(const char *node, const char *weight)
{
    static char graph[1 << 16];
    char *to = graph;
    for (int i = 0; i < 40; i++) {
        char name[64], w[64];
        snprintf(name, sizeof name, node, i);
        snprintf(w, sizeof w, weight, i);
        to += sprintf(to,
                      "node { op_type: \"Mul\" name: \"%s\" input: [\"v%d\", \"%s\"] output: "
                      "\"u%d\" } node { op_type: \"Relu\" %s%s%s input: \"u%d\" output: \"v%d\" } "
                      "initializer { name: \"%s\" dims: 2 data_type: 1 float_data: [1, 2] } ",
                      name, i, w, i, strchr(name, '/') ? "name: \"" : "",
                      strchr(name, '/') ? name : "", strchr(name, '/') ? "r\"" : "", i, i + 1, w);
    }
    sprintf(to, "input " FLOATS("v0", DIM(2)) "output " ANY("v40"));
    draw(graph);
}

TEST(a_large_model)
{
    for (int by_weight = 0; by_weight < 2; by_weight++) {
        if (by_weight)
            draw_layers("Mul_%d", "features.%d.weight");
        else
            draw_layers("/features/%d/Mul", "w%d");
        has("[label=\"features.0\\n2 nodes\\nf32[2]\", fillcolor=\"#dcecd9\"]");
        has("[label=\"features.39\\n2 nodes");
        has("n0 -> n2;");
        has("[label=\"v40\\nf32[2]\"");
        CHECK(strstr(text, "outside modules") == NULL && strstr(text, "weight") == NULL);
    }
}

/* A graph with nodes whose results depend on values, and a branch that reads a value outside. */
static const char on_host[] =
    "node { op_type: \"NonZero\" name: \"find\" input: \"x\" output: \"n\" } node { op_type: "
    "\"Neg\" "
    "input: \"x\" output: \"m\" } node { op_type: \"If\" name: \"choose\" input: \"c\" output: "
    "\"y\" "
    "attribute { name: \"then_branch\" type: GRAPH g { node { op_type: \"Identity\" input: \"m\" "
    "output: \"t\" } output { name: \"t\" } } } attribute { name: \"else_branch\" type: GRAPH g { "
    "node { op_type: \"Identity\" input: \"x\" output: \"e\" } output { name: \"e\" } } } } "
    "input { name: \"x\" type { tensor_type { elem_type: 1 shape { dim { dim_value: 3 } } } } } "
    "input { name: \"c\" type { tensor_type { elem_type: 9 shape { } } } } "
    "output { name: \"n\" type { tensor_type { elem_type: 7 } } } "
    "output { name: \"y\" type { tensor_type { elem_type: 1 } } } ";

TEST(a_model_that_is_interpreted)
{
    ARIL_SCOPE;
    draw(on_host);
    has("[label=\"If\\nchoose\\nthen_branch: 1 node\\nelse_branch: 1 node");
    has("n1 -> n2;"); /* what a branch reads */
    aril_program *p = load_text(OPSET(18), on_host);
    aril_tensor *x = aril_ones(ARIL_SHAPE(3), ARIL_F32, aril_cpu()), *out[2];
    aril_tensor *c = aril_zeros(ARIL_SHAPE(), ARIL_BOOL, aril_cpu());
    CHECK_INT(aril_program_run(p, ARIL_LIST(x, c), out), ARIL_OK);
    memset(text, 0, sizeof text);
    FILE *f = fmemopen(text, sizeof text - 1, "w");
    CHECK(f && aril_program_costs(p, ARIL_LIST(x, c), f) == ARIL_OK);
    if (f) fclose(f);
    has("NonZero                i64[1,3]");
    has("%  choose");
    has("all nodes");
    aril_program_free(p);
}

/* Without weights a node belongs to the layer that it follows, and what joins layers to none of
 * them. */
TEST(nodes_behind_layers)
{
    ARIL_SCOPE;
    char graph[20000];
    size_t n = 0;
    for (int i = 0; i < 40; i++)
        n +=
            (size_t)snprintf(graph + n, sizeof graph - n,
                             "node { op_type: 'Mul' input: ['x', 'head.%d.weight'] output: 'm%d' } "
                             "node { op_type: 'Relu' input: 'm%d' output: 'r%d' } "
                             "initializer { name: 'head.%d.weight' dims: 2 data_type: 1 "
                             "float_data: [1, 2] } ",
                             i, i, i, i, i);
    n += (size_t)snprintf(graph + n, sizeof graph - n, "node { op_type: 'Concat' input: [");
    for (int i = 0; i < 40; i++)
        n += (size_t)snprintf(graph + n, sizeof graph - n, "%s'r%d'", i ? ", " : "", i);
    snprintf(graph + n, sizeof graph - n,
             "] output: 'all' attribute { name: 'axis' type: INT i: 0 } } "
             "node { op_type: 'Softmax' input: 'all' output: 'y' } input %s output %s",
             FLOATS("x", DIM(2)), ANY("y"));
    draw(graph);
    has("[label=\"head.39\\n2 nodes");
    has("[label=\"head\\n2 nodes\\nf32[80]");
}

/* Rows of costs and printed programs name the node. */
TEST(nodes_of_a_trace)
{
    ARIL_SCOPE;
    aril_program *p =
        load_text(OPSET(18), "node { op_type: \"Exp\" name: \"/layer1/act/Exp\" input: \"x\" "
                             "output: \"y\" } input " ANY("x") "output " ANY("y"));
    aril_tensor *x = aril_ones(ARIL_SHAPE(3), ARIL_F32, aril_cpu()), *y;
    CHECK_INT(aril_program_run(p, ARIL_LIST(x), &y), ARIL_OK);
    memset(text, 0, sizeof text);
    FILE *f = fmemopen(text, sizeof text - 1, "w");
    if (f) aril_program_print(p, f);
    if (f) fclose(f);
    has("# layer1.act.Exp");
    aril_program_free(p);
}
