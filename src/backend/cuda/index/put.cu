/* index_put, index_put_add and embedding_grad: values go to the rows of x that indices name.
 *
 * Indices are sorted by row, equal ones in their order. So of several values for one row the last
 * one stays, as on the CPU, and a sum adds them in the order of the CPU: one thread per element of
 * the row goes over all its values. */
#include "backend/cuda/attrs.cuh"
#include "backend/cuda/index/picked.cuh"
#include "ops/index/index.h"

/* What a call needs in the workspace. */
struct scratch {
    int64_t *offset;
    void *number; /* a value that came as a number */
    aril_cuda_sorting sorting;
};

static scratch scratch_of(aril_cuda_carver *w, const aril_cuda_picked &p)
{
    scratch s;
    s.offset = w->take<int64_t>(p.count);
    s.number = w->take<uint64_t>(1);
    s.sorting = aril_cuda_sorting_of(w, p.count, aril_cuda_bits((uint64_t)p.rows));
    return s;
}

static aril_cuda_picked put_picked(const aril_run *r)
{
    int64_t mask = aril_cuda_attrs<index_attrs>(r)->mask[0];
    return aril_cuda_picked_of(r, aril_cuda_out(r, 0), mask, 2, aril_cuda_host->n_in(r) - 2);
}

size_t aril_cuda_index_put_bytes(const aril_run *r)
{
    aril_cuda_carver w = {};
    scratch_of(&w, put_picked(r));
    return w.used;
}

static aril_status locate_and_sort(aril_run *r, const aril_cuda_locator &l,
                                   const aril_cuda_picked &p, const scratch &at)
{
    aril_status s = aril_cuda_locate_all(r, l, p.count, at.offset, at.sorting.given, p.rows);
    return s < 0 ? s : aril_cuda_sort(r, at.sorting);
}

/* ---- index_put ---- */

/* Skips all but the last of the positions that name one row. */
static __global__ void keep_last(const uint64_t *key, const uint32_t *order, int64_t n,
                                 int64_t *offset)
{
    ARIL_CUDA_LOOP(j, n)
    {
        if (j + 1 < n && key[j + 1] == key[j]) offset[order[j]] = ARIL_CUDA_SKIP;
    }
}

static bool is_empty(const aril_cuda_picked &p)
{
    bool empty = false;
    for (int d = 0; d < p.ndim; d++) empty = empty || p.dim[d] == 0;
    return empty;
}

aril_status aril_cuda_index_put_run(aril_run *r)
{
    aril_tensor *out = aril_cuda_out(r, 0);
    const aril_tensor *value = aril_cuda_in(r, 1);
    aril_cuda_picked p = put_picked(r);
    aril_status s = aril_cuda_copy_whole(r, out, 0);
    if (s < 0 || is_empty(p)) return s;
    aril_cuda_carver w = aril_cuda_carver_of(r);
    scratch at = scratch_of(&w, p);
    aril_cuda_locator l = aril_cuda_locator_of(r, out, p, 2);
    aril_cuda_mover m = {};
    const void *values;
    s = aril_cuda_values(r, 1, at.number, &values);
    if (s < 0) return s;
    m.loops.ndim = p.ndim;
    for (int d = 0; d < p.ndim; d++) m.loops.dim[d] = p.dim[d];
    aril_cuda_loops_add(&m.loops, value);
    aril_cuda_kept_strides(out, p, m.loops.stride[1]);
    aril_cuda_position_strides(p, m.loops.stride[2]);
    m.loops.n = 3;
    aril_cuda_loops_merge(&m.loops, 0);
    m.other = const_cast<void *>(values);
    m.x = aril_cuda_data(out);
    m.bytes = aril_cuda_size(aril_cuda_host->dtype(out));
    m.offset = at.offset;
    m.report = l.report;
    aril_cuda_mover_widen(&m, l.n, l.stride);
    for (int k = 0; k < l.n; k++) l.stride[k] /= m.unit;
    if (p.count == 1) {
        s = aril_cuda_locate_all(r, l, 1, at.offset, nullptr, 0);
    } else {
        s = locate_and_sort(r, l, p, at);
        if (s < 0) return s;
        keep_last<<<aril_cuda_blocks(r, p.count, 256), 256, 0, aril_cuda_stream(r)>>>(
            at.sorting.key, at.sorting.order, p.count, at.offset);
        s = aril_cuda_launched(r);
    }
    return s < 0 ? s : aril_cuda_move_in(r, m);
}

/* ---- sums ---- */

