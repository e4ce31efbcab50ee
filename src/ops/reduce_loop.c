#include "ops/reduce_loop.h"

#include "core/memory.h"
#include "core/nest.h"
#include "core/parallel.h"

#include <stdlib.h>
#include <string.h>

enum {
    ROW = ARIL__REDUCE_ROW,
    GRAIN = 16 * 1024, /* elements that are worth a thread's while */
    PART = 32 * 1024,  /* a reduction of more than two of these is cut into such parts */
};

typedef union word {
    double f;
    int64_t i;
    uint64_t u;
} word;

typedef struct job {
    const aril__reducer *how;
    aril__reduce_params params;
    aril__nest kept;    /* operand 0: in, then the outputs */
    aril__nest reduced; /* operand 0: in */
    char *in;
    uint8_t in_dtype;
    int n_out;
    aril_tensor *const *out;
    int64_t base[3]; /* offsets of the kept nest's operands */
    int64_t outputs, block, parts;
    bool rows;
    word *partial; /* [parts][planes][outputs] */
} job;

static void take_across(const job *j, int64_t offset, int64_t step, int64_t m, int64_t from,
                        int64_t to, word *s, int64_t plane)
{
    const aril__nest *n = &j->reduced;
    aril__load_fn *load = aril__dtypes[j->in_dtype].load[j->how->in];
    word x[ROW];
    aril__nest_at p;
    aril__nest_seek(n, &p, from, &offset);
    for (; from < to; from++) {
        load(x, j->in, p.offset[0], step, m);
        j->how->across(&j->params, s, plane, x, m, from);
        aril__nest_move(n, &p, 1);
    }
}

static void take_along(const job *j, int64_t offset, int64_t from, int64_t to, word *s,
                       int64_t plane)
{
    const aril__nest *n = &j->reduced;
    aril__load_fn *load = aril__dtypes[j->in_dtype].load[j->how->in];
    int64_t step = n->ndim ? n->stride[0][n->ndim - 1] : 0;
    word x[ROW];
    aril__nest_at p;
    aril__nest_seek(n, &p, from, &offset);
    while (from < to) {
        int64_t run = aril__nest_run(n, &p);
        run = run < to - from ? run : to - from;
        run = run < ROW ? run : ROW;
        load(x, j->in, p.offset[0], step, run);
        j->how->along(&j->params, s, plane, x, run, from);
        from += run;
        aril__nest_move(n, &p, run);
    }
}

/* States of the outputs [begin, end), at most ROW, over the positions [from, to). */
static void take(const job *j, int64_t begin, int64_t end, int64_t from, int64_t to, word *s,
                 int64_t plane)
{
    const aril__nest *n = &j->kept;
    aril__nest_at p;
    j->how->start(&j->params, s, plane, end - begin, from);
    if (from >= to) return;
    aril__nest_seek(n, &p, begin, j->base);
    int64_t step = n->ndim ? n->stride[0][n->ndim - 1] : 0;
    while (begin < end) {
        int64_t m = j->rows ? aril__nest_run(n, &p) : 1;
        m = m < end - begin ? m : end - begin;
        if (j->rows)
            take_across(j, p.offset[0], step, m, from, to, s, plane);
        else
            take_along(j, p.offset[0], from, to, s, plane);
        s += m;
        begin += m;
        aril__nest_move(n, &p, m);
    }
}

/* Finishes states of the outputs [begin, end) and stores them. */
static void give(const job *j, int64_t begin, int64_t end, word *s, int64_t plane)
{
    const aril__nest *n = &j->kept;
    aril__nest_at p;
    if (j->how->finish) j->how->finish(&j->params, s, plane, end - begin);
    aril__nest_seek(n, &p, begin, j->base);
    while (begin < end) {
        int64_t m = aril__nest_run(n, &p);
        m = m < end - begin ? m : end - begin;
        for (int k = 0; k < j->n_out; k++) {
            int64_t step = n->ndim ? n->stride[1 + k][n->ndim - 1] : 1;
            aril__dtypes[j->out[k]->dtype].store[j->how->out[k]](aril__base(j->out[k]),
                                                                 p.offset[1 + k], step,
                                                                 s + k * plane, m);
        }
        s += m;
        begin += m;
        aril__nest_move(n, &p, m);
    }
}

