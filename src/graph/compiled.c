#include "graph/compiled.h"

#include "core/environment.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/thread.h"
#include "graph/program.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Sizes that were met. Programs for known sizes are faster, and most functions need one or two: a
 * batch, and the smaller last one. */
enum { FEW_SIZES = 3, MANY_SIZES = 16 };

/* The sizes of all inputs of a call: for each its number of dimensions and the dimensions. */
typedef struct sizes {
    int64_t *word;
    size_t n;
} sizes;

struct aril__compiled {
    char *name;
    aril_fn *fn;
    void *ctx;
    bool later; /* sizes are traced when they come for the second time */
    pthread_mutex_t lock;
    aril_program *fixed;    /* for each of the sizes that were met */
    aril_program *any;      /* for sizes that vary; NULL: not needed yet */
    bool any_fails;         /* only the former can be traced, or run */
    aril_program *last_run; /* one of them */
    sizes met[MANY_SIZES];
    int n_met;
    char *failure;     /* of a trace, until it is known how the function itself runs */
    char *any_failure; /* of a run with unknown sizes, likewise */
    char *reason;      /* why it is not traced any more */
};

bool aril__compiling(void)
{
    return aril__env_switch("ARIL_JIT", true);
}

static aril__cold void no_memory(const char *name)
{
    aril__fail(ARIL_ERR_MEMORY, "%s: out of memory for its program", name);
}

aril__compiled *aril__compiled_new(const char *name, aril_fn *fn, void *ctx, bool later)
{
    aril__compiled *c = aril__calloc(sizeof *c);
    if (!c || !(c->name = aril__strdup(name))) {
        free(c);
        no_memory(name);
        return NULL;
    }
    c->fn = fn;
    c->ctx = ctx;
    c->later = later;
    pthread_mutex_init(&c->lock, NULL);
    return c;
}

static void forget(aril__compiled *c)
{
    aril_program_free(c->fixed);
    aril_program_free(c->any);
    for (int i = 0; i < c->n_met; i++) free(c->met[i].word);
    free(c->failure);
    free(c->any_failure);
    free(c->reason);
    c->fixed = c->any = c->last_run = NULL;
    c->failure = c->any_failure = c->reason = NULL;
    c->n_met = 0;
    c->any_fails = false;
}

void aril__compiled_free(aril__compiled *c)
{
    if (!c) return;
    forget(c);
    pthread_mutex_destroy(&c->lock);
    free(c->name);
    free(c);
}

void aril__compiled_reset(aril__compiled *c)
{
    if (!c) return;
    free(c->reason);
    c->reason = NULL;
}

/* ---- sizes ---- */

static size_t count_words(aril_list in)
{
    size_t n = 0;
    for (int i = 0; i < in.n; i++) n += 1 + (size_t)in.at[i]->ndim;
    return n;
}

static void write_words(aril_list in, int64_t *word)
{
    for (int i = 0; i < in.n; i++) {
        const aril_tensor *t = in.at[i];
        *word++ = t->ndim;
        memcpy(word, t->dim, t->ndim * sizeof *word);
        word += t->ndim;
    }
}

static bool has_sizes(const sizes *s, aril_list in)
{
    const int64_t *word = s->word;
    size_t left = s->n;
    for (int i = 0; i < in.n; i++) {
        const aril_tensor *t = in.at[i];
        if (left < 1 + (size_t)t->ndim || word[0] != t->ndim ||
            memcmp(word + 1, t->dim, t->ndim * sizeof *word) != 0)
            return false;
        word += 1 + t->ndim;
        left -= 1 + (size_t)t->ndim;
    }
    return left == 0;
}

static bool is_met(const aril__compiled *c, aril_list in)
{
    for (int i = 0; i < c->n_met; i++)
        if (has_sizes(&c->met[i], in)) return true;
    return false;
}

/* Remembers the sizes of a call; false if they are too many, or memory is out. */
static bool meet(aril__compiled *c, aril_list in, int max)
{
    sizes s = { .n = count_words(in) };
    if (c->n_met >= max || !(s.word = aril__malloc((s.n + 1) * sizeof *s.word))) return false;
    write_words(in, s.word);
    c->met[c->n_met++] = s;
    return true;
}