struct adder {
    aril_cuda_nest<2> kept; /* x and the values, along the dimensions that are kept */
    uint32_t n_kept;
    int64_t n, rows;
    const uint64_t *key;
    const uint32_t *order;
    const int64_t *offset;
    bool even;    /* values of neighbouring positions are `step` apart, */
    int64_t step; /* otherwise `spread` tells where they are */
    aril_cuda_spread spread;

    __device__ __forceinline__ int64_t value_at(int64_t b) const
    {
        return even ? b * step : spread.offset(b);
    }
};

/* x[row] += values, V neighbours at a time. A thread adds up to 4 values per turn, whose loads it
 * issues together. */
template <typename S, int V>
static __global__ void add_rows(const __grid_constant__ adder a, S *__restrict__ x,
                                const S *__restrict__ value)
{
    typedef typename aril_cuda_type<S>::compute C;
    typedef aril_cuda_vector<S, V> vector;
    const int most = 4;
    for (int64_t j = (int64_t)blockIdx.x * blockDim.y + threadIdx.y; j < a.n;
         j += (int64_t)gridDim.x * blockDim.y) {
        uint64_t row = a.key[j];
        if (row == (uint64_t)a.rows || !aril_cuda_is_first(a.key, j)) continue;
        S *to = x + a.offset[a.order[j]];
        for (uint32_t k = blockIdx.y * blockDim.x + threadIdx.x; k < a.n_kept;
             k += gridDim.y * blockDim.x) {
            int32_t at[2];
            a.kept.offsets(k, at);
            vector old = *reinterpret_cast<const vector *>(to + at[0]);
            C sum[V];
#pragma unroll
            for (int e = 0; e < V; e++) sum[e] = aril_cuda_to<C>(old.at[e]);
            for (int64_t t = j; t < a.n && a.key[t] == row; t += most) {
                vector v[most];
                bool there[most];
#pragma unroll
                for (int u = 0; u < most; u++) {
                    there[u] = t + u < a.n && a.key[t + u] == row;
                    if (there[u])
                        v[u] = *reinterpret_cast<const vector *>(
                            value + a.value_at(a.order[t + u]) + at[1]);
                }
#pragma unroll
                for (int u = 0; u < most; u++)
#pragma unroll
                    for (int e = 0; e < V; e++)
                        if (there[u]) sum[e] += aril_cuda_to<C>(v[u].at[e]);
            }
#pragma unroll
            for (int e = 0; e < V; e++) old.at[e] = aril_cuda_from<S>(sum[e]);
            *reinterpret_cast<vector *>(to + at[0]) = old;
        }
    }
}

/* A block is wide enough for a row, as far as that has elements, and has several rows otherwise. */
template <typename S, int V>
static aril_status launch_add(aril_run *r, const adder &a, S *x, const S *value)
{
    unsigned wide = 1;
    while (wide < 256 && wide < a.n_kept) wide *= 2;
    dim3 block(wide, 256 / wide);
    unsigned across = (a.n_kept + wide - 1) / wide;
    dim3 grid(aril_cuda_blocks(r, a.n, block.y, 64), across < 1024 ? across : 1024);
    add_rows<S, V><<<grid, block, 0, aril_cuda_stream(r)>>>(a, x, value);
    return aril_cuda_launched(r);
}

/* Whether rows and values can be read 4 elements at a time. */
template <typename S>
static bool takes_vectors(const aril_cuda_loops &kept, const adder &a, const aril_cuda_locator &l,
                          const void *x, const void *value)
{
    if (kept.ndim != 1 || kept.stride[0][0] != 1 || kept.stride[1][0] != 1) return false;
    bool fits = kept.dim[0] % 4 == 0 && a.even && a.step % 4 == 0;
    for (int k = 0; k < l.n; k++) fits = fits && l.stride[k] % 4 == 0;
    return fits && ((uintptr_t)x | (uintptr_t)value) % (4 * sizeof(S)) == 0;
}

template <typename S>
static aril_status add_as(aril_run *r, aril_cuda_loops kept, adder a, const aril_cuda_locator &l,
                          void *x, const void *value)
{
    bool vectors = takes_vectors<S>(kept, a, l, x, value);
    if (vectors) {
        kept.dim[0] /= 4;
        kept.stride[0][0] = kept.stride[1][0] = 4;
    }
    return aril_cuda_each_piece(&kept, [&](const aril_cuda_loops &piece) {
        a.kept = aril_cuda_nest_of<2>(piece);
        a.n_kept = (uint32_t)aril_cuda_loops_numel(&piece);
        S *to = static_cast<S *>(x) + piece.offset[0];
        const S *from = static_cast<const S *>(value) + piece.offset[1];
        return vectors ? launch_add<S, 4>(r, a, to, from) : launch_add<S, 1>(r, a, to, from);
    });
}

