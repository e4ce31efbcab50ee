/* BERT beside transformers: vectors and scores, types and padding; folders of files. */
#include "aril/aril.h"
#include "support/temp.h"
#include "support/test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "bert.inc"

enum { VOCABULARY = 61, CONTEXT = 12, TYPES = 3, WIDTH = 24, LENGTH = 7 };

static const aril_bert_opts small = { .vocabulary = VOCABULARY,
                                      .context = CONTEXT,
                                      .types = TYPES,
                                      .width = WIDTH,
                                      .heads = 3,
                                      .layers = 2,
                                      .inner = 40 };
static const char config[] =
    "{\"model_type\":\"bert\",\"vocab_size\":61,\"max_position_embeddings\":12,"
    "\"type_vocab_size\":3,\"hidden_size\":24,\"num_attention_heads\":3,"
    "\"num_hidden_layers\":2,\"intermediate_size\":40,\"hidden_act\":\"gelu\","
    "\"layer_norm_eps\":1e-12,\"hidden_dropout_prob\":0.0,\"pad_token_id\":0}";

/* ---- the formula of bert.py ---- */

static uint32_t scramble(uint32_t x)
{
    x ^= x >> 16;
    x *= 0x7feb352dU;
    x ^= x >> 15;
    x *= 0x846ca68bU;
    return x ^ (x >> 16);
}

static aril_module *filled(aril_module *m)
{
    const aril_named *s = aril_state(m);
    for (int k = 0; k < s->n; k++) {
        float *to = aril_data_strided(s->at[k]);
        uint32_t first = scramble((uint32_t)k);
        double center = strstr(s->name[k], "LayerNorm.weight") ? 1 : 0;
        for (int64_t i = 0; i < aril_numel(s->at[k]); i++)
            to[i] = (float)(center +
                            0.25 * ((double)(scramble((uint32_t)i + first) >> 8) * 0x1p-23 - 1));
    }
    aril_module_eval(m);
    return m;
}

/* Row 1 has 4 tokens, and then padding. */
static void inputs(aril_tensor *in[3])
{
    int64_t id[2 * LENGTH], type[2 * LENGTH], mask[2 * LENGTH];
    for (int i = 0; i < 2 * LENGTH; i++) {
        id[i] = (i * 17 + 5) % VOCABULARY;
        type[i] = i % TYPES;
        mask[i] = i < LENGTH + 4;
    }
    const int64_t *from[] = { id, type, mask };
    for (int i = 0; i < 3; i++)
        in[i] = aril_from(from[i], ARIL_SHAPE(2, LENGTH), ARIL_I64, aril_cpu());
}

static void check_near(aril_tensor *t, const double *want, size_t n, const char *what)
{
    double got[1024], largest = 0;
    CHECK_MSG(aril_tensor_status(t) == ARIL_OK, "%s: %s", what, aril_error());
    CHECK_INT(aril_numel(t), (int64_t)n);
    CHECK_INT(aril_read(aril_cast(t, ARIL_F64), got), ARIL_OK);
    for (size_t i = 0; i < n; i++) largest = fmax(largest, fabs(want[i]));
    for (size_t i = 0; i < n; i++)
        CHECK_MSG(fabs(got[i] - want[i]) <= 1e-5 * largest, "%s: number %zu is %.8g, not %.8g",
                  what, i, got[i], want[i]);
}

#define CHECK_NEAR_ALL(t, want) check_near(t, want, sizeof(want) / sizeof *(want), #want)

static aril_tensor *row(aril_tensor *t, int64_t length)
{
    return aril_narrow(aril_select(t, 0, 1), 0, 0, length);
}

static void check_base(aril_module *m)
{
    ARIL_SCOPE;
    ARIL_INFERENCE;
    aril_tensor *in[3], *out[2];
    inputs(in);
    CHECK_NEAR_ALL(row(aril_forward(m, in[0]), LENGTH), plain_vectors);
    CHECK_INT(aril_forward_all(m, (aril_list){ 3, in }, 2, out), ARIL_OK);
    CHECK_NEAR_ALL(row(out[0], 4), vectors);
    CHECK_NEAR_ALL(out[1], pooled);
    in[2] = aril_cast(in[2], ARIL_BOOL);
    CHECK_NEAR_ALL(row(aril_forward_n(m, (aril_list){ 3, in }), 4), vectors);
}

static void check_masked(aril_module *m)
{
    ARIL_SCOPE;
    ARIL_INFERENCE;
    aril_tensor *in[3];
    inputs(in);
    CHECK_NEAR_ALL(row(aril_forward_n(m, (aril_list){ 3, in }), 4), scores);
}

