/* The kernels of all rules of optimizers.def for a type T: every value is read once and written
 * once. Files that include this are compiled without contraction into fused multiply-adds. */
#ifndef ARIL_CUDA_UPDATE_KERNEL_CUH
#define ARIL_CUDA_UPDATE_KERNEL_CUH

#include "backend/cuda/block.cuh"
#include "backend/cuda/update/update.cuh"

/* ---- formulas ---- */

static __device__ __forceinline__ float k_sqrt(float x)
{
    return sqrtf(x);
}
static __device__ __forceinline__ double k_sqrt(double x)
{
    return sqrt(x);
}
static __device__ __forceinline__ float k_abs(float x)
{
    return fabsf(x);
}
static __device__ __forceinline__ double k_abs(double x)
{
    return fabs(x);
}

#define CONSTANT(i, constant)                         \
    const T FIRST(constant) = (T)k_->FIRST(constant); \
    (void)FIRST(constant);

#define READ(i, slot) BY_KIND(READ, i, slot)
#define READ_SLOT(i, name, value) \
    T name = s_[i];               \
    (void)name;
#define READ_OPTIONAL(i, name, value, option)  \
    const bool has_##name = present_ >> i & 1; \
    (void)has_##name;                          \
    T name = s_[i];                            \
    (void)name;
#define READ_SCALAR(i, ...)
#define READ_NONE(i, ...)

#define WRITE(i, slot)                         BY_KIND(WRITE, i, slot)
#define WRITE_SLOT(i, name, value)             s_[i] = name;
#define WRITE_OPTIONAL(i, name, value, option) s_[i] = name;
#define WRITE_SCALAR(i, ...)
#define WRITE_NONE(i, ...)

/* One element: returns the new x, or the direction; changes the slots. */
#define RULE_ROW(rule, facts_, slots, let, constants, direction_, formula)                      \
    template <typename T> struct aril_cuda_rule_##rule {                                        \
        static const unsigned facts = facts_;                                                   \
        static __device__ __forceinline__ T update(const aril__update_constants &all_,          \
                                                   unsigned present_, T x, T g, T *s_)          \
        {                                                                                       \
            const struct update_##rule *k_ = &all_.of.rule;                                     \
            EACH(CONSTANT, PART(constants))                                                     \
            EACH(READ, PART(slots))                                                             \
            (void)present_, (void)g, (void)s_;                                                  \
            PART(formula)                                                                       \
            EACH(WRITE, PART(slots))                                                            \
            return x;                                                                           \
        }                                                                                       \
        static __device__ __forceinline__ T direction(const aril__update_constants &all_,       \
                                                      unsigned present_, T x, T g, const T *s_) \
        {                                                                                       \
            const struct update_##rule *k_ = &all_.of.rule;                                     \
            T d = 0;                                                                            \
            EACH(CONSTANT, PART(constants))                                                     \
            EACH(READ, PART(slots))                                                             \
            (void)present_, (void)x, (void)g, (void)s_;                                         \
            PART(direction_)                                                                    \
            return d;                                                                           \
        }                                                                                       \
    };
#include "ops/update/optimizers.def"

/* ---- reading and writing ---- */