/* Whether two positions have equal sizes in all calls that were met. */
static bool always_equal(const aril__compiled *c, size_t a, size_t b)
{
    for (int i = 0; i < c->n_met; i++)
        if (c->met[i].word[a] != c->met[i].word[b]) return false;
    return true;
}

static bool varies(const aril__compiled *c, size_t at)
{
    for (int i = 1; i < c->n_met; i++)
        if (c->met[i].word[at] != c->met[0].word[at]) return true;
    return false;
}

/* Calls with other numbers of inputs or dimensions have nothing in common. */
static bool is_comparable(const aril__compiled *c, aril_list in)
{
    for (int i = 0; i < c->n_met; i++) {
        const int64_t *word = c->met[i].word;
        size_t at = 0;
        for (int k = 0; k < in.n; at += 1 + (size_t)in.at[k++]->ndim)
            if (at >= c->met[i].n || word[at] != in.at[k]->ndim) return false;
        if (at != c->met[i].n) return false;
    }
    return true;
}

/* Axes of size 1 broadcast, and empty ones have no elements: they are not like other sizes. */
static bool is_usual(const aril__compiled *c, aril_list in)
{
    size_t at = 0;
    for (int i = 0; i < in.n; i++) {
        at++;
        for (int d = 0; d < in.at[i]->ndim; d++, at++)
            if (in.at[i]->dim[d] < 2 && varies(c, at)) return false;
    }
    return true;
}

/* A program in which sizes that vary are unknown, and equal where they always were. */
static aril_program *new_any(const aril__compiled *c, aril_list in)
{
    size_t n = count_words(in), at = 0;
    aril_shape *shapes = aril__calloc(((size_t)in.n + 1) * sizeof *shapes);
    int64_t *unknown = aril__calloc((n + 1) * sizeof *unknown);
    aril_program *p = NULL;
    if (shapes && unknown) {
        for (int i = 0; i < in.n; i++) {
            shapes[i].ndim = in.at[i]->ndim;
            at++;
            for (int d = 0; d < in.at[i]->ndim; d++, at++) {
                shapes[i].dim[d] = in.at[i]->dim[d];
                if (!varies(c, at)) continue;
                unknown[at] = -(int64_t)at - 2;
                for (size_t k = 0; k < at && unknown[at] == -(int64_t)at - 2; k++)
                    if (unknown[k] && always_equal(c, k, at)) unknown[at] = unknown[k];
                shapes[i].dim[d] = unknown[at];
            }
        }
        p = aril_jit(c->fn, c->ctx,
                     (aril_jit_opts){ .name = c->name, .sizes = shapes, .n_sizes = in.n });
    }
    free(shapes);
    free(unknown);
    return p;
}

/* The program for these inputs; NULL: none. */
static aril_program *choose(aril__compiled *c, aril_list in)
{
    if (!c->fixed) c->fixed = aril_jit(c->fn, c->ctx, (aril_jit_opts){ .name = c->name });
    if (is_met(c, in)) return c->fixed;
    if (meet(c, in, FEW_SIZES)) return c->later ? NULL : c->fixed;
    bool comparable = is_comparable(c, in);
    if (!c->any && !c->any_fails && (!comparable || is_usual(c, in))) {
        if (comparable) c->any = new_any(c, in);
        c->any_fails = !c->any;
        if (c->any)
            aril__log(ARIL__LOG_TRACE, "%s: sizes that change become unknown ones", c->name);
    }
    if (c->any && !c->any_fails && !c->any_failure && comparable && is_usual(c, in)) return c->any;
    if (meet(c, in, MANY_SIZES)) return c->fixed;
    if (!c->reason) aril__compiled_refuse(c, "the sizes of its inputs change too often");
    return NULL;
}

/* ---- running ---- */

void aril__compiled_refuse(aril__compiled *c, const char *why)
{
    if (!c || c->reason) return;
    c->reason = aril__strdup(why);
    aril__log(ARIL__LOG_TRACE, "%s runs eagerly: %s", c->name, why);
}

