#include "backend/cpu/index/indexing.h"
#include "backend/cpu/index/kernels.h"

#include "core/loops.h"
#include "core/parallel.h"
#include "ops/shape/copy.h"
#include "ops/table/apply.h"

#include <string.h>

enum { BLOCK = 512, CHUNK = 64 * BLOCK, LONG_ROW = 32 };

/* ---- nonzero ---- */

/* Loads elements from `at` on, up to a block and to `end`, as booleans. */
static int64_t load_truth(const aril_tensor *t, int64_t at, int64_t end, uint8_t *truth)
{
    int64_t n = end - at < BLOCK ? end - at : BLOCK;
    if (t->dtype == ARIL_BOOL || t->dtype == ARIL_U8) {
        memcpy(truth, (const uint8_t *)aril__ptr(t) + at, (size_t)n);
        return n;
    }
    if (t->dtype == ARIL_F32) {
        const float *x = (const float *)aril__ptr(t) + at;
        for (int64_t i = 0; i < n; i++) truth[i] = x[i] != 0;
        return n;
    }
    double block[BLOCK];
    aril__dtypes[t->dtype].load[ARIL__C_F64](block, aril__base(t), t->offset + at, 1, n);
    for (int64_t i = 0; i < n; i++) truth[i] = block[i] != 0;
    return n;
}

typedef struct nonzero_job {
    const aril_tensor *x;
    int64_t *count; /* per chunk; then the output position of its first element */
    int64_t *out;   /* NULL: only count */
} nonzero_job;

/* Advances the index by `by` elements. */
static inline void carry(const aril_tensor *x, int64_t *index, int64_t by)
{
    int d = x->ndim - 1;
    index[d] += by;
    for (; d > 0 && index[d] >= x->dim[d]; d--) {
        index[d - 1] += index[d] / x->dim[d];
        index[d] %= x->dim[d];
    }
}

static void nonzero_range(void *ctx, int64_t begin, int64_t end)
{
    const nonzero_job *j = ctx;
    const aril_tensor *x = j->x;
    int64_t count = 0, *out = NULL, index[ARIL_MAX_DIMS] = { 0 }, last = x->ndim - 1;
    uint8_t truth[BLOCK];
    int32_t positions[BLOCK + 1];
    if (j->out) {
        out = j->out + j->count[begin / CHUNK] * x->ndim;
        for (int64_t d = last, at = begin; d >= 0; at /= x->dim[d--]) index[d] = at % x->dim[d];
    }
    for (int64_t at = begin, n; at < end; at += n) {
        /* Stop at the end of long rows, so that only the column changes. */
        int64_t stop = end;
        bool row = out && x->dim[last] >= LONG_ROW;
        if (row && x->dim[last] - index[last] < end - at) stop = at + x->dim[last] - index[last];
        n = load_truth(x, at, stop, truth);
        int64_t m = 0;
        for (int64_t i = 0; i < n; i++) { /* without branching on the value */
            positions[m] = (int32_t)i;
            m += truth[i] != 0;
        }
        count += m;
        if (!out) continue;
        if (row && last == 1) {
            for (int64_t i = 0; i < m; i++, out += 2) {
                out[0] = index[0];
                out[1] = index[1] + positions[i];
            }
            carry(x, index, n);
            continue;
        }
        int64_t here = 0;
        for (int64_t i = 0; i < m; i++) {
            carry(x, index, positions[i] - here);
            here = positions[i];
            for (int64_t d = 0; d <= last; d++) *out++ = index[d];
        }
        carry(x, index, n - here);
    }
    if (!out) j->count[begin / CHUNK] = count;
}

aril_status aril__cpu_nonzero(aril__run *r)
{
    const aril_tensor *x = r->in[0];
    int64_t chunks = aril__parallel_chunks(x->numel, CHUNK), total = 0;
    int64_t *count = r->workspace;
    nonzero_job j = { .x = x, .count = count };
    aril__parallel_for(x->numel, CHUNK, nonzero_range, &j);
    for (int64_t i = 0; i < chunks; i++) {
        int64_t c = count[i];
        count[i] = total;
        total += c;
    }
    int64_t dim[2] = { total, x->ndim };
    aril_status s = aril__run_alloc(r, 0, ARIL_I64, 2, dim);
    if (s == ARIL_OK && x->ndim > 0 && total > 0) {
        j.out = aril__ptr(r->out[0]);
        aril__parallel_for(x->numel, CHUNK, nonzero_range, &j);
    }
    return s;
}

/* A count for each chunk. */
size_t aril__cpu_nonzero_scratch(const aril__run *r)
{
    return (size_t)aril__parallel_chunks(r->in[0]->numel, CHUNK) * sizeof(int64_t);
}

/* ---- masked_select, masked_scatter ---- */

