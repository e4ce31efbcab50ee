#include "graph/program_parts.h"

#include "aril/create.h"
#include "core/log.h"
#include "graph/passes.h"
#include "graph/prepare.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_RESULTS = 4096, MOST_RESULTS = 1 << 20, MAX_TRACES = 64 };
enum { SPILL = 65536 };     /* results that a function may list beyond its room and get an error */
enum { MAX_BY_VALUE = 16 }; /* traces of a program whose signatures contain values */

static aril__cold aril_status no_memory(const aril_program *p)
{
    return aril__fail(ARIL_ERR_MEMORY, "%s: out of memory", p->name);
}

static void release_trace(trace *t)
{
    if (!t || atomic_fetch_sub(&t->refs, 1) != 1) return;
    aril__replay_free(t->replay);
    aril__gradient_release(t->gradient);
    aril__exec_free(t->x);
    aril__graph_free(t->g);
    aril__watches_free(&t->watches);
    free(t->signature);
    free(t->guards);
    free(t->joined);
    free(t->whole);
    aril__compared_free(t->compared);
    free(t);
}

/* ---- tracing ---- */

static aril_status too_many(const aril_program *p)
{
    return aril__fail(ARIL_ERR_ARG,
                      "%s: the function has more than %d results; raise .max_results of "
                      "aril_jit_opts",
                      p->name, p->max_results);
}

static aril_status no_gap(const aril_program *p, int n, aril_tensor *const *out)
{
    for (int i = n; i < p->max_results; i++)
        if (out[i])
            return aril__fail(ARIL_ERR_STATE, "%s: the function set result %d, but not result %d",
                              p->name, i, n);
    return ARIL_OK;
}

/* Inputs of a call that autograd records are leaves of the trace. */
static aril_status make_inputs(const aril_program *p, aril__tracing *t, aril_list in, bool recorded,
                               trace *to, aril_tensor **symbol)
{
    aril__thread *th = aril__self();
    for (int i = 0; i < in.n; i++) {
        int64_t dim[ARIL_MAX_DIMS];
        aril_tensor *x = in.at[i];
        if (aril__input_shared(in, i)) {
            aril_tensor *all = aril__give(th, aril__whole_storage(x));
            if (aril_tensor_status(all) < 0) return aril_tensor_status(all);
            to->whole[i] = aril__input_twin(in, i) == i;
            symbol[i] = aril__give(th, aril__tracing_shared(t, x, all));
        } else {
            aril__input_sizes(p, in, i, dim);
            symbol[i] = aril__give(th, aril__tracing_input(t, x, dim, NULL));
        }
        if (aril_tensor_status(symbol[i]) < 0) return aril_tensor_status(symbol[i]);
        if (aril__is_by_value(p) && aril__is_small_input(x)) {
            aril__tracer *tracer = aril__trace(NULL);
            symbol[i] = aril_copy(x); /* which nobody changes */
            aril__trace(tracer);
        }
        if (!x->node) continue;
        if (!recorded)
            aril__bind(th, symbol[i], x->node, x->node_out);
        else if (aril_set_requires_grad(symbol[i], true) < 0)
            return aril__latest_status();
    }
    return ARIL_OK;
}

/* out[]: NULLs, and one more than there is room for results. */
static aril_status call_fn(const aril_program *p, aril_tensor *const *in, aril_tensor **out,
                           int *n_out)
{
    const aril__thread *th = aril__self();
    const aril__error *before = th->last_error;
    p->fn(p->ctx, in, out);
    for (*n_out = 0; *n_out < p->max_results && out[*n_out];) ++*n_out;
    if (th->last_error != before && th->last_error) return th->last_error->code;
    if (out[p->max_results]) return too_many(p);
    for (int i = 0; i < *n_out; i++) {
        aril_status s = aril_tensor_status(out[i]);
        if (s < 0) return s;
    }
    return no_gap(p, *n_out, out);
}

/* The inputs as a run of the trace gets them. */
static aril_status give_inputs(const trace *t, aril_list in, aril_tensor **given)
{
    aril_status s = ARIL_OK;
    for (int i = 0; i < in.n && s == ARIL_OK; i++) {
        given[i] = t->whole[i] ? aril__give(aril__self(), aril__whole_storage(in.at[i])) : in.at[i];
        s = aril_tensor_status(given[i]);
    }
    return s;
}

static void settle(aril__tracing *t, const trace *to, aril_list in)
{
    ARIL_SCOPE;
    aril_tensor **given = aril__malloc(((size_t)in.n + 1) * sizeof *given);
    if (given && give_inputs(to, in, given) == ARIL_OK) aril__tracing_settle(t, given);
    free(given);
}

/* Records one call of the function into `to`, with its gradient if autograd records the call;
 * *n_out gets how many results it set, if that is more. The first `skip` numbers of unknown sizes
 * are not used. */
