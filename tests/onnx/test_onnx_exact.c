/* Results of ONNX's operators at the edges of types: integers that no double is equal to, NaN and
 * infinities, and single elements. */
#include "onnx/onnx_text.h"
#include "support/compare.h"
#include "support/temp.h"

#include <math.h>
#include <stdio.h>

/* The output y of nodes without inputs. */
static aril_tensor *computed(const char *head, const char *nodes)
{
    char graph[4000];
    aril_tensor *y = NULL;
    snprintf(graph, sizeof graph, "%s output { name: \"y\" }", nodes);
    aril_program *p = load_text(head, graph);
    if (!p || aril_program_run(p, (aril_list){ 0 }, &y) < 0) {
        test_fail(__FILE__, __LINE__, "%s: %s", nodes, aril_error());
        aril_clear_error();
        y = NULL;
    }
    aril_program_free(p);
    return y;
}

static void integers(const char *head, const char *nodes, int n, const int64_t *want)
{
    ARIL_SCOPE;
    aril_tensor *y = computed(head, nodes);
    int64_t got[8] = { 0 };
    if (!y) return;
    CHECK_INT(aril_numel(y), n);
    CHECK_INT(aril_read(y, got), ARIL_OK);
    for (int i = 0; i < n; i++) CHECK_INT(got[i], want[i]);
}

static void floats(const char *head, const char *nodes, int n, const float *want)
{
    ARIL_SCOPE;
    aril_tensor *y = computed(head, nodes);
    float got[8] = { 0 };
    if (!y) return;
    CHECK_INT(aril_numel(y), n);
    CHECK_INT(aril_read(aril_cast(y, ARIL_F32), got), ARIL_OK);
    for (int i = 0; i < n; i++)
        CHECK_MSG(got[i] == want[i] || (isnan(got[i]) && isnan(want[i])), "%d: %g, expected %g", i,
                  (double)got[i], (double)want[i]);
}

#define I64(...) ((const int64_t[]){ __VA_ARGS__ })
#define F32(...) ((const float[]){ __VA_ARGS__ })
#define CONST(name, dims, type, data) \
    "initializer { name: \"" name "\" dims: [" dims "] data_type: " #type " " data " } "
#define INT(name, value) "attribute { name: \"" name "\" i: " #value " type: INT } "

TEST(integers_of_64_bits)
{
#define TEXT_AND_BACK(type)                                     \
    "node { op_type: \"Cast\" input: \"x\" output: \"t\" " INT( \
        "to", 8) "} node { op_type: \"Cast\" "                  \
                 "input: \"t\" output: \"y\" " INT("to", type) "} "
    integers(OPSET(13),
             CONST("x", "3", 7,
                   "int64_data: [9007199254740993, -9223372036854775808, 9223372036854775807]")
                 TEXT_AND_BACK(7),
             3, I64(9007199254740993, INT64_MIN, INT64_MAX));
    integers(OPSET(13),
             CONST("x", "2", 13, "uint64_data: [9223372036854775813, 18446744073709551615]")
                 TEXT_AND_BACK(13),
             2, I64(INT64_MIN + 5, -1));
    integers(OPSET(13),
             CONST("x", "2", 7, "int64_data: [1, 2]") CONST("p", "2", 7, "int64_data: [1, 1]")
                 CONST("v", "", 7,
                       "int64_data: 9007199254740993") "node { op_type: \"Pad\" input: [\"x\", "
                                                       "\"p\", \"v\"] output: \"y\" } ",
             4, I64(9007199254740993, 1, 2, 9007199254740993));
    integers(OPSET(13),
             CONST("a", "", 7, "int64_data: 9007199254740993")
                 CONST("b", "", 7, "int64_data: 9007199254740998")
                     CONST("d", "", 7, "int64_data: 2") "node { op_type: \"Range\" input: [\"a\", "
                                                        "\"b\", \"d\"] output: \"y\" } ",
             3, I64(9007199254740993, 9007199254740995, 9007199254740997));
    integers(OPSET(13),
             CONST("a", "", 7, "int64_data: 5") CONST("b", "", 7, "int64_data: 0")
                 CONST("d", "", 7, "int64_data: -3") "node { op_type: \"Range\" input: [\"a\", "
                                                     "\"b\", \"d\"] output: \"y\" } ",
             2, I64(5, 2));
}

