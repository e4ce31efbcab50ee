#include "support/device.h"
#include "support/samples.h"

#include "aril/aril.h"
#include "ops/table/apply.h"
#include "support/test.h"

#include <ctype.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- reproducible numbers ---- */

double test_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    uint64_t x = *state ^ *state >> 33;
    x *= 0xff51afd7ed558ccdu;
    x ^= x >> 29;
    return (double)(x >> 11) * 0x1p-53;
}

static uint64_t seed_of(const test_sample *s, int input)
{
    uint64_t h = 0xcbf29ce484222325u + (uint64_t)(s->index * 131 + input);
    for (const char *p = s->op->name; *p; p++) h = (h ^ (unsigned char)*p) * 0x100000001b3u;
    return h;
}

/* ---- words ---- */

typedef struct word {
    bool absent, key, no_grad;
    char kind;      /* of the values; 0: normally distributed */
    int64_t bound;  /* of indices */
    int batch_axis; /* the axis of N, or -1 */
    aril_shape shape;
} word;

static bool parse(const char *text, word *w)
{
    *w = (word){ .batch_axis = -1 };
    if (strcmp(text, "-") == 0) return w->absent = true;
    if (strcmp(text, "key") == 0) {
        w->shape = (aril_shape){ 1, { 2 } };
        return w->key = true;
    }
    if (*text == '!') {
        w->no_grad = true;
        text++;
    }
    if (*text != '[') w->kind = *text++;
    if (w->kind == 'i') w->bound = strtoll(text, (char **)&text, 10);
    if (w->kind && !strchr("+up1zdibsk", w->kind)) return false;
    if (*text++ != '[') return false;
    while (*text != ']') {
        if (w->shape.ndim == ARIL_MAX_DIMS) return false;
        int64_t *dim = &w->shape.dim[w->shape.ndim];
        if (*text == 'N') {
            w->batch_axis = w->shape.ndim;
            *dim = 2;
            text++;
        } else if (isdigit((unsigned char)*text)) {
            *dim = strtoll(text, (char **)&text, 10);
        } else {
            return false;
        }
        w->shape.ndim++;
        if (*text == ',')
            text++;
        else if (*text != ']')
            return false;
    }
    return text[1] == '\0';
}

bool test_sample_typed(const test_sample *s, int i)
{
    word w;
    return parse(s->word[i], &w) && !w.absent && !w.key && w.kind != 'i' && w.kind != 'b';
}

bool test_sample_wants(const test_sample *s, int i)
{
    word w;
    return test_sample_typed(s, i) && parse(s->word[i], &w) && !w.no_grad &&
           !(s->op->shape_only >> i & 1);
}

/* The axis written as N; else axis 0 of the first input, and of inputs with the same first size. */
static int batch_axis(const test_sample *s, int i)
{
    word w, first = { .shape.ndim = 0 };
    bool named = false, found = false;
    for (int k = 0; k < s->n_in; k++) {
        parse(s->word[k], &w);
        named = named || w.batch_axis >= 0;
        if (!found && !w.absent && !w.key) {
            first = w;
            found = true;
        }
    }
    if (!(s->flags & SAMPLE_BATCH) || !parse(s->word[i], &w) || w.absent || w.key) return -1;
    if (named) return w.batch_axis;
    return w.shape.ndim && first.shape.ndim && w.shape.dim[0] == first.shape.dim[0] ? 0 : -1;
}

bool test_sample_batched(const test_sample *s, int i)
{
    return batch_axis(s, i) >= 0;
}

/* ---- values ---- */

static double normal(uint64_t *state)
{
    double u = test_random(state), v = test_random(state);
    return sqrt(-2 * log(u + 1e-300)) * cos(6.283185307179586 * v);
}

static double real_value(char kind, uint64_t *state)
{
    double u = test_random(state);
    switch (kind) {
    case '+': return 0.2 + 2.8 * u;
    case 'u': return -0.9 + 1.8 * u;
    case 'p': return 0.1 + 0.8 * u;
    case '1': return 1.1 + 2.9 * u;
    case 'z': return (0.3 + 2 * fabs(u)) * (test_random(state) < 0.5 ? -1 : 1);
    case 'k': /* avoids integers, halves, and the parameters that tests use */
        return (floor(test_random(state) * 3) + 0.15 + 0.2 * u) *
               (test_random(state) < 0.5 ? -1 : 1);
    default: return normal(state);
    }
}

static double integer_value(char kind, uint64_t *state, bool is_signed)
{
    double u = test_random(state);
    switch (kind) {
    case '+':
    case '1': return 1 + floor(5 * u);
    case 'u':
    case 'p': return floor(2 * u);
    case 'z': return (1 + floor(4 * u)) * (is_signed && test_random(state) < 0.5 ? -1 : 1);
    default: return floor(9 * u) - (is_signed ? 4 : 0);
    }
}

