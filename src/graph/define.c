/* Define and run: graphs that are built by calls on symbolic tensors, and sessions that run
 * them. */
#include "aril/create.h"
#include "aril/dtype.h"
#include "aril/math.h"
#include "core/log.h"
#include "graph/passed_on.h"
#include "graph/program.h"
#include "ops/shape/copy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct kept {
    aril_tensor *symbol;  /* belongs to the graph */
    aril_tensor *initial; /* a reference */
    uint32_t state;
    bool placed; /* by ARIL_DEVICE: sessions do not move it */
} kept;

struct aril_graph {
    atomic_int refs; /* of the user, sessions and programs */
    aril__tracing *t;
    kept *variables;
    uint32_t n_variables, cap_variables;
    bool *placed; /* for each placeholder: by ARIL_DEVICE */
    uint32_t cap_placed;
};

/* ---- graphs ---- */

aril_graph *aril_graph_new(const char *name)
{
    aril__self();
    aril_graph *g = aril__calloc(sizeof *g);
    if (!g || !(g->t = aril__tracing_new(name, true))) {
        free(g);
        aril__fail(ARIL_ERR_MEMORY, "graph_new: out of memory");
        return NULL;
    }
    atomic_init(&g->refs, 1);
    aril__tracing_set_owner(g->t, g);
    return g;
}

static aril_graph *keep_graph(aril_graph *g)
{
    atomic_fetch_add(&g->refs, 1);
    return g;
}

static void release_graph(void *graph)
{
    aril_graph_free(graph);
}

void aril_graph_free(aril_graph *g)
{
    if (!g || atomic_fetch_sub(&g->refs, 1) != 1) return;
    for (uint32_t i = 0; i < g->n_variables; i++) {
        const kept *v = &g->variables[i];
        aril__tracing_graph(g->t)->states[v->state].tensor->flags &= (uint16_t)~ARIL__HELD;
        aril__tensor_release(aril__self(), v->initial);
    }
    aril__tracing_free(g->t);
    free(g->variables);
    free(g->placed);
    free(g);
}

void aril_graph_print(const aril_graph *g, FILE *to)
{
    if (g && to) aril__graph_print(aril__tracing_graph(g->t), to);
}

/* The graph of a symbolic tensor; NULL with an error. */
static aril_graph *graph_of(const char *what, const aril_tensor *t)
{
    aril__tracing *of = NULL;
    if (!t)
        aril__fail(ARIL_ERR_ARG, "%s: the tensor is NULL", what);
    else if (t->flags & ARIL__POISON)
        aril__refuse_poison(what, -1, t);
    else if (!(of = aril__tracing_of(t)))
        aril__fail(ARIL_ERR_ARG, "%s: expected a symbolic tensor of a graph, got one with a value",
                   what);
    return of ? aril__tracing_owner(of) : NULL;
}

/* A trace records what runs: it cannot create what belongs to another graph, or run that. */
static aril_status check_untraced(const char *what)
{
    if (!aril__self()->tracer) return ARIL_OK;
    return aril__fail(ARIL_ERR_UNSUPPORTED,
                      "%s: not possible inside a trace; define and run graphs outside, or call the "
                      "functions that define them",
                      what);
}

/* The list of a call. */
static aril_status check_list(const char *what, const char *name, int n, const void *at)
{
    if (n >= 0 && (!n || at)) return ARIL_OK;
    return n < 0 ? aril__fail(ARIL_ERR_ARG, "%s: there are %d %s", what, n, name)
                 : aril__fail(ARIL_ERR_ARG, "%s: the list of %s is NULL", what, name);
}

aril_guard aril_device_begin(aril_device device)
{
    aril_guard g = aril_no_grad_begin();
    aril__thread *th = aril__self();
    if (g.depth == UINT32_MAX) return g;
    th->mode.no_grad = th->guards[th->n_guards - 1].mode.no_grad;
    th->mode.placed = true;
    th->mode.device = device;
    return g;
}

/* ---- names ---- */

enum { NAME = 256 };

static bool is_taken(const aril__graph *g, const char *name)
{
    for (uint32_t i = 0; i < g->n_inputs; i++)
        if (g->inputs[i].name && strcmp(g->inputs[i].name, name) == 0) return true;
    for (uint32_t i = 0; i < g->n_states; i++)
        if (g->states[i].name && strcmp(g->states[i].name, name) == 0) return true;
    return false;
}

