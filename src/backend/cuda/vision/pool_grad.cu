/* The gradient of max pooling where the windows are known: each element adds what the windows
 * around it have for its index, from the first to the last. */
#include "backend/cuda/vision/pool.cuh"

#include "backend/cuda/device/errors.cuh"

/* Windows along one dimension of `in` elements. */
struct along {
    int in, out, begin, span; /* span: from the first element of a window to its last */
    aril_cuda_divisor stride;
};

/* One part, as the kernels take it. */
struct job {
    aril_cuda_image whole, picked, indices;
    aril_cuda_walk walk; /* over groups of elements of the result */
    along d[3];
    uint32_t n;
    int64_t area;
    bool vectors; /* groups of columns are aligned */
    aril_cuda_report report;
};

/* The elements of a thread: one, V adjacent columns, or V adjacent channels of a patch of 2 x 2
 * positions, whose windows are mostly the same. */
enum group { ONE, COLUMNS, PATCHES };

/* ---- kernels ---- */

struct range {
    int from, to; /* both included */
};

/* The windows that may contain elements [first, last]. */
static __device__ __forceinline__ range windows_with(const along &d, int first, int last)
{
    int low = first + d.begin - d.span;
    int from = low <= 0 ? 0 : (int)d.stride.divide((uint32_t)low + d.stride.by - 1);
    int to = (int)d.stride.divide((uint32_t)(last + d.begin));
    return { from, to < d.out ? to : d.out - 1 };
}

/* Whether k is neither an index nor -1. */
static __device__ __forceinline__ bool is_wrong(int64_t k, int64_t area)
{
    return (uint64_t)k + 1 > (uint64_t)area;
}

/* One channel of one window: adds the gradient to one of V columns from index k. */
template <typename S, typename C, int V>
static __device__ __forceinline__ void add_columns(C sum[V], const S *g, const int64_t *indices,
                                                   int64_t k, int64_t area, int64_t *wrong)
{
    int64_t index = *indices;
    C v = aril_cuda_to<C>(*g);
#pragma unroll
    for (int i = 0; i < V; i++)
        if (index == k + i) sum[i] += v;
    if (is_wrong(index, area)) *wrong = index;
}

template <typename S, typename C, int V, group G>
static __device__ __forceinline__ void put(const job &j, S *to, uint32_t column, const C sum[V])
{
    aril_cuda_vector<S, V> v;
#pragma unroll
    for (int i = 0; i < V; i++) v.at[i] = aril_cuda_from<S>(sum[i]);
    if (G == COLUMNS && j.vectors) {
        *reinterpret_cast<aril_cuda_vector<S, V> *>(to) = v;
    } else {
#pragma unroll
        for (int i = 0; i < V; i++)
            if ((int)column + i < j.d[2].in) to[i * j.whole.stride[4]] = v.at[i];
    }
}

template <typename S, int V, group G>
static __global__ void __launch_bounds__(ARIL_CUDA_THREADS, 4)
    gather_windows(const __grid_constant__ job j)
{
    typedef typename aril_cuda_type<S>::compute C;
    ARIL_CUDA_LOOP(i, j.n)
    {
        uint32_t n, c, p[3];
        j.walk.split(i, &n, &c, p);
        if (G == COLUMNS) p[2] *= V;
        range r0 = windows_with(j.d[0], (int)p[0], (int)p[0]);
        range r1 = windows_with(j.d[1], (int)p[1], (int)p[1]);
        range r2 = windows_with(j.d[2], (int)p[2], (int)p[2] + (G == COLUMNS ? V - 1 : 0));
        int64_t k = ((int64_t)p[0] * j.d[1].in + p[1]) * j.d[2].in + p[2], wrong = -1;
        const S *g =
            static_cast<const S *>(j.picked.data) + n * j.picked.stride[0] + c * j.picked.stride[1];
        const int64_t *indices = static_cast<const int64_t *>(j.indices.data) +
                                 n * j.indices.stride[0] + c * j.indices.stride[1];
        C sum[V] = {};
        for (int a = r0.from; a <= r0.to; a++)
            for (int b = r1.from; b <= r1.to; b++) {
                const S *row = g + a * j.picked.stride[2] + b * j.picked.stride[3];
                const int64_t *at = indices + a * j.indices.stride[2] + b * j.indices.stride[3];
                for (int e = r2.from; e <= r2.to; e++)
                    add_columns<S, C, V>(sum, row + e * j.picked.stride[4],
                                         at + e * j.indices.stride[4], k, j.area, &wrong);
            }
        if (wrong != -1) aril_cuda_fail(j.report, ARIL_CUDA_BAD_ELEMENT, wrong, j.area);
        S *to = static_cast<S *>(j.whole.data) + n * j.whole.stride[0] + c * j.whole.stride[1] +
                p[0] * j.whole.stride[2] + p[1] * j.whole.stride[3] + p[2] * j.whole.stride[4];
        put<S, C, V, G>(j, to, p[2], sum);
    }
}

