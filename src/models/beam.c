/* Beam search: in each step the best continuations of all sequences that are kept. Sequences that
 * end are ranked by their score divided by a power of their length. */
#include "aril/scope.h"
#include "core/error.h"
#include "core/memory.h"
#include "models/decoder.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A sequence of new tokens. */
typedef struct beam {
    int64_t *token;
    int64_t n;
    float score;
} beam;

typedef struct candidate {
    float score;
    int64_t beam, token;
} candidate;

/* The search for one prompt. */
typedef struct search {
    int64_t first, limit;            /* its first sequence; how many new tokens there may be */
    beam *running, *next, *finished; /* [beams] each */
    int64_t n_running, n_finished;
    candidate *best;
    int64_t n_best;
    bool done;
} search;

typedef struct beams {
    aril__generation *g;
    search *search; /* one for each prompt */
    int64_t width, candidates;
    int64_t *rows, *token;
    int64_t *memory; /* of all beams' tokens */
    beam *beam;
    candidate *candidate;
} beams;

/* ---- candidates ---- */

/* log softmax, in place. */
static void log_softmax(float *x, int64_t n)
{
    float most = -INFINITY;
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        if (x[i] > most) most = x[i];
    for (int64_t i = 0; i < n; i++) sum += (double)expf(x[i] - most);
    float by = most + (float)log(sum);
    for (int64_t i = 0; i < n; i++) x[i] -= by;
}

/* Keeps a candidate if it is among the best, which are sorted. */
static void offer(const beams *b, search *s, candidate c)
{
    if (s->n_best == b->candidates && !(c.score > s->best[s->n_best - 1].score)) return;
    int64_t i = s->n_best < b->candidates ? s->n_best++ : s->n_best - 1;
    for (; i > 0 && c.score > s->best[i - 1].score; i--) s->best[i] = s->best[i - 1];
    s->best[i] = c;
}

/* The best continuations of the running sequences, whose scores are in rows from `row` on. */
static aril_status find_best(const beams *b, search *s, int64_t row)
{
    aril__generation *g = b->g;
    int64_t v = g->vocabulary;
    aril__sequence *whole = &g->sequence[s->first];
    s->n_best = 0;
    for (int64_t k = 0; k < s->n_running; k++) {
        const beam *r = &s->running[k];
        float *score = g->score + (row + k) * v;
        log_softmax(score, v);
        memcpy(whole->token + whole->prompt, r->token, (size_t)r->n * sizeof *r->token);
        whole->n = whole->prompt + r->n;
        aril__penalize(g, score, whole);
        float least = -INFINITY;
        for (int64_t i = 0; i < v; i++) {
            float sum = score[i] + r->score;
            if (!(sum > least)) continue;
            offer(b, s, (candidate){ sum, k, i });
            if (s->n_best == b->candidates) least = s->best[s->n_best - 1].score;
        }
    }
    return s->n_best > 0 ? ARIL_OK
                         : aril__fail(ARIL_ERR_NUMBER, "generate: the scores are not numbers");
}

/* ---- a step of one search ---- */

static void copy_beam(beam *to, const beam *from, const candidate *c)
{
    memcpy(to->token, from->token, (size_t)from->n * sizeof *to->token);
    to->n = from->n;
    if (c) to->token[to->n++] = c->token;
}

static float ranked(const beams *b, float score, int64_t length)
{
    return score / powf((float)length, (float)b->g->o->length_penalty);
}

/* Keeps a sequence that ends if it is among the best of those. */
static void end_beam(const beams *b, search *s, const candidate *c)
{
    const beam *from = &s->running[c->beam];
    float score = ranked(b, c->score, from->n + 1);
    int64_t i = s->n_finished;
    if (i == b->width && !(score > s->finished[i - 1].score)) return;
    if (i < b->width)
        s->n_finished++;
    else
        i--;
    beam free_one = s->finished[i];
    for (; i > 0 && score > s->finished[i - 1].score; i--) s->finished[i] = s->finished[i - 1];
    s->finished[i] = free_one;
    copy_beam(&s->finished[i], from, c);
    s->finished[i].score = score;
}

/* Ends sequences and continues others: from[] are the sequences that those continue. */
static void advance(const beams *b, search *s, int64_t *from)
{
    const aril_generate_opts *o = b->g->o;
    int64_t length = s->running[0].n + 1, n = 0;
    bool full = o->early_stopping && s->n_finished == b->width;
    for (int64_t k = 0; k < s->n_best; k++) {
        const candidate *c = &s->best[k];
        if (length == s->limit || aril__is_stop(o, c->token)) {
            if (k < b->width && !full) end_beam(b, s, c);
        } else if (n < b->width) {
            copy_beam(&s->next[n], &s->running[c->beam], c);
            s->next[n].score = c->score;
            from[n++] = c->beam;
        }
    }
    beam *swap = s->running;
    s->running = s->next;
    s->next = swap;
    s->n_running = n;
    bool better = n > 0 && (s->n_finished < b->width || ranked(b, s->running[0].score, length) >
                                                            s->finished[b->width - 1].score);
    s->done = !better || (o->early_stopping && s->n_finished == b->width);
}