static aril_status record(const aril_program *p, aril_list in, bool recorded, size_t skip,
                          trace *to, bool *again, int *n_out)
{
    aril__tracing *t = aril__tracing_new(p->name, false);
    aril_tensor **symbol =
        aril__calloc(((size_t)in.n + (size_t)p->max_results + SPILL) * sizeof *symbol);
    if (!t || !symbol) {
        aril__tracing_free(t);
        free(symbol);
        return no_memory(p);
    }
    for (size_t i = 0; i < skip; i++) aril__size_new(aril__tracing_graph(t)->sizes, NULL);
    int set = 0, n_list = 0;
    aril_tensor **out = symbol + in.n, **list = NULL;
    aril__traced_call c = aril__tracing_begin(t);
    aril_status s = make_inputs(p, t, in, recorded, to, symbol);
    if (s == ARIL_OK) s = call_fn(p, symbol, out, &set);
    if (s == ARIL_OK && recorded) {
        to->gradient = aril__gradient_trace(t, p->name, in.n, symbol, set, out, &list, &n_list);
        if (!to->gradient) s = aril__latest_status();
    }
    s = aril__tracing_end(t, &c, s, s < 0 ? 0 : list ? n_list : set, list ? list : out);
    if (set > *n_out) *n_out = set;
    to->n_out = set;
    *again = aril__tracing_tracer(t)->drawn_outside;
    if (s == ARIL_OK)
        to->g = aril__tracing_take(t, &to->watches);
    else
        settle(t, to, in);
    aril__tracing_free(t);
    free(list);
    free(symbol);
    return s;
}

static void drop_recording(trace *t)
{
    aril__graph_free(t->g);
    aril__watches_free(&t->watches);
    aril__gradient_release(t->gradient);
    t->g = NULL;
    t->gradient = NULL;
}

/* An error if the function computes with the unknown sizes of a recording: it is called with known
 * ones, and must do the same. */
static aril_status check_sizes(const aril_program *p, aril_list in, bool recorded, const trace *t)
{
    bool again;
    int n_out = 0;
    if (!t->g->sizes->asked || p->kind) return ARIL_OK; /* models pass sizes on */
    aril_program known = *p;                            /* its lock is not used */
    known.n_sizes = 0;
    trace k = { .n_in = in.n, .whole = aril__calloc((size_t)in.n + 1) };
    aril_status s =
        k.whole ? record(&known, in, recorded, t->g->sizes->n, &k, &again, &n_out) : no_memory(p);
    if (s == ARIL_OK) s = aril__sizes_passed_on(p->name, t->g, k.g);
    drop_recording(&k);
    free(k.whole);
    return s;
}

/* The same until the function draws no numbers that it draws only once, compared with known
 * sizes. */
static aril_status record_checked(const aril_program *p, aril_list in, bool recorded, trace *t,
                                  int *n_out)
{
    bool again = false;
    aril_status s = record(p, in, recorded, 0, t, &again, n_out);
    if (s == ARIL_OK && again) { /* modules were built, which drew numbers: now they are there */
        drop_recording(t);
        s = record(p, in, recorded, 0, t, &again, n_out);
    }
    return s == ARIL_OK ? check_sizes(p, in, recorded, t) : s;
}

/* The same, as two programs if it has a gradient. */
static aril_status record_all(const aril_program *p, aril_list in, bool recorded, trace *t,
                              int *n_out)
{
    aril_status s = record_checked(p, in, recorded, t, n_out);
    if (s < 0 || !t->gradient) return s;
    t->g = aril__gradient_divide(t->gradient, t->g);
    return t->g ? ARIL_OK : aril__latest_status();
}

static aril_status guard_states(const aril_program *p, trace *t, aril_list in)
{
    const aril__graph *g = t->g;
    t->guards = aril__calloc(((size_t)g->n_states + 1) * sizeof *t->guards);
    if (!t->guards) return no_memory(p);
    for (uint32_t i = 0; i < g->n_states; i++) {
        const aril_tensor *x = g->states[i].tensor;
        state_guard *to = &t->guards[i];
        *to = (state_guard){ .device = x->storage->device,
                             .storage = x->storage,
                             .node = x->node,
                             .offset = x->offset,
                             .twin = aril__state_twin(g, i),
                             .dtype = x->dtype,
                             .ndim = x->ndim };
        memcpy(to->dim, x->dim, sizeof to->dim);
        memcpy(to->stride, x->stride, sizeof to->stride);
    }
    for (int i = 0; i < in.n; i++) t->joined[i] = aril__state_in(g, in.at[i]);
    return ARIL_OK;
}

static aril_status make_exec(const aril_program *p, trace *t, aril_list in)
{
    if (p->max_memory > 0) {
        ARIL_SCOPE;
        aril_tensor **given = aril__malloc(((size_t)in.n + 1) * sizeof *given);
        if (!given) return no_memory(p);
        if (give_inputs(t, in, given) == ARIL_OK)
            t->x = aril__exec_within(t->g, given, p->max_memory);
        free(given);
    } else {
        t->x = aril__exec_whole(t->g);
        if (t->x) t->replay = aril__replay_new(t->g);
    }
    return t->x ? ARIL_OK : aril__latest_status();
}