/* A name that no placeholder or variable has: "x", then "x_1", "x_2". Longer names are cut. */
static const char *unique_name(const aril__graph *g, const char *name, char text[NAME])
{
    if (!name || !is_taken(g, name)) return name;
    for (int k = 1;; k++) {
        snprintf(text, NAME, "%.*s_%d", NAME - 16, name, k);
        if (!is_taken(g, text)) return text;
    }
}

/* ---- placeholders ---- */

static aril__device *device_now(void)
{
    const aril__mode *m = &aril__self()->mode;
    return m->placed ? aril__device_find(m->device) : aril__cpu_device;
}

aril_tensor *aril_placeholder(aril_graph *g, const char *name, aril_shape shape, aril_dtype dtype)
{
    aril__thread *th = aril__self();
    if (check_untraced("placeholder") < 0) return aril__poison();
    if (!g || shape.ndim < 0 || shape.ndim > ARIL_MAX_DIMS) {
        aril__fail(ARIL_ERR_ARG,
                   g ? "placeholder: %d dimensions" : "placeholder: the graph is NULL", shape.ndim);
        return aril__poison();
    }
    if (!aril_dtype_bits(dtype)) {
        aril__fail(ARIL_ERR_DTYPE, "placeholder: %d is not a dtype of tensors", (int)dtype);
        return aril__poison();
    }
    aril__device *device = device_now();
    if (!device) {
        aril__fail(ARIL_ERR_DEVICE, "placeholder: the device of ARIL_DEVICE does not exist");
        return aril__poison();
    }
    aril__graph *of = aril__tracing_graph(g->t);
    aril_tensor *like = aril__tensor_header(th, dtype, shape.ndim, shape.dim);
    if (!like || !aril__graph_grow(&g->placed, of->n_inputs, &g->cap_placed, sizeof *g->placed)) {
        if (like) aril__tensor_release(th, like);
        return aril__poison();
    }
    like->flags |= ARIL__SHAPE_ONLY;
    like->u.device = device;
    g->placed[of->n_inputs] = th->mode.placed;
    char text[NAME];
    aril_tensor *x = aril__tracing_input(g->t, like, shape.dim, unique_name(of, name, text));
    aril__tensor_release(th, like);
    x = aril__give(th, x);
    if (aril__is_float(dtype) && aril__dtypes[dtype].computes) aril_set_requires_grad(x, true);
    return x;
}

/* ---- variables ---- */

static aril_status initialize(aril_graph *g, const kept *v)
{
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    aril_tensor *to = aril__tracing_graph(g->t)->states[v->state].tensor;
    return aril_tensor_status(aril_copy_(to, v->initial));
}

aril_tensor *aril_variable(aril_graph *g, const char *name, aril_tensor *initial)
{
    aril__thread *th = aril__self();
    if (check_untraced("variable") < 0) return aril__poison();
    if (!g) aril__fail(ARIL_ERR_ARG, "variable: the graph is NULL");
    if (!g || aril__check_value("variable", initial) < 0) return aril__poison();
    if (!aril__graph_grow(&g->variables, g->n_variables, &g->cap_variables, sizeof *g->variables))
        return aril__poison();
    aril__device *device = device_now();
    if (!device) {
        aril__fail(ARIL_ERR_DEVICE, "variable: the device of ARIL_DEVICE does not exist");
        return aril__poison();
    }
    ARIL_SCOPE;
    aril_tensor *state;
    {
        ARIL_NO_GRAD;
        state = aril_copy(aril_to(aril_detach(initial), device->id));
    }
    if (aril__is_poison(state)) return aril_escape(state);
    state->flags &= (uint16_t) ~(ARIL__WEAK | ARIL__NUMBER);
    char text[NAME];
    const char *own = unique_name(aril__tracing_graph(g->t), name, text);
    aril_tensor *x = aril__give(th, aril__tracing_variable(g->t, state, own));
    if (aril__is_poison(x)) return aril_escape(x);
    /* The graph has no device, as its placeholders have none: the value is where it was given,
     * until a session moves it. */
    if (!th->mode.placed && initial->storage->device != device) {
        ARIL_NO_GRAD;
        aril_tensor *there = aril_to(state, initial->storage->device->id);
        if (aril__is_poison(there)) return aril_escape(there);
        aril__tensor_exchange(state, there);
    }
    state->flags |= ARIL__HELD;
    g->variables[g->n_variables++] = (kept){ .symbol = x,
                                             .initial = aril__tensor_keep(initial),
                                             .state = aril__tracing_graph(g->t)->n_states - 1,
                                             .placed = th->mode.placed };
    if (aril__is_float((aril_dtype)state->dtype) && aril__dtypes[state->dtype].computes)
        aril_set_requires_grad(x, true);
    return aril_escape(x);
}

