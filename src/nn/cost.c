/* What modules cost, measured in one run from three sources: hooks see the results of modules, a
 * meter sees the ops (the frame tells which module they belong to), and the recorded graph shows
 * what a backward pass would keep in memory. */
#include "nn/cost.h"

#include "autograd/node.h"
#include "core/dtype.h"
#include "core/memory.h"
#include "nn/module.h"
#include "ops/table/flops.h"

#include <math.h>
#include <stdlib.h>

/* ---- sets of addresses ---- */

typedef struct set {
    const void **at;
    size_t n, cap; /* cap: a power of 2 */
} set;

static void put(set *s, const void *p)
{
    size_t i = ((uintptr_t)p >> 6) * 0x9e3779b97f4a7c15u >> 20;
    while (s->at[i & (s->cap - 1)]) i++;
    s->at[i & (s->cap - 1)] = p;
    s->n++;
}

static bool has(const set *s, const void *p)
{
    size_t i = ((uintptr_t)p >> 6) * 0x9e3779b97f4a7c15u >> 20;
    for (; s->cap && s->at[i & (s->cap - 1)]; i++)
        if (s->at[i & (s->cap - 1)] == p) return true;
    return false;
}

static aril_status no_memory(void)
{
    return aril__fail(ARIL_ERR_MEMORY, "summary: out of memory");
}

/* Returns 1 when p is new to the set, 0 when it is not, a negative status after an error. */
static int add(set *s, const void *p)
{
    if (has(s, p)) return 0;
    if (2 * (s->n + 1) > s->cap) {
        set larger = { .cap = s->cap ? 2 * s->cap : 256 };
        larger.at = aril__calloc(larger.cap * sizeof *larger.at);
        if (!larger.at) return no_memory();
        for (size_t i = 0; i < s->cap; i++)
            if (s->at[i]) put(&larger, s->at[i]);
        free(s->at);
        *s = larger;
    }
    put(s, p);
    return 1;
}

/* ---- the tree ---- */

typedef struct watch {
    aril__meter meter; /* must be first: note() casts its pointer to watch */
    aril__costs *costs;
    set seen; /* tensors of modules, then storages and nodes */
    bool *training;
    int *hook;
    double working;
} watch;

static int rows_below(const aril_module *m)
{
    int n = 1;
    for (int i = 0; i < m->n_children; i++) n += rows_below(m->child[i].module);
    return n;
}

static double bytes_of(const aril_tensor *t)
{
    return t && t->numel > 0 ? (double)aril__dtype_bytes((aril_dtype)t->dtype, t->numel) : 0;
}

static int row_of(const aril__costs *c, const aril_module *m)
{
    for (int i = 0; i < c->n; i++)
        if (c->row[i].module == m) return i;
    return -1;
}

/* Counts the module's own tensors that were not counted before. */
static aril_status count_own(watch *w, const aril_module *m, aril__cost_row *row)
{
    aril_cost *total = &w->costs->total;
    for (int i = 0; i < m->n_own; i++) {
        const aril_tensor *t = m->own[i].tensor;
        if (!t) continue;
        int fresh = add(&w->seen, t);
        if (fresh < 0 || add(&w->seen, t->storage) < 0) return ARIL_ERR_MEMORY;
        if (!fresh) continue;
        if (m->own[i].kind != ARIL__PARAMETER) {
            total->buffers += t->numel;
            total->buffer_bytes += bytes_of(t);
            continue;
        }
        row->parameters += t->numel;
        total->parameters += t->numel;
        total->parameter_bytes += bytes_of(t);
        if (!aril_requires_grad(t)) continue;
        total->trainable += t->numel;
        total->trainable_bytes += bytes_of(t);
    }
    return ARIL_OK;
}

static aril_status gather(watch *w, aril_module *m, const char *name, int depth)
{
    aril__costs *c = w->costs;
    aril__cost_row *row = &c->row[c->n];
    *row = (aril__cost_row){ .module = m, .name = name, .depth = depth, .first = row_of(c, m) };
    c->n++;
    aril_status s = row->first < 0 ? count_own(w, m, row) : ARIL_OK;
    for (int i = 0; i < m->n_children && s == ARIL_OK; i++)
        s = gather(w, m->child[i].module, m->child[i].name, depth + 1);
    return s;
}