/* Elements of T in memory: f16, bf16 and f32 for float, f64 for double. */
template <typename T> struct aril_cuda_cells;
template <> struct aril_cuda_cells<float> {
    template <int N>
    static __device__ __forceinline__ void load(const void *p, int64_t i, int dtype, float *x)
    {
        ARIL_CUDA_SWITCH_SINGLE(dtype, S, (load_as<S, N>(p, i, x)));
    }
    template <int N>
    static __device__ __forceinline__ void store(void *p, int64_t i, int dtype, const float *x)
    {
        ARIL_CUDA_SWITCH_SINGLE(dtype, S, (store_as<S, N>(p, i, x)));
    }
    template <typename S, int N>
    static __device__ __forceinline__ void load_as(const void *p, int64_t i, float *x)
    {
        typedef aril_cuda_vector<S, N> vector;
        vector v = *reinterpret_cast<const vector *>(static_cast<const S *>(p) + i);
#pragma unroll
        for (int k = 0; k < N; k++) x[k] = aril_cuda_to<float>(v.at[k]);
    }
    template <typename S, int N>
    static __device__ __forceinline__ void store_as(void *p, int64_t i, const float *x)
    {
        typedef aril_cuda_vector<S, N> vector;
        vector v;
#pragma unroll
        for (int k = 0; k < N; k++) v.at[k] = aril_cuda_from<S>(x[k]);
        *reinterpret_cast<vector *>(static_cast<S *>(p) + i) = v;
    }
    /* x as the parameter's dtype holds it. */
    static __device__ __forceinline__ float rounded(float x, int dtype)
    {
        if (dtype == ARIL_F16) return __half2float(__float2half_rn(x));
        return dtype == ARIL_BF16 ? __bfloat162float(__float2bfloat16_rn(x)) : x;
    }
};
template <> struct aril_cuda_cells<double> {
    template <int N>
    static __device__ __forceinline__ void load(const void *p, int64_t i, int, double *x)
    {
#pragma unroll
        for (int k = 0; k < N; k++) x[k] = static_cast<const double *>(p)[i + k];
    }
    template <int N>
    static __device__ __forceinline__ void store(void *p, int64_t i, int, const double *x)
    {
#pragma unroll
        for (int k = 0; k < N; k++) static_cast<double *>(p)[i + k] = x[k];
    }
    static __device__ __forceinline__ double rounded(double x, int)
    {
        return x;
    }
};

/* ---- one or four elements of a parameter ---- */

/* What a kernel does with them: the update, or the squares for norms. */
struct aril_cuda_squares {
    double of_p, of_d;
};

/* The elements whose offset in operand j is at[j]. */
template <typename T, template <typename> class Rule, bool Norms, int N>
static __device__ __forceinline__ void aril_cuda_update_some(const aril_cuda_update_item &u,
                                                             const aril__update_constants &k,
                                                             const int64_t *at,
                                                             aril_cuda_squares *sum)
{
    typedef aril_cuda_cells<T> cells;
    const unsigned facts = Rule<T>::facts;
    T x[N], g[N], s[ARIL__RULE_SLOTS][N], wide[N];
    cells::template load<N>(u.at[ARIL__ITEM_P], at[ARIL__ITEM_P], u.dtype[ARIL__ITEM_P], x);
    cells::template load<N>(u.at[ARIL__ITEM_GRAD], at[ARIL__ITEM_GRAD], u.dtype[ARIL__ITEM_GRAD],
                            g);
#pragma unroll
    for (int i = 0; i < ARIL__RULE_SLOTS; i++) {
        const int j = ARIL__ITEM_SLOT + i;
        if (u.present >> i & 1) {
            cells::template load<N>(u.at[j], at[j], u.dtype[j], s[i]);
        } else {
#pragma unroll
            for (int e = 0; e < N; e++) s[i][e] = 0;
        }
    }
    /* The update starts from the master, where the parameter is its rounding. */
    const int low = u.dtype[ARIL__ITEM_P];
    if (u.at[ARIL__ITEM_MASTER] && (low == ARIL_F16 || low == ARIL_BF16)) {
        cells::template load<N>(u.at[ARIL__ITEM_MASTER], at[ARIL__ITEM_MASTER],
                                u.dtype[ARIL__ITEM_MASTER], wide);
#pragma unroll
        for (int e = 0; e < N; e++) x[e] = cells::rounded(wide[e], low) == x[e] ? wide[e] : x[e];
    }
    const T factor = (T)k.factor, max = (T)k.max, decay = (T)k.decay, shrink = (T)k.shrink;
#pragma unroll
    for (int e = 0; e < N; e++) {
        T v[ARIL__RULE_SLOTS];
#pragma unroll
        for (int i = 0; i < ARIL__RULE_SLOTS; i++) v[i] = s[i][e];
        if (Norms || !(facts & QUICK) || !k.plain) {
            g[e] *= factor;
            g[e] = g[e] > max ? max : g[e] < -max ? -max : g[e];
        }
        if (Norms) {
            T d = Rule<T>::direction(k, u.present, x[e], g[e], v);
            sum->of_p += (double)x[e] * (double)x[e];
            sum->of_d += (double)d * (double)d;
        } else {
            if (!(facts & QUICK) || !k.plain) {
                g[e] += decay * x[e];
                x[e] *= shrink;
            }
            x[e] = Rule<T>::update(k, u.present, x[e], g[e], v);
        }
#pragma unroll
        for (int i = 0; i < ARIL__RULE_SLOTS; i++) s[i][e] = v[i];
    }
    if (Norms) return;
#pragma unroll
    for (int i = 0; i < ARIL__RULE_SLOTS; i++) {
        const int j = ARIL__ITEM_SLOT + i;
        if (u.present >> i & 1) cells::template store<N>(u.at[j], at[j], u.dtype[j], s[i]);
    }
    cells::template store<N>(u.at[ARIL__ITEM_P], at[ARIL__ITEM_P], low, x);
    if (u.at[ARIL__ITEM_MASTER])
        cells::template store<N>(u.at[ARIL__ITEM_MASTER], at[ARIL__ITEM_MASTER],
                                 u.dtype[ARIL__ITEM_MASTER], x);
}

