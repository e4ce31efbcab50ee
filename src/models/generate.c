/* Generating sequences token by token: the most likely one, or one that is drawn. */
#include "aril/generate.h"

#include "aril/create.h"
#include "aril/device.h"
#include "aril/dtype.h"
#include "aril/scope.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/rng.h"
#include "core/shape.h"
#include "core/tensor.h"
#include "models/decoder.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DEFAULT_TOKENS = 50, MOST_SEQUENCES = 1 << 16 };

static aril_status no_memory(void)
{
    return aril__fail(ARIL_ERR_MEMORY, "out of memory for generating");
}

/* ---- reading ---- */

/* Makes room for the scores of a step; the vocabulary is what the decoder's first result says. */
static aril_status make_room(aril__generation *g, int64_t rows, aril_tensor *y, int64_t n)
{
    char text[ARIL__SHAPE_TEXT];
    if (aril_tensor_status(y) < 0) return aril_tensor_status(y);
    if (aril_ndim(y) != 2 || aril_size(y, 0) != n || aril_size(y, 1) < 1 ||
        (g->vocabulary && aril_size(y, 1) != g->vocabulary))
        return aril__fail(ARIL_ERR_SHAPE, "generate: %s reads %lld sequences and returns scores %s",
                          g->d->type->type, (long long)n, aril__text(text, y));
    g->vocabulary = aril_size(y, 1);
    size_t need = (size_t)rows * (size_t)g->vocabulary;
    if (need <= g->score_room) return ARIL_OK;
    float *score = aril__realloc(g->score, need * sizeof *score);
    if (!score) return no_memory();
    g->score = score;
    g->score_room = need;
    return ARIL_OK;
}

aril_status aril__read_tokens(aril__generation *g, int64_t rows, int64_t row, int64_t n, int64_t t,
                              const int64_t *token)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_from(token, ARIL_SHAPE(n, t), ARIL_I64, aril_cpu()); /* [n,t] */
    aril_tensor *y = g->d->type->read(g->d, row, x);                           /* [n,vocabulary] */
    aril_status status = make_room(g, rows, y, n);
    if (status != ARIL_OK) return status;
    return aril_read(aril_cast(y, ARIL_F32), g->score + row * g->vocabulary);
}

/* Prompts of equal length are read at once. */
aril_status aril__read_prompts(aril__generation *g)
{
    bool equal = true;
    int64_t step = g->results, t = g->sequence[0].prompt;
    for (int64_t i = 1; i < g->prompts; i++) equal &= g->sequence[i * step].prompt == t;
    aril_status status = ARIL_OK;
    if (!equal) {
        for (int64_t i = 0; i < g->prompts && status == ARIL_OK; i++)
            status = aril__read_tokens(g, g->prompts, i, 1, g->sequence[i * step].prompt,
                                       g->sequence[i * step].token);
        return status;
    }
    int64_t *all = aril__malloc((size_t)(g->prompts * t) * sizeof *all);
    if (!all) return no_memory();
    for (int64_t i = 0; i < g->prompts; i++)
        memcpy(all + i * t, g->sequence[i * step].token, (size_t)t * sizeof *all);
    status = aril__read_tokens(g, g->prompts, 0, g->prompts, t, all);
    free(all);
    return status;
}

/* ---- choosing a token ---- */

void aril__penalize(const aril__generation *g, float *score, const aril__sequence *s)
{
    float by = (float)g->o->repetition_penalty;
    if (by == 0 || by == 1) return;
    for (int64_t i = 0; i < s->n; i++) {
        bool before = false; /* each token counts once */
        for (int64_t k = 0; k < i && !before; k++) before = s->token[k] == s->token[i];
        if (before || s->token[i] >= g->vocabulary) continue;
        float *x = &score[s->token[i]];
        *x = *x < 0 ? *x * by : *x / by;
    }
}

bool aril__is_stop(const aril_generate_opts *o, int64_t token)
{
    for (int i = 0; i < o->n_stop; i++)
        if (o->stop[i] == token) return true;
    return false;
}

/* The index of the largest score; -1: there is none above minus infinity, or it is infinite. */
static int64_t largest(const float *score, int64_t n)
{
    int64_t best = -1;
    float most = -INFINITY;
    for (int64_t i = 0; i < n; i++)
        if (score[i] > most) {
            most = score[i];
            best = i;
        }
    return best >= 0 && isfinite(most) ? best : -1;
}

