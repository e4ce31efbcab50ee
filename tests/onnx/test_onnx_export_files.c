/* What written files hold: outputs that operators require, names, metadata. */
#include "onnx/export_case.h"
#include "onnx/onnx_text.h"
#include "support/compare.h"

#include <string.h>
#include <time.h>

static aril_tensor *normal(aril_shape shape)
{
    return aril_randn(shape, ARIL_F32, aril_cpu());
}

/* The file of a case, which the caller frees; never NULL. */
static aril__message *file_of(const char *path)
{
    aril__message *m = aril__message_load(&aril__onnx_ModelProto, path);
    if (!m) test_fail(__FILE__, __LINE__, "%s", aril_error());
    return m ? m : aril__message_new(&aril__onnx_ModelProto);
}

/* The first node of a type; NULL: there is none. */
static const aril__message *node_of(const aril__message *file, const char *type)
{
    const aril__message *graph = aril__message_sub(file, "graph");
    for (size_t i = 0; i < aril__message_count(graph, "node"); i++) {
        const aril__message *n = aril__message_sub_at(graph, "node", i);
        if (strcmp(aril__message_text(n, "op_type"), type) == 0) return n;
    }
    return NULL;
}

static const aril__message *attribute_of(const aril__message *node, const char *name)
{
    for (size_t i = 0; i < aril__message_count(node, "attribute"); i++) {
        const aril__message *a = aril__message_sub_at(node, "attribute", i);
        if (strcmp(aril__message_text(a, "name"), name) == 0) return a;
    }
    return NULL;
}

/* Exports a function of one input, and keeps the case for comparisons. */
static aril__message *written(const char *name, aril_fn *fn, aril_tensor *x, int opset)
{
    aril_tensor *want;
    const char *path = case_path(name);
    aril_program *p = aril_jit(fn, NULL, (aril_jit_opts){ 0 });
    aril_export_opts opts = { .opset = opset };
    if (aril_program_export(p, ARIL_LIST(x), path, opts) < 0)
        test_fail(__FILE__, __LINE__, "%s", aril_error());
    aril_program_run(p, ARIL_LIST(x), &want);
    aril_program_free(p);
    if (!test_failed()) keep_case(name, 0, 1, &x, 1, &want);
    return file_of(path);
}

/* ---- operators ---- */

static void largest(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    out[0] = aril_topk(in[0], 2, -1, (aril_topk_opts){ 0 }, NULL);
}

/* TopK has two outputs, also where only the values are used. */
TEST(values_of_topk_alone)
{
    ARIL_SCOPE;
    aril__message *m = written("topk_values", largest, normal(ARIL_SHAPE(3, 5)), 0);
    const aril__message *n = node_of(m, "TopK");
    CHECK(n != NULL);
    if (n) CHECK_INT((int)aril__message_count(n, "output"), 2);
    if (n) CHECK(*aril__message_text_at(n, "output", 1));
    aril__message_free(m);
}

static void rounded_up(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    aril_pool_opts o = { .kernel = { 2 }, .stride = { 2 }, .padding = { 1 }, .ceil_mode = true };
    out[0] = aril_max_pool1d(in[0], o, NULL);
}

/* The last window would begin in the padding: ONNX's rules before 22 count it. */
TEST(pools_that_round_up)
{
    ARIL_SCOPE;
    aril_tensor *x = normal(ARIL_SHAPE(1, 1, 5));
    aril__message *m = written("max_pool_ceil_18", rounded_up, x, 18);
    const aril__message *n = node_of(m, "MaxPool");
    CHECK(n != NULL);
    CHECK(n && !attribute_of(n, "ceil_mode"));
    const aril__message *pads = n ? attribute_of(n, "pads") : NULL;
    CHECK(pads && aril__message_int_at(pads, "ints", 0) == 1);
    CHECK(pads && aril__message_int_at(pads, "ints", 1) == 0);
    aril__message_free(m);
    m = written("max_pool_ceil_22", rounded_up, x, 22);
    n = node_of(m, "MaxPool");
    CHECK(n && attribute_of(n, "ceil_mode"));
    aril__message_free(m);
}

/* ---- sizes ---- */

