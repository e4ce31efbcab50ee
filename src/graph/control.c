#include "graph/control_gradient.h"

#include "aril/create.h"
#include "aril/dtype.h"
#include "aril/graph.h"
#include "aril/index.h"
#include "aril/math.h"
#include "aril/view.h"
#include "autograd/backward.h"
#include "autograd/node.h"
#include "graph/exec.h"
#include "graph/trace.h"
#include "ops/shape/copy.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ARGS = ARIL__CONTROL_ARGS };

static aril_status check_call(const char *what, bool fns, aril_list in, int n_out,
                              aril_tensor **out)
{
    if (!fns) return aril__fail(ARIL_ERR_ARG, "%s: a function is NULL", what);
    if (in.n < 0 || in.n > MAX_ARGS)
        return aril__fail(ARIL_ERR_ARG, "%s: got %d inputs, expected 0 to %d", what, in.n,
                          MAX_ARGS);
    if (in.n && !in.at) return aril__fail(ARIL_ERR_ARG, "%s: the list of inputs is NULL", what);
    if (n_out < 0)
        return aril__fail(ARIL_ERR_ARG, "%s: got %d results, expected 0 or more", what, n_out);
    if (n_out && !out)
        return aril__fail(ARIL_ERR_ARG, "%s: there is no room for results: out is NULL", what);
    for (int i = 0; i < in.n; i++) {
        if (!in.at[i]) return aril__fail(ARIL_ERR_ARG, "%s: input %d is NULL", what, i);
        if (in.at[i]->flags & ARIL__POISON) return aril__refuse_poison(what, i, in.at[i]);
    }
    return ARIL_OK;
}

static aril_status fail_all(aril_status s, int n, aril_tensor **out)
{
    if (out) aril__poison_all(n, out);
    return s;
}

static bool is_symbolic(const aril_tensor *t)
{
    return t && t->flags & ARIL__SYMBOLIC;
}

static bool any_symbolic(aril_list in)
{
    for (int i = 0; i < in.n; i++)
        if (is_symbolic(in.at[i])) return true;
    return false;
}

/* ---- the ops ----
 *
 * They are not in the table: no kernel runs them, and their results depend on their bodies. */

/* What the shape rule reads while a node is built. */
static _Thread_local struct {
    const aril__meta *out;
} building;

static aril_status control_infer(aril__call *c)
{
    memcpy(c->out, building.out, c->op->n_out * sizeof *c->out);
    return ARIL_OK;
}

static void cond_vjp(aril__grad *c);
static void while_vjp(aril__grad *c);
static void scan_vjp(aril__grad *c);

/* A row for each number of results. */
static aril__op rows[3][ARIL__MAX_OUT + 1];
static pthread_once_t rows_once = PTHREAD_ONCE_INIT;

static void make_rows(void)
{
    static const struct {
        const char *name;
        void (*vjp)(aril__grad *c);
    } kinds[] = { [ARIL__COND] = { "cond", cond_vjp },
                  [ARIL__WHILE] = { "while", while_vjp },
                  [ARIL__SCAN] = { "scan", scan_vjp } };
    const uint32_t all = 0xffu | 0xffu << 16; /* IN and OUT of any number */
    for (int kind = 0; kind < 3; kind++)
        for (int n = 0; n <= ARIL__MAX_OUT; n++)
            rows[kind][n] = (aril__op){ .name = kinds[kind].name,
                                        .max_in = ARIL__ANY,
                                        .n_out = (uint8_t)n,
                                        .infer = control_infer,
                                        .vjp = kinds[kind].vjp,
                                        .attr_size = sizeof(struct control_attrs),
                                        .saves = { all, all, all, all } };
}

static const aril__op *row_of(int64_t kind, int n_out)
{
    pthread_once(&rows_once, make_rows);
    return &rows[kind][n_out];
}

/* ---- bodies ---- */

/* A body while it is traced. */
typedef struct body {
    aril__tracing *t;
    aril__meta out[ARIL__MAX_OUT];
    aril__graph *g;
} body;

/* Describes an argument of a body: the tensor itself, or one trip's part of it. */
static aril_tensor *argument(aril__tracing *t, aril_tensor *x, bool part)
{
    aril__thread *th = aril__self();
    if (!part) return aril__give(th, aril__tracing_input(t, x, x->dim, NULL));
    aril_tensor *like = aril__tensor_header(th, (aril_dtype)x->dtype, x->ndim - 1, x->dim + 1);
    if (!like) return aril__poison();
    like->flags |= ARIL__SHAPE_ONLY;
    like->u.device = aril__tensor_device(x);
    aril_tensor *arg = aril__give(th, aril__tracing_input(t, like, like->dim, NULL));
    aril__tensor_release(th, like);
    return arg;
}

static aril_status describe_outputs(body *b, int n_out)
{
    const aril__graph *g = aril__tracing_graph(b->t);
    for (int i = 0; i < n_out; i++) {
        aril__value_id v = g->outputs[i];
        b->out[i] =
            (aril__meta){ .dtype = (aril_dtype)g->values[v].dtype, .ndim = g->values[v].ndim };
        memcpy(b->out[i].dim, aril__graph_dims(g, v), (size_t)b->out[i].ndim * sizeof(int64_t));
    }
    return ARIL_OK;
}

