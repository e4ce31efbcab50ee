/* nll_loss and cross_entropy with class indices; the formulas are in ops/loss/nll.c. */
#include "backend/cuda/device/errors.cuh"
#include "backend/cuda/loss/rows.cuh"
#include "backend/cuda/norm/exponents.cuh"
#include "backend/cuda/norm/param.cuh"
#include "backend/cuda/number.cuh"
#include "backend/cuda/reduce/pass.cuh"

#include "aril/loss.h"

enum { MAX_THREADS = 1024 }; /* of a block that shares a row */

/* Rows of scores: class c of row i is element at(i) + c * inner. */
struct rows {
    const int64_t *target;
    aril_cuda_param weight;
    int64_t count, classes, inner, ignore;
    double smoothing;
    aril_cuda_report report;

    __device__ __forceinline__ int64_t at(int64_t i) const
    {
        return inner == 1 ? i * classes : i / inner * inner * classes + i % inner;
    }
    /* The class of row i; -1 if it is ignored, or wrong and reported. */
    __device__ __forceinline__ int64_t label(int64_t i) const
    {
        int64_t y = target[i];
        if (y == ignore) return -1;
        if (y >= 0 && y < classes) return y;
        aril_cuda_fail(report, ARIL_CUDA_BAD_CLASS, y, classes);
        return -1;
    }
};

static rows rows_of(const aril_run *r, const aril_tensor *x, int target, int weight)
{
    const aril_host *h = aril_cuda_host;
    int axis = h->ndim(x) > 1;
    const aril_tensor *t = aril_cuda_in(r, target);
    rows w = { (const int64_t *)aril_cuda_data(t),
               aril_cuda_param_of(r, weight),
               h->numel(t),
               h->dims(x)[axis],
               1,
               *h->attr_i64(r, "ignore_index"),
               *h->attr_f64(r, "label_smoothing"),
               aril_cuda_report_of(r) };
    for (int d = axis + 1; d < h->ndim(x); d++) w.inner *= h->dims(x)[d];
    return w;
}

/* ---- sums over rows ---- */

struct totals {
    double loss, weight;
};

/* The sum of losses (`each` NULL: none) and of the weights of the targets. */
struct totalling {
    typedef totals acc;
    typedef totals raw;
    struct mine {
    };
    enum { lanes = 1 };
    rows w;
    const void *each;
    int dtype;  /* of `each`: f32 or f64 */
    void *loss; /* gets the loss; NULL: `divisor` gets the sum of weights */
    int loss_dtype;
    double *divisor;
    bool mean;

    __device__ raw load(int64_t i, int64_t) const
    {
        int64_t y = w.label(i);
        return { each ? aril_cuda_load<double>(each, i, dtype) : 0,
                 y < 0 ? 0 : w.weight.at<double>(y, 1) };
    }
    __device__ mine begin(int64_t) const
    {
        return {};
    }
    __device__ acc neutral() const
    {
        return { 0, 0 };
    }
    __device__ acc combine(acc a, acc b) const
    {
        return { a.loss + b.loss, a.weight + b.weight };
    }
    __device__ void add(acc (&a)[1], const raw (&v)[ARIL_CUDA_REDUCE_UNROLL], int m, int64_t, int,
                        mine) const
    {
#pragma unroll
        for (int u = 0; u < ARIL_CUDA_REDUCE_UNROLL; u++)
            if (u < m) a[0] = combine(a[0], v[u]);
    }
    __device__ void finish(int64_t, int64_t, int64_t, int64_t, acc a) const
    {
        if (loss) /* NaN if there is nothing to average */
            aril_cuda_store<double>(loss, 0, loss_dtype, mean ? a.loss / a.weight : a.loss);
        else
            *divisor = a.weight;
    }
};

static aril_cuda_reduction over_rows(int64_t count)
{
    aril_cuda_dims kept = {}, red = {};
    red.ndim = 1;
    red.dim[0] = count;
    red.stride[0][0] = 1;
    aril_cuda_reduction r = aril_cuda_reduction_from(&kept, &red);
    aril_cuda_reduction_cut(&r);
    return r;
}

/* ---- logarithms of sums of exponentials ---- */

