/* Requirements of a graph in a run: they are checked when a plan is made, with the sizes that are
 * known then; those that need more, after the steps of each run. */
#include "graph/executor.h"
#include "ops/table/apply.h"
#include "ops/vision/slide.h"

#include <stdlib.h>
#include <string.h>

/* ---- sizes of results ---- */

/* Headers for the shapes that a derived size was made of. */
typedef struct inputs {
    int n;
    aril_tensor **t;
} inputs;

static void release(aril__thread *th, inputs *in)
{
    for (int i = 0; i < in->n; i++)
        if (in->t[i]) aril__tensor_release(th, in->t[i]);
    free(in->t);
}

/* Reads them from key[*at ...]; false if a size is not known, or there is no memory. */
static bool read_inputs(aril__thread *th, const aril__sizes *s, const int64_t *key, int *at,
                        const int64_t *value, int n, inputs *in)
{
    if (!(in->t = aril__calloc(((size_t)n + 1) * sizeof *in->t))) return false;
    bool known = true;
    for (in->n = 0; in->n < n && known; in->n++) {
        int64_t what = key[(*at)++], dim[ARIL_MAX_DIMS];
        if (what < 0) continue; /* an input that is absent */
        int ndim = (int)(what & 0xff);
        for (int d = 0; d < ndim; d++) {
            dim[d] = aril__size_known(s, key[(*at)++], value);
            known = known && dim[d] >= 0;
        }
        if (known) in->t[in->n] = aril__tensor_header(th, (aril_dtype)(what >> 8), ndim, dim);
        known = known && in->t[in->n];
    }
    return known;
}

/* Attributes with unknown sizes replaced; false if one is not known. */
static bool read_attrs(const aril__op *op, const aril__sizes *s, const int64_t *value, void *attrs)
{
    for (int i = 0; i < op->n_attrs; i++) {
        const aril__attr *a = &op->attrs[i];
        int64_t *at = (int64_t *)(void *)((char *)attrs + a->offset);
        for (int k = 0; a->type == ARIL__I64 && k < a->count; k++) {
            if (!aril__size_is_named(at[k])) continue;
            at[k] = aril__size_known(s, at[k], value);
            if (at[k] < 0) return false;
        }
    }
    return true;
}

/* One size of a result of an op, which its shape rule infers. */
static int64_t infer_size(const aril__op *op, void *attrs, const inputs *in, int64_t out,
                          int64_t axis)
{
    aril__call c = { .op = op,
                     .attrs = op->attr_size ? attrs : NULL,
                     .n_in = in->n,
                     .in = in->t,
                     .device = aril__cpu_device,
                     .type = in->n && in->t[0] ? (aril_dtype)in->t[0]->dtype : ARIL_F32 };
    aril__saved_errors before = aril__errors_begin_quiet();
    aril_status s = op->infer(&c); /* the step itself reports an error */
    aril__error_release(aril__errors_end(&before));
    return s == ARIL_OK && axis < c.out[out].ndim ? c.out[out].dim[axis] : -1;
}

static int64_t result_size(void *ctx, const aril__sizes *s, int n, const int64_t *key,
                           const int64_t *value)
{
    if (key[0] == ARIL__SIZE_SLIDE) {
        int64_t d = aril__size_known(s, key[1], value);
        return d < 0 ? -1 : aril__slide_known(key, d);
    }
    const aril__op *op = (const aril__op *)(intptr_t)key[1];
    if (key[0] != ARIL__SIZE_RESULT || !op->number) return -1; /* control flow */
    aril__thread *th = ctx;
    int words = (int)(op->attr_size / sizeof *key), at = 3 + words;
    void *attrs = aril__malloc(op->attr_size + 1);
    inputs in = { 0 };
    int64_t size = -1;
    if (attrs) memcpy(attrs, key + 3, op->attr_size);
    if (attrs && read_attrs(op, s, value, attrs) &&
        read_inputs(th, s, key, &at, value, (int)key[2], &in))
        size = infer_size(op, attrs, &in, key[n - 2], key[n - 1]);
    release(th, &in);
    free(attrs);
    return size;
}

/* All sizes of a run as far as they are known, by number; NULL with an error. To be freed. */
static int64_t *all_sizes(const aril__exec_state *r)
{
    const aril__sizes *s = r->g->sizes;
    int64_t *value = aril__malloc((s->n + 1) * sizeof *value);
    if (!value) {
        aril__fail(ARIL_ERR_MEMORY, "run: out of memory");
        return NULL;
    }
    for (size_t k = 0; k < s->n; k++) value[k] = k < r->n_sizes ? r->size[k] : -1;
    aril__sizes_follow(s, value, result_size, r->th);
    return value;
}

bool aril__exec_follow(const aril__exec_state *r, const aril__op *op, void *attrs)
{
    int64_t *value = all_sizes(r);
    bool known = value && read_attrs(op, r->g->sizes, value, attrs);
    free(value);
    return known;
}

/* ---- checking ---- */

/* Replaces unknown sizes; false if one is not known. */
static bool resolve(const aril__sizes *s, const int64_t *value, aril__requirement *q)
{
    bool known = true;
    for (int i = 0; i < q->n_shapes; i++)
        for (int d = 0; d < q->shape[i].ndim; d++) {
            q->shape[i].dim[d] = aril__size_known(s, q->shape[i].dim[d], value);
            known = known && q->shape[i].dim[d] >= 0;
        }
    for (int i = 0; i < q->n_numbers; i++) {
        if (!aril__size_is_named(q->number[i])) continue;
        q->number[i] = aril__size_known(s, q->number[i], value);
        known = known && q->number[i] >= 0;
    }
    return known;
}

