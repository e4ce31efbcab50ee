#include "graph/passed_on.h"

#include "core/memory.h"
#include "core/source_location.h"
#include "ops/shape/copy.h"
#include "ops/shape/like.h"
#include "ops/shape/view.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { NOT_BOUND = INT64_MIN, LOCATION = 256 };

typedef struct comparison {
    const aril__graph *a, *b; /* with unknown sizes, and with known ones */
    int64_t *size;            /* what each unknown size of a is in b */
    size_t n_sizes;
    aril__value_id *of_a,
        *of_b; /* of each value, the value of a that it is equal to; 0: not known */
    bool open; /* of the latest size: it has a factor that is not known, or is unknown in b too */
    char *why; /* empty: no difference so far */
    size_t room;
} comparison;

/* ---- differences ---- */

/* "add at mlp.c:12" */
static const char *node_text(const aril__graph *g, const aril__graph_node *n, char *text,
                             size_t size)
{
    char where[LOCATION];
    aril__graph_where(g, n, where, sizeof where);
    snprintf(text, size, "%s%s%s", n->op->name, *where ? " at " : "", where);
    return text;
}

/* Only the first difference counts. */
static bool differ(const comparison *c, const aril__graph_node *n, const char *what)
{
    char text[LOCATION + 64];
    if (*c->why) return false;
    if (n)
        snprintf(c->why, c->room, "%s has %s", node_text(c->a, n, text, sizeof text), what);
    else
        snprintf(c->why, c->room, "%s", what);
    return false;
}

static bool other_node(const comparison *c, const aril__graph_node *a, const aril__graph_node *b)
{
    char mine[LOCATION + 64], other[LOCATION + 64];
    if (*c->why) return false;
    snprintf(c->why, c->room, "with the sizes of this call it has %s%s%s",
             b ? node_text(c->b, b, other, sizeof other) : "nothing more",
             a ? ", without them " : "", a ? node_text(c->a, a, mine, sizeof mine) : "");
    return false;
}

/* ---- sizes ---- */

static int64_t bound(void *ctx, int64_t unknown)
{
    comparison *c = ctx;
    size_t k = aril__size_index(unknown);
    int64_t d = k < c->n_sizes ? c->size[k] : NOT_BOUND;
    c->open |= d < 0;
    return d < 0 ? 1 : d;
}

/* A size of a is one of b. Derived sizes are learned where they first occur. */
static bool same_size(comparison *c, int64_t a, int64_t b)
{
    if (!aril__size_is_named(a)) return a == b;
    size_t k = aril__size_index(a);
    if (k < c->n_sizes && c->size[k] != NOT_BOUND) return c->size[k] == b;
    c->open = false;
    int64_t value = aril__size_value(c->a->sizes, a, bound, c);
    /* Without a product to compute it from, `value` was asked for itself. */
    if (!c->open && value != b) return false;
    if (b < 0 && !aril__size_is_named(b)) return false;
    if (k < c->n_sizes) c->size[k] = b;
    return true;
}

static bool same_dims(comparison *c, int n, const int64_t *a, int m, const int64_t *b)
{
    bool same = n == m;
    for (int d = 0; d < n && same; d++) same = same_size(c, a[d], b[d]);
    return same;
}

static bool same_value(comparison *c, aril__value_id v, aril__value_id w)
{
    const aril__value *a = &c->a->values[v], *b = &c->b->values[w];
    return a->kind == b->kind && a->dtype == b->dtype && a->device == b->device &&
           same_dims(c, a->ndim, aril__graph_dims(c->a, v), b->ndim, aril__graph_dims(c->b, w));
}

/* ---- tensors ---- */

/* Whether two tensors of the traces are the same number, or numbers. */
static bool same_tensor(comparison *c, const aril_tensor *a, const aril_tensor *b)
{
    if (a == b) return true;
    if (!a || !b || a->dtype != b->dtype || a->flags != b->flags ||
        !same_dims(c, a->ndim, a->dim, b->ndim, b->dim))
        return false;
    if (!a->storage || !b->storage) return !a->storage && !b->storage;
    if (a->storage == b->storage) return a->offset == b->offset;
    if (a->storage->device != b->storage->device || a->storage->bytes != b->storage->bytes)
        return false;
    /* Data on another device were computed there, by nodes or before the trace. */
    return a->storage->device != aril__cpu_device ||
           memcmp(aril__base(a), aril__base(b), a->storage->bytes) == 0;
}

