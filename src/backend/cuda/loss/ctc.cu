/* Connectionist temporal classification; the formulas are in ops/loss/ctc.c. A block handles a
 * sample: its threads the states, times in order. Logarithms of probabilities are f64. */
#include "backend/cuda/device/errors.cuh"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/dtype.cuh"
#include "backend/cuda/loss/rows.cuh"

struct problem {
    const void *x; /* [T,N,C] */
    int dtype;
    const int64_t *targets, *times, *lengths;
    int64_t t, n, c, labels, width; /* labels: in all; width of [N,S], or 0: concatenated */
    int64_t blank;
    bool zero_infinity;
    int64_t *start; /* [N]: where the labels of a sample begin; -1: it is wrong, and reported */
    double *alpha, *beta; /* [T][states] of each sample; beta NULL: no gradient */
    aril_cuda_report report;

    /* One after the other, with 2 S + 1 states each. */
    __device__ int64_t memory(int64_t i) const
    {
        return t * (2 * start[i] + i);
    }
};

/* Checks lengths and finds where labels begin: in order, by one thread, as starts add up. */
static __global__ void find_starts(problem p)
{
    int64_t next = 0;
    for (int64_t i = 0; i < p.n; i++) {
        int64_t first = p.width ? i * p.width : next, length = p.lengths[i];
        int64_t most = p.width ? p.width : p.labels - next;
        bool wrong = true;
        if (p.times[i] < 0 || p.times[i] > p.t)
            aril_cuda_fail(p.report, ARIL_CUDA_BAD_INPUT_LENGTH, p.times[i], p.t);
        else if (length < 0 || length > most)
            aril_cuda_fail(p.report, ARIL_CUDA_BAD_TARGET_LENGTH, length, most);
        else
            wrong = false;
        if (!wrong) next += length;
        p.start[i] = wrong ? -1 : first;
    }
}

struct sample {
    const int64_t *label;
    int64_t times, states, n;
};

/* The sample of a block; its labels are checked by all threads. */
static __device__ __forceinline__ bool sample_of(const problem &p, int64_t i, sample *s)
{
    if (p.start[i] < 0) return false;
    int64_t length = p.lengths[i];
    *s = { p.targets + p.start[i], p.times[i], 2 * length + 1, i };
    int wrong = 0;
    for (int64_t k = threadIdx.x; k < length; k += blockDim.x)
        if (s->label[k] < 0 || s->label[k] >= p.c) {
            aril_cuda_fail(p.report, ARIL_CUDA_BAD_LABEL, s->label[k], p.c);
            wrong = 1;
        }
    return !__syncthreads_or(wrong);
}

static __device__ __forceinline__ int64_t label_of(const problem &p, const sample &a, int64_t s)
{
    return s % 2 ? a.label[s / 2] : p.blank;
}

static __device__ __forceinline__ double emitted(const problem &p, const sample &a, int64_t t,
                                                 int64_t s)
{
    return aril_cuda_load<double>(p.x, (t * p.n + a.n) * p.c + label_of(p, a, s), p.dtype);
}

/* Whether state s may follow s - 2: different labels need no blank between them. */
static __device__ __forceinline__ bool may_skip(const sample &a, int64_t s)
{
    return s > 1 && s < a.states && s % 2 && a.label[s / 2] != a.label[s / 2 - 1];
}

/* log(exp(a) + exp(b) + exp(c)) */
static __device__ __forceinline__ double log_sum(double a, double b, double c)
{
    double max = a > b ? a : b;
    max = c > max ? c : max;
    if (max == -INFINITY) return -INFINITY;
    return max + log(exp(a - max) + exp(b - max) + exp(c - max));
}

