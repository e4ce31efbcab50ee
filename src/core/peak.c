/* The machine's peak: multiply-adds on registers alone, with the widest vectors available. The
 * build lets the compiler contract multiplications and additions to FMAs in this file. */
#include "aril/profile.h"
#include "core/clock.h"
#include "core/cpu.h"
#include "core/parallel.h"

#include <pthread.h>

enum { CHAINS = 12, LOOPS = 40000, ROUNDS = 60 };

typedef float lane16 __attribute__((vector_size(64)));
typedef float lane8 __attribute__((vector_size(32)));
typedef float lane4 __attribute__((vector_size(16)));

/* Runs enough independent chains to hide the latency of one operation; returns the number of
 * operations. */
#define CHAIN_LOOP(name, lane, target)                                                          \
    target static double name(float *sink)                                                      \
    {                                                                                           \
        lane a[CHAINS], keep = (lane){ 0 } + 0.999f, add = (lane){ 0 } + 1e-3f;                 \
        for (int c = 0; c < CHAINS; c++) a[c] = (lane){ 0 } + (float)c;                         \
        for (int i = 0; i < LOOPS; i++) {                                                       \
            _Pragma("GCC unroll 12") for (int c = 0; c < CHAINS; c++) a[c] = a[c] * keep + add; \
        }                                                                                       \
        for (int c = 0; c < CHAINS; c++) *sink += a[c][0];                                      \
        return 2.0 * CHAINS * LOOPS * (double)(sizeof(lane) / sizeof(float));                   \
    }

#if defined(__x86_64__)
CHAIN_LOOP(chains_avx512, lane16, __attribute__((target("avx512f"))))
CHAIN_LOOP(chains_avx2, lane8, __attribute__((target("avx2,fma"))))
#endif
CHAIN_LOOP(chains_plain, lane4, )

static double chains(float *sink)
{
#if defined(__x86_64__)
    if (aril__cpu() == ARIL__CPU_AVX512) return chains_avx512(sink);
    if (aril__cpu() == ARIL__CPU_AVX2) return chains_avx2(sink);
#endif
    return chains_plain(sink);
}

/* The best of many short runs: an interrupted run says nothing about the machine. */
static void measure(void *ctx, int64_t begin, int64_t end)
{
    double *rate = ctx;
    float sink = 0;
    for (int64_t k = begin; k < end; k++)
        for (int i = 0; i < ROUNDS; i++) {
            double start = aril__seconds(), flop = chains(&sink),
                   now = flop / (aril__seconds() - start);
            if (now > rate[k] || !(sink == sink)) rate[k] = now;
        }
}

double aril_machine_peak(void)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static int measured; /* number of threads it was measured with */
    static double peak;
    enum { MAX_THREADS = 1024 };
    static double rate[MAX_THREADS];
    pthread_mutex_lock(&lock);
    int threads = aril_threads();
    if (measured != threads) {
        for (int i = 0; i < threads; i++) rate[i] = 0;
        aril__parallel_for(threads, 1, measure, rate);
        peak = 0;
        for (int i = 0; i < threads; i++) peak += rate[i];
        measured = threads;
    }
    double got = peak;
    pthread_mutex_unlock(&lock);
    return got;
}
