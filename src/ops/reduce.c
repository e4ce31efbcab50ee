#include "ops/reduce.h"

#include "aril/ops.h"
#include "core/nest.h"
#include "core/parallel.h"
#include "ops/apply.h"
#include "ops/like.h"
#include "ops/sample.h"
#include "ops/view.h"

#include <string.h>

/* ---- axes and shapes ---- */

aril_status aril__reduce_attrs(const char *what, const aril_tensor *x, aril_axes axes,
                               struct reduce_attrs *out)
{
    memset(out, 0, sizeof *out);
    out->keep[0] = axes.keepdim;
    if (!x)
        return aril__fail(ARIL_ERR_ARG, "%s: the tensor is NULL", what);
    if (x->flags & ARIL__POISON)
        return ARIL_OK; /* apply passes the poison on */
    if (axes.n < 0 || axes.n > ARIL_MAX_DIMS)
        return aril__fail(ARIL_ERR_ARG, "%s: %d axes", what, axes.n);
    if (axes.n == 0)
        out->mask[0] = (1 << x->ndim) - 1;
    for (int i = 0; i < axes.n; i++) {
        int a = aril__axis(what, axes.axis[i], x->ndim);
        if (a < 0)
            return ARIL_ERR_INDEX;
        if (out->mask[0] >> a & 1)
            return aril__fail(ARIL_ERR_ARG, "%s: axis %d is named twice", what, axes.axis[i]);
        if (x->ndim)
            out->mask[0] |= 1 << a;
    }
    return ARIL_OK;
}

void aril__reduce_shape(aril__call *c, int k)
{
    const struct reduce_attrs *a = c->attrs;
    const aril_tensor *x = c->in[0];
    aril__meta *o = &c->out[k];
    o->dtype = (aril_dtype)x->dtype;
    o->ndim = 0;
    for (int d = 0; d < x->ndim; d++) {
        bool reduced = a->mask[0] >> d & 1;
        if (!reduced || a->keep[0])
            o->dim[o->ndim++] = reduced ? 1 : x->dim[d];
    }
}

aril_tensor *aril__unreduce(aril_tensor *g, const struct reduce_attrs *a)
{
    if (a->keep[0] || !a->mask[0])
        return g;
    struct unsqueeze_attrs at = {{a->mask[0]}};
    return aril__op_with(&at, &aril__op_unsqueeze, g);
}

/* ---- sum ---- */

enum { ROW = 256, GRAIN = 16 * 1024 };

typedef struct sum_job {
    aril__nest kept;    /* operand 0: in, 1: out */
    aril__nest reduced; /* operand 0: in */
    char *in, *out;
    int64_t in_offset, out_offset, n_reduced;
    uint8_t in_dtype, out_dtype;
    aril__ctype ctype; /* F64, I64 or U64 */
} sum_job;

/* Sums of m outputs that lie `step` apart in the input, each over the reduced nest. */
static void sum_row(const sum_job *j, int64_t offset, int64_t step, int64_t m, void *sums)
{
    const aril__nest *n = &j->reduced;
    const aril__dtype_row *row = &aril__dtypes[j->in_dtype];
    double *fs = sums;
    uint64_t *us = sums;
    bool real = j->ctype == ARIL__C_F64;
    for (int64_t i = 0; i < m; i++)
        us[i] = 0; /* 0.0 too */
    aril__nest_at p;
    aril__nest_seek(n, &p, 0, &offset);
    double fb[ROW];
    uint64_t *ub = (uint64_t *)(void *)fb;
    for (int64_t done = 0; done < j->n_reduced;) {
        int64_t run = 1;
        if (m > 1) { /* a row of outputs at a time */
            row->load[j->ctype](fb, j->in, p.offset[0], step, m);
            for (int64_t i = 0; i < m && real; i++)
                fs[i] += fb[i];
            for (int64_t i = 0; i < m && !real; i++)
                us[i] += ub[i];
        } else { /* a run of inputs at a time */
            run = aril__nest_run(n, &p);
            if (run > ROW)
                run = ROW;
            row->load[j->ctype](fb, j->in, p.offset[0],
                                n->ndim ? n->stride[0][n->ndim - 1] : 0, run);
            double f[4] = {0, 0, 0, 0};
            int64_t i = 0;
            for (; real && i + 4 <= run; i += 4)
                for (int k = 0; k < 4; k++)
                    f[k] += fb[i + k];
            for (; real && i < run; i++)
                f[0] += fb[i];
            for (i = 0; !real && i < run; i++)
                us[0] += ub[i];
            if (real)
                fs[0] += (f[0] + f[1]) + (f[2] + f[3]);
        }
        done += run;
        aril__nest_move(n, &p, run);
    }
}

