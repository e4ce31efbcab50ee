/* The inside of models and fits. */
#ifndef ARIL_TRAIN_MODEL_H
#define ARIL_TRAIN_MODEL_H

#include "aril/train.h"
#include "nn/loss.h"
#include "train/history.h"
#include "train/metric.h"
#include "train/progress.h"
#include "train/states.h"

struct aril_model {
    aril_module *net;
    aril_shape input;
    const aril__loss *loss; /* by name; or a module; or a function; or, before compile, none */
    aril_module *loss_module;
    aril_loss_fn *loss_fn;
    void *loss_ctx;
    bool compiled;
    bool built; /* this and the device: as aril__model_ready saw them */
    aril_device device;
    int n_metrics, n_shown; /* tables come last, and have no column in lines and histories */
    aril_metric **metric;
    aril_optim *opt;
    aril_history *history;
    aril__states meter; /* "sum" and "weight" of the loss, f64 */
    aril_fit *running;
};

struct aril_callback {
    const aril_callback_class *type;
    void *data;
    aril__states states;
};

struct aril_fit {
    aril_model *model;
    aril_loader *loader, *val;
    aril_fit_opts opts;
    int epoch, epochs;
    int64_t batch, batches, step, samples; /* samples: of this epoch; batches: 0 where not known */
    int n_names;                           /* loss, metrics, val_loss, val_metrics, lr */
    const char **name;                     /* ended by NULL */
    double *value;
    bool measured; /* value[] holds the epoch's end, not what metrics say now */
    aril_tensor *last_loss;
    aril_history *history;
    aril__progress progress;
    aril__states *aside; /* what loss and metrics know of the epoch, while a callback evaluates */
    double saved;        /* when the last checkpoint was written */
    bool resumed, stop;
    bool ended; /* the loader has given the last batch of the epoch */
    bool over;  /* a callback ended the whole run before its last epoch */
};

/* Makes the parameters whose sizes a batch tells. */
aril_status aril__model_build(aril_model *m, const aril_batch *b);

/* Puts what loss and metrics know of a running fit's epoch aside for an evaluation in between, and back. */
aril_status aril__model_set_aside(aril_model *m);
void aril__model_put_back(aril_model *m);

/* Tensors to make batches of: targets and weights may be NULL. */
typedef struct aril__samples {
    aril_tensor *x, *y, *weight;
} aril__samples;

/* ---- one batch ---- */

/* The module's result for a batch, moved to the module's device. NULL or poison on failure. */
aril_tensor *aril__model_forward(aril_model *m, const aril_batch *b);

/* The loss of a batch, []; *weight gets what it counts beside other batches: NULL means as many as
 * it has samples, else [] f64. class_weight may be NULL. Poison on failure. */
aril_tensor *aril__model_loss(aril_model *m, aril_tensor *output, const aril_batch *b,
                              aril_tensor *class_weight, aril_tensor **weight);

/* Adds a batch to the meter of the loss and to all metrics. */
aril_status aril__model_count(aril_model *m, aril_tensor *output, aril_tensor *target, int64_t n,
                              aril_tensor *loss, aril_tensor *weight);

/* Looks at the module before a loop: its device, and whether parameters wait for their sizes. */
void aril__model_ready(aril_model *m);

/* ---- over batches ---- */

/* Forgets what meter and metrics have counted. */
void aril__model_reset(aril_model *m);
/* The mean loss since then; NaN of nothing. */
double aril__model_mean_loss(const aril_model *m);

/* Loss and metrics over a loader's epoch in evaluation mode; leaves them in the model. */
aril_status aril__model_measure(aril_model *m, aril_loader *loader, aril__progress *progress,
                                aril_fit *fit);

/* A loader over tensors. */
aril_loader *aril__model_loader(aril_model *m, aril__samples s, aril_loader_opts opts);

aril_status aril__need_compiled(const aril_model *m, bool optimizer);

/* Callbacks */
typedef enum aril__moment {
    ARIL__BEGIN,
    ARIL__EPOCH_BEGIN,
    ARIL__BATCH_END,
    ARIL__EPOCH_END,
    ARIL__END
} aril__moment;
aril_status aril__callbacks_call(aril_fit *fit, aril__moment when);

/* ---- resume.c ---- */

aril_status aril__fit_save(aril_fit *fit);
aril_status aril__fit_resume(aril_fit *fit);

#endif