/* ---- values ---- */

/* Values that no node computes. */
static bool same_source(comparison *c, aril__value_id v, aril__value_id w)
{
    const aril__value *a = &c->a->values[v], *b = &c->b->values[w];
    if (a->kind == ARIL__FROM_NODE || !same_value(c, v, w)) return false;
    switch (a->kind) {
    case ARIL__FROM_CONSTANT:
        return same_tensor(c, c->a->constants[a->from], c->b->constants[b->from]);
    case ARIL__FROM_STATE:
        return same_tensor(c, c->a->states[a->from].tensor, c->b->states[b->from].tensor);
    case ARIL__FROM_KEY:
        return c->a->keys[a->from].generator == c->b->keys[b->from].generator &&
               c->a->keys[a->from].offset == c->b->keys[b->from].offset;
    default: return a->from == b->from;
    }
}

static bool same_operand(comparison *c, aril__value_id v, aril__value_id w)
{
    if (!v || !w) return v == w;
    if (!c->of_b[w] && same_source(c, v, w)) c->of_b[w] = c->of_a[v];
    return c->of_b[w] && c->of_b[w] == c->of_a[v];
}

/* The value of a for a source of b that is used first by a node which a does not have. */
static aril__value_id source_of(comparison *c, aril__value_id w)
{
    const aril__value *b = &c->b->values[w];
    aril__value_id v = 0;
    if (b->kind == ARIL__FROM_STATE && b->from < c->a->n_states) v = c->a->states[b->from].value;
    if (b->kind == ARIL__FROM_INPUT && b->from < c->a->n_inputs) v = c->a->inputs[b->from].value;
    return v && same_source(c, v, w) ? c->of_a[v] : 0;
}

/* ---- nodes ---- */

static bool same_attrs(comparison *c, const aril__graph_node *a, const aril__graph_node *b)
{
    const aril__op *op = a->op;
    if (a->has_attrs != b->has_attrs) return differ(c, a, "other attributes");
    if (!a->has_attrs || !op->number) return true; /* control flow has bodies */
    const char *x = aril__graph_attrs(c->a, a), *y = aril__graph_attrs(c->b, b);
    for (int i = 0; i < op->n_attrs; i++) {
        const aril__attr *attr = &op->attrs[i];
        for (int k = 0; k < attr->count; k++) {
            size_t at = attr->offset + (size_t)k * sizeof(int64_t);
            int64_t p, q;
            memcpy(&p, x + at, sizeof p);
            memcpy(&q, y + at, sizeof q);
            if (attr->type == ARIL__I64 ? same_size(c, p, q) : p == q) continue;
            char what[64];
            snprintf(what, sizeof what, "another '%s'", attr->name);
            return differ(c, a, what);
        }
    }
    return true;
}

static bool same_graph(comparison *c, const aril__graph *a, const aril__graph *b);

/* Whether two sums have the same operands in another order. Gradients are added up in the order in
 * which backward reaches them, and that depends on nodes that only one of the traces has. */
static bool is_swapped(comparison *c, const aril__graph_node *a, const aril__graph_node *b)
{
    const aril__value_id *v = aril__graph_in(c->a, a), *w = aril__graph_in(c->b, b);
    return a->n_in == 2 && strcmp(a->op->name, "add") == 0 && !same_operand(c, v[0], w[0]) &&
           same_operand(c, v[0], w[1]) && same_operand(c, v[1], w[0]);
}

static bool same_node(comparison *c, const aril__graph_node *a, const aril__graph_node *b)
{
    const aril__graph *ga = c->a, *gb = c->b;
    if (a->op != b->op || a->n_in != b->n_in || a->n_out != b->n_out || a->n_bodies != b->n_bodies)
        return other_node(c, a, b);
    bool swapped = is_swapped(c, a, b);
    for (int i = 0; i < a->n_in; i++) {
        aril__value_id v = aril__graph_in(ga, a)[i], w = aril__graph_in(gb, b)[swapped ? 1 - i : i];
        if (same_operand(c, v, w)) continue;
        bool computed = v && ga->values[v].kind == ARIL__FROM_NODE;
        return differ(c, a, computed ? "another input" : "a constant of another value");
    }
    for (uint32_t k = 0; k < a->n_out; k++) {
        if (!same_value(c, a->out + k, b->out + k))
            return differ(c, a, "a result of another shape");
        c->of_b[b->out + k] = a->out + k;
    }
    if (!same_attrs(c, a, b)) return false;
    for (uint32_t i = 0; i < a->n_bodies; i++)
        if (!same_graph(c, ga->bodies[a->body + i], gb->bodies[b->body + i])) return false;
    return true;
}

