#include "graph/passes.h"

#include "aril/create.h"
#include "core/log.h"
#include "graph/control.h"
#include "ops/shape/view.h"
#include "ops/table/apply.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const aril__pass aril__pass_list[] = {
    { "merge", "products of unrolled steps with one weight become one", aril__pass_merge, false },
    { "fold", "nodes whose inputs are constants are computed once", aril__pass_fold, false },
    { "algebra", "nodes that change nothing, or undo others, are left out", aril__pass_algebra,
      false },
    { "cse", "equal nodes are computed once", aril__pass_cse, false },
    { "dead", "nodes that nothing needs are removed", aril__pass_dead, false },
    { "attention", "softmax(q k^T) v becomes one op", aril__pass_attention, false },
    { "batchnorm", "normalization is folded into convolutions in inference", aril__pass_batchnorm,
      false },
    { "epilogue", "bias, residual and activation join the op before", aril__pass_epilogue, false },
    { "prepare", "what depends on weights alone is computed once", aril__pass_prepare, true },
    { "fuse", "neighbouring elementwise nodes run in one loop", aril__pass_fuse, false },
};
const int aril__n_passes = sizeof aril__pass_list / sizeof *aril__pass_list;

/* ---- switches ---- */

static bool has_word(const char *list, const char *word, char sign)
{
    size_t n = strlen(word);
    for (const char *at = list; *at;) {
        size_t length = strcspn(at, ",");
        bool signed_word = *at == '-';
        if (signed_word == (sign == '-') && length - signed_word == n &&
            memcmp(at + signed_word, word, n) == 0)
            return true;
        at += length + (at[length] == ',');
    }
    return false;
}

/* Whether the list names passes to run, and not only ones to leave out. */
static bool is_selection(const char *list)
{
    for (const char *at = list; *at;) {
        if (*at != '-') return true;
        size_t length = strcspn(at, ",");
        at += length + (at[length] == ',');
    }
    return false;
}

/* Names that are no passes, once. */
static void check_names(const char *list)
{
    static atomic_bool checked;
    if (atomic_exchange(&checked, true)) return;
    for (const char *at = list; *at;) {
        size_t length = strcspn(at, ",");
        const char *name = at + (*at == '-');
        size_t n = length - (size_t)(name - at);
        bool known = (n == 4 && memcmp(name, "none", 4) == 0) ||
                     (n == 5 && memcmp(name, "small", 5) == 0) ||
                     (n == 6 && memcmp(name, "concat", 6) == 0) || n == 0;
        for (int i = 0; i < aril__n_passes && !known; i++)
            known = strlen(aril__pass_list[i].name) == n &&
                    memcmp(aril__pass_list[i].name, name, n) == 0;
        if (!known) {
            fprintf(stderr, "aril: ARIL_PASSES: there is no pass %.*s; passes are", (int)n, name);
            for (int i = 0; i < aril__n_passes; i++)
                fprintf(stderr, " %s", aril__pass_list[i].name);
            fprintf(stderr, " small, concat, or none\n");
        }
        at += length + (at[length] == ',');
    }
}

bool aril__pass_is_on(const char *name)
{
    const char *list = getenv("ARIL_PASSES");
    if (!list || !*list) return true;
    check_names(list);
    if (has_word(list, name, '-')) return false;
    return !is_selection(list) || has_word(list, name, '+');
}

static const char *name_of(const aril__graph *g)
{
    return g->name ? g->name : "graph";
}

static void log_graph(const aril__graph *g, const char *when)
{
    if (!aril__log_on(ARIL__LOG_PASSES)) return;
    aril__log(ARIL__LOG_PASSES, "%s %s passes:", name_of(g), when);
    aril__graph_print(g, stderr);
}

/* What a pass changes, for the log: how many nodes of each op there are. */
typedef struct op_counts {
    const char **name; /* of each node, sorted; NULL: not needed, or no memory */
    uint32_t n;
} op_counts;

static int by_name(const void *x, const void *y)
{
    return strcmp(*(const char *const *)x, *(const char *const *)y);
}

