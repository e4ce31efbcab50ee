/* The machine's peak: multiply-adds on registers alone, with the widest vectors available. The
 * build lets the compiler contract multiplications and additions to FMAs in this file. */
#include "run.h"

#include <pthread.h>

enum { CHAINS = 12, LOOPS = 40000, MAX_THREADS = 1024 };

typedef float lane16 __attribute__((vector_size(64)));
typedef float lane8 __attribute__((vector_size(32)));
typedef float lane4 __attribute__((vector_size(16)));

/* Enough independent chains to hide the latency; returns the FLOPs done. */
#define CHAIN_LOOP(name, lane, target)                                                     \
    target static double name(float *sink)                                                 \
    {                                                                                      \
        const float keep = 0.999F, add = 1e-3F;                                            \
        lane a[CHAINS];                                                                    \
        lane k = (lane){ 0 } + keep, d = (lane){ 0 } + add;                                \
        for (int c = 0; c < CHAINS; c++) a[c] = (lane){ 0 } + (float)c;                    \
        for (int i = 0; i < LOOPS; i++) {                                                  \
            _Pragma("GCC unroll 12") for (int c = 0; c < CHAINS; c++) a[c] = a[c] * k + d; \
        }                                                                                  \
        for (int c = 0; c < CHAINS; c++) *sink += a[c][0];                                 \
        return 2.0 * CHAINS * LOOPS * (double)(sizeof(lane) / sizeof(float));              \
    }

#if defined __x86_64__
CHAIN_LOOP(chains_avx512, lane16, __attribute__((target("avx512f"))))
CHAIN_LOOP(chains_avx2, lane8, __attribute__((target("avx2,fma"))))
#endif
CHAIN_LOOP(chains_plain, lane4, )

static double chains(float *sink)
{
#if defined __x86_64__
    if (__builtin_cpu_supports("avx512f")) return chains_avx512(sink);
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return chains_avx2(sink);
#endif
    return chains_plain(sink);
}

typedef struct worker {
    double rate; /* FLOP/s */
    float sink;  /* keeps the compiler from removing the work */
} worker;

/* Takes the best of many short runs: interrupted runs do not show the peak. */
static void *work(void *arg)
{
    worker *w = arg;
    for (int i = 0; i < 60; i++) {
        double start = bench_now(), flops = chains(&w->sink), rate = flops / (bench_now() - start);
        if (rate > w->rate) w->rate = rate;
    }
    return NULL;
}

double bench_peak(int threads)
{
    worker workers[MAX_THREADS] = { 0 };
    pthread_t thread[MAX_THREADS];
    if (threads > MAX_THREADS) threads = MAX_THREADS;
    int started = 0;
    while (started < threads - 1 &&
           pthread_create(&thread[started], NULL, work, &workers[started]) == 0)
        started++;
    work(&workers[started]);
    double sum = workers[started].rate;
    for (int i = 0; i < started; i++) {
        pthread_join(thread[i], NULL);
        sum += workers[i].rate;
    }
    return sum * 1e-9;
}
