/* Small models with what onnxruntime computes: the operators of com.microsoft and ai.onnx.ml,
 * products of integers, and what importers trip over. `tests/peers/onnx_cases.py --write` makes
 * cases.bin. */
#include "aril/aril.h"
#include "core/cpu.h"
#include "formats/schemas.h"
#include "onnx/rules.h"
#include "support/temp.h"
#include "support/test.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static uint32_t word_of(FILE *f)
{
    unsigned char b[4] = { 0 };
    if (fread(b, 1, 4, f) != 4) return 0;
    return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

static void make_folders(char *path, size_t from)
{
    for (char *at = path + from; (at = strchr(at, '/')); at++) {
        *at = '\0';
        mkdir(path, 0777);
        *at = '/';
    }
}

/* Writes the next file below `folder` if its path begins with `prefix`; false at the end. */
static bool unpack_next(FILE *f, const char *folder, const char *prefix, bool *wrote)
{
    char name[256], path[4096 + 260];
    uint32_t length = word_of(f), size = word_of(f);
    if (!length || length >= sizeof name || fread(name, 1, length, f) != length) return false;
    name[length] = '\0';
    void *data = malloc(size + 1);
    bool read = data && fread(data, 1, size, f) == size;
    if (read && strncmp(name, prefix, strlen(prefix)) == 0) {
        snprintf(path, sizeof path, "%s/%s", folder, name);
        make_folders(path, strlen(folder) + 1);
        FILE *to = fopen(path, "wb");
        *wrote = to && fwrite(data, 1, size, to) == size;
        if (!*wrote) test_fail(__FILE__, __LINE__, "cannot write %s", path);
        if (to) fclose(to);
    }
    free(data);
    return read;
}

/* Runs the cases whose names begin with `prefix`: at least `least`. */
static void run_cases(const char *prefix, int least)
{
    char folder[4096], *text = NULL;
    size_t size;
    bool wrote = false;
    snprintf(folder, sizeof folder, "%s", temp_path(prefix));
    mkdir(folder, 0777);
    FILE *f = fopen(ONNX_CASES, "rb");
    CHECK_MSG(f != NULL, "cannot open %s", ONNX_CASES);
    while (unpack_next(f, folder, prefix, &wrote)) {
    }
    fclose(f);
    CHECK_MSG(wrote, "no case begins with %s", prefix);
    FILE *to = open_memstream(&text, &size);
    aril_onnx_results r = { 0 };
    /* Quantized by another program's rounding: a step of a scale, in products of floats. */
    aril_status s =
        aril_onnx_test(folder, to, (aril_onnx_test_opts){ .rtol = 1e-3, .atol = 1e-3 }, &r);
    fclose(to);
    CHECK_INT(s, ARIL_OK);
    CHECK_MSG(r.failed == 0 && r.skipped == 0, "%s", text);
    CHECK_MSG(r.passed >= least, "%d cases passed, expected at least %d", r.passed, least);
    free(text);
}

/* ---- what importers trip over ---- */

TEST(lstm_states_peepholes_lengths_and_directions)
{
    run_cases("lstm_", 10);
}

TEST(gru_with_both_kinds_of_reset)
{
    run_cases("gru_", 2);
}

TEST(rnn_with_another_activation)
{
    run_cases("rnn_", 1);
}

TEST(ceil_mode_with_and_without_counted_padding)
{
    run_cases("ceil_", 3);
}

TEST(quantization_by_channel)
{
    run_cases("qdq_channel_", 4);
}

TEST(quantization_by_block)
{
    run_cases("qdq_block_", 4);
}

TEST(unset_inputs_and_outputs)
{
    run_cases("unset_", 3);
}

/* ---- integers ---- */

/* Sums of u8 times i8 are exact on every processor: 255 times -128 twice is beyond i16. */
static void on_each_processor(const char *prefix, int least)
{
    int top = aril__cpu_set(ARIL__CPU_LEVELS);
    for (int level = 0; level <= top; level++) {
        aril__cpu_set(level);
        run_cases(prefix, least);
    }
    aril__cpu_set(top);
}

TEST(products_of_integers)
{
    on_each_processor("matmul_", 6);
}

TEST(convolutions_of_integers)
{
    on_each_processor("conv_integer", 2);
}

TEST(quantized_products)
{
    on_each_processor("qmatmul", 3);
    on_each_processor("qconv", 5);
    on_each_processor("qgemm", 2);
    on_each_processor("dynamic_product", 2);
    on_each_processor("product_to_float", 1);
}

/* ---- com.microsoft ---- */

TEST(microsoft_activations)
{
    run_cases("gelu", 1);
    run_cases("bias_gelu", 1);
    run_cases("fast_gelu", 2);
    run_cases("quick_gelu", 2);
}

TEST(microsoft_products)
{
    run_cases("fused_", 9);
    run_cases("transpose_matmul", 1);
    run_cases("nbits_", 6);
}

TEST(microsoft_normalization)
{
    run_cases("skip_", 5);
    run_cases("rms_norm", 1);
    run_cases("layer_norm_12", 1);
    run_cases("embed_layer_norm", 3);
    run_cases("qembed", 1);
}

TEST(microsoft_attention)
{
    run_cases("attention", 9);
    run_cases("multi_head", 7);
    run_cases("rotary", 4);
    run_cases("group_query", 6);
    run_cases("qattention", 1);
}

TEST(microsoft_quantized)
{
    static const char *const of[] = { "qadd",     "qmul",       "qsigmoid", "qleaky",
                                      "qsoftmax", "qconcat",    "qaverage", "qglobal",
                                      "qwhere",   "dequantize", "quantize" };
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) run_cases(of[i], i < 9 ? 2 : 1);
}

