#include "backend/onednn/cut.h"

#include "core/parallel.h"
#include "ops/table/apply.h"

#include <string.h>

void aril__dnn_cut_destroy(aril__dnn_cut *c)
{
    for (int i = 0; i < 2; i++) aril__dnn_destroy(&c->kind[i]);
}

static const char *cut_into(aril__dnn_cut *c, int64_t units, int64_t pieces, aril__dnn_maker *make,
                            void *ctx)
{
    memset(c, 0, sizeof *c);
    c->units = units;
    c->pieces = pieces;
    c->size[0] = units / pieces;
    c->size[1] = c->size[0] + 1;
    const char *why = make(ctx, c->size[0], &c->kind[0]);
    if (!why && units % pieces) why = make(ctx, c->size[1], &c->kind[1]);
    if (why) aril__dnn_cut_destroy(c);
    return why;
}

const char *aril__dnn_cut_make(aril__dnn_cut *c, int64_t units, int64_t pieces,
                               aril__dnn_maker *make, void *ctx)
{
    if (pieces > units) pieces = units;
    const char *why = cut_into(c, units, pieces, make, ctx);
    if (!why || pieces == 1) return why;
    int64_t equal = pieces - 1; /* pieces of equal size need only one primitive */
    while (units % equal) equal--;
    why = cut_into(c, units, equal, make, ctx);
    return why && equal > 1 ? cut_into(c, units, 1, make, ctx) : why;
}

size_t aril__dnn_cut_scratch(const aril__dnn_cut *c)
{
    size_t a = c->kind[0].scratch, b = c->kind[1].scratch;
    return ((a > b ? a : b) + 63) / 64 * 64;
}

void aril__dnn_cut_ask(const aril__dnn_cut *c, aril__plan *plan)
{
    size_t all = (size_t)c->pieces * aril__dnn_cut_scratch(c);
    if (all) plan->workspace = (plan->workspace + 63) / 64 * 64 + all;
}

dnnl_status_t aril__dnn_cut_piece(aril__dnn_cut *c, int64_t k, void *scratch,
                                  const aril__dnn_args *args)
{
    aril__dnn *d = aril__dnn_cut_kind(c, k);
    int64_t at = aril__dnn_cut_begin(c, k);
    void *data[ARIL__DNN_ARGS];
    for (int i = 0; i < d->n; i++)
        data[i] = (char *)args->data[i] + at * args->step[i] + k * args->part[i];
    return aril__dnn_run(d, data, scratch);
}

typedef struct job {
    aril__dnn_cut *c;
    char *scratch;
    size_t each; /* bytes of scratch memory */
    const aril__dnn_args *args;
    atomic_int status;
} job;

static void run_pieces(void *ctx, int64_t begin, int64_t end)
{
    job *j = ctx;
    for (; begin < end; begin++) {
        dnnl_status_t st =
            aril__dnn_cut_piece(j->c, begin, j->each ? j->scratch + (size_t)begin * j->each : NULL,
                                j->args);
        if (st != dnnl_success) atomic_store(&j->status, (int)st);
    }
}

dnnl_status_t aril__dnn_cut_run(aril__dnn_cut *c, const aril__run *r, const aril__dnn_args *args)
{
    job j = { .c = c, .scratch = r->workspace, .each = aril__dnn_cut_scratch(c), .args = args };
    if (j.each) j.scratch += r->workspace_bytes - (size_t)c->pieces * j.each;
    aril__parallel_for(c->pieces, 1, run_pieces, &j);
    return (dnnl_status_t)atomic_load(&j.status);
}

aril_status aril__dnn_leave_it(const aril__run *r)
{
    enum { PAST_ALL_ROWS = 1 << 20 };
    aril__run again = *r;
    int forced = aril__force_row;
    aril__force_row = PAST_ALL_ROWS;
    aril__allocations_allow(); /* another kernel runs, with memory of its own */
    aril_status s = aril__dispatch(&again);
    aril__allocations_allow_end();
    aril__force_row = forced;
    return s;
}
