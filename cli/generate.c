/* aril generate: continues a text by a GPT-2. */
#include "commands.h"

#include <aril/aril.h>

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct options {
    const char *prompt, *file, *device;
    int64_t tokens, top_k, beams, results, seed, threads;
    double temperature, top_p, penalty, length_penalty;
    bool only_new, ignore_end, early;
} options;

/* ---- output ---- */

/* Prints text as it is where a program reads it. On a terminal, all control characters but newlines
 * and tabs are escaped: a text may contain anything. */
static void print_generated(const char *text)
{
    if (!isatty(STDOUT_FILENO)) {
        fputs(text, stdout);
        return;
    }
    while (*text) {
        char part[1024];
        size_t n = strcspn(text, "\n\t");
        if (n > sizeof part - 1) { /* between two characters */
            n = sizeof part - 1;
            while (n > sizeof part - 5 && ((unsigned char)text[n] & 0xC0) == 0x80) n--;
        }
        memcpy(part, text, n);
        part[n] = '\0';
        print_text(stdout, part);
        text += n;
        if (*text == '\n' || *text == '\t') putchar(*text++);
    }
    fflush(stdout);
}

/* A text that is printed as its tokens arrive. */
typedef struct printing {
    aril_text_stream *stream;
    bool failed;
} printing;

static bool print_token(void *ctx, int64_t sequence, int64_t token)
{
    printing *p = ctx;
    (void)sequence;
    const char *text = aril_text_stream_add(p->stream, token);
    if (!text) {
        p->failed = true;
        return false;
    }
    print_generated(text);
    return true;
}

static bool print_result(const aril_tokenizer *t, const char *prompt, aril_tensor *ids, int64_t row,
                         int64_t rows)
{
    char *text = aril_tokenizer_decode(t, ids, (aril_decode_opts){ .skip_special = true });
    if (!text) return false;
    if (rows > 1) printf("%s--- %lld ---\n", row ? "\n" : "", (long long)row + 1);
    if (prompt) print_generated(prompt);
    print_generated(text);
    puts("");
    free(text);
    return true;
}

/* ---- input ---- */

/* The prompt; the caller frees it. NULL after an error. */
static char *read_prompt(const options *o, size_t *size)
{
    if (!o->file) {
        const char *text = o->prompt ? o->prompt : "";
        *size = strlen(text);
        char *copy = malloc(*size + 1);
        if (copy) memcpy(copy, text, *size + 1);
        if (!copy) aril_fail(ARIL_ERR_MEMORY, "out of memory for the prompt");
        return copy;
    }
    FILE *f = strcmp(o->file, "-") == 0 ? stdin : fopen(o->file, "rb");
    char *text = NULL;
    *size = 0;
    for (size_t room = 4096; f; room *= 2) {
        char *more = realloc(text, room + 1);
        if (!more) {
            free(text);
            text = NULL;
            aril_fail(ARIL_ERR_MEMORY, "out of memory for the prompt");
            break;
        }
        text = more;
        *size += fread(text + *size, 1, room - *size, f);
        text[*size] = '\0';
        if (*size < room) break;
    }
    if (!f || ferror(f)) {
        aril_fail(ARIL_ERR_IO, "%s cannot be read", o->file);
        free(text);
        text = NULL;
    }
    if (f && f != stdin) fclose(f);
    return text;
}

/* The tokens of the prompt: i64 [n]. Without a prompt, the text begins behind another one. */
static aril_tensor *prompt_tokens(const aril_tokenizer *t, const char *text, size_t size,
                                  int64_t end)
{
    if (size > 0) return aril_tokenizer_encode(t, text, (aril_encode_opts){ .size = size });
    if (end < 0) aril_fail(ARIL_ERR_ARG, "expected --prompt: the tokenizer has no <|endoftext|>");
    return aril_from(&end, ARIL_SHAPE(1), ARIL_I64, aril_cpu());
}