static void sum_range(void *ctx, int64_t begin, int64_t end)
{
    const sum_job *j = ctx;
    const aril__nest *n = &j->kept;
    aril__nest_at p;
    aril__nest_seek(n, &p, begin, (int64_t[]){j->in_offset, j->out_offset});
    double sums[ROW];
    int last = n->ndim - 1;
    int64_t in_step = last < 0 ? 0 : n->stride[0][last], out_step = last < 0 ? 1 : n->stride[1][last];
    /* Rows of outputs pay when they lie closer together than what is summed. */
    bool rows = j->reduced.ndim == 0 ||
                (last >= 0 && in_step != 0 &&
                 in_step <= j->reduced.stride[0][j->reduced.ndim - 1]);
    while (begin < end) {
        int64_t m = rows ? aril__nest_run(n, &p) : 1;
        if (m > end - begin)
            m = end - begin;
        if (m > ROW)
            m = ROW;
        sum_row(j, p.offset[0], in_step, m, sums);
        aril__dtypes[j->out_dtype].store[j->ctype](j->out, p.offset[1], out_step, sums, m);
        begin += m;
        aril__nest_move(n, &p, m);
    }
}

aril_status aril__reduce_sum_to(aril_tensor *out, const aril_tensor *in)
{
    sum_job j = {.in = aril__base(in), .out = aril__base(out), .in_offset = in->offset,
                 .out_offset = out->offset, .in_dtype = in->dtype, .out_dtype = out->dtype,
                 .n_reduced = 1};
    j.ctype = aril__is_float((aril_dtype)in->dtype) ? ARIL__C_F64
              : in->dtype == ARIL_U64               ? ARIL__C_U64
                                                    : ARIL__C_I64;
    j.kept.n = 2;
    j.reduced.n = 1;
    int lead = in->ndim - out->ndim;
    for (int d = 0; d < in->ndim; d++) {
        bool reduced = d < lead || (out->dim[d - lead] == 1 && in->dim[d] != 1);
        aril__nest *n = reduced ? &j.reduced : &j.kept;
        n->dim[n->ndim] = in->dim[d];
        n->stride[0][n->ndim] = in->stride[d];
        if (!reduced)
            n->stride[1][n->ndim] = out->stride[d - lead];
        if (reduced)
            j.n_reduced *= in->dim[d];
        n->ndim++;
    }
    if (out->numel == 0)
        return ARIL_OK;
    if (j.n_reduced == 0)
        j.reduced.ndim = 0;
    aril__nest_merge(&j.reduced, 0);
    aril__nest_merge(&j.kept, 0);
    int64_t grain = GRAIN / (j.n_reduced > 0 ? j.n_reduced : 1);
    aril__parallel_for(out->numel, grain > 1 ? grain : 1, sum_range, &j);
    return ARIL_OK;
}

/* ---- ops ---- */

ATTR_LIST(reduce, REDUCE_ATTRS)

/* Sums of integers and bools are i64, as in PyTorch. */
static aril_status sum_infer(aril__call *c)
{
    aril__reduce_shape(c, 0);
    if (!aril__is_float(c->out[0].dtype) && c->out[0].dtype != ARIL_U64)
        c->out[0].dtype = ARIL_I64;
    return ARIL_OK;
}

static aril_status sum_ref(aril__run *r)
{
    /* The result with the reduced axes in place, over the same memory. */
    const struct reduce_attrs *a = r->attrs;
    aril_tensor full = *r->out[0];
    if (!a->keep[0]) {
        full.ndim = r->in[0]->ndim;
        for (int d = 0, k = 0; d < full.ndim; d++) {
            bool reduced = a->mask[0] >> d & 1;
            full.dim[d] = reduced ? 1 : r->out[0]->dim[k];
            full.stride[d] = reduced ? 0 : r->out[0]->stride[k++];
        }
    }
    return aril__reduce_sum_to(&full, r->in[0]);
}

VJP(sum)
{
    if (c->g[0])
        GRAD(0, aril__expand_like(aril__unreduce(c->g[0], c->attrs), c->x[0]));
}

static const aril__sample sum_samples[] = {
    {.in = {"[2,3,4]"}, .attrs = &(const struct reduce_attrs){.mask = {7}}},
    {.in = {"[2,3,4]"}, .attrs = &(const struct reduce_attrs){.mask = {2}}, .flags = SAMPLE_BATCH},
    {.in = {"[2,3,4]"}, .attrs = &(const struct reduce_attrs){.mask = {5}, .keep = {1}}},
    {.in = {"[]"}, .attrs = &(const struct reduce_attrs){.mask = {0}}},
    {.in = {"[0,3]"}, .attrs = &(const struct reduce_attrs){.mask = {1}}},
    SAMPLE_END};
OP(sum, .doc = "sum over axes", .onnx = "ReduceSum", .min_in = 1, .max_in = 1, .n_out = 1,
   .flags = STRIDED, .types = DT_COMPUTE, .infer = sum_infer, .ref = sum_ref, .vjp = sum_vjp,
   .saves = {LIKE(0)}, .samples = sum_samples, WITH_ATTRS(reduce));

/* ---- public ---- */

aril_tensor *aril_sum(aril_tensor *x, aril_axes axes)
{
    struct reduce_attrs a;
    if (aril__reduce_attrs("sum", x, axes, &a) < 0)
        return aril__poison();
    return aril__op_with(&a, &aril__op_sum, x);
}