/* The k-th largest of n numbers, which are moved: Hoare's selection. */
static float kth_largest(float *x, int64_t n, int64_t k)
{
    int64_t low = 0, high = n - 1, at = k - 1;
    while (low < high) {
        float pivot = x[low + (high - low) / 2];
        int64_t i = low, j = high;
        while (i <= j) {
            while (x[i] > pivot) i++;
            while (x[j] < pivot) j--;
            if (i > j) break;
            float swap = x[i];
            x[i++] = x[j];
            x[j--] = swap;
        }
        if (at <= j)
            high = j;
        else if (at >= i)
            low = i;
        else
            break;
    }
    return x[at];
}

typedef struct choice {
    double weight;
    int64_t token;
} choice;

static int by_weight(const void *a, const void *b)
{
    const choice *x = a, *y = b;
    if (x->weight != y->weight) return x->weight < y->weight ? -1 : 1;
    return (x->token > y->token) - (x->token < y->token);
}

/* Keeps the fewest choices whose weights sum to p of all, the largest ones. Those too small to
 * matter even together are left out before the others are sorted. */
static int64_t keep_top(choice *c, int64_t n, double p)
{
    double total = 0, gone = 0;
    for (int64_t i = 0; i < n; i++) total += c[i].weight;
    double spare = (1 - p) * total, least = spare / (double)n;
    int64_t kept = 0;
    for (int64_t i = 0; i < n; i++) {
        if (c[i].weight < least)
            gone += c[i].weight;
        else
            c[kept++] = c[i];
    }
    qsort(c, (size_t)kept, sizeof *c, by_weight);
    int64_t first = 0;
    while (first + 1 < kept && gone + c[first].weight <= spare) gone += c[first++].weight;
    memmove(c, c + first, (size_t)(kept - first) * sizeof *c);
    return kept - first;
}

/* A token by chance: u is uniform in [0, 1). */
static int64_t draw(const aril__generation *g, float *score, double u, choice *c)
{
    const aril_generate_opts *o = g->o;
    int64_t v = g->vocabulary, n = 0, best = largest(score, v);
    if (best < 0) return -1;
    float most = score[best], least = -INFINITY;
    if (o->top_k > 0 && o->top_k < v) {
        float *copy = (float *)(void *)c; /* room for n choices is room for n numbers */
        memcpy(copy, score, (size_t)v * sizeof *copy);
        least = kth_largest(copy, v, o->top_k);
    }
    for (int64_t i = 0; i < v; i++) {
        if (!(score[i] >= least) || score[i] == -INFINITY) continue;
        c[n++] = (choice){ exp(((double)score[i] - (double)most) / o->temperature), i };
    }
    if (o->top_p > 0 && o->top_p < 1) n = keep_top(c, n, o->top_p);
    double total = 0, sum = 0;
    for (int64_t i = 0; i < n; i++) total += c[i].weight;
    for (int64_t i = 0; i < n; i++) {
        sum += c[i].weight;
        if (u * total < sum) return c[i].token;
    }
    return best;
}

/* log softmax(score)[token] */
static double log_probability(const float *score, int64_t n, int64_t token)
{
    double sum = 0, most = -INFINITY;
    for (int64_t i = 0; i < n; i++)
        if (score[i] > most) most = score[i];
    for (int64_t i = 0; i < n; i++) sum += exp(score[i] - most);
    return score[token] - most - log(sum);
}

/* ---- steps ---- */

/* The sequences that are not done: sequence[i] is row i of the decoder. */
typedef struct rows {
    int64_t n;
    int64_t *sequence, *keep, *token;
    choice *choices;
    float *score; /* of one row */
} rows;

static aril_status add_token(aril__generation *g, rows *r, int64_t i, const float *score, double u)
{
    const aril_generate_opts *o = g->o;
    aril__sequence *s = &g->sequence[i];
    memcpy(r->score, score, (size_t)g->vocabulary * sizeof *score);
    aril__penalize(g, r->score, s);
    int64_t token =
        o->temperature > 0 ? draw(g, r->score, u, r->choices) : largest(r->score, g->vocabulary);
    if (token < 0)
        return aril__fail(ARIL_ERR_NUMBER,
                          "generate: the scores of token %lld of sequence %lld are not numbers",
                          (long long)(s->n - s->prompt), (long long)i);
    if (o->scores) s->score += log_probability(score, g->vocabulary, token);
    s->token[s->n++] = token;
    s->done = s->n == s->most || aril__is_stop(o, token);
    if (o->on_token && !o->on_token(o->ctx, i, token)) s->done = true;
    return ARIL_OK;
}

/* One token for each sequence; `first`: its scores are in the row of its prompt. Keeps the rows of
 * those that go on. */