/* V channels of one window: adds each gradient to the element of the patch from index k, in rows of
 * `columns`, that has its index. An element beyond the end of a row is never stored. */
template <typename S, typename C, int V>
static __device__ __forceinline__ void add_patch(C (&sum)[2][2][V], const S *g,
                                                 const int64_t *indices, int k, int columns,
                                                 int64_t area, int64_t *wrong)
{
    typedef aril_cuda_vector<int64_t, 2> pair;
    aril_cuda_vector<S, V> v = *reinterpret_cast<const aril_cuda_vector<S, V> *>(g);
    pair two[V / 2];
#pragma unroll
    for (int i = 0; i < V / 2; i++) two[i] = reinterpret_cast<const pair *>(indices)[i];
#pragma unroll
    for (int i = 0; i < V; i++) {
        int64_t index = two[i / 2].at[i % 2];
        if (is_wrong(index, area)) *wrong = index;
        int at = is_wrong(index, area) ? -1 : (int)index - k;
        C e = aril_cuda_to<C>(v.at[i]);
        if (at == 0) sum[0][0][i] += e;
        if (at == 1) sum[0][1][i] += e;
        if (at == columns) sum[1][0][i] += e;
        if (at == columns + 1) sum[1][1][i] += e;
    }
}

template <typename S, int V>
static __global__ void __launch_bounds__(ARIL_CUDA_THREADS)
    gather_patches(const __grid_constant__ job j)
{
    typedef typename aril_cuda_type<S>::compute C;
    const int rows = j.d[1].in, columns = j.d[2].in;
    ARIL_CUDA_LOOP(i, j.n)
    {
        uint32_t n, c, p[3];
        j.walk.split(i, &n, &c, p);
        c *= V;
        int y = 2 * (int)p[1], x = 2 * (int)p[2], k = ((int)p[0] * rows + y) * columns + x;
        range r0 = windows_with(j.d[0], (int)p[0], (int)p[0]);
        range r1 = windows_with(j.d[1], y, y + 1 < rows ? y + 1 : y);
        range r2 = windows_with(j.d[2], x, x + 1 < columns ? x + 1 : x);
        const S *g = static_cast<const S *>(j.picked.data) + n * j.picked.stride[0] + c;
        const int64_t *indices =
            static_cast<const int64_t *>(j.indices.data) + n * j.indices.stride[0] + c;
        C sum[2][2][V] = {};
        int64_t wrong = -1;
        for (int a = r0.from; a <= r0.to; a++)
            for (int b = r1.from; b <= r1.to; b++)
                for (int e = r2.from; e <= r2.to; e++)
                    add_patch<S, C, V>(sum,
                                       g + a * j.picked.stride[2] + b * j.picked.stride[3] +
                                           e * j.picked.stride[4],
                                       indices + a * j.indices.stride[2] + b * j.indices.stride[3] +
                                           e * j.indices.stride[4],
                                       k, columns, j.area, &wrong);
        if (wrong != -1) aril_cuda_fail(j.report, ARIL_CUDA_BAD_ELEMENT, wrong, j.area);
        S *to = static_cast<S *>(j.whole.data) + n * j.whole.stride[0] + c +
                p[0] * j.whole.stride[2] + y * j.whole.stride[3] + x * j.whole.stride[4];
#pragma unroll
        for (int q = 0; q < 4; q++) {
            if (y + q / 2 >= rows || x + q % 2 >= columns) continue;
            aril_cuda_vector<S, V> v;
#pragma unroll
            for (int l = 0; l < V; l++) v.at[l] = aril_cuda_from<S>(sum[q / 2][q % 2][l]);
            *reinterpret_cast<aril_cuda_vector<S, V> *>(to + q / 2 * j.whole.stride[3] +
                                                        q % 2 * j.whole.stride[4]) = v;
        }
    }
}

/* ---- running ---- */

/* The windows along spatial dimension i of three; those that tensors lack come first. */
static along along_of(const max_pool_grad_attrs *a, const aril_cuda_image &x,
                      const aril_cuda_image &y, int i, int spatial)
{
    int at = i - (3 - spatial);
    along d = { (int)x.dim[2 + i], (int)y.dim[2 + i], 0, 0, aril_cuda_divisor_of(1) };
    if (at < 0) return d;
    d.begin = (int)a->begin[at];
    d.span = (int)((a->kernel[at] - 1) * a->dilation[at]);
    d.stride = aril_cuda_divisor_of(a->stride[at]);
    return d;
}

