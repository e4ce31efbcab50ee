/* Callbacks: code that runs during a fit, such as early stopping, logging and saving.
 *
 *     aril_model_fit(model, x, y, (aril_fit_opts){ .epochs = 100, .validation = { xv, yv },
 *         .callbacks = ARIL_CALLBACKS(
 *             aril_early_stop((aril_early_stop_opts){ .patience = 5, .restore_best = true }),
 *             aril_csv_log("log.csv"), aril_save_best("best.safetensors", (aril_monitor){ 0 })) });
 *
 * A fit takes ownership of its callbacks and frees them when it ends. They are called in list
 * order. State stored with aril_callback_set is saved in checkpoints, so that a resumed fit
 * continues as if it had never stopped. */
#ifndef ARIL_CALLBACKS_H
#define ARIL_CALLBACKS_H

#include "aril/named.h"
#include "aril/optim.h"

ARIL_C_BEGIN

typedef struct aril_model aril_model;
typedef struct aril_callback aril_callback;

/* A list of callbacks: ARIL_CALLBACKS(a, b). Counted rather than NULL-terminated, so that a
 * callback that could not be created is detected. */
#define ARIL_MAX_CALLBACKS 24
typedef struct aril_callback_list {
    int n;
    aril_callback *at[ARIL_MAX_CALLBACKS];
} aril_callback_list;
typedef struct aril_fit aril_fit; /* a running fit, as callbacks see it */

/* ---- built-in callbacks; NULL, with an error, when memory runs out ---- */

/* A value to monitor. */
typedef struct aril_monitor {
    const char *name; /* NULL: "val_loss", or "loss" without validation */
    bool largest;     /* larger is better. If neither is set, it follows from the loss or metric */
    bool smallest;    /* smaller is better; set at most one of the two */
    double min_delta; /* smaller improvements do not count */
} aril_monitor;

/* Early stopping: ends the fit when the value has not improved for `patience` epochs. */
typedef struct aril_early_stop_opts {
    aril_monitor monitor;
    int patience;      /* 0: stops at the first epoch without an improvement */
    bool restore_best; /* restore the weights of the best epoch at the end */
    bool verbose;      /* print a message to stdout */
} aril_early_stop_opts;
ARIL_API aril_callback *aril_early_stop(aril_early_stop_opts opts);

/* Saves the weights (safetensors): aril_save_best after each epoch that is the best so far,
 * aril_save_last after every `every` epochs (0 means 1) and at the end. "{epoch}" in the path
 * becomes the epoch's number, from 1. Missing folders are created. */
ARIL_API aril_callback *aril_save_best(const char *path, aril_monitor monitor);
ARIL_API aril_callback *aril_save_last(const char *path, int every);

/* The best epoch of a fit so far. */
typedef struct aril_best_epoch {
    int epoch;     /* from 0; -1: none yet */
    double value;  /* of the monitored column; NaN: none yet */
    char name[64]; /* of that column, such as "val_accuracy" */
} aril_best_epoch;

typedef struct aril_keep_best_opts {
    aril_monitor monitor;
    const char *path; /* save the weights there, as aril_save_best does; NULL: to no file */
    /* Called after each epoch that is the best so far, to save more than the weights. */
    aril_status (*save)(aril_fit *fit, void *ctx);
    void *ctx;
    bool restore; /* load the best weights at the end of the fit: from the file, or from memory */
    aril_best_epoch *best; /* kept up to date, also when a fit is resumed; borrowed for the fit */
} aril_keep_best_opts;

/* Keeps the weights of the best epoch:
 *
 *     aril_best_epoch best;
 *     aril_keep_best((aril_keep_best_opts){ .monitor = { .name = "val_accuracy" },
 *                                           .restore = true, .best = &best })
 *
 * An epoch with a loss that is NaN or infinite is never the best one. */
ARIL_API aril_callback *aril_keep_best(aril_keep_best_opts opts);

/* Sets the learning rate of each epoch to a function of the epoch (from 0) and the current rate. */
typedef double aril_lr_fn(int epoch, double lr, void *ctx);
ARIL_API aril_callback *aril_lr_callback(aril_lr_fn *fn, void *ctx);

/* Writes a line of comma-separated values after each epoch; a resumed fit appends to the file. */
ARIL_API aril_callback *aril_csv_log(const char *path);

/* Ends the fit when the loss of a batch, or val_loss, is not finite, and prints a message below the
 * progress output; aril_history_diverged then returns true. Callbacks after this one never treat
 * that epoch as the best, and no checkpoint is written. Reads the loss of every batch, which
 * synchronizes with the device. */
ARIL_API aril_callback *aril_stop_on_nan(void);