/* Traces a function into a body; from argument `parts` on, arguments are one trip's part. */
static aril_status trace_body(const char *what, aril__tracing *outer, aril_fn *fn, void *ctx,
                              aril_list in, int parts, int n_out, body *b)
{
    aril_tensor *arg[MAX_ARGS], *out[ARIL__MAX_OUT + 1];
    const aril__thread *th = aril__self();
    const aril__error *before = th->last_error;
    if (n_out > ARIL__MAX_OUT)
        return aril__fail(ARIL_ERR_UNSUPPORTED, "%s: %d results in a trace, expected at most %d",
                          what, n_out, ARIL__MAX_OUT);
    if (!(b->t = aril__tracing_body(outer, what))) return aril__latest_status();
    aril__traced_call c = aril__tracing_begin(b->t);
    aril_status s = ARIL_OK;
    for (int i = 0; i < in.n && s == ARIL_OK; i++) {
        arg[i] = argument(b->t, in.at[i], i >= parts);
        s = aril_tensor_status(arg[i]);
    }
    if (s == ARIL_OK) s = aril__control_call(what, fn, ctx, arg, n_out, out);
    if (s == ARIL_OK && th->last_error != before && th->last_error) s = th->last_error->code;
    s = aril__tracing_end(b->t, &c, s, n_out, out);
    return s == ARIL_OK ? describe_outputs(b, n_out) : s;
}

/* The thread's generator before a body is traced, and how many numbers were drawn since. */
static void note_draws(struct control_attrs *a, int k)
{
    aril_rng_state now = aril_generator_state(&aril__self()->generator);
    a->seed[0] = (int64_t)now.seed;
    a->calls[k] = (int64_t)now.calls;
}

static int64_t draws_since(const struct control_attrs *a, int k)
{
    aril_rng_state now = aril_generator_state(&aril__self()->generator);
    return now.seed == (uint64_t)a->seed[0] ? (int64_t)now.calls - a->calls[k] : 0;
}

/* Whether there is a loop in a body that draws numbers: how many, only a run knows. */
static bool loops_draw(const body *b)
{
    const aril__graph *g = b->t ? aril__tracing_graph(b->t) : NULL;
    for (aril__node_id id = 1; g && id < g->n_nodes; id++) {
        const struct control_attrs *a =
            g->nodes[id].n_bodies ? aril__graph_attrs(g, &g->nodes[id]) : NULL;
        if (a && (a->loop_draws[0] || (a->kind[0] != ARIL__COND && a->draws[0]))) return true;
    }
    return false;
}

static void free_body(body *b)
{
    aril__tracing_free(b->t);
    aril__graph_free(b->g);
}

aril_status aril__control_shapes(const char *what, aril_fn *fn, void *ctx, aril_list in, int parts,
                                 int n_out, aril__meta *to)
{
    aril__tracing *t = aril__tracing_new(what, false);
    if (!t) return ARIL_ERR_MEMORY;
    body b = { 0 };
    aril__traced_call c = aril__tracing_begin(t);
    aril_status s = trace_body(what, t, fn, ctx, in, parts, n_out, &b);
    s = aril__tracing_end(t, &c, s, 0, NULL);
    for (int i = 0; i < n_out && s == ARIL_OK; i++) to[i] = b.out[i];
    free_body(&b);
    aril__tracing_free(t);
    return s;
}

/* What several bodies capture, so that all of them have the same inputs. */
static aril_status share_captures(int n, body *b)
{
    for (int from = 0; from < n; from++) {
        aril_tensor *const *of;
        int count = aril__tracing_captures(b[from].t, &of);
        for (int k = 0; k < count; k++)
            for (int to = 0; to < n; to++)
                if (to != from && !aril__tracing_capture(b[to].t, of[k])) return ARIL_ERR_MEMORY;
    }
    return ARIL_OK;
}

/* Moves the inputs of a body that capture tensors into the order of the first body's. */
static aril_status order_captures(const body *first, body *b, int n_args)
{
    aril_tensor *const *want, *const *have;
    int n = aril__tracing_captures(first->t, &want);
    aril__tracing_captures(b->t, &have);
    aril__graph *g = aril__tracing_graph(b->t);
    aril__input *sorted = aril__malloc(((size_t)n + 1) * sizeof *sorted);
    if (!sorted) return aril__fail(ARIL_ERR_MEMORY, "graph: out of memory");
    for (int i = 0; i < n; i++) {
        int k = 0;
        while (have[k] != want[i]) k++;
        sorted[i] = g->inputs[n_args + k];
    }
    for (int i = 0; i < n; i++) {
        g->inputs[n_args + i] = sorted[i];
        g->values[sorted[i].value].from = (uint32_t)(n_args + i);
    }
    free(sorted);
    return ARIL_OK;
}

/* ---- building a node ---- */

static aril_status attach_bodies(aril__tracing *t, const aril_tensor *result, int n, body *b)
{
    aril__graph *g = aril__tracing_graph(t);
    aril__value_id v = aril__tracing_value(t, (aril_tensor *)(uintptr_t)result);
    aril__graph_node *node = &g->nodes[g->values[v].from];
    node->body = g->n_bodies;
    for (int i = 0; i < n; i++) {
        if (!ARIL__GROW(g, bodies)) return ARIL_ERR_MEMORY;
        aril__watches none = { 0 };
        g->bodies[g->n_bodies++] = aril__tracing_take(b[i].t, &none);
        node->n_bodies++;
    }
    return ARIL_OK;
}

