/* An image captioner, trained on scenes that are drawn as it learns: shapes of several kinds,
 * colors and sizes, in some of nine places. At the end it describes scenes whose descriptions it
 * has never seen, by beam search.
 *
 *     build/examples/captioner [STEPS [SCENES.png]]
 *     build/examples/captioner --small
 *
 * With a second argument, the last scenes it describes are written to a file. --small: scenes of
 * one object, learned in a tenth of the time. It fails if less than 95 % of the descriptions are
 * exact, unless it was told how long to learn. */
#include <aril/aril.h>

#include <stdlib.h>
#include <string.h>

enum { SIZE = 48, CELL = SIZE / 3, MOST = 3, LENGTH = 7 * MOST, BATCH = 64, TESTED = 500 };
enum { STEPS = 2500, SMALL_STEPS = 400, ENOUGH = 95 };

/* ---- words: number 0 begins and ends a description ---- */

static const char *const words[] = {
    "<>",     "a",      "and",    "small",  "large",  "red",    "green",    "blue",
    "yellow", "purple", "white",  "circle", "ring",   "square", "triangle", "cross",
    "top",    "middle", "bottom", "left",   "center", "right",
};
enum {
    END,
    A,
    AND,
    SIZES,
    COLORS = SIZES + 2,
    SHAPES = COLORS + 6,
    ROWS = SHAPES + 5,
    COLUMNS = ROWS + 3,
    WORDS = COLUMNS + 3
};

static const float colors[6][3] = { { .9f, .1f, .1f }, { .1f, .8f, .2f }, { .2f, .3f, 1 },
                                    { .9f, .9f, .1f }, { .7f, .2f, .9f }, { 1, 1, 1 } };

/* ---- scenes ---- */

static uint64_t state;
static int most = MOST; /* objects in a scene */

static int random_below(int n)
{
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (int)((state >> 33) % (uint64_t)n);
}

static bool inside(int shape, float x, float y, float r)
{
    float d = x * x + y * y, ax = x < 0 ? -x : x, ay = y < 0 ? -y : y;
    switch (shape) {
    case 0: return d <= r * r;
    case 1: return d <= r * r && d >= r * r * .3f;
    case 2: return ax <= r * .85f && ay <= r * .85f;
    case 3: return y <= r * .8f && ax <= (y + r) * .55f;
    default: return (ax <= r * .3f && ay <= r) || (ay <= r * .3f && ax <= r);
    }
}

/* Draws a scene on [3,SIZE,SIZE], writes its description to word[LENGTH] and returns a number that
 * follows from the description alone. */
static unsigned draw(float *image, int64_t *word)
{
    int objects = 1 + random_below(most), left = objects, n = 0;
    unsigned number = 17;
    for (int i = 0; i < 3 * SIZE * SIZE; i++) image[i] = .15f * (float)random_below(100) / 100;
    for (int i = 0; i < LENGTH; i++) word[i] = END;
    for (int cell = 0; cell < 9; cell++) {
        if (random_below(9 - cell) >= left) continue;
        int size = random_below(2), color = random_below(6), shape = random_below(5);
        int row = cell / 3, column = cell % 3;
        const int64_t text[] = {
            AND, A, SIZES + size, COLORS + color, SHAPES + shape, ROWS + row, COLUMNS + column
        };
        for (int i = left == objects; i < 7; i++) {
            word[n++] = text[i];
            number = number * 31 + (unsigned)text[i];
        }
        float r = size ? 6.5f : 3.8f;
        float y0 = (float)(row * CELL + CELL / 2 + random_below(3) - 1);
        float x0 = (float)(column * CELL + CELL / 2 + random_below(3) - 1);
        for (int y = row * CELL; y < (row + 1) * CELL; y++)
            for (int x = column * CELL; x < (column + 1) * CELL; x++)
                if (inside(shape, (float)x - x0 + .25f, (float)y - y0 + .25f, r))
                    for (int c = 0; c < 3; c++) image[(c * SIZE + y) * SIZE + x] = colors[color][c];
        left--;
    }
    return number ^ number >> 7;
}

/* n scenes: one description in ten is for testing only. x [n,3,SIZE,SIZE], y [n,LENGTH]. */
static void scenes(int n, bool test, aril_tensor **x, aril_tensor **y)
{
    const size_t pixels = 3 * SIZE * SIZE;
    float *image = malloc((size_t)n * pixels * sizeof *image);
    int64_t *word = malloc((size_t)n * LENGTH * sizeof *word);
    for (int i = 0; i < n;)
        i += (draw(image + (size_t)i * pixels, word + (size_t)i * LENGTH) % 10 == 0) == test;
    *x = aril_from(image, ARIL_SHAPE(n, 3, SIZE, SIZE), ARIL_F32, aril_cpu());
    *y = aril_from(word, ARIL_SHAPE(n, LENGTH), ARIL_I64, aril_cpu());
    free(image);
    free(word);
}

/* ---- training ---- */

