/* tril and triu, and the sum over windows. */
#include "backend/cuda/attrs.cuh"
#include "backend/cuda/shape/rearrange.cuh"
#include "ops/shape/create.h"
#include "ops/shape/view.h"

/* ---- triangles ---- */

/* Keeps what is on one side of a diagonal; the rest is 0. x and out may be the same. */
template <typename U>
static __global__ void triangle(int64_t n, int64_t rows, int64_t columns, int64_t diagonal,
                                bool upper, const U *x, U *out)
{
    bool small = ((n | rows | columns) >> 31) == 0;
    ARIL_CUDA_LOOP(i, n)
    {
        int64_t line = small ? (int64_t)((uint32_t)i / (uint32_t)columns) : i / columns;
        int64_t row = small ? (int64_t)((uint32_t)line % (uint32_t)rows) : line % rows;
        int64_t right = i - line * columns - row; /* of the main diagonal */
        out[i] = (upper ? right >= diagonal : right <= diagonal) ? x[i] : (U)0;
    }
}

static aril_status run_triangle(aril_run *r, bool upper)
{
    int64_t diagonal = aril_cuda_attrs<triangle_attrs>(r)->diagonal[0];
    aril_tensor *out = aril_cuda_out(r, 0);
    const aril_tensor *x = aril_cuda_in(r, 0);
    int64_t n = aril_cuda_host->numel(out);
    if (n == 0) return ARIL_OK;
    ARIL_CUDA_SWITCH_SIZE(aril_cuda_size(aril_cuda_host->dtype(out)), U, {
        triangle<U><<<aril_cuda_blocks(r, n, 1024, 8), 256, 0, aril_cuda_stream(r)>>>(
            n, aril_cuda_dim(x, -2), aril_cuda_dim(x, -1), diagonal, upper,
            static_cast<const U *>(aril_cuda_data(x)), static_cast<U *>(aril_cuda_data(out)));
    });
    return aril_cuda_launched(r);
}

aril_status aril_cuda_tril_run(aril_run *r)
{
    return run_triangle(r, false);
}

aril_status aril_cuda_triu_run(aril_run *r)
{
    return run_triangle(r, true);
}

/* ---- unfold_view_grad ---- */

/* g [outer, windows, inner, size] -> [outer, n, inner]: the sum over the windows that contain an
 * element, in order. */
template <typename S>
static __global__ void sum_windows(int64_t total, int64_t n, int64_t inner, int64_t windows,
                                   int64_t size, int64_t step, const S *__restrict__ g,
                                   S *__restrict__ out)
{
    typedef typename aril_cuda_type<S>::compute C;
    ARIL_CUDA_LOOP(i, total)
    {
        int64_t line = i / inner, outer = line / n, position = line - outer * n;
        int64_t first = position < size ? 0 : (position - size) / step + 1;
        double sum = 0;
        for (int64_t w = first; w < windows && w * step <= position; w++)
            sum +=
                aril_cuda_to<double>(g[((outer * windows + w) * inner + (i - line * inner)) * size +
                                       position - w * step]);
        out[i] = aril_cuda_from<S>((C)sum);
    }
}

aril_status aril_cuda_unfold_view_grad_run(aril_run *r)
{
    const unfold_view_attrs *a = aril_cuda_attrs<unfold_view_attrs>(r);
    const aril_tensor *g = aril_cuda_in(r, 0);
    aril_tensor *out = aril_cuda_out(r, 0);
    int axis = (int)a->axis[0], ndim = aril_cuda_host->ndim(out);
    int64_t n = ndim ? aril_cuda_dim(out, axis) : 1, windows = ndim ? aril_cuda_dim(g, axis) : 1;
    int64_t inner = 1, total = aril_cuda_host->numel(out);
    for (int d = axis + 1; d < ndim; d++) inner *= aril_cuda_dim(out, d);
    if (total == 0) return ARIL_OK;
    ARIL_CUDA_SWITCH_FLOAT(aril_cuda_host->dtype(out), S, {
        sum_windows<S><<<aril_cuda_blocks(r, total, 256, 8), 256, 0, aril_cuda_stream(r)>>>(
            total, n, inner, windows, a->size[0], a->step[0],
            static_cast<const S *>(aril_cuda_data(g)), static_cast<S *>(aril_cuda_data(out)));
    });
    return aril_cuda_launched(r);
}
