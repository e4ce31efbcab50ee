/* Training with a high-level API: a model is a module with a loss, metrics and an optimizer.
 *
 *     aril_model *model = aril_model_new(net, ARIL_SHAPE(3, 100, 100));
 *     aril_model_compile(model, (aril_model_opts){ .loss = "cross_entropy", .metrics = "accuracy",
 *         .optimizer = aril_sgd(NULL, (aril_sgd_opts){ .lr = 0.1, .momentum = 0.9 }) });
 *     aril_history *h = aril_model_fit(model, x, y, (aril_fit_opts){ .batch_size = 32,
 *         .epochs = 10, .validation = { x_val, y_val } });
 *     aril_history_draw(h, "curves.svg");
 *     aril_model_free(model);
 *
 * A fit is equivalent to the loop one would write by hand, with bitwise identical results: for each
 * batch aril_forward, the loss, aril_backward, aril_step. The steps are compiled (aril/graph.h). */
#ifndef ARIL_TRAIN_H
#define ARIL_TRAIN_H

#include "aril/callbacks.h"
#include "aril/checkpoint.h"
#include "aril/data.h"
#include "aril/history.h"
#include "aril/metrics.h"
#include "aril/module.h"
#include "aril/optim.h"
#include "aril/schedule.h"

ARIL_C_BEGIN

/* For `.verbose`: print nothing. */
#define ARIL_SILENT ARIL_ZERO

/* ---- models ---- */

/* Creates a model from a module, which it takes ownership of (even on failure), for inputs of a
 * shape, without the batch dimension: lazily sized parameters are created now. No dimensions
 * (ARIL_SHAPE()): the first batch creates them. The caller frees the model. NULL, with an error, on
 * failure. */
ARIL_API aril_model *aril_model_new(aril_module *net, aril_shape input);

/* Frees a model with its module, optimizer, metrics and history; NULL is fine. During a fit it is
 * an error, and nothing is freed. */
ARIL_API void aril_model_free(aril_model *model);

/* The model's module and optimizer (NULL before compile), owned by the model. */
ARIL_API aril_module *aril_model_module(const aril_model *model);
ARIL_API aril_optim *aril_model_optim(const aril_model *model);

/* A custom loss: returns one element, or a value for each sample, [N] or [N,...], which is
 * averaged; sample and class weights require the second form. */
typedef aril_tensor *aril_loss_fn(aril_tensor *output, aril_tensor *target, void *ctx);

enum { ARIL_MODEL_OUTPUTS = 1 + ARIL_SAMPLE_EXTRA_Y };

/* Loss and metrics of one output of a module with several outputs (aril_forward_all). */
typedef struct aril_output_opts {
    /* "age" gives the columns age_loss, age_mae ...; NULL: "out1", "out2", ... */
    const char *name;
    const char *loss;         /* a loss as below; without one the output is only predicted, and
                                 has */
    aril_module *loss_module; /*    no target */
    aril_loss_fn *loss_fn;
    void *loss_ctx;
    double weight;               /* of its loss in the sum; default 1, ARIL_ZERO: 0 (only
                                    measured) */
    const char *metrics;         /* of this output, as below */
    aril_metric *own_metrics[4]; /* ownership taken */
} aril_output_opts;

