#include "backend/cpu/elementwise/fused.h"

#include "backend/cpu/kernel.h"
#include "core/loops.h"
#include "core/parallel.h"
#include "core/stream.h"
#include "ops/random/random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static inline double larger_or_nan(double a, double b)
{
    return a != a || a > b ? a : b;
}

#define TEMPLATE "backend/cpu/elementwise/fused_reduce.inc"
#include "core/vector/each_target.inc"

/* One run: what its threads share. */
typedef struct job {
    const aril__tile_program *p;
    const aril__run *r;
    double *accumulators; /* of each chunk */
    char *buffers;        /* of each thread */
    bool stream;
    atomic_int bad; /* a reason, and above 8 bits the step */
} job;

static size_t size_of(const aril_tensor *t)
{
    return aril__dtypes[t->dtype].bits / 8;
}

static char *element(const aril_tensor *t, int64_t at)
{
    return aril__base(t) + (size_t)(t->offset + at) * size_of(t);
}

/* ---- operands with strides ---- */

/* A walk along one operand of the loop. */
typedef struct walk {
    aril__loops loops;
    aril__loops_at at;
    int64_t step; /* of the innermost dimension */
} walk;

static walk walk_from(const aril__tile_program *p, int operand, int64_t at, int64_t offset)
{
    walk w = { .loops = { .ndim = p->ndim, .n = 1 } };
    memcpy(w.loops.dim, p->dim, sizeof w.loops.dim);
    memcpy(w.loops.stride[0], p->stride[operand], sizeof w.loops.stride[0]);
    aril__loops_seek(&w.loops, &w.at, at, &offset);
    w.step = aril__loops_step(&w.loops, 0);
    return w;
}

/* Elements up to the end of the innermost dimension, at most m. */
static int64_t run_length(const walk *w, int64_t m)
{
    int64_t n = w->loops.ndim ? aril__loops_run(&w->loops, &w->at) : m;
    return n < m ? n : m;
}

/* How many whole rows of the innermost dimension begin here, within m elements and the dimension
 * around it; 0: the middle of a row. */
static int64_t rows_here(const walk *w, int64_t m)
{
    int last = w->loops.ndim - 1;
    if (last < 1 || w->at.index[last] != 0) return 0;
    int64_t rows = m / w->loops.dim[last], left = w->loops.dim[last - 1] - w->at.index[last - 1];
    return rows < left ? rows : left;
}

/* Rows of n f32 elements, `step` apart, whose starts are `outer` apart, to a buffer. */
static void gather_rows(float *to, const float *from, int64_t outer, int64_t step, int64_t rows,
                        int64_t n)
{
    if (n == 2 && step == 1) { /* halves of boxes (x, y, width, height), real and imaginary parts */
        for (int64_t r = 0; r < rows; r++, to += 2, from += outer) memcpy(to, from, 2 * sizeof *to);
        return;
    }
    for (int64_t r = 0; r < rows; r++, to += n, from += outer)
        for (int64_t i = 0; i < n; i++) to[i] = from[i * step];
}

static void gather(const job *j, const aril__tile_step *s, int64_t at, int64_t m, char *to)
{
    enum { SHORT = 16 }; /* rows of so many elements take longer to find than to load */
    const aril_tensor *t = j->r->in[s->index];
    aril__load_fn *load = aril__dtypes[t->dtype].load[s->ctype];
    size_t size = s->ctype == ARIL__C_F32 ? 4 : 8;
    walk w = walk_from(j->p, s->index, at, t->offset);
    bool plain = t->dtype == ARIL_F32 && s->ctype == ARIL__C_F32 && w.loops.ndim > 1 &&
                 w.loops.dim[w.loops.ndim - 1] < SHORT;
    for (int64_t done = 0, n; done < m; done += n) {
        int64_t rows = plain ? rows_here(&w, m - done) : 0;
        if (rows > 1) {
            int last = w.loops.ndim - 1;
            n = rows * w.loops.dim[last];
            gather_rows((float *)(void *)to + done,
                        (const float *)(const void *)aril__base(t) + w.at.offset[0],
                        w.loops.stride[0][last - 1], w.step, rows, w.loops.dim[last]);
            w = walk_from(j->p, s->index, at + done + n, t->offset);
            continue;
        }
        n = run_length(&w, m - done);
        load(to + (size_t)done * size, aril__base(t), w.at.offset[0], w.step, n);
        aril__loops_move(&w.loops, &w.at, n);
    }
}