/* A model that is made for one sample, as its Reshape says, whatever the inputs declare. */
TEST(a_batch_that_is_fixed_inside)
{
    ARIL_SCOPE;
    aril_program *p =
        load_text(OPSET(18), "node { op_type: 'Reshape' input: ['x', 'to'] output: 'y' } "
                             "initializer { name: 'to' dims: 2 data_type: 7 int64_data: [1, 6] } "
                             "input " ANY("x") "output " ANY("y"));
    aril_tensor *one = normal(ARIL_SHAPE(1, 2, 3));
    const char *path = temp_path("batch.onnx");
    aril_export_opts opts = { .batch = true };
    CHECK(aril_program_export(p, ARIL_LIST(one), path, opts) < 0);
    CHECK_MSG(strstr(aril_error(), "[2,2,3] does not have as many elements as [1,6]"), "%s",
              aril_error());
    aril_clear_error();
    CHECK(fopen(path, "r") == NULL);
    CHECK_INT(aril_program_export(p, ARIL_LIST(one), path, (aril_export_opts){ 0 }), ARIL_OK);
    aril_program_free(p);
}

static void quotients(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    out[0] = aril_floor_div(in[0], in[1]);
}

/* Integers that no double is equal to. */
TEST(quotients_of_64_bits)
{
    static const uint64_t large[] = { UINT64_MAX, UINT64_MAX - 2, 0x8000000000000001u, 7 },
                          by[] = { 1, 3, 2, 2 };
    static const int64_t both[] = { INT64_MAX, -INT64_MAX, -7, 7 }, parts[] = { 2, 1, 2, -2 };
    for (int i = 0; i < 2; i++) {
        ARIL_SCOPE;
        aril_dtype dtype = i ? ARIL_I64 : ARIL_U64;
        aril_tensor *in[] = { aril_from(i ? (const void *)both : large, ARIL_SHAPE(4), dtype,
                                        aril_cpu()),
                              aril_from(i ? (const void *)parts : by, ARIL_SHAPE(4), dtype,
                                        aril_cpu()) },
                    *want, *got;
        const char *path = case_path(i ? "quotients_i64" : "quotients_u64");
        aril_program *p = aril_jit(quotients, NULL, (aril_jit_opts){ 0 });
        CHECK_INT(aril_program_export(p, (aril_list){ 2, in }, path, (aril_export_opts){ 0 }),
                  ARIL_OK);
        aril_program_run(p, (aril_list){ 2, in }, &want);
        aril_program *q = aril_program_load(path, (aril_load_opts){ 0 });
        aril_program_run(q, (aril_list){ 2, in }, &got);
        CHECK_MSG(aril_ok(), "%s", aril_error());
        int64_t a[4], b[4];
        aril_read(want, a);
        aril_read(got, b);
        for (int k = 0; k < 4; k++) CHECK_INT(b[k], a[k]);
        if (!test_failed()) keep_case(i ? "quotients_i64" : "quotients_u64", 0, 2, in, 1, &want);
        aril_program_free(q);
        aril_program_free(p);
    }
}

/* x [b,t,2] as [b * t, 2] and back, by Mul and Div; and expanded as PyTorch's exporter does, which
 * asks whether a size is -1. */
static const char computed[] =
    "node { op_type: 'Shape' input: 'x' output: 's' } "
    "node { op_type: 'Gather' input: ['s', 'zero'] output: 'b' } "
    "node { op_type: 'Gather' input: ['s', 'one'] output: 't' } "
    "node { op_type: 'Mul' input: ['b', 't'] output: 'bt' } "
    "node { op_type: 'Concat' input: ['bt', 'two'] output: 'flat' "
    "       attribute { name: 'axis' i: 0 type: INT } } "
    "node { op_type: 'Reshape' input: ['x', 'flat'] output: 'r' } "
    "node { op_type: 'Div' input: ['bt', 't'] output: 'q' } "
    "node { op_type: 'Concat' input: ['q', 't', 'two'] output: 'back' "
    "       attribute { name: 'axis' i: 0 type: INT } } "
    "node { op_type: 'Reshape' input: ['r', 'back'] output: 'again' } "
    "node { op_type: 'Equal' input: ['back', 'less'] output: 'is' } "
    "node { op_type: 'Where' input: ['is', 'one', 'back'] output: 'to' } "
    "node { op_type: 'Expand' input: ['row', 'to'] output: 'e' } "
    "node { op_type: 'Add' input: ['again', 'e'] output: 'y' } "
    "initializer { name: 'zero' dims: 1 data_type: 7 int64_data: 0 } "
    "initializer { name: 'one' dims: 1 data_type: 7 int64_data: 1 } "
    "initializer { name: 'two' dims: 1 data_type: 7 int64_data: 2 } "
    "initializer { name: 'less' dims: 1 data_type: 7 int64_data: -1 } "
    "initializer { name: 'row' dims: 2 data_type: 1 float_data: [1, 2] } "
    "input { name: 'x' type { tensor_type { elem_type: 1 shape { dim { dim_param: 'b' } "
    "        dim { dim_param: 't' } dim { dim_value: 2 } } } } } output " ANY("y");