TEST(results_are_those_of_transformers)
{
    aril_module *m = filled(aril_bert(small));
    check_base(m);
    CHECK_INT(aril_module_jit(m), ARIL_OK);
    check_base(m);
    CHECK(!aril_module_eager_reason(m));
    aril_module_release(m);
    aril_bert_opts o = small;
    o.masked_lm = true;
    check_masked(m = filled(aril_bert(o)));
    aril_module_release(m);
    CHECK(aril_ok());
}

TEST(all_parameters_learn)
{
    ARIL_SCOPE;
    aril_seed(1);
    aril_bert_opts o = small;
    o.masked_lm = true;
    aril_module *m = aril_bert(o);
    aril_tensor *in[3];
    inputs(in);
    aril_tensor *loss =
        aril_cross_entropy(aril_flatten(aril_forward_n(m, (aril_list){ 3, in }), 0, 1),
                           aril_flatten(in[0], 0, 1));
    CHECK_NEAR(aril_item(loss), log(VOCABULARY), 0.5);
    CHECK_INT(aril_backward(loss), ARIL_OK);
    const aril_named *p = aril_parameters(m);
    for (int i = 0; i < p->n; i++) CHECK_MSG(aril_has_grad(p->at[i]), "%s", p->name[i]);
    aril_module_release(m);
    o.masked_lm = false;
    o.no_pooler = true;
    m = aril_bert(o);
    aril_tensor *out[2];
    CHECK_INT(aril_forward_all(m, ARIL_LIST(in[0]), 2, out), ARIL_OK);
    CHECK(out[0] && !out[1]);
    aril_module_release(m);
    CHECK(aril_ok());
}

TEST(inputs_and_sizes_that_do_not_fit_are_refused)
{
    ARIL_SCOPE;
    aril_module *m = aril_bert(small);
    aril_tensor *in[3];
    inputs(in);
    CHECK(aril_tensor_status(aril_forward(m, aril_flatten(in[0], 0, 1))) < 0);
    CHECK(strstr(aril_error(), "[N,T]"));
    aril_clear_error();
    aril_tensor *wide = aril_zeros(ARIL_SHAPE(1, CONTEXT + 1), ARIL_I64, aril_cpu());
    CHECK(aril_tensor_status(aril_forward(m, wide)) < 0);
    aril_clear_error();
    aril_module_release(m);
    aril_bert_opts o = small;
    o.heads = 5;
    CHECK(aril_bert(o) == NULL && strstr(aril_error(), "cannot be divided among 5 heads"));
    aril_clear_error();
    o.heads = 3;
    o.layers = -1;
    CHECK(aril_bert(o) == NULL && strstr(aril_error(), "layers must be from 1 to 200"));
    aril_clear_error();
}

/* ---- folders ---- */

static void write_text(const char *name, const char *text)
{
    FILE *f = fopen(temp_path(name), "wb");
    fputs(text, f);
    fclose(f);
}

/* Saves a small network under names of published files: of the first years, with heads; or as they
 * are. */
static void save(const char *file, bool old, bool masked, int64_t part)
{
    enum { MOST = 64, NAME = 100 };
    ARIL_SCOPE;
    aril_bert_opts o = small;
    o.masked_lm = masked;
    aril_module *m = filled(aril_bert(o));
    const aril_named *s = aril_state(m);
    char names[MOST][NAME];
    const char *name[MOST];
    aril_tensor *at[MOST];
    int n = 0;
    for (; n < s->n; n++) {
        snprintf(names[n], NAME, "%s%s", old && !masked ? "bert." : "", s->name[n]);
        char *norm = strstr(names[n], "LayerNorm.");
        if (norm && old) strcpy(norm + 10, strstr(norm, "weight") ? "gamma" : "beta");
        name[n] = names[n];
        at[n] = s->at[n];
    }
    if (old) {
        name[n] = "cls.seq_relationship.weight";
        at[n++] = aril_zeros(ARIL_SHAPE(2, WIDTH), ARIL_F32, aril_cpu());
        name[n] = masked ? "cls.predictions.decoder.weight" : "cls.predictions.bias";
        at[n++] = at[0];
        name[n] = "bert.embeddings.position_ids";
        at[n++] = aril_zeros(ARIL_SHAPE(1, CONTEXT), ARIL_I64, aril_cpu());
        static const char *const tuned[] = { "classifier.weight", "classifier.bias",
                                             "qa_outputs.weight", "qa_outputs.bias" };
        for (int i = 0; i < 4; i++) { /* heads of fine-tuned networks */
            name[n] = tuned[i];
            at[n++] = aril_zeros(ARIL_SHAPE(2, WIDTH), ARIL_F32, aril_cpu());
        }
    }
    CHECK_INT(aril_weights_save(temp_path(file), &(aril_named){ n, at, name },
                                (aril_weights_save_opts){ .max_part = part }),
              ARIL_OK);
    aril_module_release(m);
}

