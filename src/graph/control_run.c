/* Runs of control flow. */
#include "graph/control.h"

#include "aril/create.h"
#include "aril/index.h"
#include "aril/view.h"
#include "graph/exec.h"

#include <stdlib.h>
#include <string.h>

aril_status aril__control_flag(const char *what, aril_tensor *t, bool *to)
{
    if (t->numel != 1)
        return aril__fail(ARIL_ERR_SHAPE, "%s: the condition has %lld elements, expected one", what,
                          (long long)t->numel);
    *to = aril_item(t) != 0;
    return ARIL_OK;
}

static void release_all(int n, aril_tensor **t)
{
    for (int i = 0; i < n; i++) {
        if (t[i]) aril__tensor_release(aril__self(), t[i]);
        t[i] = NULL;
    }
}

/* Copies of the keys of the thread's generator among in[n], `shift` calls later; owned by the
 * scope. A run changes them. */
static aril_status shift_keys(int n, aril_tensor *const *in, int64_t shift, aril_tensor **arg)
{
    aril__thread *th = aril__self();
    for (int i = 0; i < n; i++) {
        if (!in[i] || !(in[i]->flags & ARIL__KEY)) continue;
        uint64_t key[2];
        int64_t two = 2;
        memcpy(key, aril__ptr(in[i]), sizeof key);
        if (key[0] == th->generator.seed) key[1] += (uint64_t)shift;
        aril_tensor *t = aril__tensor_new(th, ARIL_U64, 1, &two, aril__cpu_device);
        if (!t) return aril__latest_status();
        memcpy(t->storage->data, key, sizeof key);
        t->flags |= ARIL__KEY;
        arg[i] = aril__give(th, t);
    }
    return ARIL_OK;
}

static aril_status run_cond(const aril__graph *g, const aril__graph_node *n, aril_tensor *const *in,
                            const int64_t *size, aril_tensor **out, aril__drawing *d)
{
    ARIL_SCOPE;
    bool yes = false;
    aril_tensor **arg = aril__malloc(((size_t)n->n_in + 1) * sizeof *arg);
    if (!arg) return aril__fail(ARIL_ERR_MEMORY, "cond: out of memory");
    memcpy(arg, in, n->n_in * sizeof *arg);
    aril_status s = aril__control_flag("cond", in[0], &yes);
    const aril__graph *taken = g->bodies[n->body + !yes];
    if (s == ARIL_OK) s = shift_keys(n->n_in - 1, in + 1, 0, arg + 1);
    if (s == ARIL_OK) s = aril__exec_run_body(taken->exec, arg + 1, size, out, d);
    free(arg);
    return s;
}

/* Puts the result of trip k into the sequence, which the first one creates. */
static aril_status put_result(aril_tensor **to, aril_tensor *y, int64_t trips, int64_t k)
{
    ARIL_SCOPE;
    if (!*to) {
        aril_shape shape = { .ndim = y->ndim + 1, .dim = { trips } };
        memcpy(shape.dim + 1, y->dim, (size_t)y->ndim * sizeof *y->dim);
        aril_tensor *all = aril_empty(shape, (aril_dtype)y->dtype, aril_device_of(y));
        if (aril_tensor_status(all) < 0) return aril_tensor_status(all);
        *to = aril__tensor_keep(all);
    }
    return aril_tensor_status(aril_copy_(aril_select(*to, 0, k), y));
}

/* No trips: the sequences of results are empty. Their other sizes follow from those of the run;
 * what only a trip tells is 0. */
static aril_status empty_result(const aril__graph *g, aril__value_id v, const int64_t *size,
                                aril_tensor **to)
{
    ARIL_SCOPE;
    size_t n = g->sizes->n;
    aril_shape shape = { .ndim = g->values[v].ndim };
    int64_t *known = aril__malloc((n + 1) * sizeof *known);
    if (!known) return aril__fail(ARIL_ERR_MEMORY, "scan: out of memory");
    for (size_t k = 0; k < n; k++) known[k] = size ? size[k] : -1;
    aril__graph_follow(g, known);
    for (int d = 1; d < shape.ndim; d++) {
        int64_t of = aril__size_known(g->sizes, aril__graph_dims(g, v)[d], known);
        shape.dim[d] = of < 0 ? 0 : of;
    }
    free(known);
    aril_tensor *t = aril_empty(shape, (aril_dtype)g->values[v].dtype, g->values[v].device->id);
    *to = aril__tensor_keep(t);
    return aril_tensor_status(t);
}