/* A new trace, with one reference for the caller. *status says why there is none. */
static trace *make_trace(const aril_program *p, aril_list in, bool recorded, const int64_t *word,
                         size_t n, aril_status *status, int *n_out)
{
    trace *t = aril__calloc(sizeof *t);
    if (t) {
        atomic_init(&t->refs, 1);
        t->n_in = in.n;
        t->n_words = n;
        t->signature = aril__malloc(n * sizeof *word);
        t->joined = aril__calloc(((size_t)in.n + 1) * sizeof *t->joined);
        t->whole = aril__calloc((size_t)in.n + 1);
    }
    if (!t || !t->signature || !t->joined || !t->whole) {
        release_trace(t);
        *status = no_memory(p);
        return NULL;
    }
    memcpy(t->signature, word, n * sizeof *word);
    aril_status s = record_all(p, in, recorded, t, n_out);
    if (s == ARIL_OK && t->g->sizes->asked && !p->kind) {
        if (!(t->compared = aril__compared_new())) s = ARIL_ERR_MEMORY;
        if (t->compared) aril__compared_add(t->compared, in);
    }
    bool fixed = p->freeze || (p->kind && p->kind->fixed);
    if (s == ARIL_OK && p->freeze) s = aril__graph_freeze(t->g, p->name);
    if (s == ARIL_OK && fixed) s = aril__graph_fix_numbers(t->g);
    if (s == ARIL_OK) s = aril__passes(t->g);
    if (s == ARIL_OK && fixed) aril__prepared_freeze(t->g->prepared);
    if (s == ARIL_OK) s = guard_states(p, t, in);
    if (s == ARIL_OK) s = make_exec(p, t, in);
    *status = s;
    t->frozen =
        s == ARIL_OK && p->freeze && t->g->n_effects + t->g->n_epilogues + t->g->n_draws == 0;
    if (s == ARIL_OK) return t;
    release_trace(t);
    return NULL;
}

/* ---- finding ---- */

/* An error if the function has read an object that does not exist any more, since it cannot be
 * called again then. With `alive`, the function reads what there is now: traces of what was there
 * before are forgotten. */
static aril_status check_ended(aril_program *p, bool alive)
{
    trace *dropped = NULL;
    aril_status s = ARIL_OK;
    pthread_mutex_lock(&p->lock);
    for (trace **at = &p->traces; *at && s == ARIL_OK;) {
        trace *t = *at;
        const char *what = aril__watches_ended(&t->watches);
        if (what && !alive)
            s = aril__fail(ARIL_ERR_STATE,
                           "%s: the traced function uses a %s that was released since; keep it as "
                           "long as the program, or make another program with aril_jit",
                           p->name, what);
        if (!what || !alive) {
            at = &t->next;
            continue;
        }
        *at = t->next;
        p->n_traces--;
        t->next = dropped;
        dropped = t;
    }
    pthread_mutex_unlock(&p->lock);
    for (trace *next; dropped; dropped = next) {
        next = dropped->next;
        release_trace(dropped);
    }
    return s;
}

/* Otherwise *why says how the call differs from the trace that is most like it. */
static trace *find_trace(aril_program *p, aril_list in, const int64_t *word, size_t n,
                         const char **why, int *input)
{
    int depth = -1;
    pthread_mutex_lock(&p->lock);
    trace *t = p->traces;
    *why = "its first run";
    *input = -1;
    for (; t; t = t->next) {
        difference d;
        const char *other = aril__other_than(t, in, word, n, &d);
        if (!other) break;
        if (d.depth <= depth) continue;
        depth = d.depth;
        *why = other;
        *input = d.input;
    }
    if (t) atomic_fetch_add(&t->refs, 1);
    pthread_mutex_unlock(&p->lock);
    return t;
}

/* Puts a trace into the list, which has a reference of its own. */
static void keep_trace(aril_program *p, trace *t)
{
    trace *dropped = NULL;
    pthread_mutex_lock(&p->lock);
    atomic_fetch_add(&t->refs, 1);
    t->next = p->traces;
    p->traces = t;
    if (atomic_fetch_add(&p->made, 1) == 0 || t->n_out < atomic_load(&p->least_out))
        atomic_store(&p->least_out, t->n_out);
    atomic_store(&p->n_out, t->n_out);
    if (++p->n_traces > p->max_traces) {
        trace **last = &p->traces;
        while ((*last)->next) last = &(*last)->next;
        dropped = *last;
        *last = NULL;
        p->n_traces--;
    }
    pthread_mutex_unlock(&p->lock);
    release_trace(dropped);
}

/* ---- running ---- */