static op_counts count_ops(const aril__graph *g)
{
    op_counts c = { NULL, g->n_nodes - 1 };
    if (aril__log_on(ARIL__LOG_PASSES)) c.name = aril__malloc(g->n_nodes * sizeof *c.name);
    for (uint32_t i = 0; c.name && i < c.n; i++) c.name[i] = g->nodes[i + 1].op->name;
    if (c.name) qsort(c.name, c.n, sizeof *c.name, by_name);
    return c;
}

static uint32_t run_length(const op_counts *c, uint32_t at, const char *name)
{
    uint32_t n = 0;
    while (at + n < c->n && strcmp(c->name[at + n], name) == 0) n++;
    return n;
}

/* "step: epilogue: 12 nodes, 15 before: add 3 -> 0, linear 2 -> 3" */
static void log_pass(const aril__graph *g, const char *pass, op_counts was)
{
    char text[512] = "";
    op_counts now = count_ops(g);
    uint32_t i = 0, k = 0;
    size_t used = 0;
    while (was.name && now.name && (i < was.n || k < now.n) && used < sizeof text) {
        int order = i == was.n ? 1 : k == now.n ? -1 : strcmp(was.name[i], now.name[k]);
        const char *name = order <= 0 ? was.name[i] : now.name[k];
        uint32_t a = run_length(&was, i, name), b = run_length(&now, k, name);
        i += a;
        k += b;
        if (a != b)
            used += (size_t)snprintf(text + used, sizeof text - used, "%s%s %u -> %u",
                                     used ? ", " : ": ", name, a, b);
    }
    if (was.name)
        aril__log(ARIL__LOG_PASSES, "%s: %s: %u nodes, %u before%s", name_of(g), pass,
                  g->n_nodes - 1, was.n, text);
    free(was.name);
    free(now.name);
}

static aril_status run_passes(aril__graph *g, bool whole)
{
    aril_status s = ARIL_OK;
    for (uint32_t i = 0; i < g->n_bodies && s == ARIL_OK; i++) s = run_passes(g->bodies[i], false);
    for (int i = 0; i < aril__n_passes && s == ARIL_OK; i++) {
        const aril__pass *p = &aril__pass_list[i];
        if (!aril__pass_is_on(p->name) || (p->whole && !whole)) continue;
        op_counts before = count_ops(g);
        s = p->run(g);
        log_pass(g, p->name, before);
    }
    return s;
}

aril_status aril__passes(aril__graph *g)
{
    log_graph(g, "before");
    aril_status s = run_passes(g, true);
    if (s == ARIL_OK) log_graph(g, "after");
    return s;
}

static aril__cold aril_status no_memory(void)
{
    return aril__fail(ARIL_ERR_MEMORY, "passes: out of memory");
}

bool aril__is_plain(const aril__graph_node *n)
{
    if (n->n_bodies || n->op->flags & DYNAMIC || n->op->writes || n->op->reserve_out ||
        n->op->reserve_in)
        return false;
    for (int k = 0; k < n->op->n_out; k++)
        if (ARIL__IS_WRITE(n->op->out[k])) return false;
    return true;
}

/* ---- dead code ---- */

aril_status aril__pass_dead(aril__graph *g)
{
    bool *keep = aril__calloc(g->n_nodes);
    if (!keep) return no_memory();
    for (uint32_t i = 0; i < g->n_outputs + g->n_effects; i++) {
        aril__value_id v = i < g->n_outputs ? g->outputs[i] : g->effects[i - g->n_outputs].value;
        if (g->values[v].kind == ARIL__FROM_NODE) keep[g->values[v].from] = true;
    }
    for (aril__node_id n = g->n_nodes; n-- > 1;) {
        const aril__graph_node *node = &g->nodes[n];
        keep[n] |= aril__control_is_kept(g, node);
        for (int i = 0; i < node->n_in && keep[n]; i++) {
            const aril__value *v = &g->values[aril__graph_in(g, node)[i]];
            if (v->kind == ARIL__FROM_NODE) keep[v->from] = true;
        }
    }
    aril__graph_keep_nodes(g, keep);
    free(keep);
    return ARIL_OK;
}