typedef struct aril_model_opts {
    const char *loss;            /* by name: "cross_entropy", "mse", "bce_with_logits", ... */
    aril_module *loss_module;    /* or a module of two inputs (output, target), ownership taken */
    aril_loss_fn *loss_fn;       /* or a function */
    void *loss_ctx;              /*    and its context */
    const char *metrics;         /* comma-separated names: "accuracy, top5" (aril/metrics.h) */
    aril_metric *own_metrics[8]; /* additional metrics, ownership taken */
    aril_schedule *schedule;     /* of the learning rate (aril/schedule.h), ownership taken */
    /* The column that a plateau schedule monitors, such as "val_accuracy"; NULL: "val_loss", or
     * "loss" without validation. Whether larger is better follows from the column. */
    const char *schedule_monitor;
    aril_optim *optimizer; /* ownership taken; if created with NULL, it gets the model's
                              parameters */
    /* ARIL_BF16 or ARIL_F16: the module runs under ARIL_AUTOCAST in fit, evaluate and predict; its
     * outputs become f32, so that loss and metrics are computed in f32. Default: off. */
    aril_dtype autocast;
    /* Runs every batch with single operations, as a hand-written loop does. Otherwise the steps of
     * fit, evaluate and predict are compiled (aril_jit): C code in modules and losses runs while
     * they are traced, not for each batch. ARIL_JIT=0 in the environment does the same. */
    bool eager;
    /* Instead of a loss and metrics, for a module with several outputs: entry k is for output k,
     * and the loss is the sum of weight * loss over them. */
    aril_output_opts outputs[ARIL_MODEL_OUTPUTS];
} aril_model_opts;

/* Configures the model for training. Takes ownership of everything in opts, even on failure. May be
 * called again, but not during a fit: the previous configuration is freed, unless it is the same
 * optimizer. Without an optimizer the model can be evaluated but not fitted. */
ARIL_API aril_status aril_model_compile(aril_model *model, aril_model_opts opts);

/* Why steps of the model are not compiled although they should be: an operation cannot be traced,
 * or a module has hooks. Models fall back to single operations then, with a line in the log
 * (ARIL_LOG=trace). NULL: all that ran are compiled. Belongs to the model. */
ARIL_API const char *aril_model_eager_reason(const aril_model *model);

/* ---- fit ---- */

/* Samples x [N,...] and their targets y. */
typedef struct aril_samples {
    aril_tensor *x, *y;
} aril_samples;

/* The same for several inputs and outputs. */
typedef struct aril_samples_n {
    aril_list x, y;
} aril_samples_n;

/* Checkpointing, so that a run can resume after an interruption (aril/checkpoint.h). */
typedef struct aril_fit_checkpoint {
    const char *dir;       /* NULL: no checkpoints */
    int64_t every_batches; /* also every so many batches; 0: only after each epoch */
    double every_seconds;  /* also when this many seconds have passed since the last one; 0:
                              never */
    bool resume;           /* resume from the checkpoint in dir, if there is one */
    /* SIGINT and SIGTERM save a checkpoint and end the fit after the current batch; the program's
     * own signal handlers are restored when the fit returns, or at a second signal.
     * aril_history_signal returns the signal. */
    bool on_signal;
} aril_fit_checkpoint;

typedef struct aril_fit_opts {
    int64_t batch_size;             /* for tensors; default 32 */
    int epochs;                     /* default 1 */
    int initial_epoch;              /* the first epoch, from 0: to continue the count of earlier
                                       fits */
    aril_samples validation;        /* validation data, evaluated after each epoch */
    aril_samples_n validation_n;    /* the same for several inputs or outputs */
    aril_tensor *validation_weight; /* [N]: sample weights in val_loss */
    double validation_split;        /* or this fraction of the samples, from the end */
    aril_loader *validation_loader; /* or the batches of a loader; borrowed */
    int validation_every;           /* epochs; default 1 */
    /* [C]: class weights in the loss; for models with one output */
    aril_tensor *class_weight;
    aril_tensor *sample_weight; /* [N]: sample weights in the loss; for tensors */
    int accumulate;             /* gradient accumulation: batches averaged for one update; default
                                   1 */
    bool no_shuffle;            /* keep the samples in order; for tensors */
    uint64_t seed;              /* of the shuffling; for tensors */
    int workers;                /* worker threads that load batches; for tensors */
    int verbose;  /* 0 and 1: a progress bar in a terminal, else a line per epoch; 2: always lines;
                     ARIL_SILENT: nothing */
    FILE *output; /* NULL: stdout */
    aril_callback_list callbacks; /* ARIL_CALLBACKS(a, b); ownership taken, even on failure */
    aril_fit_checkpoint checkpoint;
} aril_fit_opts;