/* A tensor with the value of x that writes to x do not change, nor those to it x: where gradients
 * need x as it is. In a defined graph, it is a node. */
static aril_tensor *apart(aril__tracing *t, aril_tensor *x)
{
    bool copied = aril__tracing_defines(t) && x->flags & ARIL__SYMBOLIC;
    return copied ? aril__op(&aril__op_copy, x) : aril__tracing_snapshot(t, x);
}

/* What the caller gets of results, if they may have gradients. */
static aril_status hand_out(aril__tracing *t, int n_out, aril_tensor **out)
{
    aril_status s = ARIL_OK;
    bool recorded = false;
    for (int i = 0; i < n_out; i++) recorded |= out[i]->node != NULL;
    for (int i = 0; i < n_out && recorded && s == ARIL_OK; i++) {
        out[i] = apart(t, out[i]);
        s = aril_tensor_status(out[i]);
    }
    return s;
}

/* Applies the op to the arguments and the captured tensors. `first`: an input before them. The
 * gradient calls the bodies again with the arguments, so that these must stay as they are now. */
static aril_status add_node(aril__tracing *t, struct control_attrs *a, aril_tensor *first,
                            aril_list args, int n_bodies, body *b, int n_out,
                            const aril__meta *meta, aril_tensor **out)
{
    aril_tensor *const *captured;
    aril_status s = share_captures(n_bodies, b);
    for (int i = 1; i < n_bodies && s == ARIL_OK; i++)
        s = order_captures(&b[0], &b[i], (int)a->n_args[0]);
    if (s < 0) return s;
    int n_captured = aril__tracing_captures(b[0].t, &captured), n = 0;
    aril_tensor **in = aril__malloc((size_t)(args.n + n_captured + 1) * sizeof *in);
    if (!in) return aril__fail(ARIL_ERR_MEMORY, "graph: out of memory");
    if (first) in[n++] = apart(t, first);
    for (int i = 0; i < args.n; i++) in[n++] = apart(t, args.at[i]);
    for (int i = 0; i < n && s == ARIL_OK; i++) s = aril_tensor_status(in[i]);
    if (s < 0) {
        free(in);
        return s;
    }
    for (int i = 0; i < n_captured; i++) in[n++] = captured[i];
    building.out = meta;
    if (a->draws[0]) a->keys[0] = aril__redrawn ? aril__redrawn - 1 : aril__tracing_tracer(t)->keys;
    aril__tracer *before = aril__trace(aril__tracing_tracer(t));
    aril__self()->sizes = aril__tracing_graph(t)->sizes;
    s = aril__apply(row_of(a->kind[0], n_out), n, in, a, out);
    aril__trace(before);
    if (before) aril__self()->sizes = aril__tracing_graph(t)->sizes;
    free(in);
    if (s == ARIL_OK) s = attach_bodies(t, out[0], n_bodies, b);
    return s == ARIL_OK ? hand_out(t, n_out, out) : s;
}

/* ---- cond ---- */

/* The shape of a result: sizes that differ between the branches are known when it runs. */
static aril_status common_meta(int i, const aril__meta *a, const aril__meta *b, aril__meta *to)
{
    *to = *a;
    if (a->dtype == b->dtype && a->ndim == b->ndim) {
        for (int d = 0; d < a->ndim; d++)
            if (a->dim[d] != b->dim[d]) to->dim[d] = -1;
        return ARIL_OK;
    }
    char x[ARIL__SHAPE_TEXT], y[ARIL__SHAPE_TEXT];
    return aril__fail(ARIL_ERR_SHAPE,
                      "cond: result %d is %s %s in one branch and %s %s in the other", i,
                      aril__dtypes[a->dtype].name, aril__shape_text(x, a->ndim, a->dim),
                      aril__dtypes[b->dtype].name, aril__shape_text(y, b->ndim, b->dim));
}

static aril_status traced_cond(aril__tracing *t, aril_tensor *pred, aril_fn *const fn[2], void *ctx,
                               aril_list in, int n_out, aril_tensor **out)
{
    body b[2] = { { 0 }, { 0 } };
    aril__meta meta[ARIL__MAX_OUT];
    struct control_attrs a = { .kind = { ARIL__COND },
                               .n_args = { in.n },
                               .fn = { (intptr_t)fn[0], (intptr_t)fn[1] },
                               .ctx = { (intptr_t)ctx } };
    aril_status s = ARIL_OK;
    if (n_out < 1) s = aril__fail(ARIL_ERR_ARG, "cond: expected at least one result");
    for (int i = 0; i < 2 && s == ARIL_OK; i++) {
        note_draws(&a, i);
        s = trace_body("cond", t, fn[i], ctx, in, in.n, n_out, &b[i]);
    }
    a.draws[0] = draws_since(&a, 0);
    a.loop_draws[0] = loops_draw(&b[0]) || loops_draw(&b[1]);
    for (int i = 0; i < n_out && s == ARIL_OK; i++)
        s = common_meta(i, &b[0].out[i], &b[1].out[i], &meta[i]);
    if (s == ARIL_OK) s = add_node(t, &a, pred, in, 2, b, n_out, meta, out);
    free_body(&b[0]);
    free_body(&b[1]);
    return s;
}