/* ---- the run ---- */

static void after(aril_module *m, int n_in, aril_tensor *const *in, int n_out, aril_tensor **out,
                  void *ctx)
{
    aril__cost_row *row = ctx;
    (void)n_in;
    if (n_out < 1 || !out[0]) return;
    row->ran = true;
    row->out = aril_shape_of(out[0]);
    if (m->type->only_in_training && aril__same_memory(in[0], out[0]))
        row->dropped += bytes_of(out[0]);
}

static void note(aril__meter *meter, const aril__run *r)
{
    watch *w = (watch *)meter;
    const aril__frame *frame = aril__self()->frame;
    int at = -1;
    for (; frame && at < 0; frame = frame->up) at = row_of(w->costs, frame->what);
    w->costs->row[at < 0 ? 0 : at].flop += aril__flops(r);
    double bytes = bytes_of(r->n_out ? r->out[0] : NULL) + bytes_of(r->n_in ? r->in[0] : NULL);
    int reserve = r->op->reserve_out - 1; /* its gradient works on about as many values */
    if (reserve >= 0) bytes += bytes_of(r->out[reserve]);
    if (reserve >= 0 && r->out[reserve] && !r->out[reserve]->storage) w->costs->guessed = true;
    if (bytes > w->working) w->working = bytes;
}

/* Adds the memory held by the graph behind a result; each saved value counts once. */
static aril_status count_kept(watch *w, aril_tensor *result, double *bytes)
{
    aril__node **stack = NULL;
    size_t n = 0, cap = 0;
    aril_status s = ARIL_OK;
    int new_node = result->node ? add(&w->seen, result->node) : 0;
    if (new_node < 0) return new_node;
    if (new_node > 0) {
        stack = aril__malloc((cap = 64) * sizeof *stack);
        if (!stack) return no_memory();
        stack[n++] = result->node;
    }
    while (n && s == ARIL_OK) {
        const aril__node *node = stack[--n];
        for (int i = 0; i < node->n_saved && s == ARIL_OK; i++) {
            const aril__saved *saved = &node->saved[i];
            if (saved->kind != ARIL__SAVED_IN && saved->kind != ARIL__SAVED_OUT) continue;
            double size;
            const void *memory = aril__memory_of(saved->tensor, &size);
            int fresh = memory ? add(&w->seen, memory) : 0;
            if (fresh > 0) *bytes += size;
            if (fresh < 0) s = fresh;
        }
        if (n + node->n_in > cap) {
            aril__node **grown = aril__realloc(stack, (cap = 2 * (n + node->n_in)) * sizeof *stack);
            if (!grown) s = no_memory();
            if (grown) stack = grown;
        }
        for (int i = 0; i < node->n_in && s == ARIL_OK; i++) {
            aril__node *before = node->edge[i].node;
            int fresh = before ? add(&w->seen, before) : 0;
            if (fresh > 0) stack[n++] = before;
            if (fresh < 0) s = fresh;
        }
    }
    free(stack);
    return s;
}

static aril_status run(watch *w, aril_module *m, aril_list in)
{
    ARIL_SCOPE;
    ARIL_ENABLE_GRAD;
    aril_cost *total = &w->costs->total;
    for (int i = 0; i < in.n; i++) {
        double size;
        const void *memory = in.at[i] ? aril__memory_of(in.at[i], &size) : NULL;
        if (!memory) continue;
        int fresh = add(&w->seen, memory);
        if (fresh < 0) return fresh;
        if (fresh) total->input_bytes += bytes_of(in.at[i]);
    }
    /* A user-defined class may skip parts whose results are not requested: request them all. */
    enum { MAX_OUT = 16 };
    aril_tensor *out[MAX_OUT];
    int n_out = !m->layer && m->type->outputs > 1 ? m->type->outputs : 1;
    if (n_out > MAX_OUT) n_out = MAX_OUT;
    aril__meter *before = aril__meter_set(&w->meter);
    aril_status s = aril_forward_all(m, in, n_out, out);
    aril__meter_set(before);
    for (int i = 0; i < n_out && s == ARIL_OK; i++) {
        if (!out[i]) continue;
        double size;
        const void *memory = aril__memory_of(out[i], &size);
        int fresh = memory ? add(&w->seen, memory) : 0;
        if (fresh > 0) total->activation_bytes += size;
        s = fresh < 0 ? fresh : count_kept(w, out[i], &total->activation_bytes);
    }
    if (s < 0) return s;
    for (int i = 0; i < w->costs->n; i++) {
        total->flop += w->costs->row[i].flop;
        total->activation_bytes += w->costs->row[i].dropped;
    }
    double n = w->costs->batch > 0 ? (double)w->costs->batch : 1;
    total->working_bytes = w->working / n;
    total->flop /= n;
    total->input_bytes /= n;
    total->activation_bytes /= n;
    return s;
}