static void load(bool masked)
{
    aril_module *m = aril_bert_load(temp_path(""), (aril_bert_opts){ .masked_lm = masked });
    CHECK_MSG(m, "%s", aril_error());
    CHECK(!aril_module_training(m));
    (masked ? check_masked : check_base)(m);
    aril_module_release(m);
}

TEST(folders_hold_networks)
{
    static const char *const files[] = { "model.safetensors", "pytorch_model.bin" };
    write_text("config.json", config);
    for (int i = 0; i < 2; i++) {
        for (int old = 0; old < 2; old++) {
            save(files[i], old, false, 0);
            load(false);
            save(files[i], old, true, 0);
            load(true);
            CHECK_INT(remove(temp_path(files[i])), 0);
        }
    }
    /* In parts, with an index. */
    for (int i = 0; i < 2; i++) {
        char index[64];
        save(files[i], i == 1, false, 4096);
        CHECK(fopen(temp_path(files[i]), "rb") == NULL);
        load(false);
        snprintf(index, sizeof index, "%s.index.json", files[i]);
        CHECK_INT(remove(temp_path(index)), 0);
    }
    CHECK(aril_ok());
}

TEST(what_does_not_fit_is_refused)
{
    static const struct {
        const char *config, *says;
    } wrong[] = {
        { "{\"model_type\":\"roberta\"}",
          "expected model_type \"bert\" of a BERT, got \"roberta\"" },
        { "{\"hidden_act\":\"relu\"}", "hidden_act" },
        { "{\"position_embedding_type\":\"relative_key\"}", "position_embedding_type" },
        { "{\"hidden_dropout_prob\":2}", "a number from 0 to 1" },
        { "{\"num_hidden_layers\":0}", "a size from 1" },
        { "{\"vocab_size\":60,\"max_position_embeddings\":12,\"type_vocab_size\":3,"
          "\"hidden_size\":24,\"num_attention_heads\":3,\"num_hidden_layers\":2,"
          "\"intermediate_size\":40}",
          "expected [60,24] by config.json" },
    };
    CHECK(aril_bert_load(NULL, (aril_bert_opts){ 0 }) == NULL);
    aril_clear_error();
    write_text("config.json", config);
    CHECK(aril_bert_load(temp_path(""), (aril_bert_opts){ 0 }) == NULL);
    CHECK_MSG(strstr(aril_error(), "model.safetensors"), "%s", aril_error());
    aril_clear_error();
    save("model.safetensors", false, true, 0);
    CHECK(aril_bert_load(temp_path(""), (aril_bert_opts){ 0 }) == NULL);
    CHECK_MSG(strstr(aril_error(), "has no tensor pooler.dense.weight"), "%s", aril_error());
    aril_clear_error();
    aril_module *m = aril_bert_load(temp_path(""), (aril_bert_opts){ .no_pooler = true });
    CHECK_MSG(m, "%s", aril_error());
    aril_module_release(m);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        write_text("config.json", wrong[i].config);
        CHECK(aril_bert_load(temp_path(""), (aril_bert_opts){ .no_pooler = true }) == NULL);
        CHECK_MSG(strstr(aril_error(), wrong[i].says), "%s: %s", wrong[i].config, aril_error());
        aril_clear_error();
    }
}

/* ---- out of memory ---- */

TEST(every_allocation_may_fail)
{
    write_text("config.json", config);
    save("model.safetensors", true, false, 4096);
    int64_t n = 1;
    for (int times = 0; times < 20000; times++, n += 1 + n / 20) {
        aril_fail_allocation(n);
        aril_module *m = aril_bert_load(temp_path(""), (aril_bert_opts){ 0 });
        bool failed = aril_allocation_failed();
        aril_fail_allocation(0);
        bool good = m && aril_ok();
        aril_module_release(m);
        CHECK_MSG(good || failed, "%s", aril_error());
        aril_clear_error();
        if (!failed) break;
    }
    CHECK(n > 100);
}