static aril_status step(aril__generation *g, rows *r, bool first)
{
    aril_generator *from = g->o->generator ? g->o->generator : aril_default_generator();
    aril__rng_key key = { 0, 0 };
    if (g->o->temperature > 0) key = aril__rng_next(from);
    int64_t n = 0;
    bool moved = false;
    for (int64_t k = 0; k < r->n; k++) {
        int64_t i = r->sequence[k], row = first ? i / g->results : k;
        double u = 0;
        if (g->o->temperature > 0) aril__rng_uniform_f64(key, i, i + 1, &u);
        aril_status status = add_token(g, r, i, g->score + row * g->vocabulary, u);
        if (status != ARIL_OK) return status;
        const aril__sequence *s = &g->sequence[i];
        if (s->done) continue;
        r->sequence[n] = i;
        r->token[n] = s->token[s->n - 1];
        r->keep[n] = row;
        moved |= n != row;
        n++;
    }
    bool fewer = n < (first ? g->prompts : r->n), more = first && n > g->prompts;
    r->n = n;
    if (n == 0 || !(moved || fewer || more)) return ARIL_OK;
    ARIL_SCOPE;
    return g->d->type->select(g->d, n, r->keep);
}

static aril_status generate_tokens(aril__generation *g)
{
    int64_t count = g->prompts * g->results;
    rows r = { .n = count };
    r.sequence = aril__malloc((size_t)count * 3 * sizeof *r.sequence);
    r.choices = aril__malloc((size_t)g->vocabulary * sizeof *r.choices);
    r.score = aril__malloc((size_t)g->vocabulary * sizeof *r.score);
    aril_status status = r.sequence && r.choices && r.score ? ARIL_OK : no_memory();
    if (status == ARIL_OK) {
        r.keep = r.sequence + count;
        r.token = r.keep + count;
        for (int64_t i = 0; i < count; i++) r.sequence[i] = i;
        status = step(g, &r, true);
    }
    while (status == ARIL_OK && r.n > 0) {
        status = aril__read_tokens(g, r.n, 0, r.n, 1, r.token);
        if (status == ARIL_OK) status = step(g, &r, false);
    }
    free(r.sequence);
    free(r.choices);
    free(r.score);
    return status;
}

/* ---- the whole ---- */

static aril_status check_options(aril_generate_opts *o, bool decoder)
{
    if (!decoder) return aril__fail(ARIL_ERR_ARG, "generate: the decoder is NULL");
    if (!o->max_tokens) o->max_tokens = DEFAULT_TOKENS;
    if (!o->results) o->results = 1;
    if (o->length_penalty == 0) o->length_penalty = 1;
    if (o->length_penalty == ARIL_ZERO) o->length_penalty = 0;
    if (o->max_tokens < 1 || o->results < 1 || o->results > MOST_SEQUENCES || o->beams < 0 ||
        o->beams > MOST_SEQUENCES || o->top_k < 0 || o->n_stop < 0 || (o->n_stop && !o->stop))
        return aril__fail(
            ARIL_ERR_ARG,
            "generate: expected positive max_tokens and results, and beams, top_k and "
            "n_stop of 0 or more");
    if (!(o->temperature >= 0) || isinf(o->temperature) || !(o->top_p >= 0 && o->top_p <= 1) ||
        !(o->repetition_penalty >= 0) || isinf(o->repetition_penalty) ||
        !isfinite(o->length_penalty))
        return aril__fail(ARIL_ERR_ARG,
                          "generate: expected a temperature and a repetition_penalty of 0 or more, "
                          "and top_p from 0 to 1");
    if (o->beams && o->temperature > 0)
        return aril__fail(ARIL_ERR_ARG, "generate: beam search draws nothing: expected .beams or "
                                        ".temperature, got both");
    if ((o->top_k || o->top_p > 0) && !(o->temperature > 0))
        return aril__fail(ARIL_ERR_ARG,
                          "generate: .top_k and .top_p are for drawing: expected a .temperature");
    if (o->beams ? o->results > o->beams : o->results > 1 && !(o->temperature > 0))
        return aril__fail(ARIL_ERR_ARG,
                          o->beams ? "generate: expected as many results as beams, or fewer"
                                   : "generate: several results need a .temperature or .beams");
    return ARIL_OK;
}