/* Results of trips of which nobody knows how many there will be: with room for more. */
typedef struct grown {
    aril_tensor *all; /* a reference */
    int64_t n;
} grown;

static aril_status grow(grown *to, aril_tensor *y)
{
    ARIL_SCOPE;
    int64_t room = to->all ? to->all->dim[0] : 0;
    if (to->n == room) {
        aril_tensor *more = NULL;
        aril_status s = put_result(&more, y, 2 * room + 4, to->n);
        if (s == ARIL_OK && room)
            s = aril_tensor_status(aril_copy_(aril_narrow(more, 0, 0, room), to->all));
        if (to->all) aril__tensor_release(aril__self(), to->all);
        to->all = more;
        to->n++;
        return s;
    }
    return put_result(&to->all, y, room, to->n++);
}

/* Those that there are, in memory of their own. */
static aril_status shrink(const grown *from, aril_tensor **to)
{
    ARIL_SCOPE;
    *to = aril__tensor_keep(aril_copy(aril_narrow(from->all, 0, 0, from->n)));
    return aril_tensor_status(*to);
}

static aril_status run_while(const aril__graph *g, const aril__graph_node *n,
                             aril_tensor *const *in, const int64_t *size, aril_tensor **out,
                             aril__drawing *d)
{
    const struct control_attrs *a = aril__graph_attrs(g, n);
    int n_state = (int)a->n_state[0], n_ys = (int)a->n_ys[0];
    grown ys[ARIL__MAX_OUT] = { { 0 } };
    int64_t shift = 0; /* numbers that were drawn in trips before */
    const aril__graph *cond = g->bodies[n->body], *trip = g->bodies[n->body + 1];
    aril_tensor **arg = aril__malloc(((size_t)n->n_in + 1) * sizeof *arg);
    aril_tensor *next[ARIL__MAX_OUT], *go[1];
    if (!arg) return aril__fail(ARIL_ERR_MEMORY, "while: out of memory");
    memcpy(arg, in, n->n_in * sizeof *arg);
    for (int i = 0; i < n_state; i++) aril__tensor_keep(arg[i]);
    aril_status s = ARIL_OK;
    bool yes = true;
    for (int64_t k = 0; s == ARIL_OK && (!a->max_trips[0] || k < a->max_trips[0]); k++) {
        ARIL_SCOPE;
        aril__drawing inside = { d->known, d->shift + shift, 0 };
        s = shift_keys(n->n_in - n_state, in + n_state, shift, arg + n_state);
        if (s == ARIL_OK) s = aril__exec_run_body(cond->exec, arg, size, go, &inside);
        if (s < 0) break;
        s = aril__control_flag("while", go[0], &yes);
        release_all(1, go);
        shift += inside.more + (yes ? 0 : a->condition_draws[0]);
        if (s < 0 || !yes) break;
        s = shift_keys(n->n_in - n_state, in + n_state, shift, arg + n_state);
        inside = (aril__drawing){ d->known, d->shift + shift, 0 };
        if (s == ARIL_OK) s = aril__exec_run_body(trip->exec, arg, size, next, &inside);
        if (s < 0) break;
        shift += inside.more + a->draws[0];
        release_all(n_state, arg);
        memcpy(arg, next, (size_t)n_state * sizeof *arg);
        for (int i = 0; i < n_ys && s == ARIL_OK; i++) s = grow(&ys[i], next[n_state + i]);
        release_all(n_ys, next + n_state);
    }
    d->more += shift - a->draws[0];
    for (int i = 0; i < n_state && s == ARIL_OK; i++) {
        ARIL_SCOPE;
        out[i] = arg[i] == in[i] ? aril__tensor_keep(aril_copy(arg[i])) : aril__tensor_keep(arg[i]);
        s = aril_tensor_status(out[i]);
    }
    for (int i = 0; i < n_ys; i++) {
        aril_tensor **to = &out[n_state + i];
        *to = NULL;
        if (s == ARIL_OK)
            s = ys[i].n ? shrink(&ys[i], to)
                        : empty_result(g, n->out + (uint32_t)(n_state + i), size, to);
        if (ys[i].all) aril__tensor_release(aril__self(), ys[i].all);
    }
    if (s < 0) release_all(n_ys, out + n_state);
    release_all(n_state, arg);
    free(arg);
    return s;
}

