#include "backend/cpu/reduce/reduce_loop.h"

#include "backend/cpu/reduce/reduce_native.h"
#include "core/loops.h"
#include "core/parallel.h"

#include <string.h>

enum {
    ROW = ARIL__REDUCE_ROW,
    PLANES = ARIL__REDUCE_PLANES,
    GRAIN = 64 * 1024, /* minimum additions per thread */
    UNITS = 32,        /* enough units of work for the threads of a large machine */
    FOLD = 64,         /* shorter rows are processed several at a time ... */
    VECTOR_MAX = 16,   /* ... as are rows that are not a multiple of a vector */
    STAGED = 2048,     /* elements converted at a time */
    EVEN = 4,          /* round the blocks of a row up to a multiple of this, to balance threads */
};

typedef union word {
    double f;
    int64_t i;
    uint64_t u;
} word;

typedef struct job {
    const aril__reducer *how;
    aril__reduce_params params;
    aril__loops kept;    /* operand 0: in, then the outputs */
    aril__loops reduced; /* operand 0: in */
    char *in;
    aril__load_fn *load;
    int64_t size;                  /* bytes per element if no conversion is needed, else 0 */
    aril__fold_fn *across, *along; /* folds of elements that are not converted */
    int n_out;
    aril_tensor *const *out;
    int64_t base[3];       /* offsets of the operands of `kept` */
    int64_t outputs, run;  /* outputs, in runs that blocks do not cross */
    int64_t blocks, width; /* blocks per run, of up to `width` outputs */
    int64_t parts, part;   /* number of parts, and positions per part */
    int64_t units, each;   /* blocks of all runs, and elements to read for each */
    int64_t grain;         /* minimum elements per thread */
    bool rows;             /* adjacent elements belong to different outputs */
    word *partial;         /* [parts][planes][outputs] */
} job;

static const void *at(const job *j, int64_t offset)
{
    return j->in + offset * j->size;
}

/* How many contiguous rows of m elements to process as one: enough to fill whole vectors. */
static int64_t folded(int64_t m)
{
    int64_t fold = 1;
    while (m * fold % VECTOR_MAX && fold < VECTOR_MAX) fold *= 2;
    while (m * fold < FOLD) fold *= 2;
    return m * fold <= ROW ? fold : 1;
}

/* n rows of m adjacent elements, `pitch` apart; row k is at position `pos` + k. */
static void rows_across(const job *j, int64_t offset, int64_t pitch, int64_t n, int64_t m,
                        int64_t pos, word *s, int64_t plane)
{
    const aril__reducer *how = j->how;
    int64_t fold = pitch == m && !how->ordered ? folded(m) : 1;
    if (fold > 1 && n >= 8 * fold) {
        word wide[PLANES * ROW];
        int64_t w = fold * m, k = n / fold;
        how->start(&j->params, wide, w, w, pos);
        j->across(&j->params, wide, w, at(j, offset), w, k, w, pos);
        for (int64_t i = 0; i < fold; i++) how->merge(&j->params, s, plane, wide + i * m, w, m);
        offset += k * w;
        pos += k * fold;
        n -= k * fold;
    }
    if (n == 0) return;
    j->across(&j->params, s, plane, at(j, offset), pitch, n, m, pos);
}

static void take_across(const job *j, int64_t offset, int64_t step, int64_t m, int64_t from,
                        int64_t to, word *s, int64_t plane)
{
    const aril__loops *n = &j->reduced;
    int64_t pitch = aril__loops_step(n, 0);
    aril__loops_at p;
    aril__loops_seek(n, &p, from, &offset);
    while (from < to) {
        int64_t run = aril__loops_run(n, &p);
        run = run < to - from ? run : to - from;
        if (j->size && step == 1) {
            rows_across(j, p.offset[0], pitch, run, m, from, s, plane);
        } else {
            word x[STAGED]; /* floats or 8-byte values */
            size_t each = j->how->in == ARIL__C_F32 ? sizeof(float) : sizeof(word);
            int64_t rows = (int64_t)(sizeof x / each) / m;
            run = run < rows ? run : rows;
            if (step == 1 && pitch == m)
                j->load(x, j->in, p.offset[0], 1, run * m);
            else
                for (int64_t k = 0; k < run; k++)
                    j->load((char *)x + (size_t)(k * m) * each, j->in, p.offset[0] + k * pitch,
                            step, m);
            j->how->across(&j->params, s, plane, x, m, run, m, from);
        }
        from += run;
        aril__loops_move(n, &p, run);
    }
}