TEST(nan_and_infinities)
{
    floats(OPSET(13),
           CONST("x", "3", 1, "float_data: [nan, 2, 0.5]") "node { op_type: \"ThresholdedRelu\" "
                                                           "input: \"x\" output: \"y\" } ",
           3, F32(0, 2, 0));
    floats(OPSET(10),
           CONST("x", "2", 1,
                 "float_data: [-inf, 2]") "node { op_type: \"Clip\" input: \"x\" output: "
                                          "\"y\" attribute { name: \"max\" f: 1 type: "
                                          "FLOAT } } ",
           2, F32(-3.40282347e+38f, 1));
}

TEST(single_elements)
{
    floats(OPSET(13),
           CONST("x", "1, 2, 1", 1, "float_data: [3, 4]") CONST("s", "2", 1, "float_data: [1, 2]")
               CONST("b", "2", 1,
                     "float_data: [5, 6]") "node { op_type: \"InstanceNormalization\" input: "
                                           "[\"x\", \"s\", \"b\"] output: \"y\" } ",
           2, F32(5, 6));
    integers(OPSET(17),
             CONST("n", "", 7, "int64_data: 2") "node { op_type: \"BlackmanWindow\" input: \"n\" "
                                                "output: \"y\" " INT("output_datatype", 7) "} ",
             2, I64(0, 1));
}

TEST(types_and_forms_that_others_take)
{
    floats(OPSET(13),
           CONST("x", "2, 2", 1,
                 "float_data: [1, 2, 3, 5]") "node { op_type: \"Cast\" input: \"x\" "
                                             "output: \"h\" " INT(
                                                 "to", 10) "} node { "
                                                           "op_type: \"Det\" input: \"h\" output: "
                                                           "\"y\" } ",
           1, F32(-1));
    /* A real signal without its last dimension. */
    floats(OPSET(17),
           CONST("x", "1, 4", 1, "float_data: [1, 2, 3, 4]") CONST("s", "", 7, "int64_data: 2")
               CONST("l", "", 7, "int64_data: 2") "node { op_type: \"STFT\" input: [\"x\", \"s\", "
                                                  "\"\", \"l\"] output: \"y\" } ",
           8, F32(3, 0, -1, 0, 7, 0, -1, 0));
}

/* Where ONNX says little, as onnxruntime computes. */
TEST(results_of_onnxruntime)
{
    static const char *const equations[] = { "ij->i", "ij->", "ii" };
    for (int i = 0; i < 3; i++) { /* integers keep their type */
        ARIL_SCOPE;
        char nodes[600];
        snprintf(nodes, sizeof nodes,
                 CONST("x", "2, 2", 6, "int32_data: [1, 2, 3, 4]") "node { op_type: 'Einsum' "
                                                                   "input: 'x' output: 'y' "
                                                                   "attribute { name: 'equation' "
                                                                   "s: '%s' type: STRING } } ",
                 equations[i]);
        aril_tensor *y = computed(OPSET(13), nodes);
        CHECK(y && aril_dtype_of(y) == ARIL_I32);
    }
    floats(OPSET(14),
           CONST("x", "3", 1, "float_data: [-inf, -4, 3]") "node { op_type: 'HardSwish' input: 'x' "
                                                           "output: 'y' } ",
           3, F32(NAN, 0, 3));
    floats(OPSET(13),
           CONST("x", "2, 0", 1, "") "node { op_type: 'Hardmax' input: 'x' output: 'y' } ", 0,
           F32(0));
    floats(OPSET(10),
           CONST("x", "1, 1, 1, 10", 1, "float_data: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]")
               CONST("s", "4", 1, "float_data: [1, 1, 1, 0.8]") "node { op_type: 'Resize' input: "
                                                                "['x', 's'] output: 'y' } ",
           8, F32(0, 2, 3, 4, 5, 7, 8, 9));
    /* NaN differs from the value of a node. */
    floats(
        "ir_version: 8 opset_import { version: 17 } opset_import { domain: 'ai.onnx.ml' "
        "version: 3 } ",
        CONST("x", "3, 1", 1,
              "float_data: [nan, 1, 2]") "node { op_type: 'TreeEnsembleRegressor' domain: "
                                         "'ai.onnx.ml' input: 'x' output: "
                                         "'y' attribute { name: 'n_targets' i: 1 type: INT } "
                                         "attribute { name: 'nodes_treeids' ints: [0, 0, 0] type: "
                                         "INTS } "
                                         "attribute { name: 'nodes_nodeids' ints: [0, 1, 2] type: "
                                         "INTS } "
                                         "attribute { name: 'nodes_featureids' ints: [0, 0, 0] "
                                         "type: INTS } "
                                         "attribute { name: 'nodes_modes' strings: ['BRANCH_NEQ', "
                                         "'LEAF', 'LEAF'] type: "
                                         "STRINGS } attribute { name: 'nodes_values' floats: [1, "
                                         "0, 0] type: FLOATS } "
                                         "attribute { name: 'nodes_truenodeids' ints: [1, 0, 0] "
                                         "type: INTS } "
                                         "attribute { name: 'nodes_falsenodeids' ints: [2, 0, 0] "
                                         "type: INTS } "
                                         "attribute { name: 'target_treeids' ints: [0, 0] type: "
                                         "INTS } "
                                         "attribute { name: 'target_nodeids' ints: [1, 2] type: "
                                         "INTS } "
                                         "attribute { name: 'target_ids' ints: [0, 0] type: INTS } "
                                         "attribute { name: 'target_weights' floats: [10, 20] "
                                         "type: FLOATS } } ",
        3, F32(10, 20, 10));
    /* Query i sees keys 0 to i, however many there are, and the last one all. */
    floats("ir_version: 8 opset_import { version: 17 } opset_import { domain: 'com.microsoft' "
           "version: 1 } ",
           CONST("q", "1, 3, 1", 1, "float_data: [0, 0, 0]") CONST("k", "1, 4, 1", 1,
                                                                   "float_data: [7, 8, 9, 9]")
               CONST("v", "1, 4, 1", 1,
                     "float_data: [1, 3, 50, 10]") "node { op_type: 'MultiHeadAttention' domain: "
                                                   "'com.microsoft' input: ['q', 'k', 'v'] output: "
                                                   "'y' " INT("num_heads", 1)
                                                       INT("unidirectional", 1) "} ",
           3, F32(1, 2, 16));
}