/* alpha[t][s]: over all alignments up to time t that end in state s. Returns the loss. */
static __device__ double forward(const problem &p, const sample &a)
{
    double *alpha = p.alpha + p.memory(a.n);
    if (a.times == 0) return a.states == 1 ? 0 : INFINITY;
    for (int64_t t = 0; t < a.times; t++) {
        double *now = alpha + t * a.states, *last = now - a.states;
        for (int64_t s = threadIdx.x; s < a.states; s += blockDim.x) {
            double sum = s < 2 ? 0 : -INFINITY;
            if (t > 0)
                sum = log_sum(last[s], s > 0 ? last[s - 1] : -INFINITY,
                              may_skip(a, s) ? last[s - 2] : -INFINITY);
            now[s] = sum + emitted(p, a, t, s);
        }
        __syncthreads();
    }
    const double *end = alpha + a.times * a.states;
    return -log_sum(end[-1], a.states > 1 ? end[-2] : -INFINITY, -INFINITY);
}

/* beta[t][s]: over all alignments after time t that begin in state s at time t. */
static __device__ void backward(const problem &p, const sample &a)
{
    double *beta = p.beta + p.memory(a.n);
    for (int64_t t = a.times - 1; t >= 0; t--) {
        double *now = beta + t * a.states, *next = now + a.states;
        for (int64_t s = threadIdx.x; s < a.states; s += blockDim.x) {
            double sum = s >= a.states - 2 ? 0 : -INFINITY;
            if (t < a.times - 1) {
                double one =
                    s + 1 < a.states ? next[s + 1] + emitted(p, a, t + 1, s + 1) : -INFINITY;
                double two =
                    may_skip(a, s + 2) ? next[s + 2] + emitted(p, a, t + 1, s + 2) : -INFINITY;
                sum = log_sum(next[s] + emitted(p, a, t + 1, s), one, two);
            }
            now[s] = sum;
        }
        __syncthreads();
    }
}

/* out: the loss of each sample; with a gradient, that goes to f64 memory. */
static __global__ void align(problem p, void *out, int dtype)
{
    sample a;
    int64_t i = blockIdx.x;
    bool valid = sample_of(p, i, &a);
    double loss = 0;
    if (valid) { /* the same for the block */
        loss = forward(p, a);
        if (p.beta) backward(p, a);
        if (!p.beta && p.zero_infinity && isinf(loss)) loss = 0;
    }
    if (threadIdx.x == 0) aril_cuda_store<double>(out, i, dtype, loss);
}

/* d loss / d x[t][c] = -sum over states s with label c of the fraction of alignments in s at time
 * t. A block handles one time of a sample: the first state of each label adds up all of them. */
static __global__ void spread(problem p, const double *losses, const void *g, void *out)
{
    int64_t i = blockIdx.x % p.n, t = blockIdx.x / p.n, to = (t * p.n + i) * p.c;
    double loss = losses[i], slope = -aril_cuda_load<double>(g, i, p.dtype);
    sample a;
    bool valid = sample_of(p, i, &a);
    bool nothing = !valid || t >= a.times || (p.zero_infinity && isinf(loss));
    /* In the reference classes without a state get -g * 0. */
    for (int64_t c = threadIdx.x; c < p.c; c += blockDim.x)
        aril_cuda_store<double>(out, to + c, p.dtype, slope * 0);
    __syncthreads();
    if (nothing) return;
    const double *alpha = p.alpha + p.memory(i) + t * a.states;
    const double *beta = p.beta + p.memory(i) + t * a.states;
    for (int64_t s = threadIdx.x; s < a.states; s += blockDim.x) {
        int64_t label = label_of(p, a, s);
        bool first = true;
        for (int64_t k = 0; k < s && first; k++) first = label_of(p, a, k) != label;
        if (!first) continue;
        double sum = 0;
        for (int64_t k = s; k < a.states; k++)
            if (label_of(p, a, k) == label) sum += exp(alpha[k] + beta[k] + loss);
        aril_cuda_store<double>(out, to + label, p.dtype, slope * sum);
    }
}

/* ---- runs ---- */

/* Inputs from `first` on: x, targets, input lengths, target lengths. Workspace: starts, alpha and,
 * for the gradient, losses and beta. */