static bool is_placeholder(const aril_graph *g, const aril_tensor *t)
{
    aril__value_id v = aril__tracing_value(g->t, (aril_tensor *)(uintptr_t)t);
    return v && aril__tracing_graph(g->t)->values[v].kind == ARIL__FROM_INPUT;
}

/* The variable that a symbolic tensor is; NULL with an error. */
static const kept *variable_of(const char *what, aril_graph *g, const aril_tensor *t)
{
    for (uint32_t i = 0; g && i < g->n_variables; i++)
        if (g->variables[i].symbol == t) return &g->variables[i];
    if (g) {
        bool input = t->u.symbol && is_placeholder(g, t);
        aril__fail(ARIL_ERR_ARG, "%s: expected a variable of a graph (aril_variable), got %s", what,
                   input ? "a placeholder, whose value is fed"
                         : "a tensor that the graph computes");
    }
    return NULL;
}

aril_tensor *aril_variable_value(aril_tensor *t)
{
    aril_graph *g = graph_of("variable_value", t);
    const kept *v = variable_of("variable_value", g, t);
    return v ? aril__tracing_graph(g->t)->states[v->state].tensor : aril__poison();
}

aril_status aril_graph_initialize(aril_graph *g)
{
    if (!g) return aril__fail(ARIL_ERR_ARG, "graph_initialize: the graph is NULL");
    aril_status s = check_untraced("graph_initialize");
    for (uint32_t i = 0; i < g->n_variables && s == ARIL_OK; i++)
        s = initialize(g, &g->variables[i]);
    return s;
}

/* ---- assignments ---- */

/* `value` has been computed for this assignment alone: fetching it performs it. */
static aril_tensor *assigned(const char *what, aril_tensor *variable, aril_tensor *value)
{
    aril_graph *g = graph_of(what, variable);
    const kept *v = variable_of(what, g, variable);
    if (!v || aril__is_poison(value)) return v ? aril__pass_on(value) : aril__poison();
    char a[ARIL__SHAPE_TEXT], b[ARIL__SHAPE_TEXT];
    aril_tensor *state = aril__tracing_graph(g->t)->states[v->state].tensor;
    if (!aril__dims_fit(value->ndim, value->dim, state->ndim, state->dim) ||
        value->dtype != state->dtype) {
        aril__fail(ARIL_ERR_SHAPE, "%s: the variable is %s %s, but the new value %s %s", what,
                   aril__dtypes[state->dtype].name, aril__text(a, state),
                   aril__dtypes[value->dtype].name, aril__text(b, value));
        return aril__poison();
    }
    aril__value_id id = aril__tracing_value(g->t, value);
    if (!id || !aril__graph_effect(aril__tracing_graph(g->t), ARIL__WRITE_STATE, v->state, id))
        return aril__poison();
    return value;
}

static bool is_variable(const char *what, const aril_tensor *t)
{
    aril_graph *g = graph_of(what, t);
    return g && variable_of(what, g, t);
}

/* Whether an operation of both has the shape of the variable. It reports NULL and poison itself. */
static bool check_value(const char *what, const aril_tensor *variable, const aril_tensor *value)
{
    char a[ARIL__SHAPE_TEXT], b[ARIL__SHAPE_TEXT];
    if (!variable || !value || (variable->flags | value->flags) & ARIL__POISON) return true;
    int more = variable->ndim - value->ndim;
    bool fits = more >= 0;
    for (int d = 0; d < value->ndim && fits; d++) {
        int64_t to = variable->dim[more + d], from = value->dim[d];
        fits = from == to || from == 1 || from < 0 || to < 0;
    }
    if (!fits)
        aril__fail(ARIL_ERR_SHAPE, "%s: the variable is %s %s, but the value %s %s", what,
                   aril__dtypes[variable->dtype].name, aril__text(a, variable),
                   aril__dtypes[value->dtype].name, aril__text(b, value));
    return fits;
}