static void spread(const job *j, const aril__tile_step *s, int64_t at, int64_t m, const char *from)
{
    const aril_tensor *t = j->r->out[s->index];
    aril__store_fn *store = aril__dtypes[t->dtype].store[s->ctype];
    size_t size = s->ctype == ARIL__C_F32 ? 4 : 8;
    walk w = walk_from(j->p, j->p->n_in + s->index, at, t->offset);
    for (int64_t done = 0, n; done < m; done += n) {
        n = run_length(&w, m - done);
        store(aril__base(t), w.at.offset[0], w.step, from + (size_t)done * size, n);
        aril__loops_move(&w.loops, &w.at, n);
    }
}

static void accumulate(const job *j, const aril__tile_step *s, int64_t at, int64_t m,
                       const char *from, double *accumulators)
{
    const aril__tile_reduce *o = &j->p->reduce[s->index];
    double *to = accumulators + o->offset;
    size_t size = o->wide ? sizeof(double) : sizeof(float);
    void (*take)(double *s, int64_t outer, int64_t step, const void *from, int64_t rows,
                 int64_t n) =
        o->reduce == ARIL_FUSED_MAX ? ARIL__PICK(max_rows, o->wide) : ARIL__PICK(sum_rows, o->wide);
    int operand = j->p->n_in + s->index;
    walk w = walk_from(j->p, operand, at, 0);
    for (int64_t done = 0; done < m;) {
        int64_t rows = rows_here(&w, m - done), n = rows ? j->p->inner : run_length(&w, m - done);
        int64_t outer = rows ? w.loops.stride[0][w.loops.ndim - 2] : 0;
        take(to + w.at.offset[0], outer, w.step, from + (size_t)done * size, rows ? rows : 1, n);
        done += rows ? rows * n : n;
        if (rows)
            w = walk_from(j->p, operand, at + done, 0);
        else
            aril__loops_move(&w.loops, &w.at, n);
    }
}

/* ---- rows ---- */

static void reduce_rows(const job *j, const aril__tile_step *s, const char *from, int64_t rows,
                        char *to)
{
    bool is_wide = s->ctype == ARIL__C_F64;
    ARIL__PICK(rows_to, is_wide)(s->index, from, rows, j->p->inner, to);
}

static void repeat_rows(const aril__tile_program *p, const aril__tile_step *s, const char *from,
                        int64_t rows, char *to)
{
    int64_t n = p->inner;
    for (int64_t r = 0; r < rows; r++) {
        if (s->ctype == ARIL__C_F32)
            for (int64_t i = 0; i < n; i++)
                ((float *)(void *)to)[r * n + i] = ((const float *)(const void *)from)[r];
        else
            for (int64_t i = 0; i < n; i++)
                ((uint64_t *)(void *)to)[r * n + i] = ((const uint64_t *)(const void *)from)[r];
    }
}

static void take_firsts(const aril__tile_program *p, const aril__tile_step *s, const char *from,
                        int64_t rows, char *to)
{
    size_t size = s->ctype == ARIL__C_F32 ? 4 : 8;
    for (int64_t r = 0; r < rows; r++)
        memcpy(to + (size_t)r * size, from + (size_t)(r * p->inner) * size, size);
}

static void draw(const job *j, const aril__tile_step *s, int64_t at, int64_t m, char *to)
{
    aril__rng_key key;
    memcpy(&key, aril__ptr(j->r->in[s->index]), sizeof key);
    aril__rng_uniform_f32(key, at, at + m, (float *)(void *)to);
}

static void drop(const aril__tile_step *s, const char *u, const char *x, int64_t m, char *to)
{
    bool is_wide = s->ctype == ARIL__C_F64;
    ARIL__PICK(drop_some, is_wide)((const float *)(const void *)u, x, s->p, m, to);
}

/* Writes values by rows to output `index`. */
static void set_rows(const job *j, const aril__tile_step *s, int64_t at, int64_t rows,
                     const char *from)
{
    const aril_tensor *t = j->r->out[s->index];
    aril__store_fn *store = aril__dtypes[t->dtype].store[s->ctype];
    size_t size = s->ctype == ARIL__C_F32 ? 4 : 8;
    walk w = walk_from(j->p, j->p->n_in + s->index, at, t->offset);
    for (int64_t r = 0; r < rows; r++) {
        store(aril__base(t), w.at.offset[0], 1, from + (size_t)r * size, 1);
        if (r + 1 < rows) aril__loops_move(&w.loops, &w.at, j->p->inner);
    }
}

/* ---- a tile ---- */

/* A thread's view of the places. */
typedef struct view {
    char **at;
    char *buffers;
    double *accumulators;
    int bad;
} view;