aril_status aril_cond(aril_tensor *pred, aril_fn *then_fn, aril_fn *else_fn, void *ctx,
                      aril_list in, int n_out, aril_tensor **out)
{
    aril_status s = check_call("cond", then_fn && else_fn, in, n_out, out);
    if (s == ARIL_OK) s = check_call("cond", true, (aril_list){ 1, &pred }, 0, NULL);
    if (s < 0) return fail_all(s, n_out, out);
    if (aril_numel(pred) != 1 && aril_numel(pred) >= 0) {
        char text[ARIL__SHAPE_TEXT];
        s = aril__fail(ARIL_ERR_SHAPE, "cond: the condition has one element, got shape %s",
                       aril__text(text, pred));
        return fail_all(s, n_out, out);
    }
    aril__tracing *t = aril__tracing_now(1, &pred);
    if (!t) t = aril__tracing_now(in.n, in.at);
    if (t && (is_symbolic(pred) || any_symbolic(in) || aril__self()->tracer))
        s = traced_cond(t, pred, (aril_fn *const[]){ then_fn, else_fn }, ctx, in, n_out, out);
    else
        s = aril__eager_cond(pred, then_fn, else_fn, ctx, in, n_out, out);
    return s < 0 ? fail_all(s, n_out, out) : ARIL_OK;
}

/* ---- states of loops ---- */

static aril_status same_state(const char *what, int i, const aril_tensor *x, const aril__meta *m)
{
    if (x->dtype == m->dtype && aril__dims_fit(x->ndim, x->dim, m->ndim, m->dim)) return ARIL_OK;
    char a[ARIL__SHAPE_TEXT], b[ARIL__SHAPE_TEXT];
    return aril__fail(ARIL_ERR_SHAPE, "%s: state %d is %s %s, but the body makes it %s %s", what, i,
                      aril__dtypes[x->dtype].name, aril__text(a, x), aril__dtypes[m->dtype].name,
                      aril__shape_text(b, m->ndim, m->dim));
}

aril_status aril__control_same(const char *what, int n, aril_tensor *const *before,
                               aril_tensor *const *after)
{
    aril_status s = ARIL_OK;
    for (int i = 0; i < n && s == ARIL_OK; i++) {
        aril__meta m = { .dtype = (aril_dtype)after[i]->dtype, .ndim = after[i]->ndim };
        memcpy(m.dim, after[i]->dim, sizeof m.dim);
        s = same_state(what, i, before[i], &m);
    }
    return s;
}

/* ---- gradients of branches ---- */

static void then_back(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    const aril__body_gradient *q = ctx;
    aril__body_differentiate(q, q->fn[0], in, in + q->n_args, out);
}

static void else_back(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    const aril__body_gradient *q = ctx;
    aril__body_differentiate(q, q->fn[1], in, in + q->n_args, out);
}

static void poison_wanted(aril__grad *c)
{
    for (int i = 0; i < c->n_in; i++)
        if (c->wants[i]) c->dx[i] = aril__poison();
}

/* The gradient of a branch is a branch. */
static void cond_backward(aril__grad *c)
{
    const struct control_attrs *a = c->attrs;
    int n_args = (int)a->n_args[0], first = 1 + n_args;
    aril__tracing *t = aril__tracing_now(c->n_in, c->x);
    aril__body_gradient *q =
        t ? aril__body_gradient_new(t, a, c->n_out, c->x + first, c->wants + first, c->n_in - first)
          : NULL;
    if (!q) {
        poison_wanted(c);
        return;
    }
    aril_tensor *in[MAX_ARGS + ARIL__MAX_OUT], *out[ARIL__MAX_OUT];
    int n = 0, n_out = 0, k = 0;
    for (int i = 0; i < n_args; i++) {
        in[n++] = c->x[1 + i];
        q->wants[i] = c->wants[1 + i];
    }
    for (int i = 0; i < c->n_out; i++)
        if ((q->has[i] = c->g[i] != NULL)) in[n++] = c->g[i];
    for (int i = 1; i < c->n_in; i++) n_out += c->wants[i];
    if (n_out == 0) return; /* the condition has no gradient */
    if (n_out > ARIL__MAX_OUT) {
        aril__fail(ARIL_ERR_UNSUPPORTED, "cond: gradients of more than %d tensors in a trace",
                   ARIL__MAX_OUT);
        poison_wanted(c);
        return;
    }
    aril_cond(c->x[0], then_back, else_back, q, (aril_list){ n, in }, n_out, out);
    for (int i = 1; i < c->n_in; i++)
        if (c->wants[i]) c->dx[i] = out[k++];
}

/* The random numbers of the function are drawn again. */
static void backward_with_draws(aril__grad *c, void (*backward)(aril__grad *c))
{
    const struct control_attrs *a = c->attrs;
    uint32_t before = aril__redrawn;
    aril__redrawn = 1 + (uint32_t)a->keys[0];
    backward(c);
    aril__redrawn = before;
}

static void cond_vjp(aril__grad *c)
{
    backward_with_draws(c, cond_backward);
}

/* ---- scan ---- */

static aril_status part_sizes(const char *what, aril_list xs, int64_t *trips)
{
    *trips = -1;
    for (int i = 0; i < xs.n; i++) {
        if (xs.at[i]->ndim < 1)
            return aril__fail(ARIL_ERR_SHAPE, "%s: sequence %d has no axis to run along", what, i);
        int64_t n = xs.at[i]->dim[0];
        if (i > 0 && n != *trips && n >= 0 && *trips >= 0)
            return aril__fail(ARIL_ERR_SHAPE,
                              "%s: sequence %d has %lld elements along its first axis, and "
                              "sequence 0 has %lld",
                              what, i, (long long)n, (long long)*trips);
        if (i == 0 || *trips < 0) *trips = n;
    }
    return ARIL_OK;
}

