/* Margin losses over classes; the formulas are in ops/loss/loss_margin.c. A warp handles a row. */
#include "backend/cuda/block.cuh"
#include "backend/cuda/device/errors.cuh"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/loss/rows.cuh"
#include "backend/cuda/norm/param.cuh"

enum { ROWS = 4 }; /* of a block */

/* ---- multi_margin_loss ---- */

struct margins {
    const void *x, *g; /* g NULL: the loss, not the gradient */
    const int64_t *target;
    void *out;
    aril_cuda_param weight;
    int dtype;
    int64_t rows, n;
    bool square, sum_classes;
    double margin;
    aril_cuda_report report;
};

/* The loss is the sum of max(0, z)^p, z = margin - x[y] + x[c], over all c except y. NaN
 * propagates. */
template <typename C> static __global__ void multi_margin(margins a)
{
    int64_t i = (int64_t)blockIdx.x * ROWS + threadIdx.y;
    if (i >= a.rows) return; /* the same for the warp */
    int64_t y = a.target[i], at = i * a.n;
    bool wrong = y < 0 || y >= a.n;
    if (wrong) aril_cuda_fail(a.report, ARIL_CUDA_BAD_CLASS, y, a.n);
    C k = (wrong ? C(0) : a.weight.at<C>(y, 1)) / (a.sum_classes ? C(1) : (C)a.n);
    C hit = wrong ? C(0) : aril_cuda_load<C>(a.x, at + y, a.dtype), loss = 0, sum = 0;
    if (a.g) k *= aril_cuda_load<C>(a.g, i, a.dtype);
    for (int64_t c = threadIdx.x; c < a.n; c += 32) {
        C z = (C)a.margin - hit + aril_cuda_load<C>(a.x, at + c, a.dtype);
        bool in = c != y && !(z <= 0) && !wrong;
        C slope = !in ? C(0) : a.square ? 2 * k * z : k;
        if (in) loss += a.square ? z * z : z;
        if (a.g && c != y) aril_cuda_store<C>(a.out, at + c, a.dtype, slope);
        sum += slope;
    }
    loss = aril_cuda_warp_reduce<aril_cuda_sum>(loss);
    sum = aril_cuda_warp_reduce<aril_cuda_sum>(sum);
    if (threadIdx.x) return;
    if (!a.g)
        aril_cuda_store<C>(a.out, i, a.dtype, k * loss);
    else if (!wrong)
        aril_cuda_store<C>(a.out, at + y, a.dtype, -sum);
}

static margins margins_of(const aril_run *r, const aril_tensor *g, int x, int target, int weight)
{
    const aril_host *h = aril_cuda_host;
    const aril_tensor *t = aril_cuda_in(r, x);
    margins a = {};
    a.x = aril_cuda_data(t);
    a.g = g ? aril_cuda_data(g) : nullptr;
    a.target = (const int64_t *)aril_cuda_data(aril_cuda_in(r, target));
    a.out = aril_cuda_data(aril_cuda_out(r, 0));
    if (weight >= 0) a.weight = aril_cuda_param_of(r, weight);
    a.dtype = h->dtype(t);
    a.n = aril_cuda_dim(t, -1);
    a.rows = h->ndim(t) == 2 ? h->dims(t)[0] : 1;
    a.report = aril_cuda_report_of(r);
    return a;
}

static aril_status run_multi_margin(aril_run *r, margins a)
{
    const aril_host *h = aril_cuda_host;
    a.square = *h->attr_i64(r, "p") == 2;
    a.margin = *h->attr_f64(r, "margin");
    a.sum_classes = *h->attr_i64(r, "sum_classes");
    if (a.rows == 0 || (a.g && a.n == 0)) return ARIL_OK;
    unsigned blocks = (unsigned)((a.rows + ROWS - 1) / ROWS);
    if (a.dtype == ARIL_F64)
        multi_margin<double><<<blocks, dim3(32, ROWS), 0, aril_cuda_stream(r)>>>(a);
    else
        multi_margin<float><<<blocks, dim3(32, ROWS), 0, aril_cuda_stream(r)>>>(a);
    return aril_cuda_launched(r);
}

/* in: x, target, weight? */
aril_status aril_cuda_multi_margin_loss_run(aril_run *r)
{
    return run_multi_margin(r, margins_of(r, nullptr, 0, 1, 2));
}

/* in: g, x, target, weight? */
aril_status aril_cuda_multi_margin_loss_grad_run(aril_run *r)
{
    return run_multi_margin(r, margins_of(r, aril_cuda_in(r, 0), 1, 2, 3));
}

/* ---- multilabel_margin_loss ---- */

