/* What written files hold: outputs that operators require, names, metadata. */
#include "onnx/export_case.h"
#include "onnx/onnx_text.h"
#include "support/compare.h"

#include <string.h>

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