/* Logs for TensorBoard: each column of the history after each epoch, in DIR/train and DIR/val, so
 * that TensorBoard shows both in one chart; and what the options select. */
typedef struct aril_tensorboard_opts {
    /* also log loss and learning rate every so many batches, as batch_loss and batch_lr; 0:
     * never */
    int64_t every_batches;
    int histograms_every; /* the parameters, as "parameters/NAME", every so many epochs; 0: never */
    bool graph; /* the module's graph, from one run on f32 zeros of the model's input shape */
} aril_tensorboard_opts;
ARIL_API aril_callback *aril_tensorboard_log(const char *dir, aril_tensorboard_opts opts);

/* Calls fn after each epoch, or after each batch. If it returns a negative status, the fit
 * fails. */
typedef aril_status aril_callback_fn(aril_fit *fit, void *ctx);
ARIL_API aril_callback *aril_on_epoch(aril_callback_fn *fn, void *ctx);
ARIL_API aril_callback *aril_on_batch(aril_callback_fn *fn, void *ctx);

/* ---- custom callbacks ---- */

/* A class of callbacks; it must outlive its callbacks. Each function may be NULL; if one returns a
 * negative status, the fit fails. */
typedef struct aril_callback_class {
    const char *name; /* identifies its state in checkpoints */
    size_t size;      /* bytes of instance data, zero-initialized: aril_callback_data */
    aril_status (*begin)(aril_callback *cb,
                         aril_fit *fit); /* after a resumed fit's state was loaded */
    aril_status (*epoch_begin)(aril_callback *cb, aril_fit *fit);
    aril_status (*batch_end)(aril_callback *cb, aril_fit *fit);
    aril_status (*epoch_end)(aril_callback *cb, aril_fit *fit); /* after validation */
    aril_status (*end)(aril_callback *cb, aril_fit *fit);       /* not after a failure */
    void (*destroy)(aril_callback *cb);
} aril_callback_class;
/* Creates a callback of a class, or NULL with an error; returns its instance data, `size` bytes. */
ARIL_API aril_callback *aril_callback_make(const aril_callback_class *type);
ARIL_API void *aril_callback_data(aril_callback *cb);
/* Frees a callback that no fit owns. */
ARIL_API void aril_callback_free(aril_callback *cb);

/* A named tensor of the callback's state, which checkpoints save: NULL if it was never set. */
ARIL_API aril_tensor *aril_callback_get(aril_callback *cb, const char *name);
ARIL_API aril_status aril_callback_set(aril_callback *cb, const char *name, aril_tensor *value);

/* ---- queries for callbacks ---- */

/* The model that is being trained. */
ARIL_API aril_model *aril_fit_model(const aril_fit *fit);
/* The epoch, from 0, and how many there are. */
ARIL_API int aril_fit_epoch(const aril_fit *fit);
ARIL_API int aril_fit_epochs(const aril_fit *fit);
/* Batches done in this epoch, batches in an epoch (0: unknown), batches done since training
 * began. */
ARIL_API int64_t aril_fit_batch(const aril_fit *fit);
ARIL_API int64_t aril_fit_batches(const aril_fit *fit);
ARIL_API int64_t aril_fit_step(const aril_fit *fit);
/* True when this fit resumed from a checkpoint. */
ARIL_API bool aril_fit_resumed(const aril_fit *fit);

/* "loss" or a metric over the epoch so far, "val_..." once measured in this epoch, "lr",
 * "batch_loss". NaN if there is no such value. */
ARIL_API double aril_fit_value(const aril_fit *fit, const char *name);
/* The names of all columns of the history, NULL-terminated. */
ARIL_API const char *const *aril_fit_names(const aril_fit *fit);

/* Ends the fit after this batch or epoch. */
ARIL_API void aril_fit_stop(aril_fit *fit);

ARIL_C_END

/* Callbacks for aril_fit_opts. If one is NULL because it could not be created, the fit fails before
 * it begins. */
#ifdef __cplusplus
template <class... C> inline aril_callback_list aril__make_callbacks(C... c)
{
    static_assert(sizeof...(c) <= ARIL_MAX_CALLBACKS, "at most ARIL_MAX_CALLBACKS callbacks");
    return { int(sizeof...(c)), { c... } };
}
#define ARIL_CALLBACKS(...) aril__make_callbacks(__VA_ARGS__)
#else
#define ARIL_CALLBACKS(...)                                                          \
    ((aril_callback_list){                                                           \
        (int)(sizeof((aril_callback *[]){ __VA_ARGS__ }) / sizeof(aril_callback *)), \
        { __VA_ARGS__ } })
#endif

#endif