/* Walks x and the mask in logical order. */
typedef struct masked_walk {
    aril__loops loops; /* 0: x, 1: mask */
    aril__loops_at at;
    int64_t sx, sm, bytes;
    char *x;
    const uint8_t *mask;
    const aril__mover *mover;
} masked_walk;

static masked_walk walk_masked(const aril_tensor *x, const aril_tensor *mask)
{
    masked_walk w = { .loops = aril__loops_of(x->ndim, x->dim),
                      .bytes = aril__dtypes[x->dtype].bits / 8,
                      .x = aril__base(x),
                      .mask = (const uint8_t *)aril__base(mask),
                      .mover = aril__mover_of((aril_dtype)x->dtype) };
    aril__loops_add(&w.loops, x);
    aril__loops_add(&w.loops, mask);
    int last = x->ndim - 1;
    w.sx = last < 0 ? 0 : w.loops.stride[0][last];
    w.sm = last < 0 ? 0 : w.loops.stride[1][last];
    if (x->numel) aril__loops_seek(&w.loops, &w.at, 0, (int64_t[]){ x->offset, mask->offset });
    return w;
}

static int64_t count_true(const aril_tensor *x, const aril_tensor *mask)
{
    masked_walk w = walk_masked(x, mask);
    int64_t count = 0;
    for (int64_t done = 0, m; done < x->numel; done += m) {
        m = aril__loops_run(&w.loops, &w.at);
        const uint8_t *mask_at = w.mask + w.at.offset[1];
        for (int64_t i = 0; i < m; i++) count += mask_at[i * w.sm] != 0;
        aril__loops_move(&w.loops, &w.at, m);
    }
    return count;
}

static void compress_to(char *out, const aril_tensor *x, const aril_tensor *mask)
{
    masked_walk w = walk_masked(x, mask);
    for (int64_t done = 0, m; done < x->numel; done += m) {
        m = aril__loops_run(&w.loops, &w.at);
        out += w.bytes * w.mover->compress(out, w.x + w.at.offset[0] * w.bytes, w.sx,
                                           w.mask + w.at.offset[1], w.sm, m);
        aril__loops_move(&w.loops, &w.at, m);
    }
}

aril_status aril__cpu_masked_select(aril__run *r)
{
    int64_t n = count_true(r->in[0], r->in[1]);
    aril_status s = aril__run_alloc(r, 0, (aril_dtype)r->in[0]->dtype, 1, &n);
    if (s == ARIL_OK && n) compress_to(aril__ptr(r->out[0]), r->in[0], r->in[1]);
    return s;
}

/* A contiguous copy of src, unless it is contiguous. */
size_t aril__cpu_masked_scatter_scratch(const aril__run *r)
{
    const aril_tensor *src = r->in[2];
    return aril__is_dense(src) ? 0 : aril__dtype_bytes((aril_dtype)src->dtype, src->numel);
}

static const char *contiguous_src(const aril__run *r)
{
    const aril_tensor *src = r->in[2];
    if (aril__is_dense(src)) return aril__ptr(src);
    aril__storage memory = { .data = r->workspace, .bytes = r->workspace_bytes };
    aril_tensor to = *src;
    to.storage = &memory;
    to.offset = 0;
    aril__dense_strides(to.ndim, to.dim, to.stride);
    aril__copy_elements(&to, src);
    return r->workspace;
}

aril_status aril__cpu_masked_scatter(aril__run *r)
{
    aril_tensor *out = r->out[0], *src = r->in[2];
    int64_t need = count_true(out, r->in[1]);
    if (need > src->numel)
        return aril__fail(ARIL_ERR_SHAPE,
                          "masked_scatter: the mask selects %lld elements, but src has only %lld",
                          (long long)need, (long long)src->numel);
    if (out != r->in[0]) aril__copy_elements(out, r->in[0]);
    if (need == 0) return ARIL_OK;
    masked_walk w = walk_masked(out, r->in[1]);
    const char *from = contiguous_src(r);
    for (int64_t done = 0, m; done < out->numel; done += m) {
        m = aril__loops_run(&w.loops, &w.at);
        from += w.bytes * w.mover->spread(w.x + w.at.offset[0] * w.bytes, w.sx, from,
                                          w.mask + w.at.offset[1], w.sm, m);
        aril__loops_move(&w.loops, &w.at, m);
    }
    return ARIL_OK;
}

aril_status aril__cpu_masked_scatter_grad(aril__run *r)
{
    aril_tensor *out = r->out[0];
    int64_t n = count_true(r->in[0], r->in[1]);
    if (n > out->numel)
        return aril__fail(
            ARIL_ERR_SHAPE,
            "masked_scatter_grad: the mask selects %lld elements, but src has only %lld",
            (long long)n, (long long)out->numel);
    memset(aril__ptr(out), 0, aril__dtype_bytes((aril_dtype)out->dtype, out->numel));
    if (n) compress_to(aril__ptr(out), r->in[0], r->in[1]);
    return ARIL_OK;
}