/* A scan. */
typedef struct scan_call {
    const char *what; /* for errors */
    aril_fn *fn;
    void *ctx;
    aril_list in; /* state, then sequences */
    int n_state, n_ys;
    bool reverse;
    int64_t trips;                 /* negative: unknown */
    const aril__body_gradient *of; /* the scan whose gradient it is, or NULL */
} scan_call;

/* The shape of the results of all trips, from that of one. */
static aril_status stacked_meta(const char *what, int i, int64_t trips, aril__meta *m)
{
    if (m->ndim == ARIL_MAX_DIMS)
        return aril__fail(ARIL_ERR_SHAPE, "%s: result %d has too many dimensions", what, i);
    memmove(m->dim + 1, m->dim, (ARIL_MAX_DIMS - 1) * sizeof *m->dim);
    m->ndim++;
    m->dim[0] = trips;
    return ARIL_OK;
}

/* The traced form. out: final state, then sequences of results. */
static aril_status traced_scan(aril__tracing *t, const scan_call *q, aril_tensor **out)
{
    body b = { 0 };
    aril__meta meta[ARIL__MAX_OUT];
    struct control_attrs a = { .kind = { ARIL__SCAN },
                               .n_args = { q->in.n },
                               .n_state = { q->n_state },
                               .n_ys = { q->n_ys },
                               .reverse = { q->reverse },
                               .fn = { (intptr_t)q->fn },
                               .ctx = { (intptr_t)q->ctx } };
    int n_out = q->n_state + q->n_ys;
    note_draws(&a, 0);
    aril_status s = trace_body(q->what, t, q->fn, q->ctx, q->in, q->n_state, n_out, &b);
    a.draws[0] = q->of ? q->of->draws : draws_since(&a, 0);
    a.repeats[0] = q->of != NULL;
    a.loop_draws[0] = loops_draw(&b);
    a.kept[0] = !q->of && a.draws[0] && !aril__tracing_defines(t);
    for (int i = 0; i < n_out && s == ARIL_OK; i++) {
        meta[i] = b.out[i];
        if (i < q->n_state) {
            s = same_state(q->what, i, q->in.at[i], &b.out[i]);
            continue;
        }
        s = stacked_meta(q->what, i, q->trips, &meta[i]);
    }
    if (s == ARIL_OK) s = add_node(t, &a, NULL, q->in, 1, &b, n_out, meta, out);
    free_body(&b);
    return s;
}

/* A body that also returns its state, for the gradient. */
typedef struct saving_call {
    aril_fn *fn;
    void *ctx;
    int n_state, n_out;
    aril_fn *condition; /* of a loop that ends by one */
} saving_call;

static void saving_fn(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    const saving_call *q = ctx;
    q->fn(q->ctx, in, out);
    for (int i = 0; i < q->n_state; i++) out[q->n_out + i] = aril_copy(in[i]);
}

static bool wants_gradient(aril_list in)
{
    return !aril__self()->mode.no_grad && in.n > 0;
}

/* In a trace with gradients, the states before each trip are results too. */
static aril_status saving_scan(aril__tracing *t, const scan_call *q, aril_tensor **out)
{
    int n_out = q->n_state + q->n_ys;
    if (!wants_gradient(q->in) || n_out + q->n_state > ARIL__MAX_OUT) return traced_scan(t, q, out);
    saving_call *saving = aril__malloc(sizeof *saving);
    aril_tensor *all[ARIL__MAX_OUT];
    if (!aril__tracing_own(t, saving))
        return aril__fail(ARIL_ERR_MEMORY, "%s: out of memory", q->what);
    *saving = (saving_call){ q->fn, q->ctx, q->n_state, n_out, NULL };
    scan_call with = *q;
    with.fn = saving_fn;
    with.ctx = saving;
    with.n_ys = q->n_ys + q->n_state;
    aril_status s = traced_scan(t, &with, all);
    for (int i = 0; i < n_out && s == ARIL_OK; i++) out[i] = all[i];
    return s;
}

static aril_status scan(const scan_call *q, aril_tensor **out)
{
    aril__tracing *t = aril__tracing_now(q->in.n, q->in.at);
    if (!t || !(aril__self()->tracer || any_symbolic(q->in)))
        return aril__eager_scan(q->what, q->fn, q->ctx, q->in, q->n_state, q->n_ys, q->trips, out);
    return saving_scan(t, q, out);
}

static aril_status check_scan(const char *what, aril_fn *fn, aril_list state, aril_list xs,
                              int n_ys, aril_tensor **final, aril_tensor **ys)
{
    aril_status s = check_call(what, fn != NULL, state, state.n, final);
    if (s == ARIL_OK) s = check_call(what, true, xs, n_ys, ys);
    if (s < 0) return s;
    if (xs.n < 1)
        return aril__fail(ARIL_ERR_ARG, "%s: expected at least one sequence to run along", what);
    if (xs.n > MAX_ARGS - state.n || n_ys > MAX_ARGS - state.n)
        return aril__fail(ARIL_ERR_ARG,
                          "%s: %d states, %d sequences and %d results: state and sequences, and "
                          "state and results, may be %d tensors together",
                          what, state.n, xs.n, n_ys, MAX_ARGS);
    if (state.n == 0 && n_ys == 0)
        return aril__fail(ARIL_ERR_ARG, "%s: expected at least one result", what);
    return ARIL_OK;
}