/* Repeats the first `have` elements until there are `all`. */
static void repeat(char *to, size_t size, int64_t have, int64_t all)
{
    for (; have < all; have *= 2)
        memcpy(to + (size_t)have * size, to,
               (size_t)(all - have < have ? all - have : have) * size);
}

static void fill_place(const job *j, const aril__place *place, char *to, int64_t m)
{
    const aril__tile_program *p = j->p;
    aril__ctype c = aril__dtypes[place->dtype].ctype;
    size_t size = aril__dtypes[place->dtype].bits / 8;
    if (place->fill == ARIL__FILL_NUMBER) {
        const aril_fused_constant *k = &p->constant[place->index];
        aril__ctype from = aril__dtypes[k->dtype].ctype;
        char value[8]; /* in its own dtype: loaded as a tensor's element would be */
        if (aril__is_float((aril_dtype)k->dtype))
            aril__dtypes[k->dtype].store[ARIL__C_F64](value, 0, 1, &k->f64, 1);
        else
            aril__dtypes[k->dtype].store[from == ARIL__C_U64 ? ARIL__C_U64 : ARIL__C_I64](
                value, 0, 1, &k->i64, 1);
        aril__dtypes[k->dtype].load[c](to, value, 0, 0, m);
        return;
    }
    const aril_tensor *t = j->r->in[place->index];
    aril__load_fn *load = aril__dtypes[t->dtype].load[c];
    if (place->fill == ARIL__FILL_ONE) {
        load(to, aril__base(t), t->offset, 0, m);
    } else {
        int64_t row = p->inner, step = p->stride[place->index][p->ndim - 1];
        load(to, aril__base(t), t->offset, step, row);
        repeat(to, size, row, row + m);
    }
}

/* The addresses of places that do not move, and their contents. */
static void open_places(const job *j, view *v, int64_t m)
{
    for (int i = 0; i < j->p->n_places; i++) {
        const aril__place *place = &j->p->place[i];
        if (place->kind > ARIL__PLACE_FIXED) continue;
        v->at[i] = v->buffers + place->offset;
        if (place->kind == ARIL__PLACE_FIXED) fill_place(j, place, v->at[i], m);
    }
}

/* Those of places that move from tile to tile. */
static void move_places(const job *j, view *v, int64_t at)
{
    const aril__tile_program *p = j->p;
    for (int i = 0; i < p->n_places; i++) {
        const aril__place *place = &p->place[i];
        if (place->kind == ARIL__PLACE_INPUT)
            v->at[i] = element(j->r->in[place->index], at);
        else if (place->kind == ARIL__PLACE_OUTPUT)
            v->at[i] = element(j->r->out[place->index], at);
        else if (place->kind == ARIL__PLACE_FIXED && place->fill == ARIL__FILL_ROW)
            v->at[i] = v->buffers + place->offset +
                       (size_t)(at % p->inner) * (aril__dtypes[place->dtype].bits / 8);
    }
}

static void write_out(const job *j, const aril__tile_step *s, int64_t at, int64_t m,
                      const char *from)
{
    const aril_tensor *t = j->r->out[s->index];
    char *to = element(t, at);
    if (j->stream)
        aril__stream_copy(to, from, (size_t)m * size_of(t));
    else
        memcpy(to, from, (size_t)m * size_of(t));
}

static void run_kernel(const aril__tile_step *s, view *v, int64_t m)
{
    const void *in[ARIL_FUSED_OPERANDS];
    int bad = 0;
    for (int k = 0; k < s->n_in; k++) in[k] = s->in[k] == ARIL__NO_PLACE ? NULL : v->at[s->in[k]];
    s->fn.kernel(m, v->at[s->to], in, s->p, &bad);
    if (aril__unlikely(bad)) v->bad = bad | s->step << 8;
}

/* Requests the part of the next tile's inputs that belongs to step i: while steps compute in L1,
 * memory would be idle otherwise. Always inline: gcc takes a function that only prefetches for one
 * without effect, and removes its calls. */
static inline __attribute__((always_inline)) void prefetch(const job *j, const view *v, int i)
{
    const aril__tile_program *p = j->p;
    for (int k = 0; k < p->n_direct; k++) {
        const aril__direct *d = &p->direct[k];
        const char *from = v->at[d->place] + d->bytes + (size_t)i * d->part;
        for (size_t at = 0; at < d->part; at += 64) __builtin_prefetch(from + at, 0, 2);
    }
}

