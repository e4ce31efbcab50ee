/* Generating: what a decoder remembers changes no token; searches, drawing, options, files. */
#include "aril/aril.h"
#include "support/temp.h"
#include "support/test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { VOCABULARY = 61, CONTEXT = 40, NEW = 12 };

static const aril_gpt2_opts small = {
    .vocabulary = VOCABULARY, .context = CONTEXT, .width = 32, .heads = 4, .layers = 2
};

/* A GPT-2 whose scores differ clearly. */
static aril_module *network(void)
{
    aril_seed(5);
    aril_module *m = aril_gpt2(small);
    const aril_named *p = aril_parameters(m);
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    for (int i = 0; i < p->n; i++)
        if (aril_ndim(p->at[i]) == 2) aril_mul_scalar_(p->at[i], 6);
    aril_module_eval(m);
    return m;
}

static aril_tensor *prompt_of(int64_t first, int64_t n)
{
    int64_t id[CONTEXT + 1];
    for (int64_t i = 0; i < n; i++) id[i] = (first + i * 7) % VOCABULARY;
    return aril_from(id, ARIL_SHAPE(n), ARIL_I64, aril_cpu());
}

/* Greedy search without a decoder: the whole sequence is read for each token. */
static void slowly(aril_module *m, aril_tensor *prompt, int n, int64_t *out)
{
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    aril_tensor *x = aril_unsqueeze(prompt, 0);
    for (int i = 0; i < n; i++) {
        aril_tensor *y = aril_select(aril_select(aril_forward(m, x), 1, -1), 0, 0);
        out[i] = aril_item_int(aril_argmax(y, ARIL_ALL));
        aril_tensor *next = aril_from(&out[i], ARIL_SHAPE(1, 1), ARIL_I64, aril_cpu());
        x = aril_cat(ARIL_LIST(x, next), 1);
    }
}

static bool is(aril_tensor *t, const int64_t *id, int64_t n)
{
    const int64_t *got = aril_data(t);
    return got && aril_numel(t) == n && memcmp(got, id, (size_t)n * sizeof *id) == 0;
}

TEST(a_cache_changes_no_token)
{
    ARIL_SCOPE;
    aril_module *m = network();
    aril_decoder *d = aril_gpt2_decoder(m);
    aril_tensor *prompt[] = { prompt_of(3, 4), prompt_of(10, 9), prompt_of(1, 1), prompt_of(8, 4) };
    aril_tensor *out[4];
    int64_t want[4][NEW];
    aril_generate_opts o = { .max_tokens = NEW };
    for (int i = 0; i < 4; i++) {
        slowly(m, prompt[i], NEW, want[i]);
        CHECK_INT(aril_generate(d, ARIL_LIST(prompt[i]), o, out), ARIL_OK);
        CHECK_MSG(is(out[0], want[i], NEW), "prompt %d alone", i);
    }
    CHECK_INT(aril_generate(d, (aril_list){ 4, prompt }, o, out), ARIL_OK);
    for (int i = 0; i < 4; i++) CHECK_MSG(is(out[i], want[i], NEW), "prompt %d of four", i);
    CHECK_INT(aril_generate(d, ARIL_LIST(prompt[0], prompt[3]), o, out), ARIL_OK);
    CHECK(is(out[0], want[0], NEW) && is(out[1], want[3], NEW));
    aril_module_release(m); /* the decoder keeps it */
    CHECK_INT(aril_generate(d, ARIL_LIST(prompt[1]), o, out), ARIL_OK);
    CHECK(is(out[0], want[1], NEW));
    aril_decoder_free(d);
    CHECK(aril_ok());
}

typedef struct heard {
    int64_t token[4][NEW];
    int n[4], most;
} heard;

static bool hear(void *ctx, int64_t sequence, int64_t token)
{
    heard *h = ctx;
    h->token[sequence][h->n[sequence]++] = token;
    return !h->most || h->n[sequence] < h->most;
}