/* Each word is predicted from those before it; the first from the word 0. */
static aril_tensor *loss_of(aril_module *net, aril_tensor *x, aril_tensor *y)
{
    aril_tensor *begin = aril_zeros(ARIL_SHAPE(aril_size(y, 0), 1), ARIL_I64, aril_cpu());
    aril_tensor *before = aril_cat(ARIL_LIST(begin, y), 1); /* [N,LENGTH + 1] */
    aril_tensor *after = aril_cat(ARIL_LIST(y, begin), 1);
    aril_tensor *scores = aril_forward_n(net, ARIL_LIST(x, before)); /* [N,LENGTH + 1,WORDS] */
    return aril_cross_entropy(aril_flatten(scores, 0, 1), aril_flatten(after, 0, 1));
}

static void train(aril_module *net, int steps)
{
    aril_optim *opt = aril_adam(aril_parameters(net), (aril_adam_opts){ .lr = 1e-3 });
    int every = steps / 10 > 0 ? steps / 10 : 1;
    double sum = 0;
    for (int step = 1; step <= steps && aril_ok(); step++) {
        ARIL_SCOPE;
        aril_tensor *x, *y;
        scenes(BATCH, false, &x, &y);
        if (step == steps * 3 / 4) aril_optim_set_lr(opt, 2e-4);
        aril_tensor *loss = loss_of(net, x, y);
        aril_backward(loss);
        aril_step(opt);
        sum += aril_item(loss);
        if (step % every) continue;
        printf("step %4d/%d  loss %.4f\n", step, steps, sum / every);
        fflush(stdout);
        sum = 0;
    }
    aril_optim_free(opt);
}

/* ---- describing ---- */

static void print_words(const int64_t *word, int64_t n)
{
    for (int64_t i = 0; i < n && word[i] != END; i++) printf("%s%s", i ? " " : "", words[word[i]]);
    putchar('\n');
}

/* How many of the descriptions of images x are exactly y; prints the last `shown`. */
static int describe(aril_module *net, aril_tensor *x, aril_tensor *y, int shown)
{
    ARIL_SCOPE;
    int n = (int)aril_size(x, 0), exact = 0;
    const int64_t stop = END, *wanted = aril_data(y);
    aril_tensor *begin = aril_zeros(ARIL_SHAPE(1), ARIL_I64, aril_cpu());
    aril_tensor *prompt[BATCH], *out[BATCH];
    for (int i = 0; i < n; i++) prompt[i] = begin;
    aril_decoder *d = aril_captioner_decoder(net, x);
    aril_generate(d, (aril_list){ n, prompt },
                  (aril_generate_opts){
                      .max_tokens = LENGTH + 1, .beams = 3, .stop = &stop, .n_stop = 1 },
                  out);
    for (int i = 0; i < n && aril_ok(); i++) {
        const int64_t *word = aril_data(out[i]);
        int64_t length = aril_numel(out[i]);
        while (length > 0 && word[length - 1] == END) length--;
        bool same = length <= LENGTH && (length == LENGTH || wanted[i * LENGTH + length] == END) &&
                    memcmp(word, wanted + i * LENGTH, (size_t)length * sizeof *word) == 0;
        exact += same;
        if (i < n - shown) continue;
        printf("%s  ", same ? "right" : "wrong");
        print_words(word, length);
    }
    aril_decoder_free(d);
    return exact;
}

int main(int argc, char **argv)
{
    bool quick = getenv("ARIL_EXAMPLE_QUICK") != NULL;
    bool small = argc > 1 && strcmp(argv[1], "--small") == 0, told = argc > 1 && !small;
    int steps = told ? atoi(argv[1]) : small ? SMALL_STEPS : quick ? 10 : STEPS;
    int exact = 0, tested = 0;
    if (small) most = 1;
    aril_seed(0);
    aril_module *net =
        aril_zoo_make("captioner",
                      (aril_zoo_opts){ .input = ARIL_SHAPE(3, SIZE, SIZE), .classes = WORDS });
    state = 1;
    train(net, steps);
    aril_module_eval(net);
    while (tested < (quick && !small ? BATCH : TESTED) && aril_ok()) {
        ARIL_SCOPE;
        aril_tensor *x, *y;
        scenes(BATCH, true, &x, &y);
        bool last = tested + BATCH >= TESTED;
        exact += describe(net, x, y, last ? 8 : 0);
        tested += BATCH;
        if (last && argc > 2)
            aril_image_write(argv[2], aril_narrow(x, 0, BATCH - 8, 8),
                             (aril_image_write_opts){ 0 });
    }
    double share = 100.0 * exact / tested;
    printf("%d of %d descriptions are exact: %.1f %%\n", exact, tested, share);
    aril_module_release(net);
    if (aril_ok() && (small || !(told || quick)) && share < ENOUGH) {
        fprintf(stderr, "expected %d %% or more\n", ENOUGH);
        return 1;
    }
    return aril_report(stderr);
}
