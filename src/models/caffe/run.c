/* Runs the nodes of a net. */
#include "models/caffe/inside.h"

#include <stdlib.h>

/* One run. Values that are the same tensor (the result of a layer that changes nothing) have the
 * same owner: the tensor is dropped when the last of them has been read. */
typedef struct runner {
    caffe_net *net;
    aril_tensor **at;
    int *owner, *users; /* users[owner]: values that will be read */
    bool *wanted, *needed;
    aril_tensor **in, **out; /* of one node */
    aril_tensor *loss;
    bool wants_loss;
} runner;

/* ---- memory ---- */

static aril_status runner_open(runner *r, caffe_net *net)
{
    size_t v = (size_t)net->n_values + 1, n = (size_t)net->n_nodes + 1;
    *r = (runner){ .net = net };
    r->at = aril__calloc(v * sizeof *r->at);
    r->owner = aril__calloc(2 * v * sizeof *r->owner);
    r->wanted = aril__calloc((v + n) * sizeof *r->wanted);
    r->in = aril__calloc((size_t)(net->most_in + net->most_out + 2) * sizeof *r->in);
    if (!r->at || !r->owner || !r->wanted || !r->in)
        return aril__fail(ARIL_ERR_MEMORY, "%s: out of memory", net->file);
    r->users = r->owner + v;
    r->needed = r->wanted + v;
    r->out = r->in + net->most_in + 1;
    return ARIL_OK;
}

static void runner_close(runner *r)
{
    free(r->at);
    free(r->owner);
    free(r->wanted);
    free(r->in);
}

/* ---- what is needed ---- */

static bool has_loss(const runner *r, const caffe_node *n)
{
    for (int i = 0; i < n->n_out && r->wants_loss; i++)
        if (r->net->value[n->out[i]].loss_weight != 0) return true;
    return false;
}

/* `everything`: all nodes, as layers may have effects; otherwise those that the wanted values and
 * the loss need. */
static void mark_needed(runner *r, bool everything)
{
    caffe_net *net = r->net;
    for (int i = net->n_nodes - 1; i >= 0; i--) {
        const caffe_node *n = &net->node[i];
        r->needed[i] |= everything || has_loss(r, n); /* or a later node reads it */
        for (int k = 0; k < n->n_out && !r->needed[i]; k++) r->needed[i] = r->wanted[n->out[k]];
        for (int k = 0; k < n->n_in && r->needed[i]; k++)
            r->needed[net->value[n->in[k]].writer] = true;
    }
}

/* ---- values ---- */

/* Drops what no later node reads. */
static void finish(runner *r, int node)
{
    const caffe_node *n = &r->net->node[node];
    for (int i = 0; i < n->n_in; i++) {
        int v = n->in[i], own = r->owner[v];
        if (r->net->value[v].last != node || r->wanted[v] || !r->at[v] || own < 0) continue;
        aril_tensor *t = r->at[v];
        r->at[v] = NULL;
        if (--r->users[own] == 0) aril_drop(t);
    }
    /* Tops that nobody reads. */
    for (int i = 0; i < n->n_out; i++) {
        int v = n->out[i];
        if (r->net->value[v].readers || r->wanted[v] || !r->at[v]) continue;
        int own = r->owner[v];
        aril_tensor *t = r->at[v];
        r->at[v] = NULL;
        if (own >= 0 && --r->users[own] == 0) aril_drop(t);
    }
}

/* Takes the result of a node as value v. */
static void take(runner *r, const caffe_node *n, int v, aril_tensor *t)
{
    r->at[v] = t;
    r->owner[v] = v;
    for (int i = 0; i < n->n_in; i++)
        if (r->at[n->in[i]] == t) r->owner[v] = r->owner[n->in[i]];
    for (int i = 0; i < n->n_out && n->out[i] != v; i++)
        if (r->at[n->out[i]] == t) r->owner[v] = r->owner[n->out[i]];
    if (r->owner[v] >= 0) r->users[r->owner[v]]++;
}

static void add_loss(runner *r, const caffe_value *v, aril_tensor *t)
{
    if (!r->wants_loss || v->loss_weight == 0) return;
    aril_tensor *sum = aril_ndim(t) ? aril_sum(t, ARIL_ALL) : t;
    if (v->loss_weight != 1) sum = aril_mul_scalar(sum, v->loss_weight);
    r->loss = r->loss ? aril_add(r->loss, sum) : sum;
}

static void note_shape(caffe_value *v, const aril_tensor *t)
{
    if (!aril__is_building() || v->known) return;
    v->shape = aril_shape_of(t);
    v->known = true;
    for (int i = 0; i < v->shape.ndim; i++)
        if (v->shape.dim[i] < 0) v->shape.dim[i] = -1;
}

/* ---- nodes ---- */