/* A run whose gradient autograd records. */
static aril_status run_recorded(const trace *t, aril_list in, aril_tensor *const *given,
                                aril_tensor **out)
{
    aril__thread *th = aril__self();
    uint32_t n_out = (uint32_t)t->n_out, n = n_out + aril__gradient_kept(t->gradient);
    aril_tensor **all = aril__malloc(((size_t)n + 1) * sizeof *all);
    aril_rng_state *before = aril__malloc(((size_t)t->g->n_draws + 1) * sizeof *before);
    aril_status s = all && before ? ARIL_OK : aril__fail(ARIL_ERR_MEMORY, "run: out of memory");
    for (uint32_t i = 0; i < t->g->n_draws && s == ARIL_OK; i++) {
        aril_generator *of = t->g->draws[i].generator;
        before[i] = aril_generator_state(of ? of : &th->generator);
    }
    if (s == ARIL_OK) s = aril__replay_run(t->replay, t->x, given, all);
    if (s == ARIL_OK) {
        s = aril__gradient_record(t->gradient, t->g, in.at, given, before, all);
        for (uint32_t i = 0; i < n; i++) {
            if (i < n_out && s == ARIL_OK)
                out[i] = all[i];
            else
                aril__tensor_release(th, all[i]);
        }
    }
    free(all);
    free(before);
    return s;
}

static aril_status run_trace(const trace *t, aril_list in, aril_tensor **out)
{
    aril_tensor *few[16], **given = few;
    ARIL_SCOPE;
    if (in.n > 16 && !(given = aril__malloc((size_t)in.n * sizeof *given)))
        return aril__fail(ARIL_ERR_MEMORY, "run: out of memory");
    aril_status s = give_inputs(t, in, given);
    if (s == ARIL_OK)
        s = t->gradient ? run_recorded(t, in, given, out)
                        : aril__replay_run(t->replay, t->x, given, out);
    if (given != few) free(given);
    return s;
}

static aril_status check_inputs(const aril_program *p, aril_list in, bool recorded)
{
    for (int i = 0; i < in.n; i++) {
        aril_status s = aril__check_value(p->name, in.at[i]);
        if (s < 0) return s;
        if (!recorded && in.at[i]->node && !(in.at[i]->node->flags & ARIL__NODE_LEAF))
            return aril__fail(ARIL_ERR_STATE,
                              "%s: input %d was computed from tensors that require a gradient, and "
                              "a program does not connect to that graph; pass aril_detach of it",
                              p->name, i);
    }
    return aril__sizes_fit(p->name, p->n_sizes, p->sizes, in);
}

/* With `untraced`, a failure between these is not this thread's error, but *untraced. */
static aril__saved_errors begin_trial(aril__error *const *untraced)
{
    return untraced ? aril__errors_begin_quiet() : (aril__saved_errors){ 0 };
}

static void end_trial(const aril_program *p, aril__saved_errors *before, aril_status s,
                      aril__error **untraced)
{
    if (!untraced) return;
    if (s < 0 && aril_ok()) aril__fail(s, "%s: %s", p->name, aril_status_text(s));
    *untraced = aril__errors_end(before);
    if (s < 0) return;
    aril__error_release(*untraced); /* what the function ignored */
    *untraced = NULL;
}

static trace *try_trace(const aril_program *p, aril_list in, bool recorded, const int64_t *word,
                        size_t n, aril_status *status, int *n_out, aril__error **untraced)
{
    aril__saved_errors before = begin_trial(untraced);
    trace *t = make_trace(p, in, recorded, word, n, status, n_out);
    end_trial(p, &before, *status, untraced);
    return t;
}

/* Traces the function for these sizes, and compares. */
static aril_status compare_again(const aril_program *p, aril_list in, bool recorded, int *n_out)
{
    trace t = { .n_in = in.n, .whole = aril__calloc((size_t)in.n + 1) };
    aril_status s = t.whole ? record_checked(p, in, recorded, &t, n_out) : no_memory(p);
    drop_recording(&t);
    free(t.whole);
    return s;
}

/* Whether a trace is right for these sizes, too: a function that asked for sizes may do something
 * else for each of them. */
static bool is_right(aril_program *p, aril_list in, bool recorded, const trace *t,
                     aril_status *status, int *n_out, aril__error **untraced)
{
    if (!t->compared) return true;
    pthread_mutex_lock(&p->lock);
    bool known = aril__compared_has(t->compared, in);
    pthread_mutex_unlock(&p->lock);
    if (known) return true;
    aril__saved_errors before = begin_trial(untraced);
    *status = compare_again(p, in, recorded, n_out);
    end_trial(p, &before, *status, untraced);
    aril__log(ARIL__LOG_TRACE, "%s: %s for other sizes, which it asks for", p->name,
              *status == ARIL_OK ? "compared" : "comparison failed");
    if (*status < 0) return false;
    pthread_mutex_lock(&p->lock);
    aril__compared_add(t->compared, in);
    pthread_mutex_unlock(&p->lock);
    return true;
}

