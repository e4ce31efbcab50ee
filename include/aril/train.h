/* Training in one line: a model is a module with a loss, metrics and an optimizer.
 *
 *     aril_model *model = aril_model_new(net, ARIL_SHAPE(3, 100, 100));
 *     aril_model_compile(model, (aril_model_opts){ .loss = "cross_entropy", .metrics = "accuracy",
 *         .optimizer = aril_sgd(NULL, (aril_sgd_opts){ .lr = 0.1, .momentum = 0.9 }) });
 *     aril_history *h = aril_model_fit(model, x, y, (aril_fit_opts){ .batch_size = 32,
 *         .epochs = 10, .validation = { x_val, y_val } });
 *     aril_history_draw(h, "curves.svg");
 *     aril_model_free(model);
 *
 * A fit is the loop that one would write by hand, and gives the same numbers bit for bit: for each
 * batch aril_forward, the loss, aril_backward, aril_step. */
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

/* For `.verbose`: nothing is printed. */
#define ARIL_SILENT ARIL_ZERO

/* ---- a model ---- */

/* A model of a module, which it takes over (also on failure), for inputs of a shape, without the
 * batch dimension: parameters whose sizes were left open are made now. No dimensions
 * (ARIL_SHAPE()): they are made by the first batch. The caller frees the model. NULL, with an
 * error, on failure. */
ARIL_API aril_model *aril_model_new(aril_module *net, aril_shape input);

/* Frees a model with its module, optimizer, metrics and history; NULL is fine. An error,
 * and nothing is freed, while the model is being fitted. */
ARIL_API void aril_model_free(aril_model *model);

/* What is inside, owned by the model: the module, the optimizer (NULL before compile). */
ARIL_API aril_module *aril_model_module(const aril_model *model);
ARIL_API aril_optim *aril_model_optim(const aril_model *model);

/* A loss of your own: a tensor of one element, or with a value for each sample, [N] or [N,...], of
 * which the mean is taken; weights for samples and classes need the second form. */
typedef aril_tensor *aril_loss_fn(aril_tensor *output, aril_tensor *target, void *ctx);

enum { ARIL_MODEL_OUTPUTS = 1 + ARIL_SAMPLE_EXTRA_Y };

/* One output of a module that has several (aril_forward_all): what it is compared with. */
typedef struct aril_output_opts {
    /* "age" makes the columns age_loss, age_mae ...; NULL: "out1", "out2", ... */
    const char *name;
    const char *loss;         /* a loss as below; without one the output is predicted, and has */
    aril_module *loss_module; /*    no target */
    aril_loss_fn *loss_fn;
    void *loss_ctx;
    double weight;               /* of its loss in the sum; 0: 1, ARIL_ZERO: 0 (only measured) */
    const char *metrics;         /* of this output, as below */
    aril_metric *own_metrics[4]; /* taken over */
} aril_output_opts;

typedef struct aril_model_opts {
    const char *loss;            /* by name: "cross_entropy", "mse", "bce_with_logits", ... */
    aril_module *loss_module;    /* or a module of two inputs (output, target), taken over */
    aril_loss_fn *loss_fn;       /* or a function */
    void *loss_ctx;              /*    and what it is given */
    const char *metrics;         /* names between commas: "accuracy, top5" (aril/metrics.h) */
    aril_metric *own_metrics[8]; /* more of them, taken over */
    aril_schedule *schedule;     /* of the learning rate (aril/schedule.h), taken over */
    /* The column that a plateau schedule watches, such as "val_accuracy"; NULL: "val_loss", or
     * "loss" without validation. Whether larger is better follows from the column. */
    const char *schedule_monitor;
    aril_optim *optimizer; /* taken over; made with NULL, it gets the model's parameters */
    /* In place of a loss and metrics, for a module of several outputs: entry k is of output k, and
     * the loss is the sum of weight * loss over them. */
    aril_output_opts outputs[ARIL_MODEL_OUTPUTS];
} aril_model_opts;

/* Says how the model is trained. Everything given is taken over, also on failure. May be called
 * again, but not during a fit: what was there before is freed, unless it is the same optimizer.
 * Without an optimizer the model can be evaluated, not fitted. */
ARIL_API aril_status aril_model_compile(aril_model *model, aril_model_opts opts);

/* ---- fit ---- */

/* Samples x [N,...] and their targets y. */
typedef struct aril_samples {
    aril_tensor *x, *y;
} aril_samples;

/* The same for several inputs and outputs. */
typedef struct aril_samples_n {
    aril_list x, y;
} aril_samples_n;

/* Where a run is kept, so that it can go on after an interruption (aril/checkpoint.h). */
typedef struct aril_fit_checkpoint {
    const char *dir;       /* NULL: nowhere */
    int64_t every_batches; /* also after so many batches; 0: after each epoch */
    double every_seconds;  /* also when so much time has passed since the last one; 0: not */
    bool resume;           /* go on where the checkpoint in dir stands, if there is one */
    /* SIGINT and SIGTERM save and end the fit after the current batch; the program's own handlers
     * are back when the fit returns, or at a second signal. aril_history_signal tells. */
    bool on_signal;
} aril_fit_checkpoint;