TEST(microsoft_images)
{
    run_cases("bias_", 3);
    run_cases("group_norm", 3);
    run_cases("skip_group_norm", 2);
    run_cases("nhwc_", 3);
    run_cases("qmean_", 2);
    run_cases("gather_blocks_", 2);
}

TEST(microsoft_others)
{
    run_cases("trilu_", 2);
    run_cases("inverse", 1);
    run_cases("expand_dims", 2);
    run_cases("tokenizer_", 4);
}

/* Marks the rules of a domain that the nodes of a model use. */
static void mark_used(const aril__bytes *model, const char *domain, const onnx_rule **used, int *n,
                      int room)
{
    int from, to;
    aril__message *m =
        aril__message_read(&aril__onnx_ModelProto, model->at, model->n, (aril__message_opts){ 0 });
    if (!m) return;
    const aril__message *graph = aril__message_sub(m, "graph");
    for (size_t i = 0; i < aril__message_count(graph, "node") && *n < room; i++) {
        const aril__message *node = aril__message_sub_at(graph, "node", i);
        if (strcmp(aril__message_text(node, "domain"), domain) == 0)
            used[(*n)++] =
                aril__onnx_rule(domain, aril__message_text(node, "op_type"), 1, &from, &to);
    }
    aril__message_free(m);
}

TEST(every_operator_of_microsoft_has_a_case)
{
    enum { ROOM = 1000 };
    static const char domain[] = "com.microsoft";
    static const onnx_rule *used[ROOM];
    int n_used = 0, n = 0;
    FILE *f = fopen(ONNX_CASES, "rb");
    for (uint32_t length; f && (length = word_of(f)) > 0;) {
        uint32_t size = word_of(f);
        aril__bytes data = { 0 };
        unsigned char *at = malloc(length + size + 1);
        bool read = at && fread(at, 1, length + size, f) == length + size;
        if (read && length > 6 && memcmp(at + length - 5, ".onnx", 5) == 0)
            aril__bytes_add(&data, at + length, size);
        if (data.n) mark_used(&data, domain, used, &n_used, ROOM);
        aril__bytes_free(&data);
        free(at);
        if (!read) break;
    }
    if (f) fclose(f);
    for (int t = 0; aril__onnx_rules(t); t++)
        for (const onnx_rule *r = aril__onnx_rules(t); r->name; r++) {
            bool found = false;
            if (strcmp(r->domain, domain) != 0) continue;
            n++;
            for (int i = 0; i < n_used; i++) found |= used[i] == r;
            if (!found) test_fail(__FILE__, __LINE__, "no case runs %s", r->name);
        }
    CHECK(n > 40);
}

/* ---- ai.onnx.ml ---- */

TEST(linear_models)
{
    run_cases("ml_linear_", 6);
}

TEST(features)
{
    run_cases("ml_scaler", 1);
    run_cases("ml_normalizer_", 3);
    run_cases("ml_imputer", 1);
    run_cases("ml_one_hot", 1);
    run_cases("ml_vectorizer", 1);
}

TEST(trees)
{
    run_cases("ml_trees_", 8);
}

TEST(support_vectors)
{
    run_cases("ml_svm_", 10);
}