/* ---- the command ---- */

static void generate(aril_module *net, const aril_tokenizer *t, const char *text, size_t size,
                     const options *o)
{
    ARIL_SCOPE;
    int64_t end = aril_tokenizer_id(t, "<|endoftext|>");
    aril_tensor *prompt = prompt_tokens(t, text, size, end);
    aril_tensor *out[1024];
    bool stream = o->results == 1 && !o->beams;
    printing p = { .stream = aril_text_stream_new(t, (aril_decode_opts){ .skip_special = true }) };
    aril_decoder *d = aril_ok() ? aril_gpt2_decoder(net) : NULL;
    if (stream && d && !o->only_new) print_generated(text);
    if (d && p.stream)
        aril_generate(d, ARIL_LIST(prompt),
                      (aril_generate_opts){ .max_tokens = o->tokens,
                                            .temperature = o->temperature,
                                            .top_k = o->top_k,
                                            .top_p = o->top_p,
                                            .repetition_penalty = o->penalty,
                                            .beams = o->beams,
                                            .length_penalty = o->length_penalty,
                                            .early_stopping = o->early,
                                            .results = o->results,
                                            .stop = &end,
                                            .n_stop = end >= 0 && !o->ignore_end,
                                            .on_token = stream ? print_token : NULL,
                                            .ctx = &p },
                      out);
    if (stream && aril_ok()) {
        const char *rest = aril_text_stream_end(p.stream);
        if (rest) print_generated(rest);
        puts("");
    }
    for (int64_t i = 0; i < o->results && !stream && aril_ok(); i++)
        print_result(t, o->only_new ? NULL : text, out[i], i, o->results);
    aril_text_stream_free(p.stream);
    aril_decoder_free(d);
}

/* ---- models ---- */

/* The network of the zoo that a model names, unless it is a path. */
static const aril_zoo_entry *zoo_entry(const char *model)
{
    if (strchr(model, '/') || access(model, F_OK) == 0) return NULL;
    for (int i = 0; i < aril_zoo_count(); i++)
        if (strcmp(aril_zoo_at(i)->name, model) == 0) return aril_zoo_at(i);
    return NULL;
}

/* A network and its tokenizer: a folder, or published files in the cache. False after an error. */
static bool load(const char *model, aril_module **net, aril_tokenizer **t)
{
    const aril_zoo_entry *e = zoo_entry(model);
    if (!e) {
        *t = aril_tokenizer_load(model);
        *net = *t ? aril_gpt2_load(model) : NULL;
        return *net != NULL;
    }
    char folder[4096];
    if (!e->generates) {
        aril_fail(ARIL_ERR_ARG,
                  "%s is no language model; expected gpt2, gpt2-medium, gpt2-large, gpt2-xl, or a "
                  "folder of one as on Hugging Face",
                  e->name);
        return false;
    }
    *net = aril_zoo_make(e->name, (aril_zoo_opts){ .weights = "default" });
    if (!*net || !aril_zoo_weights_path(e, folder, sizeof folder)) return false;
    char *slash = strrchr(folder, '/');
    if (slash) *slash = '\0';
    aril_module_eval(*net);
    *t = aril_tokenizer_load(folder);
    return *t != NULL;
}

static int run(void *values, int n, char **argument)
{
    const options *o = values;
    (void)n;
    use_threads(o->threads);
    if (!check_device(o->device)) {
        report("generate");
        return EXIT_USAGE;
    }
    aril_seed((uint64_t)o->seed);
    size_t size = 0;
    char *text = read_prompt(o, &size);
    aril_tokenizer *t = NULL;
    aril_module *net = NULL;
    bool good = text && load(argument[0], &net, &t);
    if (good && o->device) aril_module_to(net, device_option(o->device));
    if (good && aril_ok()) generate(net, t, text, size, o);
    aril_module_release(net);
    aril_tokenizer_free(t);
    free(text);
    return aril_ok() ? EXIT_DONE : report("generate");
}