typedef struct aril_fit_opts {
    int64_t batch_size;             /* of tensors; 0: 32 */
    int epochs;                     /* 0: 1 */
    int initial_epoch;              /* the first one, from 0: goes on counting from earlier fits */
    aril_samples validation;        /* measured after each epoch */
    aril_samples_n validation_n;    /* the same for several inputs or outputs */
    aril_tensor *validation_weight; /* [N]: how much each of them counts in val_loss */
    double validation_split;        /* or this share of the samples, from their end */
    aril_loader *validation_loader; /* or what a loader gives; borrowed */
    int validation_every;           /* epochs; 0: 1 */
    /* [C]: how much samples of each class count in the loss; for models of one output */
    aril_tensor *class_weight;
    aril_tensor *sample_weight; /* [N]: how much each sample counts in the loss; for tensors */
    int accumulate;             /* batches whose gradients are averaged for one update; 0: 1 */
    bool no_shuffle;            /* samples come in order; for tensors */
    uint64_t seed;              /* of the order of samples; for tensors */
    int workers;                /* threads that cut batches; for tensors */
    int verbose;  /* 0 and 1: a bar in a terminal, else a line an epoch; 2: always lines;
                                  ARIL_SILENT: nothing */
    FILE *output; /* NULL: stdout */
    aril_callback_list callbacks; /* ARIL_CALLBACKS(a, b); taken over, also on failure */
    aril_fit_checkpoint checkpoint;
} aril_fit_opts;

/* Trains on tensors x [N,...] and y, or on a loader's batches (borrowed). Returns the history,
 * which belongs to the model until its next fit; NULL, with an error, on failure.
 *
 * Weighted losses are sum(w * loss) / sum(w) over a batch. What is reported for an epoch is that of
 * all its samples: loss and metrics while training, "val_..." afterwards in evaluation mode. */
ARIL_API aril_history *aril_model_fit(aril_model *model, aril_tensor *x, aril_tensor *y,
                                      aril_fit_opts opts);
ARIL_API aril_history *aril_model_fit_loader(aril_model *model, aril_loader *loader,
                                             aril_fit_opts opts);

/* The same for several inputs x, in the order of the module's, and several targets y, one for each
 * output; NULL for an output without a loss. Loaders give both in batch.extra and batch.extra_y.
 * The history has "loss", the sum, and "NAME_loss" and "NAME_METRIC" for each output. */
ARIL_API aril_history *aril_model_fit_n(aril_model *model, aril_list x, aril_list y,
                                        aril_fit_opts opts);

/* One update by one batch; weight may be NULL. Returns the loss, NaN on failure. */
ARIL_API double aril_model_train_on_batch(aril_model *model, aril_tensor *x, aril_tensor *y,
                                          aril_tensor *weight);

ARIL_API double aril_model_train_on_batch_n(aril_model *model, aril_list x, aril_list y,
                                            aril_tensor *weight);

/* Ends a running fit after the current batch: for callbacks. */
ARIL_API void aril_model_stop(aril_model *model);

/* ---- evaluate and predict ---- */

typedef struct aril_eval_opts {
    int64_t batch_size;         /* 0: 256 */
    aril_tensor *sample_weight; /* [N]; for tensors */
    int verbose;                /* as above; predict is silent with 0 */
    FILE *output;
    int workers;
} aril_eval_opts;

/* Loss and metrics in evaluation mode. Returns the loss, NaN on failure; the rest is asked by
 * aril_model_value. */
ARIL_API double aril_model_evaluate(aril_model *model, aril_tensor *x, aril_tensor *y,
                                    aril_eval_opts opts);
ARIL_API double aril_model_evaluate_n(aril_model *model, aril_list x, aril_list y,
                                      aril_eval_opts opts);
ARIL_API double aril_model_evaluate_loader(aril_model *model, aril_loader *loader,
                                           aril_eval_opts opts);

/* "loss", "NAME_loss" of an output, or a metric as last measured: by evaluate, by the last validation of a fit, or, without
 * one, by its last epoch. NaN, with an error, for other names. */
ARIL_API double aril_model_value(const aril_model *model, const char *name);
/* The metric itself, for its table; NULL, with an error, where there is none. */
ARIL_API aril_metric *aril_model_metric(const aril_model *model, const char *name);

/* The module's first result for every sample, in order, in evaluation mode: [N,...], on the
 * module's device, in the caller's scope. A loader that shuffles gives them in its order. */
ARIL_API aril_tensor *aril_model_predict(aril_model *model, aril_tensor *x, aril_eval_opts opts);
ARIL_API aril_tensor *aril_model_predict_loader(aril_model *model, aril_loader *loader,
                                                aril_eval_opts opts);

/* The first n_out results (at most ARIL_MODEL_OUTPUTS), each as above, for several inputs x. */
ARIL_API aril_status aril_model_predict_all(aril_model *model, aril_list x, int n_out,
                                            aril_tensor **out, aril_eval_opts opts);
ARIL_API aril_status aril_model_predict_all_loader(aril_model *model, aril_loader *loader,
                                                   int n_out, aril_tensor **out,
                                                   aril_eval_opts opts);

ARIL_C_END

#endif
