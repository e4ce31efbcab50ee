/* Running a case: creating its tensors and running its steps. */
#ifndef ARIL_BENCH_RUN_H
#define ARIL_BENCH_RUN_H

#include "cases.h"
#include "tasks.h"

/* ---- networks (net.c) ---- */

typedef struct bench_model bench_model;

/* Creates the tensors of a case. Tensors are numbered in order of creation, and their elements
 * depend only on that number and the element's index: the peers create the same ones. */
typedef struct bench_maker {
    uint32_t made;
    aril_dtype dtype;
    aril_device device; /* where they are */
    bool infer;
    bool modules;         /* create nets as modules */
    bool still;           /* dropout is the identity, so that results can be compared */
    aril_tensor **params; /* all parameters, retained */
    int n_params;
} bench_maker;

/* center + scale * u, with u in [-1, 1) from the tensor's number and the element's index. */
aril_tensor *bench_fill(bench_maker *m, aril_shape shape, double center, double scale);

/* The same as a parameter, owned by the maker: it requires a gradient except in inference. */
aril_tensor *bench_param(bench_maker *m, aril_shape shape, double center, double scale);

/* `shape` is that of the net's input, and is set to that of its output. NULL when out of memory. */
bench_model *bench_model_new(bench_maker *m, const bench_net *net, aril_shape *shape);
/* A network of the zoo for the input x; NULL, with an Aril error, if there is none. */
bench_model *bench_model_zoo(bench_maker *m, const char *name, aril_tensor *x);
void bench_model_free(bench_model *m);
aril_tensor *bench_model_forward(bench_model *m, aril_tensor *x);

/* FLOPs of a forward pass; of its backward pass alone. */
double bench_model_flops(const bench_model *m);
double bench_model_backward_flops(const bench_model *m);

/* ---- cases (program.c) ---- */

typedef struct bench_run {
    const bench_case *at;
    bench_maker maker;
    aril_tensor *slot[BENCH_SLOTS];  /* inputs are retained */
    bench_model *model[BENCH_SLOTS]; /* model of each call */
    bool wants[BENCH_SLOTS];         /* requires a gradient */
    aril_tensor *rate;               /* learning rate of SGD, [] f32, or NULL */
    aril_optim *optim;               /* the optimizer, for modules */
    const bench_task *task;          /* run instead of calls, or NULL */
    void *state;                     /* state of the task */
    aril_program *program;           /* the compiled step, or NULL */
    aril_tensor **results;           /* room for its results */
    double flops, bytes; /* per step: FLOPs of products; bytes that operations read and write */
} bench_run;

/* Creates the tensors of a case on a device, for comparison (dropout off, batches cut to 2) or for
 * timing. False, with an Aril error, on failure; bench_run_end releases everything. */
bool bench_run_begin(bench_run *r, const bench_case *c, aril_device device, bool compare);
void bench_run_end(bench_run *r);

/* Lets steps run compiled, by aril_jit, in at most a share of the memory that they would take (1:
 * in as much as they take). Tasks stay as they are. False, with an Aril error, on failure. */
bool bench_run_compile(bench_run *r, double memory);

/* Runs one step. */
void bench_run_step(bench_run *r);

/* Runs forward, and backward without an update; prints results and gradients as JSON: sum, norm and
 * the first elements of each. */
void bench_run_print(bench_run *r, FILE *to);

/* ---- measurements (measure.c) ---- */

double bench_now(void); /* seconds */

typedef struct bench_samples {
    int n, capacity;
    double *ms; /* milliseconds per step */
} bench_samples;

/* Runs steps until their time is steady; returns how many steps to time together. */
int bench_warm_up(bench_run *r);

/* Runs steps for `seconds`, and at least `least` samples. */
void bench_measure(bench_run *r, int together, double seconds, int min, bench_samples *s);

/* A quantile of the samples; sorts them. */
double bench_quantile(bench_samples *s, double q);

int64_t bench_faults(void); /* page faults of this process so far */
/* Memory in MB: resident, on the CPU; that of tensors, on other devices. */
double bench_memory_now(aril_device device);
double bench_memory_peak(aril_device device); /* since bench_memory_reset; 0: unknown */
void bench_memory_reset(aril_device device);

#endif
