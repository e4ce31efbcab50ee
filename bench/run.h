/* A case in memory: its tensors made, its steps run. */
#ifndef ARIL_BENCH_RUN_H
#define ARIL_BENCH_RUN_H

#include "cases.h"
#include "tasks.h"

/* ---- networks (net.c) ---- */

typedef struct bench_model bench_model;

/* What the tensors of a case are made of. Tensors are numbered in the order in which they are made,
 * and their elements follow from their number and place: the peers make the same ones. */
typedef struct bench_maker {
    uint32_t made;
    aril_dtype dtype;
    bool infer;
    bool modules;         /* nets are trees of modules */
    bool still;           /* dropout lets everything pass, so that results can be compared */
    aril_tensor **params; /* every parameter, kept */
    int n_params;
} bench_maker;

/* center + scale * u, with u in [-1, 1) from the tensor's number and the element's place. */
aril_tensor *bench_fill(bench_maker *m, aril_shape shape, double center, double scale);

/* The same as a parameter, which belongs to the maker: it wants a gradient unless for inference. */
aril_tensor *bench_param(bench_maker *m, aril_shape shape, double center, double scale);

/* `shape` goes in as that of the net's input and comes out as that of its result. NULL when out of
 * memory. */
bench_model *bench_model_new(bench_maker *m, const bench_net *net, aril_shape *shape);
void bench_model_free(bench_model *m);
aril_tensor *bench_model_forward(bench_model *m, aril_tensor *x);

/* FLOPs of one pass forward, of its backward pass beside that. */
double bench_model_flops(const bench_model *m);
double bench_model_backward_flops(const bench_model *m);

/* ---- cases (program.c) ---- */

typedef struct bench_run {
    const bench_case *at;
    bench_maker maker;
    aril_tensor *slot[BENCH_SLOTS];  /* those that are given are kept */
    bench_model *model[BENCH_SLOTS]; /* of each call */
    bool wants[BENCH_SLOTS];         /* a gradient */
    aril_tensor *rate;               /* of SGD, [] f32, or NULL */
    aril_optim *optim;               /* the same, for modules */
    const bench_task *task;          /* instead of calls, or NULL */
    void *state;                     /* of the task */
    double flops, bytes;             /* of a step: products; what operations read and write */
} bench_run;

/* Makes the tensors of a case, for comparison (dropout off, batches cut to 2) or for timing. False
 * with an error of Aril's on failure; bench_run_end releases everything. */
bool bench_run_begin(bench_run *r, const bench_case *c, bool compare);
void bench_run_end(bench_run *r);

/* One step. */
void bench_run_step(bench_run *r);

/* Forward, and backward without an update; prints results and gradients as JSON: sum, norm and the
 * first elements of each. */
void bench_run_print(bench_run *r, FILE *to);

/* ---- measurements (measure.c, peak.c) ---- */

double bench_now(void); /* seconds */

typedef struct bench_samples {
    int n, room;
    double *ms; /* of one step each */
} bench_samples;

/* Steps until they are steady; then the number of steps that are timed together is known. */
int bench_warm_up(bench_run *r);

/* Steps for a time, at least `least` samples more. */
void bench_measure(bench_run *r, int together, double seconds, int least, bench_samples *s);

/* A quantile of the samples, which get sorted. */
double bench_quantile(bench_samples *s, double q);

int64_t bench_faults(void);     /* pages that this process was given so far */
double bench_memory_now(void);  /* resident, MB */
double bench_memory_peak(void); /* the most since bench_memory_reset, MB; 0: not known */
void bench_memory_reset(void);

/* Multiply-adds in registers on all threads: GFLOP/s in f32. */
double bench_peak(int threads);

#endif