static aril_status run_scan(const aril__graph *g, const aril__graph_node *n, aril_tensor *const *in,
                            const int64_t *size, aril_tensor **out, aril__drawing *d)
{
    const struct control_attrs *a = aril__graph_attrs(g, n);
    int n_state = (int)a->n_state[0], n_args = (int)a->n_args[0], n_ys = (int)a->n_ys[0];
    const aril__graph *trip = g->bodies[n->body];
    int64_t trips = in[n_state]->dim[0], shift = 0; /* numbers that were drawn in trips before */
    aril_tensor **arg = aril__malloc(((size_t)n->n_in + 1) * sizeof *arg);
    aril_tensor *step[ARIL__MAX_OUT];
    if (!arg) return aril__fail(ARIL_ERR_MEMORY, "scan: out of memory");
    memcpy(arg, in, n->n_in * sizeof *arg);
    for (int i = 0; i < n_state; i++) aril__tensor_keep(arg[i]);
    for (int i = 0; i < n_ys; i++) out[n_state + i] = NULL;
    aril_status s = ARIL_OK;
    for (int64_t t = 0; t < trips && s == ARIL_OK; t++) {
        ARIL_SCOPE;
        int64_t at = a->reverse[0] ? trips - 1 - t : t;
        for (int i = n_state; i < n_args; i++) arg[i] = aril_select(in[i], 0, at);
        if (a->repeats[0]) shift = at * a->draws[0];
        s = shift_keys(n->n_in - n_args, in + n_args, shift, arg + n_args);
        aril__drawing inside = { d->known, d->shift + shift, 0 };
        if (s == ARIL_OK) s = aril__exec_run_body(trip->exec, arg, size, step, &inside);
        if (s < 0) break;
        shift += inside.more + a->draws[0];
        release_all(n_state, arg);
        memcpy(arg, step, (size_t)n_state * sizeof *arg);
        for (int i = 0; i < n_ys && s == ARIL_OK; i++)
            s = put_result(&out[n_state + i], step[n_state + i], trips, at);
        release_all(n_ys, step + n_state);
    }
    if (!a->repeats[0]) d->more += shift - a->draws[0];
    for (int i = 0; i < n_ys && s == ARIL_OK && trips == 0; i++)
        s = empty_result(g, n->out + (uint32_t)(n_state + i), size, &out[n_state + i]);
    for (int i = 0; i < n_state && s == ARIL_OK; i++) {
        ARIL_SCOPE;
        out[i] = aril__tensor_keep(trips ? arg[i] : aril_copy(arg[i]));
    }
    if (s < 0) release_all(n_ys, out + n_state);
    release_all(n_state, arg);
    free(arg);
    return s;
}

aril_status aril__control_run(const aril__graph *g, const aril__graph_node *n,
                              aril_tensor *const *in, const int64_t *size, aril_tensor **out,
                              aril__drawing *d)
{
    const struct control_attrs *a = aril__graph_attrs(g, n);
    switch (a->kind[0]) {
    case ARIL__COND: return run_cond(g, n, in, size, out, d);
    case ARIL__WHILE: return run_while(g, n, in, size, out, d);
    default: return run_scan(g, n, in, size, out, d);
    }
}