/* ---- common subexpressions ---- */

static uint64_t stir(uint64_t h, uint64_t word)
{
    h = (h ^ word) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 29;
}

static uint64_t hash_node(const aril__graph *g, const aril__graph_node *n)
{
    uint64_t h = stir(stir((uintptr_t)n->op, n->region), n->n_in);
    for (int i = 0; i < n->n_in; i++) h = stir(h, aril__graph_in(g, n)[i]);
    const int64_t *words = aril__graph_attrs(g, n);
    for (size_t k = 0; words && k < n->op->attr_size / sizeof *words; k++)
        h = stir(h, (uint64_t)words[k]);
    return h;
}

static bool are_equal(const aril__graph *g, const aril__graph_node *a, const aril__graph_node *b)
{
    if (a->op != b->op || a->n_in != b->n_in || a->has_attrs != b->has_attrs ||
        a->region != b->region)
        return false;
    if (memcmp(aril__graph_in(g, a), aril__graph_in(g, b), a->n_in * sizeof *g->ids) != 0)
        return false;
    if (a->has_attrs &&
        memcmp(aril__graph_attrs(g, a), aril__graph_attrs(g, b), a->op->attr_size) != 0)
        return false;
    for (uint32_t k = 0; k < a->n_out; k++)
        if (g->values[a->out + k].tensor_flags != g->values[b->out + k].tensor_flags) return false;
    return true;
}

/* Scalars are created anew by each call: those with the same value become one. */
static void merge_constants(aril__graph *g, aril__value_id *to)
{
    enum { SLOTS = 256 };
    aril__value_id seen[SLOTS] = { 0 };
    for (aril__value_id v = 1; v < g->n_values; v++) {
        const aril__value *x = &g->values[v];
        if (x->kind != ARIL__FROM_CONSTANT) continue;
        const aril_tensor *t = g->constants[x->from];
        if (!(t->flags & ARIL__CONSTANT) || t->numel != 1) continue;
        uint64_t bits = 0;
        size_t bytes = aril__dtype_bytes((aril_dtype)t->dtype, 1);
        memcpy(&bits, aril__ptr(t), bytes < sizeof bits ? bytes : sizeof bits);
        aril__value_id *slot = &seen[stir(bits, t->dtype) % SLOTS];
        const aril__value *y = &g->values[*slot];
        const aril_tensor *u = *slot ? g->constants[y->from] : NULL;
        if (u && u->dtype == t->dtype && u->flags == t->flags && u->ndim == t->ndim &&
            memcmp(aril__ptr(u), aril__ptr(t), bytes) == 0)
            to[v] = *slot;
        else
            *slot = v;
    }
}

static void merge_nodes(aril__graph *g, aril__value_id *to, aril__node_id *table, size_t slots)
{
    for (aril__node_id id = 1; id < g->n_nodes; id++) {
        aril__graph_node *n = &g->nodes[id];
        for (int i = 0; i < n->n_in; i++) {
            aril__value_id v = g->ids[n->in + (uint32_t)i];
            if (to[v]) g->ids[n->in + (uint32_t)i] = to[v];
        }
        if (!aril__is_plain(n)) continue;
        size_t at = hash_node(g, n) & (slots - 1);
        while (table[at] && !are_equal(g, &g->nodes[table[at]], n)) at = (at + 1) & (slots - 1);
        if (!table[at]) {
            table[at] = id;
            continue;
        }
        for (uint32_t k = 0; k < n->n_out; k++) to[n->out + k] = g->nodes[table[at]].out + k;
    }
}

aril_status aril__pass_cse(aril__graph *g)
{
    size_t slots = 64;
    while (slots < 2 * (size_t)g->n_nodes) slots *= 2;
    aril__value_id *to = aril__calloc(g->n_values * sizeof *to);
    aril__node_id *table = aril__calloc(slots * sizeof *table);
    bool fits = to && table;
    if (fits) {
        merge_constants(g, to);
        merge_nodes(g, to, table, slots);
        aril__graph_replace(g, to);
    }
    free(to);
    free(table);
    return fits ? aril__pass_dead(g) : no_memory();
}