/* Few windows around each element, of sizes whose arithmetic fits in 32 bits. */
bool aril_cuda_pool_windows_known(const aril_run *r)
{
    enum { MOST_WINDOWS = 64, LARGEST = 1 << 14 };
    const max_pool_grad_attrs *a = aril_cuda_attrs<max_pool_grad_attrs>(r);
    const aril_tensor *x = aril_cuda_out(r, 0);
    const int64_t *dim = aril_cuda_host->dims(x);
    int64_t windows = 1;
    if (!a || !aril_cuda_is_float(aril_cuda_host->dtype(x))) return false;
    for (int i = 0; i < aril_cuda_host->ndim(x) - 2; i++) {
        int64_t kernel = a->kernel[i], stride = a->stride[i], dilation = a->dilation[i];
        if (kernel < 1 || stride < 1 || dilation < 1 || a->begin[i] < 0) return false;
        if (kernel > LARGEST || stride > LARGEST || dilation > LARGEST) return false;
        if (a->begin[i] > 1 << 29 || dim[2 + i] > 1 << 30) return false;
        windows *= ((kernel - 1) * dilation + stride) / stride;
        if (windows > MOST_WINDOWS) return false;
    }
    return true;
}

static group group_of(const job &j, int V, int bytes)
{
    if (!aril_cuda_channels_inner(j.whole)) return COLUMNS;
    bool fits = j.whole.dim[1] * j.area <= ARIL_CUDA_MOST; /* or parts would cut groups */
    return fits && aril_cuda_in_vectors(j.whole, 1, V, bytes) &&
                   aril_cuda_in_vectors(j.picked, 1, V, bytes) &&
                   aril_cuda_in_vectors(j.indices, 1, 2, 8)
               ? PATCHES
               : ONE;
}

template <typename S> static aril_status gather(aril_run *r, const job &all)
{
    enum { BYTES = sizeof(S), WIDE = 16 / BYTES, COLS = BYTES < 8 ? 4 : 2 };
    group by = group_of(all, WIDE, BYTES);
    aril_cuda_image groups = all.whole;
    if (by == COLUMNS) groups.dim[4] = (groups.dim[4] + COLS - 1) / COLS;
    for (int d = 3; d <= 4 && by == PATCHES; d++) groups.dim[d] = (groups.dim[d] + 1) / 2;
    int64_t step = by == PATCHES ? WIDE : 1;
    return aril_cuda_each_part(
        all.whole.dim[0], all.whole.dim[1], aril_cuda_area(all.whole), ARIL_CUDA_MOST,
        [&](const aril_cuda_part &p) {
            job j = all;
            j.whole.data = aril_cuda_part_of(all.whole, p, BYTES);
            j.picked.data = aril_cuda_part_of(all.picked, p, BYTES);
            j.indices.data = aril_cuda_part_of(all.indices, p, 8);
            j.vectors = aril_cuda_in_vectors(j.whole, 4, COLS, BYTES);
            j.walk = aril_cuda_walk_of(groups, p.c / step);
            j.n = (uint32_t)(p.n * (p.c / step) * aril_cuda_area(groups));
            unsigned blocks = aril_cuda_blocks(r, j.n, ARIL_CUDA_THREADS, 16);
            cudaStream_t s = aril_cuda_stream(r);
            if (by == PATCHES)
                gather_patches<S, WIDE><<<blocks, ARIL_CUDA_THREADS, 0, s>>>(j);
            else if (by == COLUMNS)
                gather_windows<S, COLS, COLUMNS><<<blocks, ARIL_CUDA_THREADS, 0, s>>>(j);
            else
                gather_windows<S, 1, ONE><<<blocks, ARIL_CUDA_THREADS, 0, s>>>(j);
            return aril_cuda_launched(r);
        });
}

aril_status aril_cuda_pool_gather_run(aril_run *r)
{
    job j = {};
    aril_status s = ARIL_OK;
    int spatial = aril_cuda_host->ndim(aril_cuda_out(r, 0)) - 2;
    j.whole = aril_cuda_image_at(aril_cuda_out(r, 0));
    j.picked = aril_cuda_image_at(aril_cuda_in(r, 0));
    j.indices = aril_cuda_image_at(aril_cuda_in(r, 1));
    j.area = aril_cuda_area(j.whole);
    j.report = aril_cuda_report_of(r);
    for (int i = 0; i < 3; i++)
        j.d[i] = along_of(aril_cuda_attrs<max_pool_grad_attrs>(r), j.whole, j.picked, i, spatial);
    ARIL_CUDA_SWITCH_FLOAT(aril_cuda_host->dtype(aril_cuda_out(r, 0)), S, s = gather<S>(r, j));
    return s;
}