#define CAST(from, to, type) \
    "node { op_type: 'Cast' input: '" from "' output: '" to "' " INT("to", type) "} "

/* Inputs of one operator that have several types. */
TEST(inputs_of_several_types)
{
    floats(OPSET(18),
           CONST("x", "1, 1, 1, 2", 1, "float_data: [1, 3]") CONST("g", "1, 1, 1, 2", 1,
                                                                   "float_data: [0, 0]")
               CAST("x", "h", 10) "node { op_type: 'GridSample' input: ['h', 'g'] output: 'y' } ",
           1, F32(2));
    floats(
        OPSET(16),
        CONST("x", "1, 2, 1", 1, "float_data: [1, 3]") CONST("s", "2", 1, "float_data: [2, 1]")
            CONST("b", "2", 1, "float_data: [0, 1]") CONST("m", "2", 1, "float_data: [0, 1]")
                CONST("v", "2", 1, "float_data: [1, 4]") CAST("x", "h", 16) CAST("m", "n", 10) CAST(
                    "v", "w",
                    10) "node { op_type: 'BatchNormalization' input: ['h', 's', 'b', 'n', 'w'] "
                        "output: 'y' "
                        "attribute { name: 'epsilon' f: 0 type: FLOAT } } ",
        2, F32(2, 2));
}

/* The integers y of nodes that give booleans b. */
#define AS_INTEGERS "node { op_type: \"Cast\" input: \"b\" output: \"y\" " INT("to", 7) "} "

TEST(strings)
{
    integers(OPSET(19),
             CONST("x", "2, 2", 8, "string_data: [\"a\", \"b\", \"c\", \"b\"]")
                 CONST("z", "1, 2", 8,
                       "string_data: [\"a\", \"b\"]") "node { op_type: \"Equal\" input: [\"x\", "
                                                      "\"z\"] output: \"b\" } " AS_INTEGERS,
             4, I64(1, 1, 0, 1));
    integers(
        OPSET(13),
        CONST("x", "4", 8,
              "string_data: [\"b\", \"\", \"b\", \"a\"]") "node { op_type: \"Unique\" input: \"x\" "
                                                          "output: [\"\", \"\", \"y\"] } ",
        4, I64(2, 0, 2, 1));
    integers(
        OPSET(19),
        CONST("x", "3", 8, "string_data: [\"a\", \"b\", \"c\"]") CONST("i", "1", 7, "int64_data: 2")
            CONST("u", "1", 8, "string_data: \"new\"")
                CONST("w", "3", 8,
                      "string_data: [\"a\", \"b\", \"new\"]") "node { op_type: \"ScatterElements\" "
                                                              "input: [\"x\", \"i\", \"u\"] "
                                                              "output: \"s\" } node { "
                                                              "op_type: \"Equal\" input: [\"s\", "
                                                              "\"w\"] output: \"b\" } " AS_INTEGERS,
        3, I64(1, 1, 1));
    integers(OPSET(19),
             CONST("i", "2", 7, "int64_data: [1, 0]") CONST("d", "", 7, "int64_data: 2")
                 CONST("v", "2", 8, "string_data: [\"off\", \"on\"]")
                     CONST("w", "2, 2", 8,
                           "string_data: [\"off\", \"on\", \"on\", "
                           "\"off\"]") "node { op_type: \"OneHot\" input: "
                                       "[\"i\", \"d\", \"v\"] output: "
                                       "\"s\" } node { op_type: "
                                       "\"Equal\" input: [\"s\", \"w\"] "
                                       "output: \"b\" } " AS_INTEGERS,
             4, I64(1, 1, 1, 1));
}

