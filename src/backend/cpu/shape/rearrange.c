/* Ops that rearrange contiguous elements, row by row. */
#include "backend/cpu/shape/shape.h"

#include "core/parallel.h"
#include "ops/shape/create.h"
#include "ops/shape/view.h"

#include <string.h>

/* ---- roll ---- */

typedef struct roll_job {
    const char *in;
    char *out;
    size_t size;
    int ndim;
    int64_t dim[ARIL_MAX_DIMS], shift[ARIL_MAX_DIMS]; /* 0 <= shift < dim */
} roll_job;

static void roll_range(void *ctx, int64_t begin, int64_t end)
{
    const roll_job *j = ctx;
    int last = j->ndim - 1;
    int64_t n = j->dim[last];
    size_t row = (size_t)n * j->size, head = (size_t)j->shift[last] * j->size;
    for (int64_t r = begin; r < end; r++) {
        int64_t rest = r, from = 0, step = 1;
        for (int d = last - 1; d >= 0; d--) {
            int64_t i = rest % j->dim[d] - j->shift[d];
            rest /= j->dim[d];
            from += (i < 0 ? i + j->dim[d] : i) * step;
            step *= j->dim[d];
        }
        const char *in = j->in + (size_t)from * row;
        char *out = j->out + (size_t)r * row;
        memcpy(out + head, in, row - head);
        memcpy(out, in + (row - head), head);
    }
}

aril_status aril__cpu_roll(aril__run *r)
{
    const struct roll_attrs *a = r->attrs;
    const aril_tensor *x = r->in[0];
    roll_job j = { .in = aril__ptr(x),
                   .out = aril__ptr(r->out[0]),
                   .size = aril__dtype_bytes((aril_dtype)x->dtype, 1),
                   .ndim = x->ndim ? x->ndim : 1,
                   .dim = { 1 } };
    if (x->numel == 0) return ARIL_OK;
    for (int d = 0; d < x->ndim; d++) {
        j.dim[d] = x->dim[d];
        j.shift[d] = a->shift[d] % x->dim[d];
        if (j.shift[d] < 0) j.shift[d] += x->dim[d];
    }
    int64_t n = j.dim[j.ndim - 1];
    aril__parallel_for(x->numel / n, 16384 / n + 1, roll_range, &j);
    return ARIL_OK;
}

/* ---- tril, triu ---- */

typedef struct triangle_job {
    const char *in;
    char *out;
    size_t size;
    int64_t rows, columns, diagonal;
    bool upper;
} triangle_job;

static void triangle_range(void *ctx, int64_t begin, int64_t end)
{
    const triangle_job *j = ctx;
    size_t row = (size_t)j->columns * j->size;
    for (int64_t r = begin; r < end; r++) {
        /* Columns before `cut` are on or below the diagonal (tril), or below it (triu). */
        int64_t cut = r % j->rows + j->diagonal + !j->upper;
        cut = cut < 0 ? 0 : cut > j->columns ? j->columns : cut;
        size_t at = (size_t)cut * j->size;
        const char *in = j->in + (size_t)r * row;
        char *out = j->out + (size_t)r * row;
        if (j->upper) {
            memset(out, 0, at);
            memmove(out + at, in + at, row - at);
        } else {
            memmove(out, in, at);
            memset(out + at, 0, row - at);
        }
    }
}

static aril_status triangle(aril__run *r, bool upper)
{
    const aril_tensor *x = r->in[0];
    /* All diagonals beyond the matrix are equivalent. */
    int64_t k = ((const struct triangle_attrs *)r->attrs)->diagonal[0];
    int64_t rows = x->dim[x->ndim - 2], columns = x->dim[x->ndim - 1];
    k = k < -rows - 1 ? -rows - 1 : k > columns + 1 ? columns + 1 : k;
    triangle_job j = { .in = aril__ptr(x),
                       .out = aril__ptr(r->out[0]),
                       .size = aril__dtype_bytes((aril_dtype)x->dtype, 1),
                       .rows = rows,
                       .columns = columns,
                       .diagonal = k,
                       .upper = upper };
    if (x->numel) aril__parallel_for(x->numel / columns, 32768 / columns + 1, triangle_range, &j);
    return ARIL_OK;
}

aril_status aril__cpu_tril(aril__run *r)
{
    return triangle(r, false);
}

aril_status aril__cpu_triu(aril__run *r)
{
    return triangle(r, true);
}

/* ---- the sum over windows ---- */

typedef struct fold_job {
    const aril_tensor *g; /* [outer, windows, inner, size] */
    aril_tensor *out;     /* [outer, n, inner] */
    int64_t n, windows, inner, size, step;
} fold_job;

/* One (outer, position) at a time: the windows that contain the position are added in order. */
static void fold_range(void *ctx, int64_t begin, int64_t end)
{
    enum { ROW = 256 };
    const fold_job *j = ctx;
    const aril__dtype_row *row = &aril__dtypes[j->g->dtype];
    double sum[ROW], block[ROW];
    for (int64_t p = begin; p < end; p++) {
        int64_t outer = p / j->n, at = p % j->n;
        int64_t last = at / j->step, first = at < j->size ? 0 : (at - j->size) / j->step + 1;
        if (last > j->windows - 1) last = j->windows - 1;
        for (int64_t i = 0; i < j->inner; i += ROW) {
            int64_t m = j->inner - i < ROW ? j->inner - i : ROW;
            memset(sum, 0, (size_t)m * sizeof *sum);
            for (int64_t w = first; w <= last; w++) {
                int64_t from = ((outer * j->windows + w) * j->inner + i) * j->size;
                row->load[ARIL__C_F64](block, aril__base(j->g),
                                       j->g->offset + from + at - w * j->step, j->size, m);
                for (int64_t k = 0; k < m; k++) sum[k] += block[k];
            }
            row->store[ARIL__C_F64](aril__base(j->out), j->out->offset + p * j->inner + i, 1, sum,
                                    m);
        }
    }
}

aril_status aril__cpu_unfold_view_grad(aril__run *r)
{
    const struct unfold_view_attrs *a = r->attrs;
    aril_tensor *out = r->out[0];
    int axis = (int)a->axis[0];
    fold_job j = { .g = r->in[0],
                   .out = out,
                   .n = out->ndim ? out->dim[axis] : 1,
                   .windows = out->ndim ? r->in[0]->dim[axis] : 1,
                   .inner = out->ndim ? aril__count(out->ndim - axis - 1, out->dim + axis + 1) : 1,
                   .size = a->size[0],
                   .step = a->step[0] };
    if (out->numel) aril__parallel_for(out->numel / j.inner, 8192 / j.inner + 1, fold_range, &j);
    return ARIL_OK;
}