/* From now on, sizes are known ones in each trace. */
static void fix_sizes(aril__compiled *c, const char *why)
{
    if (c->any_fails) return;
    c->any_fails = true;
    aril__log(ARIL__LOG_TRACE, "%s is traced for each size of its inputs: %s", c->name, why);
}

/* Keeps the message of a failed trace. */
static void note_failure(aril__compiled *c, aril_program *p, aril__error *why)
{
    pthread_mutex_lock(&c->lock);
    if (p == c->any) {
        fix_sizes(c, why->message); /* known sizes may still do */
    } else if (!c->failure) {
        c->failure = aril__strdup(why->message);
    }
    pthread_mutex_unlock(&c->lock);
    aril__error_release(why);
}

/* Whether the failure of a run with unknown sizes may be due to those. */
static bool may_fix(aril__compiled *c, aril_list in, const aril__error *why)
{
    if (why->code == ARIL_ERR_MEMORY || !aril__program_unchanged(c->any, in)) return false;
    pthread_mutex_lock(&c->lock);
    if (!c->any_failure) c->any_failure = aril__strdup(why->message);
    bool noted = c->any_failure != NULL;
    pthread_mutex_unlock(&c->lock);
    return noted;
}

/* After a run that failed with unknown sizes: the function has run without them, or failed, too. */
static void ran_without(aril__compiled *c, aril_status status)
{
    pthread_mutex_lock(&c->lock);
    if (c->any_failure && status == ARIL_OK) fix_sizes(c, c->any_failure);
    free(c->any_failure);
    c->any_failure = NULL;
    pthread_mutex_unlock(&c->lock);
}

/* aril__program_try of the program for unknown sizes: false if others are to be tried. */
static bool run_any(aril__compiled *c, aril_list in, bool recorded, aril_tensor **out,
                    aril_status *status, aril__error **untraced)
{
    aril__saved_errors before = aril__errors_begin_quiet();
    *status = aril__program_try(c->any, in, recorded, out, untraced);
    aril__error *e = aril__errors_end(&before);
    bool failed = e && *status < 0 && !*untraced, other = failed && may_fix(c, in, e);
    if (failed && !other && e->code == ARIL_ERR_SHAPE) { /* at least in later runs */
        pthread_mutex_lock(&c->lock);
        fix_sizes(c, e->message);
        pthread_mutex_unlock(&c->lock);
    }
    if (e && !other) aril__raise_error(e);
    if (e) aril__error_release(e);
    return !other;
}

bool aril__compiled_run(aril__compiled *c, aril_list in, bool recorded, aril_tensor **out,
                        aril_status *status)
{
    for (int i = 0; i < in.n; i++)
        if (!in.at[i]->storage) return false; /* poison, or symbolic */
    for (;;) {
        aril__saved_errors before = aril__errors_begin_quiet();
        pthread_mutex_lock(&c->lock);
        aril_program *p = c->reason ? NULL : choose(c, in);
        c->last_run = p ? p : c->last_run;
        pthread_mutex_unlock(&c->lock);
        aril__error_release(aril__errors_end(&before));
        if (!p) return false;
        aril__error *untraced = NULL;
        if (p == c->any) {
            if (!run_any(c, in, recorded, out, status, &untraced)) continue;
        } else {
            *status = aril__program_try(p, in, recorded, out, &untraced);
            if (!untraced) ran_without(c, *status);
        }
        if (!untraced) return true;
        bool known = p != c->any;
        note_failure(c, p, untraced);
        if (known) return false;
    }
}

void aril__compiled_ran(aril__compiled *c, aril_status status)
{
    pthread_mutex_lock(&c->lock);
    char *failure = c->failure;
    c->failure = NULL;
    if (failure && status == ARIL_OK) aril__compiled_refuse(c, failure);
    pthread_mutex_unlock(&c->lock);
    free(failure);
    ran_without(c, status);
}

const char *aril__compiled_reason(const aril__compiled *c)
{
    return c ? c->reason : NULL;
}

aril_program *aril__compiled_program(const aril__compiled *c)
{
    return c ? c->last_run : NULL;
}

int aril__compiled_traces(const aril__compiled *c)
{
    return c ? aril_program_traces(c->fixed) + aril_program_traces(c->any) : 0;
}