static void whole_range(void *ctx, int64_t begin, int64_t end)
{
    const job *j = ctx;
    word s[ARIL__REDUCE_PLANES * ROW];
    for (; begin < end; begin += ROW) {
        int64_t stop = end - begin < ROW ? end : begin + ROW;
        take(j, begin, stop, 0, j->params.count, s, ROW);
        give(j, begin, stop, s, ROW);
    }
}

/* Unit u is part u % parts of block u / parts of outputs. */
static void part_range(void *ctx, int64_t begin, int64_t end)
{
    const job *j = ctx;
    for (; begin < end; begin++) {
        int64_t part = begin % j->parts, first = begin / j->parts * j->block;
        int64_t last = first + j->block < j->outputs ? first + j->block : j->outputs;
        int64_t from = part * PART;
        int64_t to = from + PART < j->params.count ? from + PART : j->params.count;
        take(j, first, last, from, to, j->partial + part * j->how->planes * j->outputs + first,
             j->outputs);
    }
}

static void merge_range(void *ctx, int64_t begin, int64_t end)
{
    const job *j = ctx;
    int64_t step = j->how->planes * j->outputs;
    for (int64_t part = 1; part < j->parts; part++)
        j->how->merge(&j->params, j->partial + begin, j->outputs, j->partial + part * step + begin,
                      j->outputs, end - begin);
    give(j, begin, end, j->partial + begin, j->outputs);
}

aril_status aril__reduce_run(const aril__reducer *how, aril__reduce_params params,
                             const aril_tensor *in, unsigned mask, int n_out,
                             aril_tensor *const *out)
{
    job j = { .how = how,
              .params = params,
              .in = aril__base(in),
              .in_dtype = in->dtype,
              .n_out = n_out,
              .out = out,
              .base = { in->offset, out[0]->offset, n_out > 1 ? out[1]->offset : 0 },
              .outputs = out[0]->numel };
    if (j.outputs == 0) return ARIL_OK;
    j.params.count = 1;
    j.kept.n = 1 + n_out;
    j.reduced.n = 1;
    bool keeps = out[0]->ndim == in->ndim; /* the outputs have the reduced axes */
    for (int d = 0, k = 0; d < in->ndim; d++) {
        bool is_reduced = mask >> d & 1;
        aril__nest *n = is_reduced ? &j.reduced : &j.kept;
        n->dim[n->ndim] = in->dim[d];
        n->stride[0][n->ndim] = in->stride[d];
        for (int i = 0; i < n_out && !is_reduced; i++)
            n->stride[1 + i][n->ndim] = out[i]->stride[k];
        k += keeps || !is_reduced;
        if (is_reduced) j.params.count *= in->dim[d];
        n->ndim++;
    }
    if (j.params.count == 0) j.reduced.ndim = 0;
    aril__nest_merge(&j.reduced, 0);
    aril__nest_merge(&j.kept, 0);

    /* Rows of outputs pay when they lie closer together than what is reduced, and are long. */
    int kept = j.kept.ndim - 1, red = j.reduced.ndim - 1;
    j.rows = kept >= 0 &&
             (red < 0 ||
              (j.kept.stride[0][kept] != 0 && j.kept.stride[0][kept] <= j.reduced.stride[0][red] &&
               (j.kept.dim[kept] >= 8 || j.kept.dim[kept] >= j.reduced.dim[red])));
    if (j.params.count <= 2 * PART) {
        int64_t grain = GRAIN / (j.params.count > 0 ? j.params.count : 1);
        aril__parallel_for(j.outputs, grain > 1 ? grain : 1, whole_range, &j);
        return ARIL_OK;
    }
    j.parts = aril__parallel_chunks(j.params.count, PART);
    j.block = j.rows ? ROW : 1;
    j.partial = aril__malloc((size_t)(j.parts * j.outputs) * (size_t)how->planes * sizeof(word));
    if (!j.partial)
        return aril__fail(ARIL_ERR_MEMORY, "no memory for %lld partial results",
                          (long long)(j.parts * j.outputs));
    aril__parallel_for(j.parts * aril__parallel_chunks(j.outputs, j.block), 1, part_range, &j);
    aril__parallel_for(j.outputs, ROW, merge_range, &j);
    free(j.partial);
    return ARIL_OK;
}
