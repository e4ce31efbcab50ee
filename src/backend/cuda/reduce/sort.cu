/* sort, topk, and ops that select one element of each line. */
#include "backend/cuda/block.cuh"
#include "backend/cuda/reduce/keys.cuh"
#include "backend/cuda/reduce/rows.cuh"

/* Lines along the axis, and where results go. */
struct sorted_lines {
    aril_cuda_axes at; /* operands: x, values, indices */
    int64_t n, step[3];
    int dtype, size;
    const void *x;
    void *values;
    int64_t *indices;

    /* Element k of a line becomes element `to` of its results. */
    __device__ __forceinline__ void give(int64_t line, int64_t k, int64_t to) const
    {
        int64_t o[3];
        at.offsets(line, o);
        int64_t from = o[0] + k * step[0], value = o[1] + to * step[1];
        ARIL_CUDA_SWITCH_SIZE(size, S,
                              static_cast<S *>(values)[value] = static_cast<const S *>(x)[from]);
        indices[o[2] + to * step[2]] = k;
    }
};

static sorted_lines lines_of(const aril_run *r)
{
    const aril_host *h = aril_cuda_host;
    const aril_tensor *x = aril_cuda_in(r, 0),
                      *out[] = { aril_cuda_out(r, 0), aril_cuda_out(r, 1) };
    int64_t axis = *h->attr_i64(r, "axis");
    int ndim = h->ndim(x), at = 0;
    bool same = h->ndim(out[0]) == ndim; /* the axis is still there */
    sorted_lines l = {};
    aril_cuda_dims kept = {};
    l.n = 1;
    for (int d = 0; d < ndim; d++) {
        if (d == axis) {
            l.n = h->dims(x)[d];
            l.step[0] = h->strides(x)[d];
            for (int k = 0; k < 2 && same; k++) l.step[1 + k] = h->strides(out[k])[d];
            at += same;
            continue;
        }
        kept.dim[kept.ndim] = h->dims(x)[d];
        kept.stride[0][kept.ndim] = h->strides(x)[d];
        for (int k = 0; k < 2; k++) kept.stride[1 + k][kept.ndim] = h->strides(out[k])[at];
        kept.ndim++;
        at++;
    }
    aril_cuda_dims_merge(&kept, true);
    l.at = aril_cuda_axes_of(&kept);
    l.dtype = h->dtype(x);
    l.size = aril_cuda_size(l.dtype);
    return l;
}

static void fill_in(const aril_run *r, sorted_lines *l)
{
    l->x = aril_cuda_data(aril_cuda_in(r, 0));
    l->values = aril_cuda_data(aril_cuda_out(r, 0));
    l->indices = (int64_t *)aril_cuda_data(aril_cuda_out(r, 1));
}

size_t aril_cuda_sort_workspace(const aril_run *r)
{
    sorted_lines l = lines_of(r);
    size_t each = aril_cuda_keys_short(l.dtype, l.n) ? 8 : 16;
    return (size_t)aril_cuda_sort_elements(l.at.count, l.n) * each;
}

/* Sorts with the keys that the dtype needs: f(keys, sorted). */
template <typename F>
static void sort_lines(const aril_run *r, const sorted_lines &l, bool down, int64_t limit, F &&f)
{
    aril_cuda_key_lines from = { l.x, l.dtype, l.at, l.step[0], down };
    void *workspace = aril_cuda_host->workspace(r);
    if (aril_cuda_keys_short(l.dtype, l.n)) {
        aril_cuda_short_keys keys = { from };
        f(keys, aril_cuda_sort_lines(r, keys, l.at.count, l.n, limit, (uint64_t *)workspace));
    } else {
        aril_cuda_long_keys keys = { from };
        f(keys,
          aril_cuda_sort_lines(r, keys, l.at.count, l.n, limit, (aril_cuda_long_key *)workspace));
    }
}

/* ---- sort, topk ---- */

template <typename Keys>
static __global__ void give_first(const __grid_constant__ sorted_lines l,
                                  const typename Keys::E *sorted, int64_t count)
{
    int64_t total = l.at.count * count;
    ARIL_CUDA_LOOP(i, total)
    {
        int64_t line = i / count, k = i % count;
        l.give(line, Keys::position(sorted[line * l.n + k]), k);
    }
}

