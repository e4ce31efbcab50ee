/* A character-level language model: an embedding, an LSTM and a linear layer over the characters of
 * a text, trained to predict the next one; at the end it generates text.
 *
 *     build/examples/char_rnn [TEXT [STEPS]]
 *
 * TEXT is any text file; by default tiny Shakespeare below $ARIL_TEST_DATA. */
#include <aril/aril.h>

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SYMBOLS = 256, BATCH = 32, LENGTH = 96, EMBED = 64, HIDDEN = 256, LAYERS = 2 };

/* ---- the text, with its characters as numbers ---- */

typedef struct text {
    aril_tensor *letters; /* [n] i64: index in the alphabet */
    int64_t n, alphabet;
    unsigned char symbol[SYMBOLS]; /* character of each index */
    int number[SYMBOLS];           /* index of each character; -1: it does not occur */
} text;

static bool text_read(const char *path, text *t)
{
    FILE *f = fopen(path, "rb");
    if (!f) return false;
    size_t cap = 1 << 24;
    unsigned char *bytes = malloc(cap);
    int64_t *numbers = malloc(cap * sizeof *numbers);
    t->n = bytes && numbers ? (int64_t)fread(bytes, 1, cap, f) : 0;
    fclose(f);
    bool seen[SYMBOLS] = { false };
    for (int64_t i = 0; i < t->n; i++) seen[bytes[i]] = true;
    t->alphabet = 0;
    for (int s = 0; s < SYMBOLS; s++) {
        t->number[s] = seen[s] ? (int)t->alphabet : -1;
        if (seen[s]) t->symbol[t->alphabet++] = (unsigned char)s;
    }
    for (int64_t i = 0; i < t->n; i++) numbers[i] = t->number[bytes[i]];
    t->letters = aril_keep(aril_from(numbers, ARIL_SHAPE(t->n), ARIL_I64, aril_cpu()));
    free(bytes);
    free(numbers);
    return t->n > LENGTH + 1;
}

/* BATCH random pieces: x [BATCH,LENGTH], and y, the next character for each position. */
static void text_batch(const text *t, aril_tensor **x, aril_tensor **y)
{
    aril_device cpu = aril_cpu();
    aril_tensor *start = aril_randint(0, t->n - LENGTH - 1, ARIL_SHAPE(BATCH, 1), ARIL_I64, cpu);
    aril_tensor *at = aril_add(start, aril_arange(0, LENGTH + 1, 1, ARIL_I64, cpu));
    aril_tensor *piece = aril_take(t->letters, at); /* [BATCH,LENGTH + 1] */
    *x = aril_slice(piece, 1, 0, LENGTH, 1);
    *y = aril_slice(piece, 1, 1, LENGTH + 1, 1);
}

/* ---- the network: characters [N,T] and initial states to scores [N,T,alphabet] and final states
 * ---- */

typedef struct char_rnn {
    aril_module *embedding, *lstm, *linear;
} char_rnn;

static void char_rnn_forward(aril_module *self, int n_in, aril_tensor *const *in, int n_out,
                             aril_tensor **out)
{
    const char_rnn *m = aril_module_data(self);
    aril_tensor *y[3];
    aril_tensor *x = aril_forward(m->embedding, in[0]); /* [N,T,EMBED] */
    aril_forward_all(m->lstm, ARIL_LIST(x, n_in > 1 ? in[1] : NULL, n_in > 2 ? in[2] : NULL), 3, y);
    out[0] = aril_forward(m->linear, y[0]);
    for (int i = 1; i < n_out; i++) out[i] = y[i];
}

static aril_module *char_rnn_new(int64_t alphabet)
{
    static const aril_module_class class = { .type = "CharRNN",
                                             .size = sizeof(char_rnn),
                                             .forward = char_rnn_forward,
                                             .inputs = 3,
                                             .outputs = 3 };
    aril_nn_rnn_opts opts = { .layers = LAYERS, .batch_first = true };
    aril_module *self = aril_module_make(&class);
    char_rnn *m = aril_module_data(self);
    m->embedding = aril_module_add(self, "embedding", aril_nn_embedding(alphabet, EMBED));
    m->lstm = aril_module_add(self, "lstm", aril_nn_lstm_with(EMBED, HIDDEN, opts));
    m->linear = aril_module_add(self, "linear", aril_nn_linear(HIDDEN, alphabet));
    return self;
}