TEST(sequences_end_at_stop_tokens_and_when_told)
{
    ARIL_SCOPE;
    aril_module *m = network();
    aril_decoder *d = aril_gpt2_decoder(m);
    aril_tensor *prompt[] = { prompt_of(3, 4), prompt_of(10, 9), prompt_of(1, 1) }, *out[3];
    int64_t want[3][NEW], n[3];
    for (int i = 0; i < 3; i++) slowly(m, prompt[i], NEW, want[i]);
    const int64_t stop[] = { want[0][5], want[1][2] };
    for (int i = 0; i < 3; i++)
        for (n[i] = 1; n[i] < NEW; n[i]++)
            if (want[i][n[i] - 1] == stop[0] || want[i][n[i] - 1] == stop[1]) break;
    heard h = { .n = { 0 } };
    aril_generate_opts o = {
        .max_tokens = NEW, .stop = stop, .n_stop = 2, .on_token = hear, .ctx = &h
    };
    CHECK_INT(aril_generate(d, (aril_list){ 3, prompt }, o, out), ARIL_OK);
    for (int i = 0; i < 3; i++) {
        CHECK_MSG(is(out[i], want[i], n[i]), "prompt %d", i);
        CHECK(h.n[i] == n[i] && memcmp(h.token[i], want[i], (size_t)n[i] * 8) == 0);
    }
    CHECK(n[0] <= 6 && n[1] <= 3);
    h = (heard){ .most = 2 };
    o.n_stop = 0;
    CHECK_INT(aril_generate(d, (aril_list){ 3, prompt }, o, out), ARIL_OK);
    for (int i = 0; i < 3; i++) CHECK(is(out[i], want[i], 2));
    aril_decoder_free(d);
    aril_module_release(m);
}

TEST(positions_end_a_sequence)
{
    ARIL_SCOPE;
    aril_module *m = network();
    aril_decoder *d = aril_gpt2_decoder(m);
    aril_tensor *out;
    CHECK_INT(aril_generate(d, ARIL_LIST(prompt_of(0, CONTEXT - 3)), (aril_generate_opts){ 0 },
                            &out),
              ARIL_OK);
    CHECK_INT(aril_numel(out), 4); /* the last one is not read */
    CHECK_INT(aril_generate(d, ARIL_LIST(prompt_of(0, CONTEXT)), (aril_generate_opts){ 0 }, &out),
              ARIL_OK);
    CHECK_INT(aril_numel(out), 1);
    CHECK(aril_generate(d, ARIL_LIST(prompt_of(0, CONTEXT + 1)), (aril_generate_opts){ 0 }, &out) <
          0);
    CHECK(strstr(aril_error(), "40 positions"));
    CHECK(aril_tensor_status(out) < 0);
    aril_clear_error();
    aril_decoder_free(d);
    aril_module_release(m);
}

TEST(drawing_repeats_with_the_seed)
{
    ARIL_SCOPE;
    aril_module *m = network();
    aril_decoder *d = aril_gpt2_decoder(m);
    aril_generator *g = aril_generator_new(9);
    aril_tensor *p = prompt_of(3, 4), *q = prompt_of(20, 6), *a[6], *b[6];
    double score[6];
    aril_generate_opts o = { .max_tokens = NEW,
                             .temperature = 2,
                             .top_k = 20,
                             .top_p = 0.95,
                             .results = 3,
                             .generator = g,
                             .scores = score };
    CHECK_INT(aril_generate(d, ARIL_LIST(p, q), o, a), ARIL_OK);
    CHECK_INT(aril_generator_state(g).calls, NEW);
    aril_generator_seed(g, 9);
    CHECK_INT(aril_generate(d, ARIL_LIST(p, q), o, b), ARIL_OK);
    for (int i = 0; i < 6; i++) {
        CHECK(is(a[i], aril_data(b[i]), NEW));
        CHECK(score[i] < 0 && isfinite(score[i]));
    }
    CHECK(!is(a[0], aril_data(a[1]), NEW));
    CHECK_INT(aril_generate(d, ARIL_LIST(p, q), o, b), ARIL_OK);
    CHECK(!is(a[0], aril_data(b[0]), NEW)); /* the generator has moved on */
    int64_t want[NEW];
    slowly(m, p, NEW, want);
    o = (aril_generate_opts){ .max_tokens = NEW, .temperature = 3, .top_k = 1 };
    CHECK_INT(aril_generate(d, ARIL_LIST(p), o, a), ARIL_OK);
    CHECK(is(a[0], want, NEW));
    o = (aril_generate_opts){ .max_tokens = NEW, .temperature = 3, .top_p = 1e-9 };
    CHECK_INT(aril_generate(d, ARIL_LIST(p), o, a), ARIL_OK);
    CHECK(is(a[0], want, NEW));
    aril_generator_free(g);
    aril_decoder_free(d);
    aril_module_release(m);
}

