/* What the nodes of a graph cost. */
#include "aril/create.h"
#include "aril/graph.h"
#include "core/clock.h"
#include "graph/program.h"
#include "graph/inspect.h"
#include "ops/table/flops.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

typedef struct cost {
    aril__node_id id;
    double flops, bytes, seconds;
} cost;

typedef struct cost_call {
    aril_list inputs;
    FILE *to;
    aril_status status;
} cost_call;

/* FLOPs and bytes by the rule of the op's row, from the tensors of a run. */
static void measure(const aril__graph *g, const aril__inspection *r, cost *c)
{
    const aril__graph_node *n = &g->nodes[c->id];
    const aril__value_id *id = aril__graph_in(g, n);
    aril_tensor *out[ARIL__MAX_OUT] = { NULL };
    aril_tensor **in = aril__calloc(((size_t)n->n_in + 1) * sizeof *in);
    void *room = aril__malloc((size_t)n->op->attr_size + 1);
    c->seconds = r->seconds[c->id];
    if (!in || !room) {
        free(in);
        free(room);
        return;
    }
    for (int i = 0; i < n->n_in; i++) in[i] = id[i] ? r->value[id[i]] : NULL;
    for (int k = 0; k < n->op->n_out; k++) out[k] = r->value[n->out + (uint32_t)k];
    aril__run run = { .op = n->op,
                      .attrs = aril__inspection_attrs(g, r, n, room),
                      .n_in = n->n_in,
                      .n_out = n->op->n_out,
                      .in = in,
                      .out = out,
                      .type = (aril_dtype)g->values[n->out].dtype,
                      .device = g->values[n->out].device };
    bool moves = !n->n_bodies && !(n->op->n_out && ARIL__IS_VIEW(n->op->out[0]));
    c->flops = moves ? aril__flops(&run) : 0;
    c->bytes = moves ? aril__bytes_moved(&run) : 0;
    free(in);
    free(room);
}

static int by_time(const void *x, const void *y)
{
    const cost *a = x, *b = y;
    return a->seconds < b->seconds ? 1 : a->seconds > b->seconds ? -1 : 0;
}

static void print_row(const aril__graph *g, const aril__inspection *r, const cost *c, double total,
                      FILE *to)
{
    const aril__graph_node *n = &g->nodes[c->id];
    char type[ARIL__SHAPE_TEXT + 16], shape[ARIL__SHAPE_TEXT], where[256];
    const aril_tensor *t = r->value[n->out]; /* whose sizes are known */
    const aril__value *v = &g->values[n->out];
    aril__shape_text(shape, v->ndim, t ? t->dim : aril__graph_dims(g, n->out));
    snprintf(type, sizeof type, "%s%s", aril__dtypes[v->dtype].name, shape);
    aril__graph_where(g, n, where, sizeof where);
    fprintf(to, "%-22s %-22s %10.3f %10.3f %10.1f %5.1f %%  %s%s%s\n", n->op->name, type,
            c->flops / 1e6, c->bytes / 1e6, c->seconds * 1e6,
            total > 0 ? 100 * c->seconds / total : 0, g->text + n->scope,
            n->scope && where[0] ? " " : "", where);
}

enum { TIMES = 5 }; /* a node is timed so often, after a run that chooses kernels, */
#define LONGEST 2.0 /* unless the runs take more seconds than that */

static int by_value(const void *x, const void *y)
{
    const double *a = x, *b = y;
    return (*a > *b) - (*a < *b);
}

/* One run, whose times become sample n of each node; its values belong to the innermost scope. */
static aril_status sample(const aril__graph *g, aril_list in, aril__inspection *r, double *times,
                          uint32_t n)
{
    aril__inspection_free(r);
    aril_status s = aril__graph_inspect(g, in, false, r);
    for (aril__node_id id = 1; id < g->n_nodes && s == ARIL_OK; id++)
        times[(size_t)id * TIMES + n] = r->seconds[id];
    return s;
}

/* Runs the nodes several times: *r gets the values of the last run, and the median times. */
static aril_status inspect(const aril__graph *g, aril_list in, aril__inspection *r)
{
    double *times = aril__malloc((size_t)g->n_nodes * TIMES * sizeof *times);
    aril_status s = times ? ARIL_OK : aril__fail(ARIL_ERR_MEMORY, "costs: out of memory");
    double begin = aril__seconds();
    uint32_t n = 0;
    for (int run = 0; s == ARIL_OK && n + 1 < TIMES; run++) {
        ARIL_SCOPE;
        if (run > 0 && aril__seconds() - begin > LONGEST) break;
        s = sample(g, in, r, times, n);
        n += run > 0; /* the first one chose kernels */
    }
    if (s == ARIL_OK) s = sample(g, in, r, times, n++);
    for (aril__node_id id = 1; id < g->n_nodes && s == ARIL_OK; id++) {
        qsort(times + (size_t)id * TIMES, n, sizeof *times, by_value);
        r->seconds[id] = times[(size_t)id * TIMES + (n - 1) / 2];
    }
    free(times);
    return s;
}

static aril_status print_costs(const aril__graph *g, const cost_call *c)
{
    ARIL_SCOPE;
    aril__inspection r = { 0 };
    cost *all = aril__calloc(g->n_nodes * sizeof *all), total = { 0 };
    aril_status s =
        all ? inspect(g, c->inputs, &r) : aril__fail(ARIL_ERR_MEMORY, "costs: out of memory");
    for (aril__node_id id = 1; id < g->n_nodes && s == ARIL_OK; id++) {
        all[id].id = id;
        measure(g, &r, &all[id]);
        total.flops += all[id].flops;
        total.bytes += all[id].bytes;
        total.seconds += all[id].seconds;
    }
    if (s == ARIL_OK) {
        qsort(all + 1, g->n_nodes - 1, sizeof *all, by_time);
        fprintf(c->to, "%-22s %-22s %10s %10s %10s %7s\n", "op", "result", "MFLOP", "MB", "us", "");
        for (uint32_t i = 1; i < g->n_nodes; i++) print_row(g, &r, &all[i], total.seconds, c->to);
        fprintf(c->to, "\n%-45s %10.3f %10.3f %10.1f\n", "all nodes", total.flops / 1e6,
                total.bytes / 1e6, total.seconds * 1e6);
        if (fflush(c->to) != 0 || ferror(c->to))
            s = aril__fail(ARIL_ERR_IO, "costs: cannot write the table: %s", strerror(errno));
    }
    aril__inspection_free(&r);
    free(all);
    return s;
}

static void look(const aril__graph *g, void *ctx)
{
    cost_call *c = ctx;
    c->status = print_costs(g, c);
}

aril_status aril_program_costs(const aril_program *p, aril_list inputs, FILE *to)
{
    if (!p || !to || inputs.n < 0 || (inputs.n && !inputs.at))
        return aril__fail(ARIL_ERR_ARG, "costs: the %s is NULL",
                          !p   ? "program"
                          : to ? "list"
                               : "file");
    cost_call c = { inputs, to, ARIL_ERR_STATE };
    aril_tensor **all = aril__program_place(p, &c.inputs);
    if (!all) return aril__latest_status();
    void *ctx;
    const aril__program_kind *kind = aril__program_kind_of(p, &ctx);
    if (kind && kind->costs && kind->untraced && kind->untraced(ctx)) {
        free(all);
        return kind->costs(ctx, inputs, to);
    }
    if (!aril__program_look(p, look, &c))
        c.status =
            aril__fail(ARIL_ERR_STATE, "costs: the program was not traced yet; run it first");
    free(all);
    return c.status;
}