/* Fills with a random permutation of n values that are `step` apart. */
static void fill_apart(double *v, int64_t n, double step, uint64_t *state, bool is_signed)
{
    for (int64_t i = 0; i < n; i++) v[i] = ((double)i - (is_signed ? (double)(n / 2) : 0)) * step;
    for (int64_t i = n - 1; i > 0; i--) {
        int64_t j = (int64_t)(test_random(state) * (double)(i + 1));
        double t = v[i];
        v[i] = v[j];
        v[j] = t;
    }
}

/* A A^T + I for each matrix in the last two dimensions. */
static void fill_definite(double *v, int64_t n, int64_t size, uint64_t *state)
{
    double *a = calloc((size_t)(size * size), sizeof *a);
    for (int64_t m = 0; m + size * size <= n; m += size * size) {
        for (int64_t i = 0; i < size * size; i++) a[i] = normal(state) * 0.5;
        for (int64_t i = 0; i < size; i++)
            for (int64_t j = 0; j < size; j++) {
                double sum = i == j;
                for (int64_t k = 0; k < size; k++) sum += a[i * size + k] * a[j * size + k];
                v[m + i * size + j] = sum;
            }
    }
    free(a);
}

static bool is_signed_type(aril_dtype t)
{
    return t >= ARIL_I8;
}

bool test_sample_inputs(const test_sample *s, aril_dtype dtype, int64_t batch, aril_tensor **in)
{
    for (int i = 0; i < s->n_in; i++) {
        word w;
        parse(s->word[i], &w);
        in[i] = NULL;
        if (w.absent) continue;
        if (w.key) {
            uint64_t key[2] = { 1234, (uint64_t)s->index };
            in[i] = aril_from(key, w.shape, ARIL_U64, aril_cpu());
            in[i]->flags |= ARIL__KEY; /* a number of the host, as from aril__rng_draw */
            continue;
        }
        int axis = batch > 0 ? batch_axis(s, i) : -1;
        if (axis >= 0) w.shape.dim[axis] = batch;
        int64_t n = 1;
        for (int d = 0; d < w.shape.ndim; d++) n *= w.shape.dim[d];
        double *v = malloc((size_t)(n + 1) * sizeof *v);
        uint64_t state = seed_of(s, i);
        bool real = aril_dtype_is_float(dtype);
        aril_dtype to = w.kind == 'i' ? ARIL_I64 : w.kind == 'b' ? ARIL_BOOL : dtype;
        if (w.kind == 's') {
            if (real) fill_definite(v, n, w.shape.ndim ? w.shape.dim[w.shape.ndim - 1] : 1, &state);
        } else if (w.kind == 'd') {
            fill_apart(v, n, real ? 0.125 : 1, &state, is_signed_type(dtype));
        } else {
            for (int64_t k = 0; k < n; k++)
                v[k] = w.kind == 'i'   ? floor(test_random(&state) * (double)w.bound)
                       : w.kind == 'b' ? floor(test_random(&state) * 2)
                       : real          ? real_value(w.kind, &state)
                                       : integer_value(w.kind, &state, is_signed_type(dtype));
        }
        in[i] = aril_cast(aril_from(v, w.shape, ARIL_F64, test_device()), to);
        free(v);
        bool fits = w.kind != 's' || real;
        if (w.kind == 'd' && (dtype == ARIL_BOOL || (aril_dtype_size(dtype) == 1 && n > 100)))
            fits = false;
        if (!fits) return false;
    }
    return true;
}

/* ---- samples of an op ---- */

static void name_sample(test_sample *s)
{
    size_t n = (size_t)snprintf(s->name, sizeof s->name, "%s[%d] (", s->op->name, s->index);
    for (int i = 0; i < s->n_in && n < sizeof s->name; i++)
        n += (size_t)snprintf(s->name + n, sizeof s->name - n, "%s%s", i ? ", " : "", s->word[i]);
    if (n < sizeof s->name) snprintf(s->name + n, sizeof s->name - n, ")");
}

static int written_samples(const aril__op *op, test_sample *out)
{
    int n = 0;
    for (const aril__sample *s = op->samples; s && (s->in[0] || s->attrs); s++) {
        if (n == TEST_SAMPLES) {
            test_fail(__FILE__, __LINE__, "%s: more than %d samples", op->name, TEST_SAMPLES);
            break;
        }
        test_sample *t = &out[n];
        *t = (test_sample){
            .op = op, .index = n, .attrs = s->attrs, .flags = s->flags, .tol = s->tol
        };
        bool ok = true;
        for (; t->n_in < TEST_INPUTS && s->in[t->n_in]; t->n_in++) {
            word w;
            ok = ok && strlen(s->in[t->n_in]) < sizeof t->word[0] && parse(s->in[t->n_in], &w);
            if (ok) strcpy(t->word[t->n_in], s->in[t->n_in]);
        }
        name_sample(t);
        if (ok)
            n++;
        else
            test_fail(__FILE__, __LINE__, "%s: sample %d cannot be read: \"%s\"", op->name, n,
                      s->in[t->n_in - 1]);
    }
    return n;
}