/* ---- kernels ---- */

/* The elements of this block: 4 at a time where they are aligned. */
template <typename T, template <typename> class Rule, bool Norms>
static __device__ __forceinline__ aril_cuda_squares
aril_cuda_update_block(const aril_cuda_update_table &t, const aril_cuda_update_numbers &numbers)
{
    aril_cuda_squares sum = { 0, 0 };
    int low = 0, high = t.n - 1;
    while (low < high) {
        int middle = (low + high + 1) / 2;
        if (t.first[middle] <= blockIdx.x)
            low = middle;
        else
            high = middle - 1;
    }
    const aril_cuda_update_item &u = t.item[low];
    const aril__update_constants k =
        numbers.device ? numbers.device[numbers.each ? low : 0] : numbers.host;
    if (k.skip) return sum;
    int64_t begin = (int64_t)(blockIdx.x - t.first[low]) * ARIL_CUDA_UPDATE_CHUNK;
    int64_t end = begin + ARIL_CUDA_UPDATE_CHUNK < u.n ? begin + ARIL_CUDA_UPDATE_CHUNK : u.n;
    int64_t at[ARIL__ITEM];
    int64_t i = begin + 4 * threadIdx.x;
    if (u.vectors) {
        for (; i + 3 < end; i += 4 * ARIL_CUDA_UPDATE_THREADS) {
#pragma unroll
            for (int j = 0; j < ARIL__ITEM; j++) at[j] = i;
            aril_cuda_update_some<T, Rule, Norms, 4>(u, k, at, &sum);
        }
        begin = end - (end & 3); /* what is left, by the first threads */
    }
    for (i = begin + threadIdx.x; i < end; i += ARIL_CUDA_UPDATE_THREADS) {
        int32_t offset[ARIL__ITEM];
        if (t.strided) t.nest.offsets((uint32_t)i, offset);
#pragma unroll
        for (int j = 0; j < ARIL__ITEM; j++) at[j] = t.strided ? offset[j] : i;
        aril_cuda_update_some<T, Rule, Norms, 1>(u, k, at, &sum);
    }
    return sum;
}

template <typename T, template <typename> class Rule>
static __global__ void __launch_bounds__(ARIL_CUDA_UPDATE_THREADS)
    aril_cuda_update_kernel(const __grid_constant__ aril_cuda_update_table t,
                            const __grid_constant__ aril_cuda_update_numbers numbers)
{
    aril_cuda_update_block<T, Rule, false>(t, numbers);
}

/* Two sums per block. */
template <typename T, template <typename> class Rule>
static __global__ void __launch_bounds__(ARIL_CUDA_UPDATE_THREADS)
    aril_cuda_norms_kernel(const __grid_constant__ aril_cuda_update_table t,
                           const __grid_constant__ aril_cuda_update_numbers numbers, double *sums)
{
    aril_cuda_squares sum = aril_cuda_update_block<T, Rule, true>(t, numbers);
    double of_p = aril_cuda_block_sum(sum.of_p), of_d = aril_cuda_block_sum(sum.of_d);
    if (threadIdx.x == 0) {
        sums[2 * blockIdx.x] = of_p;
        sums[2 * blockIdx.x + 1] = of_d;
    }
}

template <typename T, template <typename> class Rule> static const void *aril_cuda_norms_of()
{
    if constexpr ((Rule<T>::facts & NORMS) != 0)
        return reinterpret_cast<const void *>(aril_cuda_norms_kernel<T, Rule>);
    else
        return nullptr;
}

#endif