/* Whole rows that all reduce to one output: reduces columns first, then merges the columns. Returns
 * false if the layout does not allow it. */
static bool rows_along(const job *j, int64_t offset, int64_t from, int64_t to, word *s,
                       int64_t plane)
{
    const aril__loops *n = &j->reduced;
    const aril__reducer *how = j->how;
    if (n->ndim != 2 || !j->size || how->ordered || n->stride[0][1] != 1) return false;
    int64_t w = n->dim[1], rows = (to - from) / w;
    if (w < VECTOR_MAX || w > ROW || from % w || to % w || rows < 8) return false;
    word wide[PLANES * ROW];
    how->start(&j->params, wide, w, w, from);
    j->across(&j->params, wide, w, at(j, offset + from / w * n->stride[0][0]), n->stride[0][0],
              rows, w, from);
    for (int64_t i = 0; i < w; i++) how->merge(&j->params, s, plane, wide + i, w, 1);
    return true;
}

/* m lines, each `step` elements after the previous one. */
static void take_along(const job *j, int64_t offset, int64_t step, int64_t m, int64_t from,
                       int64_t to, word *s, int64_t plane)
{
    const aril__loops *n = &j->reduced;
    int64_t next = aril__loops_step(n, 0);
    if (n->ndim <= 1 && j->size && (next == 1 || to - from == 1)) {
        j->along(&j->params, s, plane, at(j, offset + from * next), step, to - from, m, from);
        return;
    }
    aril__loops_at p;
    for (int64_t i = 0; i < m; i++, offset += step, s++) {
        if (rows_along(j, offset, from, to, s, plane)) continue;
        aril__loops_seek(n, &p, from, &offset);
        for (int64_t pos = from; pos < to;) {
            int64_t run = aril__loops_run(n, &p);
            run = run < to - pos ? run : to - pos;
            if (j->size && next == 1) {
                j->along(&j->params, s, plane, at(j, p.offset[0]), 0, run, 1, pos);
            } else {
                word x[STAGED];
                run = run < STAGED ? run : STAGED;
                j->load(x, j->in, p.offset[0], next, run);
                j->how->along(&j->params, s, plane, x, 0, run, 1, pos);
            }
            pos += run;
            aril__loops_move(n, &p, run);
        }
    }
}

/* Reduces positions [from, to) into the states of outputs [begin, end). */
static void take(const job *j, int64_t begin, int64_t end, int64_t from, int64_t to, word *s,
                 int64_t plane)
{
    const aril__loops *n = &j->kept;
    aril__loops_at p;
    j->how->start(&j->params, s, plane, end - begin, from);
    if (from >= to) return;
    aril__loops_seek(n, &p, begin, j->base);
    int64_t step = aril__loops_step(n, 0);
    while (begin < end) {
        int64_t m = aril__loops_run(n, &p);
        m = m < end - begin ? m : end - begin;
        if (j->rows)
            take_across(j, p.offset[0], step, m, from, to, s, plane);
        else
            take_along(j, p.offset[0], step, m, from, to, s, plane);
        s += m;
        begin += m;
        aril__loops_move(n, &p, m);
    }
}

/* Finishes the states of outputs [begin, end) and stores the results. */
static void give(const job *j, int64_t begin, int64_t end, word *s, int64_t plane)
{
    const aril__loops *n = &j->kept;
    aril__loops_at p;
    if (j->how->finish) j->how->finish(&j->params, s, plane, end - begin);
    aril__loops_seek(n, &p, begin, j->base);
    while (begin < end) {
        int64_t m = aril__loops_run(n, &p);
        m = m < end - begin ? m : end - begin;
        for (int k = 0; k < j->n_out; k++) {
            int64_t step = n->ndim ? n->stride[1 + k][n->ndim - 1] : 1;
            aril__dtypes[j->out[k]->dtype].store[j->how->out[k]](aril__base(j->out[k]),
                                                                 p.offset[1 + k], step,
                                                                 s + k * plane, m);
        }
        s += m;
        begin += m;
        aril__loops_move(n, &p, m);
    }
}