static aril_status call_scan(const char *what, aril_fn *fn, void *ctx, aril_list state,
                             aril_list xs, int n_ys, aril_tensor **final, aril_tensor **ys)
{
    int n_state = state.n;
    aril_tensor *in[MAX_ARGS], *out[MAX_ARGS];
    scan_call q = { .what = what, .fn = fn, .ctx = ctx, .n_state = n_state, .n_ys = n_ys };
    aril_status s = check_scan(what, fn, state, xs, n_ys, final, ys);
    if (s == ARIL_OK) s = part_sizes(what, xs, &q.trips);
    if (s == ARIL_OK) {
        for (int i = 0; i < n_state; i++) in[i] = state.at[i];
        for (int i = 0; i < xs.n; i++) in[n_state + i] = xs.at[i];
        q.in = (aril_list){ n_state + xs.n, in };
        s = scan(&q, out);
    }
    if (s < 0) {
        fail_all(s, n_state <= MAX_ARGS ? n_state : 0, final);
        return fail_all(s, n_ys <= MAX_ARGS ? n_ys : 0, ys); /* not if the number is wrong */
    }
    for (int i = 0; i < n_state; i++) final[i] = out[i];
    for (int i = 0; i < n_ys; i++) ys[i] = out[n_state + i];
    return ARIL_OK;
}

aril_status aril_scan(aril_fn *fn, void *ctx, aril_list state, aril_list xs, int n_ys,
                      aril_tensor **final, aril_tensor **ys)
{
    return call_scan("scan", fn, ctx, state, xs, n_ys, final, ys);
}

aril_status aril_map(aril_fn *fn, void *ctx, aril_list xs, int n_out, aril_tensor **out)
{
    return call_scan("map", fn, ctx, (aril_list){ 0 }, xs, n_out, NULL, out);
}

/* The gradient of a scan runs back: its state is the gradient of the state and, summed up, those of
 * captured tensors. Arguments of a trip: that state, then x_t, the state before t, gradients of
 * y_t, and gradients of the state before t where that was used, too: by another gradient. */
typedef struct back_call {
    aril__body_gradient *q;
    int n_state, n_xs;
    bool used[ARIL__MAX_OUT];
} back_call;

static void scan_back(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    const back_call *b = ctx;
    const aril__body_gradient *q = b->q;
    aril_tensor *arg[MAX_ARGS], *given[ARIL__MAX_OUT], *got[2 * MAX_ARGS];
    int n = 0, k = 0, o = 0;
    int n_carry = b->n_state + q->n_captured;
    aril_tensor *const *x = in + n_carry, *const *s = x + b->n_xs, *const *gy = s + b->n_state;
    for (int i = 0; i < b->n_state; i++) arg[n++] = s[i];
    for (int i = 0; i < b->n_xs; i++) arg[n++] = x[i];
    n = 0;
    for (int i = 0; i < q->n_out; i++)
        if (q->has[i]) given[n++] = i < b->n_state ? in[i] : *gy++;
    if (aril__body_differentiate(q, q->fn[0], arg, given, got) < 0) return;
    for (int i = 0; i < b->n_state; i++) {
        aril_tensor *g = q->wants[i] ? got[k++] : aril_zeros_like(s[i]);
        out[o++] = b->used[i] ? aril_add(g, *gy++) : g;
    }
    int first_x = k;
    for (int i = 0; i < b->n_xs; i++) k += q->wants[b->n_state + i];
    for (int i = 0; i < q->n_captured; i++) out[o++] = aril_add(in[b->n_state + i], got[k++]);
    for (int i = 0; i < b->n_xs; i++)
        if (q->wants[b->n_state + i]) out[o++] = got[first_x++];
}

/* The function without what saving_fn adds. */
static const saving_call *saved_in(const struct control_attrs *a)
{
    intptr_t trip = (intptr_t)a->fn[a->kind[0] == ARIL__WHILE];
    return (aril_fn *)trip == saving_fn ? (saving_call *)(intptr_t)a->ctx[0] : NULL;
}