/* The length of a row's list of targets, which ends before the first negative one. Reports those
 * out of range anywhere in the row. The warp works together. */
static __device__ __forceinline__ int64_t list_length(const margins &a, const int64_t *list)
{
    int64_t end = a.n;
    for (int64_t i = threadIdx.x; i < a.n; i += 32) {
        int64_t y = list[i];
        if (y < -1 || y >= a.n) aril_cuda_fail(a.report, ARIL_CUDA_BAD_CLASS, y, a.n);
        if (y < 0 && i < end) end = i;
    }
    return aril_cuda_warp_reduce<aril_cuda_smallest>(end);
}

static __device__ __forceinline__ bool is_listed(const int64_t *list, int64_t length, int64_t c)
{
    for (int64_t i = 0; i < length; i++)
        if (list[i] == c) return true;
    return false;
}

/* The sum of max(0, 1 - x[y] + x[c]) over all targets y and all classes c that are none. */
template <typename C> static __global__ void multilabel_margin(margins a)
{
    int64_t row = (int64_t)blockIdx.x * ROWS + threadIdx.y;
    if (row >= a.rows) return;
    const int64_t *list = a.target + row * a.n;
    int64_t length = list_length(a, list), at = row * a.n;
    C loss = 0;
    for (int64_t c = threadIdx.x; c < a.n; c += 32) {
        if (is_listed(list, length, c)) continue;
        C other = aril_cuda_load<C>(a.x, at + c, a.dtype);
        for (int64_t i = 0; i < length; i++) {
            if (list[i] >= a.n) continue; /* reported */
            C z = 1 - aril_cuda_load<C>(a.x, at + list[i], a.dtype) + other;
            if (!(z <= 0)) loss += z;
        }
    }
    loss = aril_cuda_warp_reduce<aril_cuda_sum>(loss);
    if (threadIdx.x == 0) aril_cuda_store<C>(a.out, row, a.dtype, loss / (C)a.n);
}

/* Counts the pairs above 0 that a class is part of: as the target, downwards, or as the other. */
template <typename C> static __global__ void multilabel_margin_grad(margins a)
{
    int64_t row = (int64_t)blockIdx.x * ROWS + threadIdx.y;
    if (row >= a.rows) return;
    const int64_t *list = a.target + row * a.n;
    int64_t length = list_length(a, list), at = row * a.n;
    C g = aril_cuda_load<C>(a.g, row, a.dtype) / (C)a.n;
    for (int64_t k = threadIdx.x; k < a.n; k += 32) {
        C own = aril_cuda_load<C>(a.x, at + k, a.dtype);
        int64_t times = 0, count = 0;
        for (int64_t i = 0; i < length; i++) times += list[i] == k;
        for (int64_t c = 0; c < a.n && times; c++)
            if (!is_listed(list, length, c) &&
                !(1 - own + aril_cuda_load<C>(a.x, at + c, a.dtype) <= 0))
                count -= times;
        for (int64_t i = 0; i < length && !times; i++)
            if (list[i] < a.n && !(1 - aril_cuda_load<C>(a.x, at + list[i], a.dtype) + own <= 0))
                count++;
        aril_cuda_store<C>(a.out, at + k, a.dtype, g * (C)count);
    }
}

/* in: x, target */
aril_status aril_cuda_multilabel_margin_loss_run(aril_run *r)
{
    margins a = margins_of(r, nullptr, 0, 1, -1);
    unsigned blocks = (unsigned)((a.rows + ROWS - 1) / ROWS);
    if (a.rows == 0) return ARIL_OK;
    if (a.dtype == ARIL_F64)
        multilabel_margin<double><<<blocks, dim3(32, ROWS), 0, aril_cuda_stream(r)>>>(a);
    else
        multilabel_margin<float><<<blocks, dim3(32, ROWS), 0, aril_cuda_stream(r)>>>(a);
    return aril_cuda_launched(r);
}

/* in: g, x, target */
aril_status aril_cuda_multilabel_margin_loss_grad_run(aril_run *r)
{
    margins a = margins_of(r, aril_cuda_in(r, 0), 1, 2, -1);
    unsigned blocks = (unsigned)((a.rows + ROWS - 1) / ROWS);
    if (a.rows == 0 || a.n == 0) return ARIL_OK;
    if (a.dtype == ARIL_F64)
        multilabel_margin_grad<double><<<blocks, dim3(32, ROWS), 0, aril_cuda_stream(r)>>>(a);
    else
        multilabel_margin_grad<float><<<blocks, dim3(32, ROWS), 0, aril_cuda_stream(r)>>>(a);
    return aril_cuda_launched(r);
}