/* Trains on tensors x [N,...] and y, or on a loader's batches (borrowed). Returns the history,
 * which belongs to the model until its next fit; NULL, with an error, on failure.
 *
 * Weighted losses are sum(w * loss) / sum(w) over a batch. Loss and metrics cover the whole epoch:
 * measured during training, and "val_..." afterwards in evaluation mode. */
ARIL_API aril_history *aril_model_fit(aril_model *model, aril_tensor *x, aril_tensor *y,
                                      aril_fit_opts opts);
ARIL_API aril_history *aril_model_fit_loader(aril_model *model, aril_loader *loader,
                                             aril_fit_opts opts);

/* The same for several inputs x, in the order of the module's, and several targets y, one for each
 * output; NULL for an output without a loss. Loaders provide them in batch.extra and batch.extra_y.
 * The history has "loss", the sum, and "NAME_loss" and "NAME_METRIC" for each output. */
ARIL_API aril_history *aril_model_fit_n(aril_model *model, aril_list x, aril_list y,
                                        aril_fit_opts opts);

/* One update with one batch; weight may be NULL. Returns the loss, NaN on failure. */
ARIL_API double aril_model_train_on_batch(aril_model *model, aril_tensor *x, aril_tensor *y,
                                          aril_tensor *weight);

ARIL_API double aril_model_train_on_batch_n(aril_model *model, aril_list x, aril_list y,
                                            aril_tensor *weight);

/* Ends a running fit after the current batch: for callbacks. */
ARIL_API void aril_model_stop(aril_model *model);

/* ---- evaluate and predict ---- */

typedef struct aril_eval_opts {
    int64_t batch_size;         /* default 256 */
    aril_tensor *sample_weight; /* [N]; for tensors */
    int verbose;                /* as above; predict is silent with 0 */
    FILE *output;
    int workers;
} aril_eval_opts;

/* Computes loss and metrics in evaluation mode. Returns the loss, NaN on failure; aril_model_value
 * returns the metrics. */
ARIL_API double aril_model_evaluate(aril_model *model, aril_tensor *x, aril_tensor *y,
                                    aril_eval_opts opts);
ARIL_API double aril_model_evaluate_n(aril_model *model, aril_list x, aril_list y,
                                      aril_eval_opts opts);
ARIL_API double aril_model_evaluate_loader(aril_model *model, aril_loader *loader,
                                           aril_eval_opts opts);

/* The last measured "loss", "NAME_loss" of an output, or metric: from evaluate, from the last
 * validation of a fit, or, without one, from its last epoch. NaN, with an error, for other
 * names. */
ARIL_API double aril_model_value(const aril_model *model, const char *name);
/* The metric itself, for its table; NULL, with an error, if there is none. */
ARIL_API aril_metric *aril_model_metric(const aril_model *model, const char *name);

/* The module's first output for every sample, in order, in evaluation mode: [N,...], on the
 * module's device, in the caller's scope. With a shuffling loader the results are in its order. */
ARIL_API aril_tensor *aril_model_predict(aril_model *model, aril_tensor *x, aril_eval_opts opts);
ARIL_API aril_tensor *aril_model_predict_loader(aril_model *model, aril_loader *loader,
                                                aril_eval_opts opts);

/* The first n_out outputs (at most ARIL_MODEL_OUTPUTS), each as above, for several inputs x. */
ARIL_API aril_status aril_model_predict_all(aril_model *model, aril_list x, int n_out,
                                            aril_tensor **out, aril_eval_opts opts);
ARIL_API aril_status aril_model_predict_all_loader(aril_model *model, aril_loader *loader,
                                                   int n_out, aril_tensor **out,
                                                   aril_eval_opts opts);

ARIL_C_END

#endif