/* Whether node i applies the activation of the node that reads it. */
static bool fuses(const runner *r, int i)
{
    const caffe_node *n = i >= 0 ? &r->net->node[i] : NULL;
    if (!n || n->fused < 0 || r->wanted[n->out[0]] || !r->needed[n->fused]) return false;
    return !n->module->hooks && !r->net->node[n->fused].module->hooks && !r->net->watcher &&
           !aril__is_building();
}

static aril_status run_plain(runner *r, const caffe_node *n)
{
    int n_out = n->n_out ? n->n_out : 1;
    for (int i = 0; i < n->n_in; i++) {
        aril_tensor *t = r->at[n->in[i]];
        if (!t)
            return aril__fail(ARIL_ERR_ARG, "%s: layer '%s' needs the input '%s'", r->net->file,
                              n->name, r->net->value[n->in[i]].name);
        r->in[i] = n->detached && n->detached[i] ? aril_detach(t) : t;
        /* A tensor of its own, whose gradient is that of this layer. */
        if (r->net->watcher && aril_requires_grad(r->in[i]) && t->ndim < ARIL_MAX_DIMS)
            r->in[i] = aril_squeeze(aril_unsqueeze(t, 0), ARIL_AXES(0));
    }
    return aril_forward_all(n->module, (aril_list){ n->n_in, r->in }, n_out, r->out);
}

/* What data and Input layers provide. */
static void watch_inputs(runner *r, int i)
{
    const caffe_node *n = &r->net->node[i];
    if (!r->net->watcher || aril__is_building()) return;
    for (int k = 0; k < n->n_out; k++) r->out[k] = r->at[n->out[k]];
    r->net->watcher(r->net->watcher_ctx, i, (aril_list){ 0 }, (aril_list){ n->n_out, r->out });
}

static aril_status run_node(runner *r, int i)
{
    const caffe_node *n = &r->net->node[i];
    aril_status s = ARIL_OK;
    bool applied = fuses(r, n->applier);
    if (n->row->flags & CAFFE_INPUT) watch_inputs(r, i);
    if (n->row->flags & (CAFFE_INPUT | CAFFE_SINK)) return ARIL_OK;
    if (applied) {
        r->out[0] = r->at[n->in[0]];
    } else if (fuses(r, i) && r->at[n->in[0]]) {
        const caffe_node *next = &r->net->node[n->fused];
        r->out[0] = aril__forward_fused(n->module, r->at[n->in[0]],
                                        next->row->activation(aril__caffe_layer_of(next)));
        s = aril_tensor_status(r->out[0]);
    } else {
        s = run_plain(r, n);
    }
    for (int k = 0; k < n->n_out && s == ARIL_OK; k++) {
        take(r, n, n->out[k], r->out[k]);
        note_shape(&r->net->value[n->out[k]], r->out[k]);
        add_loss(r, &r->net->value[n->out[k]], r->out[k]);
    }
    if (s == ARIL_OK && r->net->watcher && !aril__is_building())
        r->net->watcher(r->net->watcher_ctx, i, (aril_list){ n->n_in, r->in },
                        (aril_list){ n->n_out, r->out });
    if (s == ARIL_OK) finish(r, i);
    return s;
}

static void set_inputs(runner *r, int n_in, aril_tensor *const *in)
{
    for (int i = 0; i < r->net->n_inputs; i++) {
        int v = r->net->inputs[i];
        r->at[v] = i < n_in ? in[i] : NULL;
        r->owner[v] = -1; /* the caller's */
        if (r->at[v]) note_shape(&r->net->value[v], r->at[v]);
    }
}

aril_status aril__caffe_run(caffe_net *net, int n_in, aril_tensor *const *in, int n_wanted,
                            const int *wanted, aril_tensor **out, aril_tensor **loss)
{
    runner r;
    aril_status s = runner_open(&r, net);
    if (s == ARIL_OK) {
        r.wants_loss = loss != NULL;
        for (int i = 0; i < n_wanted; i++) r.wanted[wanted[i]] = true;
        mark_needed(&r, wanted == net->outputs);
        /* Losses stay: the total may be one of them. */
        for (int v = 0; v < net->n_values && loss; v++)
            r.wanted[v] |= net->value[v].loss_weight != 0;
        set_inputs(&r, n_in, in);
    }
    for (int i = 0; i < net->n_nodes && s == ARIL_OK; i++)
        if (r.needed[i]) s = run_node(&r, i);
    for (int i = 0; i < n_wanted && s == ARIL_OK; i++) {
        out[i] = r.at[wanted[i]];
        if (!out[i])
            s = aril__fail(ARIL_ERR_ARG, "%s: the input '%s' is missing", net->file,
                           net->value[wanted[i]].name);
    }
    if (loss) *loss = s == ARIL_OK ? r.loss : NULL;
    runner_close(&r);
    return s;
}
