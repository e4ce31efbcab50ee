/* sum_to_like and repeat_grad: sums along dimensions that were broadcast. */
#include "backend/cuda/attrs.cuh"
#include "backend/cuda/reduce/reduce.cuh"
#include "backend/cuda/shape/rearrange.cuh"
#include "ops/shape/concat.h"

/* The dimensions of x: those that the result has too, with both strides, and those that are
 * summed. */
struct split {
    aril_cuda_dims kept, reduced;
};

static void keep(split *s, int64_t dim, int64_t from, int64_t to)
{
    aril_cuda_dims *d = &s->kept;
    d->dim[d->ndim] = dim;
    d->stride[0][d->ndim] = from;
    d->stride[1][d->ndim++] = to;
}

static void reduce(split *s, int64_t dim, int64_t from)
{
    aril_cuda_dims *d = &s->reduced;
    d->dim[d->ndim] = dim;
    d->stride[0][d->ndim++] = from;
}

/* ---- sum_to_like ---- */

static split split_like(const aril_run *r)
{
    const aril_tensor *x = aril_cuda_in(r, 0), *out = aril_cuda_out(r, 0);
    int ndim = aril_cuda_host->ndim(x), lead = ndim - aril_cuda_host->ndim(out);
    split s = {};
    for (int d = 0; d < ndim; d++) {
        int64_t dim = aril_cuda_dim(x, d), from = aril_cuda_host->strides(x)[d];
        if (d < lead || aril_cuda_dim(out, d - lead) != dim)
            reduce(&s, dim, from);
        else
            keep(&s, dim, from, aril_cuda_host->strides(out)[d - lead]);
    }
    return s;
}

size_t aril_cuda_sum_to_like_bytes(const aril_run *r)
{
    split s = split_like(r);
    return aril_cuda_sum_over_bytes(r, s.kept, s.reduced);
}

aril_status aril_cuda_sum_to_like_run(aril_run *r)
{
    aril_host_number n;
    if (aril_cuda_host->number(r, 0, &n)) return aril_cuda_copy_whole(r, aril_cuda_out(r, 0), 0);
    split s = split_like(r);
    return aril_cuda_sum_over(r, s.kept, s.reduced);
}

/* ---- repeat_grad ---- */

/* g as [outer, times, n, inner], or with `each` as [outer, n, times, inner]. */
static split split_repeats(const aril_run *r)
{
    const repeat_attrs *a = aril_cuda_attrs<repeat_attrs>(r);
    const aril_tensor *out = aril_cuda_out(r, 0);
    int axis = (int)a->axis[0], along = a->each[0] ? 2 : 1;
    int64_t dim[4] = { 1, 1, 1, 1 }, from[4], to[4], steps = 1, kept = 1;
    for (int d = 0; d < aril_cuda_host->ndim(out); d++)
        if (d != axis) dim[d < axis ? 0 : 3] *= aril_cuda_dim(out, d);
    dim[along] = a->times[0];
    dim[3 - along] = aril_cuda_dim(out, axis);
    for (int d = 3; d >= 0; d--) {
        from[d] = steps;
        to[d] = kept;
        steps *= dim[d];
        if (d != along) kept *= dim[d];
    }
    split s = {};
    for (int d = 0; d < 4; d++) {
        if (d == along)
            reduce(&s, dim[d], from[d]);
        else
            keep(&s, dim[d], from[d], to[d]);
    }
    return s;
}

size_t aril_cuda_repeat_grad_bytes(const aril_run *r)
{
    split s = split_repeats(r);
    return aril_cuda_sum_over_bytes(r, s.kept, s.reduced);
}

aril_status aril_cuda_repeat_grad_run(aril_run *r)
{
    split s = split_repeats(r);
    return aril_cuda_sum_over(r, s.kept, s.reduced);
}