/* The logarithm of the whole sum is top + this: apart, as the tops of large scores cancel. */
template <typename C> static __device__ __forceinline__ C log_of(aril_cuda_exponents<C> e)
{
    return isinf(e.top) ? (C)NAN : log(e.sum);
}

/* What a pass over a row finds. */
template <typename C> struct found {
    aril_cuda_exponents<C> e;
    double weights, scores; /* with label smoothing: the sums of w[c] and w[c] * x[c] */
};

/* Of the elements of row i that this thread handles: chunks of neighbours in rows, so that several
 * reads are in flight and the maximum changes rarely. */
template <typename C, typename S>
static __device__ __forceinline__ found<C> scan_row(const rows &w, const S *x, int64_t first,
                                                    int64_t by)
{
    const int chunk = 8;
    found<C> f = { { -(C)INFINITY, 0 }, 0, 0 };
    for (int64_t c = first; c < w.classes; c += chunk * by) {
        C v[chunk], top = -(C)INFINITY, sum = 0;
#pragma unroll
        for (int k = 0; k < chunk; k++)
            v[k] =
                c + k * by < w.classes ? aril_cuda_to<C>(x[(c + k * by) * w.inner]) : -(C)INFINITY;
#pragma unroll
        for (int k = 0; k < chunk; k++) top = aril_cuda_largest<C>::of(top, v[k]);
#pragma unroll
        for (int k = 0; k < chunk; k++)
            sum += c + k * by >= w.classes ? C(0) : v[k] == top ? C(1) : exp(v[k] - top);
        f.e = aril_cuda_merging<aril_cuda_exponents<C>>::of(f.e, { top, sum });
        if (w.smoothing == 0) continue;
#pragma unroll
        for (int k = 0; k < chunk; k++)
            if (c + k * by < w.classes) {
                double p = w.weight.at<double>(c + k * by, 1);
                f.weights += p;
                f.scores += p * (double)v[k];
            }
    }
    return f;
}