/* Runs a module that is built, or a sketch. */
static aril_status measure(aril_module *m, aril_list in, aril__costs *c)
{
    aril_status s;
    size_t max = (size_t)rows_below(m);
    watch w = { .meter = { note }, .costs = c };
    c->batch = aril_ndim(in.at[0]) ? aril_size(in.at[0], 0) : 1;
    c->row = aril__malloc(max * sizeof *c->row);
    w.training = aril__malloc(max * sizeof *w.training);
    w.hook = aril__calloc(max * sizeof *w.hook);
    s = c->row && w.training && w.hook ? gather(&w, m, aril_module_type(m), 0) : no_memory();
    int watched = 0;
    for (; watched < c->n && s == ARIL_OK; watched++) {
        aril__cost_row *row = &c->row[watched];
        w.training[watched] = row->module->training;
        if (row->first >= 0) continue;
        row->module->training = false;
        w.hook[watched] = aril_module_hook_after(row->module, after, row);
        if (w.hook[watched] < 0) s = w.hook[watched];
    }
    if (s == ARIL_OK) s = run(&w, m, in);
    for (int i = 0; i < watched; i++) {
        if (c->row[i].first >= 0) continue;
        c->row[i].module->training = w.training[i];
        if (w.hook[i] > 0) aril_module_unhook(c->row[i].module, w.hook[i]);
    }
    free(w.training);
    free(w.hook);
    free(w.seen.at);
    return s;
}

aril_status aril__costs_measure(aril_module *m, aril_list in, aril__costs *c)
{
    *c = (aril__costs){ 0 };
    if (!m)
        return aril_ok() ? aril__fail(ARIL_ERR_ARG, "summary: the module is NULL")
                         : aril_error_code();
    if (in.n < 1 || !in.at) return aril__fail(ARIL_ERR_ARG, "summary: the input is NULL");
    aril_status s = aril__check_value("summary", in.at[0]);
    if (s == ARIL_OK) s = aril_module_build_n(m, in);
    return s < 0 ? s : measure(m, in, c);
}

typedef struct sketched {
    aril_module *module;
    aril__costs *costs;
} sketched;

static aril_status measure_sketch(void *ctx, aril_tensor *x)
{
    sketched *s = ctx;
    return measure(s->module, (aril_list){ 1, &x }, s->costs);
}

aril_status aril__costs_sketch(aril_module *m, aril_shape input, aril_dtype dtype, aril__costs *c)
{
    *c = (aril__costs){ 0 };
    return aril__sketch_run(input, dtype, measure_sketch, &(sketched){ m, c }, NULL);
}

void aril__costs_free(aril__costs *c)
{
    free(c->row);
    *c = (aril__costs){ 0 };
}

/* ---- totals ---- */

aril_status aril_module_cost(aril_module *m, aril_list in, aril_cost *cost)
{
    aril__costs c;
    if (!cost) return aril__fail(ARIL_ERR_ARG, "module_cost: the result pointer is NULL");
    aril_status s = aril__costs_measure(m, in, &c);
    if (s == ARIL_OK) *cost = c.total;
    aril__costs_free(&c);
    return s;
}

double aril_cost_training(const aril_cost *c, int64_t batch)
{
    if (!c) return NAN;
    return c->parameter_bytes + c->buffer_bytes + c->trainable_bytes +
           (double)batch * (c->input_bytes + c->activation_bytes + c->working_bytes);
}