TEST(several_open_sizes)
{
    ARIL_SCOPE;
    aril_program *p = load_text(OPSET(18), computed);
    CHECK_MSG(p != NULL, "%s", aril_error());
    CHECK_STR(aril_program_input_size_name(p, 0, 0), "b");
    CHECK_STR(aril_program_input_size_name(p, 0, 1), "t");
    CHECK(!aril_program_input_size_name(p, 0, 2));
    CHECK(!aril_program_input_size_name(p, 0, 3));
    CHECK(!aril_program_input_size_name(p, 1, 0));
    const char *const names[] = { "b", "t" }, *path = case_path("sizes_several");
    const aril_shape sizes[] = { ARIL_SHAPE(-2, -3, 2) };
    aril_export_opts opts = {
        .sizes = sizes, .n_sizes = 1, .size_names = names, .n_size_names = 2
    };
    aril_tensor *small = normal(ARIL_SHAPE(1, 1, 2)), *large = normal(ARIL_SHAPE(3, 4, 2)), *y,
                *want;
    CHECK_MSG(aril_program_export(p, ARIL_LIST(small), path, opts) == ARIL_OK, "%s", aril_error());
    aril_program *q = aril_program_load(path, (aril_load_opts){ 0 });
    CHECK_STR(aril_program_input_size_name(q, 0, 1), "t");
    aril_program_run(p, ARIL_LIST(large), &want);
    aril_program_run(q, ARIL_LIST(large), &y);
    CHECK_MSG(aril_ok(), "%s", aril_error());
    char *why = test_difference_in_value(y, want, 1e-6, 1e-6);
    CHECK_MSG(!why, "%s", why);
    if (!test_failed()) keep_case("sizes_several", 0, 1, &large, 1, &want);
    aril_program_free(q);
    aril_program_free(p);
}

TEST(kinds_of_inputs_and_outputs)
{
    aril_program *p =
        load_text(OPSET(18), "node { op_type: 'StringNormalizer' input: 's' output: 'y' } "
                             "node { op_type: 'SequenceConstruct' input: 'x' output: 'q' } "
                             "input " TYPED("s", 8) "input " ANY("x") "output " TYPED(
                                 "y", 8) "output { name: 'q' type { sequence_type { elem_type { "
                                         "tensor_type { elem_type: 1 } } } } }");
    CHECK_MSG(p != NULL, "%s", aril_error());
    CHECK_INT(aril_program_input_kind(p, 0), ARIL_VALUE_TEXT);
    CHECK_INT(aril_program_input_kind(p, 1), ARIL_VALUE_TENSOR);
    CHECK_INT(aril_program_output_kind(p, 0), ARIL_VALUE_TEXT);
    CHECK_INT(aril_program_output_kind(p, 1), ARIL_VALUE_SEQUENCE);
    CHECK_INT(aril_program_input_kind(p, 2), ARIL_VALUE_TENSOR);
    aril_program_free(p);
}

TEST(names_that_are_missing)
{
    ARIL_SCOPE;
    const char *const none[] = { NULL }, *path = temp_path("names.onnx");
    aril_tensor *x = normal(ARIL_SHAPE(2, 5));
    aril_program *p = aril_jit(largest, NULL, (aril_jit_opts){ 0 });
    CHECK_INT(aril_program_export(p, ARIL_LIST(x), path, (aril_export_opts){ .inputs = none }),
              ARIL_ERR_ARG);
    aril_clear_error();
    CHECK_INT(aril_program_export(p, ARIL_LIST(x), path, (aril_export_opts){ .outputs = none }),
              ARIL_ERR_ARG);
    aril_clear_error();
    CHECK(fopen(path, "r") == NULL);
    aril_program_free(p);
}

/* ---- what a loaded model says of itself ---- */

static void check_metadata(const char *path)
{
    aril__message *m = file_of(path);
    const aril__message *graph = aril__message_sub(m, "graph");
    CHECK_STR(aril__message_text(m, "doc_string"), "about it");
    CHECK_STR(aril__message_text(graph, "doc_string"), "about the graph");
    CHECK_STR(aril__message_text(graph, "name"), "pets");
    CHECK_STR(aril__message_text(m, "domain"), "org.pets");
    CHECK_INT((int)aril__message_int(m, "model_version"), 3);
    CHECK_INT((int)aril__message_count(m, "metadata_props"), 2);
    const aril__message *e = aril__message_sub_at(m, "metadata_props", 1);
    CHECK_STR(aril__message_text(e, "key"), "stride");
    CHECK_STR(aril__message_text(e, "value"), "32");
    CHECK_STR(aril__message_text(aril__message_sub_at(graph, "input", 0), "name"), "picture");
    CHECK_STR(aril__message_text(aril__message_sub_at(graph, "output", 0), "name"), "score");
    aril__message_free(m);
}