/* ---- training and sampling ---- */

static void train(aril_module *model, const text *t, int steps)
{
    aril_optim *opt = aril_adam(aril_parameters(model), (aril_adam_opts){ .lr = 2e-3 });
    double sum = 0;
    int every = steps / 10 > 0 ? steps / 10 : 1;
    struct timespec t0, t1;
    timespec_get(&t0, TIME_UTC);
    for (int step = 1; step <= steps && aril_ok(); step++) {
        ARIL_SCOPE;
        aril_tensor *x, *y;
        text_batch(t, &x, &y);
        aril_tensor *scores = aril_forward(model, x); /* [BATCH,LENGTH,alphabet] */
        aril_tensor *loss = aril_cross_entropy(aril_flatten(scores, 0, 1), aril_flatten(y, 0, 1));
        aril_backward(loss);
        aril_step(opt);
        sum += aril_item(loss);
        if (step % every) continue;
        timespec_get(&t1, TIME_UTC);
        double took = (double)(t1.tv_sec - t0.tv_sec) + 1e-9 * (double)(t1.tv_nsec - t0.tv_nsec);
        printf("step %4d/%d  loss %.3f  %.0f characters/s\n", step, steps, sum / every,
               (double)step * BATCH * LENGTH / took);
        fflush(stdout);
        sum = 0;
    }
    aril_optim_free(opt);
}

/* Prints characters as they come. */
static bool print_letter(void *ctx, int64_t sequence, int64_t letter)
{
    const text *t = ctx;
    (void)sequence;
    putchar(t->symbol[letter]);
    return true;
}

/* Continues a prompt by `n` characters, drawn by the network's predictions. */
static void write_on(aril_module *model, text *t, const char *beginning, int n, double temperature)
{
    ARIL_SCOPE;
    int64_t letter[64], count = (int64_t)strlen(beginning);
    for (int64_t i = 0; i < count; i++) {
        int number = t->number[(unsigned char)beginning[i]];
        letter[i] = number < 0 ? 0 : number;
    }
    aril_tensor *prompt = aril_from(letter, ARIL_SHAPE(count), ARIL_I64, aril_cpu()), *out;
    aril_module_eval(model);
    aril_decoder *d = aril_rnn_decoder(model, 2); /* h and c go from step to step */
    fputs(beginning, stdout);
    aril_generate(d, ARIL_LIST(prompt),
                  (aril_generate_opts){ .max_tokens = n,
                                        .temperature = temperature,
                                        .on_token = print_letter,
                                        .ctx = t },
                  &out);
    putchar('\n');
    aril_decoder_free(d);
}

int main(int argc, char **argv)
{
    bool quick = getenv("ARIL_EXAMPLE_QUICK") != NULL;
    const char *data = getenv("ARIL_TEST_DATA");
    char path[4096];
    snprintf(path, sizeof path, "%s/text/tinyshakespeare/input.txt", data ? data : "data");
    if (argc > 1) snprintf(path, sizeof path, "%s", argv[1]);
    text t = { 0 };
    if (!text_read(path, &t)) {
        printf("%sexpected a text of at least %d characters in %s; char_rnn FILE reads any text "
               "file\n",
               quick ? "SKIP: " : "", LENGTH + 2, path);
        aril_release(t.letters);
        return quick ? 77 : 1;
    }
    int steps = argc > 2 ? atoi(argv[2]) : quick ? 20 : 1000;
    printf("%s: %lld characters, %lld distinct\n\n", path, (long long)t.n, (long long)t.alphabet);
    aril_seed(0);
    aril_module *model = char_rnn_new(t.alphabet);
    aril_summary_with(model, ARIL_SHAPE(LENGTH), stdout,
                      (aril_summary_opts){ .dtype = ARIL_I64, .batch = BATCH });
    putchar('\n');
    train(model, &t, steps);
    printf("\nGenerated text:\n\n");
    write_on(model, &t, "ROMEO:", quick ? 100 : 600, 0.8);
    aril_module_release(model);
    aril_release(t.letters);
    return aril_report(stderr);
}