/* A copy in row-major order: ops make one where known sizes tell that they need it. */
static bool is_copy(const aril__graph_node *n)
{
    return n->op == &aril__op_contiguous;
}

/* Whether two sizes of a are the same one in b. */
static bool equal_in_b(comparison *c, int64_t p, int64_t q)
{
    if (p == q) return true;
    c->open = false;
    int64_t x = aril__size_is_named(p) ? aril__size_value(c->a->sizes, p, bound, c) : p;
    int64_t y = aril__size_is_named(q) ? aril__size_value(c->a->sizes, q, bound, c) : q;
    return !c->open && x == y;
}

/* Whether a node of a broadcasts, repeats, or sums what was broadcast, but gives its input with the
 * sizes of b: ops make one where sizes may differ. */
static bool is_idle(comparison *c, const aril__graph_node *n)
{
    if (n->op != &aril__op_expand && n->op != &aril__op_expand_like &&
        n->op != &aril__op_sum_to_like && n->op != &aril__op_repeat &&
        n->op != &aril__op_repeat_grad)
        return false;
    aril__value_id from = aril__graph_in(c->a, n)[0];
    int ndim = c->a->values[from].ndim;
    const int64_t *p = aril__graph_dims(c->a, from), *q = aril__graph_dims(c->a, n->out);
    bool idle = ndim == c->a->values[n->out].ndim;
    for (int d = 0; d < ndim && idle; d++) idle = equal_in_b(c, p[d], q[d]);
    return idle;
}

/* Steps over such a node that only one of the traces has; 0: none. */
static bool skip_copy(comparison *c, aril__node_id *a, aril__node_id *b)
{
    const aril__graph_node *x = *a < c->a->n_nodes ? &c->a->nodes[*a] : NULL;
    const aril__graph_node *y = *b < c->b->n_nodes ? &c->b->nodes[*b] : NULL;
    if (y && is_copy(y) && !(x && is_copy(x))) {
        aril__value_id from = aril__graph_in(c->b, y)[0];
        c->of_b[y->out] = c->of_b[from] ? c->of_b[from] : source_of(c, from);
        ++*b;
        return true;
    }
    bool extra = x && (is_copy(x) ? !(y && is_copy(y)) : !(y && y->op == x->op) && is_idle(c, x));
    if (!extra) return false;
    c->of_a[x->out] = c->of_a[aril__graph_in(c->a, x)[0]];
    ++*a;
    return true;
}

/* ---- graphs ---- */

static bool same_draws(const aril__graph *a, const aril__graph *b)
{
    bool same = a->n_draws == b->n_draws;
    for (uint32_t i = 0; i < a->n_draws && same; i++)
        same = a->draws[i].generator == b->draws[i].generator &&
               a->draws[i].calls == b->draws[i].calls && a->draws[i].reset == b->draws[i].reset &&
               a->draws[i].end.seed == b->draws[i].end.seed &&
               a->draws[i].end.calls == b->draws[i].end.calls;
    return same;
}

static bool same_epilogues(const aril__graph *a, const aril__graph *b)
{
    bool same = a->n_epilogues == b->n_epilogues;
    for (uint32_t i = 0; i < a->n_epilogues && same; i++) {
        const aril__epilogue *x = &a->epilogues[i], *y = &b->epilogues[i];
        same = x->fn == y->fn && x->ctx == y->ctx && x->bytes == y->bytes &&
               (!x->bytes || memcmp(x->data, y->data, x->bytes) == 0);
    }
    return same;
}

