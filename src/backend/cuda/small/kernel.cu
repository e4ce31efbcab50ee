/* One block of threads that computes steps, one after the other.
 *
 * Values are in global memory, which the block's cache serves; threads wait for each other where a
 * step uses what another one wrote. Steps are loaded a chunk ahead. */
#pragma nv_diag_suppress 186 /* formulas compare unsigned numbers with 0 too */
#include "backend/cuda/small/small.cuh"

#include "backend/cuda/formulas.cuh"
#include "backend/cuda/linalg/epilogue.cuh"
#include "ops/elementwise/numbers.h"

/* ---- formulas ---- */

#define K(x)   ((T)(x))
#define NOGRAD K(0)
#define YES(x) x
#define NO(x)
#define HAS_REAL    YES
#define HAS_FLT     YES
#define HAS_NUM     YES
#define HAS_NUMX    YES
#define HAS_CMP     YES
#define HAS_SEL     YES
#define HAS_INT     NO
#define HAS_INTX    NO
#define RULE(rule)  rule
#define HAS_(rule)  HAS_##rule
#define VALUE(...)  __VA_ARGS__
#define GRAD_A(...) __VA_ARGS__
#define GRAD_B(...) __VA_ARGS__
#define GRAD_C(...) __VA_ARGS__
#define NAME(v_, i) [[maybe_unused]] T v_ = v[i];
#define CASE(op, names, f)     \
    case ARIL__FORMULA_##op: { \
        names return (T)(f);   \
    }
#define FORWARD(op, f)   CASE(op, NAME(a, 0) NAME(b, 1) NAME(c, 2), f)
#define BACKWARD1(op, f) CASE(op, NAME(g, 0) NAME(a, 1) NAME(y, 2), f)
#define BACKWARD2(op, f) CASE(op, NAME(g, 0) NAME(a, 1) NAME(b, 2) NAME(y, 3), f)
#define BACKWARD3(op, f) CASE(op, NAME(g, 0) NAME(a, 1) NAME(b, 2) NAME(c, 3) NAME(y, 4), f)

struct inputs {
    float at[ARIL_CUDA_SMALL_INPUTS];
};