/* Shapes of up to three operands and, for a gradient op, of the full result. */
static const char *const shapes[][4] = {
    { "[2,3]", "[2,3]", "[2,3]", "[2,3]" },     { "[]", "[]", "[]", "[]" },
    { "[0,3]", "[3]", "[0,1]", "[0,3]" },       { "[2,3]", "[3]", "[2,1]", "[2,3]" },
    { "[3,1]", "[2,1,4]", "[1,4]", "[2,3,4]" }, { "[]", "[3]", "[]", "[3]" },
};

static int elementwise_samples(const aril__op *op, test_sample *out)
{
    static const char prefix[] = {
        [ARIL__EW_ANY] = 0,    [ARIL__EW_POS] = '+',  [ARIL__EW_UNIT] = 'u',
        [ARIL__EW_PROB] = 'p', [ARIL__EW_GE1] = '1',  [ARIL__EW_NONZERO] = 'z',
        [ARIL__EW_KINK] = 'k', [ARIL__EW_ORDER] = '1'
    };
    const aril__formula *f = op->formula;
    if (strcmp(f->text, "NOGRAD") == 0) return 0;
    int arity = f->arity - 2 * f->is_grad, n = 0;
    for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
        if (arity == 1 && k > 2) break;
        test_sample *t = &out[n];
        *t = (test_sample){ .op = op, .index = n, .n_in = f->arity };
        t->params = (struct ew_attrs){ { 0.7, 1.5, -0.4 } };
        if (f->params && strstr(f->params, "min")) t->params.p[0] = -0.7;
        if (f->params && strstr(f->params, "beta")) t->params.p[1] = 20;
        if (k == 0) t->flags = SAMPLE_BATCH;
        for (int i = 0; i < f->arity; i++) {
            int own = i - f->is_grad;
            bool full = own < 0 || own >= arity; /* g or y */
            char kind = own < 0 ? 0 : own >= arity ? 'z' : prefix[f->domain];
            if (f->rule == ARIL__EW_SEL && own == 0) kind = 'b';
            if (strncmp(op->name, "where_grad", 10) == 0 && own == 0) kind = 'b';
            bool constant = f->domain == ARIL__EW_ORDER && own == 0;
            snprintf(t->word[i], sizeof t->word[i], "%s%.1s%s", constant ? "!" : "",
                     kind ? &kind : "", shapes[k][full ? 3 : own]);
        }
        n++;
    }
    return n;
}

int test_samples(const aril__op *op, test_sample samples[TEST_SAMPLES])
{
    int n = op->formula ? elementwise_samples(op, samples) : written_samples(op, samples);
    for (int i = 0; i < n && op->formula; i++) {
        samples[i].attrs = &samples[i].params;
        name_sample(&samples[i]);
    }
    return n;
}

/* ---- walking ---- */

static char working_on[240];

static void crashed(int number)
{
    static const char text[] = "\ncrashed while working on ";
    ssize_t done = write(2, text, sizeof text - 1);
    done += write(2, working_on, strlen(working_on));
    done += write(2, "\n", 1);
    (void)done;
    signal(number, SIG_DFL);
    raise(number);
}

void test_working_on(const char *what, const test_sample *s)
{
    snprintf(working_on, sizeof working_on, "%s of %s", what, s->name);
}

/* Whether the environment selects op k. */
static bool is_selected(int k)
{
    const char *only = getenv("ARIL_TEST_OP");
    if (only && strcmp(only, aril__ops[k]->name) != 0) return false;
    return test_part(k);
}

void test_each_sample(void (*fn)(const test_sample *s))
{
    static test_sample samples[TEST_SAMPLES];
    const char *most = getenv("ARIL_TEST_SAMPLES");
    signal(SIGSEGV, crashed);
    signal(SIGFPE, crashed);
    signal(SIGABRT, crashed);
    for (int k = 0; k < aril__n_ops; k++) {
        if (!is_selected(k)) continue;
        int n = test_samples(aril__ops[k], samples);
        for (int i = 0; i < n && !(most && i >= atoi(most)); i++) {
            ARIL_SCOPE;
            aril_clear_error();
            fn(&samples[i]);
        }
    }
    aril_clear_error();
    signal(SIGSEGV, SIG_DFL);
    signal(SIGFPE, SIG_DFL);
    signal(SIGABRT, SIG_DFL);
}
