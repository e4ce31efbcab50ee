/* Means and sums of squared differences from the mean: chunks of elements, merged by the formula of
 * Chan, Golub and LeVeque, which does not cancel. */
#ifndef ARIL_CUDA_REDUCE_STATS_CUH
#define ARIL_CUDA_REDUCE_STATS_CUH

#include "backend/cuda/reduce/pass.cuh"

template <typename C> struct aril_cuda_moments {
    C n, mean, squares;
};

/* part / whole. An error of 2 ulp in the weight of a difference does no harm. */
static __device__ __forceinline__ float aril_cuda_moments_share(float part, float whole)
{
    return __fdividef(part, whole);
}
static __device__ __forceinline__ double aril_cuda_moments_share(double part, double whole)
{
    return part / whole;
}

template <typename C>
static __device__ __forceinline__ aril_cuda_moments<C> aril_cuda_moments_merge(
    aril_cuda_moments<C> a, aril_cuda_moments<C> b)
{
    C n = a.n + b.n, f = n > 0 ? aril_cuda_moments_share(b.n, n) : 0, d = b.mean - a.mean;
    return { n, a.mean + d * f, a.squares + b.squares + d * d * (a.n * f) };
}

/* Adds m units of v to the moments of each lane, all of which have the same count. */
template <typename Reader, int N, int Unroll>
static __device__ __forceinline__ void aril_cuda_moments_add(
    aril_cuda_moments<typename Reader::C> (&a)[N], const typename Reader::raw (&v)[Unroll], int m)
{
    typedef typename Reader::C C;
    C old = a[0].n, n = old + (C)m, f = aril_cuda_moments_share((C)m, n), one = C(1) / (C)m;
#pragma unroll
    for (int l = 0; l < N; l++) {
        C sum = 0, squares = 0;
#pragma unroll
        for (int u = 0; u < Unroll; u++)
            if (u < m) sum += Reader::get(v[u], l);
        C mean = sum * one;
#pragma unroll
        for (int u = 0; u < Unroll; u++)
            if (u < m) {
                C d = Reader::get(v[u], l) - mean;
                squares += d * d;
            }
        C d = mean - a[l].mean;
        a[l].mean += d * f;
        a[l].squares += squares + d * d * old * f;
        a[l].n = n;
    }
}

/* What passes that measure moments share: all but what they do with the result, `finish`. */
template <typename Reader> struct aril_cuda_measuring : aril_cuda_reading<Reader> {
    typedef typename Reader::C C;
    typedef aril_cuda_moments<C> acc;
    typedef typename Reader::raw raw;
    enum { lanes = Reader::lanes, resident = 4 };

    __device__ acc neutral() const
    {
        return { 0, 0, 0 };
    }
    __device__ acc combine(acc a, acc b) const
    {
        return aril_cuda_moments_merge(a, b);
    }
    __device__ void add(acc (&a)[lanes], const raw (&v)[ARIL_CUDA_REDUCE_UNROLL], int m, int64_t,
                        int, aril_cuda_nothing) const
    {
        aril_cuda_moments_add<Reader>(a, v, m);
    }
};

#endif