static const option table[] = {
    { .name = "prompt",
      .value = "TEXT",
      .kind = OPTION_STRING,
      OPTION_AT(prompt),
      .may_be_empty = true,
      .help = "the text to continue; without one, or with \"\", a new text begins" },
    { .name = "prompt-file",
      .value = "FILE",
      .kind = OPTION_FILE,
      OPTION_AT(file),
      .help = "read the text to continue from a file, or from the standard input (-)" },
    { .name = "max-tokens",
      .value = "N",
      .kind = OPTION_INTEGER,
      OPTION_AT(tokens),
      .min = 1,
      .help = "new tokens, at most" },
    { .name = "temperature",
      .value = "T",
      .kind = OPTION_FLOAT,
      OPTION_AT(temperature),
      .by_default = "0: always the most likely token",
      .help = "draw tokens with the probabilities softmax(scores / T)" },
    { .name = "top-k",
      .value = "K",
      .kind = OPTION_INTEGER,
      OPTION_AT(top_k),
      .help = "draw among the K most likely tokens" },
    { .name = "top-p",
      .value = "P",
      .kind = OPTION_FLOAT,
      OPTION_AT(top_p),
      .max = 1,
      .help = "draw among the fewest tokens whose probabilities sum to P" },
    { .name = "repetition-penalty",
      .value = "X",
      .kind = OPTION_FLOAT,
      OPTION_AT(penalty),
      .help = "make tokens that occurred less likely, if above 1" },
    { .name = "beams",
      .value = "N",
      .kind = OPTION_INTEGER,
      OPTION_AT(beams),
      .max = 1024,
      .help = "search for the most likely text, keeping the N best in each step" },
    { .name = "length-penalty",
      .value = "X",
      .kind = OPTION_FLOAT,
      OPTION_AT(length_penalty),
      .by_default = "1",
      .min = -100,
      .help = "rank beams by their log probability divided by length^X" },
    { .name = "early-stopping",
      OPTION_AT(early),
      .help = "end beam search as soon as N texts have ended" },
    { .name = "results",
      .value = "N",
      .kind = OPTION_INTEGER,
      OPTION_AT(results),
      .min = 1,
      .max = 1024,
      .help = "number of texts" },
    { .name = "ignore-end",
      OPTION_AT(ignore_end),
      .help = "continue behind the token that ends a text" },
    { .name = "only-new", OPTION_AT(only_new), .help = "do not print the prompt" },
    { .name = "seed",
      .value = "N",
      .kind = OPTION_INTEGER,
      OPTION_AT(seed),
      .by_default = "0",
      .help = "for drawing: the same seed gives the same text" },
    OPTION_THREADS,
    OPTION_DEVICE("device to compute on"),
    { 0 },
};

static const example examples[] = {
    { "aril generate gpt2 --prompt \"Once upon a time\"", "the most likely continuation" },
    { "aril generate gpt2 --prompt \"Dear\" --temperature 0.8 --top-k 40 --seed 7",
      "one that is drawn" },
    { "aril generate gpt2 --prompt-file story.txt --beams 4", "the best of four in each step" },
    { 0 },
};

const command command_generate = {
    .name = "generate",
    .summary = "continue a text by a language model",
    .arguments = "MODEL",
    .about =
        "MODEL is a GPT-2 of the zoo whose files `aril zoo get` downloaded, or a folder as Hugging "
        "Face has it: config.json, model.safetensors (or in parts, with its index), and "
        "tokenizer.json or vocab.json and merges.txt. Tokens are printed as they come, up to the "
        "token <|endoftext|>. With --beams or several --results, whole texts are printed at the "
        "end.",
    .options = table,
    .examples = examples,
    .size = sizeof(options),
    .defaults = &(const options){ .tokens = 100, .results = 1 },
    .min = 1,
    .max = 1,
    .run = run
};