/* The outputs of block b. */
static void block_of(const job *j, int64_t b, int64_t *first, int64_t *last)
{
    int64_t start = b / j->blocks * j->run, in = b % j->blocks * j->width;
    *first = start + in;
    *last = start + (in + j->width < j->run ? in + j->width : j->run);
}

static void full_range(void *ctx, int64_t begin, int64_t end)
{
    const job *j = ctx;
    word s[PLANES * ROW];
    for (; begin < end; begin++) {
        int64_t first, last;
        block_of(j, begin, &first, &last);
        take(j, first, last, 0, j->params.count, s, ROW);
        give(j, first, last, s, ROW);
    }
}

/* Unit u is part u / all of block u % all, where `all` is the total number of blocks. */
static void part_range(void *ctx, int64_t begin, int64_t end)
{
    const job *j = ctx;
    int64_t all = j->outputs / j->run * j->blocks;
    for (; begin < end; begin++) {
        int64_t part = begin / all, first, last;
        block_of(j, begin % all, &first, &last);
        int64_t from = part * j->part;
        int64_t to = from + j->part < j->params.count ? from + j->part : j->params.count;
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

/* Builds the loops over kept and reduced dimensions, and derives the order of the work. */
static void lay_out(job *j, const aril_tensor *in, unsigned mask)
{
    j->params.count = 1;
    j->kept.n = 1 + j->n_out;
    j->reduced.n = 1;
    bool keeps = j->out[0]->ndim == in->ndim; /* the outputs keep the reduced axes */
    for (int d = 0, k = 0; d < in->ndim; d++) {
        bool is_reduced = mask >> d & 1;
        aril__loops *n = is_reduced ? &j->reduced : &j->kept;
        n->dim[n->ndim] = in->dim[d];
        n->stride[0][n->ndim] = in->stride[d];
        for (int i = 0; i < j->n_out && !is_reduced; i++)
            n->stride[1 + i][n->ndim] = j->out[i]->stride[k];
        k += keeps || !is_reduced;
        if (is_reduced) j->params.count *= in->dim[d];
        n->ndim++;
    }
    if (j->params.count == 0) j->reduced.ndim = 0;
    aril__loops_merge(&j->reduced, 0);
    aril__loops_merge(&j->kept, 0);

    /* Process rows of outputs when outputs are closer together in memory than reduced elements. */
    int kept = j->kept.ndim - 1, red = j->reduced.ndim - 1;
    j->rows = kept >= 0 && (red < 0 || (j->kept.stride[0][kept] != 0 &&
                                        j->kept.stride[0][kept] <= j->reduced.stride[0][red]));
    j->run = j->rows ? j->kept.dim[kept] : j->outputs;
}

/* Full reduction of a contiguous tensor that is too small to parallelize. */
static bool is_small(const aril__reducer *how, const aril_tensor *in, const aril_tensor *out)
{
    return out->numel == 1 && in->numel > 0 && in->numel <= STAGED && aril__is_dense(in) &&
           how->in == aril__dtypes[in->dtype].ctype;
}

static void run_small(const aril__reducer *how, aril__reduce_params params, const aril_tensor *in,
                      int n_out, aril_tensor *const *out)
{
    word s[PLANES], x[STAGED];
    const void *from = aril__ptr(in);
    params.count = in->numel;
    const aril__reduce_native *native = aril__reduce_native_of(how->native, in->dtype);
    if (!native && in->dtype != ARIL_F32 && in->dtype != ARIL_F64) {
        aril__dtypes[in->dtype].load[how->in](x, aril__base(in), in->offset, 1, in->numel);
        from = x;
    }
    how->start(&params, s, 1, 1, 0);
    (native ? native->along : how->along)(&params, s, 1, from, 0, in->numel, 1, 0);
    if (how->finish) how->finish(&params, s, 1, 1);
    for (int k = 0; k < n_out; k++)
        aril__dtypes[out[k]->dtype].store[how->out[k]](aril__base(out[k]), out[k]->offset, 1, s + k,
                                                       1);
}

/* Cuts the work into units. True when outputs are so few that their inputs have to be cut, too, and
 * partial results merged. */
static bool cut_work(job *j, const aril_tensor *in, unsigned mask)
{
    lay_out(j, in, mask);
    int64_t count = j->params.count > 0 ? j->params.count : 1;
    j->grain = GRAIN / (j->how->weight > 1 ? j->how->weight : 1);
    if (j->rows && j->run > ROW) {
        j->blocks = (aril__parallel_chunks(j->run, ROW) + EVEN - 1) / EVEN * EVEN;
        j->width = ((j->run - 1) / j->blocks / FOLD + 1) * FOLD;
        j->blocks = aril__parallel_chunks(j->run, j->width);
    } else { /* blocks of whole runs, or of any number of lines */
        int64_t one = j->rows ? j->run : 1, max = ROW / one, fits = j->grain / (one * count);
        j->width = one * (fits < 1 ? 1 : fits < max ? fits : max);
        j->run = j->outputs;
        j->blocks = aril__parallel_chunks(j->run, j->width);
    }
    j->units = j->outputs / j->run * j->blocks;
    j->each = j->width * count;
    if (j->units >= UNITS || j->outputs * count <= j->grain || count < 2 * FOLD) return false;
    j->parts = aril__parallel_chunks(j->each, j->grain);
    j->part = (count - 1) / j->parts + 1;
    if (j->part < FOLD) j->part = FOLD;
    j->part = (j->part + 63) / 64 * 64;
    j->parts = aril__parallel_chunks(count, j->part);
    return true;
}

aril_status aril__reduce_run(const aril__reducer *how, aril__reduce_params params,
                             const aril_tensor *in, unsigned mask, int n_out,
                             aril_tensor *const *out, void *scratch)
{
    if (is_small(how, in, out[0])) {
        run_small(how, params, in, n_out, out);
        return ARIL_OK;
    }
    static const uint8_t direct[] = { [ARIL__C_F32] = ARIL_F32,
                                      [ARIL__C_F64] = ARIL_F64,
                                      [ARIL__C_I64] = ARIL_I64,
                                      [ARIL__C_U64] = ARIL_U64 };
    const aril__reduce_native *native = aril__reduce_native_of(how->native, in->dtype);
    bool as_is = native || in->dtype == direct[how->in];
    job j = { .how = how,
              .params = params,
              .in = aril__base(in),
              .load = aril__dtypes[in->dtype].load[how->in],
              .size = as_is ? aril__dtypes[in->dtype].bits / 8 : 0,
              .across = native ? native->across : how->across,
              .along = native ? native->along : how->along,
              .n_out = n_out,
              .out = out,
              .base = { in->offset, out[0]->offset, n_out > 1 ? out[1]->offset : 0 },
              .outputs = out[0]->numel,
              .partial = scratch };
    if (j.outputs == 0) return ARIL_OK;
    bool in_parts = cut_work(&j, in, mask);
    int64_t grain = j.grain, units = j.units, each = j.each;
    if (!in_parts) {
        /* Share few units evenly: one extra chunk on a thread would dominate the time. */
        int64_t some = each < grain ? grain / each : 1;
        int64_t pieces = aril__parallel_pieces(units, each < grain / 4 ? grain / 4 / each : 1);
        int64_t even = (units - 1) / pieces + 1;
        aril__parallel_for(units, units < UNITS && even < some ? even : some, full_range, &j);
        return ARIL_OK;
    }
    aril__parallel_for(j.parts * units, each / j.parts < grain ? grain * j.parts / each : 1,
                       part_range, &j);
    aril__parallel_for(j.outputs, ROW, merge_range, &j);
    return ARIL_OK;
}

size_t aril__reduce_scratch(const aril__reducer *how, const aril_tensor *in, unsigned mask,
                            int n_out, aril_tensor *const *out)
{
    job j = { .how = how, .n_out = n_out, .out = out, .outputs = out[0]->numel };
    if (in->numel <= GRAIN / (how->weight > 1 ? how->weight : 1) || j.outputs == 0) return 0;
    if (!cut_work(&j, in, mask)) return 0;
    return (size_t)(j.parts * j.outputs) * (size_t)how->planes * sizeof(word);
}