static bool is_untraced(const aril_program *p)
{
    return p->kind && p->kind->untraced(p->ctx);
}

/* Calls the function itself. out[] gets references. */
static aril_status call_untraced(const aril_program *p, aril_list in, aril_tensor **out, int *n_out)
{
    ARIL_SCOPE;
    aril_tensor **made = aril__calloc(((size_t)p->max_results + 1) * sizeof *made);
    if (!made) return no_memory(p);
    aril_status s = call_fn(p, in.at, made, n_out);
    for (int i = 0; i < *n_out && s == ARIL_OK; i++) out[i] = aril__tensor_keep(made[i]);
    if (s < 0) *n_out = atomic_load(&p->least_out);
    free(made);
    return s;
}

/* A loaded model declares how many inputs it takes; of other functions that is not known. */
static aril_status check_count(const aril_program *p, aril_list in)
{
    if (!p->kind || in.n == p->n_in) return ARIL_OK;
    return aril__fail(ARIL_ERR_ARG, "%s: got %d inputs, expected %d", p->name, in.n, p->n_in);
}

static aril_status run_function(aril_program *p, aril_list in, bool recorded, aril_tensor **out,
                                int *n_out, aril__error **untraced)
{
    enum { FEW = MODE_WORDS + 4 * INPUT_WORDS };
    int64_t few[FEW], *word = few;
    size_t n = MODE_WORDS + (size_t)in.n * INPUT_WORDS;
    aril_status s = check_inputs(p, in, recorded);
    if (s == ARIL_OK) s = check_count(p, in);
    if (s < 0) return s;
    if (is_untraced(p)) return call_untraced(p, in, out, n_out);
    if (n > FEW && !(word = aril__malloc(n * sizeof *word))) return no_memory(p);
    bool by_value = aril__is_by_value(p);
    aril__describe_call(p, in, recorded, word);
    const char *why;
    int input;
    trace *t = find_trace(p, in, word, n, &why, &input);
    if (!t && (s = check_ended(p, untraced || p->kind)) < 0) {
        if (word != few) free(word);
        return s;
    }
    if (t) {
        if (!is_right(p, in, recorded, t, &s, n_out, untraced)) {
            release_trace(t);
            t = NULL;
        }
    } else {
        bool often = by_value && atomic_load(&p->made) >= MAX_BY_VALUE;
        if (!often) t = try_trace(p, in, recorded, word, n, &s, n_out, untraced);
        if (!by_value && aril__is_by_value(p)) { /* it found that they matter: that was no trace */
            release_trace(t);
            aril__describe_call(p, in, recorded, word);
            t = try_trace(p, in, recorded, word, n, &s, n_out, untraced);
        }
        if (often || is_untraced(p)) {
            release_trace(t);
            if (word != few) free(word);
            return call_untraced(p, in, out, n_out);
        }
        char of[32] = "";
        if (input >= 0) snprintf(of, sizeof of, " of input %d", input);
        aril__log(ARIL__LOG_TRACE, "%s: %s, because of %s%s", p->name,
                  t ? "traced" : "tracing failed", why, of);
        if (t) keep_trace(p, t);
    }
    if (word != few) free(word);
    if (!t) return s;
    *n_out = t->n_out;
    s = run_trace(t, in, out);
    release_trace(t);
    return s;
}

/* The part for inputs on a device; NULL with an error. */
static aril__part *part_on(aril_program *p, aril__device *device)
{
    pthread_mutex_lock(&p->lock);
    int i = 0;
    while (i < p->n_parts && p->device[i] != device) i++;
    if (i == MAX_PARTS)
        aril__fail(ARIL_ERR_UNSUPPORTED, "%s: inputs on more than %d devices", p->name, MAX_PARTS);
    else if (i == p->n_parts && (p->part[i] = aril__part_new(p->g, &p->of, device, p->placed)))
        p->device[p->n_parts++] = device;
    aril__part *part = i < p->n_parts ? p->part[i] : NULL;
    pthread_mutex_unlock(&p->lock);
    return part;
}

static aril_status check_dtype(const aril_program *p, int i, const aril_tensor *t)
{
    const aril__input *to = &p->g->inputs[p->inputs[i]];
    aril_dtype want = (aril_dtype)p->g->values[to->value].dtype;
    if (t->dtype == want) return ARIL_OK;
    return aril__fail(ARIL_ERR_DTYPE,
                      "%s: input %d is the placeholder '%s' of dtype %s, but got %s", p->name, i,
                      to->name ? to->name : "?", aril__dtypes[want].name,
                      aril__dtypes[t->dtype].name);
}