static aril_status check(const aril__graph *g, const aril__graph_requirement *of,
                         const aril__requirement *q)
{
    aril__recorded before = aril__location_set_recorded(aril__graph_stack(g, of->where));
    aril_status s = q->check(q);
    aril__location_set_recorded(before);
    return s;
}

aril_status aril__exec_require(const aril__exec_state *r, bool *met, bool *all)
{
    const aril__graph *g = r->g;
    const aril__sizes *sizes = g->sizes;
    *all = true;
    if (g->n_requirements == 0) return ARIL_OK;
    int64_t *value = all_sizes(r);
    if (!value) return aril__latest_status();
    aril_status s = ARIL_OK;
    for (uint32_t i = 0; i < g->n_requirements && s == ARIL_OK; i++) {
        if (met[i]) continue;
        aril__requirement q = g->requirements[i].is;
        met[i] = resolve(sizes, value, &q);
        *all = *all && met[i];
        if (met[i]) s = check(g, &g->requirements[i], &q);
    }
    free(value);
    return s;
}

/* ---- without a run ---- */

/* A header of a value's sizes; NULL: one is not known, or no memory. A number is itself. */
static aril_tensor *header_of(const aril__graph *g, aril__value_id v, const int64_t *value)
{
    const aril__value *x = &g->values[v];
    int64_t dim[ARIL_MAX_DIMS];
    if (x->kind == ARIL__FROM_CONSTANT) return aril__tensor_keep(g->constants[x->from]);
    for (int d = 0; d < x->ndim; d++) {
        dim[d] = aril__size_known(g->sizes, aril__graph_dims(g, v)[d], value);
        if (dim[d] < 0) return NULL;
    }
    aril_tensor *t = aril__tensor_header(aril__self(), (aril_dtype)x->dtype, x->ndim, dim);
    if (t) t->flags |= x->tensor_flags & ARIL__WEAK;
    return t;
}

/* The shape rule of a node, and its answer, with these sizes. */
static aril_status check_node(const aril__graph *g, const aril__graph_node *n, const inputs *in,
                              void *attrs, const int64_t *value)
{
    aril__call c = { .op = n->op,
                     .attrs = n->has_attrs ? attrs : NULL,
                     .n_in = in->n,
                     .in = in->t,
                     .device = aril__cpu_device,
                     .type = in->n && in->t[0] ? (aril_dtype)in->t[0]->dtype : ARIL_F32 };
    aril_status s = n->op->infer(&c);
    for (int k = 0; k < n->op->n_out && s == ARIL_OK; k++) {
        aril__value_id v = n->out + (uint32_t)k;
        const int64_t *dim = aril__graph_dims(g, v);
        bool fits = c.out[k].ndim == g->values[v].ndim;
        for (int d = 0; d < c.out[k].ndim && fits; d++) {
            int64_t want = aril__size_known(g->sizes, dim[d], value);
            fits = want < 0 || c.out[k].dim[d] < 0 || want == c.out[k].dim[d];
        }
        if (!fits) s = aril__fail(ARIL_ERR_SHAPE, "%s: a result has other sizes", n->op->name);
    }
    return s;
}

static aril_status meet_node(const aril__graph *g, const aril__graph_node *n, const int64_t *value)
{
    aril_status s = ARIL_OK;
    aril__thread *th = aril__self();
    const aril__value_id *id = aril__graph_in(g, n);
    inputs in = { .t = aril__calloc(((size_t)n->n_in + 1) * sizeof *in.t) };
    void *attrs = aril__malloc(n->op->attr_size + 1);
    bool known = in.t && attrs;
    if (!known) s = aril__fail(ARIL_ERR_MEMORY, "graph: out of memory");
    for (; in.n < n->n_in && known; in.n++)
        if (id[in.n]) known = (in.t[in.n] = header_of(g, id[in.n], value)) != NULL;
    if (known && n->has_attrs) memcpy(attrs, aril__graph_attrs(g, n), n->op->attr_size);
    if (known && n->sized) known = read_attrs(n->op, g->sizes, value, attrs);
    if (known) s = check_node(g, n, &in, attrs, value);
    release(th, &in);
    free(attrs);
    return s;
}

void aril__graph_follow(const aril__graph *g, int64_t *value)
{
    aril__sizes_follow(g->sizes, value, result_size, aril__self());
}

aril_status aril__graph_met(const aril__graph *g, int64_t *value)
{
    aril_status s = ARIL_OK;
    aril__graph_follow(g, value);
    for (uint32_t i = 0; i < g->n_requirements && s == ARIL_OK; i++) {
        aril__requirement q = g->requirements[i].is;
        if (resolve(g->sizes, value, &q)) s = check(g, &g->requirements[i], &q);
    }
    for (aril__node_id id = 1; id < g->n_nodes && s == ARIL_OK; id++)
        if (!g->nodes[id].n_bodies) s = meet_node(g, &g->nodes[id], value);
    for (uint32_t i = 0; i < g->n_bodies && s == ARIL_OK; i++)
        s = aril__graph_met(g->bodies[i], value);
    return s;
}