static void run_tile(const job *j, view *v, int64_t at, int64_t m, bool more)
{
    int64_t all = m, rows = j->p->rows ? m / j->p->inner : m;
    for (int i = 0; i < j->p->n_steps; i++) {
        const aril__tile_step *s = &j->p->step[i];
        if (more) prefetch(j, v, i);
        m = s->by_row ? rows : all;
        switch (s->kind) {
        case ARIL__TILE_GATHER: gather(j, s, at, m, v->at[s->to]); break;
        case ARIL__TILE_KERNEL: run_kernel(s, v, m); break;
        case ARIL__TILE_LOAD: s->fn.load(v->at[s->to], v->at[s->in[0]], 0, 1, m); break;
        case ARIL__TILE_STORE: s->fn.store(v->at[s->to], 0, 1, v->at[s->in[0]], m); break;
        case ARIL__TILE_WRITE: write_out(j, s, at, m, v->at[s->in[0]]); break;
        case ARIL__TILE_SPREAD: spread(j, s, at, m, v->at[s->in[0]]); break;
        case ARIL__TILE_REDUCE: accumulate(j, s, at, m, v->at[s->in[0]], v->accumulators); break;
        case ARIL__TILE_ROWS: reduce_rows(j, s, v->at[s->in[0]], rows, v->at[s->to]); break;
        case ARIL__TILE_REPEAT: repeat_rows(j->p, s, v->at[s->in[0]], rows, v->at[s->to]); break;
        case ARIL__TILE_FIRST: take_firsts(j->p, s, v->at[s->in[0]], rows, v->at[s->to]); break;
        case ARIL__TILE_DRAW: draw(j, s, at, m, v->at[s->to]); break;
        case ARIL__TILE_DROP: drop(s, v->at[s->in[0]], v->at[s->in[1]], m, v->at[s->to]); break;
        case ARIL__TILE_SET: set_rows(j, s, at, rows, v->at[s->in[0]]); break;
        }
    }
}

/* ---- reductions ---- */

static void clear_accumulators(const aril__tile_program *p, double *to)
{
    for (int k = 0; k < p->n_out; k++) {
        const aril__tile_reduce *o = &p->reduce[k];
        for (int64_t i = 0; i < o->n; i++)
            to[o->offset + (size_t)i] = o->reduce == ARIL_FUSED_MAX ? -INFINITY : 0;
    }
}

/* What the chunks have together, in their order, of m results from `at` on. */
static void combine(const job *j, const aril__tile_reduce *o, int64_t at, int64_t m, double *y)
{
    int64_t chunks = aril__parallel_chunks(j->p->n, j->p->grain);
    const double *from = j->accumulators + o->offset + (size_t)at;
    bool largest = o->reduce == ARIL_FUSED_MAX;
    for (int64_t i = 0; i < m; i++) y[i] = largest ? -INFINITY : 0;
    for (int64_t c = 0; c < chunks; c++, from += j->p->accumulators)
        for (int64_t i = 0; i < m; i++)
            y[i] = largest ? larger_or_nan(y[i], from[i]) : y[i] + from[i];
    for (int64_t i = 0; i < m && o->reduce == ARIL_FUSED_MEAN; i++) y[i] /= (double)o->per;
}

static void finish_reduction(const job *j, int k)
{
    enum { BLOCK = 256 };
    const aril__tile_reduce *o = &j->p->reduce[k];
    const aril_tensor *t = j->r->out[k];
    aril__store_fn *store = aril__dtypes[t->dtype].store[ARIL__C_F64];
    bool dense = aril__is_dense(t);
    aril__loops loops = aril__loops_of(t->ndim, t->dim);
    aril__loops_at at;
    double y[BLOCK];
    aril__loops_add(&loops, t);
    for (int64_t done = 0; done < o->n; done += BLOCK) {
        int64_t m = o->n - done < BLOCK ? o->n - done : BLOCK;
        combine(j, o, done, m, y);
        if (dense) {
            store(aril__base(t), t->offset + done, 1, y, m);
            continue;
        }
        aril__loops_seek(&loops, &at, done, &t->offset);
        for (int64_t i = 0; i < m; i++) {
            store(aril__base(t), at.offset[0], 1, y + i, 1);
            aril__loops_move(&loops, &at, 1);
        }
    }
}

/* ---- the row ---- */

static size_t accumulator_bytes(const aril__tile_program *p)
{
    int64_t chunks = aril__parallel_chunks(p->n, p->grain);
    return ((size_t)chunks * p->accumulators * sizeof(double) + 63) / 64 * 64;
}

/* Buffers of a thread, and the addresses of its places. */
static size_t thread_bytes(const aril__tile_program *p)
{
    return p->buffers + ((size_t)p->n_places * sizeof(char *) + 63) / 64 * 64;
}