static bool same_ends(comparison *c)
{
    const aril__graph *a = c->a, *b = c->b;
    bool same = a->n_inputs == b->n_inputs && a->n_grads == b->n_grads &&
                a->n_outputs == b->n_outputs && a->n_effects == b->n_effects;
    for (uint32_t i = 0; i < a->n_outputs && same; i++)
        same = same_operand(c, a->outputs[i], b->outputs[i]);
    for (uint32_t i = 0; i < a->n_effects && same; i++)
        same = a->effects[i].kind == b->effects[i].kind && a->effects[i].to == b->effects[i].to &&
               same_operand(c, a->effects[i].value, b->effects[i].value);
    return same && same_draws(a, b) && same_epilogues(a, b);
}

/* Nodes in the order of calls: sizes are learned before they are used. */
static bool same_nodes(comparison *c)
{
    const aril__graph *a = c->a, *b = c->b;
    aril__node_id i = 1, k = 1;
    while (i < a->n_nodes || k < b->n_nodes) {
        if (skip_copy(c, &i, &k)) continue;
        if (i == a->n_nodes || k == b->n_nodes)
            return other_node(c, i < a->n_nodes ? &a->nodes[i] : NULL,
                              k < b->n_nodes ? &b->nodes[k] : NULL);
        if (!same_node(c, &a->nodes[i++], &b->nodes[k++])) return false;
    }
    return same_ends(c) || differ(c, NULL, "it has other results or effects");
}

static bool same_contents(comparison *c)
{
    c->of_a = aril__malloc(((size_t)c->a->n_values + 1) * sizeof *c->of_a);
    c->of_b = aril__calloc(((size_t)c->b->n_values + 1) * sizeof *c->of_b);
    bool fits = c->of_a && c->of_b;
    for (aril__value_id v = 0; v < c->a->n_values && fits; v++) c->of_a[v] = v;
    bool same = fits ? same_nodes(c) : differ(c, NULL, "memory ran out");
    free(c->of_a);
    free(c->of_b);
    return same;
}

static bool same_graph(comparison *c, const aril__graph *a, const aril__graph *b)
{
    comparison inner = *c;
    inner.a = a;
    inner.b = b;
    return same_contents(&inner);
}

/* ---- the size ---- */

bool aril__size_origin(const aril__graph *g, int64_t unknown, char *text, size_t size)
{
    for (aril__value_id v = 1; v < g->n_values; v++) {
        const aril__value *of = &g->values[v];
        int d = 0;
        while (d < of->ndim && aril__graph_dims(g, v)[d] != unknown) d++;
        if (d == of->ndim || (of->kind != ARIL__FROM_INPUT && of->kind != ARIL__FROM_NODE))
            continue;
        int n = snprintf(text, size, "axis %d of ", d);
        if (of->kind == ARIL__FROM_NODE)
            node_text(g, &g->nodes[of->from], text + n, size - (size_t)n);
        else if (g->inputs[of->from].name)
            snprintf(text + n, size - (size_t)n, "'%s'", g->inputs[of->from].name);
        else
            snprintf(text + n, size - (size_t)n, "input %" PRIu32, of->from);
        return true;
    }
    return false;
}

/* Appends where the size comes from that C code has asked for. */
static void name_asked(const comparison *c)
{
    char text[LOCATION + 96];
    size_t used = strlen(c->why);
    if (aril__size_origin(c->a, c->a->sizes->asked, text, sizeof text))
        snprintf(c->why + used, c->room - used, "; it asked for the size of %s", text);
}

aril_status aril__sizes_all_passed_on(const char *what, const aril__graph *g)
{
    char where[LOCATION], origin[LOCATION + 96];
    for (size_t k = 0; k < g->sizes->n; k++) {
        const aril__size_entry *e = &g->sizes->entries[k];
        void *caller = e->asked_by;
        if (!caller || e->passed_on || !aril__location_in(&caller, 1, where, sizeof where))
            continue;
        if (!aril__size_origin(g, aril__size_number(g->sizes, k), origin, sizeof origin))
            snprintf(origin, sizeof origin, "a tensor");
        return aril__fail(ARIL_ERR_STATE,
                          "%s: at %s, C code asks for the size of %s, which only the run knows, "
                          "and no operation takes it: it would compute with a number that stands "
                          "for the size, or decide by it. Give sizes to operations as aril_size "
                          "returns them, or define the graph with a known size",
                          what, where, origin);
    }
    return ARIL_OK;
}