aril_tensor *aril_assign(aril_tensor *variable, aril_tensor *value)
{
    ARIL_NO_GRAD;
    if (!variable || !value) return aril__null_tensor("assign");
    if (!is_variable("assign", variable)) return aril__poison();
    if (!check_value("assign", variable, value)) return aril__poison();
    aril_tensor *cast = aril_cast(value, aril_dtype_of(variable));
    /* An operation with the variable, so that a value from outside becomes one of the graph. */
    if (!(cast->flags & (ARIL__SYMBOLIC | ARIL__POISON))) {
        aril_tensor *zeros = aril_zeros_like(variable);
        return assigned("assign", variable, aril_add(zeros, cast));
    }
    return assigned("assign", variable, aril__op(&aril__op_copy, cast));
}

aril_tensor *aril_assign_add(aril_tensor *variable, aril_tensor *value)
{
    ARIL_NO_GRAD;
    if (!variable || !value) return aril__null_tensor("assign_add");
    if (!is_variable("assign_add", variable)) return aril__poison();
    if (!check_value("assign_add", variable, value)) return aril__poison();
    return assigned("assign_add", variable, aril_add(variable, value));
}

aril_tensor *aril_assign_sub(aril_tensor *variable, aril_tensor *value)
{
    ARIL_NO_GRAD;
    if (!variable || !value) return aril__null_tensor("assign_sub");
    if (!is_variable("assign_sub", variable)) return aril__poison();
    if (!check_value("assign_sub", variable, value)) return aril__poison();
    return assigned("assign_sub", variable, aril_sub(variable, value));
}

/* ---- what a list of fetches needs ---- */

static void free_request(aril__request *q)
{
    free(q->out);
    free(q->effects);
}

static aril_status two_assignments(const aril__graph *g, const char *what, uint32_t state)
{
    return aril__fail(ARIL_ERR_ARG, "%s: two of the tensors assign to the variable '%s'; pass one",
                      what, g->states[state].name ? g->states[state].name : "?");
}

/* The values to fetch and the assignments among them. */
static aril_status make_request(aril_graph *g, const char *what, aril_list fetches,
                                aril__request *q)
{
    const aril__graph *of = aril__tracing_graph(g->t);
    q->out = aril__malloc(((size_t)fetches.n + 1) * sizeof *q->out);
    q->effects = aril__malloc(((size_t)of->n_effects + 1) * sizeof *q->effects);
    if (!q->out || !q->effects) return aril__fail(ARIL_ERR_MEMORY, "%s: out of memory", what);
    for (int i = 0; i < fetches.n; i++) {
        aril_graph *own = graph_of(what, fetches.at[i]);
        if (!own) return aril__latest_status();
        if (own != g)
            return aril__fail(ARIL_ERR_ARG, "%s: fetch %d belongs to another graph", what, i);
        if (!(q->out[i] = aril__tracing_value(g->t, fetches.at[i]))) return ARIL_ERR_MEMORY;
        q->n_out++;
    }
    for (uint32_t e = 0; e < of->n_effects; e++) {
        bool wanted = false;
        for (uint32_t i = 0; i < q->n_out && !wanted; i++)
            wanted = q->out[i] == of->effects[e].value;
        for (uint32_t k = 0; k < q->n_effects && wanted; k++)
            if (of->effects[q->effects[k]].to == of->effects[e].to)
                return two_assignments(of, what, of->effects[e].to);
        if (wanted) q->effects[q->n_effects++] = e;
    }
    return ARIL_OK;
}

/* The assignments that a list of updates performs. */
static aril_status make_updates(aril_graph *g, const char *what, aril_list updates,
                                aril__request *q)
{
    const aril__graph *of = aril__tracing_graph(g->t);
    aril_status s = make_request(g, what, updates, q);
    for (uint32_t i = 0; i < q->n_out && s == ARIL_OK; i++) {
        bool assigns = false;
        for (uint32_t e = 0; e < q->n_effects; e++)
            assigns |= of->effects[q->effects[e]].value == q->out[i];
        if (!assigns)
            s = aril__fail(ARIL_ERR_ARG,
                           "%s: update %u changes no variable; expected a result of aril_assign, "
                           "aril_assign_add or aril_assign_sub",
                           what, i);
    }
    return s;
}

/* ---- sessions ---- */

enum { MAX_PARTS = 64 };

struct aril_session {
    aril_graph *g;
    aril__device *device;
    aril__part *part[MAX_PARTS]; /* programs for sets of fetches, most recently used first */
    int n_parts;
};