TEST(maxima_of_regions)
{
    /* The second region is beyond the image: its bins are empty. */
    floats(OPSET(13),
           CONST("x", "1, 1, 3, 3", 1, "float_data: [1, 2, 3, 4, 5, 6, 7, 8, 9]")
               CONST("r", "2, 5", 1,
                     "float_data: [0, 0, 0, 4, 2, 0, 8, 8, 9, 9]") "node { op_type: \"MaxRoiPool\" "
                                                                   "input: [\"x\", \"r\"] output: "
                                                                   "\"y\" attribute { name: "
                                                                   "\"pooled_shape\" ints: [1, 2] "
                                                                   "type: INTS } attribute { name: "
                                                                   "\"spatial_scale\" f: 0.5 "
                                                                   "type: FLOAT } } ",
           4, F32(5, 6, 0, 0));
}

/* ---- f64, beside attributes that are f32 ---- */

static void activations(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    out[0] = aril_selu(in[0]);
    out[1] = aril_elu(in[0], 0.7);
    out[2] = aril_leaky_relu(in[0], 0.01);
    out[3] = aril_hardsigmoid(in[0]);
    out[4] = aril_softshrink(in[0], 0.3);
    out[5] = aril_hardshrink(in[0], 0.3);
    out[6] = aril_threshold(in[0], 0.1, 0);
    out[7] = aril_celu(in[0], 1.3);
    out[8] = aril_layer_norm(in[0], NULL, NULL, ARIL_SHAPE(-1), (aril_norm_opts){ 0 });
}

TEST(f64_programs_keep_their_precision)
{
    ARIL_SCOPE;
    enum { N = 9 };
    aril_tensor *x = aril_randn(ARIL_SHAPE(6, 7), ARIL_F64, aril_cpu()), *want[N], *got[N];
    const char *path = temp_path("f64.onnx");
    aril_program *p = aril_jit(activations, NULL, (aril_jit_opts){ 0 });
    CHECK_INT(aril_program_export(p, ARIL_LIST(x), path, (aril_export_opts){ 0 }), ARIL_OK);
    aril_program *q = aril_program_load(path, (aril_load_opts){ 0 });
    CHECK_MSG(q && aril_program_run(q, ARIL_LIST(x), got) == ARIL_OK, "%s", aril_error());
    activations(NULL, &x, want);
    for (int i = 0; i < N && q; i++) {
        char *why = test_difference(got[i], want[i], 1e-14, 1e-15);
        CHECK_MSG(!why, "result %d: %s", i, why);
    }
    CHECK_MSG(aril_ok(), "%s", aril_error());
    aril_program_free(p);
    aril_program_free(q);
}

static void fill_with_sum(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    out[0] = aril_copy_(aril_copy(in[0]), aril_sum(in[0], ARIL_ALL));
}

TEST(a_copy_broadcasts)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_ones(ARIL_SHAPE(5, 1, 3), ARIL_F32, aril_cpu()), *want[1], *got[1];
    aril_program *p = aril_jit(fill_with_sum, NULL, (aril_jit_opts){ 0 });
    aril_program_run(p, ARIL_LIST(x), want);
    const char *path = temp_path("copy.onnx");
    CHECK_INT(aril_program_export(p, ARIL_LIST(x), path, (aril_export_opts){ 0 }), ARIL_OK);
    aril_program *loaded = aril_program_load(path, (aril_load_opts){ 0 });
    CHECK_INT(aril_program_run(loaded, ARIL_LIST(x), got), ARIL_OK);
    char *why = test_difference_in_bits(got[0], want[0]);
    CHECK_MSG(!why, "%s", why);
    aril_program_free(loaded);
    aril_program_free(p);
}