/* Where the values of an index position are, in `all` of which operand 0 is the value. */
static void place_values(const aril_cuda_loops &all, const aril_cuda_picked &p, adder *a)
{
    int64_t next = 0;
    a->even = true;
    a->spread.ndim = p.nb;
    for (int k = p.nb - 1; k >= 0; k--) {
        int64_t dim = p.dim[p.at + k], stride = all.stride[0][p.at + k];
        a->spread.dim[k] = dim;
        a->spread.stride[k] = stride;
        if (dim == 1) continue;
        if (next == 0 && a->step == 0)
            a->step = stride;
        else if (stride != next)
            a->even = false;
        next = stride * dim;
        if (stride == 0) a->even = false;
    }
}

static aril_status add_picked(aril_run *r, const aril_cuda_picked &p, const aril_cuda_locator &l,
                              const aril_tensor *value, const void *values, const scratch &at)
{
    aril_tensor *out = aril_cuda_out(r, 0);
    aril_cuda_loops all = {}, kept = {};
    int64_t stride[ARIL_MAX_DIMS];
    all.ndim = p.ndim;
    for (int d = 0; d < p.ndim; d++) all.dim[d] = p.dim[d];
    aril_cuda_loops_add(&all, value);
    aril_cuda_kept_strides(out, p, stride);
    for (int d = 0; d < p.ndim; d++) {
        if (d >= p.at && d < p.at + p.nb) continue;
        kept.dim[kept.ndim] = p.dim[d];
        kept.stride[0][kept.ndim] = stride[d];
        kept.stride[1][kept.ndim++] = all.stride[0][d];
    }
    kept.n = 2;
    aril_cuda_loops_merge(&kept, 0);
    adder a = {};
    a.n = p.count;
    a.rows = p.rows;
    a.key = at.sorting.key;
    a.order = at.sorting.order;
    a.offset = at.offset;
    place_values(all, p, &a);
    aril_status s = locate_and_sort(r, l, p, at);
    void *x = aril_cuda_data(out);
    if (s < 0) return s;
    switch (aril_cuda_host->dtype(out)) {
    case ARIL_F16: return add_as<aril_cuda_f16>(r, kept, a, l, x, values);
    case ARIL_BF16: return add_as<aril_cuda_bf16>(r, kept, a, l, x, values);
    case ARIL_F32: return add_as<float>(r, kept, a, l, x, values);
    case ARIL_F64: return add_as<double>(r, kept, a, l, x, values);
    default:
        return add_as<uint64_t>(r, kept, a, l, x, values); /* i64 wraps around in the same way */
    }
}

aril_status aril_cuda_index_put_add_run(aril_run *r)
{
    aril_tensor *out = aril_cuda_out(r, 0);
    aril_cuda_picked p = put_picked(r);
    aril_status s = aril_cuda_copy_whole(r, out, 0);
    if (s < 0 || is_empty(p)) return s;
    aril_cuda_carver w = aril_cuda_carver_of(r);
    scratch at = scratch_of(&w, p);
    const void *values;
    s = aril_cuda_values(r, 1, at.number, &values);
    if (s < 0) return s;
    return add_picked(r, p, aril_cuda_locator_of(r, out, p, 2), aril_cuda_in(r, 1), values, at);
}

static aril_cuda_picked grad_picked(const aril_run *r)
{
    return aril_cuda_picked_of(r, aril_cuda_out(r, 0), 1, 1, 1);
}

size_t aril_cuda_embedding_grad_bytes(const aril_run *r)
{
    aril_cuda_carver w = {};
    scratch_of(&w, grad_picked(r));
    return w.used;
}

aril_status aril_cuda_embedding_grad_run(aril_run *r)
{
    aril_tensor *out = aril_cuda_out(r, 0);
    const aril_tensor *g = aril_cuda_in(r, 0);
    size_t bytes =
        (size_t)aril_cuda_host->numel(out) * (size_t)aril_cuda_size(aril_cuda_host->dtype(out));
    aril_status s = aril_cuda_clear(r, aril_cuda_data(out), bytes);
    if (s < 0 || aril_cuda_host->numel(g) == 0) return s;
    aril_cuda_picked p = grad_picked(r);
    aril_cuda_carver w = aril_cuda_carver_of(r);
    scratch at = scratch_of(&w, p);
    aril_cuda_locator l = aril_cuda_locator_of(r, out, p, 1);
    l.from_end = false;
    l.padding = aril_cuda_attrs<embedding_attrs>(r)->padding[0];
    return add_picked(r, p, l, g, aril_cuda_data(g), at);
}