/* The row of a thread: one for each thread (`Alone`), warp or block. */
template <bool Alone> static __device__ __forceinline__ int64_t row_number()
{
    if (Alone) return (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    return (int64_t)blockIdx.x * blockDim.y + threadIdx.y;
}

template <typename C, typename S, bool Alone>
static __device__ __forceinline__ found<C> find_row(const rows &w, const S *x)
{
    found<C> f = scan_row<C, S>(w, x, Alone ? 0 : threadIdx.x, Alone ? 1 : blockDim.x);
    if (Alone) return f;
    f.e =
        aril_cuda_block_reduce<aril_cuda_merging, aril_cuda_exponents<C>>(f.e, { -(C)INFINITY, 0 });
    if (w.smoothing != 0) {
        f.weights = aril_cuda_block_sum(f.weights);
        f.scores = aril_cuda_block_sum(f.scores);
    }
    return f;
}

/* The same for a block and a long row without weights of classes, which is read 16 bytes at a time;
 * Keep: and put into `kept`, but for its edges. */
template <typename C, typename S, bool Keep>
static __device__ __forceinline__ found<C> find_wide(const rows &w, const S *x,
                                                     const aril_cuda_wide_row<S> &wide,
                                                     typename aril_cuda_wide_row<S>::vector *kept)
{
    found<C> f = { aril_cuda_scan_wide<C, S, Keep>(wide, x, kept), (double)w.classes, 0 };
    if (w.smoothing == 0 || Keep) return f; /* gradients do not need the sum of scores */
    for (int c = (int)threadIdx.x; c < wide.n; c += (int)blockDim.x)
        f.scores += aril_cuda_to<double>(x[c]);
    f.scores = aril_cuda_block_sum(f.scores);
    return f;
}

/* ---- losses ---- */

template <typename C>
static __device__ __forceinline__ C loss_of(const rows &w, int64_t y, C score, const found<C> &f)
{
    C more = log_of(f.e), e = (C)w.smoothing;
    C loss = (1 - e) * w.weight.at<C>(y, 1) * (f.e.top - score + more);
    if (e == 0) return loss;
    double lse = (double)f.e.top + (double)more;
    return loss + (C)(w.smoothing / (double)w.classes * (lse * f.weights - f.scores));
}

template <typename C, typename S, bool Alone>
static __global__ void __launch_bounds__(Alone ? 128 : MAX_THREADS)
    cross_entropy_rows(rows w, const S *x, void *out, int dtype)
{
    int64_t i = row_number<Alone>();
    if (i >= w.count) return; /* the same for all that share a row */
    int64_t y = w.label(i);
    const S *row = x + w.at(i);
    C loss = 0;
    if (y >= 0) { /* likewise */
        found<C> f = find_row<C, S, Alone>(w, row);
        loss = loss_of(w, y, aril_cuda_to<C>(row[y * w.inner]), f);
    }
    if (Alone || threadIdx.x == 0) aril_cuda_store<C>(out, i, dtype, loss);
}

/* A block for each row. */
template <typename C, typename S>
static __global__ void __launch_bounds__(ARIL_CUDA_WIDE_THREADS)
    cross_entropy_wide(rows w, const S *x, void *out, int dtype)
{
    int64_t i = blockIdx.x, y = w.label(i);
    const S *row = x + i * w.classes;
    C loss = 0;
    if (y >= 0) {
        found<C> f = find_wide<C, S, false>(w, row, aril_cuda_wide_row<S>(row, w.classes), nullptr);
        loss = loss_of(w, y, aril_cuda_to<C>(row[y]), f);
    }
    if (threadIdx.x == 0) aril_cuda_store<C>(out, i, dtype, loss);
}

template <typename C>
static __global__ void nll_rows(rows w, const void *x, int dtype, void *out, int out_dtype)
{
    C e = (C)w.smoothing;
    ARIL_CUDA_LOOP(i, w.count)
    {
        int64_t y = w.label(i), at = w.at(i);
        C loss = 0;
        if (y >= 0) {
            loss = (1 - e) * w.weight.at<C>(y, 1) * -aril_cuda_load<C>(x, at + y * w.inner, dtype);
            for (int64_t c = 0; c < w.classes && e != 0; c++)
                loss += e / (C)w.classes * w.weight.at<C>(c, 1) *
                        -aril_cuda_load<C>(x, at + c * w.inner, dtype);
        }
        aril_cuda_store<C>(out, i, out_dtype, loss);
    }
}

/* Blocks and grid for rows of so many classes: a thread, a warp or a block for each. */
struct shape {
    dim3 grid, block;
    bool alone;
};
static shape shape_of(const rows &w)
{
    int64_t each = 1;
    shape s = { dim3(1), dim3(128), w.inner > 1 || w.classes <= 8 };
    if (s.alone) {
        each = 128;
    } else if (w.classes <= 1024) {
        s.block = dim3(32, 4);
        each = 4;
    } else {
        s.block = dim3(w.classes <= 8192 ? 256 : MAX_THREADS);
    }
    s.grid = dim3((unsigned)((w.count + each - 1) / each));
    return s;
}

/* Whether a block may take a row in vectors: weights of classes are read only for targets. */
static bool is_wide(const rows &w)
{
    return w.inner == 1 && (w.smoothing == 0 || !w.weight.base);
}

template <typename C, typename S>
static void launch_loss(cudaStream_t stream, const rows &w, const void *x, void *out, int dtype)
{
    shape s = shape_of(w);
    if (is_wide(w) && aril_cuda_wide_fits(w.classes, x, x))
        cross_entropy_wide<C, S>
            <<<(unsigned)w.count, aril_cuda_wide_threads(w.classes), 0, stream>>>(w, (const S *)x,
                                                                                  out, dtype);
    else if (s.alone)
        cross_entropy_rows<C, S, true><<<s.grid, s.block, 0, stream>>>(w, (const S *)x, out, dtype);
    else
        cross_entropy_rows<C, S, false>
            <<<s.grid, s.block, 0, stream>>>(w, (const S *)x, out, dtype);
}

static bool is_each(const aril_run *r)
{
    return *aril_cuda_host->attr_i64(r, "reduction") == ARIL_NONE;
}

static size_t aligned(size_t bytes)
{
    return (bytes + 15) / 16 * 16;
}

/* Losses of all rows in f32 or f64, then partial sums. */
static size_t loss_workspace(const aril_run *r)
{
    int64_t count = aril_cuda_host->numel(aril_cuda_in(r, 1));
    if (is_each(r)) return 0;
    return aligned((size_t)count * sizeof(double)) +
           aril_cuda_reduce_bytes(over_rows(count), sizeof(totals));
}

static aril_status run_loss(aril_run *r, bool softmax)
{
    const aril_tensor *t = aril_cuda_in(r, 0);
    rows w = rows_of(r, t, 1, 2);
    aril_tensor *loss = aril_cuda_out(r, 0);
    int dtype = aril_cuda_host->dtype(t), out_dtype = aril_cuda_host->dtype(loss);
    const void *x = aril_cuda_data(t);
    bool wide = dtype == ARIL_F64;
    char *workspace = (char *)aril_cuda_host->workspace(r);
    void *out = is_each(r) ? aril_cuda_data(loss) : workspace;
    int each_dtype = is_each(r) ? out_dtype : wide ? ARIL_F64 : ARIL_F32;
    cudaStream_t stream = aril_cuda_stream(r);
    if (w.count > 0 && softmax) {
        ARIL_CUDA_SWITCH_FLOAT(
            dtype, S,
            launch_loss<typename aril_cuda_type<S>::compute, S>(stream, w, x, out, each_dtype));
    } else if (w.count > 0) {
        unsigned blocks = aril_cuda_blocks(r, w.count, 128);
        if (wide)
            nll_rows<double><<<blocks, 128, 0, stream>>>(w, x, dtype, out, each_dtype);
        else
            nll_rows<float><<<blocks, 128, 0, stream>>>(w, x, dtype, out, each_dtype);
    }
    if (!is_each(r)) {
        totalling op = { w,
                         out,
                         each_dtype,
                         aril_cuda_data(loss),
                         out_dtype,
                         nullptr,
                         *aril_cuda_host->attr_i64(r, "reduction") == ARIL_MEAN };
        aril_cuda_reduce_launch(stream, op, over_rows(w.count),
                                workspace + aligned((size_t)w.count * sizeof(double)));
    }
    return aril_cuda_launched(r);
}

aril_status aril_cuda_nll_loss_run(aril_run *r)
{
    return run_loss(r, false);
}
aril_status aril_cuda_cross_entropy_run(aril_run *r)
{
    return run_loss(r, true);
}
size_t aril_cuda_nll_loss_workspace(const aril_run *r)
{
    return loss_workspace(r);
}
size_t aril_cuda_cross_entropy_workspace(const aril_run *r)
{
    return loss_workspace(r);
}

/* ---- gradients ---- */

/* The gradient of each loss, or of their sum or mean. */
template <typename C> struct incoming {
    const void *each; /* NULL: `one` */
    int dtype;
    aril_cuda_scalar<C> one;
    const double *divisor; /* NULL: 1 */

    __device__ __forceinline__ C at(int64_t i) const
    {
        C g = each ? aril_cuda_load<C>(each, i, dtype) : one.read();
        return divisor ? g / (C)*divisor : g;
    }
};

/* The gradient of a row: of class c it is k * (all * p[c] - share[c]). */
template <typename C, typename S> struct slope {
    C k, all, hit, e, top, more;

    __device__ __forceinline__ slope(const rows &w, int64_t y, C incoming, const found<C> &f)
        : k(incoming), e((C)w.smoothing / (C)w.classes), top(f.e.top), more(log_of(f.e))
    {
        hit = (1 - (C)w.smoothing) * w.weight.at<C>(y, 1);
        all = hit + e * (C)f.weights;
    }
    /* `part`: of label smoothing */
    __device__ __forceinline__ C at(bool is_y, C x, C part) const
    {
        C share = (is_y ? hit : C(0)) + part;
        return k * (all * aril_cuda_exp_for<S>(x - top - more) - share);
    }
};

template <typename C, typename S, bool Alone>
static __global__ void __launch_bounds__(Alone ? 128 : MAX_THREADS)
    cross_entropy_grads(rows w, incoming<C> in, const S *x, S *dx)
{
    int64_t i = row_number<Alone>();
    if (i >= w.count) return;
    int64_t y = w.label(i), first = Alone ? 0 : threadIdx.x, by = Alone ? 1 : blockDim.x;
    const S *row = x + w.at(i);
    S *to = dx + w.at(i);
    if (y < 0) {
        for (int64_t c = first; c < w.classes; c += by) to[c * w.inner] = aril_cuda_from<S>(C(0));
        return;
    }
    found<C> f = find_row<C, S, Alone>(w, row);
    const slope<C, S> d(w, y, in.at(i), f);
    for (int64_t c = first; c < w.classes; c += by) {
        C part = d.e != 0 ? d.e * w.weight.at<C>(c, 1) : C(0);
        to[c * w.inner] = aril_cuda_from<S>(d.at(c == y, aril_cuda_to<C>(row[c * w.inner]), part));
    }
}

/* A block for each row, which is kept in shared memory (`Keep`) or read twice. */
template <typename C, typename S, bool Keep>
static __global__ void __launch_bounds__(ARIL_CUDA_WIDE_THREADS)
    cross_entropy_grads_wide(rows w, incoming<C> in, const S *x, S *dx)
{
    typedef typename aril_cuda_wide_row<S>::vector vector;
    extern __shared__ uint4 shared[];
    int64_t i = blockIdx.x, y = w.label(i);
    const S *row = x + i * w.classes;
    S *to = dx + i * w.classes;
    const aril_cuda_wide_row<S> wide(row, w.classes);
    vector *kept = Keep ? reinterpret_cast<vector *>(shared) : nullptr;
    const vector *again = Keep ? kept : reinterpret_cast<const vector *>(row + wide.head);
    vector *out = reinterpret_cast<vector *>(to + wide.head);
    int edge = wide.edge();
    if (y < 0) {
        vector zero;
#pragma unroll
        for (int k = 0; k < wide.wide; k++) zero.at[k] = aril_cuda_from<S>(C(0));
        for (int v = (int)threadIdx.x; v < wide.vectors; v += (int)blockDim.x) out[v] = zero;
        if (edge >= 0) to[edge] = zero.at[0];
        return;
    }
    const slope<C, S> d(w, y, in.at(i), find_wide<C, S, Keep>(w, row, wide, kept));
    if (edge >= 0)
        to[edge] = aril_cuda_from<S>(d.at(edge == (int)y, aril_cuda_to<C>(row[edge]), d.e));
    wide.each(again, [&](int v, vector g) {
        int hit = (int)y - wide.at(v); /* which of them is the target */
#pragma unroll
        for (int k = 0; k < wide.wide; k++)
            g.at[k] = aril_cuda_from<S>(d.at(k == hit, aril_cuda_to<C>(g.at[k]), d.e));
        out[v] = g;
    });
}

template <typename C>
static __global__ void nll_grads(rows w, incoming<C> in, void *dx, int dtype, int64_t numel)
{
    C e = (C)w.smoothing / (C)w.classes;
    ARIL_CUDA_LOOP(at, numel)
    {
        int64_t c = at / w.inner % w.classes;
        int64_t i = at / (w.inner * w.classes) * w.inner + at % w.inner, y = w.label(i);
        C d = 0;
        if (y >= 0) {
            C hit = c == y ? (1 - (C)w.smoothing) * w.weight.at<C>(y, 1) : C(0);
            d = -in.at(i) * (hit + (e != 0 ? e * w.weight.at<C>(c, 1) : C(0)));
        }
        aril_cuda_store<C>(dx, at, dtype, d);
    }
}

static bool is_mean(const aril_run *r)
{
    return *aril_cuda_host->attr_i64(r, "reduction") == ARIL_MEAN;
}

/* The divisor of the mean, then partial sums of weights. */
static size_t grad_workspace(const aril_run *r, int target)
{
    int64_t count = aril_cuda_host->numel(aril_cuda_in(r, target));
    if (!is_mean(r)) return 0;
    return 16 + aril_cuda_reduce_bytes(over_rows(count), sizeof(totals));
}

/* Queues the computation of the divisor; NULL if there is none. */
static const double *divide_by(aril_run *r, const rows &w)
{
    char *workspace = (char *)aril_cuda_host->workspace(r);
    if (!is_mean(r)) return nullptr;
    totalling op = { w, nullptr, ARIL_F64, nullptr, ARIL_F64, (double *)workspace, true };
    aril_cuda_reduce_launch(aril_cuda_stream(r), op, over_rows(w.count), workspace + 16);
    return (const double *)workspace;
}

template <typename C> static incoming<C> incoming_of(const aril_run *r, const double *divisor)
{
    const aril_tensor *g = aril_cuda_in(r, 0);
    incoming<C> in = { nullptr, (int)aril_cuda_host->dtype(g), {}, divisor };
    if (is_each(r))
        in.each = aril_cuda_data(g);
    else
        in.one = aril_cuda_scalar_of<C>(r, 0);
    return in;
}

template <typename C, typename S>
static aril_status launch_wide_grad(aril_run *r, const rows &w, const incoming<C> &in, const S *x,
                                    S *dx)
{
    unsigned threads = aril_cuda_wide_threads(w.classes);
    size_t bytes = aril_cuda_wide_bytes(r, w.classes, sizeof(S));
    auto kernel =
        bytes ? cross_entropy_grads_wide<C, S, true> : cross_entropy_grads_wide<C, S, false>;
    aril_status s = aril_cuda_allow_shared(r, kernel, bytes);
    if (s < 0) return s;
    kernel<<<(unsigned)w.count, threads, bytes, aril_cuda_stream(r)>>>(w, in, x, dx);
    return ARIL_OK;
}

template <typename C, typename S>
static aril_status launch_grad(aril_run *r, const rows &w, const double *divisor, const void *x,
                               void *dx)
{
    shape s = shape_of(w);
    incoming<C> in = incoming_of<C>(r, divisor);
    cudaStream_t stream = aril_cuda_stream(r);
    if (is_wide(w) && aril_cuda_wide_fits(w.classes, x, dx))
        return launch_wide_grad<C, S>(r, w, in, (const S *)x, (S *)dx);
    if (s.alone)
        cross_entropy_grads<C, S, true>
            <<<s.grid, s.block, 0, stream>>>(w, in, (const S *)x, (S *)dx);
    else
        cross_entropy_grads<C, S, false>
            <<<s.grid, s.block, 0, stream>>>(w, in, (const S *)x, (S *)dx);
    return ARIL_OK;
}

/* in: g, x, target, weight? */
aril_status aril_cuda_cross_entropy_grad_run(aril_run *r)
{
    const aril_tensor *x = aril_cuda_in(r, 1);
    rows w = rows_of(r, x, 2, 3);
    if (w.count == 0 || w.classes == 0) return ARIL_OK;
    const double *divisor = divide_by(r, w);
    aril_status s = ARIL_OK;
    ARIL_CUDA_SWITCH_FLOAT(aril_cuda_host->dtype(x), S,
                           s = launch_grad<typename aril_cuda_type<S>::compute, S>(
                               r, w, divisor, aril_cuda_data(x),
                               aril_cuda_data(aril_cuda_out(r, 0))));
    return s == ARIL_OK ? aril_cuda_launched(r) : s;
}

/* in: g, target, weight?, x, of which only the shape is read */
aril_status aril_cuda_nll_loss_grad_run(aril_run *r)
{
    rows w = rows_of(r, aril_cuda_in(r, 3), 1, 2);
    aril_tensor *dx = aril_cuda_out(r, 0);
    int64_t numel = aril_cuda_host->numel(dx);
    int dtype = aril_cuda_host->dtype(dx);
    if (numel == 0) return ARIL_OK;
    const double *divisor = divide_by(r, w);
    unsigned blocks = aril_cuda_blocks(r, numel, 256);
    if (dtype == ARIL_F64)
        nll_grads<double>
            <<<blocks, 256, 0, aril_cuda_stream(r)>>>(w, incoming_of<double>(r, divisor),
                                                      aril_cuda_data(dx), dtype, numel);
    else
        nll_grads<float><<<blocks, 256, 0, aril_cuda_stream(r)>>>(w, incoming_of<float>(r, divisor),
                                                                  aril_cuda_data(dx), dtype, numel);
    return aril_cuda_launched(r);
}

size_t aril_cuda_cross_entropy_grad_workspace(const aril_run *r)
{
    return grad_workspace(r, 2);
}
size_t aril_cuda_nll_loss_grad_workspace(const aril_run *r)
{
    return grad_workspace(r, 1);
}