static aril_status try_loop_backward(const char *what, aril__grad *c)
{
    const struct control_attrs *a = c->attrs;
    const saving_call *saved = saved_in(a);
    int n_state = (int)a->n_state[0], n_args = (int)a->n_args[0], n_xs = n_args - n_state;
    aril__tracing *t = aril__tracing_now(c->n_in, c->x);
    if (!t || !saved)
        return aril__fail(ARIL_ERR_UNSUPPORTED,
                          "%s: the gradient of a loop in a trace keeps its state: %d states and %d "
                          "results are more than %d tensors then",
                          what, n_state, (int)a->n_ys[0], ARIL__MAX_OUT);
    aril__body_gradient *q = aril__body_gradient_new(t, a, saved->n_out, c->x + n_args,
                                                     c->wants + n_args, c->n_in - n_args);
    back_call *b = q ? aril__calloc(sizeof *b) : NULL;
    if (!b || !aril__tracing_own(t, b))
        return aril__fail(ARIL_ERR_MEMORY, "%s: out of memory", what);
    *b = (back_call){ .q = q, .n_state = n_state, .n_xs = n_xs };
    q->fn[0] = saved->fn;
    q->ctx = saved->ctx;
    q->rng[0].calls += (uint64_t)a->condition_draws[0];
    aril_tensor *in[MAX_ARGS], *out[ARIL__MAX_OUT];
    int n = 0, n_ys = 0, n_in = 0, k = 0, n_carry = n_state + q->n_captured;
    for (int i = 0; i < n_args; i++)
        q->wants[i] = aril_dtype_is_float(aril_dtype_of(c->x[i])) && (i < n_state || c->wants[i]);
    for (int i = 0; i < saved->n_out; i++) q->has[i] = i < n_state ? q->wants[i] : c->g[i] != NULL;
    for (int i = 0; i < n_xs; i++) n_ys += q->wants[n_state + i];
    for (int i = 0; i < c->n_out; i++) n_in += i >= n_state && c->g[i];
    if (n_carry + n_ys > ARIL__MAX_OUT)
        return aril__fail(ARIL_ERR_UNSUPPORTED,
                          "%s: gradients of %d tensors in a trace, expected at most %d", what,
                          n_carry + n_ys, ARIL__MAX_OUT);
    if (n_carry + n_args + n_in > MAX_ARGS)
        return aril__fail(ARIL_ERR_UNSUPPORTED,
                          "%s: a gradient in a trace depends on %d tensors, expected at most %d",
                          what, n_carry + n_args + n_in, MAX_ARGS);
    for (int i = 0; i < n_state; i++) in[n++] = c->g[i] ? c->g[i] : aril_zeros_like(c->x[i]);
    for (int i = 0; i < q->n_captured; i++) in[n++] = aril_zeros_like(q->captured[i]);
    for (int i = 0; i < n_xs; i++) in[n++] = c->x[n_state + i];
    for (int i = 0; i < n_state; i++) in[n++] = c->y[saved->n_out + i];
    for (int i = n_state; i < saved->n_out; i++)
        if (q->has[i]) in[n++] = c->g[i];
    for (int i = 0; i < n_state; i++) {
        b->used[i] = c->g[saved->n_out + i] != NULL;
        if (b->used[i]) in[n++] = c->g[saved->n_out + i];
    }
    scan_call back = { .what = what,
                       .fn = scan_back,
                       .ctx = b,
                       .in = { n, in },
                       .n_state = n_carry,
                       .n_ys = n_ys,
                       .reverse = !a->reverse[0],
                       .trips = n_xs ? c->x[n_state]->dim[0] : c->y[saved->n_out]->dim[0],
                       .of = q };
    aril_status s = saving_scan(t, &back, out);
    if (s < 0) return s;
    for (int i = 0; i < n_state; i++)
        if (c->wants[i]) c->dx[i] = out[i];
    for (int i = n_args; i < c->n_in; i++)
        if (c->wants[i]) c->dx[i] = out[n_state + k++];
    for (int i = 0, y = n_carry; i < n_xs; i++) {
        if (!q->wants[n_state + i]) continue;
        if (c->wants[n_state + i]) c->dx[n_state + i] = out[y];
        y++;
    }
    return ARIL_OK;
}

static void scan_backward(aril__grad *c)
{
    const struct control_attrs *a = c->attrs;
    aril_status s = ARIL_OK;
    if (a->loop_draws[0])
        s = aril__fail(ARIL_ERR_GRAD, "scan: a loop in a trace is not differentiated if a loop "
                                      "within it draws random numbers; draw them before");
    if (s < 0 || try_loop_backward("scan", c) < 0) poison_wanted(c);
}

static void scan_vjp(aril__grad *c)
{
    backward_with_draws(c, scan_backward);
}

/* ---- while ---- */

static aril_status try_while_backward(aril__grad *c)
{
    const struct control_attrs *a = c->attrs;
    if (a->loop_draws[0])
        return aril__fail(ARIL_ERR_GRAD, "while: a loop in a trace is not differentiated if a loop "
                                         "within it draws random numbers; draw them before");
    if (!a->max_trips[0])
        return aril__fail(ARIL_ERR_GRAD, "while: a loop in a trace is differentiated only if it "
                                         "has max_trips, which bounds what has to be kept");
    return try_loop_backward("while", c);
}

static void while_backward(aril__grad *c)
{
    if (try_while_backward(c) < 0) poison_wanted(c);
}

static void while_vjp(aril__grad *c)
{
    backward_with_draws(c, while_backward);
}

/* A loop. */
typedef struct while_call {
    aril_fn *fn[2]; /* the condition and the body */
    void *ctx;
    aril_list in;
    int n_ys;          /* after the state, the body sets so many results: of all trips */
    int64_t max_trips; /* 0: no limit */
} while_call;

static aril_status trace_while(aril__tracing *t, const while_call *q, struct control_attrs *a,
                               body *b)
{
    note_draws(a, 0);
    aril_status s = trace_body("while", t, q->fn[0], q->ctx, q->in, q->in.n, 1, &b[0]);
    a->condition_draws[0] = draws_since(a, 0);
    if (s == ARIL_OK)
        s = trace_body("while", t, q->fn[1], q->ctx, q->in, q->in.n, q->in.n + q->n_ys, &b[1]);
    a->draws[0] = draws_since(a, 0);
    return s;
}