static aril_status move_variables(aril_session *s)
{
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    aril__graph *of = aril__tracing_graph(s->g->t);
    for (uint32_t i = 0; i < s->g->n_variables; i++) {
        const kept *v = &s->g->variables[i];
        aril_tensor *now = of->states[v->state].tensor;
        if (v->placed || now->storage->device == s->device) continue;
        aril_tensor *there = aril_to(now, s->device->id);
        if (aril_tensor_status(there) < 0) return aril_tensor_status(there);
        aril__tensor_exchange(now, there);
    }
    return ARIL_OK;
}

aril_session *aril_session_new(aril_graph *g, aril_device device)
{
    if (check_untraced("session_new") < 0) return NULL;
    aril_session *s = g ? aril__calloc(sizeof *s) : NULL;
    if (!s) {
        aril__fail(g ? ARIL_ERR_MEMORY : ARIL_ERR_ARG, "session_new: %s",
                   g ? "out of memory" : "the graph is NULL");
        return NULL;
    }
    s->g = g;
    s->device = aril__device_find(device);
    if (!s->device) aril__fail(ARIL_ERR_DEVICE, "session_new: there is no such device");
    if (s->device && move_variables(s) == ARIL_OK) {
        keep_graph(g);
        return s;
    }
    free(s);
    return NULL;
}

void aril_session_free(aril_session *s)
{
    if (!s) return;
    for (int i = 0; i < s->n_parts; i++) aril__part_free(s->part[i]);
    aril_graph_free(s->g);
    free(s);
}

/* The program for a request; NULL with an error. */
static const aril__part *find_part(aril_session *s, const aril__request *q)
{
    const aril__graph *g = aril__tracing_graph(s->g->t);
    int i = 0;
    while (i < s->n_parts && !aril__part_is_for(s->part[i], g, q, s->device)) i++;
    if (i == s->n_parts && aril__sizes_all_passed_on("session_run", g) < 0) return NULL;
    aril__part *p = i < s->n_parts ? s->part[i] : aril__part_new(g, q, s->device, s->g->placed);
    if (!p) return NULL;
    if (i == s->n_parts) aril__log(ARIL__LOG_TRACE, "session: a program for new fetches");
    if (i == MAX_PARTS) aril__part_free(s->part[--i]);
    if (i == s->n_parts) s->n_parts++;
    memmove(s->part + 1, s->part, (size_t)i * sizeof(aril__part *));
    return s->part[0] = p;
}

/* ---- feeds ---- */

static const char *name_of_input(const aril__graph *g, uint32_t i)
{
    return g->inputs[i].name ? g->inputs[i].name : "?";
}

static aril_status check_feed(const aril__graph *g, uint32_t i, const aril_tensor *t)
{
    char want[ARIL__SHAPE_TEXT], got[ARIL__SHAPE_TEXT];
    const aril__value *v = &g->values[g->inputs[i].value];
    if (v->dtype != t->dtype)
        return aril__fail(ARIL_ERR_DTYPE, "session_run: the placeholder '%s' is %s, but was fed %s",
                          name_of_input(g, i), aril__dtypes[v->dtype].name,
                          aril__dtypes[t->dtype].name);
    const int64_t *dim = aril__graph_dims(g, g->inputs[i].value);
    bool fits = t->ndim == v->ndim;
    for (int d = 0; d < t->ndim && fits; d++) fits = dim[d] < 0 || dim[d] == t->dim[d];
    if (fits) return ARIL_OK;
    aril__shape_text(want, v->ndim, dim);
    return aril__fail(ARIL_ERR_SHAPE,
                      "session_run: the placeholder '%s' has shape %s, but was fed %s",
                      name_of_input(g, i), want, aril__text(got, t));
}

static aril_status feed_all(aril_session *s, aril_feeds feeds, aril_tensor **given)
{
    const aril__graph *g = aril__tracing_graph(s->g->t);
    for (int i = 0; i < feeds.n; i++) {
        aril_tensor *to = feeds.at[i].placeholder;
        aril_graph *own = graph_of("session_run", to);
        if (!own) return aril__latest_status();
        aril__value_id v = own == s->g ? aril__tracing_value(s->g->t, to) : 0;
        if (!v || g->values[v].kind != ARIL__FROM_INPUT)
            return aril__fail(ARIL_ERR_ARG, "session_run: feed %d is not for a placeholder%s", i,
                              v ? "" : " of this graph");
        aril_status status = aril__check_value("session_run", feeds.at[i].value);
        uint32_t input = g->values[v].from;
        if (status == ARIL_OK) status = check_feed(g, input, feeds.at[i].value);
        if (status < 0) return status;
        if (given[input])
            return aril__fail(ARIL_ERR_ARG, "session_run: the placeholder '%s' was fed twice",
                              name_of_input(g, input));
        given[input] = aril_to(feeds.at[i].value,
                               s->g->placed[input] ? g->values[v].device->id : s->device->id);
        if (aril_tensor_status(given[input]) < 0) return aril_tensor_status(given[input]);
    }
    return ARIL_OK;
}