/* ---- constant folding ---- */

enum {
    FOLD_BYTES = 1 << 22, /* larger results are computed in each run, */
    FOLD_TOTAL = 1 << 25, /* and those of a graph after so many bytes */
};

static size_t bytes_of(const aril__graph *g, aril__value_id v)
{
    size_t n = 1;
    for (int d = 0; d < g->values[v].ndim; d++) n *= (size_t)aril__graph_dims(g, v)[d];
    return aril__dtype_bytes((aril_dtype)g->values[v].dtype, (int64_t)n);
}

static bool is_small(const aril__graph *g, aril__value_id v)
{
    int64_t n = 1;
    for (int d = 0; d < g->values[v].ndim; d++) {
        int64_t size = aril__graph_dims(g, v)[d];
        if (size < 0 || __builtin_mul_overflow(n, size, &n)) return false;
    }
    return n <= FOLD_BYTES && aril__dtype_bytes((aril_dtype)g->values[v].dtype, n) <= FOLD_BYTES;
}

static bool needs_shape_only(const aril__graph_node *n, int i)
{
    return i < 31 && n->op->shape_only >> i & 1;
}

/* A node that creates a small tensor of numbers: it stays as it is, since to read the tensor takes
 * as long as to create it, and is computed with a node that is folded. */
static const aril__graph_node *created_by(const aril__graph *g, aril__value_id v)
{
    const aril__graph_node *n =
        g->values[v].kind == ARIL__FROM_NODE ? &g->nodes[g->values[v].from] : NULL;
    bool created = n && n->n_in == 0 && n->n_out == 1 && !n->sized && !n->region &&
                   !(n->op->flags & RANDOM) && aril__is_plain(n) && is_small(g, v);
    return created ? n : NULL;
}

/* Whether an input is known before a run: a constant, what a node creates without inputs, or a
 * shape without unknown sizes. */
static bool is_known(const aril__graph *g, const aril__graph_node *n, int i)
{
    aril__value_id v = aril__graph_in(g, n)[i];
    bool shape = needs_shape_only(n, i);
    if (!v) return true;
    if (g->values[v].kind == ARIL__FROM_CONSTANT)
        return shape || g->constants[g->values[v].from]->storage;
    if (!shape && created_by(g, v)) return true;
    return shape && !(g->values[v].flags & ARIL__VALUE_UNKNOWN);
}

static bool can_fold(const aril__graph *g, const aril__graph_node *n)
{
    bool view = ARIL__IS_VIEW(n->op->out[0]); /* needs no memory */
    if (!aril__is_plain(n) || n->sized || n->n_out != 1 || n->n_in == 0 || n->op->flags & RANDOM ||
        !(view || is_small(g, n->out)) || n->n_in > 8)
        return false;
    for (int i = 0; i < n->n_in; i++)
        if (!is_known(g, n, i)) return false;
    return true;
}

/* A tensor for an input of a node that is folded; owned by the scope. */
static aril_tensor *known_input(const aril__graph *g, aril__value_id v, bool shape_only)
{
    const aril__value *x = &g->values[v];
    aril__thread *th = aril__self();
    if (x->kind == ARIL__FROM_CONSTANT) return g->constants[x->from];
    const aril__graph_node *n = shape_only ? NULL : created_by(g, v);
    if (n) {
        aril_tensor *out[ARIL__MAX_OUT];
        aril__apply(n->op, 0, NULL, aril__graph_attrs(g, n), out);
        return out[0];
    }
    aril_tensor *t = aril__tensor_header(th, (aril_dtype)x->dtype, x->ndim, aril__graph_dims(g, v));
    if (t) {
        t->flags |= ARIL__SHAPE_ONLY;
        t->u.device = x->device;
    }
    return aril__give(th, t);
}