static aril_status check_prompt(const aril_tensor *t, int64_t i)
{
    char text[ARIL__SHAPE_TEXT];
    if (!t) return aril__fail(ARIL_ERR_ARG, "generate: prompt %lld is NULL", (long long)i);
    if (aril_tensor_status(t) < 0) return aril_tensor_status(t);
    if (aril_ndim(t) == 1 && aril_numel(t) > 0 && aril__is_int(aril_dtype_of(t))) return ARIL_OK;
    return aril__fail(ARIL_ERR_SHAPE, "generate: expected prompts of integers [T], T >= 1, got %s",
                      aril__text(text, t));
}

/* Copies a prompt to its sequences. */
static aril_status set_prompt(aril__generation *g, int64_t i)
{
    ARIL_SCOPE;
    aril_tensor *t = g->in->at[i];
    aril_status status = check_prompt(t, i);
    if (status != ARIL_OK) return status;
    int64_t n = aril_numel(t), most = g->o->max_tokens, room = g->d->max_length;
    if (room && n > room)
        return aril__fail(ARIL_ERR_SHAPE,
                          "generate: prompt %lld has %lld tokens, but %s has %lld positions",
                          (long long)i, (long long)n, g->d->type->type, (long long)room);
    if (room && most > room - n + 1) most = room - n + 1; /* the last is not read */
    if (__builtin_add_overflow(n, most, &most) || most > INT64_MAX / 16) return no_memory();
    for (int64_t k = 0; k < g->results && status == ARIL_OK; k++) {
        aril__sequence *s = &g->sequence[i * g->results + k];
        *s = (aril__sequence){ .n = n, .prompt = n, .most = most };
        s->token = aril__malloc((size_t)most * sizeof *s->token);
        if (!s->token) return no_memory();
        status = aril_read(aril_cast(t, ARIL_I64), s->token);
    }
    return status;
}

static aril_status run(aril__generation *g)
{
    ARIL_SCOPE;
    ARIL_INFERENCE;
    aril_status status = ARIL_OK;
    int64_t longest = 1, wide = g->o->beams > g->results ? g->o->beams : g->results;
    for (int64_t i = 0; i < g->prompts && status == ARIL_OK; i++) status = set_prompt(g, i);
    if (status != ARIL_OK) return status;
    for (int64_t i = 0; i < g->prompts * g->results; i++)
        if (g->sequence[i].most > longest) longest = g->sequence[i].most;
    if (g->d->max_length && longest > g->d->max_length) longest = g->d->max_length;
    status = g->d->type->start(g->d, g->prompts * wide, longest);
    if (status == ARIL_OK) status = aril__read_prompts(g);
    if (status != ARIL_OK) return status;
    return g->o->beams ? aril__generate_beams(g) : generate_tokens(g);
}

/* Gives the new tokens to the caller. */
static aril_status finish(aril__generation *g, aril_tensor **out)
{
    aril_status status = ARIL_OK;
    for (int64_t i = 0; i < g->prompts * g->results && status == ARIL_OK; i++) {
        const aril__sequence *s = &g->sequence[i];
        out[i] = aril_from(s->token + s->prompt, ARIL_SHAPE(s->n - s->prompt), ARIL_I64,
                           aril_cpu()); /* [new] */
        status = aril_tensor_status(out[i]);
        if (g->o->scores) g->o->scores[i] = s->score;
    }
    return status;
}

aril_status aril_generate(aril_decoder *d, aril_list prompts, aril_generate_opts o,
                          aril_tensor **out)
{
    if (!out) return aril__fail(ARIL_ERR_ARG, "generate: there is no room for results");
    aril_status status = check_options(&o, d != NULL);
    aril__generation g = {
        .d = d, .o = &o, .prompts = prompts.n, .results = o.results, .in = &prompts
    };
    int64_t count = prompts.n > 0 ? prompts.n : 0;
    if (status == ARIL_OK && (count == 0 || count * o.results > MOST_SEQUENCES))
        status = aril__fail(ARIL_ERR_ARG, "generate: expected 1 to %d sequences, got %lld",
                            MOST_SEQUENCES, (long long)(count * o.results));
    if (status != ARIL_OK && (o.results < 1 || o.results > MOST_SEQUENCES)) o.results = 1;
    count *= o.results;
    if (status == ARIL_OK) {
        g.sequence = aril__calloc((size_t)count * sizeof *g.sequence);
        status = g.sequence ? run(&g) : no_memory();
    }
    if (status == ARIL_OK) status = finish(&g, out);
    for (int64_t i = 0; g.sequence && i < count; i++) free(g.sequence[i].token);
    free(g.sequence);
    free(g.score);
    for (int64_t i = 0; status != ARIL_OK && i < count; i++) out[i] = aril__poison();
    return status;
}