aril_status aril_cuda_sort_run(aril_run *r)
{
    const aril_host *h = aril_cuda_host;
    sorted_lines l = lines_of(r);
    fill_in(r, &l);
    int64_t total = h->numel(aril_cuda_out(r, 0));
    if (total == 0) return ARIL_OK;
    int64_t count = total / l.at.count; /* only the first k in topk */
    sort_lines(r, l, *h->attr_i64(r, "down"), count, [&](auto keys, auto *sorted) {
        give_first<decltype(keys)>
            <<<aril_cuda_blocks(r, total, 256), 256, 0, aril_cuda_stream(r)>>>(l, sorted, count);
    });
    return aril_cuda_launched(r);
}

/* ---- one of each line ---- */

enum choice { KTH, MEDIAN, NANMEDIAN };

template <typename Keys>
static __global__ void give_one(const __grid_constant__ sorted_lines l,
                                const typename Keys::E *sorted, choice what, int64_t k)
{
    ARIL_CUDA_LOOP(line, l.at.count)
    {
        const typename Keys::E *s = sorted + line * l.n;
        int64_t at = k;
        if (what != KTH) { /* NaN comes last */
            int64_t numbers = aril_cuda_is_float(l.dtype)
                                  ? aril_cuda_lower_bound<Keys>(s, l.n, Keys::nan())
                                  : l.n;
            at = what == NANMEDIAN ? (numbers ? (numbers - 1) / 2 : 0)
                 : numbers < l.n   ? numbers
                                   : (numbers - 1) / 2;
        }
        l.give(line, Keys::position(s[at]), 0);
    }
}

static aril_status run_one(aril_run *r, choice what)
{
    sorted_lines l = lines_of(r);
    fill_in(r, &l);
    int64_t k = *aril_cuda_host->attr_i64(r, "k");
    if (l.at.count == 0 || l.n == 0) return ARIL_OK;
    sort_lines(r, l, false, what == KTH ? k + 1 : l.n, [&](auto keys, auto *sorted) {
        give_one<decltype(keys)>
            <<<aril_cuda_blocks(r, l.at.count, 128), 128, 0, aril_cuda_stream(r)>>>(l, sorted, what,
                                                                                    k);
    });
    return aril_cuda_launched(r);
}

aril_status aril_cuda_kthvalue_run(aril_run *r)
{
    return run_one(r, KTH);
}
aril_status aril_cuda_median_run(aril_run *r)
{
    return run_one(r, MEDIAN);
}
aril_status aril_cuda_nanmedian_run(aril_run *r)
{
    return run_one(r, NANMEDIAN);
}

/* ---- mode ---- */

/* A run of equal elements that ends at `at`: the longest wins, then the first. */
struct stretch {
    int64_t length, at;
};
template <typename T> struct longest {
    static __device__ __forceinline__ T of(T a, T b)
    {
        return b.length > a.length || (b.length == a.length && b.at < a.at) ? b : a;
    }
};

/* The last element of the longest run of equal ones, the first such run. NaN equals nothing. */
template <typename Keys>
static __global__ void give_mode(const __grid_constant__ sorted_lines l,
                                 const typename Keys::E *sorted)
{
    for (int64_t line = blockIdx.x; line < l.at.count; line += gridDim.x) {
        const typename Keys::E *s = sorted + line * l.n;
        stretch best = { 0, INT64_MAX };
        for (int64_t k = threadIdx.x; k < l.n; k += blockDim.x) {
            uint64_t key = Keys::key(s[k]);
            bool nan = aril_cuda_is_float(l.dtype) && key == Keys::nan();
            int64_t length = nan ? 1 : k - aril_cuda_lower_bound<Keys>(s, k, key) + 1;
            best = longest<stretch>::of(best, { length, k });
        }
        best = aril_cuda_block_reduce<longest, stretch>(best, { 0, INT64_MAX });
        if (threadIdx.x == 0) l.give(line, Keys::position(s[best.at]), 0);
    }
}

aril_status aril_cuda_mode_run(aril_run *r)
{
    sorted_lines l = lines_of(r);
    fill_in(r, &l);
    if (l.at.count == 0 || l.n == 0) return ARIL_OK;
    unsigned threads = l.n <= 32 ? 32 : l.n <= 1024 ? 128 : 256;
    sort_lines(r, l, false, l.n, [&](auto keys, auto *sorted) {
        give_mode<decltype(keys)>
            <<<aril_cuda_blocks(r, l.at.count, 1), threads, 0, aril_cuda_stream(r)>>>(l, sorted);
    });
    return aril_cuda_launched(r);
}