/* The sum of the log probabilities of new tokens. */
static double log_probability(aril_module *m, aril_tensor *prompt, aril_tensor *new)
{
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    int64_t t = aril_numel(prompt), n = aril_numel(new);
    aril_tensor *x = aril_unsqueeze(aril_cat(ARIL_LIST(prompt, new), 0), 0);
    aril_tensor *y = aril_log_softmax(aril_forward(m, x), -1);        /* [1,t + n,V] */
    aril_tensor *of = aril_narrow(aril_select(y, 0, 0), 0, t - 1, n); /* [n,V] */
    return aril_item(aril_sum(aril_gather(of, aril_unsqueeze(new, 1), 1), ARIL_ALL));
}

TEST(beams_find_what_is_more_likely)
{
    ARIL_SCOPE;
    aril_module *m = network();
    aril_decoder *d = aril_gpt2_decoder(m);
    aril_tensor *prompt[] = { prompt_of(3, 4), prompt_of(10, 9), prompt_of(1, 1) };
    aril_tensor *greedy[3], *best[6];
    double alone[3], score[6];
    aril_generate_opts o = { .max_tokens = NEW, .scores = alone };
    CHECK_INT(aril_generate(d, (aril_list){ 3, prompt }, o, greedy), ARIL_OK);
    o = (aril_generate_opts){ .max_tokens = NEW, .beams = 1, .scores = score };
    CHECK_INT(aril_generate(d, (aril_list){ 3, prompt }, o, best), ARIL_OK);
    for (int i = 0; i < 3; i++) {
        CHECK(is(best[i], aril_data(greedy[i]), NEW)); /* one beam is greedy search */
        CHECK_NEAR(score[i], alone[i] / NEW, 1e-4);
        CHECK_NEAR(alone[i], log_probability(m, prompt[i], greedy[i]), 1e-3);
    }
    o = (aril_generate_opts){ .max_tokens = NEW, .beams = 5, .results = 2, .scores = score };
    o.length_penalty = ARIL_ZERO;
    CHECK_INT(aril_generate(d, (aril_list){ 3, prompt }, o, best), ARIL_OK);
    for (int i = 0; i < 3; i++) {
        CHECK(score[2 * i] >= alone[i] - 1e-4 && score[2 * i] >= score[2 * i + 1]);
        for (int k = 0; k < 2; k++)
            CHECK_NEAR(score[2 * i + k], log_probability(m, prompt[i], best[2 * i + k]), 1e-3);
        CHECK(!is(best[2 * i], aril_data(best[2 * i + 1]), NEW));
    }
    aril_decoder_free(d);
    aril_module_release(m);
}

TEST(repetition_is_penalized)
{
    ARIL_SCOPE;
    aril_module *m = network();
    aril_decoder *d = aril_gpt2_decoder(m);
    aril_tensor *out;
    aril_generate_opts o = { .max_tokens = NEW, .repetition_penalty = 1e6 };
    CHECK_INT(aril_generate(d, ARIL_LIST(prompt_of(3, 4)), o, &out), ARIL_OK);
    const int64_t *id = aril_data(out);
    for (int i = 0; i < NEW; i++)
        for (int k = 0; k < i; k++) CHECK(id[i] != id[k]);
    aril_decoder_free(d);
    aril_module_release(m);
}

