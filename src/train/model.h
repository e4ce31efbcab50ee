/* Internals of models and fits. */
#ifndef ARIL_TRAIN_MODEL_H
#define ARIL_TRAIN_MODEL_H

#include "aril/train.h"
#include "nn/loss.h"
#include "train/history.h"
#include "train/metric.h"
#include "train/progress.h"
#include "train/states.h"

/* One result of the module, with its loss. */
typedef struct aril__output {
    char *name;             /* NULL: a model without .outputs */
    const aril__loss *loss; /* by name; or a module; or a function; or none: no target */
    aril_module *loss_module;
    aril_loss_fn *loss_fn;
    void *loss_ctx;
    double weight;
} aril__output;

static inline bool aril__output_has_loss(const aril__output *o)
{
    return o->loss != NULL || o->loss_module != NULL || o->loss_fn != NULL;
}

struct aril_model {
    aril_module *net;
    aril_shape input;
    int n_outputs; /* 0 before compile */
    aril__output output[ARIL_MODEL_OUTPUTS];
    bool compiled;
    aril_dtype autocast;             /* of the module's forward pass; 0: as the caller has it */
    bool eager;                      /* steps are not compiled */
    struct aril__programs *programs; /* compiled steps; NULL: none yet */
    bool built;                      /* this and the device: cached by aril__model_ready */
    aril_device device;
    int n_metrics, n_shown; /* those without a column come last */
    aril_metric **metric;
    int n_columns; /* measured values: the loss, losses of named outputs, shown metrics */
    char **column;
    char *monitor; /* monitored by plateaus; NULL: the loss */
    aril_optim *opt;
    aril_history *history;
    aril__states meter; /* "sum" and "weight" of the loss, "sum.K" for output K; f64 */
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
    int64_t batch, batches, step, samples; /* samples: of this epoch; batches: 0 if unknown */
    int n_names;                           /* loss, metrics, val_loss, val_metrics, lr */
    const char **name;                     /* NULL-terminated */
    double *value;
    bool measured; /* value[] holds final values of the epoch, not running ones */
    aril_tensor *last_loss;
    aril_history *history;
    aril__progress progress;
    unsigned late;       /* errors that arrived late, when the fit began */
    aril__states *aside; /* saved loss and metrics of the epoch, while a callback evaluates */
    double saved;        /* when the last checkpoint was written */
    bool resumed, stop;
    bool diverged;  /* the loss became NaN or infinite: the weights are unusable */
    bool validated; /* in this epoch */
    bool ended;     /* the loader returned the last batch of the epoch */
    bool over;      /* a callback ended the whole run before its last epoch */
};

/* Creates the parameters whose sizes depend on a batch. */
aril_status aril__model_build(aril_model *m, const aril_batch *b);

/* Saves the loss and metrics of a running fit's epoch before a nested evaluation, and restores
 * them. */
aril_status aril__model_save_metrics(aril_model *m);
void aril__model_put_back(aril_model *m);

/* Tensors to draw batches from: inputs, targets (entries may be NULL), and a weight or NULL. */
typedef struct aril__samples {
    aril_list x, y;
    aril_tensor *weight;
} aril__samples;

/* ---- one batch ---- */

/* The results of a batch. */
typedef struct aril__results {
    aril_tensor *output[ARIL_MODEL_OUTPUTS];
    aril_tensor *loss;                     /* [] */
    aril_tensor *each[ARIL_MODEL_OUTPUTS]; /* of named outputs: their own losses, or NULL */
    aril_tensor *weight; /* of the batch, relative to others, [] f64; NULL: its number of samples */
} aril__results;

/* The module's first n_out results for a batch, moved to the module's device. */
aril_status aril__model_forward(aril_model *m, const aril_batch *b, int n_out, aril__results *r);

/* The loss of a batch after its forward. class_weight may be NULL. */
aril_status aril__model_loss(aril_model *m, const aril_batch *b, aril_tensor *class_weight,
                             aril__results *r);

/* Adds a batch to the running loss and to all metrics. */
aril_status aril__model_count(aril_model *m, const aril_batch *b, const aril__results *r);

/* Caches before a loop: the module's device, and whether parameters are still to be built. */
void aril__model_ready(aril_model *m);

/* ---- over batches ---- */

/* Resets the running loss and all metrics. */
void aril__model_reset(aril_model *m);
/* The mean loss since the reset; NaN without batches. */
double aril__model_mean_loss(const aril_model *m);
/* The value of column i since the reset; and whether smaller values of it are better. */
double aril__model_column(const aril_model *m, int i);
bool aril__model_column_falls(const aril_model *m, int i);

/* Loss and metrics over a loader's epoch in evaluation mode; the model holds the results. */
aril_status aril__model_measure(aril_model *m, aril_loader *loader, aril__progress *progress,
                                aril_fit *fit);

/* A loader over tensors. */
aril_loader *aril__model_loader(aril_model *m, aril__samples s, aril_loader_opts opts);

aril_status aril__need_compiled(const aril_model *m, bool optimizer);

/* ---- outputs.c ---- */

/* Sets the outputs of a model and takes ownership of their losses, also on failure; releases
 * them. */
aril_status aril__outputs_set(aril_model *m, const aril_model_opts *opts);
void aril__outputs_clear(aril_model *m);
/* The target of output k. */
aril_tensor *aril__batch_target(const aril_batch *b, int k);

/* True when smaller values of a column of the fit are better. */
bool aril__fit_falls(const aril_fit *f, const char *name);

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