static problem problem_of(const aril_run *r, int first)
{
    const aril_host *h = aril_cuda_host;
    const aril_tensor *x = aril_cuda_in(r, first), *y = aril_cuda_in(r, first + 1);
    problem p = {};
    p.dtype = h->dtype(x);
    p.t = h->dims(x)[0];
    p.n = h->dims(x)[1];
    p.c = h->dims(x)[2];
    p.labels = h->numel(y);
    p.width = h->ndim(y) == 2 ? h->dims(y)[1] : 0;
    p.blank = *h->attr_i64(r, "blank");
    p.zero_infinity = *h->attr_i64(r, "zero_infinity");
    return p;
}

static int64_t states_of(const problem &p)
{
    return p.t * (2 * p.labels + p.n);
}

static size_t workspace_of(const problem &p, bool gradient)
{
    size_t states = (size_t)states_of(p) * sizeof(double), each = (size_t)p.n * sizeof(double);
    return gradient ? 2 * each + 2 * states : each + states;
}

static void fill_in(aril_run *r, int first, bool gradient, problem *p)
{
    int64_t *workspace = (int64_t *)aril_cuda_host->workspace(r);
    p->x = aril_cuda_data(aril_cuda_in(r, first));
    p->targets = (const int64_t *)aril_cuda_data(aril_cuda_in(r, first + 1));
    p->times = (const int64_t *)aril_cuda_data(aril_cuda_in(r, first + 2));
    p->lengths = (const int64_t *)aril_cuda_data(aril_cuda_in(r, first + 3));
    p->start = workspace;
    p->alpha = (double *)(workspace + (gradient ? 2 : 1) * p->n);
    p->beta = gradient ? p->alpha + states_of(*p) : nullptr;
    p->report = aril_cuda_report_of(r);
}

/* Threads for the states of the longest target there may be. */
static unsigned threads_for(const problem &p)
{
    int64_t states = 2 * (p.width ? p.width : p.n ? 2 * p.labels / p.n : 0) + 1;
    return states <= 32 ? 32 : states <= 64 ? 64 : states <= 128 ? 128 : 256;
}

size_t aril_cuda_ctc_loss_workspace(const aril_run *r)
{
    return workspace_of(problem_of(r, 0), false);
}
size_t aril_cuda_ctc_loss_grad_workspace(const aril_run *r)
{
    return workspace_of(problem_of(r, 1), true);
}

aril_status aril_cuda_ctc_loss_run(aril_run *r)
{
    problem p = problem_of(r, 0);
    aril_tensor *out = aril_cuda_out(r, 0);
    cudaStream_t stream = aril_cuda_stream(r);
    if (p.n == 0) return ARIL_OK;
    fill_in(r, 0, false, &p);
    find_starts<<<1, 1, 0, stream>>>(p);
    align<<<(unsigned)p.n, threads_for(p), 0, stream>>>(p, aril_cuda_data(out),
                                                        aril_cuda_host->dtype(out));
    return aril_cuda_launched(r);
}

/* in: g, then those of ctc_loss */
aril_status aril_cuda_ctc_loss_grad_run(aril_run *r)
{
    problem p = problem_of(r, 1);
    cudaStream_t stream = aril_cuda_stream(r);
    if (p.n == 0 || p.t == 0 || p.c == 0) return ARIL_OK;
    fill_in(r, 1, true, &p);
    double *losses = (double *)(p.start + p.n);
    find_starts<<<1, 1, 0, stream>>>(p);
    align<<<(unsigned)p.n, threads_for(p), 0, stream>>>(p, losses, ARIL_F64);
    spread<<<(unsigned)(p.t * p.n), threads_for(p), 0, stream>>>(
        p, losses, aril_cuda_data(aril_cuda_in(r, 0)), aril_cuda_data(aril_cuda_out(r, 0)));
    return aril_cuda_launched(r);
}