TEST(wrong_options_are_errors)
{
    ARIL_SCOPE;
    aril_module *m = network();
    aril_decoder *d = aril_gpt2_decoder(m);
    aril_tensor *p = prompt_of(3, 4), *out[4], *empty = prompt_of(0, 0);
    static const struct {
        aril_generate_opts o;
        const char *says;
    } wrong[] = {
        { { .max_tokens = -1 }, "positive max_tokens" },
        { { .temperature = -1 }, "temperature" },
        { { .temperature = NAN }, "temperature" },
        { { .temperature = 1, .top_p = 2 }, "top_p" },
        { { .top_k = 5 }, "expected a .temperature" },
        { { .beams = 2, .temperature = 1 }, "draws nothing" },
        { { .beams = 2, .results = 3 }, "as many results as beams" },
        { { .results = 3 }, "several results" },
        { { .n_stop = 1 }, "n_stop" },
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CHECK(aril_generate(d, ARIL_LIST(p), wrong[i].o, out) < 0);
        CHECK_MSG(strstr(aril_error(), wrong[i].says), "%s", aril_error());
        aril_clear_error();
    }
    CHECK(aril_generate(d, ARIL_LIST(empty), (aril_generate_opts){ 0 }, out) < 0);
    CHECK(strstr(aril_error(), "[T], T >= 1"));
    aril_clear_error();
    CHECK(aril_generate(NULL, ARIL_LIST(p), (aril_generate_opts){ 0 }, out) < 0);
    aril_clear_error();
    aril_module *linear = aril_nn_linear(2, 2);
    CHECK(aril_gpt2_decoder(linear) == NULL);
    CHECK(strstr(aril_error(), "expected a GPT2, got Linear"));
    aril_clear_error();
    CHECK(aril_gpt2((aril_gpt2_opts){ .width = 30, .heads = 4 }) == NULL);
    CHECK(strstr(aril_error(), "cannot be divided"));
    aril_clear_error();
    CHECK(aril_gpt2((aril_gpt2_opts){ .eps = NAN }) == NULL);
    CHECK_MSG(strstr(aril_error(), "eps must be finite"), "%s", aril_error());
    aril_clear_error();
    aril_module_release(linear);
    aril_decoder_free(d);
    aril_module_release(m);
}

/* ---- recurrent networks, captions ---- */

TEST(a_recurrent_network_is_a_decoder)
{
    ARIL_SCOPE;
    aril_seed(2);
    aril_module *m = aril_zoo_make("char_rnn", (aril_zoo_opts){ .classes = VOCABULARY });
    aril_module_eval(m);
    CHECK_INT(aril_parameter_count(m),
              VOCABULARY * 64 + 4 * 256 * (64 + 256 + 2) + 4 * 256 * (512 + 2) + VOCABULARY * 257);
    aril_decoder *d = aril_rnn_decoder(m, 2);
    aril_tensor *prompt[] = { prompt_of(3, 4), prompt_of(10, 9), prompt_of(1, 1) }, *out[3];
    int64_t want[3][NEW];
    for (int i = 0; i < 3; i++) slowly(m, prompt[i], NEW, want[i]);
    CHECK_INT(aril_generate(d, (aril_list){ 3, prompt }, (aril_generate_opts){ .max_tokens = NEW },
                            out),
              ARIL_OK);
    for (int i = 0; i < 3; i++) CHECK_MSG(is(out[i], want[i], NEW), "prompt %d", i);
    CHECK_INT(aril_generate(d, (aril_list){ 3, prompt },
                            (aril_generate_opts){ .max_tokens = NEW, .beams = 3 }, out),
              ARIL_OK);
    aril_decoder_free(d);
    aril_module_release(m);
    CHECK(aril_ok());
}

TEST(a_captioner_describes_each_image)
{
    ARIL_SCOPE;
    aril_seed(2);
    aril_module *m = aril_zoo_make("captioner", (aril_zoo_opts){ .input = ARIL_SHAPE(3, 32, 32),
                                                                 .classes = 20 });
    CHECK_MSG(m, "%s", aril_error());
    aril_module_eval(m);
    aril_tensor *x = aril_randn(ARIL_SHAPE(2, 3, 32, 32), ARIL_F32, aril_cpu());
    aril_tensor *begin = aril_zeros(ARIL_SHAPE(1), ARIL_I64, aril_cpu()), *out[3];
    aril_decoder *d = aril_captioner_decoder(m, x);
    aril_generate_opts o = { .max_tokens = 6 };
    CHECK_INT(aril_generate(d, ARIL_LIST(begin, begin), o, out), ARIL_OK);
    for (int i = 0; i < 2; i++) { /* the same by whole descriptions */
        aril_tensor *tokens = aril_cat(ARIL_LIST(begin, out[i]), 0);
        aril_tensor *y =
            aril_forward_n(m, ARIL_LIST(aril_narrow(x, 0, i, 1), aril_unsqueeze(tokens, 0)));
        aril_tensor *best = aril_narrow(aril_select(aril_argmax(y, ARIL_AXES(2)), 0, 0), 0, 0, 6);
        CHECK(is(out[i], aril_data(best), 6));
    }
    o.beams = 3;
    CHECK_INT(aril_generate(d, ARIL_LIST(begin, begin), o, out), ARIL_OK);
    CHECK(aril_generate(d, ARIL_LIST(begin, begin, begin), (aril_generate_opts){ 0 }, out) < 0);
    CHECK(strstr(aril_error(), "first states for 2 sequences"));
    aril_clear_error();
    CHECK(aril_captioner_decoder(m, NULL) == NULL);
    aril_clear_error();
    aril_decoder_free(d);
    aril_module_release(m);
}

