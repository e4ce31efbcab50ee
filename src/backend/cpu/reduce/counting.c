#include "backend/cpu/reduce/counting.h"

#include "core/parallel.h"
#include "ops/reduce/counting.h"
#include "ops/table/apply.h"

#include <math.h>
#include <string.h>

enum { BLOCK = 256, GRAIN = 1024 };

/* ---- bincount ---- */

aril_status aril__cpu_bincount(aril__run *r)
{
    const aril_tensor *x = r->in[0], *w = r->n_in > 1 ? r->in[1] : NULL;
    const int64_t *at = aril__ptr(x);
    int64_t n = ((const struct bincount_attrs *)r->attrs)->minlength[0];
    for (int64_t i = 0; i < x->numel; i++) {
        if (at[i] < 0)
            return aril__fail(ARIL_ERR_ARG, "bincount: expected non-negative integers, got %lld",
                              (long long)at[i]);
        n = at[i] >= n ? at[i] + 1 : n;
    }
    if (n > INT64_MAX / 8)
        return aril__fail(ARIL_ERR_MEMORY, "bincount: out of memory for %lld counts", (long long)n);
    aril_status s = aril__run_alloc(r, 0, w ? ARIL_F64 : ARIL_I64, 1, &n);
    if (s < 0) return s;
    if (!w) {
        int64_t *count = aril__ptr(r->out[0]);
        memset(count, 0, (size_t)n * sizeof *count);
        for (int64_t i = 0; i < x->numel; i++) count[at[i]]++;
        return ARIL_OK;
    }
    double *sum = aril__ptr(r->out[0]);
    memset(sum, 0, (size_t)n * sizeof *sum);
    for (int64_t i = 0; i < x->numel; i += BLOCK) {
        double weight[BLOCK];
        int64_t m = x->numel - i < BLOCK ? x->numel - i : BLOCK;
        aril__dtypes[w->dtype].load[ARIL__C_F64](weight, aril__base(w),
                                                 w->offset + i * w->stride[0], w->stride[0], m);
        for (int64_t k = 0; k < m; k++) sum[at[i + k]] += weight[k];
    }
    if (w->dtype == ARIL_F32) aril__bincount_narrow(r->out[0]);
    return ARIL_OK;
}

/* ---- histc ---- */

aril_status aril__cpu_histc(aril__run *r)
{
    const struct histc_attrs *a = r->attrs;
    const aril_tensor *x = r->in[0]; /* contiguous */
    aril__load_fn *load = aril__dtypes[x->dtype].load[ARIL__C_F64];
    double low = a->range[0], high = a->range[1], v[BLOCK];
    int64_t bins = a->bins[0], m;
    if (low == high && x->numel > 0) {
        low = INFINITY;
        high = -INFINITY;
        for (int64_t i = 0; i < x->numel; i += m) {
            m = x->numel - i < BLOCK ? x->numel - i : BLOCK;
            load(v, aril__base(x), x->offset + i, 1, m);
            for (int64_t k = 0; k < m; k++) {
                low = v[k] < low || v[k] != v[k] ? v[k] : low;
                high = v[k] > high || v[k] != v[k] ? v[k] : high;
            }
        }
    }
    if (low == high) {
        low -= 1;
        high += 1;
    }
    if (!isfinite(low) || !isfinite(high))
        return aril__fail(ARIL_ERR_NUMBER,
                          "histc: the range of the elements, %g..%g, is not finite", low, high);
    double *count = r->workspace;
    memset(count, 0, (size_t)bins * sizeof *count);
    for (int64_t i = 0; i < x->numel; i += m) {
        m = x->numel - i < BLOCK ? x->numel - i : BLOCK;
        load(v, aril__base(x), x->offset + i, 1, m);
        for (int64_t k = 0; k < m; k++) {
            if (!(v[k] >= low && v[k] <= high)) continue;
            int64_t bin = (int64_t)((v[k] - low) / (high - low) * (double)bins);
            count[bin < bins ? bin : bins - 1]++;
        }
    }
    aril_tensor *y = r->out[0];
    aril__dtypes[y->dtype].store[ARIL__C_F64](aril__base(y), y->offset, 1, count, bins);
    return ARIL_OK;
}

size_t aril__cpu_histc_scratch(const aril__run *r)
{
    return (size_t)((const struct histc_attrs *)r->attrs)->bins[0] * sizeof(double);
}

/* ---- searchsorted ---- */

#define T       double
#define NAME(x) x##_f64
#include "backend/cpu/reduce/search.inc"

#define T       int64_t
#define NAME(x) x##_i64
#include "backend/cpu/reduce/search.inc"

#define T       uint64_t
#define NAME(x) x##_u64
#include "backend/cpu/reduce/search.inc"

static aril__ctype wide(uint8_t dtype)
{
    return aril__is_float((aril_dtype)dtype) ? ARIL__C_F64
           : dtype == ARIL_U64               ? ARIL__C_U64
                                             : ARIL__C_I64;
}

typedef struct search_job {
    const char *line, *values;
    int64_t n, m, offset; /* sizes of the last axes of both inputs */
    aril__ctype type;
    bool right, shared; /* shared: one sorted sequence for all values */
    int64_t *out;
} search_job;

static void search_range(void *ctx, int64_t begin, int64_t end)
{
    const search_job *j = ctx;
    while (begin < end) {
        int64_t row = j->shared ? 0 : begin / j->m;
        int64_t stop = j->shared || (row + 1) * j->m > end ? end : (row + 1) * j->m;
        const char *line = j->line + row * j->n * 8, *values = j->values + begin * 8;
        (j->type == ARIL__C_F64 ? search_f64
         : j->type == ARIL__C_U64
             ? search_u64
             : search_i64)(line, j->n, j->right, values, stop - begin, j->out + begin);
        begin = stop;
    }
}

aril_status aril__cpu_searchsorted(aril__run *r)
{
    const aril_tensor *line = r->in[0], *v = r->in[1]; /* contiguous */
    search_job j = { .n = line->dim[line->ndim - 1],
                     .m = v->ndim ? v->dim[v->ndim - 1] : 1,
                     .type = wide(line->dtype),
                     .right = ((const struct search_attrs *)r->attrs)->right[0],
                     .shared = line->ndim == 1,
                     .out = aril__ptr(r->out[0]) };
    if (v->numel == 0) return ARIL_OK;
    char *a = r->workspace, *b = a + line->numel * 8;
    aril__dtypes[line->dtype].load[j.type](a, aril__base(line), line->offset, 1, line->numel);
    aril__dtypes[v->dtype].load[j.type](b, aril__base(v), v->offset, 1, v->numel);
    j.line = a;
    j.values = b;
    aril__parallel_for(v->numel, GRAIN, search_range, &j);
    return ARIL_OK;
}

/* A wide copy of both inputs. */
size_t aril__cpu_searchsorted_scratch(const aril__run *r)
{
    return (size_t)(r->in[0]->numel + r->in[1]->numel) * 8;
}