static aril_status run_graph(aril_program *p, aril_list in, aril_tensor **out)
{
    if (in.n != p->n_in)
        return aril__fail(ARIL_ERR_ARG, "%s: got %d inputs, expected %d", p->name, in.n, p->n_in);
    aril_tensor **given = aril__calloc(((size_t)p->g->n_inputs + 1) * sizeof *given);
    if (!given) return no_memory(p);
    aril_status s = check_inputs(p, in, false);
    aril__device *device = NULL;
    for (int i = 0; i < in.n && s == ARIL_OK; i++) {
        s = check_dtype(p, i, in.at[i]);
        given[p->inputs[i]] = in.at[i];
        if (!device && !p->placed[p->inputs[i]] && !aril__is_number(in.at[i]))
            device = in.at[i]->storage->device;
    }
    const aril__part *part = s == ARIL_OK ? part_on(p, device ? device : p->device[0]) : NULL;
    if (s == ARIL_OK) s = part ? aril__part_run(part, given, out) : aril__latest_status();
    free(given);
    return s;
}

aril_status aril_program_run(aril_program *p, aril_list in, aril_tensor **out)
{
    return aril__program_try(p, in, false, out, NULL);
}

aril_status aril__program_try(aril_program *p, aril_list in, bool recorded, aril_tensor **out,
                              aril__error **untraced)
{
    aril__thread *th = aril__self();
    if (!p || in.n < 0 || (in.n && !in.at)) {
        if (out) out[0] = aril__poison(); /* of how many there are, nothing is known */
        return aril__fail(ARIL_ERR_ARG, "program_run: the %s is NULL", p ? "list" : "program");
    }
    if (!out && (p->fn || atomic_load(&p->n_out) != 0))
        return aril__fail(ARIL_ERR_ARG, "%s: there is no room for results: out is NULL", p->name);
    if (th->tracer) /* inside another trace: a call like any other */
        return aril__fail(ARIL_ERR_UNSUPPORTED,
                          "%s: a program cannot run inside a trace; call its function", p->name);
    /* A run that fails before its trace is known poisons what all traces have. */
    int n_out = atomic_load(&p->least_out);
    aril_status s =
        p->fn ? run_function(p, in, recorded, out, &n_out, untraced) : run_graph(p, in, out);
    if (s < 0) {
        if (out && !(untraced && *untraced)) /* before the first trace, out[0] stands for all */
            aril__poison_all(n_out > 0 || atomic_load(&p->made) ? n_out : 1, out);
        return s;
    }
    for (int i = 0; i < n_out; i++) {
        out[i] = aril__give(th, out[i]);
        if (s == ARIL_OK) s = aril_tensor_status(out[i]);
    }
    if (s == ARIL_OK && p->kind && p->kind->check && (s = p->kind->check(p->ctx)) < 0)
        aril__poison_all(n_out, out);
    return s;
}

/* ---- lifetime ---- */

static aril_program *new_program(const char *name)
{
    aril_program *p = aril__calloc(sizeof *p);
    if (!p || !(p->name = aril__strdup(name))) {
        free(p);
        aril__fail(ARIL_ERR_MEMORY, "%s: out of memory", name);
        return NULL;
    }
    pthread_mutex_init(&p->lock, NULL);
    return p;
}

aril_program *aril_jit(aril_fn *fn, void *ctx, aril_jit_opts opts)
{
    aril__self();
    if (opts.max_memory < 0) {
        aril__fail(ARIL_ERR_ARG, "jit: max_memory is %lld bytes, expected 0 or more",
                   (long long)opts.max_memory);
        return NULL;
    }
    const char *const what[] = { "n_sizes", "max_traces", "max_results" };
    const int given[] = { opts.n_sizes, opts.max_traces, opts.max_results };
    for (int i = 0; i < 3; i++) {
        if (given[i] >= 0) continue;
        aril__fail(ARIL_ERR_ARG, "jit: %s is %d, expected 0 or more", what[i], given[i]);
        return NULL;
    }
    if (opts.max_results > MOST_RESULTS) {
        aril__fail(ARIL_ERR_ARG, "jit: max_results is %d, expected at most %d", opts.max_results,
                   MOST_RESULTS);
        return NULL;
    }
    if (!fn || (opts.n_sizes && !opts.sizes)) {
        aril__fail(ARIL_ERR_ARG, "jit: the %s is NULL", fn ? "list of sizes" : "function");
        return NULL;
    }
    aril_program *p = new_program(opts.name ? opts.name : "program");
    if (!p) return NULL;
    p->fn = fn;
    p->ctx = ctx;
    p->max_results = opts.max_results > 0 ? opts.max_results : MAX_RESULTS;
    p->max_memory = opts.max_memory;
    p->freeze = opts.freeze;
    p->max_traces = opts.max_traces > 0 ? opts.max_traces : MAX_TRACES;
    p->n_sizes = opts.n_sizes;
    p->sizes = aril__malloc(((size_t)opts.n_sizes + 1) * sizeof *p->sizes);
    if (!p->sizes) {
        no_memory(p);
        aril_program_free(p);
        return NULL;
    }
    if (opts.n_sizes) memcpy(p->sizes, opts.sizes, (size_t)opts.n_sizes * sizeof *p->sizes);
    return p;
}