/* ---- files ---- */

static void write_text(const char *name, const char *text)
{
    FILE *f = fopen(temp_path(name), "wb");
    fputs(text, f);
    fclose(f);
}

static const char config[] = "{\"model_type\":\"gpt2\",\"vocab_size\":61,\"n_positions\":40,"
                             "\"n_ctx\":40,\"n_embd\":32,\"n_head\":4,\"n_layer\":2,"
                             "\"n_inner\":null,\"activation_function\":\"gelu_new\","
                             "\"layer_norm_epsilon\":1e-05,\"tie_word_embeddings\":true}";

/* Saves a network under the names of published files. */
static aril_module *saved(const char *path, const char *prefix, bool extra)
{
    aril_module *m = network();
    const aril_named *s = aril_state(m);
    char names[64][64];
    const char *name[64];
    aril_tensor *at[64];
    ARIL_SCOPE;
    for (int i = 0; i < s->n; i++) {
        snprintf(names[i], sizeof names[i], "%s%s", prefix, s->name[i]);
        name[i] = names[i];
        at[i] = s->at[i];
    }
    int n = s->n;
    if (extra) {
        name[n] = "h.0.attn.bias";
        at[n++] = aril_zeros(ARIL_SHAPE(1, 1, 4, 4), ARIL_F32, aril_cpu());
        name[n] = "lm_head.weight";
        at[n++] = at[0];
    }
    aril_safetensors_save(temp_path(path), &(aril_named){ n, at, name }, NULL);
    return m;
}

TEST(a_folder_holds_a_network)
{
    ARIL_SCOPE;
    static const char *const prefix[] = { "", "transformer." };
    write_text("config.json", config);
    for (int i = 0; i < 2; i++) {
        aril_module *m = saved("model.safetensors", prefix[i], i == 1);
        aril_module *read = aril_gpt2_load(temp_path(""));
        CHECK_MSG(read, "%s", aril_error());
        CHECK(!aril_module_training(read));
        aril_tensor *x = aril_unsqueeze(prompt_of(3, 9), 0);
        CHECK(aril_allclose(aril_forward(m, x), aril_forward(read, x), (aril_close_opts){ 0 }));
        CHECK_INT(aril_parameter_count(read), aril_parameter_count(m));
        aril_module_release(m);
        aril_module_release(read);
    }
    CHECK(aril_ok());
}

/* In parts with an index, and as PyTorch writes them. */
TEST(a_folder_holds_a_network_in_parts)
{
    ARIL_SCOPE;
    static const struct {
        const char *file, *index;
        int64_t part;
    } rows[] = { { "model.safetensors", "model.safetensors.index.json", 8192 },
                 { "pytorch_model.bin", "pytorch_model.bin.index.json", 8192 },
                 { "pytorch_model.bin", "pytorch_model.bin", 0 } };
    write_text("config.json", config);
    aril_module *m = network();
    aril_tensor *x = aril_unsqueeze(prompt_of(3, 9), 0);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        CHECK_INT(aril_weights_save(temp_path(rows[i].file), aril_state(m),
                                    (aril_weights_save_opts){ .max_part = rows[i].part }),
                  ARIL_OK);
        aril_module *read = aril_gpt2_load(temp_path(""));
        CHECK_MSG(read, "%s: %s", rows[i].index, aril_error());
        CHECK(aril_allclose(aril_forward(m, x), aril_forward(read, x), (aril_close_opts){ 0 }));
        aril_module_release(read);
        CHECK_INT(remove(temp_path(rows[i].index)), 0);
    }
    aril_module_release(m);
    CHECK(aril_ok());
}