/* ---- all searches ---- */

/* One step of those that go on; `first`: each has one sequence, its prompt. */
static aril_status step(beams *b, bool first, int64_t *rows)
{
    int64_t n = 0, at = 0;
    for (int64_t i = 0; i < b->g->prompts; i++) {
        search *s = &b->search[i];
        if (s->done) continue;
        int64_t row = first ? i : at;
        at += s->n_running;
        aril_status status = find_best(b, s, row);
        if (status != ARIL_OK) return status;
        advance(b, s, b->rows + n);
        for (int64_t k = 0; k < s->n_running && !s->done; k++, n++) {
            b->rows[n] += row;
            b->token[n] = s->running[k].token[s->running[k].n - 1];
        }
    }
    *rows = n;
    if (n == 0) return ARIL_OK;
    ARIL_SCOPE;
    return b->g->d->type->select(b->g->d, n, b->rows);
}

static void give_results(const beams *b)
{
    const aril__generation *g = b->g;
    for (int64_t i = 0; i < g->prompts; i++)
        for (int64_t k = 0; k < g->results; k++) {
            const search *s = &b->search[i];
            aril__sequence *to = &g->sequence[s->first + k];
            to->n = to->prompt;
            if (k >= s->n_finished) continue; /* fewer tokens than beams */
            const beam *from = &s->finished[k];
            memcpy(to->token + to->n, from->token, (size_t)from->n * sizeof *to->token);
            to->n += from->n;
            to->score = (double)from->score;
            for (int64_t t = to->prompt; t < to->n && g->o->on_token; t++)
                if (!g->o->on_token(g->o->ctx, s->first + k, to->token[t])) break;
        }
}

static bool make_searches(beams *b)
{
    const aril__generation *g = b->g;
    size_t width = (size_t)b->width, prompts = (size_t)g->prompts, most = 0;
    for (int64_t i = 0; i < g->prompts; i++) {
        const aril__sequence *s = &g->sequence[i * g->results];
        size_t limit = (size_t)(s->most - s->prompt);
        if (limit > most) most = limit;
    }
    if (most > SIZE_MAX / 64 / width / prompts) return false;
    b->search = aril__calloc(prompts * sizeof *b->search);
    b->beam = aril__calloc(prompts * width * 3 * sizeof *b->beam);
    b->memory = aril__malloc(prompts * width * 3 * most * sizeof *b->memory);
    b->candidate = aril__malloc(prompts * (size_t)b->candidates * sizeof *b->candidate);
    b->rows = aril__malloc(prompts * width * sizeof *b->rows);
    b->token = aril__malloc(prompts * width * sizeof *b->token);
    if (!b->search || !b->beam || !b->memory || !b->candidate || !b->rows || !b->token)
        return false;
    for (size_t i = 0; i < prompts * width * 3; i++) b->beam[i].token = b->memory + i * most;
    for (size_t i = 0; i < prompts; i++) {
        search *s = &b->search[i];
        const aril__sequence *of = &g->sequence[i * (size_t)g->results];
        *s = (search){ .first = (int64_t)i * g->results,
                       .limit = of->most - of->prompt,
                       .running = b->beam + i * width * 3,
                       .next = b->beam + (i * 3 + 1) * width,
                       .finished = b->beam + (i * 3 + 2) * width,
                       .n_running = 1,
                       .best = b->candidate + i * (size_t)b->candidates };
    }
    return true;
}

aril_status aril__generate_beams(aril__generation *g)
{
    beams b = { .g = g, .width = g->o->beams };
    /* So many that `width` of them go on, even if all stop tokens are among them. */
    b.candidates = b.width * (g->o->n_stop > 1 ? 1 + g->o->n_stop : 2);
    int64_t rows = 0;
    aril_status status = make_searches(&b)
                             ? step(&b, true, &rows)
                             : aril__fail(ARIL_ERR_MEMORY, "out of memory for beam search");
    while (status == ARIL_OK && rows > 0) {
        status = aril__read_tokens(g, rows, 0, rows, 1, b.token);
        if (status == ARIL_OK) status = step(&b, false, &rows);
    }
    if (status == ARIL_OK) give_results(&b);
    free(b.search);
    free(b.beam);
    free(b.memory);
    free(b.candidate);
    free(b.rows);
    free(b.token);
    return status;
}