static void *copy_of(const void *from, size_t bytes)
{
    void *to = aril__malloc(bytes + 1);
    return to && bytes ? memcpy(to, from, bytes) : to;
}

aril_program *aril__program_of(const aril__graph *g, const aril__request *q, const bool *placed,
                               int n_in, const uint32_t *inputs)
{
    aril_program *p = new_program(g->name ? g->name : "function");
    if (!p) return NULL;
    p->inputs = copy_of(inputs, (size_t)n_in * sizeof *inputs);
    p->placed = copy_of(placed, g->n_inputs);
    p->of = (aril__request){ q->n_out, q->n_effects, copy_of(q->out, q->n_out * sizeof *q->out),
                             copy_of(q->effects, q->n_effects * sizeof *q->effects) };
    p->g = g;
    p->n_in = n_in;
    atomic_init(&p->n_out, (int)q->n_out);
    atomic_init(&p->least_out, (int)q->n_out);
    bool fits = p->inputs && p->placed && p->of.out && p->of.effects;
    if (!fits) no_memory(p);
    aril__device *device = aril__cpu_device; /* until inputs tell: where the variables are */
    if (g->n_states && g->states[0].tensor) device = g->states[0].tensor->storage->device;
    if (fits && part_on(p, device)) return p;
    aril_program_free(p);
    return NULL;
}

void aril__program_hold(aril_program *p, void *owner, void (*release)(void *owner))
{
    p->owner = owner;
    p->release = release;
}

const aril__part *aril__program_part(const aril_program *p)
{
    return p->part[0];
}

aril_program *aril__program_own(aril_fn *fn, void *ctx, const aril__program_kind *kind,
                                const char *name, int n_in, int n_out)
{
    aril_program *p = aril_jit(fn, ctx, (aril_jit_opts){ .name = name, .max_results = n_out });
    if (!p) {
        kind->free(ctx);
        return NULL;
    }
    p->kind = kind;
    p->n_in = n_in;
    atomic_store(&p->n_out, n_out);
    atomic_store(&p->least_out, n_out);
    return p;
}

bool aril__program_takes_values(const aril_program *p, aril_values in, aril_value **out,
                                aril_status *status)
{
    return p->kind && p->kind->values && p->kind->values(p->ctx, in, out, status);
}

int aril__program_max_results(const aril_program *p)
{
    int n_out = atomic_load(&p->n_out);
    return n_out > p->max_results ? n_out : p->max_results;
}

const aril__program_kind *aril__program_kind_of(const aril_program *p, void **ctx)
{
    *ctx = p->ctx;
    return p->kind;
}

void *aril__program_owned(const aril_program *p, const aril__program_kind *kind)
{
    return p && p->kind == kind ? p->ctx : NULL;
}

void aril_program_free(aril_program *p)
{
    if (!p) return;
    if (p->kind) p->kind->free(p->ctx);
    for (trace *next; p->traces; p->traces = next) {
        next = p->traces->next;
        release_trace(p->traces);
    }
    pthread_mutex_destroy(&p->lock);
    for (int i = 0; i < p->n_parts; i++) aril__part_free(p->part[i]);
    if (p->release) p->release(p->owner);
    free(p->of.out);
    free(p->of.effects);
    free(p->placed);
    free(p->inputs);
    free(p->sizes);
    free(p->name);
    free(p);
}

int aril_program_results(const aril_program *p)
{
    return p ? atomic_load(&p->n_out) : 0;
}

int aril_program_traces(const aril_program *p)
{
    return p ? atomic_load(&p->made) : 0;
}

static pthread_mutex_t *lock_of(const aril_program *p)
{
    return &((aril_program *)(uintptr_t)p)->lock;
}

/* The latest trace with a reference for the caller, or NULL. Of a program of a defined graph, *part
 * gets the latest part instead. */
static trace *latest(const aril_program *p, const aril__part **part)
{
    pthread_mutex_lock(lock_of(p));
    trace *t = p->traces;
    if (t) atomic_fetch_add(&t->refs, 1);
    *part = p->n_parts ? p->part[p->n_parts - 1] : NULL;
    pthread_mutex_unlock(lock_of(p));
    return t;
}

aril_memory_plan aril_program_memory(const aril_program *p, aril_device device)
{
    aril_memory_plan m = { 0 };
    aril__self();
    if (!p) return m;
    const aril__device *d = aril__device_find(device);
    const aril__part *part;
    trace *t = latest(p, &part);
    if (d && t)
        m = aril__exec_memory(t->x, d);
    else if (d && part)
        m = aril__part_memory(part, d);
    release_trace(t);
    return m;
}