static aril_status check_fed(const aril__graph *g, const aril__part *p, aril_tensor *const *given)
{
    for (uint32_t i = 0; i < g->n_inputs; i++)
        if (!given[i] && aril__part_needs(p, i))
            return aril__fail(ARIL_ERR_ARG,
                              "session_run: the placeholder '%s' was not fed, and the fetched "
                              "tensors depend on it",
                              name_of_input(g, i));
    return ARIL_OK;
}

static aril_status run_session(aril_session *s, aril_feeds feeds, aril_list fetches,
                               aril_tensor **out)
{
    ARIL_SCOPE;
    aril__request q = { 0 };
    const aril__part *p = NULL;
    aril_status status = make_request(s->g, "session_run", fetches, &q);
    if (status == ARIL_OK && !(p = find_part(s, &q))) status = aril__latest_status();
    free_request(&q);
    if (status < 0) return status;
    const aril__graph *g = aril__tracing_graph(s->g->t);
    aril_tensor **given = aril__calloc(((size_t)g->n_inputs + 1) * sizeof *given);
    if (!given) return aril__fail(ARIL_ERR_MEMORY, "session_run: out of memory");
    status = feed_all(s, feeds, given);
    if (status == ARIL_OK) status = check_fed(g, p, given);
    if (status == ARIL_OK) status = aril__part_run(p, given, out);
    free(given);
    return status;
}

aril_status aril_session_run(aril_session *s, aril_feeds feeds, aril_list fetches,
                             aril_tensor **out)
{
    aril_status status = s ? ARIL_OK : aril__fail(ARIL_ERR_ARG, "session_run: the session is NULL");
    if (status == ARIL_OK) status = check_list("session_run", "feeds", feeds.n, feeds.at);
    if (status == ARIL_OK) status = check_list("session_run", "fetches", fetches.n, fetches.at);
    if (status == ARIL_OK && fetches.n && !out)
        status = aril__fail(ARIL_ERR_ARG, "session_run: there is no room for results: out is NULL");
    if (status == ARIL_OK) status = check_untraced("session_run");
    if (status == ARIL_OK) status = run_session(s, feeds, fetches, out);
    if (status < 0) {
        if (out) aril__poison_all(fetches.n, out);
        return status;
    }
    for (int i = 0; i < fetches.n; i++) out[i] = aril__give(aril__self(), out[i]);
    return ARIL_OK;
}

/* ---- functions ---- */

/* The inputs of the graph that placeholders are. */
static aril_status find_inputs(aril_graph *g, aril_list inputs, uint32_t *to)
{
    const aril__graph *of = aril__tracing_graph(g->t);
    for (int i = 0; i < inputs.n; i++) {
        aril_graph *own = graph_of("graph_function", inputs.at[i]);
        if (!own) return aril__latest_status();
        aril__value_id v = own == g ? aril__tracing_value(g->t, inputs.at[i]) : 0;
        if (!v || of->values[v].kind != ARIL__FROM_INPUT)
            return aril__fail(ARIL_ERR_ARG, "graph_function: input %d is not a placeholder%s", i,
                              v ? "" : " of this graph");
        to[i] = of->values[v].from;
        for (int k = 0; k < i; k++)
            if (to[k] == to[i])
                return aril__fail(ARIL_ERR_ARG,
                                  "graph_function: inputs %d and %d are the same placeholder '%s'",
                                  k, i, name_of_input(of, to[i]));
    }
    return ARIL_OK;
}

static aril_status check_inputs(const aril__graph *g, const aril__part *p, int n,
                                const uint32_t *inputs)
{
    for (uint32_t i = 0; i < g->n_inputs; i++) {
        bool given = false;
        for (int k = 0; k < n; k++) given |= inputs[k] == i;
        if (!given && aril__part_needs(p, i))
            return aril__fail(ARIL_ERR_ARG,
                              "graph_function: the outputs depend on the placeholder '%s', which "
                              "is not among the inputs",
                              name_of_input(g, i));
    }
    return ARIL_OK;
}