/* The input of a reshape in an order that allows it: `v` is the result. */
static aril_tensor *reshapable(const aril__graph *g, aril__value_id v, aril_tensor *x)
{
    aril__meta o = { .ndim = g->values[v].ndim };
    memcpy(o.dim, aril__graph_dims(g, v), (size_t)o.ndim * sizeof *o.dim);
    return !x->storage || aril__view_strides(x, &o) ? x : aril_contiguous(x);
}

/* Computes a node now; its output becomes a constant. */
static aril_status fold_node(aril__graph *g, aril__graph_node *n)
{
    ARIL_SCOPE;
    ARIL_INFERENCE;
    aril_tensor *in[8], *out[ARIL__MAX_OUT];
    for (int i = 0; i < n->n_in; i++) {
        aril__value_id v = aril__graph_in(g, n)[i];
        in[i] = v ? known_input(g, v, needs_shape_only(n, i)) : NULL;
    }
    if (aril__is_reshape(n->op)) in[0] = reshapable(g, n->out, in[0]);
    aril_status s = aril__apply(n->op, n->n_in, in, aril__graph_attrs(g, n), out);
    if (s < 0) return s;
    if (!ARIL__GROW(g, constants)) return ARIL_ERR_MEMORY;
    out[0]->flags |= g->values[n->out].tensor_flags;
    g->constants[g->n_constants] = aril__tensor_keep(out[0]);
    g->values[n->out].kind = ARIL__FROM_CONSTANT;
    g->values[n->out].from = g->n_constants++;
    return ARIL_OK;
}

/* Releases constants from `first` on that nothing uses: what a folded node alone read. */
static aril_status drop_constants(aril__graph *g, uint32_t first)
{
    bool *used = aril__calloc(g->n_values);
    uint32_t n = first, *to = aril__malloc(((size_t)g->n_constants + 1) * sizeof *to);
    if (!used || !to) {
        free(used);
        free(to);
        return no_memory();
    }
    for (aril__node_id id = 1; id < g->n_nodes; id++)
        for (int i = 0; i < g->nodes[id].n_in; i++)
            used[aril__graph_in(g, &g->nodes[id])[i]] = true;
    for (uint32_t i = 0; i < g->n_outputs; i++) used[g->outputs[i]] = true;
    for (uint32_t i = 0; i < g->n_effects; i++) used[g->effects[i].value] = true;
    for (aril__value_id v = 1; v < g->n_values; v++) {
        aril__value *x = &g->values[v];
        if (x->kind != ARIL__FROM_CONSTANT || x->from < first) continue;
        if (used[v]) continue;
        x->kind = ARIL__NO_VALUE;
        aril__tensor_release(aril__self(), g->constants[x->from]);
        g->constants[x->from] = NULL;
    }
    for (uint32_t i = first; i < g->n_constants; i++) {
        to[i] = n;
        if (g->constants[i]) g->constants[n++] = g->constants[i];
    }
    for (aril__value_id v = 1; v < g->n_values; v++)
        if (g->values[v].kind == ARIL__FROM_CONSTANT && g->values[v].from >= first)
            g->values[v].from = to[g->values[v].from];
    g->n_constants = n;
    free(to);
    free(used);
    return ARIL_OK;
}

aril_status aril__pass_fold(aril__graph *g)
{
    bool *keep = aril__malloc(g->n_nodes);
    if (!keep) return no_memory();
    aril_status s = ARIL_OK;
    uint32_t first = g->n_constants;
    size_t total = 0;
    for (aril__node_id id = 1; id < g->n_nodes && s == ARIL_OK; id++) {
        aril__graph_node *n = &g->nodes[id];
        keep[id] = total > FOLD_TOTAL || !can_fold(g, n);
        if (keep[id]) continue;
        s = fold_node(g, n);
        if (!ARIL__IS_VIEW(n->op->out[0])) total += bytes_of(g, n->out);
    }
    if (s == ARIL_OK) {
        for (aril__node_id id = 1; id < g->n_nodes; id++) /* not its value any more */
            if (!keep[id]) g->nodes[id].n_out = 0;
        aril__graph_keep_nodes(g, keep);
        s = drop_constants(g, first);
    }
    free(keep);
    return s;
}