TEST(metadata_is_kept)
{
    ARIL_SCOPE;
    const char *from = save_model(
        OPSET(18) "doc_string: 'about it' domain: 'org.pets' model_version: 3 "
                  "metadata_props { key: 'names' value: 'cat' } "
                  "metadata_props { key: 'stride' value: '32' } "
                  "graph { name: 'pets' doc_string: 'about the graph' "
                  "node { op_type: 'Relu' input: 'picture' output: 'score' } "
                  "input " FLOATS("picture", DIM(3)) "output " FLOATS("score", DIM(3)) "}");
    const char *path = temp_path("kept.onnx");
    aril_tensor *x = normal(ARIL_SHAPE(3));
    aril_program *p = aril_program_load(from, (aril_load_opts){ 0 });
    CHECK_MSG(p != NULL, "%s", aril_error());
    CHECK_INT(aril_program_export(p, ARIL_LIST(x), path, (aril_export_opts){ 0 }), ARIL_OK);
    aril_program_free(p);
    check_metadata(path);
    aril_module *m = aril_module_load(from, (aril_load_opts){ 0 });
    CHECK_INT(aril_module_export(m, ARIL_LIST(x), path, (aril_export_opts){ 0 }), ARIL_OK);
    aril_module_release(m);
    check_metadata(path);
}

enum { CHAIN = 20000 };

static void chain(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    out[0] = in[0];
    for (int i = 0; i < CHAIN; i++) out[0] = aril_tanh(out[0]);
}

TEST(names_of_many_nodes_take_linear_time)
{
    ARIL_SCOPE;
    clock_t begin = clock();
    aril__message *m = written("chain", chain, normal(ARIL_SHAPE(2)), 18);
    CHECK(clock() - begin < 20 * CLOCKS_PER_SEC);
    const aril__message *graph = aril__message_sub(m, "graph");
    CHECK_INT((int)aril__message_count(graph, "node"), CHAIN);
    for (size_t i = 1; i < aril__message_count(graph, "node"); i += 1234) {
        char name[32];
        snprintf(name, sizeof name, "Tanh_%zu", i);
        CHECK_STR(aril__message_text(aril__message_sub_at(graph, "node", i), "name"), name);
    }
    aril__message_free(m);
}

/* Of three queries, the first sees no key. */
static void attend(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    static const float seen[] = { 0, 0, 0, 1, 1, 0, 1, 1, 1 };
    aril_tensor *mask = aril_from(seen, ARIL_SHAPE(3, 3), ARIL_F32, aril_cpu());
    mask = *(const bool *)ctx ? aril_ne_scalar(mask, 0) : aril_log(mask);
    out[0] = aril_scaled_dot_product_attention(in[0], in[0], in[0],
                                               (aril_attention_opts){ .mask = mask });
}

TEST(a_query_that_sees_no_key_gives_zero)
{
    for (int i = 0; i < 2; i++) {
        ARIL_SCOPE;
        bool of_bool = i == 0;
        aril_tensor *x = normal(ARIL_SHAPE(2, 3, 4)), *want, *got;
        const char *path = case_path(of_bool ? "unseen_bool" : "unseen_float");
        aril_program *p = aril_jit(attend, &of_bool, (aril_jit_opts){ 0 });
        CHECK_INT(aril_program_export(p, ARIL_LIST(x), path, (aril_export_opts){ 0 }), ARIL_OK);
        CHECK_INT(aril_program_run(p, ARIL_LIST(x), &want), ARIL_OK);
        aril_program_free(p);
        keep_case(of_bool ? "unseen_bool" : "unseen_float", 0, 1, &x, 1, &want);
        p = aril_program_load(path, (aril_load_opts){ 0 });
        CHECK_MSG(aril_program_run(p, ARIL_LIST(x), &got) == ARIL_OK, "%s", aril_error());
        CHECK_NEAR(aril_item(aril_sum(aril_abs(aril_select(want, 1, 0)), ARIL_ALL)), 0, 0);
        CHECK_NEAR(aril_item(aril_sum(aril_abs(aril_sub(want, got)), ARIL_ALL)), 0, 1e-5);
        aril_program_free(p);
    }
}