/* The outputs, and updates, which are performed but not returned. */
static aril_status function_request(aril_graph *g, aril_list outputs, aril_list updates,
                                    aril__request *q)
{
    aril__request all = { 0 };
    aril_status s = make_request(g, "graph_function", outputs, q);
    if (s == ARIL_OK) s = make_updates(g, "graph_function", updates, &all);
    if (s == ARIL_OK) {
        uint32_t *effects = q->effects;
        q->effects = all.effects;
        q->n_effects = all.n_effects;
        all.effects = effects;
    }
    free_request(&all);
    return s;
}

/* The graph of the results, if the lists can be read; NULL with an error. */
static aril_graph *graph_of_lists(const char *what, aril_list inputs, aril_list outputs,
                                  aril_list updates)
{
    if (check_list(what, "inputs", inputs.n, inputs.at) < 0 ||
        check_list(what, "outputs", outputs.n, outputs.at) < 0 ||
        check_list(what, "updates", updates.n, updates.at) < 0)
        return NULL;
    if (outputs.n || updates.n) return graph_of(what, outputs.n ? outputs.at[0] : updates.at[0]);
    aril__fail(ARIL_ERR_ARG, "%s: there are no outputs and no updates", what);
    return NULL;
}

aril_program *aril_graph_function(aril_list inputs, aril_list outputs, aril_list updates)
{
    aril_graph *g = graph_of_lists("graph_function", inputs, outputs, updates);
    uint32_t *at = g ? aril__malloc(((size_t)inputs.n + 1) * sizeof *at) : NULL;
    if (!at) {
        if (g) aril__fail(ARIL_ERR_MEMORY, "graph_function: out of memory");
        return NULL;
    }
    aril__request q = { 0 };
    const aril__graph *of = aril__tracing_graph(g->t);
    aril_program *p = NULL;
    aril_status s = find_inputs(g, inputs, at);
    if (s == ARIL_OK) s = aril__sizes_all_passed_on("graph_function", of);
    if (s == ARIL_OK) s = function_request(g, outputs, updates, &q);
    if (s == ARIL_OK) p = aril__program_of(of, &q, g->placed, inputs.n, at);
    if (p && check_inputs(of, aril__program_part(p), inputs.n, at) < 0) {
        aril_program_free(p);
        p = NULL;
    }
    if (p) aril__program_hold(p, keep_graph(g), release_graph);
    free_request(&q);
    free(at);
    return p;
}

/* ---- a part of a graph ---- */

aril_status aril__graph_look_part(aril_list inputs, aril_list outputs, aril_list updates,
                                  void (*fn)(const aril__graph *g, const uint32_t *inputs,
                                             void *ctx),
                                  void *ctx)
{
    aril_graph *g = graph_of_lists("graph_export", inputs, outputs, updates);
    if (!g) return aril__latest_status();
    aril__request out = { 0 }, all = { 0 };
    aril__effect *effects = NULL;
    const aril__graph *of = aril__tracing_graph(g->t);
    uint32_t *at = aril__malloc(((size_t)inputs.n + 1) * sizeof *at);
    aril_status s = at ? find_inputs(g, inputs, at) : ARIL_ERR_MEMORY;
    if (s == ARIL_OK) s = aril__sizes_all_passed_on("graph_export", of);
    if (s == ARIL_OK) s = make_request(g, "graph_export", outputs, &out);
    if (s == ARIL_OK) s = make_updates(g, "graph_export", updates, &all);
    if (s == ARIL_OK && !(effects = aril__malloc((all.n_effects + 1) * sizeof *effects)))
        s = aril__fail(ARIL_ERR_MEMORY, "graph_export: out of memory");
    if (s == ARIL_OK) {
        aril__graph part = *of; /* the same nodes and values with other results */
        part.outputs = out.out;
        part.n_outputs = out.n_out;
        part.effects = effects;
        part.n_effects = all.n_effects;
        for (uint32_t i = 0; i < all.n_effects; i++) effects[i] = of->effects[all.effects[i]];
        fn(&part, at, ctx);
    }
    free_request(&out);
    free_request(&all);
    free(effects);
    free(at);
    return s;
}