/* Whether the gradient of a loop may be asked for: its body depends on what requires one. */
static bool may_be_differentiated(const while_call *q, const body *trip)
{
    aril_tensor *const *captured;
    int n = aril__tracing_captures(trip->t, &captured);
    bool wants = false;
    if (q->max_trips == 0 || !wants_gradient(q->in)) return false;
    for (int i = 0; i < q->in.n && !wants; i++) wants = aril_requires_grad(q->in.at[i]);
    for (int i = 0; i < n && !wants; i++) wants = aril_requires_grad(captured[i]);
    return wants;
}

static void saved_condition(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    const saving_call *q = ctx;
    q->condition(q->ctx, in, out);
}

/* Traces the bodies again with the states before each trip among the results. They draw the numbers
 * that they have drawn. */
static aril_status save_states(aril__tracing *t, while_call *q, struct control_attrs *a, body *b)
{
    aril__thread *th = aril__self();
    saving_call *saving = aril__malloc(sizeof *saving);
    if (!aril__tracing_own(t, saving)) return aril__fail(ARIL_ERR_MEMORY, "while: out of memory");
    *saving = (saving_call){ q->fn[1], q->ctx, q->in.n, q->in.n, q->fn[0] };
    q->fn[0] = saved_condition;
    q->fn[1] = saving_fn;
    q->ctx = saving;
    q->n_ys = q->in.n;
    for (int i = 0; i < 2; i++) {
        free_body(&b[i]);
        b[i] = (body){ 0 };
    }
    aril__rng_put(&th->generator, (aril_rng_state){ (uint64_t)a->seed[0], (uint64_t)a->calls[0] });
    return trace_while(t, q, a, b);
}

static aril_status traced_while(aril__tracing *t, const while_call *of, aril_tensor **out)
{
    while_call q = *of;
    body b[2] = { { 0 }, { 0 } };
    aril__meta meta[ARIL__MAX_OUT];
    aril_tensor *all[ARIL__MAX_OUT];
    struct control_attrs a = { .kind = { ARIL__WHILE },
                               .n_args = { q.in.n },
                               .n_state = { q.in.n },
                               .max_trips = { q.max_trips } };
    aril_status s = trace_while(t, &q, &a, b);
    if (s == ARIL_OK && may_be_differentiated(&q, &b[1]) && 2 * q.in.n <= ARIL__MAX_OUT)
        s = save_states(t, &q, &a, b);
    int n_out = q.in.n + q.n_ys;
    a.n_ys[0] = q.n_ys;
    a.fn[0] = (intptr_t)q.fn[0];
    a.fn[1] = (intptr_t)q.fn[1];
    a.ctx[0] = (intptr_t)q.ctx;
    a.kept[0] = a.draws[0] && !aril__tracing_defines(t);
    a.loop_draws[0] = loops_draw(&b[0]) || loops_draw(&b[1]);
    for (int i = 0; i < n_out && s == ARIL_OK; i++) {
        meta[i] = b[1].out[i];
        s = i < q.in.n ? same_state("while", i, q.in.at[i], &b[1].out[i])
                       : stacked_meta("while", i - q.in.n, -1, &meta[i]);
    }
    if (s == ARIL_OK) s = add_node(t, &a, NULL, q.in, 2, b, n_out, meta, all);
    for (int i = 0; i < q.in.n + of->n_ys && s == ARIL_OK; i++) out[i] = all[i];
    free_body(&b[0]);
    free_body(&b[1]);
    return s;
}

aril_status aril__while_stacked(aril_fn *cond, aril_fn *fn, void *ctx, aril_list state, int n_ys,
                                aril_tensor **out)
{
    aril__tracing *t = aril__tracing_now(state.n, state.at);
    aril_status s = check_call("while", cond && fn, state, n_ys, out);
    if (s == ARIL_OK && state.n + n_ys > ARIL__MAX_OUT)
        s = aril__fail(ARIL_ERR_UNSUPPORTED, "while: %d results in a trace, expected at most %d",
                       state.n + n_ys, ARIL__MAX_OUT);
    if (s == ARIL_OK && !t) s = aril__fail(ARIL_ERR_STATE, "while: there is no trace");
    if (s == ARIL_OK)
        s = traced_while(t,
                         &(while_call){ .fn = { cond, fn }, .ctx = ctx, .in = state, .n_ys = n_ys },
                         out);
    return s;
}

aril_status aril_while(aril_fn *cond, aril_fn *fn, void *ctx, aril_list state, aril_while_opts opts,
                       aril_tensor **out)
{
    aril_fn *const both[2] = { cond, fn };
    aril_status s = check_call("while", cond && fn, state, state.n, out);
    if (s == ARIL_OK && (state.n < 1 || state.n >= MAX_ARGS))
        s = aril__fail(ARIL_ERR_ARG, "while: expected at least one tensor of state");
    if (s == ARIL_OK && opts.max_trips < 0)
        s = aril__fail(ARIL_ERR_ARG, "while: max_trips must be at least 0, got %lld",
                       (long long)opts.max_trips);
    if (s < 0) return fail_all(s, state.n > 0 ? state.n : 0, out);
    aril__tracing *t = aril__tracing_now(state.n, state.at);
    if (!t || !(aril__self()->tracer || any_symbolic(state)))
        s = aril__eager_while(both, ctx, state, opts.max_trips, out);
    else
        s = traced_while(t,
                         &(while_call){ .fn = { cond, fn },
                                        .ctx = ctx,
                                        .in = state,
                                        .max_trips = opts.max_trips },
                         out);
    return s < 0 ? fail_all(s, state.n, out) : ARIL_OK;
}