TEST(what_does_not_fit_is_refused)
{
    ARIL_SCOPE;
    static const struct {
        const char *config, *says;
    } wrong[] = {
        { "{\"model_type\":\"llama\"}", "expected model_type \"gpt2\" of a GPT-2, got \"llama\"" },
        { "{\"n_layer\":0}", "a size from 1" },
        { "{\"n_layer\":99999999999}", "a size from 1" },
        { "{\"n_layer\":600}", "layers must be from 1 to 500" },
        { "{\"n_layer\":", "a number was expected" },
        { "{\"activation_function\":\"relu\"}", "activation_function" },
        { "{\"tie_word_embeddings\":false}", "tie_word_embeddings" },
        { "{\"vocab_size\":61,\"n_positions\":40,\"n_embd\":16,\"n_head\":4,\"n_layer\":2}",
          "expected [61,16] by config.json" },
        /* Sizes of config.json take no memory before the weights are compared. */
        { "{\"vocab_size\":16777216,\"n_positions\":40,\"n_embd\":16777216,\"n_inner\":8,\"n_"
          "head\":4,"
          "\"n_layer\":500}",
          "expected [16777216,16777216] by config.json" },
        { "{\"layer_norm_epsilon\":1e999}", "layer_norm_epsilon: a" },
        { "{\"layer_norm_epsilon\":-1}",
          "layer_norm_epsilon: a finite number that is not negative" },
        { "{\"vocab_size\":61,\"n_positions\":40,\"n_embd\":32,\"n_head\":4,\"n_layer\":3}",
          "has no tensor h.2." },
        { "{\"vocab_size\":61,\"n_positions\":40,\"n_embd\":32,\"n_head\":4,\"n_layer\":1}",
          "no place for the tensor h.1." },
    };
    aril_module *m = saved("model.safetensors", "", false);
    aril_module_release(m);
    CHECK(aril_gpt2_load(temp_path("")) == NULL);
    CHECK_INT(aril_error_code(), ARIL_ERR_IO);
    aril_clear_error();
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        write_text("config.json", wrong[i].config);
        CHECK_MSG(aril_gpt2_load(temp_path("")) == NULL, "%s", wrong[i].config);
        CHECK_MSG(strstr(aril_error(), wrong[i].says), "%s: %s", wrong[i].config, aril_error());
        aril_clear_error();
    }
}

/* ---- out of memory ---- */

static bool generate_all(aril_module *m)
{
    ARIL_SCOPE;
    aril_decoder *d = aril_gpt2_decoder(m);
    aril_tensor *p = prompt_of(3, 4), *q = prompt_of(10, 2), *out[4];
    aril_status s = d ? ARIL_OK : ARIL_ERR_MEMORY;
    if (s == ARIL_OK)
        s = aril_generate(d, ARIL_LIST(p, q),
                          (aril_generate_opts){ .max_tokens = 3, .temperature = 1, .results = 2 },
                          out);
    if (s == ARIL_OK)
        s = aril_generate(d, ARIL_LIST(p, q), (aril_generate_opts){ .max_tokens = 3, .beams = 2 },
                          out);
    aril_decoder_free(d);
    return s == ARIL_OK && aril_ok();
}

TEST(every_allocation_may_fail)
{
    aril_module *m = network();
    CHECK(generate_all(m));
    int64_t n = 1;
    for (int times = 0; times < 20000; times++, n += 1 + n / 40) {
        aril_fail_allocation(n);
        bool good = generate_all(m), failed = aril_allocation_failed();
        aril_fail_allocation(0);
        if (!failed) {
            CHECK(good);
            break;
        }
        CHECK_MSG(good || aril_error_code() == ARIL_ERR_MEMORY, "allocation %lld: %s", (long long)n,
                  aril_error());
        aril_clear_error();
    }
    CHECK(generate_all(m));
    aril_module_release(m);
}