static __device__ __noinline__ float evaluate(int formula, inputs given, const float *p)
{
    typedef float T;
    const T *v = given.at;
    [[maybe_unused]] T p0 = p[0], p1 = p[1], p2 = p[2];
    [[maybe_unused]] int bad = ARIL_CUDA_FINE;
    switch (formula) {
#define EW1N(op, doc, rule, value, ...)    HAS_##rule(FORWARD(op, value))
#define EW2N(op, doc, rule, value, ...)    HAS_##rule(FORWARD(op, value))
#define EW1(op, doc, rule, value, da, ...) HAS_##rule(FORWARD(op, value)) BACKWARD1(op##_grad, da)
#define EW2(op, doc, rule, value, da, db, ...) \
    HAS_##rule(FORWARD(op, value)) BACKWARD2(op##_grad_a, da) BACKWARD2(op##_grad_b, db)
#define EW3(op, doc, rule, value, da, db, dc, ...)                                       \
    HAS_##rule(FORWARD(op, value)) BACKWARD3(op##_grad_a, da) BACKWARD3(op##_grad_b, db) \
        BACKWARD3(op##_grad_c, dc)
#define HAS_RULE(rule) HAS_##rule
#include "ops/elementwise/elementwise.def"
    default: return 0;
    }
}

/* ---- steps ---- */

static __device__ __forceinline__ const float *input(const aril_cuda_small_step &s, int i,
                                                     char *shared)
{
    return s.shared >> (1 + i) & 1 ? reinterpret_cast<const float *>(shared + (size_t)s.in[i])
                                   : s.in[i];
}

/* The offset of operand j at element i of a loop. */
static __device__ __forceinline__ int32_t offset(const aril_cuda_small_step &s, int j, uint32_t i)
{
    if (s.shared >> j & 1) return (int32_t)i;
    int32_t at = 0;
    for (int d = 0; d < s.ndim - 1; d++) {
        uint32_t outer = i / s.dim[d];
        at += (int32_t)(i - outer * s.dim[d]) * s.stride[j][d];
        i = outer;
    }
    return s.ndim ? at + (int32_t)i * s.stride[j][s.ndim - 1] : at;
}

static __device__ __forceinline__ void run_formula(const aril_cuda_small_step &s, char *shared)
{
    float *out = s.shared & 1 ? reinterpret_cast<float *>(shared + (size_t)s.out) : s.out;
    for (uint32_t i = threadIdx.x; i < s.n; i += ARIL_CUDA_SMALL_THREADS) {
        inputs v;
#pragma unroll
        for (int j = 0; j < ARIL_CUDA_SMALL_INPUTS; j++) {
            bool there = s.in[j] || s.shared >> (1 + j) & 1;
            v.at[j] = there ? input(s, j, shared)[offset(s, 1 + j, i)] : s.value[j];
        }
        out[offset(s, 0, i)] =
            s.kind == ARIL_CUDA_SMALL_COPY ? v.at[0] : evaluate(s.formula, v, s.p);
    }
}

/* Terms of a sum that a thread loads at a time. */
enum { AHEAD = 4 };

/* The sum over the threads that share an element: all of them get it. */
static __device__ __forceinline__ float sum_of(float x, int lanes)
{
    for (int d = lanes / 2; d > 0; d /= 2) x += __shfl_xor_sync(0xffffffffu, x, d);
    return x;
}

/* A formula of element i of the product before, which has the value y. */
static __device__ __forceinline__ void follow(const aril_cuda_small_step &s, uint32_t i, float y)
{
    inputs v;
#pragma unroll
    for (int j = 0; j < ARIL_CUDA_SMALL_INPUTS; j++)
        v.at[j] = s.follows >> j & 1 ? y
                  : s.in[j]          ? s.in[j][(int32_t)i * s.stride[1 + j][0]]
                                     : s.value[j];
    s.out[(int32_t)i * s.stride[0][0]] = evaluate(s.formula, v, s.p);
}

static __device__ __forceinline__ void run_product(const aril_cuda_small_step &s)
{
    const int lanes = 1 << s.lanes, lane = (int)threadIdx.x & (lanes - 1);
    const uint32_t at_once = ARIL_CUDA_SMALL_THREADS >> s.lanes;
    for (uint32_t first = 0; first < s.n; first += at_once) {
        uint32_t i = first + (threadIdx.x >> s.lanes), row = 0, column = i;
        bool there = i < s.n;
        if (s.dim[0] > 1) {
            row = i / s.dim[1];
            column = i - row * s.dim[1];
        }
        float sum = 0, bias = 0;
        if (there) {
            const float *a = s.in[0] + (int32_t)row * s.stride[1][0];
            const float *b = s.in[1] + (int32_t)column * s.stride[2][1];
            if (s.in[2]) bias = s.in[2][(int32_t)column * s.stride[3][0]];
            for (uint32_t k = (uint32_t)lane; k < s.terms; k += (uint32_t)(AHEAD * lanes)) {
                float x[AHEAD], y[AHEAD];
#pragma unroll
                for (int u = 0; u < AHEAD; u++) {
                    int32_t at = (int32_t)k + u * lanes;
                    bool inside = (uint32_t)at < s.terms;
                    x[u] = inside ? a[at * s.stride[1][1]] : 0.0f;
                    y[u] = inside ? b[at * s.stride[2][0]] : 0.0f;
                }
#pragma unroll
                for (int u = 0; u < AHEAD; u++) sum = __fmaf_rn(x[u], y[u], sum);
            }
        }
        sum = sum_of(sum, lanes);
        if (there && lane == 0) {
            float y = aril_cuda_activate(s.activation, sum + bias);
            s.out[(int32_t)row * s.stride[0][0] + (int32_t)column * s.stride[0][1]] = y;
            if (s.followed) follow((&s)[1], i, y);
        }
    }
}

static __device__ __forceinline__ void run_reduce(const aril_cuda_small_step &s)
{
    const int lanes = 1 << s.lanes, lane = (int)threadIdx.x & (lanes - 1);
    const uint32_t at_once = ARIL_CUDA_SMALL_THREADS >> s.lanes;
    for (uint32_t first = 0; first < s.n; first += at_once) {
        uint32_t i = first + (threadIdx.x >> s.lanes);
        uint32_t outer = i / s.dim[0], inner = i - outer * s.dim[0];
        float sum = 0;
        if (i < s.n) {
            const float *x =
                s.in[0] + (int32_t)inner * s.stride[1][0] + (int32_t)outer * s.stride[1][1];
            for (uint32_t k = (uint32_t)lane; k < s.terms; k += (uint32_t)(AHEAD * lanes)) {
                float v[AHEAD];
#pragma unroll
                for (int u = 0; u < AHEAD; u++) {
                    uint32_t at = k + (uint32_t)(u * lanes), far = at / s.dim[2];
                    uint32_t near = at - far * s.dim[2];
                    v[u] = at < s.terms
                               ? x[(int32_t)near * s.stride[1][2] + (int32_t)far * s.stride[1][3]]
                               : 0.0f;
                }
#pragma unroll
                for (int u = 0; u < AHEAD; u++) sum += v[u];
            }
        }
        sum = sum_of(sum, lanes);
        if (i < s.n && lane == 0)
            s.out[(int32_t)inner * s.stride[0][0] + (int32_t)outer * s.stride[0][1]] =
                s.divisor == 1.0f ? sum : sum / s.divisor;
    }
}

/* ---- the kernel ---- */

static __global__ void __launch_bounds__(ARIL_CUDA_SMALL_THREADS)
    run_steps(const aril_cuda_small_step *steps, int n)
{
    extern __shared__ char shared[];
    __shared__ aril_cuda_small_step loaded[2][ARIL_CUDA_SMALL_CHUNK];
    const int parts = sizeof loaded[0] / sizeof(uint4);
    static_assert(parts <= ARIL_CUDA_SMALL_THREADS, "a thread loads one part of a chunk");
    const bool loads = threadIdx.x < parts;
    uint4 part = {};
    if (loads)
        reinterpret_cast<uint4 *>(loaded[0])[threadIdx.x] =
            reinterpret_cast<const uint4 *>(steps)[threadIdx.x];
    for (int first = 0, which = 0; first < n; first += ARIL_CUDA_SMALL_CHUNK, which ^= 1) {
        const int next = first + ARIL_CUDA_SMALL_CHUNK;
        if (loads && next < n) part = reinterpret_cast<const uint4 *>(steps + next)[threadIdx.x];
        __syncthreads();
        for (int i = 0; i < ARIL_CUDA_SMALL_CHUNK && first + i < n; i++) {
            const aril_cuda_small_step &s = loaded[which][i];
            if (s.wait) __syncthreads();
            if (s.kind == ARIL_CUDA_SMALL_PRODUCT)
                run_product(s);
            else if (s.kind == ARIL_CUDA_SMALL_REDUCE)
                run_reduce(s);
            else
                run_formula(s, shared);
            i += s.followed;
        }
        if (loads && next < n) reinterpret_cast<uint4 *>(loaded[which ^ 1])[threadIdx.x] = part;
    }
}

static __global__ void __launch_bounds__(ARIL_CUDA_SMALL_THREADS)
    run_one(const __grid_constant__ aril_cuda_small_step s)
{
    if (s.kind == ARIL_CUDA_SMALL_PRODUCT)
        run_product(s);
    else
        run_reduce(s);
}

cudaError_t aril_cuda_small_launch_one(const aril_cuda_small_step *step, cudaStream_t stream)
{
    run_one<<<1, ARIL_CUDA_SMALL_THREADS, 0, stream>>>(*step);
    return cudaPeekAtLastError();
}

cudaError_t aril_cuda_small_launch(const aril_cuda_small_step *steps, int n, int shared,
                                   cudaStream_t stream)
{
    run_steps<<<1, ARIL_CUDA_SMALL_THREADS, (size_t)shared, stream>>>(steps, n);
    return cudaPeekAtLastError();
}