aril_status aril__sizes_passed_on(const char *name, const aril__graph *open,
                                  const aril__graph *known)
{
    char why[1024] = "";
    comparison c = {
        .a = open, .b = known, .n_sizes = open->sizes->n, .why = why, .room = sizeof why
    };
    c.size = aril__malloc((c.n_sizes + 1) * sizeof *c.size);
    if (!c.size) return aril__fail(ARIL_ERR_MEMORY, "%s: out of memory", name);
    for (size_t i = 0; i < c.n_sizes; i++) c.size[i] = NOT_BOUND;
    bool given = open->n_inputs == known->n_inputs;
    for (uint32_t i = 0; i < open->n_inputs && given; i++)
        given = same_value(&c, open->inputs[i].value, known->inputs[i].value);
    if (!given)
        differ(&c, NULL, "its inputs have different sizes where the same one is expected");
    else if (!same_contents(&c))
        name_asked(&c);
    free(c.size);
    if (!*why) return ARIL_OK;
    return aril__fail(
        ARIL_ERR_STATE,
        "%s: C code computes with a size that only the run knows, or decides by it: %s. "
        "Give sizes to operations as aril_size returns them, or leave them out of "
        ".sizes",
        name, why);
}

/* ---- sizes of inputs ---- */

enum { ROWS = 256, WAYS = 8 };

struct aril__compared_sizes {
    int64_t *at[ROWS][WAYS]; /* by hash; NULL: empty */
    unsigned next;           /* of a full row, which one is replaced */
};

aril__compared_sizes *aril__compared_new(void)
{
    aril__compared_sizes *c = aril__calloc(sizeof *c);
    if (!c) aril__fail(ARIL_ERR_MEMORY, "trace: out of memory");
    return c;
}

void aril__compared_free(aril__compared_sizes *c)
{
    for (int i = 0; c && i < ROWS; i++)
        for (int k = 0; k < WAYS; k++) free(c->at[i][k]);
    free(c);
}

static size_t row_of(aril_list in)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (int i = 0; i < in.n; i++)
        for (int d = 0; d < in.at[i]->ndim; d++) {
            hash = (hash ^ (uint64_t)in.at[i]->dim[d]) * 0x9e3779b97f4a7c15u;
            hash ^= hash >> 32;
        }
    return hash % ROWS;
}

static bool sizes_are(const int64_t *dim, aril_list in)
{
    for (int i = 0; i < in.n; dim += in.at[i++]->ndim)
        if (memcmp(dim, in.at[i]->dim, in.at[i]->ndim * sizeof *dim) != 0) return false;
    return true;
}

bool aril__compared_has(const aril__compared_sizes *c, aril_list in)
{
    int64_t *const *at = c->at[row_of(in)];
    for (int k = 0; k < WAYS && at[k]; k++)
        if (sizes_are(at[k], in)) return true;
    return false;
}

void aril__compared_add(aril__compared_sizes *c, aril_list in)
{
    int64_t **at = c->at[row_of(in)];
    size_t n = 1;
    int k = 0;
    if (aril__compared_has(c, in)) return;
    for (int i = 0; i < in.n; i++) n += in.at[i]->ndim;
    int64_t *all = aril__malloc(n * sizeof *all), *to = all;
    if (!all) return;
    for (int i = 0; i < in.n; to += in.at[i++]->ndim)
        memcpy(to, in.at[i]->dim, in.at[i]->ndim * sizeof *to);
    while (k < WAYS && at[k]) k++;
    if (k == WAYS) free(at[k = (int)(c->next++ % WAYS)]);
    at[k] = all;
}

aril_status aril__sizes_fit(const char *name, int n, const aril_shape *sizes, aril_list in)
{
    if (n && in.n != n)
        return aril__fail(ARIL_ERR_ARG, "%s: got %d inputs, expected %d, as .sizes declares", name,
                          in.n, n);
    for (int i = 0; i < n; i++) {
        aril_shape s = sizes[i];
        if (s.ndim == in.at[i]->ndim) continue;
        for (int d = 0; d < s.ndim && d < ARIL_MAX_DIMS; d++)
            if (s.dim[d] < 0) s.dim[d] = -1;
        char want[ARIL__SHAPE_TEXT], got[ARIL__SHAPE_TEXT];
        return aril__fail(ARIL_ERR_SHAPE, "%s: input %d is %s, but .sizes declares %s", name, i,
                          aril__text(got, in.at[i]), aril__shape_text(want, s.ndim, s.dim));
    }
    return ARIL_OK;
}
