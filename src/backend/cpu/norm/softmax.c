#include "backend/cpu/norm/softmax.h"

#include "core/parallel.h"
#include "ops/norm/softmax.h"
#include "core/stream.h"
#include "core/vector/targets.h"
#include "core/vector/vecmath.h"

#include <math.h>
#include <string.h>

enum {
    BATCH = 4096, /* elements of short lines processed together, and block size of long ones */
    LONE = 64,    /* shorter lines share one loop */
    COLS = 512,   /* maximum columns per block */
    SIDE = 8,     /* rows processed together if the axis is long */
    TALL = 512,   /* an axis up to this length stays in the cache while its columns are processed */
    CACHED = 64 * 1024, /* elements of a block of columns that should stay in the cache */
    GRAIN = 16 * 1024,
    NARROW = 64,   /* with fewer columns, several rows are processed at a time */
    TOGETHER = 16, /* rows whose exponentials are summed in T */
};

typedef struct job {
    const void *in[2];
    void *out;
    aril__load_fn *load;
    aril__store_fn *store;
    int64_t n, inner;
    int64_t blocks, width; /* blocks of columns for each outer index */
    bool is_log, is_grad, direct, stream;
} job;

/* Few columns along a long axis: rows are contiguous, and split among threads. */
typedef struct narrow {
    const job *j;
    int pass;
    int64_t at, size;           /* of all rows: the first element, and the number of elements */
    int64_t width, per, chunks; /* columns of several rows; elements per chunk */
    void *tops, *top, *by;      /* of chunks, of columns */
    double *sums;
} narrow;

static int64_t narrow_size(const narrow *w, int64_t chunk)
{
    int64_t left = w->size - chunk * w->per;
    return left < w->per ? left : w->per;
}

#define TEMPLATE "backend/cpu/norm/softmax.inc"
#include "core/vector/each_target.inc"

/* Cuts few columns along a long axis; returns the bytes of scratch memory that they need. */
static size_t cut_narrow(narrow *w, const job *j, bool wide)
{
    w->size = j->n * j->inner;
    w->width = COLS / 2 / j->inner * j->inner;
    w->per = (GRAIN / w->width + 1) * w->width;
    w->chunks = aril__parallel_chunks(w->size, w->per);
    size_t each = wide ? sizeof(double) : sizeof(float);
    size_t parts = (size_t)(w->chunks * j->inner), columns = (size_t)w->width;
    return parts * sizeof(double) + (parts + 2 * columns) * each;
}

static void run_narrow(const job *j, int64_t outer, bool wide, void *scratch)
{
    narrow w = { .j = j, .sums = scratch };
    cut_narrow(&w, j, wide);
    size_t each = wide ? sizeof(double) : sizeof(float);
    size_t parts = (size_t)(w.chunks * j->inner), columns = (size_t)w.width;
    w.tops = w.sums + parts;
    w.top = (char *)w.tops + parts * each;
    w.by = (char *)w.top + columns * each;
    for (int64_t o = 0; o < outer; o++, w.at += w.size)
        for (w.pass = 0; w.pass < 3; w.pass++) {
            aril__parallel_for(w.chunks, 1, ARIL__PICK(narrow_chunks, wide), &w);
            if (w.pass < 2) ARIL__PICK(narrow_join, wide)(&w);
        }
}

static void size_job(job *j, const aril__run *r)
{
    const aril_tensor *x = r->in[0];
    int axis = (int)((const struct softmax_attrs *)r->attrs)->axis[0];
    j->n = x->ndim ? x->dim[axis] : 1;
    j->inner = x->ndim ? aril__count(x->ndim - axis - 1, x->dim + axis + 1) : 1;
}

static bool is_narrow(const job *j)
{
    return j->inner > 1 && j->inner < NARROW && j->n * j->inner >= GRAIN;
}

size_t aril__cpu_softmax_scratch(const aril__run *r)
{
    job j;
    narrow w;
    if (r->in[0]->numel < GRAIN) return 0;
    size_job(&j, r);
    return is_narrow(&j) ? cut_narrow(&w, &j, r->type == ARIL_F64) : 0;
}

static aril_status run(aril__run *r, bool is_log, bool is_grad)
{
    const aril_tensor *x = r->in[0];
    if (x->numel == 0) return ARIL_OK;
    bool wide = r->type == ARIL_F64;
    aril__ctype via = wide ? ARIL__C_F64 : ARIL__C_F32;
    job j = { .in = { aril__ptr(x), is_grad ? aril__ptr(r->in[1]) : NULL },
              .out = aril__ptr(r->out[0]),
              .load = aril__dtypes[r->type].load[via],
              .store = aril__dtypes[r->type].store[via],
              .is_log = is_log,
              .is_grad = is_grad,
              .direct = r->type == ARIL_F32 || r->type == ARIL_F64 };
    size_job(&j, r);
    int64_t outer = x->numel / (j.n * j.inner);
    j.stream =
        j.direct && j.n >= 256 && aril__dtype_bytes(r->type, x->numel) >= ARIL__STREAM_STORES_FROM;
    if (j.inner == 1) {
        aril__parallel_for(outer, GRAIN / j.n,
                           is_grad ? ARIL__PICK(grad_lines, wide) : ARIL__PICK(lines, wide), &j);
        return ARIL_OK;
    }
    if (!is_grad && is_narrow(&j)) {
        run_narrow(&j, outer, wide, r->workspace);
        return ARIL_OK;
    }
    int64_t max = j.n > TALL ? COLS : CACHED / j.n < 64 ? 64 : CACHED / j.n;
    max = max < COLS ? max : COLS;
    j.blocks = aril__parallel_chunks(j.inner, max);
    j.width = ((j.inner - 1) / j.blocks / 16 + 1) * 16;
    j.blocks = aril__parallel_chunks(j.inner, j.width);
    int64_t each = j.n * (j.inner < j.width ? j.inner : j.width);
    aril__parallel_for(outer * j.blocks, GRAIN / each, ARIL__PICK(blocks, wide), &j);
    return ARIL_OK;
}

aril_status aril__cpu_softmax(aril__run *r)
{
    return run(r, false, false);
}

aril_status aril__cpu_log_softmax(aril__run *r)
{
    return run(r, true, false);
}

aril_status aril__cpu_softmax_grad(aril__run *r)
{
    return run(r, false, true);
}

aril_status aril__cpu_log_softmax_grad(aril__run *r)
{
    return run(r, true, true);
}