static void run_chunk(void *ctx, int64_t begin, int64_t end, int slot)
{
    job *j = ctx;
    const aril__tile_program *p = j->p;
    char *mine = j->buffers + (size_t)slot * thread_bytes(p);
    view v = { .at = (char **)(void *)(mine + p->buffers), .buffers = mine };
    if (p->accumulators) {
        v.accumulators = j->accumulators + (size_t)(begin / p->grain) * p->accumulators;
        clear_accumulators(p, v.accumulators);
    }
    open_places(j, &v, end - begin < p->tile ? end - begin : p->tile);
    for (int64_t at = begin; at < end; at += p->tile) {
        int64_t m = end - at < p->tile ? end - at : p->tile;
        move_places(j, &v, at);
        run_tile(j, &v, at, m, p->prefetches && at + m < end);
    }
    if (j->stream) aril__stream_end();
    if (aril__unlikely(v.bad)) atomic_store(&j->bad, v.bad);
}

static aril_status report(const job *j)
{
    int bad = atomic_load(&j->bad);
    if (!bad) return ARIL_OK;
    return aril__ew_failed(j->p->name[bad >> 8], bad & 255);
}

static size_t workspace_bytes(const aril__tile_program *p)
{
    int slots = aril__parallel_slots(p->n, p->grain);
    return accumulator_bytes(p) + (size_t)slots * thread_bytes(p);
}

/* A program that could not be made for lack of memory is made by the run. */
const char *aril__cpu_fused_prepare(const aril__run *r, aril_plan *plan)
{
    aril_fused f;
    if (!aril__fused_of(r, &f)) return "the recipe does not fit the inputs";
    if (f.rows && f.ndim && f.dim[f.ndim - 1] == 1) return "rows of one element";
    for (int s = 0; s < f.n_steps; s++) {
        const aril__op *op = aril__fused_recipe(r->attrs)->step[s].op;
        if (op->formula &&
            !aril__ew_kernel(op->formula->number, aril__dtypes[f.step[s].type].ctype))
            return "a step is not defined for its dtype";
    }
    aril__tile_program *p = aril__tile_program_new(r, &f);
    if (!p) return NULL;
    plan->prepared = p;
    plan->workspace = workspace_bytes(p);
    plan->overlay = aril__tile_overlay(p, r);
    return NULL;
}

static void destroy(void *prepared)
{
    free(prepared);
}

static aril_status run_program(const aril__run *r, const aril__tile_program *p, void *workspace,
                               size_t bytes)
{
    job j = { .p = p, .r = r, .accumulators = workspace };
    bool over_input = false;
    for (int i = 0; i < p->n_in; i++)
        for (int k = 0; k < p->n_out; k++)
            over_input = over_input || r->in[i]->storage == r->out[k]->storage;
    j.stream = p->streams && !over_input;
    j.buffers = (char *)workspace + accumulator_bytes(p);
    int slots = (int)((bytes - accumulator_bytes(p)) / thread_bytes(p));
    if (p->n) aril__parallel_for_slots(p->n, p->grain, slots, run_chunk, &j);
    for (int k = 0; k < p->n_out; k++)
        if (p->reduce[k].reduce) finish_reduction(&j, k);
    return report(&j);
}

static aril__cold aril_status run_unprepared(const aril__run *r)
{
    aril_fused f;
    aril__allocations_allow();
    aril__tile_program *p = aril__fused_of(r, &f) ? aril__tile_program_new(r, &f) : NULL;
    size_t bytes = p ? workspace_bytes(p) : 0;
    void *workspace = p ? aril__malloc(bytes + 1) : NULL;
    aril__allocations_allow_end();
    aril_status s = workspace ? run_program(r, p, workspace, bytes)
                              : aril__fail(ARIL_ERR_MEMORY, "%s: out of memory", r->op->name);
    free(workspace);
    free(p);
    return s;
}

aril_status aril__cpu_fused(aril__run *r)
{
    if (aril__unlikely(!r->prepared)) return run_unprepared(r);
    return run_program(r, r->prepared, r->workspace, r->workspace_bytes);
}

#define FUSED(op_)                                                \
    KERNEL(op_, cpu_fused, .dtypes = DT_COMPUTE, .strided = true, \
           .prepare = aril__cpu_fused_prepare, .destroy = destroy)
const aril__row aril__cpu_elementwise_rows[] = {
    FUSED(fused), FUSED(fused_2), FUSED(fused_3), FUSED(fused_4), { 0 }
};