aril_tensor **aril__program_place(const aril_program *p, aril_list *in)
{
    int n = p->fn ? in->n : (int)p->g->n_inputs;
    if (!p->fn && in->n != p->n_in) {
        aril__fail(ARIL_ERR_ARG, "%s: got %d inputs, expected %d", p->name, in->n, p->n_in);
        return NULL;
    }
    aril_tensor **all = aril__calloc(((size_t)n + 1) * sizeof *all);
    aril_status s = all ? ARIL_OK : no_memory(p);
    for (int i = 0; i < in->n && s == ARIL_OK; i++) {
        s = aril__check_value(p->name, in->at[i]);
        all[p->fn ? (uint32_t)i : p->inputs[i]] = in->at[i];
    }
    *in = (aril_list){ n, all };
    if (s == ARIL_OK) return all;
    free(all);
    return NULL;
}

bool aril__program_unchanged(const aril_program *p, aril_list in)
{
    ARIL_SCOPE;
    const aril__part *part;
    trace *t = latest(p, &part);
    aril_tensor **given = aril__malloc(((size_t)in.n + 1) * sizeof *given);
    aril__saved_errors before = aril__errors_begin_quiet();
    /* Effects begin when a plan is run. */
    bool unchanged = t && (!t->g->n_effects || (given && give_inputs(t, in, given) == ARIL_OK &&
                                                aril__exec_fits(t->x, given) < 0));
    aril__error_release(aril__errors_end(&before));
    free(given);
    release_trace(t);
    return unchanged;
}

bool aril__program_look(const aril_program *p, void (*fn)(const aril__graph *g, void *ctx),
                        void *ctx)
{
    const aril__part *part;
    trace *t = latest(p, &part);
    const aril__graph *g = t ? t->g : part ? aril__part_graph(part) : NULL;
    if (g) fn(g, ctx);
    release_trace(t);
    return g != NULL;
}

static bool never(void *ctx)
{
    (void)ctx;
    return false;
}

/* A program whose trace serves for all values of its inputs; its own lock is not used. */
static aril_program for_all_values(const aril_program *p, aril__program_kind *kind)
{
    aril_program with = *p;
    if (!p->kind || !p->kind->whole) return with;
    *kind = *p->kind;
    kind->untraced = never;
    kind->by_value = NULL;
    with.kind = kind;
    with.fn = kind->whole;
    return with;
}

static aril_status look_plain(const aril_program *p, aril_list in,
                              void (*fn)(const aril__graph *g, void *ctx), void *ctx)
{
    if (!p->fn) {
        aril__graph *g = aril__part_plain(p->g, &p->of);
        if (!g) return aril__latest_status();
        fn(g, ctx);
        aril__graph_free(g);
        return ARIL_OK;
    }
    bool again;
    int n_out = 0;
    trace t = { .n_in = in.n, .whole = aril__calloc((size_t)in.n + 1) };
    aril_status s = t.whole ? check_inputs(p, in, false) : no_memory(p);
    if (s == ARIL_OK) s = check_count(p, in);
    if (s == ARIL_OK) s = record(p, in, false, 0, &t, &again, &n_out);
    if (s == ARIL_OK && again) { /* modules were built, which drew numbers: now they are there */
        drop_recording(&t);
        s = record(p, in, false, 0, &t, &again, &n_out);
    }
    if (s == ARIL_OK) s = check_sizes(p, in, false, &t);
    if (s == ARIL_OK && is_untraced(p))
        s = aril__fail(ARIL_ERR_STATE, "%s: depends on values, so that it cannot be traced",
                       p->name);
    if (s == ARIL_OK) fn(t.g, ctx);
    aril__graph_free(t.g);
    aril__watches_free(&t.watches);
    free(t.whole);
    return s;
}

aril_status aril__program_look_plain(const aril_program *p, aril_list in,
                                     void (*fn)(const aril__graph *g, void *ctx), void *ctx)
{
    return aril__program_look_sized(p, in, NULL, 0, fn, ctx);
}

aril_status aril__program_look_sized(const aril_program *p, aril_list in, const aril_shape *sizes,
                                     int n_sizes, void (*fn)(const aril__graph *g, void *ctx),
                                     void *ctx)
{
    aril__program_kind kind;
    pthread_mutex_lock(lock_of(p));
    aril_program with = for_all_values(p, &kind);
    pthread_mutex_unlock(lock_of(p));
    if (sizes) {
        with.sizes = (aril_shape *)(uintptr_t)sizes;
        with.n_sizes = n_sizes;
    }
    return look_plain(&with, in, fn, ctx);
}

const char *aril__program_name(const aril_program *p)
{
    return p->name;
}

static void print_to(const aril__graph *g, void *to)
{
    aril__graph_print(g, to);
}

void aril_program_print(const aril_program *p, FILE *to)
{
    if (!p || !to) return;
    if (!aril__program_look(p, print_to, to)) fprintf(to, "graph %s: not traced yet\n", p->name);
}
